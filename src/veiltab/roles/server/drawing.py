"""Matching whole tables and drawing rows of them, however long they are (spec 9).

Every table is split by token range on scratch space, so that one range of all tables at a time
can be matched in memory.  The matched rows are sorted by fresh random keys on more scratch space,
and the sample is the first of them.  Scratch space holds what the server has anyway: tokens, row
numbers and ciphertext.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy, random_words
from veiltab.core.schema import Attribute, Codes
from veiltab.crypto.linkage import TOKEN_BYTES, repeats
from veiltab.errors import MismatchError, UnavailableError
from veiltab.roles.chunks import ChunkStore
from veiltab.roles.columns import read_chunk, read_token_chunk
from veiltab.roles.server.bench import Scratch
from veiltab.roles.server.match import match_tokens
from veiltab.roles.sorting import KEY, MAX_PARTITIONS, Records, Sorter, block_bytes, cut
from veiltab.roles.spool import Spool
from veiltab.wire.messages import Upload
from veiltab.wire.packing import CHUNK_ROWS, chunk_slices

Tokens: TypeAlias = NDArray[np.uint8]

ROW = "row"
PART_BYTES = 1 << 22
"""What a part of a table takes in memory, about; the number of parts follows from it."""

_OWN = "own"


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """A curator's whole table as it was uploaded, read chunk by chunk."""

    upload: Upload
    attributes: tuple[Attribute, ...]
    chunks: ChunkStore = field(repr=False)

    @property
    def layout(self) -> np.dtype[np.void]:
        """What is known of a row besides its token: its number, and a code of each attribute."""
        types = [np.dtype(attribute.dtype).str for attribute in self.attributes]
        return np.dtype([(ROW, "<i8"), *zip(self._names, types, strict=True)])

    @property
    def width(self) -> int:
        """The bytes of a row with its token."""
        return TOKEN_BYTES + self.layout.itemsize

    @property
    def block(self) -> str:
        """The same as one value, which is copied faster than its fields."""
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
        """Attributes are fields by their numbers: their names may be anything."""
        return [f"code {number}" for number in range(len(self.attributes))]


class Checked:
    """Scratch space that notices when a part does not come back as long as it was written."""

    def __init__(self, spool: Spool) -> None:
        """Stand in front of another spool."""
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

    def __init__(self, tables: Sequence[Table], entropy: Entropy, spool: Spool) -> None:
        """Start with nobody; whatever is in the spool is deleted."""
        self._layouts, self._entropy = [table.layout for table in tables], entropy
        width = TOKEN_BYTES + sum(layout.itemsize for layout in self._layouts)
        most = min(table.upload.rows for table in tables)
        blocks = [(_own(number), table.block) for number, table in enumerate(tables)]
        self._sorter = Sorter(blocks, spool, partition_count(most * width))
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
                np.ascontiguousarray(records[_own(number)]).view(layout)
                for number, layout in enumerate(self._layouts)
            ]


@contextmanager
def shuffled(tables: Sequence[Table], entropy: Entropy, scratch: Scratch) -> Iterator[Shuffled]:
    """Match the tables, and shuffle the respondents whom all of them have.

    However it ends, the scratch space is empty afterwards.
    """
    spools = [Checked(scratch(f"table-{number}")) for number, _ in enumerate(tables)]
    sample = Checked(scratch("sample"))
    try:
        found = Shuffled(tables, entropy, sample)
        found.fill(match_tables(tables, spools))
        for spool in spools:
            spool.clear()
        yield found
    finally:
        for spool in (*spools, sample):
            spool.clear()


def match_tables(tables: Sequence[Table], spools: Sequence[Checked]) -> Iterator[list[Records]]:
    """Yield the rows of common respondents in the order of their tokens, range by range."""
    sizes = [table.upload.rows * table.width for table in tables]
    partitions = partition_count(max(sizes))  # the same for all, so that the ranges are the same
    sorters = [_split(*each, partitions) for each in zip(tables, spools, strict=True)]
    for partition in range(partitions):
        yield _match_part(sorters, partition)


def _match_part(sorters: Sequence[Sorter], partition: int) -> list[Records]:
    """Match one range of tokens."""
    parts = [sorter.part(partition) for sorter in sorters]
    if not any(part.size for part in parts):
        return [part[_OWN] for part in parts]
    found = match_tokens([block_bytes(part, KEY) for part in parts])
    return [np.take(part[_OWN], own) for part, own in zip(parts, found.T, strict=True)]


def settle(part: Records, entropy: Entropy) -> Records:
    """Put records of equal keys in random order, by a further draw for each of them.

    Sorting has left them in the order of their tokens, and a sample must be uniform over all
    orders.  Equal keys of 16 bytes come about once in 2^128/n² times.
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
    settled[tied] = part[tied[order]]  # groups stand where they stood
    return settled


def partition_count(size: int) -> int:
    """Return into how many parts a table of so many bytes is split."""
    return min(max(1, -(-size // PART_BYTES)), MAX_PARTITIONS)


def _split(table: Table, spool: Checked, partitions: int) -> Sorter:
    """Split a table by token range; refuse tokens that would all fall into a few of the ranges.

    Tokens are outputs of AES-CMAC (spec 5).  A curator who sends others would have the server
    match its whole table in memory.
    """
    sorter = Sorter([(_OWN, table.block)], spool, partitions)
    for tokens, rows in table.batches():
        sorter.add(tokens, [rows.view(table.block)])
    sorter.flush()
    if spool.largest > table.width * (2 * table.upload.rows // partitions + CHUNK_ROWS):
        raise MismatchError(
            "an upload has tokens that are not spread as tokens are",
            hint="a curator prepares its table with veiltab, and sends the tokens as they are",
        )
    return sorter


def _own(number: int) -> str:
    return f"{_OWN} {number}"
