"""(ε, δ) by shuffling: what a secret random order is worth, beyond Theorem 1.

The release is a shuffled set of N-ary randomised responses, so the privacy blanket of Balle,
Bell, Gascón and Nissim (2019) applies.  Of the other m − 1 records B ~ Bin(m − 1, N/q) are
replaced by uniform cells; an adversary who knows everything about the kept ones is left with the
counts of B + 1 = T records.  With h₀, h₁ the counts of the two cells that tell neighbours apart,
relative to T uniform records, P ∝ T + (γ − 1)h₀ and Q ∝ T + (γ − 1)h₁.

Everything here is an upper bound of δ: ranges are replaced by their worse end, tails are added,
and the result is rounded up.  Derivation: ``docs/explanation/shuffling.md``.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincc, gammaln

from veiltab.core.roots import last_root

SLACK = 0.02
"""About the share of δ that is given away by summing whole ranges of B and K at once."""

RESERVE = 1.04
"""δ is multiplied by this before it is promised: far more than any error of floating point."""

LEVEL_ROUNDING = 1e-14
"""The level in :meth:`Blanket._given_blanket` is lowered by this share: more than it is rounded."""

MOST_EPSILON = 15.0
"""Up to here e^ε leaves enough digits; larger ones arise only for tiny samples."""

LARGEST_SCALE = 0.5
LEAST_DELTA = 1e-320
COARSE_SLACK = 0.3
COARSE_TOLERANCE = 1e-2
TOLERANCE = 1e-5
LARGEST_LOG_ODDS = 44.0
"""ln 2⁶⁴: beyond it a record is practically never perturbed."""

_SERIES_FROM = 16.0
_SMALLEST = 1e-300
_LEAST_EXPONENT = 1074.0

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Blanket:
    """The numbers of a shuffled release: m records of N cells through a γ-diagonal channel."""

    sample_size: int
    domain_size: int
    gamma: float
    slack: float = SLACK

    @property
    def uniform_share(self) -> float:
        """The chance N/q that a record is replaced by a uniform cell."""
        return self.domain_size / (self.gamma + self.domain_size - 1)

    def delta(self, epsilon: float, scale: float) -> float:
        """Return an upper bound of δ at ε; ``scale`` is the δ at which it should be close.

        δ_B, the divergence given B, never grows with B, since anybody could add more uniform
        records afterwards.  So a range of B counts as its smallest value.
        """
        if epsilon > MOST_EPSILON:  # too large for floats: Theorem 1, or a smaller ε
            if self.gamma <= math.exp(epsilon):
                return 0.0
            epsilon = MOST_EPSILON
        reach = 2 * math.log(1 / scale)
        blankets = self._blanket_sizes(reach)
        others, share = np.array(self.sample_size - 1, dtype=np.float64), self.uniform_share
        # A small B is rare and reveals much, so its chance must keep its digits far below 1e-16.
        weights = between(np.append(blankets, blankets[-1:] + others + 1), others, share)
        below = float(lower_tail(blankets[:1] - 1, others, share)[0])
        total = below + float((weights * self._given_blanket(blankets, epsilon, reach)).sum())
        return min(1.0, total * RESERVE)

    def _blanket_sizes(self, reach: float) -> Numbers:
        """Return the least B of each range; ranges are narrow enough to lose about the slack."""
        others, share = self.sample_size - 1, self.uniform_share
        mean, spread = others * share, math.sqrt(others * share * (1 - share))
        width = math.sqrt(reach + 10)
        least = max(0, math.floor(mean - width * spread - reach))
        most = min(others, math.ceil(mean + width * spread))
        sizes = [least]
        while sizes[-1] < most:
            sizes.append(sizes[-1] + max(1, int(2 * self.slack * (sizes[-1] + 1) / reach)))
        return np.array(sizes, dtype=np.float64)

    def _given_blanket(self, blankets: Numbers, epsilon: float, reach: float) -> Numbers:
        """Return an upper bound of δ_B for each B.

        Given K = h₀ + h₁, h₀ is Bin(K, ½), and the divergence is E[(h₀ − level)⁺] up to a factor.
        """
        records = blankets + 1
        first, last, weights, tails = self._pair_ranges(blankets, epsilon, reach)
        lean = math.tanh(epsilon / 2)
        # For K in first..last: h₀ − K/2 is a martingale in K, so its convex expectations are at
        # most those at `last`; and the drift (lean/2)K is at least that at `first`.
        column = records[:, np.newaxis]
        level = last / 2 + lean * (first / 2 + column / (self.gamma - 1))
        level = level * (1 - LEVEL_ROUNDING)
        excess, likely = np.zeros_like(weights), weights > 0  # rows have ranges of no width, too
        excess[likely] = weights[likely] * fair_excess(level[likely], last[likely])
        factor = (self.gamma - 1) * (1 + math.exp(epsilon)) * self.uniform_share / records
        bound: Numbers = np.minimum(1.0, factor * excess.sum(axis=1) + tails)
        return bound

    def _pair_ranges(
        self, blankets: Numbers, epsilon: float, reach: float
    ) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        """Return ranges of K, their probabilities, and a bound for K outside all of them."""
        records = blankets + 1
        pair = 2 / self.domain_size
        if self.domain_size == 2:  # noqa: PLR2004 - there are no other cells, so K is known
            whole = records[:, np.newaxis]
            return whole, whole, np.ones_like(whole), np.zeros_like(records)
        mean = records * pair
        spread = math.sqrt(reach + 10) * np.sqrt(mean * (1 - pair))
        least = np.maximum(0.0, np.floor(mean - spread - reach / 3))
        most = np.minimum(records, np.ceil(mean + spread + reach))
        step = self._pair_step(np.maximum(mean, 1.0), epsilon, reach)
        count = int(np.ceil((most - least + 1) / step).max())
        edges = least[:, np.newaxis] + step[:, np.newaxis] * np.arange(count + 1)
        edges = np.minimum(edges, most[:, np.newaxis] + 1)
        weights = between(edges, records[:, np.newaxis], pair)
        first, last = edges[:, :-1], np.maximum(edges[:, 1:] - 1, edges[:, :-1])
        # K is the number of uniform records in the pair, plus at most one for the target.
        high = np.where(most < records, upper_tail(most, blankets, pair), 0.0)
        return first, last, weights, lower_tail(least - 1, blankets, pair) + high

    def _pair_step(self, mean: Numbers, epsilon: float, reach: float) -> Numbers:
        """Return how many values of K a range may have for a loss of about the slack."""
        drift = np.sqrt(mean) / (math.sqrt(reach) * math.tanh(epsilon / 2))
        inflation = 2 * mean / reach
        return np.maximum(1.0, np.floor(self.slack * np.minimum(drift, inflation)))


@lru_cache(maxsize=256)
def sampled_delta(population_size: int, blanket: Blanket, epsilon: float, scale: float) -> float:
    """Return an upper bound of the release's δ at ε, with the sampling counted in.

    Sampling m of n without replacement (Balle, Barthe, Gaboardi 2018, replace-one neighbours)
    turns (ε_m, δ_m) into ε = ln(1 + (m/n)(e^{ε_m} − 1)), δ = (m/n)δ_m.
    """
    share = blanket.sample_size / population_size
    inner = math.log1p(math.expm1(epsilon) / share)
    return share * blanket.delta(inner, min(scale / share, LARGEST_SCALE))


def largest_gamma(
    population_size: int, sample_size: int, domain_size: int, epsilon: float, delta: float
) -> float | None:
    """Return a γ that keeps (ε, δ), the largest to five digits; None if none above 1 is found.

    ln δ is a smooth, growing function of ln(γ − 1), so a bracketed secant takes a few steps.  The
    first ones use a coarser bound, which is cheaper and errs on the same side.
    """
    rough = rough_gamma(population_size, sample_size, domain_size, epsilon, delta)
    if rough is None:
        return None

    def excess(log_odds: float) -> float:
        blanket = Blanket(sample_size, domain_size, 1 + math.exp(log_odds))
        return _excess(sampled_delta(population_size, blanket, epsilon, delta), delta)

    fine = last_root(excess, math.log(rough - 1), LARGEST_LOG_ODDS, 0.03, TOLERANCE)
    return rough if fine is None else 1 + math.exp(fine)


def rough_gamma(
    population_size: int, sample_size: int, domain_size: int, epsilon: float, delta: float
) -> float | None:
    """Return a γ that keeps (ε, δ), a few percent below the largest, in a fraction of the time."""

    def excess(log_odds: float) -> float:
        blanket = Blanket(sample_size, domain_size, 1 + math.exp(log_odds), COARSE_SLACK)
        return _excess(sampled_delta(population_size, blanket, epsilon, delta), delta)

    # Theorem 1's γ keeps ε with no δ at all, so the search starts where the promise surely holds.
    low = math.log(population_size * math.expm1(epsilon) / sample_size)
    root = last_root(excess, low, LARGEST_LOG_ODDS, 1.0, COARSE_TOLERANCE)
    return None if root is None else 1 + math.exp(root)


def roughly_keeps(
    population_size: int,
    sample_size: int,
    domain_size: int,
    epsilon: float,
    delta: float,
    *,
    gamma: float,
) -> bool:
    """Tell whether γ keeps (ε, δ) by the coarse bound of :func:`rough_gamma`, at a glance."""
    if gamma > 1 + math.exp(LARGEST_LOG_ODDS):
        return False
    blanket = Blanket(sample_size, domain_size, gamma, COARSE_SLACK)
    return sampled_delta(population_size, blanket, epsilon, delta) <= delta


def _excess(bound: float, delta: float) -> float:
    return math.log(max(bound, LEAST_DELTA)) - math.log(delta)


def upper_tail(least: Numbers, trials: Numbers, chance: float) -> Numbers:
    """Return P(X ≥ least) for X ~ Bin(trials, chance)."""
    inside = np.clip(least, 1.0, np.maximum(trials, 1.0))
    tail = betainc(inside, np.maximum(trials - least + 1, _SMALLEST), chance)
    return np.where(least <= 0, 1.0, np.where(least > trials, 0.0, tail))


def lower_tail(most: Numbers, trials: Numbers, chance: float) -> Numbers:
    """Return P(X ≤ most) for X ~ Bin(trials, chance).

    Never from 1 − chance: it is rounded by up to 10⁻¹⁶, in 10¹⁶ trials a whole success.
    """
    inside = np.maximum(most + 1, 1.0)
    tail = betaincc(inside, np.maximum(trials - most, _SMALLEST), chance)
    return np.where(most < 0, 0.0, np.where(most >= trials, 1.0, tail))


def between(edges: Numbers, trials: Numbers, chance: float) -> Numbers:
    """Return P(edge ≤ X < next edge) along the last axis.

    Each edge's tail is taken on the side of the mean where it is small, so that the differences
    keep their digits.
    """
    low = edges <= trials * chance
    at = np.clip(edges, _SMALLEST, np.maximum(trials, 1.0))
    rest = np.maximum(trials - edges + 1, _SMALLEST)
    low, at, rest = np.broadcast_arrays(low, at, rest)
    new = np.ones(low.shape, dtype=bool)  # the last edge may stand there several times
    new[..., 1:] = edges[..., 1:] != edges[..., :-1]
    left, right = low & new, ~low & new
    tail = np.zeros(low.shape)
    tail[left] = betaincc(at[left], rest[left], chance)
    tail[right] = betainc(at[right], rest[right], chance)
    tail = np.where((edges <= 0) | (edges > trials), 0.0, tail)
    first, last = tail[..., :-1], tail[..., 1:]
    inside = np.where(
        low[..., 1:], last - first, np.where(low[..., :-1], 1 - first - last, first - last)
    )
    return np.where(new[..., 1:], np.maximum(inside, 0.0), 0.0)


def fair_excess(level: Numbers, tosses: Numbers) -> Numbers:
    """Return E[(X − level)⁺] for X ~ Bin(tosses, ½) and a level of at least tosses/2.

    With h the least integer above the level, Σ_{x≥h} (x − tosses/2) P(x) = (h/2) P(h), so that
    nothing is the small difference of two large sums.
    """
    least = np.floor(level) + 1
    mean_part = least / 2 * fair_probability(least, tosses)
    excess = mean_part - (level - tosses / 2) * upper_tail(least, tosses, 0.5)
    return np.where(least > tosses, 0.0, np.maximum(excess, 0.0))


def fair_probability(heads: Numbers, tosses: Numbers) -> Numbers:
    """Return P(X = heads) for X ~ Bin(tosses, ½), by Loader's saddle point expansion."""
    trials = np.maximum(tosses, 2.0)
    inner = np.clip(heads, 1.0, trials - 1)
    rest = trials - inner
    exponent = _stirling_error(trials) - _stirling_error(inner) - _stirling_error(rest)
    exponent -= _deviance(inner, trials / 2) + _deviance(rest, trials / 2)
    chance = np.sqrt(trials / (2 * math.pi * inner * rest)) * np.exp(exponent)
    end = (heads == 0) | (heads == tosses)
    edge = np.where(end, np.exp2(-np.minimum(tosses, _LEAST_EXPONENT)), 0.0)
    return np.where((heads > 0) & (heads < tosses), chance, edge)


def _stirling_error(count: Numbers) -> Numbers:
    """Return ln(x!) less Stirling's formula."""
    large = np.maximum(count, _SERIES_FROM)
    squared = large**2
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * squared)) / squared) / squared) / large
    small = np.clip(count, 1.0, _SERIES_FROM)
    stirling = (small + 0.5) * np.log(small) - small + 0.5 * math.log(2 * math.pi)
    return np.where(count < _SERIES_FROM, gammaln(small + 1) - stirling, series)


def _deviance(count: Numbers, mean: Numbers) -> Numbers:
    """Return x ln(x/µ) + µ − x, with an error far below its own size where it matters."""
    share = (count - mean) / mean
    deviance: Numbers = mean * ((1 + share) * np.log1p(share) - share)
    return deviance
