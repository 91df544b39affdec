"""Products of shares within strata, with their means, variances and biases under the noise.

For a stratum g, let P_A = Σ A T over its cells, for numbers A of the cells.  Everything here is
about sums over strata of

    U_g(ψ) = P_A P_B − ψ P_C P_D,

which is zero where the odds ratio of a stratum is ψ (with the indicators of the four cells), or
where scores are uncorrelated within it (with A = 1, B = uv, C = u, D = v and ψ = 1).  There are no
quotients in it, so that a stratum with next to nobody in it does no harm.  From unbiased estimates
with the covariance Σ it has the bias Σ_AB − ψΣ_CD, which is taken off, and to second order the
variance

    ∇U·Σ∇U + Σ_AA Σ_BB + Σ_AB² + ψ²(Σ_CC Σ_DD + Σ_CD²) − 2ψ(Σ_AC Σ_BD + Σ_AD Σ_BC).
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.released import Shares
from veiltab.core.uncertainty import ReleaseDesign
from veiltab.inference.rank_one import Model, Tables

Counts = NDArray[np.int64]

CLEARLY = 3.0
"""A stratum is clearly there if its share is at least so many standard errors above zero."""

_TINY = 1e-300


@dataclass(frozen=True, slots=True, eq=False)
class Strata:
    """Sets of cells, arranged as a table of rows and columns in each stratum.

    ``members`` says for each cell of the release which set it is in, in the order (row, column,
    stratum); cells in none of them have the number of sets.
    """

    design: ReleaseDesign
    shape: tuple[int, int, int]
    members: NDArray[np.intp]

    @property
    def sizes(self) -> Shares:
        """How many cells each set has; the last number counts the cells in none of them."""
        return np.bincount(self.members, minlength=int(np.prod(self.shape)) + 1).astype(np.float64)

    @property
    def fractions(self) -> Tables:
        """Which part of all cells each set is, in the form of tables."""
        return self.sizes[:-1].reshape(*self.shape, 1) / self.members.size

    def tables(self, counts: Counts) -> Tables:
        """Return unbiased estimates, with the releases along the last axis."""
        order = np.argsort(self.members, kind="stable")
        sizes = self.sizes
        used = sizes > 0
        starts = (np.cumsum(sizes) - sizes)[used].astype(np.intp)
        sums = np.add.reduceat(counts[:, order], starts, axis=1)
        every = np.zeros((counts.shape[0], sizes.size))
        every[:, used] = self.design.estimate_sets(sums, sizes[used])
        return np.ascontiguousarray(every[:, :-1].T).reshape(*self.shape, -1)

    def unclear(self, tables: Tables) -> int:
        """Return how many strata of a release have a share that is not clearly above zero."""
        shares, fractions = (part.sum(axis=(0, 1)) for part in (tables, self.fractions))
        form = self.design.total
        errors = np.sqrt(np.maximum(form.of_sets(np.clip(shares, 0, 1), fractions), 0))
        return int(np.count_nonzero(shares < CLEARLY * errors))

    def model(self, odds_ratio: Any = 1.0) -> Model:  # noqa: ANN401 - a number, or one per release
        """Return tables with a common odds ratio: ones of rank one, with one cell multiplied."""
        constant, slope = map(float, self.design.cell_variance)
        scale = np.ones((*self.shape[:2], 1, np.size(odds_ratio)))
        scale[0, 0] = odds_ratio
        whole = None if self.sizes[-1] else 1.0
        return Model(constant * self.members.size * self.fractions, slope, scale, whole)

    def distribution(self, table: Tables) -> Shares:
        """Spread the shares of sets evenly over their cells, and what is left over the others.

        The law of the sets' counts depends on their own shares alone.
        """
        shares = np.append(table.reshape(-1), max(1 - float(table.sum()), 0.0))
        spread: Shares = (shares / np.maximum(self.sizes, 1))[self.members]
        whole: Shares = spread / spread.sum()
        return whole


@dataclass(frozen=True, slots=True, eq=False)
class Products:
    """U(ψ) of many releases: its value in each stratum, its gradient and its variance.

    ``numbers`` has the four numbers A, B, C and D of each cell, in the shape (4, rows, columns).
    ``fitted`` are tables under the hypothesis, at which variances are computed.
    """

    strata: Strata
    numbers: Shares
    tables: Tables
    fitted: Tables
    odds_ratio: Any = 1.0

    def products(self, bias: Tables) -> tuple[Tables, Tables]:
        """Return P_A P_B and P_C P_D of each stratum, each without its bias."""
        a, b, c, d = _sums(self.tables, self.numbers)
        return a * b - bias[0, 1], c * d - bias[2, 3]

    def covariances(self) -> Tables:
        """Return Σ_AA, Σ_AB, …: how the four sums of a stratum vary, under the hypothesis."""
        form = self.strata.design.total
        truth, uniform, shift = map(float, (form.truth, form.uniform, form.shift))
        pairs = self.numbers[:, np.newaxis] * self.numbers
        likely, even = np.maximum(self.fitted, 0), self.strata.fractions
        true, flat = (_sums(tables, self.numbers) for tables in (likely, even))
        apart = true - flat
        covariances: Tables = (
            truth * (_sums(likely, pairs) - true[:, np.newaxis] * true)
            + uniform * (_sums(even, pairs) - flat[:, np.newaxis] * flat)
            + shift * apart[:, np.newaxis] * apart
        )
        return covariances

    def gradients(self) -> Tables:
        """Return the derivatives of U_g by the shares of the stratum, under the hypothesis."""
        a, b, c, d = _sums(self.fitted, self.numbers)
        n = self.numbers[..., np.newaxis, np.newaxis]
        slopes: Tables = n[1] * a + n[0] * b - self.odds_ratio * (n[3] * c + n[2] * d)
        return slopes

    def first_order(self, gradients: Tables, form: Any, axes: tuple[int, ...]) -> Tables:  # noqa: ANN401 - a covariance form
        """Return the variance of Σ gradient·T̂ over these axes, for one cause of error or all."""
        likely, even = np.maximum(self.fitted, 0), self.strata.fractions
        truth, uniform = (likely * gradients).sum(axis=axes), (even * gradients).sum(axis=axes)
        variance: Tables = (
            float(form.truth) * ((likely * gradients**2).sum(axis=axes) - truth**2)
            + float(form.uniform) * ((even * gradients**2).sum(axis=axes) - uniform**2)
            + float(form.shift) * (truth - uniform) ** 2
        )
        return np.maximum(variance, 0)

    def second_order(self, s: Tables) -> Tables:
        """Return what the products of errors add to the variance of each stratum."""
        ratio = self.odds_ratio
        mixed = s[0, 2] * s[1, 3] + s[0, 3] * s[1, 2]
        squares = s[2, 2] * s[3, 3] + s[2, 3] ** 2
        added: Tables = s[0, 0] * s[1, 1] + s[0, 1] ** 2 + ratio**2 * squares - 2 * ratio * mixed
        return np.maximum(added, 0)

    def together(self, weights: Tables) -> tuple[Tables, Tables]:
        """Return the weighted sum of U over all strata, and its variance, for each release."""
        covariances, total = self.covariances(), self.strata.design.total
        upper, lower = self.products(covariances)
        value = (weights * (upper - self.odds_ratio * lower)).sum(axis=0)
        first = self.first_order(weights * self.gradients(), total, axes=(0, 1, 2))
        second = (weights**2 * self.second_order(covariances)).sum(axis=0)
        return value, first + second

    def apart(self) -> tuple[Tables, Tables, Tables]:
        """Return U of each stratum, its variance, and how much an association changes it.

        The last is the derivative of U by β where shares are multiplied by exp(βB): by the
        logarithm of the odds ratio, or by the strength of a linear trend.
        """
        covariances, gradients = self.covariances(), self.gradients()
        upper, lower = self.products(covariances)
        first = self.first_order(gradients, self.strata.design.total, axes=(0, 1))
        change = _sums(gradients * self.fitted, self.numbers[1])
        return upper - self.odds_ratio * lower, first + self.second_order(covariances), change


def _sums(tables: Tables, numbers: Shares) -> Tables:
    """Return Σ A T of each stratum and release, for numbers A on the two last axes."""
    return np.tensordot(numbers, tables, axes=([-2, -1], [0, 1]))


def best_weights(strata: Strata, numbers: Shares, tables: Tables, pooled: int = 1) -> Tables:
    """Return how much each stratum counts: what an association adds to U, over U's variance.

    Both are those of a table without association, with the stratum's own rows and the columns of
    all strata together (or the other way round, if the rows are ``pooled``, axis 0).  With its own
    columns as well, strata would count the more the larger their noise came out.  Without noise
    these are the weights of Mantel and Haenszel, one over the stratum's share: where a, b, c, d
    are the shares and ad = bc, the variance of U is in proportion to bc(a + b + c + d).
    """
    own = np.maximum(tables.sum(axis=pooled, keepdims=True), 0)
    overall = np.maximum(tables.sum(axis=(1 - pooled, 2), keepdims=True), 0)
    shared = overall / np.maximum(overall.sum(axis=pooled, keepdims=True), _TINY)
    _, variance, change = Products(strata, numbers, tables, own * shared).apart()
    weights = change / np.maximum(variance, _TINY)
    largest = weights.max(axis=0)
    scaled: Tables = np.where(largest > 0, weights, 1.0) / np.where(largest > 0, largest, 1.0)
    return scaled


def scored(rows: Shares, columns: Shares) -> Shares:
    """Return the numbers of cells whose U is a covariance of scores."""
    one, both = np.ones((rows.size, columns.size)), np.outer(rows, columns)
    return np.stack([one, both, one * rows[:, np.newaxis], one * columns])


FOURFOLD: Shares = np.array([[1, 0, 0, 0], [0, 0, 0, 1], [0, 1, 0, 0], [0, 0, 1, 0]]).reshape(
    4, 2, 2
)
"""The numbers of cells whose U is that of an odds ratio: the indicators of a, d, b and c."""
