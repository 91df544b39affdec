"""Addition in Z_k, uniform elements, and Lemma 1: perturbing commutes with encryption."""

from collections import Counter
from fractions import Fraction
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.channels import gamma_channel
from tests.support.entropy import ScriptedEntropy
from tests.support.laws import assert_fits
from veiltab.core import group
from veiltab.core.schema import Attribute, Codes, Schema
from veiltab.crypto.entropy import CipherEntropy

GROUPS = [(2,), (3,), (4,), (5,), (2, 3), (3, 3), (2, 2, 2)]


def schema_of(sizes: tuple[int, ...]) -> Schema:
    """Return a schema whose attributes have the given numbers of categories."""
    return Schema(
        tuple(Attribute(f"a{i}", tuple(map(str, range(size)))) for i, size in enumerate(sizes))
    )


@pytest.mark.parametrize("sizes", GROUPS, ids=str)
def test_lemma_1(sizes: tuple[int, ...]) -> None:
    """Encrypt, perturb the ciphertext, decrypt: exactly the law A[·, x], for every record x.

    Every record, every pad and every noise is enumerated, with the package's own arithmetic.
    """
    law = _decrypted_law(sizes, group.subtract)
    channel = gamma_channel(prod(sizes), Fraction(7, 2))
    for cell, released in product(range(prod(sizes)), repeat=2):
        assert law[cell, released] == channel.probability(released=released, cell=cell)


def test_decrypting_by_addition_fails_in_z3() -> None:
    """The paper writes ⊕ for decryption too; with three categories that gives another law."""
    law = _decrypted_law((3,), group.add)
    channel = gamma_channel(3, Fraction(7, 2))
    assert law[0, 0] != channel.probability(released=0, cell=0)


def _decrypted_law(sizes: tuple[int, ...], decrypt: object) -> Counter[tuple[int, int]]:
    assert callable(decrypt)
    schema = schema_of(sizes)
    cells = schema.domain_size
    channel = gamma_channel(cells, Fraction(7, 2))
    chance = [channel.probability(released=noise, cell=0) / cells for noise in range(cells)]
    triples = np.array(list(product(range(cells), repeat=3)), dtype=np.int64)
    record, pad, noise = (schema.codes(column) for column in triples.T)
    columns = []
    for x, v, e, size in zip(record, pad, noise, sizes, strict=True):
        encrypted = group.add(x, v, size)
        perturbed = group.add(encrypted, e, size)
        columns.append(decrypt(perturbed, v, size))
    law: Counter[tuple[int, int]] = Counter()
    for (cell, _, drawn), released in zip(triples, schema.cells(columns), strict=True):
        law[int(cell), int(released)] += chance[drawn]
    return law


BORDERS = [127, 128, 129, 255, 256, 257, 32_767, 32_768, 32_769, 65_534, 65_535]
"""Where a code, or a sum of two codes, needs one more byte."""


def codes_type(size: int) -> type[np.uint8 | np.uint16]:
    """Return the type of a column of codes."""
    return np.uint8 if size <= 256 else np.uint16


def assert_arithmetic(left: Codes, right: Codes, size: int) -> None:
    """Compare sums and differences, new and in place, with plain remainders."""
    wide_left, wide_right = left.astype(np.int64), right.astype(np.int64)
    kept_left, kept_right = left.copy(), right.copy()
    for operation, expected in (
        (group.add, (wide_left + wide_right) % size),
        (group.subtract, (wide_left - wide_right) % size),
    ):
        found = operation(left, right, size)
        assert found.dtype == left.dtype
        assert np.array_equal(found, expected)
        assert np.array_equal(left, kept_left)
        assert np.array_equal(right, kept_right)
        own = np.empty_like(left)
        assert operation(left, right, size, out=own) is own
        assert np.array_equal(own, expected)
        onto_left, onto_right = left.copy(), right.copy()
        assert operation(onto_left, right, size, out=onto_left) is onto_left
        assert np.array_equal(onto_left, expected)
        assert operation(left, onto_right, size, out=onto_right) is onto_right
        assert np.array_equal(onto_right, expected)
        assert np.array_equal(left, kept_left)
        assert np.array_equal(right, kept_right)


@pytest.mark.parametrize("first", range(1, 301, 20))
def test_all_pairs_of_small_groups(first: int) -> None:
    """Every sum and every difference in Z_k for all k up to 300."""
    for size in range(first, first + 20):
        elements: Codes = np.arange(size).astype(codes_type(size))
        assert_arithmetic(np.repeat(elements, size), np.tile(elements, size), size)


@pytest.mark.parametrize("size", BORDERS)
def test_sums_at_the_borders_of_types(size: int) -> None:
    """All pairs of codes beside 0, k/2 and k: sums of k − 1, k and 2k − 2 do not wrap wrongly."""
    near = {place + step for place in (0, size // 2, size) for step in range(-3, 4)}
    few: Codes = np.array(sorted(code for code in near if 0 <= code < size)).astype(
        codes_type(size)
    )
    assert_arithmetic(np.repeat(few, few.size), np.tile(few, few.size), size)
    every: Codes = np.arange(size).astype(codes_type(size))
    assert_arithmetic(every, every[::-1].copy(), size)
    assert_arithmetic(every, every, size)


@pytest.mark.parametrize("size", [2, 128, 129, 200, 256])
def test_columns_may_have_wider_types_than_they_need(size: int) -> None:
    """Codes of two bytes in a small group, of which one may have one byte, and wide results."""
    every = np.arange(size, dtype=np.uint16)
    narrow = every[::-1].astype(np.uint8)
    for left, right in ((every, narrow), (narrow, every), (every, every)):
        total = (left.astype(np.int64) + right) % size
        assert np.array_equal(group.add(left, right, size), total)
        for dtype in (np.uint8, np.uint16):
            own: Codes = np.empty(size, dtype=dtype)
            group.add(left, right, size, out=own)
            assert np.array_equal(own, total)
            group.subtract(own, right, size, out=own)
            assert np.array_equal(own, left)


def test_empty_columns_have_empty_sums() -> None:
    """No rows is no special case."""
    for size in (1, 200, 40_000):
        none: Codes = np.empty(0, dtype=codes_type(size))
        assert group.add(none, none, size).size == 0
        assert group.subtract(none, none, size, out=none).size == 0


@given(
    size=st.integers(1, 65_535),
    values=st.lists(st.tuples(st.integers(0, 65_534), st.integers(0, 65_534)), max_size=20),
)
def test_subtracting_undoes_adding(size: int, values: list[tuple[int, int]]) -> None:
    """Decryption inverts encryption in every group, for both widths of codes."""
    dtype = codes_type(size)
    left: Codes = np.array([a % size for a, _ in values]).astype(dtype)
    right: Codes = np.array([b % size for _, b in values]).astype(dtype)
    total = group.add(left, right, size)
    assert total.dtype == dtype
    assert total.tolist() == [(a % size + b % size) % size for a, b in values]
    assert group.subtract(total, right, size).tolist() == left.tolist()


@pytest.mark.parametrize("size", [1, 2, 3, 24, 257])
def test_uniform_elements_are_uniform(size: int) -> None:
    """Chi-square over all elements, 1e-9 false alarms."""
    drawn = group.draw_uniform(size, 2000 * size, CipherEntropy.from_seed(size, "uniform"))
    if size > 1:
        assert_fits(np.bincount(drawn, minlength=size), np.full(size, 1 / size))
    assert drawn.max() == size - 1


def test_uneven_words_are_rejected() -> None:
    """The words beyond the last whole multiple of k are drawn again, so that no bias is left."""
    last_good = (2**32 // 3) * 3 - 1
    words = [last_good, last_good + 1, 5]
    script = b"".join(word.to_bytes(4, "little") for word in words)
    entropy = ScriptedEntropy(script)
    assert group.draw_uniform(3, 2, entropy).tolist() == [2, 2]
    assert entropy.used == 12
