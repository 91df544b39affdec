"""Categories as numbers: the span of values that a category's name states, and scores.

Names are read as people write them: ``7``, ``40 to <60`` and ``>=60`` (as ``Bins`` names them),
``18–64``, ``65+``, ``under 18``, ``[40, 60)``.  Where two categories share a bound, as ``0-10`` and
``10-20`` do, it belongs to the upper one.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.released import Shares
from veiltab.core.schema import Attribute, Schema
from veiltab.errors import ParameterError

Scores = Mapping[str, float] | Sequence[float]
"""A number for each category in order, or for some categories by name."""

NamedScores = Mapping[str, Sequence[float]]
"""Numbers for the categories of attributes, by the attributes' names."""

Bounds = tuple[float | None, float | None]
"""The smallest and the largest possible value of a variable; None where it is not known."""

_NUMBER = r"[-+\u2212]?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?"
_FORMS = tuple(
    re.compile(form.replace("NUMBER", _NUMBER), re.IGNORECASE | re.ASCII)
    for form in (
        r"(?P<low>NUMBER) to <\s?(?P<open>NUMBER)",
        r"(?P<low>NUMBER)(?:\s?[-\u2013]\s?| to )(?P<high>NUMBER)",
        r"(?:<|under |below |less than )\s?(?P<open>NUMBER)",
        r"(?:<=|\u2264|up to |at most )\s?(?P<high>NUMBER)",
        r"(?:>=|\u2265|from |at least )\s?(?P<low>NUMBER)",
        r"(?:>|over |above |more than )\s?(?P<above>NUMBER)",
        r"(?P<low>NUMBER)(?:\+| and over| and above| and more| or more| or over)",
        r"(?P<point>NUMBER)",
    )
)
_BRACKETS = re.compile(r"([\[(])\s?([^\s,]+)\s?,\s?([^\s,]+)\s?([\])])")
_MOST_LISTED = 10

LARGEST = 1e50
"""Larger scores and weights are mistakes: the fourth powers of some of them overflow."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A variable whose categories stand for numbers, and what is known of these besides names."""

    name: str
    scores: Scores | None = None
    bounds: Bounds | None = None
    prefix: str = ""
    """What comes before ``scores`` and ``bounds`` in the options that give them."""

    def left(self, schema: Schema, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which of its categories a condition leaves."""
        axis = schema.names.index(self.name)
        others = tuple(i for i in range(len(schema.sizes)) if i != axis)
        left: NDArray[np.bool_] = np.logical_or.reduce(mask.reshape(schema.sizes), axis=others)
        return left

    def spread(self, schema: Schema, numbers: NDArray[Any]) -> NDArray[Any]:
        """Return the number of each cell's category."""
        axis = schema.names.index(self.name)
        shape = [-1 if i == axis else 1 for i in range(len(schema.sizes))]
        return np.broadcast_to(numbers.reshape(shape), schema.sizes).reshape(-1)


@dataclass(frozen=True, slots=True)
class Span:
    """The values of a category, from ``low`` to ``high``; an end may be infinite."""

    low: float
    high: float
    has_low: bool = True
    has_high: bool = True

    @property
    def is_point(self) -> bool:
        """Whether it is a single number."""
        return self.low == self.high

    @property
    def is_open(self) -> bool:
        """Whether an end is not known."""
        return math.isinf(self.low) or math.isinf(self.high)

    @property
    def middle(self) -> float:
        """The number half-way between the ends; infinite if one of them is."""
        return self.low / 2 + self.high / 2

    def compared(self, sign: str, number: float) -> bool | None:
        """Tell whether its values are all ``>=``, ``>``, ``<=`` or ``<`` a number.

        None says that some are, and some are not.
        """
        if sign in {"<", "<="}:
            opposite = self.compared(">=" if sign == "<" else ">", number)
            return None if opposite is None else not opposite
        strict = sign == ">"
        if self.low > number or (self.low == number and not (strict and self.has_low)):
            return True
        if self.high < number or (self.high == number and (strict or not self.has_high)):
            return False
        return None

    def __str__(self) -> str:
        """Name both ends."""
        if math.isinf(self.low):
            return f"{'up to' if self.has_high else 'below'} {self.high:g}"
        if math.isinf(self.high):
            return f"{'from' if self.has_low else 'above'} {self.low:g}"
        return f"{self.low:g} to {'' if self.has_high else '<'}{self.high:g}"


def read_span(category: str) -> Span | None:
    """Read the values that a category's name states; None if it states none."""
    text = " ".join(category.split())
    brackets = _BRACKETS.fullmatch(text)
    if brackets is not None:
        return _bracketed(*brackets.groups())
    for form in _FORMS:
        match = form.fullmatch(text)
        if match is not None:
            return _named(match.groupdict())
    return None


def _named(ends: Mapping[str, str | None]) -> Span | None:
    """Return the span whose ends stand under these names."""
    numbers = {name: _number(text) for name, text in ends.items() if text is not None}
    if any(number is None or math.isinf(number) for number in numbers.values()):
        return None
    if "point" in numbers:
        return _span(numbers["point"], numbers["point"])
    low = numbers.get("low", numbers.get("above", -math.inf))
    high = numbers.get("high", numbers.get("open", math.inf))
    return _span(low, high, has_low="above" not in numbers, has_high="open" not in numbers)


def _bracketed(opening: str, low: str, high: str, closing: str) -> Span | None:
    return _span(_number(low), _number(high), has_low=opening == "[", has_high=closing == "]")


def _span(
    low: float | None, high: float | None, *, has_low: bool = True, has_high: bool = True
) -> Span | None:
    """Return a span that holds something; None for anything else."""
    if low is None or high is None or (low == high and not (has_low and has_high)) or low > high:
        return None
    return Span(low, high, has_low, has_high)


def _number(text: str) -> float | None:
    try:
        number = float(text.replace(",", "").replace("\u2212", "-"))
    except ValueError:
        return None
    return None if math.isnan(number) else number


def spans_of(attribute: Attribute, bounds: Bounds | None = None) -> list[Span | None]:
    """Return the span of each category; a bound that two of them share belongs to the upper one.

    ``bounds`` close the categories that are open at an end.
    """
    ends = _check_bounds(bounds)
    spans = [read_span(category) for category in attribute.categories]
    starts = {span.low for span in spans if span is not None and span.has_low}
    return [
        None if span is None else _closed(_parted(span, starts), ends, category)
        for span, category in zip(spans, attribute.categories, strict=True)
    ]


def _parted(span: Span, starts: set[float]) -> Span:
    """Leave a bound that another category starts with to that one."""
    return span if span.is_point or span.high not in starts else replace(span, has_high=False)


def _check_bounds(bounds: Bounds | None) -> tuple[float, float]:
    """Return the smallest and the largest possible value; what is not known is infinite."""
    try:
        low, high = bounds or (None, None)
        ends = -math.inf if low is None else float(low), math.inf if high is None else float(high)
    except (TypeError, ValueError):
        ends = math.nan, math.nan
    if not ends[0] < ends[1]:
        raise ParameterError(
            f"the bounds {bounds!r} are not a smallest and a largest value",
            hint="write them as in bounds=(18, 100); None stands for one that is not known",
        )
    return ends


def _closed(span: Span, bounds: tuple[float, float], category: str) -> Span:
    """Put bounds in the place of infinite ends; the category must lie between them."""
    low = bounds[0] if math.isinf(span.low) else span.low
    high = bounds[1] if math.isinf(span.high) else span.high
    if low < bounds[0] or high > bounds[1] or (span.is_open and not low < high):
        raise ParameterError(
            f"the category {category!r} does not lie between the bounds {bounds[0]:g} and"
            f" {bounds[1]:g}",
            hint="bounds are the smallest and the largest possible value",
        )
    return replace(span, low=float(low), high=float(high))


def scores_of(attribute: Attribute, scores: Scores | None, bounds: Bounds | None = None) -> Shares:
    """Return a number for each category; NaN where neither scores nor the name state one.

    A category without a score of its own counts as the middle of its span.
    """
    middles = [
        math.nan if span is None or span.is_open else span.middle
        for span in spans_of(attribute, bounds)
    ]
    if scores is None:
        return np.array(middles)
    if not isinstance(scores, Mapping):
        return check_scores(attribute, scores)
    unknown = [name for name in scores if name not in attribute.categories]
    if unknown:
        raise ParameterError(
            f"{attribute.name!r} has no category {unknown[0]!r} to score",
            hint=f"its categories are {listed(attribute.categories)}",
        )
    by_name = dict(zip(attribute.categories, middles, strict=True)) | dict(scores)
    return check_scores(attribute, list(by_name.values()), named=scores)


def check_within(attribute: Attribute, numbers: Shares, bounds: Bounds | None) -> None:
    """Refuse scores that lie outside of the smallest and the largest possible value."""
    low, high = _check_bounds(bounds)
    outside = np.flatnonzero((numbers < low) | (numbers > high))
    if outside.size:
        first = int(outside[0])
        raise ParameterError(
            f"the score {numbers[first]:g} of {attribute.categories[first]!r} does not lie between"
            f" the bounds {low:g} and {high:g}",
            hint="give scores and bounds in the same units, or leave the bounds out",
        )


def check_scores(
    attribute: Attribute, scores: Sequence[float], named: Mapping[str, float] | None = None
) -> Shares:
    """Return the scores as an array with a finite number for each category (if it is ``named``)."""
    try:
        numbers = np.asarray(scores, dtype=np.float64)
        chosen = numbers if named is None else np.array(list(named.values()), dtype=np.float64)
    except (TypeError, ValueError):
        numbers = chosen = np.array([math.nan])
    if numbers.shape != (attribute.size,) or not np.isfinite(chosen).all():
        raise ParameterError(
            f"the scores of {attribute.name!r} are not a finite number for each of its"
            f" {attribute.size:,} categories",
            hint=f"give one number for each of {listed(attribute.categories)}",
        )
    check_magnitude(chosen, f"the scores of {attribute.name!r}")
    return numbers


def check_magnitude(numbers: Shares, what: str) -> None:
    """Refuse numbers that are too large to square."""
    largest = float(np.abs(numbers).max(initial=0.0))
    if largest > LARGEST:
        raise ParameterError(
            f"{what} are as large as {largest:.2g}",
            hint=f"choose units in which they are at most {LARGEST:g}",
        )


def ordered_scores(attribute: Attribute, scores: NamedScores) -> Shares:
    """Return the number of each category: as given, or 0, 1, 2, … in their order."""
    numbers = check_scores(attribute, scores.get(attribute.name, range(attribute.size)))
    if np.ptp(numbers) == 0:
        raise ParameterError(
            f"the scores of {attribute.name!r} are all the same",
            hint=f"give different numbers to some of {listed(attribute.categories)}",
        )
    return numbers


def check_named_scores(
    scores: NamedScores | None, schema: Schema, used: Sequence[str] | None = None
) -> NamedScores:
    """Return scores of attributes by their names; refuse those of no attribute of the schema.

    With ``used``, the attributes that are asked about, those of others are refused too.
    """
    if scores is None:
        return {}
    if not isinstance(scores, Mapping):
        raise ParameterError(
            f"the scores are a {type(scores).__name__}, and do not say of which attribute they are",
            hint=f"name it, as in scores={{{schema.names[0]!r}: [0, 1, 2]}}",
        )
    if scores:
        for attribute in schema.subset(list(scores)).attributes:
            check_scores(attribute, scores[attribute.name])
            if used is not None and attribute.name not in used:
                raise ParameterError(
                    f"the scores of {attribute.name!r} would not be used",
                    hint=f"leave them out, or give scores of {' or '.join(map(repr, used))}",
                )
    return scores


def check_scored(
    attribute: Attribute, numbers: Shares, possible: NDArray[np.bool_], prefix: str = ""
) -> None:
    """Refuse categories without a number, among those that are ``possible`` at all.

    ``prefix`` comes before the names of the options that would give one.
    """
    missing = [
        category
        for category, number, needed in zip(attribute.categories, numbers, possible, strict=True)
        if needed and math.isnan(number)
    ]
    if not missing:
        return
    first = missing[0]
    span = read_span(first)
    why = (
        f"is open ({span}), and has no middle"
        if span is not None
        else "does not say which numbers it stands for"
    )
    bounds = f", or bounds, as in {prefix}bounds=(lowest, highest)" if span is not None else ""
    ends = () if span is None else (end for end in (span.low, span.high) if math.isfinite(end))
    example = next(iter(ends), 1.0)
    raise ParameterError(
        f"the category {first!r} of {attribute.name!r} {why}",
        hint=f"give it a score, as in {prefix}scores={{{first!r}: {example:g}}}{bounds}, or leave"
        " the category out with the condition `given`",
    )


def listed(categories: Sequence[str]) -> str:
    """List categories for a message, the first few of many."""
    shown = ", ".join(map(repr, categories[:_MOST_LISTED]))
    return f"{shown} and others" if len(categories) > _MOST_LISTED else shown
