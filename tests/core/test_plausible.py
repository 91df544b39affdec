"""The number of rows of a release with decoys: honest ones pass, others are found."""

from dataclasses import dataclass
from fractions import Fraction
from math import exp

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from tests.support.decoys import two_sided
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Coin, Geometric, Law, Mechanism, Rank, WeightTable
from veiltab.core.plausible import TAIL, plausible_rows
from veiltab.errors import ParameterError

SELDOM = WeightTable((DRAW_RANGE - DRAW_RANGE // 200, *[0] * 199, DRAW_RANGE // 200))
"""Nearly always no decoy, and now and then 200."""

ALLOWED = 1e-9
"""The chance with which an honest release may be refused."""


@dataclass(frozen=True)
class Setting:
    """A number of respondents, of cells, a coin's chance and a law."""

    population: int | None
    cells: int
    chance: float
    law: Law

    def plausible(self, rows: int) -> bool:
        """Tell whether so many rows are."""
        mechanism = Mechanism(Coin(int(self.chance * DRAW_RANGE)), self.law, None)
        return plausible_rows(rows, mechanism, self.cells, self.population)


def accepted(setting: Setting, most: int) -> tuple[int, int]:
    """Return the least and the largest number of rows that are accepted."""
    fine = [rows for rows in range(most) if setting.plausible(rows)]
    assert fine == list(range(fine[0], fine[-1] + 1))
    return fine[0], fine[-1]


def law_of_rows(setting: Setting, most: int) -> NDArray[np.float64]:
    """Return the chance of each number of rows, by convolution."""
    law = setting.law
    if isinstance(law, Geometric):
        chances = stats.nbinom.pmf(np.arange(most), setting.cells, 1 - float(law.ratio))
    else:
        one = np.array([float(law.probability(z)) for z in range(len(law.weights))])
        chances = np.array([1.0])
        for _ in range(setting.cells):
            chances = np.convolve(chances, one)[:most]
    people = setting.population or 0
    taking = stats.binom.pmf(np.arange(people + 1), people, setting.chance)
    found: NDArray[np.float64] = np.convolve(chances, taking)[:most]
    assert found.sum() > 1 - 1e-12
    return found


@pytest.mark.parametrize(
    ("population", "cells", "chance", "law"),
    [
        (1, 2, 0.01, Geometric(DRAW_RANGE // 1000)),
        (1, 2, 0.5, Geometric(DRAW_RANGE * 97 // 100)),
        (500, 24, 0.36, Geometric(DRAW_RANGE * 85 // 100)),
        (1000, 2, 0.999, Geometric(DRAW_RANGE // 2)),
        (20, 200, 0.1, Geometric(DRAW_RANGE // 20)),
        (300, 12, 1.0, two_sided(20)),
        (300, 12, 0.005, SELDOM),
    ],
)
def test_honest_releases_are_accepted(population: int, cells: int, chance: float, law: Law) -> None:
    """The exact chance of a false alarm is below one in a billion, however skewed the law is."""
    setting = Setting(population, cells, chance, law)
    chances = law_of_rows(setting, 6_000)
    least, most = accepted(setting, 6_000)
    outside = chances[:least].sum() + chances[most + 1 :].sum()
    assert outside < ALLOWED
    assert 2 * exp(-TAIL) < ALLOWED


@pytest.mark.parametrize("law", [Geometric(DRAW_RANGE * 62 // 100), two_sided(20)])
def test_without_a_population_only_too_few_rows_are_refused(law: Law) -> None:
    """Fewer than the decoys of the joint cells alone; more can always be respondents."""
    setting = Setting(None, 768, 0.3, law)
    assert setting.plausible(10**12)
    decoys = 768 * float(law.mean)
    assert setting.plausible(int(decoys))
    assert not setting.plausible(int(decoys / 2))
    assert not setting.plausible(0)


def test_what_is_left_out_is_found_where_it_is_much() -> None:
    """All decoys of a large table, and half of the respondents, on both sides."""
    law = Geometric(DRAW_RANGE * 62 // 100)
    setting = Setting(45_222, 7680, 0.2866, law)
    people, decoys = 45_222 * 0.2866, 7680 * float(law.mean)
    assert setting.plausible(int(people + decoys))
    assert not setting.plausible(int(people))
    assert not setting.plausible(int(people / 2 + decoys))
    assert not setting.plausible(int(people + 2 * decoys))


def test_the_bound_is_exact() -> None:
    """The rule of the specification, in rational numbers: |M − E| ≤ √(2tV) + tb."""
    law = Geometric(DRAW_RANGE // 2)  # μ = 1, v = 2, b = 3/2
    setting = Setting(100, 50, 0.5, law)  # E = 100, V = 25 + 100
    for rows in range(300):
        beyond = abs(rows - 100) - Fraction(3, 2) * 22
        expected = beyond <= 0 or beyond**2 <= 2 * 22 * 125
        assert setting.plausible(rows) is expected


def test_by_rank_the_number_of_rows_is_certain() -> None:
    """There is nothing to judge."""
    with pytest.raises(ParameterError, match="only releases with decoys"):
        plausible_rows(10, Mechanism(Rank(10), None, 4), 4, 100)
