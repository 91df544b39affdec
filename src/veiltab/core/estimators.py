"""Three ways to estimate the distribution behind a release; all are post-processing.

The unbiased estimate is right on average; it may be negative.  Its projection is the nearest proper
distribution.  The most likely distribution maximises the likelihood of the released counts, or with
decoys a quasi-likelihood, in closed form (by rank: arXiv 2601.08603; derived in
``docs/explanation/estimates.md``).

Cells run along the last axis, so that many releases are estimated at once; an object array of
Fractions is estimated exactly.
"""

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np

from veiltab.core.channel import number_like

if TYPE_CHECKING:
    from veiltab.core.channel import Numbers
    from veiltab.core.uncertainty import ReleaseDesign


def project(values: "Numbers", slope: Any = 0) -> "Numbers":  # noqa: ANN401 - float or Fraction
    """Return the nearest proper distribution, by sorting.

    With a ``slope`` of 0 it is the nearest one in ℓ₂.  Otherwise a value near t counts as having a
    variance in proportion to 1 + slope·t, and the score equations (x − t)/(1 + slope·t) = λ are
    solved.  The solution is max((x − λ)/(1 + λ·slope), 0), with the one λ that makes the sum one:
    if the k largest values stay above zero, λ is (their sum − 1)/(k + slope), and k is the last
    rank with x₍ₖ₎ > λ, a condition that holds for all ranks before it.
    """
    descending = np.flip(np.sort(values, axis=-1), axis=-1)
    excess = descending.cumsum(axis=-1) - 1
    ranks = np.arange(1, values.shape[-1] + 1)
    positive = (descending * (ranks + slope) > excess).sum(axis=-1, keepdims=True)
    multiplier = np.take_along_axis(excess, positive - 1, axis=-1) / (positive + slope)
    projected: Numbers = np.maximum((values - multiplier) / (1 + multiplier * slope), 0)
    return projected


def unbiased(counts: "Numbers", design: "ReleaseDesign") -> "Numbers":
    """Return the unbiased estimate of the released counts: right on average."""
    return design.estimate(counts)


def projected(counts: "Numbers", design: "ReleaseDesign") -> "Numbers":
    """Return the proper distribution that is nearest to the unbiased estimate."""
    return project(unbiased(counts, design))


def most_likely(counts: "Numbers", design: "ReleaseDesign") -> "Numbers":
    """Return the distribution that maximises the likelihood of the released counts.

    By rank it is that of independent draws through the channel, Σ s log(pT + (1 − p)/N).  By coin
    it is the quasi-likelihood of the estimated shares, whose variance is about a + bT in a cell
    with the share T: decoys and coins have no likelihood in closed form.
    """
    constant, slope = design.cell_variance
    ratio = slope / constant
    exact = isinstance(ratio, Fraction)
    return project(unbiased(counts, design), number_like(counts)(ratio) if exact else ratio)
