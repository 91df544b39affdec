"""Exact laws of what a coalition sees of a study with decoys, and the check of a promise on them.

A view is a histogram: how many rows of each kind are seen.  The rows' order, their tokens and pads
are uniformly random whatever the histogram is, so they tell nothing more (``test_real_runs.py``
shows that real runs depend on nothing else).  What a record and a decoy of each pattern add to the
histogram comes from real runs; here all coins and all numbers of decoys are gone through.

Numbers of decoys are enumerated up to a truncation.  A view with no count above it has got
everything that leads to it, so its chance is exact; the chance of all other views is kept as
``outside``, and enters every comparison.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, combinations_with_replacement, permutations, product
from math import lcm, prod
from typing import Protocol

Database = tuple[int, ...]
"""The pattern of each person; a pattern is a joint cell, or a cell or absence per curator."""

Places = tuple[int, ...]
View = tuple[int, ...]
"""How many rows of each kind are seen, and after that whatever else is told."""

Kinds = Sequence[int | None]
"""For each pattern the kind of row that is seen of it, None if nothing is."""

Pairs = Iterable[tuple[Database, Database]]


class NumberLaw(Protocol):
    """The law of how many decoys a pattern gets."""

    def probability(self, number: int) -> Fraction:
        """Return P(D = number)."""


@dataclass(frozen=True)
class GeometricLaw:
    """P(D = z) = (1 − q)qᶻ for any rational q, also for one that no 64-bit threshold gives."""

    ratio: Fraction

    def probability(self, number: int) -> Fraction:
        """Return P(D = number)."""
        return (1 - self.ratio) * self.ratio**number


def by_coin(persons: int, coin: Fraction) -> Iterator[tuple[Places, Fraction]]:
    """Yield every set of persons who may take part, each by a coin of its own."""
    for size in range(persons + 1):
        chance = coin**size * (1 - coin) ** (persons - size)
        for places in combinations(range(persons), size):
            yield places, chance


def by_rank(size: int) -> Callable[[int, Fraction], Iterator[tuple[Places, Fraction]]]:
    """Return the sampling that cuts off a fixed number of persons, as no study with decoys may."""

    def sample(persons: int, coin: Fraction) -> Iterator[tuple[Places, Fraction]]:  # noqa: ARG001
        samples = list(combinations(range(persons), size))
        return ((places, Fraction(1, len(samples))) for places in samples)

    return sample


def nothing_else(decoys: Sequence[int]) -> View:  # noqa: ARG001
    """Tell nothing besides the rows."""
    return ()


@dataclass(frozen=True)
class ViewLaw:
    """The exact chances of the views that no truncation cuts, as integers over ``whole``."""

    weights: dict[View, int]
    whole: int

    @property
    def outside(self) -> Fraction:
        """The chance of all other views."""
        return 1 - Fraction(sum(self.weights.values()), self.whole)

    def probability(self, view: View) -> Fraction:
        """Return the chance of a view."""
        return Fraction(self.weights.get(view, 0), self.whole)


@dataclass(frozen=True, kw_only=True)
class Model:
    """A coin, a law of decoys, and what a record and a decoy of each pattern add to the view.

    ``truncation`` is None for a law with a largest number, which is enumerated to its end:
    ``largest``.
    """

    coin: Fraction
    decoys: NumberLaw
    records: Kinds
    invented: Kinds
    truncation: int | None
    largest: int = 0
    sampling: Callable[[int, Fraction], Iterable[tuple[Places, Fraction]]] = by_coin
    told: Callable[[Sequence[int]], View] = nothing_else

    @property
    def kinds(self) -> int:
        """How many kinds of rows there are."""
        return 1 + max(kind for kind in (*self.records, *self.invented) if kind is not None)

    def laws(self, databases: Iterable[Database]) -> dict[Database, ViewLaw]:
        """Return the law of the view of each database."""
        decoys = self._decoys()
        return {database: self._law(database, decoys) for database in databases}

    def _law(self, database: Database, decoys: ViewLaw) -> ViewLaw:
        samples: dict[View, Fraction] = {}
        for places, chance in self.sampling(len(database), self.coin):
            seen = self._counted(self.records[database[place]] for place in places)
            samples[seen] = samples.get(seen, Fraction(0)) + chance
        shared = lcm(*(chance.denominator for chance in samples.values()))
        weights: Counter[View] = Counter()
        for sample, chance in samples.items():
            factor = int(chance * shared)
            for invented, weight in decoys.weights.items():
                counts = tuple(map(int.__add__, sample, invented))
                if self.truncation is None or max(counts) <= self.truncation:
                    weights[counts + invented[len(sample) :]] += factor * weight
        return ViewLaw(dict(weights), decoys.whole * shared)

    def _decoys(self) -> ViewLaw:
        """Return the law of what the decoys alone add; those that nobody sees sum to one."""
        seen = [kind for kind in self.invented if kind is not None]
        last = self.largest if self.truncation is None else self.truncation
        chances = [self.decoys.probability(number) for number in range(last + 1)]
        shared = lcm(*(chance.denominator for chance in chances))
        numbers = [int(chance * shared) for chance in chances]
        weights: Counter[View] = Counter()
        for drawn in product(range(last + 1), repeat=len(seen)):
            counts = [0] * self.kinds
            for kind, number in zip(seen, drawn, strict=True):
                counts[kind] += number
            weights[(*counts, *self.told(drawn))] += prod(numbers[number] for number in drawn)
        return ViewLaw(dict(weights), shared ** len(seen))

    def _counted(self, kinds: Iterable[int | None]) -> View:
        counts = [0] * self.kinds
        for kind in kinds:
            if kind is not None:
                counts[kind] += 1
        return tuple(counts)


def neighbours(persons: int, patterns: Iterable[int]) -> Iterator[tuple[Database, Database]]:
    """Yield all pairs of databases that differ in one person's pattern.

    Up to the order of the persons, who are all treated alike.
    """
    choices = list(patterns)
    for others in combinations_with_replacement(choices, persons - 1):
        for first, second in permutations(choices, 2):
            yield tuple(sorted((*others, first))), tuple(sorted((*others, second)))


@dataclass(frozen=True)
class Finding:
    """What a check found: the worst ratio (None: infinite), and how much it left out at most."""

    worst: Fraction | None
    outside: Fraction

    def breaks(self, ratio: Fraction) -> bool:
        """Tell whether a promise of e^ε = ratio is broken."""
        return self.worst is None or self.worst > ratio


def check(model: Model, pairs: Pairs, channel: "Channel | None" = None) -> Finding:
    """Return the worst ratio of any view's chances between any two neighbours."""
    pairs = list(pairs)
    laws = model.laws({database for pair in pairs for database in pair})
    if channel is not None:
        laws = {database: channel.perturb(law) for database, law in laws.items()}
    return compare(laws, pairs)


def compare(laws: Mapping[Database, ViewLaw], pairs: Pairs) -> Finding:
    """Return the same for laws that were enumerated before."""
    outside = max(law.outside for law in laws.values())
    over, under = 0, 1
    for first, second in pairs:
        likely, unlikely = laws[first].weights, laws[second].weights
        scale, other_scale = laws[second].whole, laws[first].whole
        for view, weight in likely.items():
            other = unlikely.get(view, 0) * other_scale
            if weight * scale * under > over * other:
                over, under = weight * scale, other
                if not other:
                    return Finding(None, outside)
    return Finding(Fraction(over, under), outside)


class Channel:
    """The γ-diagonal channel on histograms of at most ``rows`` rows, exactly."""

    def __init__(self, gamma: Fraction, cells: int, rows: int) -> None:
        """Take γ = a/b, so that a row has weight a on its own cell and b on each other."""
        self.cells, self.rows = cells, rows
        self._kept, self._other = gamma.as_integer_ratio()
        self._perturbed: dict[View, Counter[View]] = {(0,) * cells: Counter({(0,) * cells: 1})}

    def perturb(self, law: ViewLaw) -> ViewLaw:
        """Return the law of what is released; longer tables stay outside."""
        row = self._kept + (self.cells - 1) * self._other
        weights: Counter[View] = Counter()
        for counts, weight in law.weights.items():
            if sum(counts) <= self.rows:
                factor = weight * row ** (self.rows - sum(counts))
                for released, ways in self._released(counts).items():
                    weights[released] += factor * ways
        return ViewLaw(dict(weights), law.whole * row**self.rows)

    def _released(self, counts: View) -> Counter[View]:
        """Return in how many weighted ways these rows are released as others, row by row."""
        if counts not in self._perturbed:
            cell = next(cell for cell, count in enumerate(counts) if count)
            law: Counter[View] = Counter()
            for released, ways in self._released(moved(counts, cell, -1)).items():
                for out in range(self.cells):
                    kept = self._kept if out == cell else self._other
                    law[moved(released, out, 1)] += ways * kept
            self._perturbed[counts] = law
        return self._perturbed[counts]


def moved(counts: View, cell: int, by: int) -> View:
    """Return the histogram with one count changed."""
    return (*counts[:cell], counts[cell] + by, *counts[cell + 1 :])


def divergence(first: ViewLaw, second: ViewLaw, ratio: Fraction) -> Fraction:
    """Return Σ [P − e^ε·Q]₊ over the enumerated views; with ``outside`` added it bounds δ."""
    over, under = ratio.as_integer_ratio()
    scale, other_scale = under * second.whole, over * first.whole
    total = sum(
        max(0, scale * weight - other_scale * second.weights.get(view, 0))
        for view, weight in first.weights.items()
    )
    return Fraction(total, under * first.whole * second.whole)
