"""The built-in data set: its facts, and that every smaller table is a sum of the larger one."""

import csv
import io
from importlib.resources import files
from itertools import pairwise

import numpy as np
import pytest

from veiltab.data.counts import CARDINALITIES, adult_table
from veiltab.errors import ParameterError


@pytest.mark.parametrize("cells", CARDINALITIES)
def test_every_version_counts_all_respondents(cells: int) -> None:
    """45,222 records have no missing value, the paper's number, however they are divided."""
    table = adult_table(cells)
    assert table.schema.domain_size == table.counts.size == cells
    assert table.population_size == 45_222


def test_the_cardinalities_are_the_papers() -> None:
    """Twelve doubled six times."""
    assert tuple(12 * 2**k for k in range(7)) == CARDINALITIES


def test_the_papers_table_is_the_default() -> None:
    """Four attributes in 24 cells, with the ‖T‖² that fixes every exact error of the figures."""
    table = adult_table()
    assert [(a.name, a.categories) for a in table.schema.attributes] == [
        ("education", ("no college", "some college", "post-graduate degree")),
        ("marital", ("married", "single/divorced/widowed")),
        ("gender", ("male", "female")),
        ("salary", ("<=50K", ">50K")),
    ]
    assert table.sum_of_squares == pytest.approx(0.09645654, abs=5e-9)


def test_known_sums() -> None:
    """Facts about the 45,222 records that can be looked up: how many are rich, and how many men."""
    table = adult_table(24)
    assert table.marginal(["salary"]).counts.tolist() == [34_014, 11_208]
    assert table.marginal(["gender"]).counts.tolist() == [30_527, 14_695]


@pytest.mark.parametrize(("small", "large"), list(pairwise(CARDINALITIES)))
def test_each_table_is_a_marginal_of_the_next(small: int, large: int) -> None:
    """Summing over the last attribute gives the next smaller table, in the same order."""
    smaller, larger = adult_table(small), adult_table(large)
    assert larger.schema.names[:-1] == smaller.schema.names
    assert larger.schema.attributes[-1].size == 2
    summed = larger.counts.reshape(small, 2).sum(axis=1)
    np.testing.assert_array_equal(smaller.counts, summed)


def test_the_file_ships_with_the_package() -> None:
    """768 rows and nine attributes, found where the package is installed."""
    text = (files("veiltab.data") / "adult_joint_768.csv").read_text(encoding="utf-8")
    header, *rows = csv.reader(io.StringIO(text))
    assert len(header) == 10
    assert header[-1] == "count"
    assert len(rows) == 768
    assert sum(int(row[-1]) for row in rows) == 45_222


@pytest.mark.parametrize("cells", [-24, 0, 1, 6, 25, 1536])
def test_other_cardinalities_are_refused(cells: int) -> None:
    """The hint lists the ones there are."""
    with pytest.raises(ParameterError, match=f"no version with {cells} cells") as caught:
        adult_table(cells)
    assert caught.value.hint == "choose one of 12, 24, 48, 96, 192, 384, 768"
