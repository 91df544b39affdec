"""Cells are mixed from codes, taken apart again, and counted as a plain count would."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veiltab.core import group
from veiltab.core.schema import BLOCK_RECORDS, count_cells, mix, unmix

SIZES = st.lists(st.sampled_from([1, 2, 3, 4, 7, 16, 255, 256, 257, 1000]), min_size=1, max_size=4)


@given(SIZES, st.integers(0, 50), st.integers(0, 2**32))
@settings(deadline=None)
def test_mixing_is_mixed_radix_and_can_be_undone(sizes: list[int], rows: int, seed: int) -> None:
    """The first attribute counts most, whatever the sizes; every code comes back."""
    generator = np.random.default_rng(seed)
    codes = [generator.integers(0, size, rows).astype(np.uint16) for size in sizes]
    cells = mix(sizes, codes)
    expected = [0] * rows
    for size, column in zip(sizes, codes, strict=True):
        expected = [cell * size + int(code) for cell, code in zip(expected, column, strict=True)]
    assert cells.tolist() == expected
    assert cells.dtype == np.min_scalar_type(math.prod(sizes) - 1)
    back = unmix(sizes, cells)
    assert [column.tolist() for column in back] == [column.tolist() for column in codes]
    assert cells.tolist() == expected, "what is taken apart stays as it is"


@pytest.mark.parametrize("sizes", [(256,), (1, 256), (256, 1), (1, 1, 256, 1), (16, 16)])
def test_sizes_that_fill_a_byte(sizes: tuple[int, ...]) -> None:
    """256 does not fit into the byte that a code and a cell have."""
    cells = np.arange(256)
    codes = unmix(sizes, cells)
    assert mix(sizes, codes).tolist() == cells.tolist()


@pytest.mark.parametrize(
    "sizes", [(24,), (4, 6), (1, 24), (6, 4, 1), (255,), (256,), (16, 16), (129, 3), (65_535, 2)]
)
def test_a_cell_beyond_the_last_is_the_first_one_again(sizes: tuple[int, ...]) -> None:
    """The noise of a kept record may be N: whatever it is added to stays as it is."""
    beyond = math.prod(sizes)
    parts = unmix(sizes, np.full(3, beyond, dtype=np.min_scalar_type(beyond)))
    for size, part in zip(sizes, parts, strict=True):
        codes = np.array([0, size // 2, size - 1]).astype(part.dtype)
        assert group.add(codes, part, size).tolist() == codes.tolist()


@pytest.mark.parametrize("size", [1, 2, 7, 8, 9, 24, 255, 256, 257, 5000])
@pytest.mark.parametrize("rows", [0, 1, 2, 3, 5, 1001, BLOCK_RECORDS + 3])
def test_counts_are_those_of_a_plain_count(size: int, rows: int) -> None:
    """By fours, by twos and one by one, with whatever is left over at the end."""
    cells = np.random.default_rng(size).integers(0, size, rows).astype(np.min_scalar_type(size - 1))
    assert count_cells(cells, size).tolist() == np.bincount(cells, minlength=size).tolist()


def test_counts_of_one_cell() -> None:
    """All records alike: no count overflows where they are counted by fours."""
    cells = np.full(4 * BLOCK_RECORDS + 1, 7, dtype=np.uint8)
    assert count_cells(cells, 8).tolist() == [0] * 7 + [4 * BLOCK_RECORDS + 1]
