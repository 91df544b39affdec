"""Matching respondents by their tokens, and drawing rows of those who match (spec 9).

Tables of any length are split by token range; each part is matched in memory.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy, random_words
from veiltab.core.schema import Attribute, Codes
from veiltab.crypto.linkage import TOKEN_BYTES, repeats, token_runs, token_words
from veiltab.errors import MismatchError, UnavailableError
from veiltab.protocol.parallel import ordered_map
from veiltab.protocol.server.context import Scratch
from veiltab.protocol.sorting import (
    KEY,
    KEY_RANGE,
    MAX_PARTITIONS,
    Records,
    Sorter,
    Spool,
    block_bytes,
    cut,
    range_starts,
)
from veiltab.protocol.stores import ChunkStore, read_chunk, read_token_chunk
from veiltab.wire.messages import Upload
from veiltab.wire.packing import CHUNK_ROWS, chunk_slices

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
    """Tables of tokens; a word is a token's first bits, the number of its table, and its row."""

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
        rows = self._rows_from(words, whole)
        same = self._same_tokens(rows)
        if not same.all():
            whole, rows = whole[same], rows[same]
        if not alike.size:
            return rows
        settled = self._settle(words[np.repeat(unclear, lengths)])
        bits = np.take(self._tables[0], settled[:, 0], axis=0).view(">u8")[:, 0]
        return np.insert(rows, np.searchsorted(words[whole], bits), settled, axis=0)

    def _rows_from(self, words: Words, starts: NDArray[np.intp]) -> Rows:
        """Return the rows of runs with one row of each table."""
        rows = np.empty((starts.size, len(self._tables)), dtype=np.int64)
        for number, column in enumerate(rows.T):
            column[:] = np.take(words, starts + number) & self._row
        return rows

    def _same_tokens(self, rows: Rows) -> NDArray[np.bool_]:
        """Say of each run whether its tokens are the same, all 16 bytes of them."""
        first, *others = (
            np.take(table, column, axis=0).view(np.uint64)
            for table, column in zip(self._tables, rows.T, strict=True)
        )
        same = np.ones(len(rows), dtype=np.bool_)
        for other in others:
            differ = np.bitwise_xor(other, first, out=other)
            same &= (differ[:, 0] | differ[:, 1]) == 0
        return same

    def _settle(self, words: Words) -> Rows:
        """Match, by their whole tokens, the few rows that the first bits do not tell apart."""
        numbers = (words & self._low) >> np.uint64(self._row_bits)
        rows = (words & self._row).view(np.int64)
        unclear = [rows[numbers == number] for number in range(len(self._tables))]
        pairs = zip(self._tables, unclear, strict=True)
        matched = _match_whole([np.take(table, few, axis=0) for table, few in pairs])
        for column, few in zip(matched.T, unclear, strict=True):
            column[:] = np.take(few, column)
        return matched


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
    """Refuse equal tokens of one curator: neighbours without the end of a table between them."""
    apart = np.zeros(left.size, dtype=np.bool_)
    for border in first_rows[1:-1]:
        apart |= (left < border) & (right >= border)
    if not apart.all():
        raise MismatchError(
            "an upload has the same token twice",
            hint="a curator uploads each respondent once; ask it to check its ids",
        )


ROW = "row"
PART_BYTES = 1 << 22
"""About what a part of a table takes in memory; the number of parts follows from it."""

_BLOCK = "block"


@dataclass(frozen=True, slots=True, eq=False)
class UploadedTable:
    """A curator's whole table as it was uploaded, read chunk by chunk."""

    upload: Upload
    attributes: tuple[Attribute, ...]
    chunks: ChunkStore = field(repr=False)

    @property
    def layout(self) -> np.dtype[np.void]:
        """The fields of a row besides its token: its number, and a code of each attribute."""
        types = [np.dtype(attribute.dtype).str for attribute in self.attributes]
        return np.dtype([(ROW, "<i8"), *zip(self._names, types, strict=True)])

    @property
    def width(self) -> int:
        """The bytes of a row with its token."""
        return TOKEN_BYTES + self.layout.itemsize

    @property
    def block(self) -> str:
        """The type of the same fields as one value, which is copied faster than they are."""
        return f"V{self.layout.itemsize}"

    def batches(self) -> Iterator[tuple[Tokens, Records]]:
        """Yield the tokens and rows of each chunk."""
        columns = {column.attribute: column.chunks for column in self.upload.columns}
        named = list(zip(self._names, self.attributes, strict=True))
        for number, where in enumerate(chunk_slices(self.upload.rows)):
            rows = np.empty(where.stop - where.start, dtype=self.layout)
            rows[ROW] = np.arange(where.start, where.stop)
            for name, attribute in named:
                digests = columns[attribute.name]
                rows[name] = read_chunk(digests, attribute, number, where, self.chunks)
            yield read_token_chunk(self.upload.tokens or (), number, where, self.chunks), rows

    def codes(self, rows: Records) -> list[Codes]:
        """Take the columns of codes out of rows."""
        return [np.ascontiguousarray(rows[name]) for name in self._names]

    @property
    def _names(self) -> list[str]:
        """The names of the fields: numbers, as an attribute may have any name."""
        return [f"code {number}" for number in range(len(self.attributes))]


class CheckedSpool:
    """Scratch space that notices when a part does not come back as long as it was written."""

    def __init__(self, spool: Spool) -> None:
        """Wrap another spool."""
        self._spool = spool
        self._sizes: dict[int, int] = {}

    @property
    def largest(self) -> int:
        """The bytes of the largest part."""
        return max(self._sizes.values(), default=0)

    def append(self, partition: int, data: memoryview) -> None:
        """Add bytes to the end of a part."""
        self._spool.append(partition, data)
        self._sizes[partition] = self._sizes.get(partition, 0) + data.nbytes

    def read(self, partition: int) -> bytes:
        """Return a whole part, or raise :class:`UnavailableError`."""
        data = self._spool.read(partition)
        if len(data) != self._sizes.get(partition, 0):
            raise UnavailableError(
                "the scratch space has lost rows that were written to it",
                hint="the operator should look at the disk; nothing else is lost",
            )
        return data

    def clear(self) -> None:
        """Forget every part."""
        self._sizes.clear()
        self._spool.clear()


class Shuffled:
    """The rows of the respondents whom all curators hold, in uniformly random order."""

    def __init__(self, tables: Sequence[UploadedTable], entropy: Entropy, spool: Spool) -> None:
        """Start with nobody; whatever is in the spool is deleted."""
        self._layouts, self._entropy = [table.layout for table in tables], entropy
        width = TOKEN_BYTES + sum(layout.itemsize for layout in self._layouts)
        most = min(table.upload.rows for table in tables)
        blocks = [(_block_name(number), table.block) for number, table in enumerate(tables)]
        self._sorter = Sorter(blocks, spool, range_starts(partition_count(most * width)))
        self.population = 0

    def fill(self, matched: Iterable[Sequence[Records]]) -> None:
        """Take matched rows, an array for each table, and give each respondent a random key."""
        for rows in matched:
            keys = random_words(TOKEN_BYTES * rows[0].size, 8, self._entropy)
            self._sorter.add(keys.astype(np.uint8, copy=False).reshape(-1, TOKEN_BYTES), rows)
            self.population += rows[0].size
        self._sorter.flush()

    def sample(self, size: int) -> Iterator[list[Records]]:
        """Yield the rows of the first respondents in chunks, an array for each table."""
        parts = (settle(part, self._entropy) for part in self._sorter.parts())
        for records in cut(parts, size, CHUNK_ROWS):
            yield [
                np.ascontiguousarray(records[_block_name(number)]).view(layout)
                for number, layout in enumerate(self._layouts)
            ]


@contextmanager
def shuffled(
    tables: Sequence[UploadedTable], entropy: Entropy, scratch: Scratch, below: int = KEY_RANGE
) -> Iterator[Shuffled]:
    """Match the tables, and shuffle the respondents whom all of them have.

    The first 64 bits of all tokens are less than ``below``.  The scratch space is empty afterwards,
    also after an error.
    """
    spools = [CheckedSpool(scratch(f"table-{number}")) for number, _ in enumerate(tables)]
    sample = CheckedSpool(scratch("sample"))
    try:
        common = Shuffled(tables, entropy, sample)
        common.fill(match_tables(tables, spools, below))
        for spool in spools:
            spool.clear()
        yield common
    finally:
        for spool in (*spools, sample):
            spool.clear()


def match_tables(
    tables: Sequence[UploadedTable], spools: Sequence[CheckedSpool], below: int = KEY_RANGE
) -> Iterator[list[Records]]:
    """Yield the rows of common respondents in the order of their tokens, range by range."""
    sizes = [table.upload.rows * table.width for table in tables]
    # The same for all, so that the ranges are the same.
    starts = range_starts(partition_count(max(sizes)), stop=below)
    pairs = zip(tables, spools, strict=True)
    sorters = [_split(table, spool, starts) for table, spool in pairs]
    for partition, _ in enumerate(starts):
        yield _match_part(sorters, partition)


def _match_part(sorters: Sequence[Sorter], partition: int) -> list[Records]:
    """Match one range of tokens."""
    parts = [sorter.part(partition) for sorter in sorters]
    if not any(part.size for part in parts):
        return [part[_BLOCK] for part in parts]
    matched = match_tokens([block_bytes(part, KEY) for part in parts])
    return [np.take(part[_BLOCK], rows) for part, rows in zip(parts, matched.T, strict=True)]


def settle(part: Records, entropy: Entropy) -> Records:
    """Put records with equal keys in random order, by a further draw for each of them.

    Sorting has left them in the order of their tokens, but every order must be equally likely.
    Equal keys of 16 bytes occur about once in 2^128/n² samples of n respondents.
    """
    keys = block_bytes(part, KEY)
    tied = np.flatnonzero(repeats(keys))
    if not tied.size:
        return part
    group = np.cumsum(np.append(False, (keys[tied][1:] != keys[tied][:-1]).any(axis=1)))
    while True:
        draws = random_words(tied.size, 64, entropy)
        order = np.lexsort((draws, group))
        if ((np.diff(group[order]) > 0) | (draws[order][1:] > draws[order][:-1])).all():
            break
    settled = part.copy()
    settled[tied] = part[tied[order]]  # each group stays where it was
    return settled


def partition_count(size: int) -> int:
    """Return the number of parts into which a table of ``size`` bytes is split."""
    return min(max(1, -(-size // PART_BYTES)), MAX_PARTITIONS)


def _split(table: UploadedTable, spool: CheckedSpool, starts: Sequence[int]) -> Sorter:
    """Split a table by token range; refuse tokens that would all fall into a few of the ranges.

    Real tokens are outputs of AES-CMAC (spec 5), and spread evenly.  A curator who sends others
    could make the server match its whole table in memory.
    """
    sorter = Sorter([(_BLOCK, table.block)], spool, starts)
    for tokens, rows in table.batches():
        sorter.add(tokens, [rows.view(table.block)])
    sorter.flush()
    if spool.largest > table.width * (2 * table.upload.rows // len(starts) + CHUNK_ROWS):
        raise MismatchError(
            "an upload has tokens that are not spread as tokens are",
            hint="a curator prepares its table with veiltab, and sends the tokens as they are",
        )
    return sorter


def _block_name(number: int) -> str:
    return f"{_BLOCK} {number}"
