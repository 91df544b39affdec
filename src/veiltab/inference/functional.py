"""Linear statistics of a table, and smooth ones by their gradients: the base of most analyses.

Every statistic here is, to first order, gradient·T̂ with T̂ the unbiased estimate, whose covariance
is known for every mechanism (:mod:`veiltab.core.uncertainty`).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import Population
from veiltab.errors import ParameterError
from veiltab.inference.atoms import Atoms, atoms_of
from veiltab.inference.quantities import DELTA, KNOWN, LINEAR, Quantity, Question
from veiltab.inference.scores import check_magnitude

Statistic = Callable[[Shares], float]
Gradient = Callable[[Shares], ArrayLike]

STEP = 1e-6
"""By how much a share is moved for a numerical derivative."""

MOST_DIFFERENCES = 20_000
"""For more cells a statistic needs derivatives of its own: each difference costs two calls."""

NEARLY_LINEAR = 0.1
"""A statistic bends if a step to the interval's end is off by this part of the half-width."""

SMALL_PART, GRADIENT_TOLERANCE = 1e-3, 0.01
"""A gradient is checked by a step of this part of the standard error, and to this accuracy."""

ROUNDING = 1e-9
"""An error below this part of the largest derivative is a rounded zero."""

BENDS = (
    "the statistic bends within its interval, which was widened to where the statistic goes: the"
    " delta method is rough here"
)


@dataclass(frozen=True, slots=True, eq=False)
class Linearised:
    """A few statistics of a release, with the covariance of their errors, by cause.

    ``gradients`` has a row per statistic and a column per cell of the release.  Cells in which all
    statistics have the same derivatives are taken together, as ``atoms``, with the derivatives in
    ``columns``.
    """

    released: ReleasedCounts
    gradients: Shares
    population: Population
    sampling: Shares
    privacy: Shares
    atoms: Atoms
    columns: Shares

    @classmethod
    def of(
        cls, released: ReleasedCounts, gradients: Shares, population: Population
    ) -> "Linearised":
        """Compute both covariance matrices at the plausible distribution."""
        atoms, columns = atoms_of(released, gradients, population)
        sampling, privacy = (
            atoms.covariance(form, columns)
            for form in (atoms.design.sampling, atoms.design.privacy)
        )
        return cls(released, gradients, population, sampling, privacy, atoms, columns)

    @property
    def total(self) -> Shares:
        """The covariance: the sum of both parts."""
        return self.sampling + self.privacy

    def errors(self, combination: ArrayLike) -> tuple[float, float, float]:
        """Return standard, sampling and privacy error of a combination of the statistics."""
        weights = np.asarray(combination, dtype=np.float64)
        sampling, privacy = (
            max(float(weights @ part @ weights), 0.0) for part in (self.sampling, self.privacy)
        )
        return (sampling + privacy) ** 0.5, sampling**0.5, privacy**0.5

    def shape(self, combination: ArrayLike) -> Shape | None:
        """Return the shape of the error of a combination; None if it is taken as normal."""
        return self.atoms.shape(np.asarray(combination, dtype=np.float64) @ self.columns)

    def margins(self, combination: ArrayLike, critical: float) -> tuple[float, float]:
        """Return how far the interval of a combination reaches down and up."""
        error, shape = self.errors(combination)[0], self.shape(combination)
        if shape is None or not error > 0:
            return critical * error, critical * error
        below, above = shape.deviation(critical), -shape.deviation(-critical)
        return float(below) * error, float(above) * error


def linear(question: Question, weights: ArrayLike, label: str) -> Quantity:
    """Estimate a weighted sum of shares."""
    flat = per_cell(weights, question.released, "weights")
    if not np.ptp(flat) > 0:  # the shares sum to one
        value = float(flat[0])
        return question.answer(label, KNOWN, value, (0.0, 0.0, 0.0), (value, value))
    statistics = Linearised.of(question.released, flat[np.newaxis], question.population)
    value = float(statistics.columns[0] @ statistics.atoms.shares)
    below, above = statistics.margins([1.0], question.critical)
    return question.answer(
        label, LINEAR, value, statistics.errors([1.0]), (value - below, value + above)
    )


def functional(
    question: Question, statistic: Statistic, gradient: Gradient | None, label: str
) -> Quantity:
    """Estimate a smooth statistic by the delta method, at the unbiased shares."""
    released = question.released
    _check_callable(statistic, "statistic")
    if gradient is not None:
        _check_callable(gradient, "gradient")
    shares = released.unbiased.reshape(released.schema.sizes)
    value = _value(statistic, shares)
    if not np.isfinite(value):
        why = f"the statistic of the unbiased shares is {value}"
        return question.refuse(label, DELTA, why)
    with np.errstate(all="ignore"):
        slopes = _differences(statistic, shares) if gradient is None else gradient(shares.copy())
    flat = per_cell(slopes, released, "derivatives", finite=False)
    if not np.isfinite(flat).all():
        return question.refuse(label, DELTA, "it has no finite derivatives at the unbiased shares")
    statistics = Linearised.of(released, flat[np.newaxis], question.population)
    errors = statistics.errors([1.0])
    if errors[0] <= ROUNDING * float(np.abs(flat).max(initial=0.0)):
        why = "its derivatives vanish at the unbiased shares, so that the delta method says nothing"
        return question.refuse(label, DELTA, why)
    if gradient is not None:
        _check_gradient(question, statistic, flat, errors[0])
    below, above = statistics.margins([1.0], question.critical)
    ends = _followed(question, statistic, flat, (value - below, value, value + above))
    if ends is None:
        why = "the statistic is not finite throughout its interval"
        return question.refuse(label, DELTA, why)
    warnings = () if ends == (value - below, value + above) else (BENDS,)
    return question.answer(label, DELTA, value, errors, ends, *warnings)


def _followed(
    question: Question, statistic: Statistic, flat: Shares, plain: tuple[float, float, float]
) -> tuple[float, float] | None:
    """Follow the statistic to both ends; widen the interval if it goes farther than a line.

    The shares are moved in the direction in which the statistic errs.  None stands for a statistic
    that is not finite there.
    """
    low, value, high = plain
    direction, sizes = _direction(question, flat), question.released.schema.sizes
    step = direction / float(flat @ direction)  # moves the statistic by one, to first order
    reached = [
        _value(statistic, (question.released.unbiased + move * step).reshape(sizes))
        for move in (low - value, high - value)
    ]
    if not np.isfinite(reached).all():
        return None
    off = max(abs(reached[0] - low), abs(reached[1] - high))
    if off <= NEARLY_LINEAR * (high - low) / 2:
        return low, high
    return min(low, *reached), max(high, *reached)


def _direction(question: Question, flat: Shares) -> Shares:
    """Return the covariance of the statistic with each share."""
    likely = question.released.plausible
    form = question.design.total.like(likely)
    apart = flat @ (likely - 1 / flat.size)
    direction: Shares = (
        form.truth * likely * (flat - flat @ likely)
        + form.uniform / flat.size * (flat - flat.mean())
        + form.shift * apart * (likely - 1 / flat.size)
    )
    return direction


def _check_callable(function: object, what: str) -> None:
    if not callable(function):
        raise ParameterError(
            f"the {what} is a {type(function).__name__}, no function of the shares",
            hint="give a function of an array that has an axis for each attribute",
        )


def _check_gradient(question: Question, statistic: Statistic, flat: Shares, error: float) -> None:
    """Refuse derivatives that the statistic does not have, where it errs most."""
    direction, sizes = _direction(question, flat), question.released.schema.sizes
    step = SMALL_PART * error * direction / float(flat @ direction)
    up, down = (
        _value(statistic, (question.released.unbiased + move).reshape(sizes))
        for move in (step, -step)
    )
    slope = (up - down) / (2 * SMALL_PART * error)  # one, if the derivatives are right
    if abs(slope - 1) > GRADIENT_TOLERANCE:
        raise ParameterError(
            f"the gradient is not that of the statistic, which changes {slope:.4g} times as fast",
            hint="correct it, or leave it out: it is then found by differences",
        )


def _value(statistic: Statistic, shares: Shares) -> float:
    try:
        with np.errstate(all="ignore"):
            value = statistic(shares.copy())
    except (ArithmeticError, ValueError) as error:
        raise ParameterError(
            f"the statistic cannot be computed: {error}",
            hint="unbiased shares can be zero or negative: ask a marginal with fewer cells, or let"
            " the function return NaN there",
        ) from error
    try:
        return float(value)
    except (TypeError, ValueError) as error:
        raise ParameterError(
            f"the statistic is a {type(value).__name__}, not a number",
            hint="return one number for the whole array of shares",
        ) from error


def _differences(statistic: Statistic, shares: Shares) -> Shares:
    """Return the derivatives of a statistic by central differences."""
    if shares.size > MOST_DIFFERENCES:
        raise ParameterError(
            f"the derivatives of a statistic of {shares.size:,} cells would take too long by"
            " differences",
            hint="give its gradient, or ask a marginal of the estimate",
        )
    slopes = np.empty(shares.size)
    for cell in range(shares.size):
        ends = []
        for step in (STEP, -STEP):
            moved = shares.copy()
            moved.reshape(-1)[cell] += step
            ends.append(_value(statistic, moved))
        slopes[cell] = (ends[0] - ends[1]) / (2 * STEP)
    return slopes


def per_cell(
    numbers: ArrayLike, released: ReleasedCounts, what: str, *, finite: bool = True
) -> Shares:
    """Return one number per cell, in the order of the cells; a finite one unless said otherwise."""
    try:
        array = np.array(math.nan) if np.iscomplexobj(numbers) else np.asarray(numbers, np.float64)
    except (TypeError, ValueError):
        array = np.array(math.nan)  # lists of different lengths have no shape
    sizes, cells = released.schema.sizes, released.schema.domain_size
    if array.shape not in (sizes, (cells,)) or (finite and not np.isfinite(array).all()):
        raise ParameterError(
            f"the {what} are not one finite number for each cell, but of shape {array.shape}",
            hint=f"give an array of shape {sizes}, or of {cells:,} numbers in the order of table()",
        )
    if finite:
        check_magnitude(array, f"the {what}")
    return array.reshape(-1)
