"""Quantities made of a few conditions: shares, differences and ratios, each with its error."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core import estimators
from veiltab.core.intervals import (
    Interval,
    fieller,
    product_ratio,
    proportion_interval,
    share_interval,
    widened,
)
from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import Population, ReleaseDesign, critical_value
from veiltab.inference.conditions import Condition, Mask, combine, negate
from veiltab.inference.diagnostics import sample_warnings

KNOWN = "known"
SCORE = "linear, score interval within 0..1"
LINEAR = "linear, closed form"
FIELLER = "Fieller"
PROPORTION = "Fieller, within 0..1"
PRODUCTS = "Fieller, on products of shares"
DELTA = "delta method"

CLEARLY = 3.0
"""A denominator closer to zero than this many half-widths of its interval is doubtful."""

DOUBT = (
    "the denominator is itself uncertain: the interval is wide and rough, and in such cases it is"
    " mostly given when the denominator is large by chance"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """An estimated number with its standard error, in two parts, and its interval.

    ``sampling_error`` arises because not everybody took part, ``privacy_error`` because of noise
    and decoys; their squares add up to that of ``standard_error``.  If the quantity is not
    ``estimable``, the numbers are None and the warnings say why; they are never NaN.
    """

    label: str
    value: float | None
    standard_error: float | None
    sampling_error: float | None
    privacy_error: float | None
    low: float | None
    high: float | None
    level: float
    method: str
    population: Population
    estimable: bool = True
    warnings: tuple[str, ...] = ()

    @classmethod
    def not_estimable(
        cls, label: str, why: str, *, level: float, method: str, population: Population
    ) -> "Quantity":
        """Return a quantity without numbers, and the reason as its warning."""
        return cls(
            label=label,
            value=None,
            standard_error=None,
            sampling_error=None,
            privacy_error=None,
            low=None,
            high=None,
            level=level,
            method=method,
            population=population,
            estimable=False,
            warnings=(f"not estimable: {why}",),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self) | {"warnings": list(self.warnings)}

    def __str__(self) -> str:
        """Return the result in one line, followed by a line for each warning."""
        return "\n".join([f"{self.label}: {self._text()}", *(f"  {w}" for w in self.warnings)])

    def _repr_html_(self) -> str:
        """Return a paragraph and a list of warnings for notebooks."""
        warnings = "".join(f"<li>{escape(warning)}</li>" for warning in self.warnings)
        listed = f"<ul>{warnings}</ul>" if warnings else ""
        return f"<p><b>{escape(self.label)}</b>: {escape(self._text())}</p>{listed}"

    def _text(self) -> str:
        if self.value is None or self.low is None or self.high is None:
            return "not estimable"
        if self.method == KNOWN:
            return f"{_written(self.value)} (known)"
        errors = (self.standard_error, self.sampling_error, self.privacy_error)
        standard, sampling, privacy = (_written(error or 0.0, 2) for error in errors)
        return (
            f"{_written(self.value)} ({100 * self.level:g}% interval {_written(self.low)} to"
            f" {_written(self.high)}; standard error {standard} = sampling {sampling} ⊕ privacy"
            f" {privacy}; {self.method})"
        )


def _written(number: float, digits: int = 4) -> str:
    """Write a number with so many digits, or as a whole number if it has more."""
    return f"{number:,.0f}" if abs(number) >= 10**digits else f"{number:.{digits}g}"


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Unbiased shares of events, and the privacy and sampling parts of their covariance.

    The events divide the table into atoms: ``parts`` says which atoms belong to which event,
    ``likely`` and ``fractions`` are the atoms' plausible shares and their parts of all cells.
    """

    shares: Shares
    privacy: Shares
    sampling: Shares
    parts: Shares
    likely: Shares
    fractions: Shares
    design: ReleaseDesign

    @property
    def total(self) -> Shares:
        """The covariance: the sum of both parts."""
        return self.privacy + self.sampling

    def errors(self, gradient: Shares) -> tuple[float, float, float]:
        """Return standard, sampling and privacy error of a statistic with this gradient."""
        parts = (self.total, self.sampling, self.privacy)
        total, sampling, privacy = (max(float(gradient @ part @ gradient), 0.0) for part in parts)
        return total**0.5, sampling**0.5, privacy**0.5

    def shape(self, gradient: Shares) -> Shape | None:
        """Return the shape of the error of a statistic with this gradient; None if it is normal."""
        if self.design.normal:
            return None
        return self.design.shape(gradient @ self.parts, self.likely, self.fractions)

    def margins(self, gradient: Shares, critical: float) -> tuple[Any, Any]:
        """Return how far an interval of a linear statistic reaches down and up.

        There is a number for each release.
        """
        variance = np.einsum("i,...ij,j->...", gradient, self.total, gradient)
        error, shape = np.sqrt(np.maximum(variance, 0)), self.shape(gradient)
        if shape is None:
            return critical * error, critical * error
        return shape.deviation(critical) * error, -shape.deviation(-critical) * error

    def ends(self, gradient: Shares, value: float, critical: float) -> tuple[float, float]:
        """Return the interval of a difference of two shares, within −1..1."""
        below, above = self.margins(gradient, critical)
        return _clip(float(value - below)), _clip(float(value + above))

    def widened(self, gradient: Shares, critical: float) -> Any:  # noqa: ANN401 - a number, or one per release
        """Return the critical value for an interval of the statistic in both directions."""
        return widened(critical, self.shape(gradient))


def estimate_events(
    counts: NDArray[np.int64], design: ReleaseDesign, masks: Sequence[Mask]
) -> Events:
    """Estimate the share of each event, a set of cells; cells run along the last axis."""
    pattern = np.zeros(masks[0].size, dtype=np.uint8)
    for position, mask in enumerate(masks):
        pattern |= mask.astype(np.uint8) << np.uint8(position)
    kinds = np.unique(pattern)
    sizes = np.array([np.count_nonzero(pattern == kind) for kind in kinds], dtype=np.float64)
    summed = np.stack([counts[..., pattern == kind].sum(axis=-1) for kind in kinds], axis=-1)
    atoms = design.estimate_sets(summed, sizes)
    likely, fractions = estimators.project(atoms), sizes / pattern.size
    events = np.array([(kinds >> position) & 1 for position in range(len(masks))], dtype=float)
    return Events(
        atoms @ events.T,
        events @ design.privacy.of_partition(likely, fractions) @ events.T,
        events @ design.sampling.of_partition(likely, fractions) @ events.T,
        events,
        likely,
        fractions,
        design,
    )


def conditional_interval(events: Events, critical: float) -> Interval:
    """Return the interval of the first event's share of the second, which holds it."""
    part, whole = events.shares[..., 0], events.shares[..., 1]
    ratio = np.divide(part, whole, where=whole > 0, out=np.zeros_like(part))
    gradient = np.stack([np.ones_like(ratio), -np.clip(ratio, 0, 1)], axis=-1)
    return proportion_interval(part, whole, events.total, critical, events.shape(gradient))


def ratio_interval(events: Events, critical: float) -> Interval:
    """Return the interval of x₀x₃/(x₁x₂), the ratio of two products of four events' shares."""
    x0, x1, x2, x3 = np.moveaxis(events.shares, -1, 0)
    ratio = np.divide(x0 * x3, x1 * x2, where=x1 * x2 > 0, out=np.zeros_like(x0))
    apart = np.stack([x3, -ratio * x2, -ratio * x1, x0], axis=-1)  # of x₀x₃ − (ratio)x₁x₂
    return product_ratio(events.shares, events.total, events.widened(apart, critical))


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What every estimator of a quantity needs: the release, the level and the population."""

    released: ReleasedCounts
    level: float
    population: Population

    @property
    def critical(self) -> float:
        """The critical value of the confidence level."""
        return critical_value(self.level)

    def events(self, *conditions: Condition) -> Events:
        """Estimate the shares of these conditions."""
        masks = [condition.mask for condition in conditions]
        return estimate_events(self.released.counts, self.design, masks)

    @property
    def design(self) -> ReleaseDesign:
        """Everything but the data that the errors depend on."""
        return self.released.design(self.population)

    def answer(
        self,
        label: str,
        method: str,
        value: float,
        errors: tuple[float, float, float],
        ends: tuple[float, float],
        *warnings: str,
    ) -> Quantity:
        """Return a quantity with its numbers and the warnings about its release."""
        return Quantity(
            label=label,
            value=value,
            standard_error=errors[0],
            sampling_error=errors[1],
            privacy_error=errors[2],
            low=ends[0],
            high=ends[1],
            level=self.level,
            method=method,
            population=self.population,
            warnings=(*sample_warnings(self.released), *warnings),
        )

    def refuse(self, label: str, method: str, why: str) -> Quantity:
        """Return a quantity that is not estimable."""
        return Quantity.not_estimable(
            label, why, level=self.level, method=method, population=self.population
        )


def probability(question: Question, event: Condition) -> Quantity:
    """Estimate the share of those who meet a condition."""
    label = f"P({event.text})"
    if event.mask.all():
        return question.answer(label, LINEAR, 1.0, (0.0, 0.0, 0.0), (1.0, 1.0))
    events = question.events(event)
    cells = np.array([float(np.count_nonzero(event.mask))])
    interval = share_interval(events.shares, cells, question.design, question.critical)
    value = float(np.clip(events.shares[0], 0, 1))
    ends = float(interval.low[0]), float(interval.high[0])
    return question.answer(
        label, SCORE, value, events.errors(np.ones(1)), ends, *_boundary(events.shares[0])
    )


def proportion(question: Question, event: Condition, given: Condition) -> Quantity:
    """Estimate the share of a condition among those who meet another one."""
    label = f"P({event.text} | {given.text})"
    both = _and(event, given)
    events = question.events(both, given)
    part, whole = events.shares
    interval = conditional_interval(events, question.critical)
    if not interval.bounded:
        return question.refuse(label, PROPORTION, _near_zero(given.text))
    value = float(np.clip(part / whole, 0, 1))
    errors = events.errors(np.array([1.0, -value]) / whole)
    doubts = () if _clear(question, events, 1, CLEARLY) else (DOUBT,)
    ends = float(interval.low), float(interval.high)
    return question.answer(
        label, PROPORTION, value, errors, ends, *_boundary(part / whole), *doubts
    )


def difference(
    question: Question, first: Condition, second: Condition, given: Condition | None
) -> Quantity:
    """Estimate P(first) − P(second), or the same among those who meet a third condition."""
    if given is not None:
        return _difference_within(question, first, second, given)
    events = question.events(first, second)
    gradient = np.array([1.0, -1.0])
    label = f"P({first.text}) − P({second.text})"
    value = float(gradient @ events.shares)
    ends = events.ends(gradient, value, question.critical)
    return question.answer(label, LINEAR, _clip(value), events.errors(gradient), ends)


def risk_difference(
    question: Question, outcome: Condition, group: Condition, versus: Condition
) -> Quantity:
    """Estimate P(outcome | group) − P(outcome | versus)."""
    label = f"P({outcome.text} | {group.text}) − P({outcome.text} | {versus.text})"
    groups = (_and(outcome, group), group, _and(outcome, versus), versus)
    return _proportions_apart(question, label, groups)


def risk_ratio(
    question: Question, outcome: Condition, group: Condition, versus: Condition
) -> Quantity:
    """Estimate P(outcome | group) / P(outcome | versus)."""
    label = f"P({outcome.text} | {group.text}) / P({outcome.text} | {versus.text})"
    factors = (_and(outcome, group), group, _and(outcome, versus), versus)
    return _product_ratio(question, label, factors)


def odds_ratio(
    question: Question, outcome: Condition, group: Condition, versus: Condition
) -> Quantity:
    """Estimate the odds of an outcome in a group, divided by those in another."""
    label = f"odds({outcome.text} | {group.text}) / odds({outcome.text} | {versus.text})"
    other = negate(outcome)
    factors = (_and(outcome, group), _and(other, group), _and(outcome, versus), _and(other, versus))
    return _product_ratio(question, label, factors)


def _difference_within(
    question: Question, first: Condition, second: Condition, given: Condition
) -> Quantity:
    """Estimate P(first | given) − P(second | given): one ratio, so Fieller's interval is exact."""
    label = f"P({first.text} | {given.text}) − P({second.text} | {given.text})"
    events = question.events(_and(first, given), _and(second, given), given)
    pair = np.array([[1.0, -1.0, 0.0], [0.0, 0.0, 1.0]])
    part, whole = pair @ events.shares
    gradient = np.array([1.0, -1.0, -part / whole if whole > 0 else 0.0])
    critical = events.widened(gradient, question.critical)
    interval = fieller(part, whole, pair @ events.total @ pair.T, critical)
    if not interval.bounded:
        return question.refuse(label, FIELLER, _near_zero(given.text))
    value = float(part / whole)
    errors = events.errors(np.array([1.0, -1.0, -value]) / whole)
    ends = _clip(float(interval.low)), _clip(float(interval.high))
    doubts = () if _clear(question, events, 2, CLEARLY) else (DOUBT,)
    return question.answer(label, FIELLER, _clip(value), errors, ends, *doubts)


def _proportions_apart(
    question: Question, label: str, groups: tuple[Condition, Condition, Condition, Condition]
) -> Quantity:
    """Estimate a/b − c/d by the delta method; both denominators must be clear of zero."""
    events = question.events(*groups)
    a, b, c, d = (float(share) for share in events.shares)
    for position in (1, 3):
        if not _clear(question, events, position, 1.0):
            return question.refuse(label, DELTA, _near_zero(groups[position].text))
    gradient = np.array([1 / b, -a / b**2, -1 / d, c / d**2])
    clear = all(_clear(question, events, position, CLEARLY) for position in (1, 3))
    doubts = () if clear else (DOUBT,)
    value = a / b - c / d
    ends = events.ends(gradient, value, question.critical)
    return question.answer(label, DELTA, _clip(value), events.errors(gradient), ends, *doubts)


def _product_ratio(
    question: Question, label: str, factors: tuple[Condition, Condition, Condition, Condition]
) -> Quantity:
    events = question.events(*factors)
    shares = events.shares
    interval = ratio_interval(events, question.critical)
    if not interval.bounded:
        doubtful = " and ".join(
            factors[i].text for i in (1, 2) if not _clear(question, events, i, 1.0)
        )
        return question.refuse(label, PRODUCTS, _near_zero(doubtful or "the denominator"))
    value = max(float(shares[0] * shares[3] / (shares[1] * shares[2])), 0.0)
    gradient = _product_gradient(shares)
    lower = float(shares[1] * shares[2])
    error = events.errors(np.array([0.0, shares[2], shares[1], 0.0]))[0]
    doubts = () if lower > CLEARLY * question.critical * error else (DOUBT,)
    ends = float(interval.low), float(interval.high)
    return question.answer(label, PRODUCTS, value, events.errors(gradient), ends, *doubts)


def _product_gradient(shares: Shares) -> Shares:
    """Return the gradient of x₀x₃/(x₁x₂)."""
    x0, x1, x2, x3 = (float(share) for share in shares)
    ratio = x0 * x3 / (x1 * x2)
    return np.array([x3 / (x1 * x2), -ratio / x1, -ratio / x2, x0 / (x1 * x2)])


def _and(first: Condition, second: Condition) -> Condition:
    return combine(f"({first.text}) and ({second.text})", first.mask & second.mask)


def _clear(question: Question, events: Events, position: int, times: float) -> bool:
    """Tell whether a share exceeds ``times`` the half-width of its interval."""
    error = float(events.total[position, position]) ** 0.5
    return bool(events.shares[position] > times * question.critical * error)


def _boundary(share: float) -> tuple[str, ...]:
    if 0 <= share <= 1:
        return ()
    side, edge = ("below", "zero") if share < 0 else ("above", "one")
    unbiased = f"the unbiased estimate is {share:.4g}, {side} {edge} because of the noise"
    return (f"{unbiased}; it is shown as {edge}",)


def _near_zero(text: str) -> str:
    return f"the denominator, the share of {text}, cannot be distinguished from zero"


def _clip(value: float) -> float:
    """Keep a difference of two shares within −1..1."""
    return min(max(value, -1.0), 1.0)
