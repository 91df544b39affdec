"""Events, that is, sets of cells: their shares, how those vary together, and their intervals."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core import estimators
from veiltab.core.intervals import Interval, feldman_cousins, widened
from veiltab.core.ratios import Entries, ErrorsAt, ratio_interval
from veiltab.core.released import Shares
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import ReleaseDesign
from veiltab.inference.conditions import Mask

LEAST_VARIANCE = 1e-300
"""Replaces a variance of zero as a divisor."""

RAISED_BY = 2.0
"""By how many people an atom is raised where its variance decides how far it is moved."""


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Two numbers made of shares, neither of them negative, whose ratio is in question.

    ``upper`` and ``lower`` are their gradients, with an entry per event.
    """

    numerator: Any
    denominator: Any
    upper: Shares
    lower: Shares


Pairing = Callable[[Shares], Pair]
"""Makes the two numbers of the shares of events."""


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
        total, sampling, privacy = (float(error) for error in self.error_parts(gradient))
        return total, sampling, privacy

    def error_parts(self, gradient: Shares) -> tuple[Any, Any, Any]:
        """Return the three errors of statistics, with one gradient for each of many releases."""
        total, sampling, privacy = (
            np.sqrt(np.maximum(np.einsum("...i,...ij,...j->...", gradient, part, gradient), 0))
            for part in (self.total, self.sampling, self.privacy)
        )
        return total, sampling, privacy

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

    def difference(self, gradient: Shares, critical: float) -> Interval:
        """Return the interval of a difference of two shares, within −1..1."""
        variance = np.einsum("i,...ij,j->...", gradient, self.total, gradient) / 4
        shape = self.shape(gradient)
        zero = np.zeros_like(variance)
        interval = feldman_cousins(
            np.asarray((1 + self.shares @ gradient) / 2),
            (variance, zero, zero),
            critical,
            None if shape is None else lambda _: shape,
        )
        return doubled(interval)

    def widened(self, gradient: Shares, critical: float) -> Any:  # noqa: ANN401 - a number, or one per release
        """Return the critical value for an interval of the statistic in both directions."""
        return widened(critical, self.shape(gradient))

    def ratio(self, pairing: Pairing, critical: float) -> Interval:
        """Return the interval of the ratio of two numbers made of the shares, within 0..∞."""
        pair = pairing(self.shares)
        xx, _, yy = _entries(pair.upper, pair.lower, self.total)
        first, second = (np.sqrt(np.maximum(part, LEAST_VARIANCE)) for part in (xx, yy))
        return ratio_interval(
            np.asarray(pair.numerator),
            np.asarray(pair.denominator),
            self.errors_at(pairing, pair),
            (first, second),
            critical,
        )

    def errors_at(self, pairing: Pairing, pair: Pair) -> ErrorsAt:  # noqa: ARG002 - for those that know more
        """Return the errors of two numbers for each ratio: here the same for all ratios."""
        entries, shape = _entries(pair.upper, pair.lower, self.total), self.shape(_apart(pair))
        return lambda _p, _q: (entries, shape)


@dataclass(frozen=True, slots=True, eq=False)
class SetEvents(Events):
    """Events of a release itself, with the unbiased shares of their ``atoms``."""

    atoms: Shares

    def errors_at(self, pairing: Pairing, pair: Pair) -> ErrorsAt:
        """Return the errors that the two numbers have if their ratio is the true one.

        They are those of the likeliest distribution with that ratio, to first order.  So small
        numbers of people do not count as certain where none happen to be seen.
        """
        upper, lower = pair.upper @ self.parts, pair.lower @ self.parts

        def errors(p: Shares, q: Shares) -> tuple[Entries, Shape | None]:
            slope = p[..., np.newaxis] * upper - q[..., np.newaxis] * lower
            moved = self._moved(slope, p * pair.numerator - q * pair.denominator)
            true = pairing(moved @ self.parts.T)
            first, second = true.upper @ self.parts, true.lower @ self.parts
            entries = (
                self._between(first, first, moved),
                self._between(first, second, moved),
                self._between(second, second, moved),
            )
            if self.design.normal:
                return entries, None
            apart = p[..., np.newaxis] * first - q[..., np.newaxis] * second
            return entries, self.design.shape(apart, moved, self.fractions)

        return errors

    def _between(self, left: Shares, right: Shares, truth: Shares) -> Shares:
        """Return the covariance of two statistics with a weight per atom, if this is the truth."""
        form = self.design.total.like(truth)
        of_truth, of_uniform, of_shift = map(_single, (form.truth, form.uniform, form.shift))
        product = left * right
        true_left, true_right = _dot(truth, left), _dot(truth, right)
        even_left, even_right = left @ self.fractions, right @ self.fractions
        covariance: Shares = (
            of_truth * (_dot(truth, product) - true_left * true_right)
            + of_uniform * (product @ self.fractions - even_left * even_right)
            + of_shift * (true_left - even_left) * (true_right - even_right)
        )
        return covariance

    def _moved(self, slope: Shares, estimate: Shares) -> Shares:
        """Return the likeliest atoms for which a statistic with such an estimate is zero.

        An atom that looks empty would never be moved; so all of them count as a little larger.
        """
        form = self.design.total.like(self.likely)
        raised = self.likely + RAISED_BY * form.truth
        truth = raised / raised.sum(-1, keepdims=True)
        mean, even = (_dot(part, slope)[..., np.newaxis] for part in (truth, self.fractions))
        pull = (
            form.truth * truth * (slope - mean)
            + form.uniform * self.fractions * (slope - even)
            + form.shift * (truth - self.fractions) * (mean - even)
        )
        distance = estimate / np.maximum(_dot(pull, slope), LEAST_VARIANCE)
        near = np.maximum(self.atoms - pull * distance[..., np.newaxis], 0)
        atoms: Shares = near / near.sum(-1, keepdims=True)
        return atoms


def estimate_events(
    counts: NDArray[np.int64], design: ReleaseDesign, masks: Sequence[Mask]
) -> SetEvents:
    """Estimate the share of each event, a set of cells; cells run along the last axis."""
    pattern = np.zeros(masks[0].size, dtype=np.uint8)
    for position, mask in enumerate(masks):
        pattern |= mask.astype(np.uint8) << np.uint8(position)
    kinds = np.unique(pattern)
    sizes = np.array([np.count_nonzero(pattern == kind) for kind in kinds], dtype=np.float64)
    summed = np.stack([counts[..., pattern == kind].sum(axis=-1) for kind in kinds], axis=-1)
    events = np.array([(kinds >> position) & 1 for position in range(len(masks))], dtype=float)
    return events_of_atoms(summed, sizes, events, design)


def events_of_atoms(
    counts: NDArray[np.int64], sizes: Shares, parts: Shares, design: ReleaseDesign
) -> SetEvents:
    """Estimate events that are made of atoms of so many cells; atoms run along the last axis."""
    atoms = design.estimate_sets(counts, sizes)
    likely, fractions = estimators.project(atoms), sizes / design.cells
    return SetEvents(
        atoms @ parts.T,
        parts @ design.privacy.of_partition(likely, fractions) @ parts.T,
        parts @ design.sampling.of_partition(likely, fractions) @ parts.T,
        parts,
        likely,
        fractions,
        design,
        atoms,
    )


def part_and_rest(shares: Shares) -> Pair:
    """Compare the first event with the rest of the second, which holds it."""
    part, whole = np.moveaxis(shares, -1, 0)
    return Pair(part, whole - part, np.array([1.0, 0.0]), np.array([-1.0, 1.0]))


def sum_and_difference(shares: Shares) -> Pair:
    """Compare w + (a − b) with w − (a − b), where the event w holds a and b."""
    first, second, whole = np.moveaxis(shares, -1, 0)
    apart = first - second
    upper, lower = np.array([1.0, -1.0, 1.0]), np.array([-1.0, 1.0, 1.0])
    return Pair(whole + apart, whole - apart, upper, lower)


def products(shares: Shares) -> Pair:
    """Compare x₀x₃ with x₁x₂, as risk ratios and odds ratios do."""
    x0, x1, x2, x3 = np.moveaxis(shares, -1, 0)
    zero = np.zeros_like(x0)
    upper = np.stack([x3, zero, zero, x0], axis=-1)
    lower = np.stack([zero, x2, x1, zero], axis=-1)
    return Pair(_product(x0, x3), _product(x1, x2), upper, lower)


def risks_apart(shares: Shares) -> Pair:
    """Compare bd + (ad − bc) with bd − (ad − bc), for a difference a/b − c/d."""
    a, b, c, d = np.moveaxis(shares, -1, 0)
    whole, apart, zero = _product(b, d), a * d - b * c, np.zeros_like(a)
    of_whole = np.stack([zero, d, zero, b], axis=-1)
    of_apart = np.stack([d, -c, -b, a], axis=-1)
    return Pair(whole + apart, whole - apart, of_whole + of_apart, of_whole - of_apart)


def doubled(shares: Interval) -> Interval:
    """Turn the interval of a share s within 0..1 into that of 2s − 1, within −1..1."""
    return Interval(2 * shares.low - 1, 2 * shares.high - 1, shares.bounded)


def _product(first: Shares, second: Shares) -> Shares:
    """Multiply estimates of two numbers that are not negative; two negative ones speak for zero."""
    product: Shares = np.where((first < 0) & (second < 0), -1, 1) * first * second
    return product


def _apart(pair: Pair) -> Shares:
    """Return the gradient of what is zero if the ratio is the estimated one."""
    first, second = (
        np.maximum(number, 0)[..., np.newaxis] for number in (pair.numerator, pair.denominator)
    )
    empty = (first == 0) & (second == 0)
    apart: Shares = np.where(empty, 1.0, second) * pair.upper - first * pair.lower
    return apart


def _entries(upper: Shares, lower: Shares, covariance: Shares) -> Entries:
    """Return the covariance of two statistics: V_xx, V_xy and V_yy."""
    xx, xy, yy = (
        np.asarray(np.einsum("...i,...ij,...j->...", left, covariance, right))
        for left, right in ((upper, upper), (upper, lower), (lower, lower))
    )
    return xx, xy, yy


def _dot(left: Shares, right: Shares) -> Shares:
    """Return the inner products along the last axis."""
    inner: Shares = np.einsum("...i,...i->...", left, right)
    return inner


def _single(value: Any) -> Any:  # noqa: ANN401 - a number, or an array with one per release
    return value[..., 0] if isinstance(value, np.ndarray) else value
