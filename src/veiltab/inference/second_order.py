"""The law of a smooth statistic of a table, to second order, from its cumulants.

With the error e = T̂ − T, a statistic is f(T̂) = f + gᵀe + ½eᵀHe.  For normal errors with the
covariance Σ its cumulants are

    κ₁ = f + ½ tr(HΣ),                 κ₂ = gᵀΣg + ½ tr((HΣ)²),
    κ₃ = 3gᵀΣHΣg + tr((HΣ)³),          κ₄ = 12gᵀΣ(HΣ)²g + 3 tr((HΣ)⁴).

H and Σ are diagonal but for matrices of low rank, so that no N × N matrix is built.  Where errors
are not normal, each cell adds what its own cumulants have more than normal ones: the errors of
different cells are nearly independent.  Many releases run along the first axis.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.shape import Shape
from veiltab.core.uncertainty import CovarianceForm

Array = NDArray[np.float64]

LEAST_LEFT = 1 / 4
"""Corrections for single cells never take away more of a variance than leaves this much of it."""

_TINY = 1e-300


@dataclass(frozen=True, eq=False)
class PluggedCovariance:
    """The covariance x(diag p − ppᵀ) + y(diag u − uuᵀ) + z(p − u)(p − u)ᵀ of the estimates.

    ``shares`` are the p of each release, ``fractions`` the u of all: the part of the joint cells
    that each cell stands for.  ``form`` has numbers, or one for each release, as columns.
    """

    shares: Array
    fractions: Array
    form: CovarianceForm

    @cached_property
    def diagonal(self) -> Array:
        """The part of the covariance that is a diagonal matrix."""
        whole: Array = self.form.truth * self.shares + self.form.uniform * self.fractions
        return whole

    @property
    def variances(self) -> Array:
        """The variance of each cell."""
        return self.form.of_sets(self.shares, self.fractions)

    def times(self, vectors: Array) -> Array:
        """Multiply the matrix of each release by a vector."""
        return self.diagonal * vectors + _times(self._columns, self._middle, vectors)

    def times_matrix(self, matrices: Array) -> Array:
        """Multiply the matrix of each release by a matrix."""
        product: Array = self.diagonal[..., np.newaxis] * matrices + self._columns @ (
            self._middle @ (np.swapaxes(self._columns, -1, -2) @ matrices)
        )
        return product

    @cached_property
    def _columns(self) -> Array:
        return np.stack(np.broadcast_arrays(self.shares, self.fractions), axis=-1)

    @cached_property
    def _middle(self) -> Array:
        x, y, z = (_flat(part) for part in (self.form.truth, self.form.uniform, self.form.shift))
        middle: Array = np.stack(
            [np.stack(np.broadcast_arrays(*row), -1) for row in ((z - x, -z), (-z, z - y))], -2
        )
        return middle

    def low_rank(self) -> tuple[Array, Array]:
        """Return C and C·M of the part C·M·Cᵀ that is not diagonal."""
        return self._columns, self._columns @ self._middle


def _flat(part: Any) -> Any:  # noqa: ANN401 - a number, or a column with one for each release
    return part[..., 0] if isinstance(part, np.ndarray) else np.float64(part)


def _times(columns: Array, middle: Array, vectors: Array) -> Array:
    inner = np.einsum("...nk,...n->...k", columns, vectors)
    product: Array = np.einsum(
        "...nk,...k->...n", columns, np.einsum("...kl,...l->...k", middle, inner)
    )
    return product


@dataclass(frozen=True, eq=False)
class Expansion:
    """A statistic of each release with its derivatives: H = diag(``curvature``) + Z·K·Zᵀ.

    ``cubic`` is a sixth of the third derivative in each single cell, roughly.  Where the law of
    each single cell is known by itself, ``single`` returns what that adds to κ₂ and κ₃, in two
    rows, if a number is added to all slopes of a release; ``near`` says how much of each cell that
    is.
    """

    value: Array
    gradient: Array
    curvature: Array
    columns: Array
    middle: Array
    cubic: Array | None = None
    single: Callable[[Array], Array] | None = None
    near: Array | None = None

    def hessian_times(self, vectors: Array) -> Array:
        """Multiply H of each release by a vector."""
        return self.curvature * vectors + _times(self.columns, self.middle, vectors)

    def hessian_diagonal(self) -> Array:
        """Return the second derivative in each single cell."""
        whole: Array = self.curvature + ((self.columns @ self.middle) * self.columns).sum(-1)
        return whole


@dataclass(frozen=True, slots=True, eq=False)
class Cumulants:
    """The cumulants of a statistic's error: what its gradient adds, and what its curvature adds.

    Rows are κ₂, κ₃ and κ₄.  ``bias`` is κ₁ less the true value.
    """

    bias: Array
    linear: Array
    square: Array


def cumulants(
    expansion: Expansion, covariance: PluggedCovariance, shape: Shape | None
) -> Cumulants:
    """Return the cumulants; ``shape`` is that of each cell's error, None for the normal law."""
    slopes = covariance.times(expansion.gradient)
    bent = expansion.hessian_times(slopes)
    traces = _traces(expansion, covariance)
    linear = np.stack(
        [
            (expansion.gradient * slopes).sum(-1),
            3 * (slopes * bent).sum(-1),
            12 * (bent * covariance.times(bent)).sum(-1),
        ]
    )
    square = np.stack([traces[1] / 2, traces[2], 3 * traces[3]])
    if expansion.single is not None:
        parts = _parts(covariance)
        shift = -(expansion.gradient * parts).sum(-1)
        linear, square = _with_single(linear, square, expansion.single(shift))
    if shape is not None:
        linear, square = _with_shape(linear, square, expansion, covariance, shape)
    return Cumulants(traces[0] / 2, linear, square)


def _traces(expansion: Expansion, covariance: PluggedCovariance) -> tuple[Array, ...]:
    """Return tr(HΣ), tr((HΣ)²), tr((HΣ)³) and tr((HΣ)⁴), with HΣ = diag(d) + U·Vᵀ."""
    columns, weighted = covariance.low_rank()
    diagonal = expansion.curvature * covariance.diagonal
    left = np.concatenate(
        [expansion.curvature[..., np.newaxis] * weighted, expansion.columns @ expansion.middle], -1
    )
    right = np.concatenate([columns, covariance.times_matrix(expansion.columns)], -1)
    right = np.swapaxes(right, -1, -2)
    powers = []
    for _ in range(4):
        powers.append(right @ left)
        left = diagonal[..., np.newaxis] * left
    w0, w1, w2, w3 = powers
    squared = w0 @ w0
    return (
        diagonal.sum(-1) + _trace(w0),
        (diagonal**2).sum(-1) + 2 * _trace(w1) + _product(w0, w0),
        (diagonal**3).sum(-1) + 3 * _trace(w2) + 3 * _product(w1, w0) + _product(squared, w0),
        (diagonal**4).sum(-1)
        + 4 * _trace(w3)
        + 4 * _product(w2, w0)
        + 2 * _product(w1, w1)
        + 4 * _product(w1, squared)
        + _product(squared, squared),
    )


def _trace(matrix: Array) -> Array:
    return np.asarray(np.trace(matrix, axis1=-2, axis2=-1))


def _product(left: Array, right: Array) -> Array:
    """Return the trace of a product."""
    return np.asarray(np.einsum("...ij,...ji->...", left, right))


def _parts(covariance: PluggedCovariance) -> Array:
    """Return what part of the total of all errors is taken off again from each cell."""
    parts: Array = covariance.diagonal / covariance.diagonal.sum(-1, keepdims=True)
    return parts


def _with_single(linear: Array, square: Array, single: Array) -> tuple[Array, Array]:
    """Add what single cells have more than their parabolas, to both parts in proportion."""
    variance, third = single.sum(-1)
    whole = linear[0] + square[0]
    ratio = np.maximum(1 + variance / np.maximum(whole, _TINY), LEAST_LEFT)
    part = linear[0] / np.maximum(whole, _TINY)
    return (
        np.stack([linear[0] * ratio, linear[1] + part * third, linear[2]]),
        np.stack([square[0] * ratio, square[1] + (1 - part) * third, square[2]]),
    )


def _with_shape(
    linear: Array,
    square: Array,
    expansion: Expansion,
    covariance: PluggedCovariance,
    shape: Shape,
) -> tuple[Array, Array]:
    """Add what the cumulants of single cells' errors have more than normal ones.

    In a cell with the error e the statistic is ge + De² + Fe³.  The total of all errors is taken
    off again from each cell by its part of the variance, so that g and D count net of that.  The
    fifth and sixth cumulants are those that gamma and Laplace laws have with these first four:
    κ₅ = 2κ₃κ₄/κ₂ and κ₆ = (10/3)κ₄²/κ₂.
    """
    parts = _parts(covariance)
    slope = expansion.gradient - (expansion.gradient * parts).sum(-1, keepdims=True)
    taken = expansion.hessian_times(parts)
    curve = expansion.hessian_diagonal() - 2 * taken + (parts * taken).sum(-1, keepdims=True)
    curve = curve / 2
    if expansion.near is not None:
        shape = Shape(shape.skewness * (1 - expansion.near), shape.excess * (1 - expansion.near))
    v = covariance.variances
    third, fourth = shape.skewness * v**1.5, shape.excess * v**2
    fifth, sixth = 2 * third * shape.excess * v, 10 / 3 * fourth * shape.excess * v
    more = (curve**2 * fourth).sum(-1)
    cubic = 0.0 if expansion.cubic is None else expansion.cubic
    bent = (2 * curve * cubic * (fifth + 9 * third * v)).sum(-1)
    variance = np.maximum(square[0] + more + bent, (square[0] + more) / 2)
    shrunk = variance / np.maximum(square[0] + more, _TINY)
    cubes = (curve**3 * (sixth + 12 * fourth * v + 10 * third**2)).sum(-1)
    mixed = slope**3 * third + 3 * slope**2 * curve * fourth
    mixed = mixed + 3 * slope * curve**2 * (fifth + 8 * third * v)
    skewed = linear[0] + 2 * (slope * curve * third).sum(-1)
    return (
        np.stack(
            [
                np.maximum(skewed, LEAST_LEFT * linear[0]),
                linear[1] + mixed.sum(-1),
                linear[2] + (slope**4 * fourth).sum(-1),
            ]
        ),
        np.stack([variance, (square[1] + cubes) * shrunk**1.5, square[2] * shrunk**2]),
    )
