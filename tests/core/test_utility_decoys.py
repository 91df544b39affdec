"""The error with decoys: enumerated in fractions, simulated, and worst where it is said to be."""

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from itertools import product
from typing import TypeVar, get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.channels import gamma_channel
from veiltab.core import privacy, utility
from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.mechanism import LinkageMode, WeightTable
from veiltab.core.plan import Plan, plan

Number = TypeVar("Number", float, Fraction)
Counts = tuple[int, ...]
Law = dict[Counts, Fraction]

HALF, ZERO = Fraction(1, 2), Fraction(0)
DECOYS = (Fraction(1, 4), HALF, Fraction(1, 4))
"""A law of decoys with few values: mean 1, variance ½."""

NOISE = {-1: Fraction(1, 4), 0: HALF, 1: Fraction(1, 4)}
"""Noise of a published copy; the formulas know its variance alone, ½."""


def add(law: Law, options: Iterable[tuple[Counts, Fraction]]) -> Law:
    """Return the law of a sum of independent tables."""
    total: Law = {}
    for counts, chance in law.items():
        for more, other in options:
            key = tuple(a + b for a, b in zip(counts, more, strict=True))
            total[key] = total.get(key, ZERO) + chance * other
    return total


def unit(cell: int, cells: int, size: int = 1) -> Counts:
    """Return a table with all in one cell."""
    return tuple(size * (cell == other) for other in range(cells))


def released_tables(
    database: Counts, cells: int, beta: Fraction, channel: GammaDiagonal | None
) -> Law:
    """Return the law of the counts that a researcher sees, row by row."""
    nothing = unit(0, cells, 0)

    def row(cell: int) -> list[tuple[Counts, Fraction]]:
        if channel is None:
            return [(unit(cell, cells), Fraction(1))]
        return [
            (unit(out, cells), channel.probability(released=out, cell=cell)) for out in range(cells)
        ]

    law: Law = {nothing: Fraction(1)}
    for cell in database:
        taken = [(counts, beta * chance) for counts, chance in row(cell)]
        law = add(law, [*taken, (nothing, 1 - beta)])
    for cell in range(cells):
        numbers: Law = {}
        rows: Law = {nothing: Fraction(1)}
        for chance in DECOYS:
            for counts, other in rows.items():
                numbers[counts] = numbers.get(counts, ZERO) + chance * other
            rows = add(rows, row(cell))
        law = add(law, numbers.items())
    return law


def published(law: Law, cells: int) -> Law:
    """Add a published copy's noise to every count."""
    for cell in range(cells):
        law = add(law, [(unit(cell, cells, size), chance) for size, chance in NOISE.items()])
    return law


def shares_of(database: Counts, cells: int) -> list[Fraction]:
    """Return the type of a database."""
    return [Fraction(database.count(cell), len(database)) for cell in range(cells)]


def estimate(
    counts: Counts, database: Counts, beta: Fraction, keep: Fraction, spread: Fraction
) -> list[Fraction]:
    """Estimate the shares of a known number of respondents: g/(nβ), made to sum to one.

    What is missing is shared out in proportion to the cells' variances, as the best estimate would.
    """
    n, cells, rows = len(database), len(counts), sum(counts)
    g = [(y - (1 - keep) * rows / cells) / keep - 1 for y in counts]  # decoys have the mean 1
    d = [n * beta * (1 - beta) * share + spread for share in shares_of(database, cells)]
    left = 1 - sum(g) / (n * beta)
    return [a / (n * beta) + left * b / sum(d) for a, b in zip(g, d, strict=True)]


@pytest.mark.parametrize("noise", [ZERO, HALF])
@pytest.mark.parametrize("gamma", [None, Fraction(4)])
@pytest.mark.parametrize(
    ("database", "cells", "beta"),
    [((0, 1), 2, HALF), ((0, 0), 2, Fraction(1, 3)), ((0, 1, 1), 2, Fraction(1))],
)
def test_the_error_with_a_known_population_is_exact(
    database: Counts, cells: int, beta: Fraction, gamma: Fraction | None, noise: Fraction
) -> None:
    """Every coin, decoy, channel and noise enumerated: unbiased, and with exactly this error."""
    n, truth = len(database), shares_of(database, cells)
    channel = None if gamma is None else gamma_channel(cells, gamma)
    keep = Fraction(1) if channel is None else channel.keep_probability
    law = released_tables(database, cells, beta, channel)
    if noise:
        law = published(law, cells)
    spread = HALF + noise  # of a cell's decoys and of the noise on top
    found = [(estimate(y, database, beta, keep, spread), chance) for y, chance in law.items()]
    assert sum(chance for _, chance in found) == 1
    assert [sum(e[c] * p for e, p in found) for c in range(cells)] == truth
    error = sum(p * sum((a - b) ** 2 for a, b in zip(e, truth, strict=True)) for e, p in found)
    assert error == utility.decoys_squared_error(
        n,
        cells,
        odds_against=1 / beta - 1,
        mean=Fraction(1),
        variance=HALF,
        gamma=gamma,
        linkage="aligned",
        sum_of_squares=sum((share**2 for share in truth), ZERO),
        published=noise,
    )


def test_the_error_in_three_cells_is_exact() -> None:
    """Once more with a third cell, where the channel can move a record to two others."""
    database, beta, channel = (0, 2), HALF, gamma_channel(3, Fraction(4))
    truth = shares_of(database, 3)
    law = released_tables(database, 3, beta, channel)
    keep = channel.keep_probability
    error = sum(
        p * sum((a - b) ** 2 for a, b in zip(e, truth, strict=True))
        for e, p in ((estimate(y, database, beta, keep, HALF), p) for y, p in law.items())
    )
    assert error == utility.decoys_squared_error(
        2,
        3,
        odds_against=Fraction(1),
        mean=Fraction(1),
        variance=HALF,
        gamma=Fraction(4),
        linkage="aligned",
        sum_of_squares=HALF,
    )


def test_the_noise_of_a_published_copy_by_rank_is_exact() -> None:
    """The sample's size is known, so the noise's own sum is taken out before A⁻¹."""
    size, cells, keep = 5, 3, Fraction(1, 3)
    law = published({(0, 0, 0): Fraction(1)}, cells)
    error = sum(
        chance * sum(((x - Fraction(sum(noise), cells)) / (keep * size)) ** 2 for x in noise)
        for noise, chance in law.items()
    )
    assert error == utility.published_error(size, cells, keep, HALF)


@pytest.mark.parametrize("linkage", ["aligned", "matched"])
@pytest.mark.parametrize("gamma", [None, Fraction(9)])
@pytest.mark.parametrize("variance", [Fraction(1, 10), Fraction(20)])
def test_no_data_are_harder_than_the_worst(
    linkage: LinkageMode, gamma: Fraction | None, variance: Fraction
) -> None:
    """All tables of twelve respondents in four cells; the worst is one of them."""
    errors = {
        counts: utility.decoys_squared_error(
            12,
            4,
            odds_against=HALF,
            mean=Fraction(3),
            variance=variance,
            gamma=gamma,
            linkage=linkage,
            sum_of_squares=sum((Fraction(count, 12) ** 2 for count in counts), ZERO),
        )
        for counts in product(range(13), repeat=4)
        if sum(counts) == 12
    }
    worst = utility.worst_decoys_error(
        12,
        4,
        odds_against=HALF,
        mean=Fraction(3),
        variance=variance,
        gamma=gamma,
        linkage=linkage,
    )
    assert max(errors.values()) == worst
    uniform = errors[3, 3, 3, 3] == max(errors.values())
    assert uniform == (linkage == "aligned" or variance < 1)


def one_error(convert: Callable[[float], Number], linkage: LinkageMode, *numbers: float) -> Number:
    """Return the worst-case error, computed with one kind of numbers."""
    odds, mean, variance, gamma, noise = (convert(number) for number in numbers)
    return utility.worst_decoys_error(
        1000,
        7,
        odds_against=odds,
        mean=mean,
        variance=variance,
        gamma=gamma,
        linkage=linkage,
        published=noise,
    )


@given(st.floats(1e-3, 1e3), st.floats(0, 50), st.floats(0.01, 100), st.floats(1.01, 1e5))
def test_floats_and_fractions_agree(
    odds: float, mean: float, variance: float, gamma: float
) -> None:
    """The search runs on floats, and plans state the exact error."""
    for linkage in get_args(LinkageMode):
        numbers = (odds, mean, variance, gamma, 0.5)
        exact = one_error(Fraction, linkage, *numbers)
        assert isinstance(exact, Fraction)
        assert one_error(float, linkage, *numbers) == pytest.approx(float(exact), rel=1e-9)


def test_without_a_channel_the_error_is_the_formula_of_the_derivation() -> None:
    """(1 − 1/N)[1/(nqη) + N(1 + qη)²/((1 − q)²qn²η²)] for the geometric law."""
    n, cells, epsilon, q = 45222, 24, 0.5, 0.852
    eta = math.expm1(epsilon)
    coins, noise = (
        1 / (n * q * eta),
        cells * (1 + q * eta) ** 2 / ((1 - q) ** 2 * q * (n * eta) ** 2),
    )
    found = utility.worst_decoys_error(
        n,
        cells,
        odds_against=1 / (q * eta),
        mean=q / (1 - q),
        variance=q / (1 - q) ** 2,
        gamma=None,
        linkage="aligned",
    )
    assert found == pytest.approx((1 - 1 / cells) * (coins + noise), rel=1e-12)
    assert math.sqrt(coins + noise) == pytest.approx(0.00660, abs=5e-6)


def test_a_published_copys_noise_keeps_its_ratio() -> None:
    """The smallest r that is not below e^(−ε/2), in both readings of ε; its variance by summing."""
    for epsilon in (1e-12, 0.1, 0.5, 1.0, 50.0):
        threshold = privacy.publication_threshold(epsilon)
        above, below = Fraction(threshold, DRAW_RANGE), Fraction(threshold - 1, DRAW_RANGE)
        assert 1 / above**2 <= 1 + privacy.expm1_below(epsilon) < 1 / below**2
    ratio = Fraction(privacy.publication_threshold(1.0), DRAW_RANGE)
    assert float(ratio) == pytest.approx(math.exp(-0.5), rel=1e-15)
    terms = [float(ratio) ** z for z in range(400)]
    total = 2 * sum(terms) - 1
    variance = 2 * sum(z * z * term for z, term in enumerate(terms)) / total
    stated = utility.publication_variance(privacy.publication_threshold(1.0))
    assert float(stated) == pytest.approx(variance, rel=1e-9)


RUNS = 20_000
"""The standard error of a simulated RMSE is then about 0.2% here, and 1.5% is six of them."""


@pytest.mark.parametrize("linkage", ["aligned", "matched"])
@pytest.mark.parametrize(
    ("delta", "with_curator"), [(0.0, math.inf), (0.0, 3.0), (1e-6, math.inf), (1e-6, None)]
)
def test_simulated_releases_have_the_planned_error(
    linkage: LinkageMode, delta: float, with_curator: float | None
) -> None:
    """With a few cells and uniform data; in matched linkage n is not used."""
    n, cells = 6_000, 6
    chosen = plan(
        population_size=n,
        domain_size=cells,
        epsilon=0.5,
        delta=delta,
        mechanism="decoys",
        linkage=linkage,
        epsilon_with_curator=with_curator,
    )
    counts = simulated_tables(chosen, np.full(cells, n // cells))
    law = chosen.mechanism.decoys
    assert law is not None
    keep = chosen.keep_probability or 1.0
    rows = counts.sum(axis=1, keepdims=True)
    g = (counts - (1 - keep) * rows / cells) / keep - float(law.mean)
    if linkage == "aligned":
        sampled = n * float(chosen.coin_probability or 0)
        shares = g / sampled + (1 - g.sum(axis=1, keepdims=True) / sampled) / cells
    else:
        shares = g / g.sum(axis=1, keepdims=True)
    rmse = math.sqrt(((shares - 1 / cells) ** 2).sum(axis=1).mean())
    uniform = utility.decoys_squared_error(
        n,
        cells,
        odds_against=1 / float(chosen.coin_probability or 0) - 1,
        mean=float(law.mean),
        variance=float(law.variance),
        gamma=chosen.gamma,
        linkage=linkage,
        sum_of_squares=1 / cells,
    )
    assert rmse == pytest.approx(math.sqrt(uniform), rel=0.015)


def simulated_tables(chosen: Plan, held: np.ndarray) -> np.ndarray:
    """Draw tables of counts with an ordinary generator, by nothing but the mechanism's meaning."""
    generator = np.random.default_rng(11)
    law, shape = chosen.mechanism.decoys, (RUNS, held.size)
    if isinstance(law, WeightTable):
        chances = np.array(law.weights, dtype=float)
        decoys = generator.choice(len(law.weights), size=shape, p=chances / chances.sum())
    else:
        assert law is not None
        decoys = generator.geometric(1 - float(law.ratio), size=shape) - 1
    rows = generator.binomial(held, chosen.coin_probability or 0, size=shape) + decoys
    if chosen.keep_probability is None:
        return rows
    kept = generator.binomial(rows, chosen.keep_probability)
    replaced = (rows - kept).sum(axis=1)
    released: np.ndarray = kept + generator.multinomial(replaced, np.full(held.size, 1 / held.size))
    return released
