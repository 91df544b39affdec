"""Shares that follow from releases by a linear rule: calibrated to margins, or pooled.

A linear statistic of such shares is a linear statistic of the releases, with other weights.  So its
errors, by cause, and the shape of its law are known, and most questions can be asked as of one
release.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.core.intervals import Interval, Quadratic, feldman_cousins, fieller
from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.schema import Schema
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import Population, critical_value
from veiltab.errors import ParameterError
from veiltab.inference import quantities, wording
from veiltab.inference.conditions import Condition, Mask, combine, quote, quote_name
from veiltab.inference.diagnostics import sample_warnings
from veiltab.inference.distributions import (
    ESTIMABLE,
    NUMBERS,
    REASON,
    WARNING,
    category_columns,
    interval_column,
    warning_column,
)
from veiltab.inference.events import Events
from veiltab.inference.quantities import KNOWN, LINEAR, SCORE, Quantity, Question

NOTHING_LEFT = 1e-9
"""A variance below this part of that of the release alone is a rounded zero: the share is known."""

MOST_CONDITIONALS = 2_000
"""The largest table of conditional shares, which are computed one by one."""

WITHIN = "linear, the denominator is known"


@dataclass(frozen=True, slots=True, eq=False)
class SetErrors:
    """Of sets of cells: the variances in two parts, and the shape of the error, None if normal.

    They hold at the shares of :attr:`Combination.reference`.
    """

    sampling: Shares
    privacy: Shares
    shape: Shape | None

    @property
    def total(self) -> Shares:
        """The variance."""
        return self.sampling + self.privacy


class Combination(ABC):
    """Shares that are linear in those of one or more releases."""

    population: Population

    @property
    @abstractmethod
    def released(self) -> ReleasedCounts:
        """A release that it is made of: its schema is that of the combination."""

    @property
    @abstractmethod
    def unbiased(self) -> Shares:
        """The combined share of each cell; it can be negative."""

    @property
    @abstractmethod
    def plausible(self) -> Shares:
        """A proper distribution near them, which is plugged in for the truth."""

    @property
    def reference(self) -> Shares:
        """The distribution at which :meth:`set_errors` and :meth:`cell_errors` are computed."""
        return self.plausible

    @property
    @abstractmethod
    def notes(self) -> tuple[str, ...]:
        """What to know besides the warnings about :attr:`released`."""

    @abstractmethod
    def statistics(self, gradients: Shares) -> Events:
        """Estimate linear statistics of the shares, one per row of ``gradients``."""

    @abstractmethod
    def quadratic(self, fractions: float) -> Quadratic:
        """Return the a, b, c of the variance of a set of cells before any calibration."""

    @abstractmethod
    def set_errors(self, mask: Mask) -> SetErrors:
        """Return the errors of the share of a set of cells."""

    @abstractmethod
    def cell_errors(self) -> SetErrors:
        """Return the errors of the shares of all cells."""


@dataclass(frozen=True, slots=True, eq=False)
class Sets:
    """Sets of cells of the same size: their combined, plausible and reference shares, and errors.

    The variance of a set is a quadratic in its share, times the part of it that calibration has
    ``left``, which is taken as fixed.
    """

    shares: Shares
    likely: Shares
    left: Shares
    quadratic: Quadratic
    errors: SetErrors

    @classmethod
    def of(cls, source: Combination, mask: Mask | None) -> "Sets":
        """Return all cells, or one set."""
        cells = source.unbiased.size
        if mask is None:
            errors, fraction = source.cell_errors(), 1 / cells
            shares, likely, reference = source.unbiased, source.plausible, source.reference
        else:
            errors, fraction = source.set_errors(mask), np.count_nonzero(mask) / cells
            shares, likely, reference = (
                np.array([values @ mask])
                for values in (source.unbiased, source.plausible, source.reference)
            )
        a, b, c = (float(x) for x in source.quadratic(fraction))
        plain = a + b * reference + c * reference**2
        left = errors.total / np.maximum(plain, np.finfo(np.float64).tiny)
        return cls(shares, likely, left, (a, b, c), errors)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which shares are known, because nothing is left of their variance."""
        nothing: NDArray[np.bool_] = self.left < NOTHING_LEFT
        return nothing

    def standard_errors(self) -> tuple[Shares, Shares, Shares]:
        """Return standard, sampling and privacy errors at the plausible shares."""
        a, b, c = self.quadratic
        variance = np.where(self.known, 0, self.left * (a + b * self.likely + c * self.likely**2))
        whole = np.maximum(self.errors.total, np.finfo(np.float64).tiny)
        causes = (self.errors.sampling, self.errors.privacy)
        parts = (variance, *(variance * cause / whole for cause in causes))
        total, sampling, privacy = (np.sqrt(np.maximum(part, 0)) for part in parts)
        return total, sampling, privacy

    def interval(self, critical: float, whole: float = 1.0) -> Interval:
        """Return the intervals of the shares, or of their parts of a known whole, within 0..1."""
        a, b, c = self.quadratic
        variance = (self.left * a / whole**2, self.left * b / whole, self.left * c)
        shape, parts = self.errors.shape, self.shares / whole
        shape_at = None if shape is None else lambda _: shape
        interval = feldman_cousins(parts, variance, critical, shape_at)
        value = np.clip(parts, 0, 1)
        return Interval(
            np.where(self.known, value, interval.low),
            np.where(self.known, value, interval.high),
            interval.bounded,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CombinedQuestion(Question):
    """A question to a combination; most estimators of quantities need to know nothing else."""

    source: Combination

    def events(self, *conditions: Condition) -> Events:
        """Estimate the shares of these conditions."""
        masks = [condition.mask for condition in conditions]
        return self.source.statistics(np.array(masks, dtype=np.float64))

    def is_known(self, condition: Condition) -> bool:
        """Tell whether the share of a condition is known."""
        return bool(condition.mask.all() or Sets.of(self.source, condition.mask).known[0])

    def nobody(self, *groups: Condition) -> str | None:
        """Say which of these groups is known to have nobody in it, if one is."""
        for group in groups:
            share = float(self.source.unbiased @ group.mask)
            if share < NOTHING_LEFT and self.is_known(group):
                return f"the share of {group.text} is known to be zero"
        return None


def ask(source: Combination, level: float) -> CombinedQuestion:
    """Return a question to a combination."""
    return CombinedQuestion(
        released=source.released, level=level, population=source.population, source=source
    )


def probability(question: CombinedQuestion, event: Condition) -> Quantity:
    """Estimate the share of those who meet a condition."""
    return _share(question, f"P({event.text})", event, None)


def proportion(question: CombinedQuestion, event: Condition, given: Condition) -> Quantity:
    """Estimate the share of a condition among those who meet another one.

    Where the share of the other one is known, the answer is linear: no Fieller is needed.
    """
    if not question.is_known(given):
        return quantities.proportion(question, event, given)
    label, whole = f"P({event.text} | {given.text})", float(question.source.unbiased @ given.mask)
    if why := question.nobody(given):
        return question.refuse(label, WITHIN, why)
    both = combine(f"({event.text}) and ({given.text})", event.mask & given.mask)
    return _share(question, label, both, whole)


def _share(
    question: CombinedQuestion, label: str, event: Condition, known: float | None
) -> Quantity:
    """Estimate the share of an event, or what it is of a share that is known."""
    whole = 1.0 if known is None else known
    if event.mask.all():
        return question.answer(label, KNOWN, 1.0, (0.0, 0.0, 0.0), (1.0, 1.0))
    sets = Sets.of(question.source, event.mask)
    share = float(sets.shares[0]) / whole
    value = float(np.clip(share, 0, 1))
    if sets.known[0]:
        return question.answer(label, KNOWN, value, (0.0, 0.0, 0.0), (value, value))
    interval = sets.interval(question.critical, whole)
    low, high = float(interval.low[0]), float(interval.high[0])
    standard, sampling, privacy = (float(error[0]) / whole for error in sets.standard_errors())
    return question.answer(
        label,
        SCORE if known is None else WITHIN,
        value,
        (standard, sampling, privacy),
        (low, high),
        *wording.beyond(share),
    )


def linear(question: CombinedQuestion, weights: Shares, label: str) -> Quantity:
    """Estimate a weighted sum of shares."""
    events = question.source.statistics(weights[np.newaxis])
    value = float(events.shares[0])
    errors = events.errors(np.ones(1))
    plain = question.released.uncertainty(question.population).total(weights)
    if errors[0] ** 2 <= NOTHING_LEFT * float(plain):
        return question.answer(label, KNOWN, value, (0.0, 0.0, 0.0), (value, value))
    below, above = (float(margin) for margin in events.margins(np.ones(1), question.critical))
    return question.answer(label, LINEAR, value, errors, (value - below, value + above))


def mean(
    question: CombinedQuestion, scores: Shares, given: Condition | None, label: str
) -> Quantity:
    """Estimate the mean of a score per cell, among all or among those who meet a condition."""
    inside = scores if given is None else scores[given.mask]
    least, most = float(inside.min()), float(inside.max())
    if least == most:
        return question.answer(label, KNOWN, least, (0.0, 0.0, 0.0), (least, least))
    if given is None:
        return _possible(linear(question, scores, label), least, most)
    if why := question.nobody(given):
        return question.refuse(label, WITHIN, why)
    mask = given.mask.astype(np.float64)
    events = question.source.statistics(np.array([scores * mask, mask]))
    part, whole = (float(share) for share in events.shares)
    gradient = np.array([1.0, -part / whole if whole > 0 else 0.0])
    critical = events.widened(gradient, question.critical)
    interval = fieller(np.array(part), np.array(whole), events.total, critical)
    if not interval.bounded:
        why = f"the denominator, the share of {given.text}, cannot be distinguished from zero"
        return question.refuse(label, quantities.FIELLER, why)
    method = WITHIN if question.is_known(given) else quantities.FIELLER
    ends = float(interval.low), float(interval.high)
    answer = question.answer(label, method, part / whole, events.errors(gradient / whole), ends)
    return _possible(answer, least, most)


def _possible(answer: Quantity, least: float, most: float) -> Quantity:
    """Move a mean and its interval between the smallest and the largest score, and say so.

    An interval around an impossible estimate becomes that around the nearest possible one, so that
    it keeps a width.
    """
    if answer.value is None or answer.low is None or answer.high is None or answer.method == KNOWN:
        return answer
    shown = min(max(answer.value, least), most)
    low, high = (
        min(max(end + shown - answer.value, least), most) for end in (answer.low, answer.high)
    )
    words = wording.beyond_scores(answer.value, least, most)
    return replace(answer, value=shown, low=low, high=high, warnings=(*answer.warnings, *words))


def combined_table(
    source: Combination, shares: Shares, level: float, *, shown: bool
) -> pl.DataFrame:
    """Return a row for each cell: its categories, its share, its errors and its interval.

    ``shown`` says that the shares are the unbiased ones, moved into 0..1; rows tell which were.
    """
    sets = Sets.of(source, None)
    interval = sets.interval(critical_value(level))
    estimates = np.where(sets.known, np.clip(source.unbiased, 0, 1), source.unbiased)
    values = (shares, *sets.standard_errors(), interval.low, interval.high)
    return pl.DataFrame(
        [
            *category_columns(source.released.schema),
            *(pl.Series(name, column) for name, column in zip(NUMBERS, values, strict=True)),
            warning_column(estimates, 1.0, shown=shown),
            interval_column(shares.size, level, simultaneous=False),
        ]
    )


def combined_conditionals(
    source: Combination, of: Sequence[str], given: Sequence[str], level: float
) -> pl.DataFrame:
    """Return the shares of ``of`` within each group of ``given``, asked one by one."""
    if not of or not given or set(of) & set(given):
        raise ParameterError(
            f"cannot condition {list(of)} on {list(given)}",
            hint="name at least one attribute on each side, and none on both",
        )
    schema = source.released.schema
    table = schema.subset([*given, *of])
    if table.domain_size > MOST_CONDITIONALS:
        raise ParameterError(
            f"a table of {table.domain_size:,} conditional shares is too large to be combined",
            hint=f"use attributes with at most {MOST_CONDITIONALS:,} joint cells",
        )
    question, answers = ask(source, level), []
    for cell in range(table.domain_size):
        labels = dict(zip(table.names, table.labels(cell), strict=True))
        event, group = (_all_of({n: labels[n] for n in names}, schema) for names in (of, given))
        answers.append(proportion(question, event, group))
    fields = ("value", "standard_error", "sampling_error", "privacy_error", "low", "high")
    columns = [
        pl.Series(name, [getattr(answer, field) for answer in answers], dtype=pl.Float64)
        for name, field in zip(NUMBERS, fields, strict=True)
    ]
    about_all = sample_warnings(source.released)
    words = ["; ".join(w for w in answer.warnings if w not in about_all) for answer in answers]
    reasons = [
        None if answer.estimable else word.removeprefix("not estimable: ")
        for answer, word in zip(answers, words, strict=True)
    ]
    warnings = [
        word or None if answer.estimable else None
        for answer, word in zip(answers, words, strict=True)
    ]
    return pl.DataFrame(
        [
            *category_columns(table),
            *columns,
            pl.Series(ESTIMABLE, [answer.estimable for answer in answers]),
            pl.Series(REASON, reasons, dtype=pl.String),
            pl.Series(WARNING, warnings, dtype=pl.String),
            interval_column(len(answers), level, simultaneous=False),
        ]
    )


def _all_of(categories: dict[str, str], schema: Schema) -> Condition:
    """Return the condition that attributes have these categories."""
    codes = dict(zip(schema.names, schema.codes(np.arange(schema.domain_size)), strict=True))
    mask, parts = np.ones(schema.domain_size, dtype=np.bool_), []
    for attribute in schema.attributes:
        if attribute.name in categories:
            wanted = categories[attribute.name]
            mask &= codes[attribute.name] == attribute.categories.index(wanted)
            parts.append(f"{quote_name(attribute.name)} = {quote(wanted)}")
    return combine(" and ".join(parts), mask)
