"""Two measures of association with their derivatives: φ², and mutual information.

φ² = Σ T²/(rc) − 1 is a smooth function of the table wherever no margin is zero.

Mutual information is a sum of terms t·ln t, over cells, less those over rows and columns.  Their
slope has no limit at t = 0, where many estimates are.  So each term is replaced by a smooth
function of the estimate t̂ whose *mean*, over errors with the standard error σ of that term, is
t·ln t for all t ≥ 0, as nearly as possible: to 0.1 σ, and to 0.16 σ at t = 0.  For t̂ above 6 σ it
is t̂·ln t̂ − σ²/(2t̂); below, a cubic spline that is also defined for negative estimates, fitted to
the law of the errors in an empty cell.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from veiltab.core.shape import Shape
from veiltab.inference.second_order import Expansion

Array = NDArray[np.float64]

JOIN = 6.0
"""From how many standard errors on t·ln t is corrected by its second derivative alone."""

NEAR = 3.0
"""Up to how many standard errors an estimate has about the law of an empty cell's."""

FLOOR = -4.0
"""Below so many standard errors the smooth function goes on as a straight line."""

ROUGHNESS = 0.01
"""How much the third derivative counts against the error of the mean, in the fit of the spline."""

EMPTY = 3.0
"""How much more a term near zero counts in that fit than others: empty cells are many."""

FARTHEST = 1.25
"""How far beyond a table its line is followed, in distances from independence to the table."""

NORMAL = (0.0, 0.0)
"""The skewness and the excess of the normal law."""

_TINY = 1e-30
_KNOTS = np.arange(FLOOR + 0.5, JOIN + 0.1, 0.5)


class Measure(Protocol):
    """A measure of association as a function of the table, in releases along the first axis."""

    @property
    def biased(self) -> bool:
        """Whether the mean of the estimate is to be corrected by the second derivatives."""
        ...

    def expand(self, tables: Array) -> Expansion:
        """Return the measure of each table and its derivatives."""
        ...

    def limit(self, rows: int, columns: int) -> float:
        """Return the largest value that a table of this size can have."""
        ...

    def farthest(self, tables: Array) -> Array:
        """Return how far beyond each table the line from independence is followed.

        There cells are empty that the table has filled by chance, and their variance is less.
        """
        ...

    def plain(self, tables: Array, proper: Array) -> Array:
        """Return the measure without any correction, of tables or of the nearest proper ones."""
        ...


@dataclass(frozen=True, slots=True)
class Contingency:
    """φ² = Σ (T − rc)²/(rc): Pearson's mean square contingency."""

    biased: bool = True

    def limit(self, rows: int, columns: int) -> float:
        """Return min(R, C) − 1."""
        return float(min(rows, columns) - 1)

    def farthest(self, tables: Array) -> Array:
        """Return where φ² reaches its limit, if that is near; it grows as the squared distance."""
        limit = self.limit(*tables.shape[1:])
        reach = np.sqrt(limit / np.maximum(self.plain(tables, tables), _TINY))
        return np.maximum(np.where(reach <= FARTHEST, reach, 1.0), 1 + 1e-6)

    def plain(self, tables: Array, proper: Array) -> Array:  # noqa: ARG002 - the interface
        """Return φ² of the tables themselves."""
        expected = _expected(tables)
        value: Array = ((tables - expected) ** 2 / expected).sum(axis=(1, 2))
        return value

    def expand(self, tables: Array) -> Expansion:
        """Return φ² and its derivatives."""
        releases, r, c = tables.shape[0], tables.sum(axis=2), tables.sum(axis=1)
        expected = _expected(tables)
        terms = tables**2 / expected
        by_row, by_column = terms.sum(axis=2) / r, terms.sum(axis=1) / c
        slope = 2 * tables / expected - by_row[:, :, np.newaxis] - by_column[:, np.newaxis, :]
        steep = 1 / r[:, :, np.newaxis] + 1 / c[:, np.newaxis, :]
        return Expansion(
            value=self.plain(tables, tables),
            gradient=slope.reshape(releases, -1),
            curvature=(2 / expected).reshape(releases, -1),
            columns=_margin_columns(2 * tables / expected, r, c),
            middle=_margin_matrix(terms / expected, by_row / r, by_column / c),
            cubic=-(steep / expected).reshape(releases, -1),
        )


def _margin_columns(slopes: Array, r: Array, c: Array) -> Array:
    """Return which cells are in each row and column, and these times the slopes over margins."""
    releases = slopes.shape[0]
    rows, columns = _indicators(r.shape[1], c.shape[1])
    blocks = [
        np.broadcast_to(rows, (releases, *rows.shape)),
        np.broadcast_to(columns, (releases, *columns.shape)),
        rows * (slopes / r[:, :, np.newaxis]).reshape(releases, -1, 1),
        columns * (slopes / c[:, np.newaxis, :]).reshape(releases, -1, 1),
    ]
    return np.concatenate(blocks, axis=2)


def _margin_matrix(cross: Array, by_row: Array, by_column: Array) -> Array:
    """Return the K of φ²: a row with itself, with a column, and each margin with its cells."""
    releases, rows, columns = cross.shape
    size = rows + columns
    matrix = np.zeros((releases, 2 * size, 2 * size))
    margins = np.arange(size)
    matrix[:, margins, margins] = 2 * np.concatenate([by_row, by_column], axis=1)
    matrix[:, :rows, rows:size] = cross
    matrix[:, rows:size, :rows] = np.swapaxes(cross, 1, 2)
    matrix[:, margins, size + margins] = matrix[:, size + margins, margins] = -1
    return matrix


@dataclass(frozen=True, slots=True, eq=False)
class Information:
    """Mutual information in nats, with the standard errors of cells, rows and columns.

    ``shape`` has the skewness and the excess of the error of an empty cell.
    """

    cells: Array
    rows: Array
    columns: Array
    shape: tuple[float, float] = NORMAL
    biased: bool = False

    def limit(self, rows: int, columns: int) -> float:
        """Return the logarithm of the smaller number of categories."""
        return float(np.log(min(rows, columns)))

    def farthest(self, tables: Array) -> Array:
        """Return the same distance for all."""
        return np.full(tables.shape[0], FARTHEST)

    def plain(self, tables: Array, proper: Array) -> Array:  # noqa: ARG002 - the interface
        """Return the information of the proper tables."""
        ratio = np.divide(proper, _expected(proper), where=proper > 0, out=np.ones_like(proper))
        value: Array = (proper * np.log(ratio)).sum(axis=(1, 2))
        return value

    def expand(self, tables: Array) -> Expansion:
        """Return the sum of all terms and its derivatives."""
        releases, size_r, size_c = tables.shape
        joint = smooth_log_product(tables, self.cells, self.shape)
        average = AveragedTerm.of(tables, self.cells, self.shape)
        by_row = smooth_log_product(tables.sum(axis=2), self.rows)
        by_column = smooth_log_product(tables.sum(axis=1), self.columns)
        beside = -by_row[1][:, :, np.newaxis] - by_column[1][:, np.newaxis, :]
        rows, columns = _indicators(size_r, size_c)
        both = np.concatenate([rows, columns], axis=1)
        middle = np.zeros((releases, size_r + size_c, size_r + size_c))
        margins = np.arange(size_r + size_c)
        middle[:, margins, margins] = -np.concatenate([by_row[2], by_column[2]], axis=1)
        return Expansion(
            value=joint[0].sum(axis=(1, 2)) - by_row[0].sum(axis=1) - by_column[0].sum(axis=1),
            gradient=(average.slope + beside).reshape(releases, -1),
            curvature=average.curvature.reshape(releases, -1),
            columns=np.broadcast_to(both, (releases, *both.shape)),
            middle=middle,
            cubic=joint[3].reshape(releases, -1) / 6,
            near=average.near.reshape(releases, -1),
            single=lambda shift: average.single(beside + shift.reshape(-1, 1, 1)).reshape(
                2, releases, -1
            ),
        )


def _expected(tables: Array) -> Array:
    """Return the independent tables with the same margins."""
    product: Array = tables.sum(axis=2)[:, :, np.newaxis] * tables.sum(axis=1)[:, np.newaxis, :]
    return product


def _indicators(rows: int, columns: int) -> tuple[Array, Array]:
    """Return which cells are in each row, and which in each column."""
    return np.repeat(np.eye(rows), columns, axis=0), np.tile(np.eye(columns), (rows, 1))


def smooth_log_product(
    values: Array, errors: Array, shape: tuple[float, float] = NORMAL
) -> tuple[Array, Array, Array, Array]:
    """Return a function of estimates with the mean t·ln t, and its first three derivatives.

    With y = t̂/σ it is σψ(y) + t̂·ln σ, where the mean of ψ(x + standardised error) is about x·ln x.
    """
    skewness, excess = (round(number, 1) for number in shape)
    value, slope, curve, third = _standard(values / errors, _weights(skewness, excess))
    logarithm = np.log(errors)
    return errors * value + values * logarithm, slope + logarithm, curve / errors, third / errors**2


def _standard(y: Array, weights: Array) -> tuple[Array, Array, Array, Array]:
    """Return ψ and its first three derivatives."""
    inside = np.maximum(y, FLOOR)
    value, slope, curve, third = _above(inside)
    for knot, weight in zip(_KNOTS, weights, strict=True):
        below = np.maximum(knot - inside, 0)
        value = value + weight * below**3 / 6
        slope = slope - weight * below**2 / 2
        curve = curve + weight * below
        third = third - weight * (below > 0)
    straight = y < FLOOR
    return (
        value + slope * (y - inside),
        slope,
        np.where(straight, 0.0, curve),
        np.where(straight, 0.0, third),
    )


def _above(y: Array) -> tuple[Array, Array, Array, Array]:
    """Return y·ln y − 1/(2y), below the join its parabola, and the derivatives."""
    far, short = np.maximum(y, JOIN), np.minimum(y - JOIN, 0)
    slope, curve = np.log(far) + 1 + 1 / (2 * far**2), 1 / far - 1 / far**3
    third = np.where(y > JOIN, 3 / far**4 - 1 / far**2, 0.0)
    value = far * np.log(far) - 1 / (2 * far) + slope * short + curve * short**2 / 2
    return value, slope + curve * short, curve, third


@dataclass(frozen=True, slots=True, eq=False)
class AveragedTerm:
    """What the smooth function of one estimate does on average over its errors.

    ``slope`` is its covariance with the error, over the variance; ``curvature`` its mean second
    derivative.  ``moments`` are its variance, and its third cumulants with 0, 1, 2 and 3 errors in
    the place of itself, all for a standard error of one.  ``near`` says how much a term counts as
    near zero: from 1 down to 0 at the join.
    """

    slope: Array
    curvature: Array
    moments: list[Array]
    near: Array
    errors: Array

    @classmethod
    def of(cls, values: Array, errors: Array, shape: tuple[float, float]) -> "AveragedTerm":
        """Look the averages up; an estimate below zero stands for zero."""
        x = np.clip(values / errors, 0, _GRID[-1])
        table = _averages(*(round(number, 1) for number in shape))
        slope, curve, *moments = (np.interp(x, _GRID, row) for row in table)
        far = np.log(np.maximum(values / errors, _GRID[-1]) / _GRID[-1])
        return cls(
            slope + far + np.log(errors),
            curve * np.exp(-far) / errors,
            moments,
            np.clip((JOIN - x) / (JOIN - NEAR), 0, 1),
            errors,
        )

    def single(self, beside: Array) -> Array:
        """Return the exact variance and third cumulant of a cell, less those of the parabola.

        The cell counts with the smooth function and with the slope that its margins have.
        """
        centre = np.log(self.errors) + beside
        variance, zero, one, two, three = self.moments
        slope, half = self.slope + beside, self.curvature * self.errors / 2
        own = self.slope - np.log(self.errors)
        exact = variance + 2 * centre * own + centre**2
        third = zero + 3 * centre * one + 3 * centre**2 * two + centre**3 * three
        return self.near * np.stack(
            [
                (exact - slope**2 - 2 * half**2) * self.errors**2,
                (third - 6 * slope**2 * half - 8 * half**3) * self.errors**3,
            ]
        )


_GRID = np.linspace(0, 10, 201)


@lru_cache(maxsize=256)
def _averages(skewness: float, excess: float) -> Array:
    """Return the averages of ψ(x + error) for each x of the grid, as rows."""
    errors, chances = _errors(skewness, excess)
    value, _, curve, _ = _standard(_GRID[:, np.newaxis] + errors, _weights(skewness, excess))
    centred = value - (value @ chances)[:, np.newaxis]
    return np.stack(
        [
            (centred * errors) @ chances,
            curve @ chances,
            centred**2 @ chances,
            centred**3 @ chances,
            (centred**2 * errors) @ chances,
            (centred * errors**2) @ chances,
            np.full(_GRID.shape, errors**3 @ chances),
        ]
    )


@lru_cache(maxsize=256)
def _weights(skewness: float, excess: float) -> Array:
    """Fit the spline: the least squares of the mean's error, and of its third derivative."""
    truth, (errors, chances) = np.linspace(0, JOIN + 1, 281), _errors(skewness, excess)
    drawn = np.maximum(truth[:, np.newaxis] + errors, FLOOR)
    means = [np.maximum(knot - drawn, 0) ** 3 / 6 @ chances for knot in _KNOTS]
    wanted = truth * np.log(np.maximum(truth, np.finfo(np.float64).tiny))
    steps = np.linspace(FLOOR, JOIN, 281)[:, np.newaxis]
    rough = np.sqrt(ROUGHNESS) * (steps < _KNOTS)
    counts = 1 + EMPTY * np.exp(-truth / 0.3)
    left = np.concatenate([np.stack(means, axis=1) * counts[:, np.newaxis], rough])
    right = np.concatenate([(wanted - _above(drawn)[0] @ chances) * counts, np.zeros(281)])
    weights: Array = np.linalg.lstsq(left, right, rcond=None)[0]
    return weights


def _errors(skewness: float, excess: float) -> tuple[Array, Array]:
    """Return standardised errors from a law with this shape, and their chances."""
    scores = np.linspace(-5, 5, 281)
    chances = np.exp(-(scores**2) / 2)
    chances = chances / chances.sum()
    errors = Shape(np.array(skewness), np.array(excess)).deviation(scores)
    errors = errors - errors @ chances
    standardised: Array = errors / np.sqrt(errors**2 @ chances)
    return standardised, chances
