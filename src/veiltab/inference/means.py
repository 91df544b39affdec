"""Means, variances and differences of means of a scored variable."""

from dataclasses import dataclass, replace

import numpy as np

from veiltab.core.intervals import Interval, feldman_cousins
from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import CovarianceForm
from veiltab.inference.atoms import atoms_of
from veiltab.inference.bounded import (
    BoundedMean,
    BoundedRatio,
    Correction,
    Errors,
    difference_interval,
)
from veiltab.inference.conditions import Condition, Mask
from veiltab.inference.quantities import CLEARLY, DOUBT, KNOWN, Quantity, Question, proportion
from veiltab.inference.scores import Variable, check_scored, check_within, scores_of
from veiltab.inference.wording import beyond_scores

MEAN = "linear, score interval within the scores"
RATIO = "Fieller, within the scores"
VARIANCE = "debiased, score interval within the scores"
APART = "from the intervals of both means"

Asked = tuple[str, str]
"""The label of a quantity, and how its interval is found."""

LARGEST_VARIANCE = 0.25
"""Of a score within 0..1: half of everybody at each end."""

NOTICED = 0.1
"""From what part of a variance on it is said that it is too large."""

WIDE = (
    "the noise hides the mean that the variance is taken around: the error is overstated, and the"
    " interval is wider than needed"
)

ROUNDED = 1e-6
"""A number without an error is known if its interval is shorter than this part of the scores."""


@dataclass(frozen=True, slots=True, eq=False)
class Scored:
    """A variable with a number for each cell: ``units`` within 0..1, from ``low`` to ``high``."""

    units: Shares
    low: float
    high: float

    @classmethod
    def of(cls, released: ReleasedCounts, variable: Variable, mask: Mask) -> "Scored":
        """Score the categories that the mask leaves; refuse one that has no number."""
        [attribute] = released.schema.subset([variable.name]).attributes
        possible = variable.left(released.schema, mask)
        numbers = scores_of(attribute, variable.scores, variable.bounds)
        check_scored(attribute, numbers, possible)
        check_within(attribute, numbers, variable.bounds)
        low, high = float(numbers[possible].min()), float(numbers[possible].max())
        unit = np.where(possible, (numbers - low) / (high - low or 1.0), 0.0)
        return cls(variable.spread(released.schema, unit), low, high)

    @property
    def spread(self) -> float:
        """The distance between the lowest and the highest score."""
        return self.high - self.low

    def scaled(self, unit: float) -> float:
        """Turn a number within 0..1 back into a score."""
        return self.low + self.spread * unit

    def is_share(self, mask: Mask) -> bool:
        """Tell whether all scores of these cells are 0 or 1: their mean is a share."""
        plain = (self.low, self.high) == (0, 1)
        return plain and bool(np.isin(self.units[mask], (0, 1)).all())


def mean(question: Question, variable: Variable, given: Condition) -> Quantity:
    """Estimate the mean score, of all respondents or of those who meet a condition."""
    label = f"mean of {variable.name}{within(given)}"
    scored = Scored.of(question.released, variable, given.mask)
    if not scored.spread > 0:
        return _known(question, label, scored.low)
    if given.mask.all():
        return bounded_answer(question, (label, MEAN), _overall(question, scored), scored)
    if scored.is_share(given.mask):
        return share_answer(question, label, scored.units, given)
    return ratio_answer(
        question, (label, RATIO), _ratio(question, scored, given.mask), scored, given.text
    )


def share_answer(question: Question, label: str, units: Shares, given: Condition) -> Quantity:
    """Answer with the share of those whose score is one, as if it had been asked for."""
    event = Condition(label, units == 1)
    return replace(proportion(question, event, given), label=label)


def bounded_answer(
    question: Question, asked: Asked, bounded: BoundedMean, scored: Scored, *warnings: str
) -> Quantity:
    """Answer with a mean over all respondents."""
    interval = bounded.interval(question.critical)
    numbers = float(bounded.value), bounded.errors(), interval
    return _scaled_answer(question, asked, numbers, scored, *warnings)


def ratio_answer(
    question: Question, asked: Asked, ratio: BoundedRatio, scored: Scored, whole: str
) -> Quantity:
    """Answer with a ratio of two sums, or say that its denominator may be zero."""
    interval = ratio.interval(question.critical)
    if not interval.bounded:
        return question.refuse(*asked, near_zero(whole))
    doubts = () if ratio.clear(question.critical, CLEARLY) else (DOUBT,)
    numbers = float(ratio.value), ratio.errors(), interval
    return _scaled_answer(question, asked, numbers, scored, *doubts)


def _scaled_answer(
    question: Question,
    asked: Asked,
    numbers: tuple[float, Errors, Interval],
    scored: Scored,
    *warnings: str,
) -> Quantity:
    """Turn numbers within 0..1 into scores; say so if noise took the estimate out of the bounds."""
    value, errors, interval = numbers
    standard, sampling, privacy = (scored.spread * float(error) for error in errors)
    ends = scored.scaled(float(interval.low)), scored.scaled(float(interval.high))
    shown = scored.scaled(min(max(value, 0.0), 1.0))
    label, method = asked
    if standard == 0 and ends[1] - ends[0] <= ROUNDED * scored.spread:
        method, ends = KNOWN, (shown, shown)
    words = (*boundary(value, scored), *warnings)
    return question.answer(label, method, shown, (standard, sampling, privacy), ends, *words)


def variance(question: Question, variable: Variable, given: Condition) -> Quantity:
    """Estimate the variance of the score, without the bias that the noisy mean brings in.

    With μ̂ the estimated mean, E[μ̂²] = μ² + Var(μ̂); so Var(μ̂) is added to Σa²T̂ − μ̂².  For normal
    errors the square of the mean's error adds 2Var(μ̂)² to the variance of the estimate.
    """
    label = f"variance of {variable.name}{within(given)}"
    scored = Scored.of(question.released, variable, given.mask)
    if not scored.spread > 0:
        return _known(question, label, 0.0)
    squared = Scored(scored.units, 0.0, LARGEST_VARIANCE * scored.spread**2)
    if given.mask.all():
        bounded = overall_variance(_overall(question, scored))
        wide = _overstated(bounded.correction, bounded.errors())
        return bounded_answer(question, (label, VARIANCE), bounded, squared, *wide)
    within_group = VarianceWithin.of(_ratio(question, scored, given.mask))
    interval = within_group.interval(question.critical)
    if not interval.bounded:
        return question.refuse(label, VARIANCE, near_zero(given.text))
    doubts: tuple[str, ...] = _overstated(within_group.correction, within_group.errors())
    if not within_group.average.clear(question.critical, CLEARLY):
        doubts = (DOUBT, *doubts)
    numbers = float(within_group.value), within_group.errors(), interval
    return _scaled_answer(question, (label, VARIANCE), numbers, squared, *doubts)


def _overstated(correction: Correction, errors: Errors) -> tuple[str, ...]:
    """Say so if the error is larger than needed because the mean itself is hardly known.

    The first-order variance is taken around the estimated mean, and its noise adds 4Var(μ̂)² to it
    on average.  That cannot be taken off again: it would leave too little where it is small by
    chance.
    """
    counted_twice = 2 * float(correction.sampling + correction.privacy)
    return (WIDE,) if counted_twice > NOTICED * float(errors[0]) ** 2 else ()


def overall_variance(average: BoundedMean) -> BoundedMean:
    """Return the variance, as a share of the largest possible one, from the mean of the units."""
    centre = np.clip(average.value, 0, 1)[..., np.newaxis]
    largest = np.maximum(centre, 1 - centre)[..., 0] ** 2 / LARGEST_VARIANCE
    return BoundedMean(
        average.atoms,
        (average.scores - centre) ** 2 / LARGEST_VARIANCE,
        _square_correction(average.errors(), average.value - centre[..., 0]),
        largest,
    )


@dataclass(frozen=True, slots=True, eq=False)
class VarianceWithin:
    """The variance of units within a condition, as a share of the largest possible one.

    The error of the estimate depends on the mean, and estimates of both are often correlated.  So
    the error at another variance is that at the mean which goes with it, to first order.
    """

    average: BoundedRatio
    squares: BoundedRatio
    correction: Correction

    @classmethod
    def of(cls, average: BoundedRatio) -> "VarianceWithin":
        """Start from the mean of the units."""
        centre = np.clip(average.value, 0, 1)
        correction = _square_correction(average.errors(), average.value - centre)
        return cls(average, _squares_around(average, centre), correction)

    @property
    def value(self) -> Shares:
        """The debiased variance."""
        value: Shares = self.squares.value + self.correction.value
        return value

    def errors(self) -> Errors:
        """Return the three errors."""
        return self.squares.errors(self.correction)

    def interval(self, critical: float) -> Interval:
        """Return the interval within 0..1, unbounded where the condition's share is near zero."""
        whole = self.average.sums[1]
        bounded = self.average.interval(critical).bounded
        safe, centre = np.where(bounded, whole, 1.0), np.clip(self.average.value, 0, 1)
        slope, value = self._slope(), self.value
        more = self.correction.sampling + self.correction.privacy
        form = self.average.atoms.design.total

        def gradient_at(variance: Shares) -> Shares:
            mean = np.clip(centre + slope * (variance - value), 0, 1)
            part = _squares_around(self.average, mean).part
            gradient: Shares = part - variance[..., np.newaxis] * self.average.whole
            return gradient

        def variance_at(variance: Shares) -> Shares:
            gradient = gradient_at(variance)[..., np.newaxis, :]
            spread = self.average.atoms.covariance(form, gradient)[..., 0, 0]
            at_mean: Shares = np.maximum(spread, 0) / safe**2 + more
            return at_mean

        def shape_of(variance: Shares) -> Shape:
            shape = self.average.atoms.shape(gradient_at(variance))
            assert shape is not None  # noqa: S101 - asked of laws that are not normal
            return shape

        shape_at = None if self.average.atoms.design.normal else shape_of
        interval = feldman_cousins(np.where(bounded, value, 0.0), variance_at, critical, shape_at)
        low, high = (
            np.where(bounded, end, limit)
            for end, limit in ((interval.low, -np.inf), (interval.high, np.inf))
        )
        return Interval(low, high, bounded)

    def _slope(self) -> Shares:
        """Return by how much the mean goes along with the variance."""
        gradients = np.stack([self.average.gradient, self.squares.gradient], axis=-2)
        atoms = self.average.atoms
        covariance = atoms.covariance(atoms.design.total, gradients)
        spread = covariance[..., 1, 1]
        slope: Shares = covariance[..., 0, 1] / np.where(spread > 0, spread, 1.0)
        return slope


def _squares_around(average: BoundedRatio, centre: Shares) -> BoundedRatio:
    """Return the mean square of the distance from a centre."""
    units = np.divide(
        average.part,
        average.whole,
        where=np.broadcast_to(average.whole > 0, average.part.shape),
        out=np.zeros_like(average.part),
    )
    part = (units - centre[..., np.newaxis]) ** 2 * average.whole / LARGEST_VARIANCE
    return BoundedRatio(average.atoms, part, average.whole)


def _square_correction(errors: Errors, outside: Shares) -> Correction:
    """Return what the square of the mean's error asks for."""
    total, sampling, privacy = (error**2 for error in errors)
    spread = 2 * total / LARGEST_VARIANCE**2
    return Correction((total - outside**2) / LARGEST_VARIANCE, spread * sampling, spread * privacy)


def mean_difference(
    question: Question, variable: Variable, group: Condition, versus: Condition
) -> Quantity:
    """Estimate the mean score in a group less that in another."""
    label = f"mean of {variable.name}: {group.text} − {versus.text}"
    scored = Scored.of(question.released, variable, group.mask | versus.mask)
    if not scored.spread > 0:
        return _known(question, label, 0.0)
    apart = MeansApart.of(question, scored.units, group.mask, versus.mask)
    interval = apart.interval(question.critical)
    if not interval.bounded:
        vague = versus if apart.first.clear(question.critical, 1.0) else group
        return question.refuse(label, APART, near_zero(vague.text))
    clear = all(ratio.clear(question.critical, CLEARLY) for ratio in (apart.first, apart.second))
    both_ways = Scored(scored.units, -scored.spread, scored.spread)
    standard, sampling, privacy = (error / 2 for error in apart.errors())
    moved = Interval((interval.low + 1) / 2, (interval.high + 1) / 2, interval.bounded)
    numbers = (float(apart.value) + 1) / 2, (standard, sampling, privacy), moved
    doubts = () if clear else (DOUBT,)
    return _scaled_answer(question, (label, APART), numbers, both_ways, *doubts)


@dataclass(frozen=True, slots=True, eq=False)
class MeansApart:
    """Two means within conditions, of units within 0..1, and their difference."""

    first: BoundedRatio
    second: BoundedRatio

    @classmethod
    def of(cls, question: Question, units: Shares, group: Mask, versus: Mask) -> "MeansApart":
        """Divide the table by unit and group."""
        rows = np.stack([units * group, group, units * versus, versus]).astype(np.float64)
        atoms, (part, whole, other, rest) = atoms_of(question.released, rows, question.population)
        return cls(BoundedRatio(atoms, part, whole), BoundedRatio(atoms, other, rest))

    @property
    def value(self) -> Shares:
        """The first mean less the second, each within its bounds."""
        value: Shares = np.clip(self.first.value, 0, 1) - np.clip(self.second.value, 0, 1)
        return value

    def errors(self) -> Errors:
        """Return the three errors, by the delta method."""
        design = self.first.atoms.design
        sampling, privacy = (
            np.maximum(cov[..., 0, 0] + cov[..., 1, 1] - 2 * cov[..., 0, 1], 0)
            for cov in (self._covariance(form) for form in (design.sampling, design.privacy))
        )
        return np.sqrt(sampling + privacy), np.sqrt(sampling), np.sqrt(privacy)

    def interval(self, critical: float) -> Interval:
        """Return the interval within −1..1, from those of both means."""
        covariance = self._covariance(self.first.atoms.design.total)
        product = covariance[..., 0, 0] * covariance[..., 1, 1]
        safe = np.where(product > 0, product, 1.0)
        correlation = np.clip(covariance[..., 0, 1] / np.sqrt(safe), -1, 1)
        both = self.first, self.second
        intervals = both[0].interval(critical), both[1].interval(critical)
        return difference_interval((both[0].value, both[1].value), intervals, correlation)

    def _covariance(self, form: CovarianceForm) -> Shares:
        """Return the covariance of both means, to first order."""
        gradients = [
            ratio.gradient / np.where(ratio.sums[1] > 0, ratio.sums[1], 1.0)[..., np.newaxis]
            for ratio in (self.first, self.second)
        ]
        return self.first.atoms.covariance(form, np.stack(gradients, axis=-2))


def near_zero(text: str) -> str:
    """Say why a ratio is refused."""
    return f"the denominator, the share of {text}, cannot be distinguished from zero"


def _overall(question: Question, scored: Scored) -> BoundedMean:
    atoms, [units] = atoms_of(question.released, scored.units[np.newaxis], question.population)
    return BoundedMean(atoms, units)


def _ratio(question: Question, scored: Scored, mask: Mask) -> BoundedRatio:
    rows = np.stack([scored.units * mask, mask]).astype(np.float64)
    atoms, (part, whole) = atoms_of(question.released, rows, question.population)
    return BoundedRatio(atoms, part, whole)


def within(given: Condition) -> str:
    """Say in a label whom a number is about, unless it is about everybody."""
    return "" if given.mask.all() else f" given {given.text}"


def _known(question: Question, label: str, value: float) -> Quantity:
    return question.answer(label, KNOWN, value, (0.0, 0.0, 0.0), (value, value))


def boundary(value: float, scored: Scored) -> tuple[str, ...]:
    """Say so if noise took an estimate out of its bounds, 0 and 1 before it is scaled."""
    if 0 <= value <= 1:
        return ()
    return beyond_scores(scored.scaled(value), scored.low, scored.high)
