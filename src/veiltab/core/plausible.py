"""How many rows a release with decoys can plausibly have (spec 11).

The rows are Bin(n, β) respondents and a number of decoys in each of N cells.  A centred variable X
is sub-gamma with variance v and scale b if ln E e^(λX) ≤ vλ²/(2(1 − bλ)) for 0 ≤ λ < 1/b.  Sums of
independent ones add up their v, keep b, and exceed √(2vt) + bt with probability e^−t at most.

- A number that is at most c above its mean has b = c/3 (Bernstein): that serves coins, tables of
  weights, and the lower side of every law.
- Geometric decoys with mean μ and variance v have, with x = e^λ − 1, the derivative vx/(1 − μx) of
  ln E e^(λ(D − μ)).  From λ/x ≥ 1 − λ/2 it follows that it is at most vλ/(1 − (μ + ½)λ): b = μ + ½.

With t = 22, both sides together are exceeded with probability 2e^−22 < 10⁻⁹.
"""

from fractions import Fraction

from veiltab.core.mechanism import Geometric, Law, Mechanism
from veiltab.errors import ParameterError

TAIL = 22
"""The t above; both tails together are less likely than one in a billion."""


def plausible_rows(
    rows: int, mechanism: Mechanism, domain_size: int, population_size: int | None
) -> bool:
    """Tell whether a release with decoys can have so many rows.

    Where n is not known, only too few rows are implausible: fewer than the decoys alone.
    """
    coin, law = mechanism.coin, mechanism.decoys
    if coin is None or law is None:
        raise ParameterError(
            "only releases with decoys have an uncertain number of rows",
            hint="by rank, the number of rows is the plan's sample size",
        )
    mean, variance = domain_size * law.mean, domain_size * law.variance
    if population_size is not None:
        chance = coin.probability
        mean += population_size * chance
        variance += population_size * chance * (1 - chance)
    difference = rows - mean
    if difference > 0 and population_size is None:
        return True
    beyond = abs(difference) - TAIL * _scale(law)
    return beyond <= 0 or beyond**2 <= 2 * TAIL * variance


def _scale(law: Law) -> Fraction:
    """Return a b that serves the coins and the decoys, on both sides."""
    if isinstance(law, Geometric):
        return law.mean + Fraction(1, 2)
    return Fraction(max(len(law.weights) - 1, 1), 3)
