"""How far an estimate may be off, and why: the sampling error, the privacy error, and both.

For every mechanism the covariance of two linear statistics a·T̂ and b·T̂ has the same form,

    Cov(a·T̂, b·T̂) = x·Cov_T(a, b) + y·Cov_U(a, b) + z·Δ(a)Δ(b),

where Cov_T is the covariance of a and b over a cell drawn from T, Cov_U the one over a uniform
cell, and Δ(a) the difference between the two means of a.  Only the coefficients x, y and z depend
on the mechanism; :mod:`veiltab.core.designs` derives them.  No matrix is built for the cells of a
table: every question costs O(N).

The statistic of a set of cells is its indicator.  If the set has the share θ and is a fraction φ
of all cells, its variance is xθ(1 − θ) + yφ(1 − φ) + z(θ − φ)²: it depends on the set's own share
alone.

Sampling error arises because not everybody takes part; it would be there without any noise.
Privacy error is the rest.  Both have the form above, and the two add up.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
from scipy.special import ndtri

from veiltab.core.channel import number_like
from veiltab.core.parameters import is_number
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veiltab.core.cell_law import CellLaw
    from veiltab.core.channel import Numbers
    from veiltab.core.shape import Shape

Population = Literal["finite", "super"]
"""Whom the estimates describe: the respondents, or the population that they were drawn from."""


@dataclass(frozen=True, slots=True)
class CovarianceForm:
    """The coefficients x, y and z of a covariance: over the truth, over uniform cells, of shifts.

    They are exact Fractions, or floats, or arrays with one number for each of many releases, whose
    last axis has the length one.
    """

    truth: Any
    uniform: Any
    shift: Any

    def __add__(self, other: "CovarianceForm") -> "CovarianceForm":
        """Add two causes of error that are independent."""
        return CovarianceForm(
            self.truth + other.truth, self.uniform + other.uniform, self.shift + other.shift
        )

    def like(self, numbers: "Numbers") -> "CovarianceForm":
        """Return the coefficients as floats, unless the numbers are Fractions."""
        number = number_like(numbers)
        return CovarianceForm(
            *(
                number(value) if isinstance(value, Fraction) else value
                for value in (self.truth, self.uniform, self.shift)
            )
        )

    def of_sets(self, shares: "Numbers", fractions: Any) -> "Numbers":  # noqa: ANN401 - see below
        """Return the variances of sets with these shares.

        ``fractions`` of all cells belong to the sets: one number for all sets, or one for each.
        """
        form = self.like(shares)
        variances: Numbers = (
            form.truth * (shares * (1 - shares))
            + form.uniform * (fractions * (1 - fractions))
            + form.shift * (shares - fractions) ** 2
        )
        return variances

    def quadratic(self, fractions: Any) -> tuple[Any, Any, Any]:  # noqa: ANN401 - as above
        """Return the a, b, c of a set's variance a + bθ + cθ²."""
        form = self.like(np.asarray(fractions))
        constant = form.uniform * (fractions * (1 - fractions)) + form.shift * fractions**2
        return constant, form.truth - 2 * form.shift * fractions, form.shift - form.truth

    def of_partition(self, shares: "Numbers", fractions: "Numbers") -> "Numbers":
        """Return the covariances of sets that divide the table, on the two last axes."""
        form = self.like(shares)
        truth, uniform, shift = (_as_matrix(x) for x in (form.truth, form.uniform, form.shift))
        apart = shares - fractions
        covariance: Numbers = (
            truth * _multinomial(shares)
            + uniform * _multinomial(fractions)
            + shift * (apart[..., np.newaxis] * apart[..., np.newaxis, :])
        )
        return covariance

    def between(self, distribution: "Numbers", left: "Numbers", right: "Numbers") -> Any:  # noqa: ANN401 - float or Fraction
        """Return the covariance of the linear statistics left·T̂ and right·T̂.

        If the distributions are many, one per row, it returns one covariance for each.
        """
        form = self.like(distribution)
        truth, uniform, shift = (_per_release(x) for x in (form.truth, form.uniform, form.shift))
        even = number_like(distribution)(Fraction(1, distribution.shape[-1]))
        true_left, true_right = distribution @ left, distribution @ right
        even_left, even_right = left.sum() * even, right.sum() * even
        return (
            truth * (distribution @ (left * right) - true_left * true_right)
            + uniform * ((left * right).sum() * even - even_left * even_right)
            + shift * (true_left - even_left) * (true_right - even_right)
        )

    def times(self, distribution: "Numbers", gradients: "Numbers") -> "Numbers":
        """Return the covariance of every cell's estimate with linear statistics, one per row."""
        form = self.like(distribution)
        even = number_like(distribution)(Fraction(1, distribution.shape[-1]))
        true = (gradients @ distribution)[..., np.newaxis]
        uniform = gradients.sum(axis=-1)[..., np.newaxis] * even
        covariance: Numbers = (
            form.truth * distribution * (gradients - true)
            + form.uniform * even * (gradients - uniform)
            + form.shift * (distribution - even) * (true - uniform)
        )
        return covariance

    def of_statistics(
        self,
        distribution: "Numbers",
        gradients: "Numbers",
        fractions: "Numbers | None" = None,
    ) -> "Numbers":
        """Return the covariance matrix of linear statistics, one per row of ``gradients``.

        If the columns are sets of cells, ``fractions`` of all cells belong to each.  Axes before
        the last ones stand for many releases, or for many ways to divide a table.
        """
        form = self.like(distribution)
        truth, uniform, shift = (_as_matrix(x) for x in (form.truth, form.uniform, form.shift))
        if fractions is None:
            one = number_like(distribution)(Fraction(1, distribution.shape[-1]))
            fractions = distribution * 0 + one
        means, spreads = [], []
        for shares in (distribution, fractions):
            weighted = gradients * shares[..., np.newaxis, :]
            mean = weighted.sum(axis=-1)
            means.append(mean)
            spreads.append(weighted @ np.swapaxes(gradients, -1, -2) - _outer(mean))
        covariance: Numbers = (
            truth * spreads[0] + uniform * spreads[1] + shift * _outer(means[0] - means[1])
        )
        return covariance


def _outer(vectors: "Numbers") -> "Numbers":
    """Return the products of each vector's entries, on the two last axes."""
    products: Numbers = vectors[..., np.newaxis] * vectors[..., np.newaxis, :]
    return products


def _per_release(value: Any) -> Any:  # noqa: ANN401 - a number, or an array with one per release
    return value[..., 0] if isinstance(value, np.ndarray) else value


def _as_matrix(value: Any) -> Any:  # noqa: ANN401 - a number, or an array with one per release
    return value[..., np.newaxis] if isinstance(value, np.ndarray) else value


def _multinomial(shares: "Numbers") -> "Numbers":
    """Return diag(θ) − θθᵀ on the two last axes."""
    identity = np.eye(shares.shape[-1], dtype=np.int64)
    matrix: Numbers = (
        shares[..., np.newaxis] * identity - shares[..., np.newaxis] * shares[..., np.newaxis, :]
    )
    return matrix


class ReleaseDesign(ABC):
    """How a release came about: everything but the data that estimates and their errors need.

    ``population`` says whom the estimates describe: "finite" are the respondents themselves,
    "super" is the larger population that they were drawn from.  Counts have their cells, or sets
    of cells that divide the table, along the last axis, so that many releases are served at once.
    """

    cells: int
    population: Population

    def _check_population(self) -> None:
        if self.population not in get_args(Population):
            raise ParameterError(
                f"there is no population {self.population!r}",
                hint="'finite' asks about the respondents themselves, 'super' about the larger"
                " population that they were drawn from",
            )

    @property
    @abstractmethod
    def sampling(self) -> CovarianceForm:
        """The covariance that arises because not everybody takes part."""

    @property
    @abstractmethod
    def privacy(self) -> CovarianceForm:
        """The covariance that noise and decoys cause."""

    @cached_property
    def total(self) -> CovarianceForm:
        """The covariance of the estimate: the sum of both parts."""
        return self.privacy + self.sampling

    @property
    @abstractmethod
    def cell_variance(self) -> tuple[Any, Any]:
        """The a and b of roughly a cell's variance a + bθ, which weights likelihood and tests."""

    @abstractmethod
    def estimate_sets(self, counts: "Numbers", sizes: Any) -> "Numbers":  # noqa: ANN401 - an array, or 1 for cells
        """Estimate the shares of sets of ``sizes`` cells that divide the table, without bias."""

    def estimate(self, counts: "Numbers") -> "Numbers":
        """Estimate the share of each cell without bias; some estimates can be negative."""
        if counts.shape[-1] != self.cells:
            raise ParameterError(
                f"cannot estimate {self.cells} cells from {counts.shape[-1]} counts",
                hint="give one count per cell, along the last axis",
            )
        return self.estimate_sets(counts, 1)

    @abstractmethod
    def shape(self, weights: "Numbers", shares: "Numbers", fractions: "Numbers") -> "Shape":
        """Return the skewness of a statistic of sets that divide the table, and its excess.

        ``weights``, ``shares`` and ``fractions`` have the sets along the last axis.
        """

    @abstractmethod
    def cell_law(self, rows: int) -> "CellLaw":
        """Return the law of the count of one cell in a release of so many rows."""

    @property
    @abstractmethod
    def normal(self) -> bool:
        """Whether errors are taken as normal."""

    @property
    def many(self) -> bool:
        """Whether it stands for many releases, each about another number of people."""
        return False

    @abstractmethod
    def marginal(self, cells: int) -> Self:
        """Return the design of the same release for some attributes, with this many cells."""

    @abstractmethod
    def draw(
        self, respondents: "NDArray[np.int64]", runs: int, generator: np.random.Generator
    ) -> "NDArray[np.int64]":
        """Draw the counts of releases about these respondents, one release per row."""

    @abstractmethod
    def redraw(
        self, distribution: "NDArray[np.float64]", runs: int, generator: np.random.Generator
    ) -> "NDArray[np.int64]":
        """Draw the counts of releases that a distribution would have led to, one per row.

        The distribution is that of the respondents, rounded to whole people, or that of a larger
        population.
        """

    @property
    @abstractmethod
    def drawable(self) -> bool:
        """Whether releases can be drawn from their exact law."""


@dataclass(frozen=True, slots=True, eq=False)
class VarianceComponents:
    """The covariance of the unbiased estimate of ``distribution``, by cause: privacy and sampling.

    An estimate instead of the unknown distribution gives the plug-in covariance.  A proper
    distribution never gives a negative variance.
    """

    distribution: "Numbers"
    design: ReleaseDesign

    def privacy(self, weights: "Numbers") -> Any:  # noqa: ANN401 - float or Fraction
        """Return the variance of weights·T̂ that noise and decoys cause."""
        return self.design.privacy.between(self.distribution, weights, weights)

    def sampling(self, weights: "Numbers") -> Any:  # noqa: ANN401 - float or Fraction
        """Return the variance of weights·T̂ that the sampling causes."""
        return self.design.sampling.between(self.distribution, weights, weights)

    def total(self, weights: "Numbers") -> Any:  # noqa: ANN401 - float or Fraction
        """Return the whole variance of weights·T̂."""
        return self.between(weights, weights)

    def between(self, left: "Numbers", right: "Numbers") -> Any:  # noqa: ANN401 - float or Fraction
        """Return the covariance of left·T̂ and right·T̂."""
        return self.design.total.between(self.distribution, left, right)

    def cells(self) -> "CellVariances":
        """Return the variance of each cell's estimate, and its two parts."""
        one = number_like(self.distribution)(Fraction(1, self.design.cells))
        privacy = self.design.privacy.of_sets(self.distribution, one)
        sampling = self.design.sampling.of_sets(self.distribution, one)
        return CellVariances(privacy, sampling, privacy + sampling)


@dataclass(frozen=True, slots=True, eq=False)
class CellVariances:
    """The variance of each cell's estimate: what privacy adds, what sampling adds, and the sum."""

    privacy: "Numbers"
    sampling: "Numbers"
    total: "Numbers"


def critical_value(level: float) -> float:
    """Return z with P(|Z| ≤ z) = level for a standard normal Z."""
    if not is_number(level) or not 0 < level < 1:
        raise ParameterError(
            f"a confidence level lies between 0 and 1, not at {level!r}",
            hint="the usual level is 0.95",
        )
    return float(ndtri((1 + level) / 2))
