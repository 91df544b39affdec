"""Quantities made of a few conditions: shares, differences and ratios, each with its error."""

from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np

from veiltab.core.intervals import fieller, share_interval
from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.uncertainty import Population, ReleaseDesign, critical_value
from veiltab.inference.conditions import Condition, combine, negate
from veiltab.inference.diagnostics import sample_warnings
from veiltab.inference.events import (
    Events,
    clipped,
    conditional_interval,
    estimate_events,
    ratio_interval,
)

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
    return question.answer(label, LINEAR, clipped(value), events.errors(gradient), ends)


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
    ends = clipped(float(interval.low)), clipped(float(interval.high))
    doubts = () if _clear(question, events, 2, CLEARLY) else (DOUBT,)
    return question.answer(label, FIELLER, clipped(value), errors, ends, *doubts)


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
    return question.answer(label, DELTA, clipped(value), events.errors(gradient), ends, *doubts)


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
