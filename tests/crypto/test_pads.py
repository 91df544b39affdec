"""Pads: the specification's map record by record, exact uniformity, and random access."""

from collections import Counter
from collections.abc import Iterator
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.scripted import ScriptedEntropy
from tests.support.statistics import assert_fits
from veiltab.crypto import pads
from veiltab.crypto.derivation import pad_key
from veiltab.crypto.entropy import CipherEntropy, SystemEntropy
from veiltab.errors import ParameterError

KEY = bytes(range(32))
SIZES = [1, 2, 3, 7, 16, 17, 200, 256, 257, 1000, 65535]
CHUNK = 65_536
WIDE_REFUSED = 65_175
"""So many categories refuse the most of the 2^32 words: about one in 65,900."""


def words_of(key: bytes, chunk: int, stream: int, width: int, limit: int) -> Iterator[int]:
    """Yield the words of one keystream, as section 6 says."""
    counter = chunk.to_bytes(8, "big") + bytes([stream]) + bytes(7)
    raw = Cipher(AES256(key), CTR(counter)).encryptor().update(bytes(limit * width // 8))
    for start in range(0, len(raw), width // 8):
        yield int.from_bytes(raw[start : start + width // 8], "little")


def elements_of(word: int, size: int) -> tuple[int, ...] | None:
    """Return what a word stands for by the table of section 6; None if it is refused."""
    if size <= 16:
        x = word * size
        y = (x % 2**16) * size
        return None if y % 2**16 < 2**16 % size**2 else (x >> 16, y >> 16)
    width = 16 if size <= 256 else 32
    x = word * size
    return None if x % 2**width < 2**width % size else (x >> width,)


@cache
def reference(key: bytes, size: int, chunk: int) -> tuple[list[int], int, int]:
    """Return a whole chunk, word by word, and how many main and refill words were refused."""
    if size == 1:
        return [0] * CHUNK, 0, 0
    width = 16 if size <= 256 else 32
    refill = words_of(key, chunk, 1, width, 2_000)
    elements: list[int] = []
    refused_main = refused_refill = 0
    for word in words_of(key, chunk, 0, width, CHUNK // 2 if size <= 16 else CHUNK):
        found = elements_of(word, size)
        refused_main += found is None
        while found is None:
            found = elements_of(next(refill), size)
            refused_refill += found is None
        elements.extend(found)
    return elements, refused_main, refused_refill


@pytest.mark.parametrize("size", SIZES)
def test_stream_pads_are_those_of_the_specification(size: int) -> None:
    """Two chunks and a bit, against the specification followed record by record."""
    expected = [element for chunk in range(2) for element in reference(KEY, size, chunk)[0]]
    expected += reference(KEY, size, 2)[0][:5]
    pad = pads.stream_pad(KEY, size, 0, 2 * CHUNK + 5)
    assert pad.dtype == (np.uint8 if size <= 256 else np.uint16)
    assert pad.tolist() == expected


@pytest.mark.parametrize("size", [3, 7, 200, WIDE_REFUSED])
def test_refused_words_are_replaced_in_order(size: int) -> None:
    """Chunks in which words are refused, and for small sizes refill words are refused as well."""
    chunks = [chunk for chunk in range(20) if reference(KEY, size, chunk)[1]]
    assert chunks, "no chunk refuses a word: the test would prove nothing"
    if size == 200:
        assert any(reference(KEY, size, chunk)[2] for chunk in chunks)
    for chunk in chunks:
        pad = pads.stream_pad(KEY, size, chunk * CHUNK, CHUNK)
        assert pad.tolist() == reference(KEY, size, chunk)[0]


def test_the_refill_may_come_in_any_number_of_parts() -> None:
    """With no word to spare, every refused refill word makes one more reading necessary."""
    chunk = next(chunk for chunk in range(20) if reference(KEY, 200, chunk)[2])
    with patch.object(pads, "_SPARE_WORDS", 0):
        pad = pads.stream_pad(KEY, 200, chunk * CHUNK, CHUNK)
    assert pad.tolist() == reference(KEY, 200, chunk)[0]


@pytest.mark.parametrize("size", range(2, 257))
def test_16_bit_words_are_mapped_exactly_uniformly(size: int) -> None:
    """All 2^16 words: each outcome (each pair of elements) has equally many accepted words."""
    words = np.arange(2**16, dtype=np.uint16)
    entries, refused = pads.map_words(words, size)
    outcomes = size**2 if size <= 16 else size
    assert refused.size == 2**16 % outcomes
    counts = Counter(np.delete(entries, refused).tolist())
    assert set(counts.values()) == {2**16 // outcomes}
    if size <= 16:
        assert set(counts) == {a + 256 * b for a in range(size) for b in range(size)}
    else:
        assert set(counts) == set(range(size))


@pytest.mark.parametrize("size", [257, 1000, 4096, WIDE_REFUSED, 65_535])
def test_32_bit_words_are_mapped_exactly_uniformly(size: int) -> None:
    """Element a is the words from ⌈a·2^32/k⌉ to the next such bound, less a refused first one."""
    bounds = [-(-a * 2**32 // size) for a in range(size + 1)]
    firsts = np.array(bounds[:-1], dtype=np.uint32)
    lasts = np.array([bound - 1 for bound in bounds[1:]], dtype=np.uint32)
    entries, refused = pads.map_words(firsts, size)
    assert entries.tolist() == list(range(size))
    for inner in (firsts + np.uint32(1), lasts):
        entries, none = pads.map_words(inner, size)
        assert entries.tolist() == list(range(size))
        assert not none.size
    accepted = np.diff(bounds)
    accepted[refused] -= 1
    assert set(accepted.tolist()) == {2**32 // size}


@pytest.mark.parametrize("size", [2, 3, 16, 17, 200, 257, 1000])
def test_pads_are_uniform(size: int) -> None:
    """Chi-square over a million elements of the stream, and over one-time pads."""
    flat = np.full(size, 1 / size)
    stream = pads.stream_pad(KEY, size, 12_345, 1_000_000)
    assert_fits(np.bincount(stream, minlength=size), flat)
    once = pads.one_time_pad(size, 200_000, CipherEntropy.from_seed(size, "one-time"))
    assert_fits(np.bincount(once, minlength=size), flat)


@pytest.mark.parametrize("size", [2, 3, 7])
def test_the_two_elements_of_a_word_are_independent(size: int) -> None:
    """Neighbouring rows share a word; their pairs must be uniform over Z_k × Z_k."""
    pairs = pads.stream_pad(KEY, size, 0, 1_000_000).reshape(-1, 2).astype(np.int64)
    counts = np.bincount(pairs[:, 0] * size + pairs[:, 1], minlength=size**2)
    assert_fits(counts, np.full(size**2, 1 / size**2))


@settings(max_examples=60, deadline=None)
@given(
    size=st.sampled_from([1, 3, 16, 200, 1000]),
    start=st.integers(0, 3 * CHUNK) | st.sampled_from([CHUNK - 1, CHUNK, CHUNK + 1]),
    count=st.integers(0, 2 * CHUNK) | st.integers(0, 3),
)
def test_any_range_is_part_of_the_whole(size: int, start: int, count: int) -> None:
    """Random access gives what reading from the start gives, across chunks and odd rows."""
    part = pads.stream_pad(KEY, size, start, count)
    assert part.tobytes() == _whole(size)[start : start + count].tobytes()


@settings(max_examples=60, deadline=None)
@given(
    size=st.sampled_from([1, 3, 16, 200, 1000]),
    positions=st.lists(st.integers(0, 5 * CHUNK - 1), max_size=50),
)
def test_any_positions_are_part_of_the_whole(size: int, positions: list[int]) -> None:
    """Arbitrary rows, in any order and repeated, each get their own element."""
    found = pads.stream_pad_at(KEY, size, np.array(positions, dtype=np.int64))
    assert found.dtype == _whole(size).dtype
    assert found.tolist() == _whole(size)[positions].tolist()


def test_each_chunk_is_visited_once() -> None:
    """Positions that jump between chunks do not make a chunk be computed again."""
    positions = np.arange(0, 3 * CHUNK, 100, dtype=np.int64)
    positions = positions[np.argsort(positions % 7, kind="stable")]
    with patch.object(pads._Stream, "head", autospec=True, side_effect=pads._Stream.head) as head:
        pads.stream_pad_at(KEY, 5, positions)
    assert [call.args[1] for call in head.call_args_list] == [0, 1, 2]


def test_rows_far_away_have_pads_too() -> None:
    """The last rows below 2^48, and a chunk number of more than 32 bits."""
    start = 2**48 - CHUNK
    expected = reference(KEY, 200, 2**32 - 1)[0]
    assert pads.stream_pad(KEY, 200, start + 10, 20).tolist() == expected[10:30]
    positions = np.array([2**48 - 1, 0, start], dtype=np.int64)
    near = reference(KEY, 200, 0)[0]
    found = pads.stream_pad_at(KEY, 200, positions)
    assert found.tolist() == [expected[-1], near[0], expected[0]]


@pytest.mark.parametrize(
    ("upload", "index", "scope"),
    [(b"\x00" * 16, 1, b"s" * 32), (b"\x01" * 16, 0, b"s" * 32), (b"\x00" * 16, 0, b"t" * 32)],
    ids=["attribute", "upload", "study"],
)
def test_attributes_uploads_and_studies_have_unrelated_pads(
    upload: bytes, index: int, scope: bytes
) -> None:
    """The difference of two pads, all that a server could cancel, is uniform."""
    first = pads.stream_pad(pad_key(KEY, b"s" * 32, bytes(16), 0), 16, 0, 200_000)
    other = pads.stream_pad(pad_key(KEY, scope, upload, index), 16, 0, 200_000)
    assert_fits(np.bincount((first - other) % 16, minlength=16), np.full(16, 1 / 16))


def test_chunks_have_unrelated_pads() -> None:
    """No chunk repeats another: neither the same, nor main as refill."""
    heads = {pads.stream_pad(KEY, 256, chunk * CHUNK, 64).tobytes() for chunk in range(50)}
    assert len(heads) == 50


def test_one_time_pads_reject_what_would_bias_them() -> None:
    """Of 2^32 words the last 2^32 mod 200 = 96 are thrown away, and another word is read."""
    script = b"".join(
        word.to_bytes(4, "little") for word in (2**32 - 1, 205, 2**32 - 96, 2**32 - 97, 7)
    )
    entropy = ScriptedEntropy(script)
    assert pads.one_time_pad(200, 3, entropy).tolist() == [5, 199, 7]
    assert entropy.used == len(script)


def test_one_time_pads_have_the_codes_type_and_length() -> None:
    """Any number of rows, one byte a row as long as a byte suffices."""
    entropy = CipherEntropy.from_seed(1, "types")
    for size in SIZES:
        for count in (0, 1, CHUNK + 1):
            pad = pads.one_time_pad(size, count, entropy)
            assert pad.size == count
            assert pad.dtype == (np.uint8 if size <= 256 else np.uint16)
            assert not count or int(pad.max()) < size


def test_one_time_pads_of_the_system_never_repeat() -> None:
    """Two preparations share nothing."""
    first = pads.one_time_pad(256, 64, SystemEntropy())
    assert first.tobytes() != pads.one_time_pad(256, 64, SystemEntropy()).tobytes()


def test_what_has_no_pad_is_refused() -> None:
    """Sizes, rows and keys out of range are errors, not other pads."""
    for size in (0, -1, 65_536):
        with pytest.raises(ParameterError):
            pads.stream_pad(KEY, size, 0, 1)
        with pytest.raises(ParameterError):
            pads.one_time_pad(size, 1, SystemEntropy())
    for start, count in ((-1, 1), (0, -1)):
        with pytest.raises(ParameterError):
            pads.stream_pad(KEY, 2, start, count)
    with pytest.raises(ParameterError):
        pads.stream_pad_at(KEY, 2, np.array([3, -1], dtype=np.int64))
    for key in (b"", bytes(16), KEY.hex().encode()):
        with pytest.raises(ParameterError) as caught:
            pads.stream_pad(key, 2, 0, 1)
        assert KEY.hex() not in str(caught.value)


@cache
def _whole(size: int) -> np.ndarray[tuple[int], np.dtype[np.uint8 | np.uint16]]:
    return pads.stream_pad(KEY, size, 0, 5 * CHUNK)
