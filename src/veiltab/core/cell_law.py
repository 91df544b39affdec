"""The law of a single cell's released count, by its cumulant generating function.

A cell with the share θ gets y of all M released rows.  Its estimate is at least θ exactly if

    L = y − κM,    with κ = (1 − p)/N + p(ρθ + (1 − ρ)/N),

is at least its mean under θ; ρ is the estimator's weight (:mod:`veiltab.core.coin_design`), and
zero by rank.  L is a sum of independent parts: rows that come from the cell, each of which stays
with probability a = p + (1 − p)/N, rows of other cells, which come in with b = (1 − p)/N, and the
noise of a published copy.  So its cumulant generating function, log E[exp(sL)], is a sum of closed
forms, whatever the mechanism.

A sample of m of n respondents is not a sum of independent parts.  It is n coins, given that m of
them fell on one side, and its function is taken at the saddlepoint of that condition; where
everybody is sampled, it is exact without.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Geometric, Law

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

Cumulants: TypeAlias = "tuple[Array, Array, Array]"
"""A cumulant generating function at some arguments, with its first and second derivatives."""


@dataclass(frozen=True, kw_only=True)
class CellLaw(ABC):
    """Everything about a release that the law of one cell's count depends on, except its share.

    ``surplus`` is how many of the released rows were not known in advance.  ``weight`` is ρ.
    ``noise`` is the law of each of the two numbers whose difference is published noise; each of the
    ``cells`` has the sum of ``noise_terms`` such differences.
    """

    cells: int
    surplus: int
    people: float
    keep: float
    finite: bool
    weight: float = 0.0
    noise: Geometric | None = None
    noise_terms: int = 0

    @property
    def stays(self) -> float:
        """The probability a with which a row of the cell is released in it."""
        return self.keep + self.comes

    @property
    def comes(self) -> float:
        """The probability b with which a row of another cell is released in it."""
        return (1 - self.keep) / self.cells

    def kappa(self, share: "Array") -> "Array":
        """Return the share of all rows that is taken off the cell's, for each true share."""
        return self.comes + self.keep * (self.weight * share + (1 - self.weight) / self.cells)

    def statistic(self, share: "Array", count: "Array") -> "Array":
        """Return L for a count, less what is known in advance of κM."""
        return count - self.kappa(share) * self.surplus

    def mean(self, share: "Array") -> "Array":
        """Return the count that a cell with this share has on average, given all rows."""
        expected = self.cumulants(share, np.zeros_like(share))[1]
        return expected + self.kappa(share) * self.surplus

    @abstractmethod
    def _rows(self, share: "Array", s: "Array", kappa: "Array") -> Cumulants:
        """Return the part of the rows, without published noise."""

    def cumulants(self, share: "Array", s: "Array") -> Cumulants:
        """Return log E[exp(sL)] and its derivatives; outside of its domain they are not finite."""
        kappa = self.kappa(share)
        with np.errstate(all="ignore"):  # outside of the domain
            parts = [self._rows(share, s, kappa)]
            if self.noise is not None:
                inside = _two_sided(self.noise, _linear(1 - kappa, s))
                outside = _two_sided(self.noise, _linear(-kappa, s))
                parts.append(_times(inside, self.noise_terms))
                parts.append(_times(outside, self.noise_terms * (self.cells - 1)))
            return _sum(parts)


@dataclass(frozen=True, kw_only=True)
class RankLaw(CellLaw):
    """The law of a cell in a sample of ``sample_size`` rows."""

    sample_size: int

    def _rows(self, share: "Array", s: "Array", kappa: "Array") -> Cumulants:  # noqa: ARG002 - m is known
        if not self.finite:
            chance = share * self.stays + (1 - share) * self.comes
            return _times(_row(chance, s), self.sample_size)
        stay, come = _row(self.stays, s), _row(self.comes, s)
        here, elsewhere = self.people * share, self.people * (1 - share)
        if self.sample_size >= self.people:
            return _sum([_times(stay, here), _times(come, elsewhere)])
        return _sampled((stay, come), (here, elsewhere), self.sample_size)


@dataclass(frozen=True, kw_only=True)
class CoinLaw(CellLaw):
    """The law of a cell whose people take part by a coin, beside decoys.

    Each of the ``cells`` has the decoys of so many draws, ``decoy_terms``.
    """

    coin: float
    decoys: Law
    decoy_terms: int

    def _rows(self, share: "Array", s: "Array", kappa: "Array") -> Cumulants:
        taken_off = _linear(-kappa, s)
        stay, come = (_sum([_row(chance, s), taken_off]) for chance in (self.stays, self.comes))
        if self.finite:
            coins = [
                _times(_compose(self._coin, stay), self.people * share),
                _times(_compose(self._coin, come), self.people * (1 - share)),
            ]
        else:
            chance = share * self.stays + (1 - share) * self.comes
            row = _sum([_row(chance, s), taken_off])
            coins = [_times(_compose(self._coin, row), self.people)]
        decoys = [
            _times(_decoys(self.decoys, stay), self.decoy_terms),
            _times(_decoys(self.decoys, come), self.decoy_terms * (self.cells - 1)),
        ]
        return _sum(coins + decoys)

    def _coin(self, t: "Array") -> Cumulants:
        return _row(self.coin, t)


def _row(chance: "Array | float", s: "Array") -> Cumulants:
    """Return log(1 + a(eˢ − 1)), the function of a number that is 1 with this chance, or 0."""
    if isinstance(chance, float) and chance == 1:
        return s, np.ones_like(s), np.zeros_like(s)
    value = np.log1p(chance * np.expm1(s))
    tilted = chance * np.exp(s - value)
    return value, tilted, tilted * (1 - tilted)


def _linear(slope: "Array", s: "Array") -> Cumulants:
    return slope * s, slope + 0 * s, 0 * s


def _decoys(law: Law, inner: Cumulants) -> Cumulants:
    """Return the function of a number of rows by this law, each with the inner function."""
    return _compose(
        lambda t: _geometric(law, t) if isinstance(law, Geometric) else _table(law.weights, t),
        inner,
    )


def _geometric(law: Geometric, t: "Array") -> Cumulants:
    """Return log((1 − q)/(1 − qeᵗ)), which ends where qeᵗ reaches one."""
    ratio, left = float(law.ratio), float(1 - law.ratio)
    rest = (left - ratio * np.expm1(t)) / left
    mean = np.where(rest > 0, ratio * np.exp(t) / (left * rest), np.nan)
    return -np.log(rest), mean, mean * (1 + mean)


def _two_sided(law: Geometric, inner: Cumulants) -> Cumulants:
    """Return the function of the difference of two geometric numbers."""

    def both(t: "Array") -> Cumulants:
        more, fewer = _geometric(law, t), _geometric(law, -t)
        return more[0] + fewer[0], more[1] - fewer[1], more[2] + fewer[2]

    return _compose(both, inner)


def _table(weights: tuple[int, ...], t: "Array") -> Cumulants:
    """Return the function of a law by its weights."""
    numbers = np.arange(len(weights))
    chances = np.array([float(weight) for weight in weights]) / DRAW_RANGE
    top = np.maximum(t, 0) * numbers[-1]
    terms = np.exp(np.multiply.outer(t, numbers) - top[..., np.newaxis])
    moments = terms @ np.stack([chances, chances * numbers, chances * numbers**2], axis=-1)
    whole, first, second = (moments[..., power] for power in range(3))
    mean = first / whole
    return np.log(whole) + top, mean, second / whole - mean**2


def _sampled(
    rows: tuple[Cumulants, Cumulants], people: "tuple[Array, Array]", size: int
) -> Cumulants:
    """Return the function of rows of a sample of so many of two groups of people.

    With odds w a person of group i counts as eᵏ with k the row's function, so that the function of
    all is Σ nᵢ log(1 + w exp kᵢ); w is such that m people are expected, a quadratic equation.
    """
    (here, elsewhere), (stay, come) = people, rows
    total = here + elsewhere
    a, b = np.exp(stay[0]), np.exp(come[0])
    square, middle = a * b * (total - size), here * a + elsewhere * b - size * (a + b)
    root = np.sqrt(middle**2 + 4 * square * size)
    odds = np.where(middle > 0, 2 * size / (middle + root), (root - middle) / (2 * square))
    start = size / (total - size)
    zero = np.zeros_like(odds)
    value, slope, curve, shared, spread = -size * np.log(odds / start), zero, zero, zero, zero
    for group, base, (_, first, second) in ((here, a, stay), (elsewhere, b, come)):
        taken = odds * base / (1 + odds * base)
        varied = group * taken * (1 - taken)
        value = value + group * np.log((1 + odds * base) / (1 + start))
        slope = slope + group * taken * first
        curve = curve + group * taken * second + varied * first**2
        shared, spread = shared + varied * first, spread + varied
    return value, slope, curve - shared**2 / spread


def _compose(outer: Callable[["Array"], Cumulants], inner: Cumulants) -> Cumulants:
    """Return a function of a function, with its derivatives."""
    value, first, second = outer(inner[0])
    return value, first * inner[1], second * inner[1] ** 2 + first * inner[2]


def _times(cumulants: Cumulants, factor: "Array | float") -> Cumulants:
    value, first, second = cumulants
    return value * factor, first * factor, second * factor


def _sum(parts: list[Cumulants]) -> Cumulants:
    value, first, second = parts[0]
    for part in parts[1:]:
        value, first, second = value + part[0], first + part[1], second + part[2]
    return value, first, second
