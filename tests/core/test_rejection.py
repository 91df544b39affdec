"""Finding the few large values: the same places as a plain search, for any number of values."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from veiltab.crypto.pads import places_from

COUNTS = [0, 1, 31, 32, 33, 1000]
COUNTS += [65_504, 65_535, 65_536, 65_537, 65_567, 65_568, 65_600, 131_072, 262_144, 262_175]
"""Around where the search by columns begins, and not only multiples of its 32 rows."""


def values_of(count: int, dtype: str, seed: int) -> NDArray[np.unsignedinteger[Any]]:
    """Draw repeatable values; test data, not secrets."""
    source = np.random.default_rng([seed, count])
    return source.integers(0, np.iinfo(dtype).max, count, dtype=dtype, endpoint=True)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["u2", "u4"])
@pytest.mark.parametrize("count", COUNTS)
def test_the_places_are_those_of_a_plain_search(count: int, dtype: str) -> None:
    """No value, few of them, many of them, and all, in ascending order."""
    values, top = values_of(count, dtype, 1), int(np.iinfo(dtype).max)
    for limit in (0, 1, top // 2, top - top // 300, top - 3, top):
        before = values.copy()
        found = places_from(values, limit)
        assert found.tolist() == np.flatnonzero(values >= limit).tolist()
        assert (values == before).all()


@pytest.mark.parametrize("count", [65_535, 65_536, 65_545, 70_001])
def test_single_places_are_found_at_every_end(count: int) -> None:
    """One value that is exactly the limit, first, last, and beside the rows of the table."""
    row = count // 32
    for place in {0, 1, row - 1, row, row + 1, 32 * row - 1, min(32 * row, count - 1), count - 1}:
        values = np.full(count, 41, dtype=np.uint16)
        values[place] = 42
        assert places_from(values, 42).tolist() == [place]
        assert places_from(values, 43).tolist() == []


@settings(max_examples=100, deadline=None)
@given(
    count=st.integers(65_400, 66_000) | st.integers(0, 200),
    places=st.lists(st.integers(0, 65_999), max_size=30),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_places_are_found_in_order(count: int, places: list[int], seed: int) -> None:
    """Values below the limit, with some above it at places that are given."""
    values = np.random.default_rng(seed).integers(0, 60_000, count, dtype=np.uint16)
    wanted = sorted({place for place in places if place < count})
    values[wanted] = 60_000 + np.arange(len(wanted))
    assert places_from(values, 60_000).tolist() == wanted
