"""What a coin and decoys do to the counts of cells, written anew in plain Python and fractions."""

import math
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import product
from typing import TypeAlias

Law: TypeAlias = Callable[[int], Fraction]
"""P(D = z) of the number of decoys of one cell."""

Counts: TypeAlias = tuple[int, ...]
"""How many respondents, or rows, are in each cell."""


def geometric(q: Fraction) -> Law:
    """Return the law P(D = z) = (1 − q)qᶻ."""
    return lambda z: (1 - q) * q**z if z >= 0 else Fraction(0)


def no_decoys(z: int) -> Fraction:
    """Return the law of no decoys at all."""
    return Fraction(z == 0)


def weighted(*weights: int) -> Law:
    """Return a law by its weights."""
    total = sum(weights)
    return lambda z: Fraction(weights[z], total) if 0 <= z < len(weights) else Fraction(0)


def chance(rows: int, people: int, beta: Fraction, law: Law) -> Fraction:
    """Return P(Bin(people, β) + D = rows), the law of the count of one cell."""
    return sum(
        (
            math.comb(people, k) * beta**k * (1 - beta) ** (people - k) * law(rows - k)
            for k in range(people + 1)
        ),
        Fraction(0),
    )


def release_chance(release: Counts, people: Counts, beta: Fraction, law: Law) -> Fraction:
    """Return the probability of a release: counts of different cells are independent."""
    parts = zip(release, people, strict=True)
    return math.prod((chance(y, k, beta, law) for y, k in parts), start=Fraction(1))


def databases(n: int, cells: int) -> Iterator[Counts]:
    """Yield the counts of every database of n respondents."""
    for people in product(range(n + 1), repeat=cells):
        if sum(people) == n:
            yield people


def neighbours(people: Counts) -> Iterator[Counts]:
    """Yield every database with one respondent moved to another cell."""
    for u, v in product(range(len(people)), repeat=2):
        if u != v and people[u]:
            yield tuple(k - (c == u) + (c == v) for c, k in enumerate(people))


def two_sided(q: float, centre: int) -> list[float]:
    """Return the two-sided geometric law, up to where its weights are below 10⁻¹⁹."""
    last = centre + math.ceil(math.log(1e-19) / math.log(q))
    weights = [q ** abs(z - centre) for z in range(last + 1)]
    return [weight / sum(weights) for weight in weights]


def moments(law: Sequence[float]) -> tuple[float, float]:
    """Return mean and variance."""
    mean = sum(z * p for z, p in enumerate(law))
    return mean, sum(z * z * p for z, p in enumerate(law)) - mean**2


def sorted_delta(beta: float, law: Sequence[float], ratio: float) -> float:
    """Return δ by sorting and running sums, as the page says."""
    padded = [0.0, *law, 0.0]
    pairs = [
        ((1 - beta) * padded[z + 1] + beta * padded[z], padded[z + 1]) for z in range(len(law) + 1)
    ]
    pairs.sort(key=lambda pair: pair[0] / pair[1] if pair[1] else math.inf)
    total = sum_of_p = sum_of_d = 0.0
    beginning = 0
    for p, d in pairs:
        while beginning < len(pairs) and pairs[beginning][0] * ratio * d < p * pairs[beginning][1]:
            sum_of_p += pairs[beginning][0]
            sum_of_d += pairs[beginning][1]
            beginning += 1
        total += p * sum_of_d - ratio * d * sum_of_p
    return total
