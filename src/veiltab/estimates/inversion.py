"""Measures of association that are zero under independence and never negative.

Plugging an estimate in would be biased upwards: noise looks like association.  So the test of
independence is inverted: on the line from the fitted independence through the best estimate, the
interval holds the points under which the observed statistic is not unusual.  The estimate is the
point under which it is the median.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from veiltab.core import estimators
from veiltab.core.uncertainty import Design
from veiltab.estimates.null import Null
from veiltab.estimates.quantities import Question
from veiltab.estimates.quantity import Quantity
from veiltab.estimates.released import Released, Shares
from veiltab.estimates.resample import FEWEST_REPLICATES, check_size, resample

BOOTSTRAP = "parametric bootstrap, test of independence inverted"
STEPS = 10
"""Halvings of the line: to one part in a thousand."""

FARTHEST = 64.0
"""Where the line ends, as a multiple of the way from independence to the estimate."""

MOST_CELLS = 20_000
MOST_REPLICATES = 999
NUMBERS = 4_000_000
"""About how many counts are drawn at each point of the line."""

Measure = Callable[[Shares], Shares]


@dataclass(frozen=True, slots=True, eq=False)
class _Line:
    """The distributions from independence through the best estimate."""

    start: Shares
    direction: Shares
    null: Null
    design: Design
    observed: float
    pair: Released
    label: str

    @property
    def replicates(self) -> int:
        """How many releases are drawn at each point: fewer of a large table."""
        return min(MOST_REPLICATES, max(FEWEST_REPLICATES, NUMBERS // self.start.size))

    def at(self, distance: float) -> Shares:
        """Return the proper distribution so far along the line."""
        return estimators.project(self.start + distance * self.direction)

    def above(self, distance: float) -> float:
        """Return the chance of a statistic as large as the observed one, so far along the line.

        All distances share their randomness, so that the chance grows with the distance.
        """
        drawn = resample(
            self.at(distance),
            self.design,
            self.null.statistic,
            self.pair.generator(self.label),
            most=self.replicates,
        )
        return float(np.mean(drawn >= self.observed))

    def first(self, chance: float, least: float, most: float | None) -> float:
        """Return the distance from which on a statistic as large has at least this chance.

        It is known to lie between ``least`` and ``most``, as far as anything is known.
        """
        low, high = least, most or max(1.0, 2 * least)
        while most is None and self.above(high) < chance and high < FARTHEST:
            low, high = high, 2 * high
        for _ in range(STEPS):
            middle = (low + high) / 2
            low, high = (low, middle) if self.above(middle) >= chance else (middle, high)
        return (low + high) / 2


def associate(question: Question, pair: Released, label: str, measure: Measure) -> Quantity:
    """Estimate a measure of the association of two attributes."""
    line = _line(question, pair, label)
    if not np.abs(line.direction).max() > 0:
        return question.refuse(label, BOOTSTRAP, "the release shows no trace of dependence at all")
    outer = (1 - question.level) / 2
    distances = _distances(line, outer)
    low, value, high = (float(measure(line.at(each))) if each else 0.0 for each in distances)
    errors = _errors(line, line.at(distances[1]), measure)
    vague = () if low > 0 else ("it cannot be told from zero: independence is not excluded",)
    return question.answer(label, BOOTSTRAP, value, errors, (low, high), *vague)


def _distances(line: _Line, outer: float) -> tuple[float, float, float]:
    """Return where the observed statistic is just not too large, the median, just not too small."""
    independent = line.above(0)
    middle = 0.0 if independent >= 1 / 2 else line.first(1 / 2, 0.0, None)
    nearest = 0.0 if independent >= outer else line.first(outer, 0.0, middle)
    farthest = 0.0 if independent >= 1 - outer else line.first(1 - outer, middle, None)
    return nearest, middle, farthest


def _line(question: Question, pair: Released, label: str) -> _Line:
    check_size(pair.schema.domain_size, MOST_CELLS)
    rows, columns = pair.schema.sizes
    null = Null(pair.channel, rows, columns, 1)
    start = null.fit(pair.counts)
    return _Line(
        start=start,
        direction=pair.plausible - start,
        null=null,
        design=pair.design(question.population),
        observed=float(null.statistic(pair.counts)),
        pair=pair,
        label=label,
    )


def _errors(line: _Line, point: Shares, measure: Measure) -> tuple[float, float, float]:
    """Return how much the measure of other releases varies, and which part of it is whose.

    The parts are those of the linear statistic that tells the points of the line apart best.
    """

    def statistic(counts: np.ndarray) -> Shares:
        return measure(estimators.projected(counts, line.pair.channel))

    generator = line.pair.generator(f"{line.label}, error")
    drawn = resample(point, line.design, statistic, generator, most=line.replicates)
    total = float(drawn.std(ddof=1))
    weights = line.direction / line.pair.channel.transform(line.start)
    uncertainty = line.pair.uncertainty(line.design.population)
    private = float(uncertainty.privacy(weights) / uncertainty.total(weights))
    return total, total * (1 - private) ** 0.5, total * private**0.5
