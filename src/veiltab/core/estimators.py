"""Three ways to estimate the distribution behind a release; all are post-processing.

The unbiased estimate is the paper's; it may be negative.  Its projection is the nearest proper
distribution.  The most likely distribution maximises the likelihood of the released counts, in
closed form (arXiv 2601.08603; derived in ``docs/explanation/estimates.md``).

Cells run along the last axis, so that many releases are estimated at once; an object array of
Fractions is estimated exactly.
"""

from typing import TYPE_CHECKING

import numpy as np

from veiltab.core.channel import GammaDiagonal, number_like
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.core.channel import Numbers


def unbiased(counts: "Numbers", channel: GammaDiagonal) -> "Numbers":
    """Return (s/m − (1 − p)/N)/p for released counts s: right on average, sometimes negative."""
    return channel.invert(released_shares(counts, channel))


def project(values: "Numbers") -> "Numbers":
    """Return the nearest point (in ℓ₂) of the probability simplex, by sorting.

    It is max(x − θ, 0) with the one θ that makes the sum one; the k largest values stay above
    zero, where k is the last with x₍ₖ₎ > (x₍₁₎ + … + x₍ₖ₎ − 1)/k.
    """
    descending = _descending(values)
    excess = descending.cumsum(axis=-1) - 1
    ranks = np.arange(1, values.shape[-1] + 1)
    positive = (descending * ranks > excess).sum(axis=-1, keepdims=True)
    threshold = np.take_along_axis(excess, positive - 1, axis=-1) / positive
    projected: Numbers = np.maximum(values - threshold, 0)
    return projected


def projected(counts: "Numbers", channel: GammaDiagonal) -> "Numbers":
    """Return the proper distribution that is nearest to the unbiased estimate."""
    return project(unbiased(counts, channel))


def most_likely(counts: "Numbers", channel: GammaDiagonal) -> "Numbers":
    """Return the distribution T that maximises Σ sⱼ log(pTⱼ + b), b = (1 − p)/N, by sorting.

    A released cell has probability vⱼ = pTⱼ + b ≥ b, and the best v is max(sⱼ/λ, b) with the one
    λ that makes the sum one.  If the k largest counts are above the floor, λ is their sum divided
    by p + kb; k is the last rank with s₍ₖ₎ > λb, a condition that holds for all ranks before it.
    """
    shares = released_shares(counts, channel)
    number = number_like(shares)
    keep, floor = number(channel.keep_probability), number(channel.spread)
    descending = _descending(shares)
    sums = descending.cumsum(axis=-1)
    ranks = np.arange(1, shares.shape[-1] + 1)
    above = (descending * (keep + ranks * floor) > sums * floor).sum(axis=-1, keepdims=True)
    scale = (keep + above * floor) / np.take_along_axis(sums, above - 1, axis=-1)
    distribution: Numbers = np.maximum((shares * scale - floor) / keep, 0)
    return distribution


def released_shares(counts: "Numbers", channel: GammaDiagonal) -> "Numbers":
    """Return each cell's share of the released records; refuse counts that are not a release's."""
    if not counts.ndim or counts.shape[-1] != channel.domain_size:
        raise ParameterError(
            f"cannot estimate {channel.domain_size} cells from an array of shape {counts.shape}",
            hint="give one count per cell, along the last axis",
        )
    totals = counts.sum(axis=-1, keepdims=True)
    if not (totals > 0).all() or not (counts >= 0).all():
        raise ParameterError(
            "a release has no records, or a cell with a negative number of them",
            hint="give the counts of the released records, at least one in total",
        )
    shares: Numbers = counts / totals
    return shares


def _descending(values: "Numbers") -> "Numbers":
    return np.flip(np.sort(values, axis=-1), axis=-1)
