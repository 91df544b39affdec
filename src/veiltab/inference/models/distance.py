"""How far parameters are from what a release says: Q(β) = U(β)ᵀ V(β)⁻¹ U(β).

U is linear in the unbiased shares, so V is known at each β and no standard error of β is needed.  A
hypothesis that leaves β on a line, plane, … is judged by the smallest Q on it, which is about χ²
with as many degrees of freedom as the hypothesis takes away.  With one ratio of two linear
statistics this is Fieller's set.

Many minima are looked for at once: the ends of all intervals of a fit, or the same question of many
releases.  Each goes its own way; together they are a few operations on large arrays.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.uncertainty import CovarianceForm, Population
from veiltab.inference.models.equations import Equations, Flags

Places = NDArray[np.intp]

MOST_STEPS = 100
DAMPINGS = (0.0, 0.1, 1.0, 10.0, 1e2, 1e3, 1e4, 1e6)
"""By how much the curvature is raised, one after the other, until Q falls."""

NEGLIGIBLE = 1e-10
CLOSE = 1e-6
"""A step that promises less, relative to Q, is not made; or shows that Q is at its minimum."""

FLAT = 1e-3
"""The largest slope, relative to Q, at which it is at its minimum for differences."""

SINGULAR = 1e-12
"""Directions of a matrix with less than this part of its largest one count as none."""

NUMBERS_AT_ONCE = 500_000
"""How many scores are computed at once: minima × parameters × cells."""


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """The nearest parameters under hypotheses, one per row, and how far they are."""

    parameters: Shares
    distance: Shares
    settled: Flags


@dataclass(frozen=True, eq=False)
class Distance:
    """Equations, and the shares and the covariance with which they are judged.

    The shares are those of one release, or have a row for each of many.
    """

    equations: Equations
    shares: Shares
    likely: Shares
    form: CovarianceForm

    @classmethod
    def of(
        cls, equations: Equations, released: ReleasedCounts, population: Population
    ) -> "Distance":
        """Judge by a release."""
        form = released.design(population).total.like(released.unbiased)
        return cls(equations, released.unbiased, released.plausible, form)

    def rows(self, places: Places) -> "Distance":
        """Return the same for some of the releases, or for the only one."""
        if self.shares.ndim == 1:
            return self
        parts = (self.form.truth, self.form.uniform, self.form.shift)
        form = CovarianceForm(*(part[places] if _is_many(part) else part for part in parts))
        return Distance(self.equations, self.shares[places], self.likely[places], form)

    def at(self, parameters: Shares) -> "Point":
        """Compute U, V and what follows from them."""
        scores = self.equations.scores(parameters)
        covariance = self.form.of_statistics(self.likely, scores)
        return Point(parameters, scores, times(scores, self.shares), covariance)

    def _gradient(self, point: "Point", slopes: Shares) -> Shares:
        """Return half of Q's derivatives, Dᵀ V⁻¹ U.

        D is ∂U/∂β less what it has in common with U: ∂U/∂β − Cov(∂U/∂β, U) V⁻¹ U.
        """
        along = times(np.swapaxes(point.scores, -1, -2), point.direction)
        bent = self.equations.combined_slopes(point.parameters, point.direction)
        mean, even = times(bent, self.likely), bent.mean(axis=-1)
        true = (along * self.likely).sum(axis=-1, keepdims=True)
        uniform = along.mean(axis=-1, keepdims=True)
        common = (
            self.form.truth * (times(bent, along * self.likely) - mean * true)
            + self.form.uniform * (times(bent, along) / along.shape[-1] - even * uniform)
            + self.form.shift * (mean - even) * (true - uniform)
        )
        gradient: Shares = times(np.swapaxes(slopes, -1, -2), point.direction) - common
        return gradient

    def nearest(self, origins: Shares, basis: Shares) -> Nearest:
        """Minimise Q over origin + basis·γ for each origin, by damped Gauss–Newton steps.

        ``basis`` is one for all origins, or one for each.  Of many releases, each has one origin.
        """
        count = len(origins)
        found = Nearest(origins.copy(), np.full(count, np.inf), np.zeros(count, dtype=np.bool_))
        proper = np.flatnonzero(self.equations.proper(origins))
        at_once = max(1, NUMBERS_AT_ONCE // (origins.shape[1] * self.shares.shape[-1]))
        for start in range(0, proper.size, at_once):
            places = proper[start : start + at_once]
            inner = basis[places] if basis.ndim > 2 else basis  # noqa: PLR2004 - one for each
            for rows, near in self.rows(places).descend(origins[places], inner):
                found.parameters[places[rows]] = near.parameters
                found.distance[places[rows]] = near.distance
                found.settled[places[rows]] = near.settled
        return found

    def descend(self, origins: Shares, basis: Shares) -> Iterator[tuple[Places, Nearest]]:
        """Yield minima as they are found, with the places of their origins."""
        places, judged = np.arange(len(origins)), self
        point = self.at(origins)
        if basis.shape[-1] == 0:
            yield places, Nearest(origins, point.distance, np.ones(len(origins), dtype=np.bool_))
            return
        for _ in range(MOST_STEPS):
            slopes = judged.equations.jacobian(point.parameters, judged.shares)
            gradient = times(np.swapaxes(basis, -1, -2), judged._gradient(point, slopes))
            inner = slopes @ basis
            curvature = np.swapaxes(inner, -1, -2) @ _solved(point.covariance, inner)
            moving, moved = judged._lower(point, basis, gradient, curvature)
            still = np.setdiff1d(np.arange(places.size), moving)
            if still.size:
                rest = point.rows(still)
                settled = _is_flat(gradient[still], curvature[still], rest.distance)
                yield places[still], Nearest(rest.parameters, rest.distance, settled)
            if not moving.size:
                return
            places, judged, point = places[moving], judged.rows(moving), moved
            basis = basis[moving] if basis.ndim > 2 else basis  # noqa: PLR2004 - one for each
        unsettled = np.zeros(places.size, dtype=np.bool_)
        yield places, Nearest(point.parameters, point.distance, unsettled)

    def searched(self, origin: Shares, basis: Shares) -> Nearest:
        """Minimise the same by quasi-Newton steps with differences: slower, where others fail."""
        from scipy.optimize import minimize  # noqa: PLC0415 - slow to load, and seldom needed

        def squared(inner: Shares) -> float:
            parameters = origin + basis @ inner
            proper = self.equations.proper(parameters)
            return float(self.at(parameters).distance) if proper else np.inf

        found = minimize(squared, np.zeros(basis.shape[1]), method="BFGS")
        settled = np.abs(found.jac).max() <= FLAT * (1 + found.fun)
        parameters = origin + basis @ found.x
        return Nearest(parameters[np.newaxis], np.array([found.fun]), np.array([settled]))

    @np.errstate(over="ignore", invalid="ignore")
    def _lower(
        self, point: "Point", basis: Shares, gradient: Shares, curvature: Shares
    ) -> tuple[Places, "Point"]:
        """Return points with a smaller Q, and which ones; the others have hardly any.

        The more the curvature is raised, the shorter the step, and the nearer to steepest descent.
        A step that is not finite is tried again with more curvature.
        """
        scale = np.einsum("...ii->...i", curvature)[..., np.newaxis] * np.eye(curvature.shape[-1])
        pending = np.arange(len(gradient))
        places: list[Places] = []
        points: list[Point] = []
        for damping in DAMPINGS:
            raised = curvature[pending] + damping * scale[pending]
            step = -_solved(raised, gradient[pending][..., np.newaxis])[..., 0]
            gain = -(gradient[pending] * step).sum(axis=-1)
            promising = ~(gain <= NEGLIGIBLE * (1 + point.distance[pending]))  # or not finite
            pending, step = pending[promising], step[promising]
            inner = basis[pending] if basis.ndim > 2 else basis  # noqa: PLR2004 - one for each
            parameters = point.parameters[pending] + times(inner, step)
            proper = self.equations.proper(parameters)
            tried = pending[proper]
            moved = self.rows(tried).at(parameters[proper])
            better = moved.distance < point.distance[tried]
            places.append(tried[better])
            points.append(moved.rows(np.flatnonzero(better)))
            pending = np.setdiff1d(pending, places[-1])
            if not pending.size:
                break
        return np.concatenate(places), Point.joined(points)


def _is_flat(gradient: Shares, curvature: Shares, distance: Shares) -> Flags:
    """Tell whether a full step promises hardly anything."""
    inverse = np.linalg.pinv(curvature, rcond=SINGULAR, hermitian=True).astype(np.float64)
    flat: Flags = (gradient * times(inverse, gradient)).sum(axis=-1) <= CLOSE * (1 + distance)
    return flat


@dataclass(frozen=True, eq=False)
class Point:
    """U and V at some parameters, or at many."""

    parameters: Shares
    scores: Shares
    sums: Shares
    covariance: Shares

    def rows(self, places: Places) -> "Point":
        """Return some of many points."""
        return Point(
            self.parameters[places],
            self.scores[places],
            self.sums[places],
            self.covariance[places],
        )

    @classmethod
    def joined(cls, points: "list[Point]") -> "Point":
        """Return all points together."""
        if len(points) == 1:
            return points[0]
        parts = [(p.parameters, p.scores, p.sums, p.covariance) for p in points]
        return cls(*map(np.concatenate, zip(*parts, strict=True)))

    @cached_property
    def direction(self) -> Shares:
        """V⁻¹U."""
        return _solved(self.covariance, self.sums[..., np.newaxis])[..., 0]

    @cached_property
    def distance(self) -> Shares:
        """Q = UᵀV⁻¹U."""
        distance: Shares = np.maximum((self.sums * self.direction).sum(axis=-1), 0.0)
        return distance


def times(matrices: Shares, vectors: Shares) -> Shares:
    """Multiply a matrix, or each of many, by its vector."""
    product: Shares = (matrices @ vectors[..., np.newaxis])[..., 0]
    return product


def _solved(matrices: Shares, right: Shares) -> Shares:
    """Solve linear equations; those of a singular matrix by least squares."""
    try:
        return np.linalg.solve(matrices, right).astype(np.float64, copy=False)
    except np.linalg.LinAlgError:
        solved: Shares = np.linalg.pinv(matrices, rcond=SINGULAR) @ right
        return solved


def _is_many(part: Any) -> bool:  # noqa: ANN401 - a number, or an array with one per release
    return isinstance(part, np.ndarray) and part.ndim > 0
