"""Terms of decoys that need no planner: any ratio, and the most likely coin that keeps ε."""

import math
from fractions import Fraction

from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Geometric
from veiltab.wire.mechanism import DecoyTerms

HALF = Fraction(1, 2)


def decoy_terms(
    epsilon: float = 1.0,
    *,
    ratio: Fraction = HALF,
    epsilon_public: float | None = None,
    keep_threshold: int | None = None,
) -> DecoyTerms:
    """Return β = qη/(1 + qη) with the geometric law of this q, a little below what ε allows."""
    eta = Fraction(math.expm1(epsilon)) * (1 - Fraction(1, 10**12))
    coin = ratio * eta / (1 + ratio * eta)
    return DecoyTerms(
        coin_threshold=int(coin * DRAW_RANGE),
        decoys=Geometric(int(ratio * DRAW_RANGE)),
        epsilon_public=epsilon if epsilon_public is None else epsilon_public,
        keep_threshold=keep_threshold,
    )
