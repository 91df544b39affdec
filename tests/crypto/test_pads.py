"""Stream pads: the specification's map element by element, and random access."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import for_each
from tests.support.laws import assert_fits
from veiltab.core.schema import Codes
from veiltab.crypto import pads
from veiltab.crypto.derivation import pad_key
from veiltab.errors import ParameterError

KEY = bytes(range(32))
SIZES = [1, 2, 3, 7, 13, 16, 17, 128, 129, 200, 241, 255, 256, 257, 1000, 32_769, 65_535]
SPAN = 262_144
RANGES = [
    *[
        (0, 0),
        (0, 1),
        (0, 5000),
        (1, 1),
        (1, 32),
        (3, 8),
        (7, 2),
        (8, 8),
        (15, 1),
        (15, 2),
        (16, 17),
    ],
    *[(SPAN - 9, 20), (SPAN - 1, 1), (SPAN + 1, 40), (2**47 + 5, 33), (2**48 - 7, 7)],
]
"""First rows and numbers of rows."""

WIDE_REFUSED = 65_175
"""So many categories refuse the most of the 2^32 words: about one in 65,900."""


@cache
def block_of(key: bytes) -> Callable[[int, int], bytes]:
    """Return block (s, j) of section 6: AES-256 of u64(s) ‖ u64(j)."""
    encryptor = Cipher(AES256(key), ECB()).encryptor()  # noqa: S305 - the blocks of section 6
    return lambda s, j: encryptor.update(s.to_bytes(8, "big") + j.to_bytes(8, "big"))


def element(key: bytes, size: int, row: int) -> tuple[int, int]:
    """Return the element of a row by the table of section 6, and how many words were refused."""
    if size == 1:
        return 0, 0
    block = block_of(key)
    width = 16 if size <= 256 else 32
    outcomes = size**2 if size <= 16 else size
    each = 2**width // outcomes
    number = row // 2 if size <= 16 else row
    in_block = 128 // width
    place = number % in_block * width // 8
    data = block(0, number // in_block)[place : place + width // 8]
    spare = 0
    while int.from_bytes(data, "little") >= outcomes * each:
        spare += 1
        data = block(spare, number)[: width // 8]
    q = int.from_bytes(data, "little") // each
    if size > 16:
        return q, spare
    return (q // size if row % 2 else q % size), spare


def transcribed(key: bytes, size: int, start: int, count: int) -> list[int]:
    """Return the elements of some rows, one by one."""
    return [element(key, size, row)[0] for row in range(start, start + count)]


@for_each("size", SIZES)
@pytest.mark.parametrize(
    ("start", "count"),
    RANGES,
)
def test_stream_pads_are_those_of_the_specification(size: int, start: int, count: int) -> None:
    """Any start and any length, beside the ends of words, blocks and spans, and far away."""
    pad = pads.StreamPad(KEY, size).rows(start, count)
    assert pad.dtype == (np.uint8 if size <= 256 else np.uint16)
    assert pad.tolist() == transcribed(KEY, size, start, count)


@for_each("size", range(2, 301))
def test_every_small_size_follows_the_specification(size: int) -> None:
    """Rows from an odd start, and the same rows backwards, one by one."""
    expected = transcribed(KEY, size, 5, 60)
    assert pads.StreamPad(KEY, size).rows(5, 60).tolist() == expected
    backwards = np.arange(64, 4, -1)
    assert pads.StreamPad(KEY, size).at(backwards).tolist() == expected[::-1]


@pytest.mark.parametrize("size", [1, 3, 16, 200, 1000])
@pytest.mark.parametrize("start", [0, 5])
def test_long_pads_are_made_of_spans_without_a_seam(size: int, start: int) -> None:
    """Around each border between spans, wherever the first span began, elements are as fixed."""
    pad = pads.StreamPad(KEY, size).rows(start, 3 * SPAN + 11)
    for border in (SPAN, 2 * SPAN, 3 * SPAN):
        near = pad[border - 20 : border + 11].tolist()
        assert near == transcribed(KEY, size, start + border - 20, 31)


@pytest.mark.parametrize("size", [13, 200, 241, WIDE_REFUSED])
def test_refused_words_are_replaced_by_their_own_spares(size: int) -> None:
    """Every row whose word is refused, in a row and one by one; and none of its neighbours moves.

    Of words with the highest rates of refusal some are refused together with their first spare.
    """
    rows = 2_000_000 if size <= 256 else 1_000_000
    words = _words(size, rows)
    refused = np.flatnonzero(words >= _limit(size))
    assert refused.size >= 5, "no word is refused: the test would prove nothing"
    elements = 2 if size <= 16 else 1
    found = [element(KEY, size, int(number) * elements) for number in refused]
    if size <= 256:
        assert max(depth for _, depth in found) >= 2
    assert min(depth for _, depth in found) >= 1
    pad = pads.StreamPad(KEY, size).rows(0, rows)
    places = refused * elements
    assert pad[places].tolist() == [each for each, _ in found]
    around = (places[:, None] + np.arange(-2, 4)).reshape(-1)
    around = around[(around >= 0) & (around < rows)]
    assert pads.StreamPad(KEY, size).at(around).tolist() == pad[around].tolist()
    for row in around[:600].tolist():
        assert pad[row] == element(KEY, size, row)[0]


@for_each("size", range(2, 257))
def test_16_bit_words_are_mapped_exactly_uniformly(size: int) -> None:
    """All 2^16 words: each outcome (each pair of elements) has equally many accepted words."""
    entries, refused = pads.WordMap(size).entries(np.arange(2**16, dtype=np.uint16))
    outcomes = size**2 if size <= 16 else size
    assert refused.tolist() == list(range(2**16 - 2**16 % outcomes, 2**16))
    values, counts = np.unique(np.delete(entries, refused), return_counts=True)
    assert set(counts.tolist()) == {2**16 // outcomes}
    if size <= 16:
        assert values.tolist() == [a + 256 * b for b in range(size) for a in range(size)]
    else:
        assert values.tolist() == list(range(size))


@pytest.mark.parametrize("size", [257, 258, 1000, 4096, 32_768, 32_769, WIDE_REFUSED, 65_535])
def test_32_bit_words_are_mapped_exactly_uniformly(size: int) -> None:
    """Outcome q is the words from q·c to (q + 1)·c − 1: both ends of all, and what is refused.

    Division never falls as words grow, so the ends decide for all words between them.
    """
    each, words = 2**32 // size, pads.WordMap(size)
    for offset in (0, each - 1):
        ends = np.array([q * each + offset for q in range(size)], dtype=np.uint32)
        entries, refused = words.entries(ends)
        assert entries.tolist() == list(range(size))
        assert entries.dtype == np.uint16
        assert not refused.size
    left_over = np.arange(size * each, 2**32, dtype=np.uint64).astype(np.uint32)
    assert left_over.size == 2**32 % size
    assert words.entries(left_over)[1].tolist() == list(range(left_over.size))


@pytest.mark.parametrize("size", [2, 3, 16, 17, 200, 257, 1000])
def test_pads_are_uniform(size: int) -> None:
    """Chi-square over a million elements; 1e-9 false alarms."""
    stream = pads.StreamPad(KEY, size).rows(12_345, 1_000_000)
    assert_fits(np.bincount(stream, minlength=size), np.full(size, 1 / size))


@pytest.mark.parametrize("size", [2, 3, 7, 16])
@pytest.mark.parametrize("start", [0, 1])
def test_neighbours_are_independent(size: int, start: int) -> None:
    """Rows of one word, and of two words: their pairs are uniform over Z_k × Z_k (1e-9)."""
    pairs = pads.StreamPad(KEY, size).rows(start, 1_000_000).reshape(-1, 2).astype(np.int64)
    counts = np.bincount(pairs[:, 0] * size + pairs[:, 1], minlength=size**2)
    assert_fits(counts, np.full(size**2, 1 / size**2))


@settings(max_examples=60, deadline=None)
@given(
    size=st.sampled_from([1, 3, 16, 200, 1000]),
    start=st.integers(0, SPAN) | st.sampled_from([SPAN - 1, SPAN, SPAN + 1]),
    count=st.integers(0, SPAN + 9) | st.integers(0, 3),
)
def test_any_range_is_part_of_the_whole(size: int, start: int, count: int) -> None:
    """Random access gives what reading from the start gives, across spans and odd rows."""
    part = pads.StreamPad(KEY, size).rows(start, count)
    assert part.tobytes() == _whole(size)[start : start + count].tobytes()


@settings(max_examples=60, deadline=None)
@given(
    size=st.sampled_from([1, 3, 16, 200, 1000]),
    positions=st.lists(st.integers(0, 2 * SPAN + 9), max_size=50),
)
def test_any_positions_are_part_of_the_whole(size: int, positions: list[int]) -> None:
    """Arbitrary rows, in any order and repeated, each get their own element."""
    found = pads.StreamPad(KEY, size).at(np.array(positions, dtype=np.int64))
    assert found.dtype == _whole(size).dtype
    assert found.tolist() == _whole(size)[positions].tolist()


@pytest.mark.parametrize("size", [1, 3, 16, 200, 1000])
def test_many_scattered_rows(size: int) -> None:
    """More positions than are looked up at a time, and the last row that there can be."""
    positions = np.random.default_rng(size).integers(0, 2 * SPAN, 30_001)
    positions[-1] = 2**48 - 1
    found = pads.StreamPad(KEY, size).at(positions)
    assert found[:-1].tolist() == _whole(size)[positions[:-1]].tolist()
    assert found[-1] == element(KEY, size, 2**48 - 1)[0]


def test_a_pad_may_be_read_in_any_order() -> None:
    """One pad, asked again and again for rows before and after: it remembers no place."""
    for size in (1, 3, 200, 1000):
        pad = pads.StreamPad(KEY, size)
        for start, count in ((100, 50), (0, 8), (SPAN - 3, 77), (101, 1), (0, 0), (0, SPAN + 1)):
            found = pad.rows(start, count)
            assert found.tobytes() == _whole(size)[start : start + count].tobytes()
            assert pad.at(np.array([start])).tolist() == [int(_whole(size)[start])]


@pytest.mark.parametrize("size", [3, 200, 1000])
def test_threads_may_share_a_pad(size: int) -> None:
    """Rows that four threads ask for at once are the same as always."""
    pad, starts = pads.StreamPad(KEY, size), list(range(0, 2 * SPAN - 50_000, 9_973))
    with ThreadPoolExecutor(4) as threads:
        rows = threads.map(lambda start: pad.rows(start, 50_001), starts)
        places = threads.map(lambda start: pad.at(np.arange(start + 999, start, -1)), starts)
        for start, found, single in zip(starts, rows, places, strict=True):
            assert found.tobytes() == _whole(size)[start : start + 50_001].tobytes()
            assert single.tolist() == _whole(size)[start + 1 : start + 1000][::-1].tolist()


@pytest.mark.parametrize(
    ("upload", "index", "scope"),
    [(b"\x00" * 16, 1, b"s" * 32), (b"\x01" * 16, 0, b"s" * 32), (b"\x00" * 16, 0, b"t" * 32)],
    ids=["attribute", "upload", "study"],
)
def test_attributes_uploads_and_studies_have_unrelated_pads(
    upload: bytes, index: int, scope: bytes
) -> None:
    """The difference of two pads, all that a server could cancel, is uniform (1e-9)."""
    first = pads.StreamPad(pad_key(KEY, b"s" * 32, bytes(16), 0), 16).rows(0, 200_000)
    other = pads.StreamPad(pad_key(KEY, scope, upload, index), 16).rows(0, 200_000)
    assert_fits(np.bincount((first - other) % 16, minlength=16), np.full(16, 1 / 16))


def test_what_has_no_pad_is_refused() -> None:
    """Sizes, rows and keys out of range are errors, not other pads."""
    for size in (0, -1, 65_536):
        with pytest.raises(ParameterError):
            pads.StreamPad(KEY, size).rows(0, 1)
        with pytest.raises(ParameterError):
            pads.StreamPad(KEY, size).at(np.array([0]))
    for start, count in ((-1, 1), (0, -1)):
        with pytest.raises(ParameterError):
            pads.StreamPad(KEY, 2).rows(start, count)
    with pytest.raises(ParameterError):
        pads.StreamPad(KEY, 2).at(np.array([3, -1], dtype=np.int64))
    for key in (b"", bytes(16), KEY.hex().encode()):
        with pytest.raises(ParameterError) as caught:
            pads.StreamPad(key, 2).rows(0, 1)
        assert KEY.hex() not in str(caught.value)


@cache
def _whole(size: int) -> Codes:
    return pads.StreamPad(KEY, size).rows(0, 2 * SPAN + 10)


def _words(size: int, rows: int) -> np.ndarray[tuple[int], np.dtype[np.unsignedinteger]]:
    """Return the words of the first rows, from blocks (0, 0), (0, 1) and so on."""
    width = 2 if size <= 256 else 4
    count = rows // 2 if size <= 16 else rows
    numbers = np.zeros((-(-count * width // 16), 2), dtype=">u8")
    numbers[:, 1] = np.arange(len(numbers))
    raw = Cipher(AES256(KEY), ECB()).encryptor().update(numbers.tobytes())  # noqa: S305
    return np.frombuffer(raw, dtype=f"<u{width}")[:count]


def _limit(size: int) -> int:
    outcomes, words = (size**2 if size <= 16 else size), 2 ** (16 if size <= 256 else 32)
    return words - words % outcomes
