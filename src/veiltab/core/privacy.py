"""Theorem 1 of the paper, in both directions, and the exact integers that keep its promise.

Neighbours replace one respondent; m of n respondents are sampled without replacement, in random
order; each sampled record goes through a γ-diagonal channel.  Promises are compared with rational
bounds of e^ε, never with floats: :func:`expm1_below` and :func:`log_above` serve every mechanism.
"""

import math
from decimal import Context, Decimal
from fractions import Fraction
from typing import TypeVar

from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.parameters import LARGEST_DELTA
from veiltab.errors import InfeasiblePlanError

Number = TypeVar("Number", float, Fraction)

LEAST_ODDS = Fraction(1, 10**10)
"""The least γ − 1 of a plan: below it all is noise, and floats cannot represent γ − 1."""

_DIGITS = 60
"""How many digits are computed after the leading zeros of a result; floats have 17."""


def likelihood_ratio(population_size: int, sample_size: int, gamma: Number) -> Number:
    """Return e^ε = 1 + (m/n)(γ − 1), the worst ratio between neighbours (Theorem 1, tight)."""
    return 1 + sample_size * (gamma - 1) / population_size


def gamma_for(population_size: int, sample_size: int, epsilon: float) -> float:
    """Return γ = 1 + (n/m)(e^ε − 1), Theorem 1 solved for the noise."""
    return 1 + population_size * math.expm1(epsilon) / sample_size


def largest_keep_threshold(
    population_size: int, sample_size: int, domain_size: int, epsilon: float
) -> int:
    """Return the largest threshold t = 2⁶⁴ − N·M that keeps the promise of ε.

    Then γ = 1 + t/M, so the promise t/M ≤ (n/m)η, η = e^ε − 1, asks for the smallest integer
    M ≥ 2⁶⁴/(N + (n/m)η).  A lower bound of η is used, so rounding only adds noise.
    """
    odds = Fraction(population_size, sample_size) * expm1_below(epsilon)
    width = math.ceil(DRAW_RANGE / (domain_size + odds))
    threshold = DRAW_RANGE - domain_size * width
    if threshold < 1 or odds < LEAST_ODDS:
        raise InfeasiblePlanError(
            f"epsilon {epsilon:g} is too small for {domain_size} cells and a sample of"
            f" {sample_size} in {population_size}: nothing but noise would be released",
            hint="use fewer cells, a smaller sample or a larger epsilon",
        )
    return threshold


def curator_keep_threshold(domain_size: int, epsilon_with_curator: float) -> int:
    """Return the largest threshold t = 2⁶⁴ − N·M with ln γ at most this ε.

    That is all that is left against a researcher whom a curator helps; γ − 1 = t/M.
    """
    odds = expm1_below(epsilon_with_curator)
    threshold = DRAW_RANGE - domain_size * math.ceil(DRAW_RANGE / (domain_size + odds))
    if threshold < 1 or odds < LEAST_ODDS:
        raise InfeasiblePlanError(
            f"epsilon {epsilon_with_curator:g} against a curator who helps the researcher is too"
            f" small for {domain_size} cells: nothing but noise would be released",
            hint="use fewer cells, or promise less against such a curator",
        )
    return threshold


def promise_holds(
    population_size: int, sample_size: int, channel: GammaDiagonal, epsilon: float
) -> bool:
    """Tell whether the channel's exact ratio is at most e^ε, without a rounding error."""
    ratio = likelihood_ratio(population_size, sample_size, channel.gamma)
    return ratio - 1 <= expm1_below(epsilon)


def epsilon_achieved(population_size: int, sample_size: int, channel: GammaDiagonal) -> float:
    """Return the smallest float that is not below the channel's exact ε (Theorem 1)."""
    return log_above(likelihood_ratio(population_size, sample_size, channel.gamma))


def epsilon_if_order_known(channel: GammaDiagonal) -> float:
    """Return ln γ, rounded up: the ε once the sample and its order have leaked."""
    return log_above(channel.gamma)


def expm1_below(epsilon: float) -> Fraction:
    """Return a rational number just below e^ε − 1.

    A float such as 0.1 can mean the decimal that was typed or the binary number that is stored; the
    smaller one is used, so that the promise holds for both.
    """
    exponent = _smaller_reading(epsilon)
    context = Context(prec=_DIGITS + max(0, -exponent.adjusted()))
    # Context.exp is correctly rounded, so the true value is above the next smaller number.
    return Fraction(context.next_minus(context.exp(exponent))) - 1


def delta_below(delta: float) -> Fraction:
    """Return the smaller of the decimal and the binary number that this δ can mean."""
    return Fraction(_smaller_reading(delta))


def is_worth_delta(population_size: int, sample_size: int, delta: float) -> bool:
    """Tell whether a sample is large enough to spend δ on its order: m ≥ 100 δn, exactly.

    With m ≤ δn, δ would even allow the sample in the clear.  So that it stays far from that, the
    share of δ in the sample is at most what is the most for everybody.  δ is read as its decimal.
    """
    spent = Fraction(repr(float(delta))) * population_size
    return spent <= Fraction(repr(LARGEST_DELTA)) * sample_size


def _smaller_reading(value: float) -> Decimal:
    return min(Decimal(repr(float(value))), Decimal(value))


def publication_threshold(epsilon_public: float) -> int:
    """Return the smallest whole r with r/2⁶⁴ ≥ e^(−ε/2): the ratio of a published copy's noise.

    A respondent counts in two cells at most, one before and one after a change, and each count has
    two-sided geometric noise of this ratio; so a published copy keeps e^ε (pure).
    """
    return _ratio_threshold(epsilon_public, 2, "a published copy")


def count_threshold(epsilon: float) -> int:
    """Return the smallest whole r with r/2⁶⁴ ≥ e^(−ε): the ratio of the noise of a single count.

    One person changes a single count by one at most, so two-sided geometric noise of this ratio
    keeps e^ε (pure).
    """
    return _ratio_threshold(epsilon, 1, "a count")


def _ratio_threshold(epsilon: float, parts: int, what: str) -> int:
    """Return the smallest whole r with r/2⁶⁴ ≥ e^(−ε/parts), for both readings of ε."""
    exponent = _smaller_reading(epsilon)
    context = Context(prec=_DIGITS + max(0, -exponent.adjusted()))
    part = context.next_minus(context.divide(exponent, Decimal(parts)))
    ratio = Fraction(context.next_plus(context.exp(-part)))
    threshold = math.ceil(ratio * DRAW_RANGE)
    if threshold >= DRAW_RANGE:
        raise InfeasiblePlanError(
            f"no noise of {what} is large enough for epsilon {epsilon:g}",
            hint="promise whoever reads it a larger epsilon",
        )
    return threshold


def log_above(ratio: Fraction) -> float:
    """Return the smallest float that is not below ln(ratio), for a ratio above 1."""
    excess = float(ratio - 1)
    context = Context(prec=_DIGITS + max(0, -int(math.log10(excess))))
    above = context.next_plus(context.ln(_decimal_above(ratio, context)))
    return float_above(Fraction(above))


def float_above(number: Fraction) -> float:
    """Return the smallest float that is not below the number."""
    nearest = float(number)
    return nearest if Fraction(nearest) >= number else math.nextafter(nearest, math.inf)


def _decimal_above(ratio: Fraction, context: Context) -> Decimal:
    quotient = context.divide(Decimal(ratio.numerator), Decimal(ratio.denominator))
    return context.next_plus(quotient)
