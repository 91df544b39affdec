"""Pads (spec, section 6): what a curator adds to its codes, and a researcher takes away again."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR, ECB
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy
from veiltab.core.group import draw_uniform
from veiltab.core.schema import MAX_CATEGORIES, Codes
from veiltab.crypto.derivation import exact_bytes
from veiltab.errors import ParameterError

PAD_KEY_BYTES = 32
PAIRED_SIZE = 16
"""Up to this many categories a 16-bit word gives two elements."""

BYTE_SIZE = 256
"""Up to this many categories a word has 16 bits, and a code 8."""

SPAN_ROWS = 1 << 18
"""Rows that are mapped at a time: intermediate results stay in the processor's cache."""

SCATTERED_ROWS = 1 << 13
"""The same for scattered rows, each of which takes a block of its own."""

Words = NDArray[np.unsignedinteger[Any]]
_BLOCK_BYTES = 16
_TABLE_ROWS = 32
_WORTHWHILE = 1 << 16
_LOG2 = {8: 3, 4: 2}
_ZEROS = memoryview(bytes(4 * SPAN_ROWS + _BLOCK_BYTES))


def one_time_pad(size: int, count: int, entropy: Entropy) -> Codes:
    """Draw a one-time pad; ``entropy`` must be the operating system's own for the name to hold."""
    _check_size(size)
    _check_rows(0, count)
    pad = np.empty(count, dtype=_code_type(size))
    for start in range(0, count, SPAN_ROWS):
        stop = min(start + SPAN_ROWS, count)
        pad[start:stop] = draw_uniform(size, stop - start, entropy)
    return pad


class StreamPad:
    """The stream pad of one attribute: any rows, in any order, at the cost of those rows alone.

    Threads may share it.  Each uses an idle cipher, or sets up a new one.
    """

    def __init__(self, key: bytes, size: int) -> None:
        """Keep the attribute's key and its number of categories, ``size``."""
        _check_size(size)
        self._key, self._size = exact_bytes(key, PAD_KEY_BYTES, "a pad key"), size
        self._idle: list[_Stream] = []

    def rows(self, start: int, count: int) -> Codes:
        """Return the elements of ``count`` rows from row ``start`` on."""
        _check_rows(start, count)
        pad = np.empty(count, dtype=_code_type(self._size))
        with self._stream() as stream:
            for done in range(0, count, SPAN_ROWS):
                stream.fill(start + done, out=pad[done : done + SPAN_ROWS])
        return pad

    def at(self, positions: NDArray[np.int64]) -> Codes:
        """Return the elements of rows anywhere, in the order of ``positions``.

        A researcher uses it where the server sampled and the release says which row of the upload
        each record was (section 10).
        """
        pad = np.empty(positions.size, dtype=_code_type(self._size))
        with self._stream() as stream:
            for done in range(0, positions.size, SCATTERED_ROWS):
                piece = positions[done : done + SCATTERED_ROWS]
                _check_rows(int(piece.min()), 0)
                pad[done : done + SCATTERED_ROWS] = stream.at(piece)
        return pad

    @contextmanager
    def _stream(self) -> Iterator["_Stream"]:
        try:
            stream = self._idle.pop()
        except IndexError:
            stream = _Stream(self._key, self._size)
        try:
            yield stream
        finally:
            self._idle.append(stream)


class _Stream:
    """The cipher of a stream pad, and scratch arrays, for one thread at a time."""

    def __init__(self, key: bytes, size: int) -> None:
        self._size = size
        if size == 1:
            return  # the group has one element, and nothing is hidden by adding it
        self._map = WordMap(size)
        self._words = np.empty(SPAN_ROWS + _BLOCK_BYTES, dtype=self._map.word)
        self._stream = Cipher(AES256(key), CTR(bytes(_BLOCK_BYTES))).encryptor()
        # The same blocks one by one, for rows that do not follow each other.
        self._blocks = Cipher(AES256(key), ECB()).encryptor()  # noqa: S305

    def fill(self, start: int, out: Codes) -> None:
        """Write the elements of at most 262,144 rows from row ``start`` on into ``out``."""
        if self._size == 1:
            out[:] = 0
            return
        block = start // self._map.elements_in_block
        first = block * self._map.words_in_block
        stop = -(-(start + out.size) // self._map.elements)
        words = self._words[: stop - first]
        self._stream.reset_nonce(block.to_bytes(_BLOCK_BYTES, "big"))
        self._stream.update_into(_ZEROS[: words.nbytes], words.data.cast("B"))
        offset = start - first * self._map.elements
        # Whole words can be mapped to their place at once; others are cut out afterwards.
        whole = not offset and not out.size % self._map.elements and out.flags.c_contiguous
        entries, refused = self._map.entries(words, out.view(self._map.entry) if whole else None)
        if refused.size:
            self._refill(entries, refused, refused + first)
        if not whole:
            out[:] = entries.view(_code_type(self._size))[offset : offset + out.size]

    def at(self, positions: NDArray[np.int64]) -> Codes:
        """Return the elements of at most 8,192 rows anywhere."""
        if self._size == 1:
            return np.zeros(positions.size, dtype=np.uint8)
        numbers = positions >> (self._map.elements - 1)
        blocks = self._encrypt(0, numbers >> _LOG2[self._map.words_in_block])
        places = np.arange(0, blocks.size, self._map.words_in_block)
        places += numbers & (self._map.words_in_block - 1)
        entries, refused = self._map.entries(np.take(blocks, places))
        if refused.size:
            self._refill(entries, refused, numbers[refused])
        codes: Codes = entries.view(_code_type(self._size))
        if self._map.elements == 1:
            return codes
        places = np.arange(0, codes.size, 2)
        places += positions & 1
        return np.take(codes, places)

    def _refill(self, entries: Words, places: NDArray[np.intp], numbers: NDArray[np.int64]) -> None:
        """Replace what refused words stand for: each word has spares of its own, from 1 on."""
        spare = 1
        while places.size:
            words = self._encrypt(spare, numbers)[:: self._map.words_in_block].copy()
            entries[places], again = self._map.entries(words)
            places, numbers, spare = places[again], numbers[again], spare + 1

    def _encrypt(self, spare: int, numbers: NDArray[np.int64]) -> Words:
        """Return the words of the blocks u64(spare) ‖ u64(number), encrypted one by one."""
        blocks = np.empty((numbers.size, 2), dtype=">u8")
        blocks[:, 0] = spare
        blocks[:, 1] = numbers
        # The library wants room for almost one more block.
        out = np.empty(blocks.nbytes + _BLOCK_BYTES, dtype=np.uint8)
        self._blocks.update_into(blocks.data.cast("B"), out.data)
        return out[: blocks.nbytes].view(self._map.word)


class WordMap:
    """How words of the keystream become elements of Z_k, exactly uniform (spec, section 6).

    A word stands for one of R outcomes: an element, or, up to 16 categories, two of them.  Each
    outcome has ⌊2^w / R⌋ words; what is left over is refused.
    """

    def __init__(self, size: int) -> None:
        """Compute the map for ``size`` categories, at least 2."""
        paired = size <= PAIRED_SIZE
        self.size, self.elements = size, 2 if paired else 1
        self.word = np.dtype("<u2" if size <= BYTE_SIZE else "<u4")
        self.entry = self.word if paired else np.dtype(_code_type(size))
        self.words_in_block = _BLOCK_BYTES // self.word.itemsize
        self.elements_in_block = self.words_in_block * self.elements
        narrow: Any = self.word.type
        outcomes = size * size if paired else size
        width = (1 << 8 * self.word.itemsize) // outcomes
        # Of a power of two nothing is left over, and the limit is one more than any word.
        self.limit, self._exact = width * outcomes, width * outcomes == 1 << 8 * self.word.itemsize
        self._width, self._size = narrow(width), narrow(size)
        self._second = narrow(BYTE_SIZE - size) if paired else narrow(0)

    def entries(self, words: Words, out: Words | None = None) -> tuple[Words, NDArray[np.intp]]:
        """Return what each word stands for, and which words are refused; ``words`` are used up.

        Two elements stand in the low and the high byte of a 16-bit entry.
        """
        refused = self._refused(words)
        result = np.empty(words.size, dtype=self.entry) if out is None else out
        if self.elements == 1:
            np.floor_divide(words, self._width, out=result, dtype=self.word, casting="unsafe")
            return result, refused
        np.floor_divide(words, self._width, out=words)
        # q = first + k·second becomes first + 256·second: what is missing is (256 − k)·second.
        np.floor_divide(words, self._size, out=result)
        np.multiply(result, self._second, out=result)
        np.add(words, result, out=result)
        return result, refused

    def _refused(self, words: Words) -> NDArray[np.intp]:
        if self._exact:
            return np.empty(0, dtype=np.intp)
        return places_from(words, self.limit)


def places_from(values: NDArray[np.unsignedinteger[Any]], limit: int) -> NDArray[np.intp]:
    """Return the places of the values that are ``limit`` or more, in ascending order.

    Where such values are few, most columns of a table of the values have none.  The maxima of the
    columns show that in a third of the time that looking at each value takes.
    """
    bound = values.dtype.type(limit)
    body = values.size - values.size % _TABLE_ROWS
    if body < _WORTHWHILE:
        return np.flatnonzero(values >= bound)
    table = values[:body].reshape(_TABLE_ROWS, -1)
    columns = np.flatnonzero(table.max(axis=0) >= bound)
    row, column = np.nonzero(table[:, columns] >= bound)
    places = row * table.shape[1] + columns[column]
    if body == values.size:
        return places
    return np.concatenate([places, body + np.flatnonzero(values[body:] >= bound)])


def _code_type(size: int) -> Any:  # noqa: ANN401 - a scalar type of NumPy
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
