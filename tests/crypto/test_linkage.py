"""Tokens: CMAC in batches is CMAC; the order, the digest and the duplicates that follow."""

import hmac
from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.cmac import CMAC
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from veiltab.crypto import linkage
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import ParameterError

KEY = bytes(range(32))

# NIST SP 800-38B, examples for AES-256 (appendix D.3).
NIST_KEY = bytes.fromhex("603deb1015ca71be2b73aef0857d77811f352c073b6108d72d9810a30914dff4")
NIST_MESSAGE = bytes.fromhex(
    "6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51"
    "30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710"
)
NIST_ANSWERS = {
    0: "028962f61b7bf89efc6b551f4667d983",
    16: "28a7023f452e8f82bd4bf28d8c37c35c",
    40: "aaf3d8f1de5640c232f5b169b9c911e6",
    64: "e1992190549f6ed5696a2c056c315410",
}

some_tokens = st.lists(  # bytes from a small set, so that halves and whole tokens repeat
    st.tuples(st.sampled_from([b"\x00", b"\x7f", b"\x80", b"\xff"]), st.integers(0, 15)).map(
        lambda drawn: bytes(drawn[1]) + drawn[0] + bytes(15 - drawn[1])
    ),
    max_size=30,
)


def packed(messages: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the messages one after the other, and where each begins and ends."""
    offsets = np.cumsum([0, *map(len, messages)], dtype=np.int64)
    return np.frombuffer(b"".join(messages), dtype=np.uint8), offsets


def as_rows(tokens: list[bytes]) -> NDArray[np.uint8]:
    """Return tokens as an array of 16 bytes each."""
    return np.frombuffer(b"".join(tokens), dtype=np.uint8).reshape(-1, 16)


def cmac(key: bytes, message: bytes) -> bytes:
    """Return one token with the library's own CMAC."""
    mac = CMAC(AES256(key))
    mac.update(message)
    return mac.finalize()


def test_published_answers() -> None:
    """NIST's four examples, all in one batch."""
    found = linkage.tokens(NIST_KEY, *packed([NIST_MESSAGE[:size] for size in NIST_ANSWERS]))
    assert [row.tobytes().hex() for row in found] == list(NIST_ANSWERS.values())


@given(
    messages=st.lists(st.binary(max_size=100), max_size=12), key=st.binary(min_size=32, max_size=32)
)
def test_batches_are_cmac_one_by_one(messages: list[bytes], key: bytes) -> None:
    """Whatever the lengths and their mixture, within a batch and across batches."""
    with patch.object(linkage, "BATCH_ROWS", 5):
        found = linkage.tokens(key, *packed(messages))
    assert found.shape == (len(messages), 16)
    assert [row.tobytes() for row in found] == [cmac(key, message) for message in messages]


def test_every_length_alone_and_together() -> None:
    """Each length from 0 to 100, with neighbours whose bytes must not leak in."""
    messages = [bytes([size]) * size for size in range(101)]
    expected = [cmac(KEY, message) for message in messages]
    assert [row.tobytes() for row in linkage.tokens(KEY, *packed(messages))] == expected
    alone = [linkage.tokens(KEY, *packed([message]))[0].tobytes() for message in messages]
    assert alone == expected


def test_more_messages_than_a_batch() -> None:
    """The real batch size, crossed; the messages are the row numbers of linkage by rows."""
    messages = [str(row).encode() for row in range(linkage.BATCH_ROWS + 3)]
    found = linkage.tokens(KEY, *packed(messages))
    for row in (0, 1, linkage.BATCH_ROWS - 1, linkage.BATCH_ROWS, linkage.BATCH_ROWS + 2):
        assert found[row].tobytes() == cmac(KEY, messages[row])
    assert not linkage.repeats(found[linkage.token_order(found)]).any()


def test_messages_may_stand_inside_larger_data() -> None:
    """Offsets need not begin at 0 nor end at the end, as for one piece of a column."""
    data = np.frombuffer(b"beforefirstsecondafter", dtype=np.uint8)
    found = linkage.tokens(KEY, data, np.array([6, 11, 17]))
    assert [row.tobytes() for row in found] == [cmac(KEY, b"first"), cmac(KEY, b"second")]


def test_keys_separate_tokens() -> None:
    """In two studies a respondent's tokens have nothing in common."""
    data, offsets = packed([b"respondent"])
    assert linkage.tokens(KEY, data, offsets).tobytes() != (
        linkage.tokens(bytes(32), data, offsets).tobytes()
    )
    with pytest.raises(ParameterError):
        linkage.tokens(bytes(16), data, offsets)


@pytest.mark.parametrize("offsets", [[], [-1, 2], [0, 11], [0, 5, 3]], ids=str)
def test_offsets_outside_the_data_are_refused(offsets: list[int]) -> None:
    """Blocks are read through a window that checks nothing itself."""
    with pytest.raises(ParameterError):
        linkage.tokens(KEY, np.zeros(10, dtype=np.uint8), np.array(offsets, dtype=np.int64))


def test_other_types_are_refused() -> None:
    """Text of four bytes a character, or small offsets that could overflow, are not guessed at."""
    data, offsets = packed([b"respondent"])
    with pytest.raises(ParameterError):
        linkage.tokens(KEY, data.astype(np.uint32), offsets)
    with pytest.raises(ParameterError):
        linkage.tokens(KEY, data, offsets.astype(np.int32))
    with pytest.raises(ParameterError):
        linkage.token_order(np.zeros((2, 15), dtype=np.uint8))


@given(rows=some_tokens)
def test_the_order_is_that_of_byte_strings(rows: list[bytes]) -> None:
    """All 16 bytes count, the first one most, and none of them as a signed number."""
    order = linkage.token_order(as_rows(rows))
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(len(rows)))
    assert [rows[row] for row in order] == sorted(rows)


def test_the_order_of_many_tokens() -> None:
    """Real tokens, whose first half decides, and the same with two equal first halves."""
    found = linkage.tokens(KEY, *packed([str(row).encode() for row in range(5_000)]))
    assert _sorted_by(found) == sorted(row.tobytes() for row in found)
    found[4_000, :8] = found[77, :8]
    assert _sorted_by(found) == sorted(row.tobytes() for row in found)


def test_a_column_of_a_wider_array_is_ordered_too() -> None:
    """Tokens that do not lie one after the other in memory are read correctly."""
    wide = np.zeros((300, 32), dtype=np.uint8)
    CipherEntropy.from_seed(1, "wide").fill(wide.reshape(-1))
    part = wide[:, 8:24]
    assert _sorted_by(part) == sorted(row.tobytes() for row in part)


@given(rows=some_tokens, cut=st.integers(0, 40))
def test_the_digest_is_that_of_the_specification(rows: list[bytes], cut: int) -> None:
    """HMAC-SHA256 of the count and the tokens ascending, in however many parts they come."""
    message = len(rows).to_bytes(8, "big") + b"".join(sorted(rows))
    ordered = as_rows(sorted(rows))
    expected = hmac.digest(KEY, message, "sha256")
    assert linkage.alignment_digest(KEY, len(rows), [ordered]) == expected
    assert linkage.alignment_digest(KEY, len(rows), [ordered[:cut], ordered[cut:]]) == expected


def test_the_digest_of_a_column_of_a_wider_array() -> None:
    """Tokens that do not lie one after the other in memory are read correctly."""
    wide = np.arange(96, dtype=np.uint8).reshape(3, 32)
    part = wide[:, 8:24]
    assert linkage.alignment_digest(KEY, 3, [part]) == linkage.alignment_digest(
        KEY, 3, [part.copy()]
    )


def test_the_digest_tells_populations_apart() -> None:
    """One respondent more, fewer or other, or another key, and the digests differ."""
    found = linkage.tokens(KEY, *packed([b"a", b"b", b"c", b"d"]))
    found = found[linkage.token_order(found)]
    digests = {
        linkage.alignment_digest(KEY, 3, [found[:3]]),
        linkage.alignment_digest(KEY, 2, [found[:2]]),
        linkage.alignment_digest(KEY, 4, [found]),
        linkage.alignment_digest(KEY, 3, [found[1:]]),
        linkage.alignment_digest(bytes(32), 3, [found[:3]]),
    }
    assert len(digests) == 5
    with pytest.raises(ParameterError):
        linkage.alignment_digest(b"", 4, [found])


@given(rows=some_tokens)
def test_repeats_are_all_tokens_that_occur_more_than_once(rows: list[bytes]) -> None:
    """Every one of them, first and last ones too, and no other."""
    counts, ordered = Counter(rows), sorted(rows)
    expected = [counts[token] > 1 for token in ordered]
    assert linkage.repeats(as_rows(ordered)).tolist() == expected


def _sorted_by(tokens: NDArray[np.uint8]) -> list[bytes]:
    return [tokens[row].tobytes() for row in linkage.token_order(tokens)]
