"""The cipher behind the randomness is AES-256-CTR, checked against a published vector."""

import os
from collections.abc import Iterator
from itertools import islice

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR

from tests.support.laws import assert_fits
from veiltab.core.entropy import random_bytes, random_words
from veiltab.crypto import entropy
from veiltab.crypto.entropy import CipherEntropy, SystemEntropy, keystream


def test_the_keystream_is_aes_256_in_counter_mode() -> None:
    """The first block is AES-256 of zero: the published answer for the all-zero key and block."""
    out = np.empty(16, dtype=np.uint8)
    CipherEntropy(bytes(32)).fill(out)
    assert out.tobytes().hex() == "dc95c078a2408989ad48a21492842087"


def test_how_the_bytes_are_asked_for_does_not_matter() -> None:
    """One long request and many short ones, across the inner block size, are one stream."""
    whole = np.empty(200_000, dtype=np.uint8)
    CipherEntropy(bytes(32)).fill(whole)
    source, parts = CipherEntropy(bytes(32)), []
    for size in (1, 15, 70_000, 0, 129_984):
        part = np.empty(size, dtype=np.uint8)
        source.fill(part)
        parts.append(part)
    assert np.concatenate(parts).tobytes() == whole.tobytes()


def test_words_are_little_endian() -> None:
    """The same bytes mean the same draws on every machine."""
    raw = np.empty(8, dtype=np.uint8)
    CipherEntropy(bytes(32)).fill(raw)
    for bits in (8, 16, 32, 64):
        word = random_words(1, bits, CipherEntropy(bytes(32)))[0]
        assert int(word) == int.from_bytes(raw[: bits // 8].tobytes(), "little")


def test_seeds_and_labels_separate_streams() -> None:
    """Another seed or label gives other bytes; the same gives the same."""
    first = _head(CipherEntropy.from_seed(1, "a"))
    assert first == _head(CipherEntropy.from_seed(1, "a"))
    assert first != _head(CipherEntropy.from_seed(2, "a"))
    assert first != _head(CipherEntropy.from_seed(1, "b"))
    assert _head(CipherEntropy.from_seed(0, "a")) != first


def test_the_system_source_never_repeats() -> None:
    """Two sources keyed by the operating system share nothing."""
    assert _head(CipherEntropy.from_system()) != _head(CipherEntropy.from_system())


def test_system_entropy_is_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every byte, across the inner block size, is one of ``os.urandom`` and used once."""
    handed: list[bytes] = []
    source = os.urandom

    def watch(count: int) -> bytes:
        handed.append(source(count))
        return handed[-1]

    monkeypatch.setattr(os, "urandom", watch)
    out = np.zeros(150_001, dtype=np.uint8)
    SystemEntropy().fill(out)
    SystemEntropy().fill(np.empty(0, dtype=np.uint8))
    assert out.tobytes() == b"".join(handed)
    assert_fits(np.bincount(out, minlength=256), np.full(256, 1 / 256))


def test_random_bytes_are_the_next_bytes_of_the_source() -> None:
    """As many as asked for, in the order of the source."""
    whole = random_bytes(40, CipherEntropy(bytes(32)))
    source = CipherEntropy(bytes(32))
    assert random_bytes(0, source) == b""
    assert random_bytes(16, source) + random_bytes(24, source) == whole
    assert whole[:16].hex() == "dc95c078a2408989ad48a21492842087"


def _head(source: CipherEntropy) -> bytes:
    out = np.empty(32, dtype=np.uint8)
    source.fill(out)
    return out.tobytes()


def test_it_is_the_counter_mode_keystream_to_the_byte() -> None:
    """Galois/counter mode makes all but the first two blocks; nobody can see where it begins."""
    key = bytes(range(32))
    out = np.empty(3_000_001, dtype=np.uint8)
    CipherEntropy(key).fill(out)
    plain = Cipher(AES256(key), CTR(bytes(16))).encryptor().update(bytes(out.size))
    assert out.tobytes() == plain


def test_the_keystream_goes_on_after_2_to_the_32_blocks() -> None:
    """Where the counter of one nonce ends, the next follows, as in counter mode with 128 bits."""
    key = bytes(range(32))
    pieces = list(islice(keystream(key), 6))
    assert [size for _, size in pieces] == [32, 2**36 - 32] * 3
    counter = 0
    for cipher, size in pieces:
        plain = Cipher(AES256(key), CTR(counter.to_bytes(16, "big"))).encryptor()
        assert cipher.update(bytes(32)) == plain.update(bytes(32))
        counter += size // 16


def test_pieces_follow_each_other_within_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    """However a request lies over the ends of pieces, no byte is left out or used twice."""
    sizes = (5, 1, 100, 7, 10_000)

    def stream(number: int) -> CipherContext:
        return Cipher(AES256(bytes(32)), CTR(bytes([number] * 16))).encryptor()

    def short(_key: bytes) -> Iterator[tuple[CipherContext, int]]:
        return ((stream(number), size) for number, size in enumerate(sizes))

    monkeypatch.setattr(entropy, "keystream", short)
    source, parts = CipherEntropy(bytes(32)), []
    for size in (3, 2, 1, 150, 0, 9_000):
        part = np.empty(size, dtype=np.uint8)
        source.fill(part)
        parts.append(part.tobytes())
    plain = b"".join(stream(number).update(bytes(size)) for number, size in enumerate(sizes))
    assert b"".join(parts) == plain[:9_156]
