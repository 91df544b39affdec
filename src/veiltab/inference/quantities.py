"""Quantities made of a few conditions: shares, differences and ratios, each with its error."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from veiltab.core.intervals import Interval, share_interval
from veiltab.core.ratios import share_of_both
from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.uncertainty import Population, ReleaseDesign, critical_value
from veiltab.inference import wording
from veiltab.inference.answer import Answer
from veiltab.inference.conditions import Condition, combine, negate
from veiltab.inference.diagnostics import sample_warnings
from veiltab.inference.events import (
    Events,
    doubled,
    estimate_events,
    part_and_rest,
    products,
    risks_apart,
    sum_and_difference,
)

KNOWN = "known"
SCORE = "linear, score interval within 0..1"
LINEAR = "linear, closed form"
FIELLER = "Fieller"
PROPORTION = "Fieller, within 0..1"
DIFFERENCE = "Fieller, within −1..1"
PRODUCTS = "Fieller, on products of shares"
DELTA = "delta method"

CLEARLY = 3.0
"""A denominator closer to zero than this many half-widths of its interval is doubtful."""

DOUBT = wording.DOUBT

Factors = tuple[Condition, Condition, Condition, Condition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity(Answer):
    """An estimated number with its standard error, in two parts, and its interval.

    ``sampling_error`` arises because not everybody took part, ``privacy_error`` because of noise
    and decoys; their squares add up to that of ``standard_error``.  An end of the interval that
    is None is no limit: the release excludes no value on that side.  Without a ``value`` only the
    interval says something.  If the quantity is not ``estimable``, all numbers are None and the
    warnings say why; they are never NaN.
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

    @property
    def interval_text(self) -> str:
        """The interval in words, such as "at least 1.3; no upper limit"."""
        if self.low is None and self.high is None:
            return "no limits"
        if self.high is None:
            return f"at least {_written(self.low or 0.0)}; no upper limit"
        if self.low is None:
            return f"at most {_written(self.high)}; no lower limit"
        return f"{_written(self.low)} to {_written(self.high)}"

    def _text(self) -> str:
        if not self.estimable:
            return "not estimable"
        level = f"{100 * self.level:g}% interval"
        if self.value is None:
            return f"{self.interval_text} ({level}; {self.method})"
        if self.method == KNOWN:
            return f"{_written(self.value)} (known)"
        errors = (self.standard_error, self.sampling_error, self.privacy_error)
        standard, sampling, privacy = (_written(error or 0.0, 2) for error in errors)
        return (
            f"{_written(self.value)} ({level} {self.interval_text}; standard error {standard} ="
            f" sampling {sampling} ⊕ privacy {privacy}; {self.method})"
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

    def nobody(self, *groups: Condition) -> str | None:  # noqa: ARG002 - a release alone knows none
        """Say which of these groups is known to have nobody in it, if one is."""
        return None

    @property
    def design(self) -> ReleaseDesign:
        """Everything but the data that the errors depend on."""
        return self.released.design(self.population)

    def answer(
        self,
        label: str,
        method: str,
        value: float | None,
        errors: tuple[float, float, float] | None,
        ends: tuple[float | None, float | None],
        *warnings: str,
    ) -> Quantity:
        """Return a quantity with its numbers and the warnings about its release.

        An end that is None is no limit.  A quantity without a value has no errors either.
        """
        standard, sampling, privacy = errors or (None, None, None)
        return Quantity(
            label=label,
            value=value,
            standard_error=standard,
            sampling_error=sampling,
            privacy_error=privacy,
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
        return question.answer(label, KNOWN, 1.0, (0.0, 0.0, 0.0), (1.0, 1.0))
    events = question.events(event)
    cells = np.array([float(np.count_nonzero(event.mask))])
    interval = share_interval(events.shares, cells, question.design, question.critical)
    value = float(np.clip(events.shares[0], 0, 1))
    ends = float(interval.low[0]), float(interval.high[0])
    return question.answer(
        label, SCORE, value, events.errors(np.ones(1)), ends, *wording.beyond(events.shares[0])
    )


def proportion(question: Question, event: Condition, given: Condition) -> Quantity:
    """Estimate the share of a condition among those who meet another one."""
    label = f"P({event.text} | {given.text})"
    both = _and(event, given)
    if np.array_equal(both.mask, given.mask):
        return question.answer(label, KNOWN, 1.0, (0.0, 0.0, 0.0), (1.0, 1.0))
    events = question.events(both, given)
    part, whole = (float(share) for share in events.shares)
    value, gradient = None, None
    if whole > 0:
        value = part / whole
        gradient = np.array([1.0, -min(max(value, 0.0), 1.0)]) / whole
    return _Quotient(label, PROPORTION, events, (given.text,), (1,), 0.0).answer(
        question, share_of_both(events.ratio(part_and_rest, question.critical)), value, gradient
    )


def difference(
    question: Question, first: Condition, second: Condition, given: Condition | None
) -> Quantity:
    """Estimate P(first) − P(second), or the same among those who meet a third condition."""
    if given is not None:
        return _difference_within(question, first, second, given)
    label = f"P({first.text}) − P({second.text})"
    if np.array_equal(first.mask, second.mask):
        return question.answer(label, KNOWN, 0.0, (0.0, 0.0, 0.0), (0.0, 0.0))
    events = question.events(first, second)
    gradient = np.array([1.0, -1.0])
    value = float(gradient @ events.shares)
    ends = _ends(events.difference(gradient, question.critical))
    errors, words = events.errors(gradient), wording.beyond(value, -1.0)
    return question.answer(label, LINEAR, min(max(value, -1.0), 1.0), errors, ends, *words)


def risk_difference(
    question: Question, outcome: Condition, group: Condition, versus: Condition
) -> Quantity:
    """Estimate P(outcome | group) − P(outcome | versus)."""
    label = f"P({outcome.text} | {group.text}) − P({outcome.text} | {versus.text})"
    if why := question.nobody(group, versus):
        return question.refuse(label, DIFFERENCE, why)
    groups = (_and(outcome, group), group, _and(outcome, versus), versus)
    events = question.events(*groups)
    a, b, c, d = (float(share) for share in events.shares)
    value, gradient = None, None
    if b > 0 and d > 0:
        value = a / b - c / d
        gradient = np.array([1 / b, -a / b**2, -1 / d, c / d**2])
    return _Quotient(label, DIFFERENCE, events, (group.text, versus.text), (1, 3), -1.0).answer(
        question,
        doubled(share_of_both(events.ratio(risks_apart, question.critical))),
        value,
        gradient,
    )


def risk_ratio(
    question: Question, outcome: Condition, group: Condition, versus: Condition
) -> Quantity:
    """Estimate P(outcome | group) / P(outcome | versus)."""
    label = f"P({outcome.text} | {group.text}) / P({outcome.text} | {versus.text})"
    if why := question.nobody(group, versus):
        return question.refuse(label, PRODUCTS, why)
    factors = (_and(outcome, group), group, _and(outcome, versus), versus)
    return _product_ratio(question, label, factors)


def odds_ratio(
    question: Question, outcome: Condition, group: Condition, versus: Condition
) -> Quantity:
    """Estimate the odds of an outcome in a group, divided by those in another."""
    label = f"odds({outcome.text} | {group.text}) / odds({outcome.text} | {versus.text})"
    if why := question.nobody(group, versus):
        return question.refuse(label, PRODUCTS, why)
    other = negate(outcome)
    factors = (_and(outcome, group), _and(other, group), _and(outcome, versus), _and(other, versus))
    return _product_ratio(question, label, factors)


def _difference_within(
    question: Question, first: Condition, second: Condition, given: Condition
) -> Quantity:
    """Estimate P(first | given) − P(second | given): one ratio, with the same denominator."""
    label = f"P({first.text} | {given.text}) − P({second.text} | {given.text})"
    conditions = (_and(first, given), _and(second, given), given)
    if np.array_equal(conditions[0].mask, conditions[1].mask):
        return question.answer(label, KNOWN, 0.0, (0.0, 0.0, 0.0), (0.0, 0.0))
    if why := question.nobody(given):
        return question.refuse(label, DIFFERENCE, why)
    events = question.events(*conditions)
    a, b, whole = (float(share) for share in events.shares)
    value, gradient = None, None
    if whole > 0:
        value = (a - b) / whole
        gradient = np.array([1.0, -1.0, -value]) / whole
    interval = doubled(share_of_both(events.ratio(sum_and_difference, question.critical)))
    return _Quotient(label, DIFFERENCE, events, (given.text,), (2,), -1.0).answer(
        question, interval, value, gradient
    )


def _product_ratio(question: Question, label: str, factors: Factors) -> Quantity:
    """Estimate x₀x₃/(x₁x₂), where a denominator near zero leaves no upper limit."""
    events = question.events(*factors)
    x0, x1, x2, x3 = (float(share) for share in events.shares)
    value, gradient = None, None
    if x1 > 0 and x2 > 0:
        value = x0 * x3 / (x1 * x2) * (-1 if x0 < 0 and x3 < 0 else 1)
        gradient = _product_gradient(events.shares)
    divisors = factors[1].text, factors[2].text
    return _Quotient(label, PRODUCTS, events, divisors, (1, 2), 0.0, np.inf).answer(
        question, events.ratio(products, question.critical), value, gradient
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Quotient:
    """A quotient of estimates: which events it is divided by, and what values it can have."""

    label: str
    method: str
    events: Events
    names: tuple[str, ...]
    divisors: tuple[int, ...]
    least: float
    most: float = 1.0

    def answer(
        self, question: Question, interval: Interval, value: float | None, gradient: Shares | None
    ) -> Quantity:
        """Return what is known about it; without a value if that has no meaning."""
        clear = [clearness(self.events, i, question.critical) for i in self.divisors]
        named = zip(self.names, clear, strict=True)
        vague = " and ".join(name for name, (at_all, _) in named if not at_all)
        at_all, clearly = all(c[0] for c in clear), all(c[1] for c in clear)
        if not interval.bounded:
            why = wording.nothing_known(vague, clear=at_all)
            return question.refuse(self.label, self.method, why)
        limits, ends = (self.least, self.most), (float(interval.low), float(interval.high))
        words = () if value is None else wording.beyond(value, *limits)
        words += wording.about_quotient((at_all, clearly), ends, limits, vague)
        shown = None if value is None else min(max(value, self.least), self.most)
        errors = None if gradient is None else self.events.errors(gradient)
        return question.answer(self.label, self.method, shown, errors, _ends(interval), *words)


def _product_gradient(shares: Shares) -> Shares:
    """Return the gradient of x₀x₃/(x₁x₂)."""
    x0, x1, x2, x3 = (float(share) for share in shares)
    ratio = x0 * x3 / (x1 * x2)
    return np.array([x3 / (x1 * x2), -ratio / x1, -ratio / x2, x0 / (x1 * x2)])


def _and(first: Condition, second: Condition) -> Condition:
    return combine(f"({first.text}) and ({second.text})", first.mask & second.mask)


def _ends(interval: Interval) -> tuple[float | None, float | None]:
    """Return both ends; one that is infinite is no limit."""
    low, high = float(interval.low), float(interval.high)
    return low, high if np.isfinite(high) else None


def clearness(events: Events, position: int, critical: float) -> tuple[Any, Any]:
    """Tell whether a share exceeds the half-width of its interval, and three times that."""
    share = events.shares[..., position]
    half = critical * np.sqrt(np.maximum(events.total[..., position, position], 0))
    return share > half, share > CLEARLY * half
