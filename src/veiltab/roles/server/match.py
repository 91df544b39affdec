"""Matching respondents by their tokens (spec 9).

A token's first bits share a 64-bit word with its table and row.  Sorting all words together puts
rows with the same bits side by side.  One row of each table is nearly always a respondent; whole
tokens are compared once, to be sure.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veiltab.crypto.linkage import token_runs, token_words
from veiltab.errors import MismatchError
from veiltab.roles.parallel import ordered_map

RANGE_ROWS = 1 << 16
"""Rows of a table that are matched at a time: few enough for the processor's cache."""

Tokens = NDArray[np.uint8]
Words = NDArray[np.uint64]
Rows = NDArray[np.int64]


def match_tokens(tables: Sequence[Tokens], threads: int | None = None) -> Rows:
    """Return the row of each common respondent in each table: one row per respondent.

    They come in ascending order of their tokens.  Large tables are cut into ranges of tokens,
    which are matched by several threads, as many as there are processors by default.
    """
    longest = max(map(len, tables))
    ranges = 1 << (longest // RANGE_ROWS).bit_length()
    bounds = np.arange(1, ranges, dtype=np.uint64) << np.uint64(65 - ranges.bit_length())
    matching = _Matching(tables, max(longest - 1, 0).bit_length())
    if ranges == 1:
        threads = 1  # starting others would take longer than matching

    def cut(number: int) -> list[Words]:
        words = matching.words(number)
        return np.split(words, np.searchsorted(words, bounds))

    parts = list(ordered_map(cut, range(len(tables)), threads))
    return np.concatenate(list(ordered_map(matching.match, zip(*parts, strict=True), threads)))


class _Matching:
    """Tables of tokens, and words of a token's first bits, the number of its table, and its row."""

    def __init__(self, tables: Sequence[Tokens], row_bits: int) -> None:
        self._tables, self._row_bits = tables, row_bits
        self._low_bits = row_bits + (len(tables) - 1).bit_length()
        self._row = np.uint64((1 << row_bits) - 1)
        self._low = np.uint64((1 << self._low_bits) - 1)

    def words(self, number: int) -> Words:
        """Return the words of a table in ascending order."""
        words, _ = token_words(self._tables[number], number << self._row_bits, self._low_bits)
        return words

    def match(self, parts: Sequence[Words]) -> Rows:
        """Return the rows of the respondents in a range, given its words of each table."""
        words = np.concatenate(parts)
        words.sort()
        apart = words[1:] ^ words[:-1]
        starts = np.flatnonzero(np.append(True, apart > self._low)[: words.size])
        lengths = np.diff(starts, append=words.size)
        # Two rows of one table with the same bits: two respondents, or one of them twice.
        alike = np.flatnonzero(apart <= self._row)
        unclear = np.zeros(starts.size, dtype=np.bool_)
        unclear[np.searchsorted(starts, alike, side="right") - 1] = True
        # Any other run has one row of a table at most, in the order of the tables.
        whole = starts[(lengths == len(parts)) & ~unclear]
        found = self._rows_from(words, whole)
        same = self._same_tokens(found)
        if not same.all():
            whole, found = whole[same], found[same]
        if not alike.size:
            return found
        settled = self._settle(words[np.repeat(unclear, lengths)])
        bits = np.take(self._tables[0], settled[:, 0], axis=0).view(">u8")[:, 0]
        return np.insert(found, np.searchsorted(words[whole], bits), settled, axis=0)

    def _rows_from(self, words: Words, starts: NDArray[np.intp]) -> Rows:
        """Return the rows of runs with one row of each table."""
        found = np.empty((starts.size, len(self._tables)), dtype=np.int64)
        for number, column in enumerate(found.T):
            column[:] = np.take(words, starts + number) & self._row
        return found

    def _same_tokens(self, rows: Rows) -> NDArray[np.bool_]:
        """Say of each run whether its tokens are the same, all 16 bytes of them."""
        first, *others = (
            np.take(table, own, axis=0).view(np.uint64)
            for table, own in zip(self._tables, rows.T, strict=True)
        )
        same = np.ones(len(rows), dtype=np.bool_)
        for other in others:
            differ = np.bitwise_xor(other, first, out=other)
            same &= (differ[:, 0] | differ[:, 1]) == 0
        return same

    def _settle(self, words: Words) -> Rows:
        """Match rows that the first bits do not tell apart by their whole tokens; they are few."""
        numbers = (words & self._low) >> np.uint64(self._row_bits)
        rows = (words & self._row).view(np.int64)
        own = [rows[numbers == number] for number in range(len(self._tables))]
        pairs = zip(self._tables, own, strict=True)
        found = _match_whole([np.take(table, each, axis=0) for table, each in pairs])
        for column, each in zip(found.T, own, strict=True):
            column[:] = np.take(each, column)
        return found


def _match_whole(tables: Sequence[Tokens]) -> Rows:
    """Sort whole tokens together.

    A respondent whom all curators hold is a run of as many equal tokens as there are curators, in
    the order of the curators.
    """
    order, same = token_runs(np.concatenate(tables))
    first_rows = np.cumsum([0, *map(len, tables)])
    equal = np.flatnonzero(same)
    _refuse_repeats(order[equal], order[equal + 1], first_rows)
    common = np.ones(max(order.size - len(tables) + 1, 0), dtype=np.bool_)
    for step in range(len(tables) - 1):
        common &= same[step : step + common.size]
    starts = np.flatnonzero(common)
    rows = [order[starts + number] - first for number, first in enumerate(first_rows[:-1])]
    return np.stack(rows, axis=1)


def _refuse_repeats(left: Rows, right: Rows, first_rows: Rows) -> None:
    """Refuse equal tokens of one curator: neighbours that no table's end lies between."""
    apart = np.zeros(left.size, dtype=np.bool_)
    for border in first_rows[1:-1]:
        apart |= (left < border) & (right >= border)
    if not apart.all():
        raise MismatchError(
            "an upload has the same token twice",
            hint="a curator uploads each respondent once; ask it to check its ids",
        )
