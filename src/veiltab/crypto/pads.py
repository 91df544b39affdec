"""Pads (spec, section 6): what a curator adds to its codes, and a researcher takes away again.

A pad is an element of Z_k for each row.  One-time pads are drawn from the operating system;
stream pads are a function of a 32-byte key and the row number, the same for every implementation.
"""

from itertools import pairwise
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy
from veiltab.core.group import draw_uniform
from veiltab.core.schema import MAX_CATEGORIES, Codes
from veiltab.crypto.checks import exact_bytes
from veiltab.errors import ParameterError

CHUNK_ROWS = 1 << 16
"""Rows that are computed on their own (spec, section 6)."""

PAD_KEY_BYTES = 32
PAIRED_SIZE = 16
"""Up to this many categories a 16-bit word gives two elements."""

BYTE_SIZE = 256
"""Up to this many categories a word has 16 bits, and a code 8."""

PIECE_WORDS = 1 << 15
"""Words that are mapped at a time: what lies between stays in the processor's cache."""

Words = NDArray[np.unsignedinteger[Any]]
_MAIN, _REFILL = b"\x00", b"\x01"
_SPARE_WORDS = 8  # more than are refused, nearly always
_ZEROS = memoryview(bytes(4 * CHUNK_ROWS))


def stream_pad(key: bytes, size: int, start: int, count: int) -> Codes:
    """Return the stream pad of rows ``start`` to ``start + count`` of an attribute.

    Any rows can be asked for in any order; each chunk that they touch is computed up to its last
    row that is asked for, because a refused word shifts the refill of the words after it.
    """
    stream = _Stream(key, size)
    _check_rows(start, count)
    pad = np.empty(count, dtype=_code_type(size))
    done = 0
    while done < count:
        chunk, offset = divmod(start + done, CHUNK_ROWS)
        taken = min(CHUNK_ROWS - offset, count - done)
        pad[done : done + taken] = stream.head(chunk, offset + taken)[offset:]
        done += taken
    return pad


def stream_pad_at(key: bytes, size: int, positions: NDArray[np.int64]) -> Codes:
    """Return the stream pad of the rows at ``positions``, in their order.

    Every chunk that holds one of them is computed once.  A researcher uses it where the server
    sampled and the release says which row of the upload each record was (section 10).
    """
    stream = _Stream(key, size)
    pad = np.empty(positions.size, dtype=_code_type(size))
    if not positions.size:
        return pad
    _check_rows(int(positions.min()), 0)
    chunks = positions // CHUNK_ROWS
    # Sorting the narrowest type is faster: up to 2^32 rows it is done by radix.
    order = np.argsort(chunks.astype(np.min_scalar_type(chunks.max())), kind="stable")
    chunks = chunks[order]
    bounds = [0, *(np.flatnonzero(np.diff(chunks)) + 1).tolist(), positions.size]
    for first, stop in pairwise(bounds):
        rows = order[first:stop]
        within = positions[rows] % CHUNK_ROWS
        pad[rows] = stream.head(int(chunks[first]), int(within.max()) + 1)[within]
    return pad


def one_time_pad(size: int, count: int, entropy: Entropy) -> Codes:
    """Draw a one-time pad; ``entropy`` must be the operating system's own for the name to hold."""
    _check_size(size)
    _check_rows(0, count)
    pad = np.empty(count, dtype=_code_type(size))
    for start in range(0, count, CHUNK_ROWS):
        stop = min(start + CHUNK_ROWS, count)
        pad[start:stop] = draw_uniform(size, stop - start, entropy)
    return pad


class _Stream:
    """The stream pad of one attribute, chunk by chunk."""

    def __init__(self, key: bytes, size: int) -> None:
        _check_size(size)
        self._size = size
        cipher = Cipher(AES256(exact_bytes(key, PAD_KEY_BYTES, "a pad key")), CTR(bytes(16)))
        self._encryptor = cipher.encryptor()

    def head(self, chunk: int, count: int) -> Codes:
        """Return the first ``count`` elements of a chunk.

        Words are used in order and refilled in order, so a head does not depend on the rest.
        """
        if self._size == 1:
            return np.zeros(count, dtype=np.uint8)
        if self._size > PAIRED_SIZE:
            return self._entries(chunk, count)
        pairs = self._entries(chunk, (count + 1) // 2)
        return pairs.view(np.uint8)[:count]

    def _entries(self, chunk: int, count: int) -> Words:
        """Return what the first main words stand for, each refused one replaced."""
        self._start(chunk, _MAIN)
        entries = np.empty(count, dtype=_entry_type(self._size))
        found = []
        for start in range(0, count, PIECE_WORDS):
            piece = entries[start : start + PIECE_WORDS]
            piece[:], places = map_words(self._words(piece.size), self._size)
            found.append(places + start)
        refused = np.concatenate(found)
        if refused.size:
            self._start(chunk, _REFILL)
            entries[refused] = self._refill(refused.size)
        return entries

    def _refill(self, count: int) -> Words:
        """Return what the next ``count`` accepted words stand for."""
        parts, missing = [], count
        while missing:
            words = self._words(min(missing + _SPARE_WORDS, CHUNK_ROWS))
            entries, refused = map_words(words, self._size)
            usable = np.ones(entries.size, dtype=np.bool_)
            usable[refused] = False
            accepted = entries[usable][:missing]
            missing -= accepted.size
            parts.append(accepted)
        return np.concatenate(parts)

    def _start(self, chunk: int, stream: bytes) -> None:
        """Go to the start of one of the chunk's two keystreams."""
        self._encryptor.reset_nonce(chunk.to_bytes(8, "big") + stream + bytes(7))

    def _words(self, count: int) -> Words:
        """Read the next words of the keystream."""
        words = np.empty(count, dtype=_word_type(self._size))
        self._encryptor.update_into(_ZEROS[: words.nbytes], words.data.cast("B"))
        return words


def map_words(words: Words, size: int) -> tuple[Words, NDArray[np.intp]]:
    """Return what each word stands for in Z_size, and which words are refused.

    A word stands for one element, or, up to 16 categories, for two: the first in the low byte and
    the second in the high byte of a 16-bit entry.  The product of the word and the number R of
    outcomes (k, or k²) has the outcome above the word's width; refusing the lowest 2^width mod R
    values of what is below leaves every outcome the same number of words.
    """
    paired = size <= PAIRED_SIZE
    refused = _refused_words(words, size * size if paired else size)
    width = 8 * words.dtype.itemsize
    wide: Any = np.dtype(f"u{2 * words.dtype.itemsize}").type
    product: Words = words.astype(wide) * wide(size)
    first = product >> wide(width)
    if not paired:
        return first.astype(_entry_type(size)), refused
    product &= wide(0xFFFF)
    product *= wide(size)
    product >>= wide(8)  # the second element, times 2^8, and some bits below
    product &= wide(0xFF00)
    product |= first
    return product.astype(_entry_type(size)), refused


def _refused_words(words: Words, outcomes: int) -> NDArray[np.intp]:
    """Return the places of the words that would make some outcomes likelier than others."""
    narrow: Any = words.dtype.type
    excess = (1 << 8 * words.dtype.itemsize) % outcomes
    if not excess:
        return np.empty(0, dtype=np.intp)
    below = words * narrow(outcomes)  # modulo 2^width: unsigned arrays wrap around
    return np.flatnonzero(below < narrow(excess))


def _word_type(size: int) -> str:
    return "<u2" if size <= BYTE_SIZE else "<u4"


def _entry_type(size: int) -> str:
    """Return the type of what a word stands for: a pair of elements, or one."""
    return "u1" if PAIRED_SIZE < size <= BYTE_SIZE else "<u2"


def _code_type(size: int) -> type[np.uint8 | np.uint16]:
    """Return the type of :attr:`veiltab.core.schema.Attribute.dtype`."""
    return np.uint8 if size <= BYTE_SIZE else np.uint16


def _check_size(size: int) -> None:
    if not 1 <= size <= MAX_CATEGORIES:
        raise ParameterError(
            f"there are no pads for {size:,} categories", hint=f"use 1 to {MAX_CATEGORIES:,}"
        )


def _check_rows(start: int, count: int) -> None:
    if start < 0 or count < 0:
        raise ParameterError(
            f"there are no {count:,} rows from row {start:,}", hint="rows count from 0"
        )
