"""Measures of association: Pearson's correlation, Cramér's V and mutual information.

Cramér's V and mutual information cannot be negative, so their intervals invert the test of
independence along a line of distributions, from independence through the best estimate.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veiltab.core import estimators
from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.resampling import FEWEST_REPLICATES, check_size, resample, seeded_generator
from veiltab.core.schema import Attribute
from veiltab.errors import ParameterError
from veiltab.inference.independence import Null, pair_table
from veiltab.inference.quantities import DELTA, Quantity, Question

BOOTSTRAP = "parametric bootstrap, test of independence inverted"
FISHER = "Fisher's z, delta method"

STEPS = 10
"""Halvings of an interval on the line: to one part in a thousand."""

FARTHEST = 64.0
"""Where the line ends, as a multiple of the distance from independence to the estimate."""

MOST_CELLS = 20_000
MOST_REPLICATES = 999
COUNTS_PER_POINT = 4_000_000
"""About how many counts are drawn at each point of the line."""

Measure = Callable[[Shares], Shares]
Scores = Mapping[str, Sequence[float]]


def correlation(question: Question, x: str, y: str, scores: Scores | None) -> Quantity:
    """Estimate Pearson's correlation of two attributes with numeric scores."""
    pair = pair_table(question.released, x, y)
    label = f"correlation of {x} and {y}"
    first, second = (_scores(attribute, scores or {}) for attribute in pair.schema.attributes)
    left = np.repeat(first, second.size)
    right = np.tile(second, first.size)
    shares, uncertainty = pair.unbiased, pair.uncertainty(question.population)
    left, right = left - left @ shares, right - right @ shares
    for name, centred in ((x, left), (y, right)):
        spread = centred**2 @ shares
        if spread <= question.critical * float(uncertainty.total(centred**2)) ** 0.5:
            why = f"the variance of {name}, a denominator, cannot be distinguished from zero"
            return question.refuse(label, FISHER, why)
    left, right = left / (left**2 @ shares) ** 0.5, right / (right**2 @ shares) ** 0.5
    value = float((left * right) @ shares)
    influence = left * right - value * (left**2 + right**2) / 2
    parts = (uncertainty.total, uncertainty.sampling, uncertainty.privacy)
    total, sampling, privacy = (max(float(part(influence)), 0.0) ** 0.5 for part in parts)
    return _correlation_answer(question, label, value, (total, sampling, privacy))


def cramers_v(question: Question, x: str, y: str) -> Quantity:
    """Estimate Cramér's V, from 0 (independence) to 1 (one attribute determines the other)."""
    pair = pair_table(question.released, x, y)
    sizes = pair.schema.sizes

    def measure(shares: Shares) -> Shares:
        return np.sqrt(np.minimum(_contingency(shares, sizes) / (min(sizes) - 1), 1))

    return _associate(question, pair, f"Cramér's V of {x} and {y}", measure)


def mutual_information(question: Question, x: str, y: str) -> Quantity:
    """Estimate the mutual information in bits."""
    pair = pair_table(question.released, x, y)

    def measure(shares: Shares) -> Shares:
        return np.maximum(_information(shares, pair.schema.sizes), 0)

    return _associate(question, pair, f"mutual information of {x} and {y} (bits)", measure)


def _correlation_answer(
    question: Question, label: str, value: float, errors: tuple[float, float, float]
) -> Quantity:
    """Return an interval on Fisher's scale, or on the plain one for an estimate outside −1..1."""
    half = question.critical * errors[0]
    if abs(value) < 1:
        centre, half = np.arctanh(value), half / (1 - value**2)
        ends = float(np.tanh(centre - half)), float(np.tanh(centre + half))
        return question.answer(label, FISHER, value, errors, ends)
    beyond = f"the unbiased estimate is {value:.4g}, outside −1..1 because of the noise"
    clipped = float(np.clip(value, -1, 1))
    ends = max(clipped - half, -1.0), min(clipped + half, 1.0)
    return question.answer(label, DELTA, clipped, errors, ends, beyond)


def _scores(attribute: Attribute, scores: Scores) -> Shares:
    """Return the number of each category: as given, or 0, 1, 2, … in their order."""
    given = np.asarray(scores.get(attribute.name, range(attribute.size)), dtype=np.float64)
    if given.shape != (attribute.size,) or not np.isfinite(given).all() or np.ptp(given) == 0:
        raise ParameterError(
            f"the scores of {attribute.name!r} are not {attribute.size} different finite numbers",
            hint=f"give one number for each of {', '.join(map(repr, attribute.categories[:10]))}",
        )
    return given


def _contingency(shares: Shares, sizes: tuple[int, ...]) -> Shares:
    """Return φ² = Σ (T − rc)²/(rc); cells of an empty row or column add nothing."""
    table = shares.reshape(*shares.shape[:-1], *sizes)
    expected = table.sum(axis=-1, keepdims=True) * table.sum(axis=-2, keepdims=True)
    terms = np.divide((table - expected) ** 2, expected, where=expected > 0, out=table * 0)
    total: Shares = terms.sum(axis=(-2, -1))
    return total


def _information(shares: Shares, sizes: tuple[int, ...]) -> Shares:
    """Return Σ T log₂(T/(rc)); empty cells add nothing."""
    table = shares.reshape(*shares.shape[:-1], *sizes)
    expected = table.sum(axis=-1, keepdims=True) * table.sum(axis=-2, keepdims=True)
    ratio = np.divide(table, expected, where=table > 0, out=np.ones_like(table))
    total: Shares = (table * np.log2(ratio)).sum(axis=(-2, -1))
    return total


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """The distributions from independence through the best estimate."""

    start: Shares
    direction: Shares
    null: Null
    observed: float
    pair: ReleasedCounts
    label: str

    @property
    def replicates(self) -> int:
        """How many releases are drawn at each point: fewer for a large table."""
        return min(MOST_REPLICATES, max(FEWEST_REPLICATES, COUNTS_PER_POINT // self.start.size))

    def at(self, distance: float) -> Shares:
        """Return the proper distribution at this distance along the line."""
        return estimators.project(self.start + distance * self.direction)

    def above(self, distance: float) -> float:
        """Return the chance of a statistic at least as large as the observed one, at a distance.

        All distances share their random numbers, so that the chance grows with the distance.
        """
        drawn = resample(
            self.at(distance),
            self.null.design,
            self.null.statistic,
            seeded_generator(self.pair, self.label),
            most=self.replicates,
        )
        return float(np.mean(drawn >= self.observed))

    def first(self, chance: float, least: float, most: float | None) -> float:
        """Return the distance from which a statistic this large has at least the given chance.

        It is searched for between ``least`` and ``most``, or beyond ``least`` without a ``most``.
        """
        low, high = least, most or max(1.0, 2 * least)
        while most is None and self.above(high) < chance and high < FARTHEST:
            low, high = high, 2 * high
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.above(middle) >= chance else (middle, high)
        return (low + high) / 2


def _associate(question: Question, pair: ReleasedCounts, label: str, measure: Measure) -> Quantity:
    """Estimate a measure of association that cannot be negative."""
    line = _line(question, pair, label)
    if not np.abs(line.direction).max() > 0:
        return question.refuse(label, BOOTSTRAP, "the release shows no dependence at all")
    outer = (1 - question.level) / 2
    distances = _distances(line, outer)
    low, value, high = (float(measure(line.at(d))) if d else 0.0 for d in distances)
    errors = _errors(line, line.at(distances[1]), measure)
    if low > 0:
        return question.answer(label, BOOTSTRAP, value, errors, (low, high))
    warning = "it cannot be distinguished from zero: independence is not excluded"
    return question.answer(label, BOOTSTRAP, value, errors, (low, high), warning)


def _distances(line: _Line, outer: float) -> tuple[float, float, float]:
    """Return the distances at the lower end of the interval, at its median, and at its upper end.

    There the observed statistic is exceeded with the chances ``outer``, 1/2 and 1 − ``outer``.
    """
    independent = line.above(0)
    middle = 0.0 if independent >= 1 / 2 else line.first(1 / 2, 0.0, None)
    nearest = 0.0 if independent >= outer else line.first(outer, 0.0, middle)
    farthest = 0.0 if independent >= 1 - outer else line.first(1 - outer, middle, None)
    return nearest, middle, farthest


def _line(question: Question, pair: ReleasedCounts, label: str) -> _Line:
    check_size(pair.schema.domain_size, MOST_CELLS)
    rows, columns = pair.schema.sizes
    null = Null(pair.design(question.population), rows, columns, 1)
    start = null.fit(pair.counts)
    return _Line(
        start=start,
        direction=pair.plausible - start,
        null=null,
        observed=float(null.statistic(pair.counts)),
        pair=pair,
        label=label,
    )


def _errors(line: _Line, point: Shares, measure: Measure) -> tuple[float, float, float]:
    """Return the standard error of the measure over other releases, and its two parts.

    The parts are in proportion to those of the linear statistic that best separates the points of
    the line.
    """
    design = line.null.design

    def statistic(counts: np.ndarray) -> Shares:
        return measure(estimators.projected(counts, design))

    generator = seeded_generator(line.pair, f"{line.label}, error")
    drawn = resample(point, design, statistic, generator, most=line.replicates)
    total = float(drawn.std(ddof=1))
    constant, slope = map(float, design.cell_variance)
    weights = line.direction / (constant + slope * line.start)
    uncertainty = line.pair.uncertainty(design.population)
    private = float(uncertainty.privacy(weights) / uncertainty.total(weights))
    return total, total * (1 - private) ** 0.5, total * private**0.5
