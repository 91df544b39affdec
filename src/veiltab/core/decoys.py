"""The accounting of decoys, ``decoys-1``: what a coin and a law of decoys promise, exactly.

Neighbours replace one respondent's record.  Given everybody else, only the counts of two cells
tell them apart: (B + D₁, D₂) against (D₁, B + D₂), with B the respondent's coin and D₁, D₂ the
numbers of decoys.  This pair dominates every other view and is attained, so the answers here are
exact; where they are rounded, they are rounded up.  No n, no N and no channel enters: ε holds for
the researcher and the server together.  Derivation: ``docs/explanation/decoys.md``.
"""

from fractions import Fraction
from functools import lru_cache
from itertools import pairwise

from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Coin, Geometric, WeightTable
from veiltab.core.privacy import expm1_below

_KEY_BITS = 140
"""Two different ratios a/w differ by 2⁻¹²⁸ at least, so their first 140 bits keep the order."""

_RATIO_BITS = 192
"""e^ε is rounded down to a multiple of 2⁻¹⁹², far below anything that δ could show."""


def pure_ratio(coin: Coin, law: Geometric) -> Fraction | None:
    """Return the worst ratio e^ε = 1 + β/(q(1 − β)) of geometric decoys; None if it is infinite."""
    if coin.threshold == DRAW_RANGE:
        return None
    odds = Fraction(coin.threshold, DRAW_RANGE - coin.threshold)
    return 1 + odds / law.ratio


def largest_coin(law: Geometric, epsilon: float) -> int:
    """Return the largest c that keeps the promise of ε: β = qη/(1 + qη), η = e^ε − 1.

    Zero if no coin is rare enough.  A lower bound of η is used, so rounding only loses respondents.
    """
    odds = law.ratio * expm1_below(epsilon)
    return int(DRAW_RANGE * odds / (1 + odds))


def pure_promise_holds(coin: Coin, law: Geometric, epsilon: float) -> bool:
    """Tell whether the exact ratio is at most e^ε, without a rounding error."""
    ratio = pure_ratio(coin, law)
    return ratio is not None and ratio - 1 <= expm1_below(epsilon)


@lru_cache(maxsize=64)
def exact_delta(coin: Coin, law: WeightTable, epsilon: float) -> Fraction:
    """Return δ(ε) = Σᵢⱼ [P(i)D(j) − e^ε D(i)P(j)]₊, with P the law of B + D.

    The sum is exact for a number just below e^ε, and so never below the true δ.  Sorted by P/D, the
    pairs that count are a prefix for every i, which leaves prefix sums instead of pairs.
    """
    scaled = int((1 + expm1_below(epsilon)) * (1 << _RATIO_BITS))  # rounded down
    pairs = _sorted_by_ratio(coin, law)
    total, first, sum_of_a, sum_of_w = 0, 0, 0, 0
    for a, w in pairs:
        while first < len(pairs):
            other_a, other_w = pairs[first]
            if scaled * other_a * w >= (a * other_w) << _RATIO_BITS:
                break
            sum_of_a, sum_of_w, first = sum_of_a + other_a, sum_of_w + other_w, first + 1
        total += ((a * sum_of_w) << _RATIO_BITS) - scaled * w * sum_of_a
    return Fraction(total, DRAW_RANGE**3 << _RATIO_BITS)


def _sorted_by_ratio(coin: Coin, law: WeightTable) -> list[tuple[int, int]]:
    """Return (2¹²⁸P(i), 2⁶⁴D(i)) for every i, in the order of their ratios, infinity last."""
    taken, left = coin.threshold, DRAW_RANGE - coin.threshold
    padded = (0, *law.weights, 0)
    pairs = [(left * w + taken * before, w) for before, w in pairwise(padded)]
    finite = [(a, w) for a, w in pairs if w]
    finite.sort(key=lambda pair: (pair[0] << _KEY_BITS) // pair[1])
    return finite + [(a, w) for a, w in pairs if a and not w]


def membership_ratio(coin: Coin, law: Geometric) -> Fraction | None:
    """Return e^ε of adding or removing a person whom nobody else's record replaces.

    It is max(1/(1 − β), 1 − β + β/q), the larger of both directions; None if it is infinite.
    """
    if coin.threshold == DRAW_RANGE:
        return None
    beta = coin.probability
    return max(1 / (1 - beta), 1 - beta + beta / law.ratio)


def membership_ratio_with_delta(coin: Coin, law: WeightTable, delta: Fraction) -> Fraction | None:
    """Return the least e^ε ≥ 1 at which B + D and D differ by δ at most, both ways.

    None if no ε does, because more than δ lies where only one of both can be.
    """
    pairs = [(a, w * DRAW_RANGE) for a, w in _sorted_by_ratio(coin, law)]  # both over 2¹²⁸
    spare = delta * DRAW_RANGE**2
    forward = _least_ratio(pairs[::-1], spare)
    backward = _least_ratio([(w, a) for a, w in pairs], spare)
    return None if forward is None or backward is None else max(forward, backward)


def _least_ratio(pairs: list[tuple[int, int]], spare: Fraction) -> Fraction | None:
    """Return the least x ≥ 1 with Σ [p − x·d]₊ ≤ spare, for pairs (p, d) by falling p/d."""
    numerator, denominator = spare.as_integer_ratio()
    sum_of_p = sum_of_d = 0
    for p, d in pairs:
        # Between this ratio and the one before, the sum is Σp − x·Σd over the pairs before.
        if (sum_of_p * d - sum_of_d * p) * denominator > numerator * d:
            break
        sum_of_p, sum_of_d = sum_of_p + p, sum_of_d + d
    if sum_of_p - sum_of_d <= spare:
        return Fraction(1)
    return (sum_of_p - spare) / sum_of_d if sum_of_d else None
