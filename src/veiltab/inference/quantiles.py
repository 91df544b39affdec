"""Quantiles of an ordered variable, by inverting intervals of its distribution function.

At each value v the share of those at or below v, F(v), has an interval.  The interval of a quantile
holds the values at which the interval of F(v) holds q (Woodruff, 1952).  Within a bin people are
taken to be spread evenly, so that F is a line there.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veiltab.core.parameters import is_number
from veiltab.core.released import Shares
from veiltab.core.schema import Attribute
from veiltab.core.uncertainty import Population
from veiltab.errors import ParameterError
from veiltab.inference.answer import Answer
from veiltab.inference.atoms import Atoms, atoms_of
from veiltab.inference.bounded import BoundedMean, BoundedRatio, Errors
from veiltab.inference.conditions import Condition
from veiltab.inference.diagnostics import sample_warnings
from veiltab.inference.means import near_zero, within
from veiltab.inference.quantities import CLEARLY, DOUBT, Quantity, Question
from veiltab.inference.scores import Bounds, Variable, spans_of

WOODRUFF = "Woodruff, evenly spread within bins"
CATEGORY = "intervals of the cumulative shares, inverted"

STEPS, ROUNDS = 32, 3
"""An end is searched for on so many points between two bounds of bins, so many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CategoryQuantile(Answer):
    """A quantile of an ordered variable, as a category: at most a share q lies below it.

    ``low`` and ``high`` are the first and the last category that the release does not exclude.  If
    it is not ``estimable``, all three are None, and the warnings say why.
    """

    label: str
    category: str | None
    low: str | None
    high: str | None
    level: float
    method: str
    population: Population
    estimable: bool = True
    warnings: tuple[str, ...] = ()

    def _text(self) -> str:
        if not self.estimable:
            return "not estimable"
        return f"{self.category!r} ({100 * self.level:g}% interval {self.low!r} to {self.high!r})"


@dataclass(frozen=True, slots=True, eq=False)
class Cumulative:
    """The distribution function of an ordered variable, among all or within a condition.

    Its categories are those that the condition leaves, in order; the last atom is everybody else.
    """

    atoms: Atoms
    whole: Shares
    categories: int

    @classmethod
    def of(
        cls, question: Question, variable: Variable, order: NDArray[np.int64], given: Condition
    ) -> "Cumulative":
        """Divide the table by category; ``order`` has the codes of those that are left."""
        schema, categories = question.released.schema, order.size
        [size] = schema.subset([variable.name]).sizes
        ranks = np.full(size, categories, dtype=np.float64)
        ranks[order] = np.arange(categories)
        places = np.where(given.mask, variable.spread(schema, ranks), float(categories))
        atoms, [columns] = atoms_of(question.released, places[np.newaxis], question.population)
        return cls(atoms, (columns < categories).astype(np.float64), categories)

    @property
    def shares(self) -> Shares:
        """The unbiased share at or below each category."""
        inside = self.atoms.shares[..., : self.categories]
        total = inside.sum(axis=-1, keepdims=True)
        cumulated: Shares = np.cumsum(inside, axis=-1) / np.where(total > 0, total, 1.0)
        return cumulated

    def at(self, parts: Shares) -> BoundedMean | BoundedRatio:
        """Return the share of so much of each category: of 1 below a value, of 0 above it."""
        rest = self.whole.size - self.categories
        weights = np.concatenate([parts, np.zeros((*parts.shape[:-1], rest))], axis=-1)
        if not rest:
            return BoundedMean(self.atoms, weights)
        return BoundedRatio(self.atoms, weights, np.broadcast_to(self.whole, weights.shape))

    def side(self, parts: Shares, q: float, critical: float) -> NDArray[np.int8]:
        """Tell on which side of the intervals of such shares q lies: −1 below, 1 above, 0 within.

        Of nobody the share is known to be 0, and of all of them 1.
        """
        found = self.at(parts).side(q, critical)
        nobody, all_of_them = (parts == 0).all(axis=-1), (parts == 1).all(axis=-1)
        return np.where(nobody, 1, np.where(all_of_them, -1, found)).astype(np.int8)

    def errors(self, parts: Shares) -> Errors:
        """Return the three errors of such a share."""
        return self.at(parts).errors()

    def clear(self, critical: float, times: float) -> bool:
        """Tell whether the condition's share exceeds so many half-widths of its interval."""
        ratio = self.at(np.ones(self.categories))
        return isinstance(ratio, BoundedMean) or bool(ratio.clear(critical, times))


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """Bins in the order of their values, with their bounds, which may be infinite at both ends."""

    order: NDArray[np.int64]
    low: Shares
    high: Shares
    names: tuple[str, ...]

    @classmethod
    def of(
        cls, attribute: Attribute, possible: NDArray[np.bool_], bounds: Bounds | None
    ) -> "Scale":
        """Read the bounds of the categories that are possible at all."""
        codes = np.flatnonzero(possible)
        spans = []
        for code, span in zip(codes, np.array(spans_of(attribute, bounds))[codes], strict=True):
            if span is None or span.is_point:
                raise _no_bin(attribute, attribute.categories[code])
            spans.append((span.low, span.high))
        order = np.argsort([low for low, _ in spans], kind="stable")
        low, high = np.array(spans)[order].T
        names = tuple(attribute.categories[code] for code in codes[order])
        if (low[1:] < high[:-1]).any():
            where = int(np.argmax(low[1:] < high[:-1]))
            raise ParameterError(
                f"the categories {names[where]!r} and {names[where + 1]!r} of {attribute.name!r}"
                " overlap",
                hint="quantiles need bins that lie side by side",
            )
        return cls(codes[order], low, high, names)

    def parts(self, values: Shares) -> Shares:
        """Return which part of each bin lies at or below each value."""
        width = self.high - self.low
        reached = (values[..., np.newaxis] - self.low) / np.where(np.isfinite(width), width, 1.0)
        below = values[..., np.newaxis] >= self.high
        inside = np.where(np.isfinite(width), reached, 0.0)
        parts: Shares = np.where(below, 1.0, np.clip(inside, 0, 1))
        return parts

    @property
    def knots(self) -> Shares:
        """All bounds that are known, in order."""
        ends: Shares = np.unique(np.concatenate([self.low, self.high]))
        known: Shares = ends[np.isfinite(ends)]
        return known


def _no_bin(attribute: Attribute, category: str) -> ParameterError:
    return ParameterError(
        f"the category {category!r} of {attribute.name!r} is not a bin with bounds, such as"
        " '40 to <60'",
        hint="ask for quantile_category(), or leave the category out with the condition `given`",
    )


def quantile(question: Question, variable: Variable, q: float, given: Condition) -> Quantity:
    """Estimate a quantile of a binned variable, with Woodruff's interval."""
    label, schema = _label(variable, q, given), question.released.schema
    [attribute] = schema.subset([variable.name]).attributes
    scale = Scale.of(attribute, variable.left(schema, given.mask), variable.bounds)
    function = Cumulative.of(question, variable, scale.order, given)
    if not function.clear(question.critical, 1.0):
        return question.refuse(label, WOODRUFF, near_zero(given.text))
    ends = _ends(function, scale, q, question.critical)
    value = _point(monotone(function.shares), scale, q)
    if value is None:
        return question.refuse(label, WOODRUFF, _in_open(scale, function.shares, q, ends))
    return _answer(question, (label, value), ends, function, scale)


def _answer(
    question: Question,
    answer: tuple[str, float],
    ends: tuple[float | None, float | None],
    function: Cumulative,
    scale: Scale,
) -> Quantity:
    """Return the quantile; its standard error is that of an interval as wide as its own."""
    label, value = answer
    doubts = () if function.clear(question.critical, CLEARLY) else (DOUBT,)
    low = None if ends[0] is None else min(ends[0], value)
    high = None if ends[1] is None else max(ends[1], value)
    lengths = [abs(value - end) for end in (low, high) if end is not None]
    open_ends = tuple(
        f"the interval has no {side} end: it reaches into the open category {name!r}; give its"
        " bound with `bounds`"
        for end, side, name in ((low, "lower", scale.names[0]), (high, "upper", scale.names[-1]))
        if end is None
    )
    standard = sampling = privacy = None
    if lengths:
        standard = sum(lengths) / len(lengths) / question.critical
        total, *parts = (float(x) for x in function.errors(scale.parts(np.array(value))))
        sampling, privacy = (standard * part / total for part in parts)
    return Quantity(
        label=label,
        value=value,
        standard_error=standard,
        sampling_error=sampling,
        privacy_error=privacy,
        low=low,
        high=high,
        level=question.level,
        method=WOODRUFF,
        population=question.population,
        warnings=(*sample_warnings(question.released), *open_ends, *doubts),
    )


def _ends(
    function: Cumulative, scale: Scale, q: float, critical: float
) -> tuple[float | None, float | None]:
    """Return the smallest and the largest value that is not excluded; None in an open bin."""
    knots = scale.knots
    side = function.side(scale.parts(knots), q, critical)
    reaching, staying = np.flatnonzero(side <= 0), np.flatnonzero(side >= 0)
    low = high = None
    if not reaching.size:  # everything that is known lies below
        low = float(knots[-1])
    elif reaching[0] > 0:
        low = _search(function, scale, q, critical, (int(reaching[0]) - 1, False))
    if not staying.size:
        high = float(knots[0])
    elif staying[-1] < knots.size - 1:
        high = _search(function, scale, q, critical, (int(staying[-1]), True))
    return low, high


def _search(
    function: Cumulative, scale: Scale, q: float, critical: float, wanted: tuple[int, bool]
) -> float:
    """Find the first value that reaches q, or the last that stays, between a knot and the next."""
    after, stays = wanted
    start, stop = scale.knots[after], scale.knots[after + 1]
    for _ in range(ROUNDS):
        values = np.linspace(start, stop, STEPS + 1)
        side = function.side(scale.parts(values), q, critical)
        beyond = side < 0 if stays else side <= 0
        beyond[-1] = True
        position = max(int(np.argmax(beyond)), 1)
        start, stop = values[position - 1], values[position]
    return float(stop if stays else start)


def monotone(shares: Shares) -> Shares:
    """Return the nearest shares that never fall (pool adjacent violators), within 0..1."""
    blocks: list[list[float]] = []
    for share in shares.tolist():
        blocks.append([share, 1.0])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            value, size = blocks.pop()
            merged = blocks[-1][1] + size
            blocks[-1] = [(blocks[-1][0] * blocks[-1][1] + value * size) / merged, merged]
    values, sizes = [block[0] for block in blocks], [int(block[1]) for block in blocks]
    rising: Shares = np.clip(np.repeat(values, sizes), 0, 1)
    return rising


def _point(rising: Shares, scale: Scale, q: float) -> float | None:
    """Return where a rising distribution function reaches q; None in an open bin."""
    bin_ = _reached(rising, q)
    low, high = float(scale.low[bin_]), float(scale.high[bin_])
    if math.isinf(low) or math.isinf(high):
        return None
    before = float(rising[bin_ - 1]) if bin_ else 0.0
    after = 1.0 if bin_ == rising.size - 1 else float(rising[bin_])
    return low + (high - low) * (q - before) / (after - before)


def _reached(rising: Shares, q: float) -> int:
    """Return the first category at which the distribution function is at least q."""
    enough = rising >= q
    enough[-1] = True  # the shares sum to one, up to rounding
    return int(np.argmax(enough))


def _in_open(scale: Scale, shares: Shares, q: float, ends: tuple[float | None, ...]) -> str:
    name = scale.names[_reached(monotone(shares), q)]
    known = [
        f"it lies {side} {end:.4g}"
        for end, side in zip(ends, ("above", "below"), strict=True)
        if end is not None
    ]
    known_end = f" ({', '.join(known)} by its interval)" if known else ""
    return f"it falls into the open category {name!r}{known_end}; give its bound with `bounds`"


def quantile_category(
    question: Question, variable: Variable, q: float, given: Condition
) -> CategoryQuantile:
    """Estimate the category at which the share of those at or below it reaches q."""
    label, schema = _label(variable, q, given), question.released.schema
    [attribute] = schema.subset([variable.name]).attributes
    codes = np.flatnonzero(variable.left(schema, given.mask))
    function = Cumulative.of(question, variable, codes, given)
    if not function.clear(question.critical, 1.0):
        refused = question.refuse(label, CATEGORY, near_zero(given.text))
        return _category_answer(question, label, None, refused.warnings)
    place = _reached(monotone(function.shares), q)
    side = function.side(np.tri(codes.size), q, question.critical)
    first, staying = int(np.argmax(side <= 0)), np.flatnonzero(side[:-1] >= 0)
    last = int(staying[-1]) + 1 if staying.size else 0
    chosen = [attribute.categories[codes[i]] for i in (place, min(first, place), max(last, place))]
    doubts = () if function.clear(question.critical, CLEARLY) else (DOUBT,)
    return _category_answer(question, label, chosen, (*sample_warnings(question.released), *doubts))


def _category_answer(
    question: Question, label: str, chosen: list[str] | None, warnings: tuple[str, ...]
) -> CategoryQuantile:
    category, low, high = chosen or (None, None, None)
    return CategoryQuantile(
        label=label,
        category=category,
        low=low,
        high=high,
        level=question.level,
        method=CATEGORY,
        population=question.population,
        estimable=chosen is not None,
        warnings=warnings,
    )


def check_q(q: float) -> float:
    """Return q, the share of those below a quantile; refuse what is no share."""
    if not is_number(q) or not 0 < q < 1:
        raise ParameterError(
            f"a quantile lies between the shares 0 and 1, not at {q!r}",
            hint="the median is the quantile 0.5",
        )
    return float(q)


def _label(variable: Variable, q: float, given: Condition) -> str:
    name = "median" if q == 0.5 else f"{q:g} quantile"  # noqa: PLR2004 - the median's share
    return f"{name} of {variable.name}{within(given)}"
