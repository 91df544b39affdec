"""The data of the experiments: the paper's three shapes, as whole counts with exact sums."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veiltab.core.channel import MAX_ESTIMATED_CELLS
from veiltab.core.resampling import apportion
from veiltab.data.counts import CARDINALITIES, adult_table
from veiltab.errors import ParameterError
from veiltab.paper.experiment import DISTRIBUTIONS, anonymous_schema, distribution_table

SHAPES = ("uniform", "linear", "peaky")


def exact_shares(name: str, cells: int) -> list[Fraction]:
    """Return the paper's shapes in exact numbers."""
    if name == "uniform":
        return [Fraction(1, cells)] * cells
    if name == "linear":
        total = cells * (cells + 1) // 2
        return [Fraction(cell, total) for cell in range(1, cells + 1)]
    return [Fraction(9, 10), *[Fraction(1, 10 * (cells - 1))] * (cells - 1)]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("cells", [2, 3, 24, 97, 768])
@pytest.mark.parametrize("population", [1, 10, 1001, 45_222, 999_999_999])
def test_the_shapes(name: str, cells: int, population: int) -> None:
    """Counts sum to the population, and each is its exact share rounded up or down."""
    table = distribution_table(name, cells, population)
    assert table.schema.domain_size == table.counts.size == cells
    assert table.population_size == population
    for count, share in zip(table.counts.tolist(), exact_shares(name, cells), strict=True):
        assert abs(count - share * population) < 1


@pytest.mark.parametrize("cells", CARDINALITIES)
def test_peaky_data_have_one_cell_of_nine_tenths(cells: int) -> None:
    """And the rest is spread evenly over all the others."""
    counts = np.sort(distribution_table("peaky", cells).counts)
    assert counts[-1] in (40_699, 40_700)
    assert counts[-2] - counts[0] <= 1


def test_linear_data_rise_evenly() -> None:
    """The last cell has as many times the first one's share as there are cells."""
    counts = distribution_table("linear", 10, 5500).counts
    assert counts.tolist() == [100 * cell for cell in range(1, 11)]


def test_synthetic_data_have_the_adult_population_by_default() -> None:
    """So that the figures compare like with like."""
    assert {distribution_table(name, 24).population_size for name in DISTRIBUTIONS} == {45_222}


def test_adult_is_the_built_in_table() -> None:
    """With the population left out or stated rightly."""
    for population in (None, 45_222):
        table = distribution_table("adult", 48, population)
        np.testing.assert_array_equal(table.counts, adult_table(48).counts)


@pytest.mark.parametrize(
    ("name", "cells", "population", "message"),
    [
        ("adult", 24, 45_221, "has 45222 respondents, not 45221"),
        ("adult", 24, 0, "has 45222 respondents, not 0"),
        ("adult", 25, None, "no version with 25 cells"),
        ("gaussian", 24, None, "no distribution 'gaussian'"),
        ("", 24, None, "no distribution ''"),
        ("uniform", 1, None, "number of cells"),
        ("uniform", 24, 0, "population"),
        ("uniform", 24, 2**53 + 1, "population"),
        ("uniform", MAX_ESTIMATED_CELLS + 1, None, "too many to simulate"),
    ],
)
def test_data_that_do_not_exist_are_refused(
    name: str, cells: int, population: int | None, message: str
) -> None:
    """Names, cells and populations that no table has."""
    with pytest.raises(ParameterError, match=message):
        distribution_table(name, cells, population)


@given(
    weights=st.lists(st.integers(0, 1000), min_size=1, max_size=30).filter(any),
    population=st.integers(1, 10**9),
)
def test_apportionment_stays_within_one_of_each_share(weights: list[int], population: int) -> None:
    """Sums are exact, and every count is its share rounded down or up."""
    counts = apportion(np.array(weights, dtype=np.float64), population)
    assert int(counts.sum()) == population
    for count, weight in zip(counts.tolist(), weights, strict=True):
        share = Fraction(weight * population, sum(weights))
        assert abs(count - share) < 1 + Fraction(1, 10**6)


@given(
    weights=st.lists(st.floats(1e-9, 1), min_size=1, max_size=10),
    population=st.integers(2**53 - 1000, 2**53),
)
@settings(max_examples=300, deadline=None)
def test_the_largest_populations_keep_their_sum(weights: list[float], population: int) -> None:
    """Where floats no longer hold a fraction, the sum is exact all the same."""
    counts = apportion(np.array(weights), population)
    assert int(counts.sum()) == population
    assert counts.min() >= 0
    shares = np.array(weights) / sum(weights)
    np.testing.assert_allclose(counts / population, shares, rtol=1e-12, atol=1e-15)


def test_the_largest_remainders_are_rounded_up() -> None:
    """Seven respondents over shares 3.5, 2.1 and 1.4: the half goes to the first."""
    assert apportion(np.array([5.0, 3.0, 2.0]), 7).tolist() == [4, 2, 1]


@pytest.mark.parametrize(
    ("cells", "sizes"),
    [
        (2, (2,)),
        (65_535, (65_535,)),
        (65_536, (32_768, 2)),
        (2 * 65_521, (65_521, 2)),
        (10**7, (62_500, 160)),
    ],
)
def test_anonymous_schemas(cells: int, sizes: tuple[int, ...]) -> None:
    """One attribute where it can be, otherwise as few as have this many cells."""
    schema = anonymous_schema(cells)
    assert schema.sizes == sizes
    assert schema.domain_size == cells


@given(st.integers(2, MAX_ESTIMATED_CELLS))
@settings(max_examples=30, deadline=None)
def test_an_anonymous_schema_has_exactly_the_cells_asked_for(cells: int) -> None:
    """Or, with a prime factor beyond one attribute, it is refused."""
    try:
        schema = anonymous_schema(cells)
    except ParameterError:
        assert largest_prime_factor(cells) > 65_535
    else:
        assert schema.domain_size == cells


def largest_prime_factor(number: int) -> int:
    """Divide the small primes out one by one."""
    factor = 2
    while factor * factor <= number:
        if number % factor:
            factor += 1
        else:
            number //= factor
    return number


@pytest.mark.parametrize("cells", [65_537, 99_991, 9_999_991, 2 * 4_999_999])
def test_large_primes_cannot_be_arranged(cells: int) -> None:
    """No attribute has so many categories; the hint says what to do."""
    with pytest.raises(ParameterError, match=f"{cells} cells cannot be arranged") as caught:
        anonymous_schema(cells)
    assert "smaller factors" in caught.value.hint
