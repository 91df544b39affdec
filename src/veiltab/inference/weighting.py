"""Survey weights: shares and means in which each respondent counts by a weight.

The weight is an attribute in bins, and a bin counts as one number, its middle.  The exact weights
lie between the bounds of their bins.  A ratio Σws/Σw of scores s grows with the weights of those
whose score exceeds it, and falls with the others'.  So it is largest with the upper bounds for the
scores above some threshold and the lower bounds for the rest, and smallest the other way round.
"""

from dataclasses import dataclass, fields

import numpy as np

from veiltab.core.released import Shares
from veiltab.core.schema import Attribute
from veiltab.errors import ParameterError
from veiltab.inference.atoms import Atoms, atoms_of
from veiltab.inference.bounded import BoundedRatio
from veiltab.inference.conditions import Condition, Mask
from veiltab.inference.means import Scored, ratio_answer, share_answer, within
from veiltab.inference.quantities import Quantity, Question
from veiltab.inference.scores import Variable, check_scored, check_within, scores_of, spans_of

WEIGHTED = "Fieller, on weighted sums"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedQuantity(Quantity):
    """A share or a mean with survey weights, and what the bins of the weights leave open.

    With the exact weights it lies between ``least`` and ``most``; ``outer_low`` and ``outer_high``
    are the interval that holds it whatever the weights are within their bins.  They are None if
    the bins have no bounds.
    """

    least: float | None = None
    most: float | None = None
    outer_low: float | None = None
    outer_high: float | None = None


def weighted(
    question: Question, event: Condition, weights: Variable, given: Condition
) -> WeightedQuantity:
    """Estimate the weighted share of a condition, among those who meet another."""
    among = "" if given.mask.all() else f" | {given.text}"
    label = f"P({event.text}{among}), weighted by {weights.name}"
    scored = Scored(event.mask.astype(np.float64), 0.0, 1.0)
    return _answer(question, label, scored, weights, given)


def weighted_mean(
    question: Question, variable: Variable, weights: Variable, given: Condition
) -> WeightedQuantity:
    """Estimate the weighted mean of a score."""
    label = f"mean of {variable.name}{within(given)}, weighted by {weights.name}"
    scored = Scored.of(question.released, variable, given.mask)
    return _answer(question, label, scored, weights, given)


def _answer(
    question: Question, label: str, scored: Scored, weights: Variable, given: Condition
) -> WeightedQuantity:
    """Estimate a ratio of weighted sums, and both ends of what the bins leave open."""
    table = WeightedTable.of(question, scored.units, weights, given)
    alike = _alike(question, weights, given)
    if (
        alike is not None
        and scored.is_share(alike.mask)
        and (alike.mask & (scored.units == 1)).any()
    ):
        plain = share_answer(question, label, scored.units, alike)
    else:
        plain = ratio_answer(
            question,
            (label, WEIGHTED),
            table.ratio(table.middle),
            scored,
            f"{given.text}, weighted",
        )
    base = {field.name: getattr(plain, field.name) for field in fields(Quantity)}
    if plain.value is None:
        return WeightedQuantity(**base)
    if table.low is None or table.high is None:
        open_bin = (
            f"how far the exact {weights.name} could move it is not known: a bin has no bounds;"
            f" give them with {weights.prefix}bounds=(lowest, highest)"
        )
        return WeightedQuantity(**base | {"warnings": (*plain.warnings, open_bin)})
    least, outer_low, outer_high, most = _outer(question, table, scored)
    least, most = min(least, plain.value), max(most, plain.value)
    bounded = (
        f"{weights.name} is known by its bins only: with the exact weights it lies between"
        f" {least:.4g} and {most:.4g} ({100 * question.level:g}% interval {outer_low:.4g} to"
        f" {outer_high:.4g})"
    )
    return WeightedQuantity(
        **base | {"warnings": (*plain.warnings, bounded)},
        least=least,
        most=most,
        outer_low=outer_low,
        outer_high=outer_high,
    )


def _alike(question: Question, weights: Variable, given: Condition) -> Condition | None:
    """Return those who have a weight at all, if all of them have the same one."""
    schema = question.released.schema
    [attribute] = schema.subset([weights.name]).attributes
    possible = weights.left(schema, given.mask)
    numbers, _, _ = _weight_numbers(attribute, weights, possible)
    if np.unique(numbers[numbers > 0]).size > 1:
        return None
    weighted = weights.spread(schema, (numbers > 0).astype(np.float64)) > 0
    some = given.mask & weighted
    return Condition(given.text, some) if not some.all() else None


def _outer(
    question: Question, table: "WeightedTable", scored: Scored
) -> tuple[float, float, float, float]:
    """Return the least value and the low end, then the high end and the largest value."""
    values, ends = [], []
    for ratios, side in zip(table.extremes(), ("low", "high"), strict=True):
        intervals = [ratio.interval(question.critical) for ratio in ratios]
        outer = [float(getattr(interval, side)) for interval in intervals]
        inside = [float(np.clip(ratio.value, 0, 1)) for ratio in ratios]
        pick = min if side == "low" else max
        values.append(scored.scaled(pick(inside)))
        ends.append(scored.scaled(float(np.clip(pick(outer), 0, 1))))
    return values[0], ends[0], ends[1], values[1]


@dataclass(frozen=True, slots=True, eq=False)
class WeightedTable:
    """Atoms by score and weight: each with its units, its weight and the weight's bounds."""

    atoms: Atoms
    units: Shares
    inside: Shares
    middle: Shares
    low: Shares | None
    high: Shares | None

    @classmethod
    def of(
        cls, question: Question, units: Shares, weights: Variable, given: Condition
    ) -> "WeightedTable":
        """Divide the table by score, weight and condition; all weights are scaled to 0..1."""
        schema = question.released.schema
        [attribute] = schema.subset([weights.name]).attributes
        codes = weights.spread(schema, np.arange(attribute.size))
        rows = np.stack([units * given.mask, codes * given.mask, given.mask]).astype(np.float64)
        atoms, (unit, code, inside) = atoms_of(question.released, rows, question.population)
        possible = weights.left(schema, given.mask)
        numbers, low, high = _weight_numbers(attribute, weights, possible)
        where = code.astype(np.int64)
        largest = float((numbers if high is None else high).max())
        bounds = [None if end is None else end[where] / largest * inside for end in (low, high)]
        return cls(atoms, unit, inside, numbers[where] / largest * inside, bounds[0], bounds[1])

    def ratio(self, weights: Shares) -> BoundedRatio:
        """Return the mean of the units with these weights."""
        return BoundedRatio(self.atoms, self.units * weights, weights)

    def extremes(self) -> tuple[list[BoundedRatio], list[BoundedRatio]]:
        """Return the ratios among which the least is, and those among which the largest is."""
        assert self.low is not None  # noqa: S101 - asked only with bounds
        assert self.high is not None  # noqa: S101 - as above
        least, most = [], []
        for threshold in np.unique(self.units[self.inside > 0])[1:]:
            above = self.units >= threshold
            least.append(self.ratio(np.where(above, self.low, self.high)))
            most.append(self.ratio(np.where(above, self.high, self.low)))
        whole = self.ratio(self.middle)  # with a single score, nothing is left open
        return least or [whole], most or [whole]


def _weight_numbers(
    attribute: Attribute, weights: Variable, possible: Mask
) -> tuple[Shares, Shares | None, Shares | None]:
    """Return the number of each category, and both bounds if all of them are known.

    No weight is negative, so that the lowest bin ends at zero if it is open.
    """
    least, most = weights.bounds or (None, None)
    bounds = (0.0 if least is None else least, most)
    numbers = scores_of(attribute, weights.scores, bounds)
    check_scored(attribute, numbers, possible, weights.prefix)
    numbers = np.where(possible, numbers, 0.0)
    spans = spans_of(attribute, bounds)
    known = all(
        span is not None and not span.is_open
        for span, needed in zip(spans, possible, strict=True)
        if needed
    )
    low, high = (
        np.array(
            [
                getattr(span, end) if needed and span is not None else 0.0
                for span, needed in zip(spans, possible, strict=True)
            ]
        )
        for end in ("low", "high")
    )
    if (numbers < 0).any() or not numbers.max() > 0 or (known and (low < 0).any()):
        raise ParameterError(
            f"the weights {attribute.name!r} are negative, or all of them are zero",
            hint="weights are numbers from zero up, with bins such as Bins([0.5, 1, 2])",
        )
    check_within(attribute, np.where(possible, numbers, np.nan), weights.bounds)
    return (numbers, low, high) if known else (numbers, None, None)
