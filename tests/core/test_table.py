"""Joint tables of counts: shares, and sums over attributes by brute force."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veiltab.core.schema import Attribute, CountTable, Schema
from veiltab.errors import SchemaError


def table_of(counts: list[int], *sizes: int) -> CountTable:
    """Return a table over attributes a, b, c … of the given sizes."""
    attributes = [
        Attribute(name, [f"{name}{code}" for code in range(size)])
        for name, size in zip("abcdefgh", sizes, strict=False)
    ]
    return CountTable(Schema(attributes), np.array(counts, dtype=np.int64))


@st.composite
def tables(draw: st.DrawFn) -> CountTable:
    """Draw a table of one to four attributes with at least one respondent."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    cells = int(np.prod(sizes))
    counts = draw(st.lists(st.integers(0, 10**6), min_size=cells, max_size=cells).filter(any))
    return table_of(counts, *sizes)


def brute_force(table: CountTable, names: list[str]) -> dict[tuple[str, ...], int]:
    """Sum the counts cell by cell, keyed by the categories that stay."""
    sums: dict[tuple[str, ...], int] = {}
    for cell, count in enumerate(table.counts.tolist()):
        labels = dict(zip(table.schema.names, table.schema.labels(cell), strict=True))
        key = tuple(labels[name] for name in names)
        sums[key] = sums.get(key, 0) + count
    return sums


@given(st.data())
@settings(deadline=None)
def test_any_marginal_in_any_order(data: st.DataObject) -> None:
    """Every cell of the marginal is the sum of the joint cells that share its categories."""
    table = data.draw(tables())
    order = data.draw(st.permutations(table.schema.names))
    names = order[: data.draw(st.integers(1, len(order)))]
    marginal = table.marginal(names)
    assert marginal.schema == table.schema.subset(names)
    categories = [attribute.categories for attribute in marginal.schema.attributes]
    found = dict(zip(product(*categories), marginal.counts.tolist(), strict=True))
    assert found == brute_force(table, names)


@given(st.data())
@settings(deadline=None)
def test_marginals_of_marginals(data: st.DataObject) -> None:
    """Summing in two steps gives what summing at once gives."""
    table = data.draw(tables())
    first = data.draw(st.permutations(table.schema.names))
    then = first[: data.draw(st.integers(1, len(first)))]
    in_steps = table.marginal(first).marginal(then)
    np.testing.assert_array_equal(in_steps.counts, table.marginal(then).counts)


def test_a_transposed_table() -> None:
    """The new first attribute varies slowest; the counts of the original are left alone."""
    table = table_of([1, 2, 3, 4, 5, 6], 2, 3)
    assert table.marginal(["b", "a"]).counts.tolist() == [1, 4, 2, 5, 3, 6]
    assert table.counts.tolist() == [1, 2, 3, 4, 5, 6]


@given(tables())
@settings(deadline=None)
def test_the_distribution_is_each_cells_share(table: CountTable) -> None:
    """Shares are counts over the population, and sum to one."""
    total = sum(table.counts.tolist())
    assert table.population_size == total
    exact = [Fraction(count, total) for count in table.counts.tolist()]
    np.testing.assert_allclose(table.distribution, [float(share) for share in exact], rtol=1e-15)
    assert table.distribution.sum() == pytest.approx(1, abs=1e-12)
    assert table.sum_of_squares == pytest.approx(float(sum(s * s for s in exact)), rel=1e-12)


@pytest.mark.parametrize(
    ("counts", "squares"), [([5, 5, 5, 5], 0.25), ([7, 0, 0, 0], 1.0), ([3, 1, 0, 0], 0.625)]
)
def test_the_sum_of_squares_measures_concentration(counts: list[int], squares: float) -> None:
    """From 1/N for uniform data to 1 where everybody is alike."""
    assert table_of(counts, 4).sum_of_squares == squares


def test_huge_populations_are_counted_exactly() -> None:
    """2^53 respondents and more than a float could hold apart."""
    assert table_of([2**53 - 1, 2], 2).population_size == 2**53 + 1


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "z"], "no attribute 'z'"),
        (["a", "a"], "lists the attribute 'a' 2 times"),
        ([], "no attributes"),
    ],
)
def test_marginals_that_do_not_exist_are_refused(names: list[str], message: str) -> None:
    """An unknown attribute, one that is named twice, or none at all."""
    with pytest.raises(SchemaError, match=message):
        table_of([1, 2, 3, 4], 2, 2).marginal(names)
