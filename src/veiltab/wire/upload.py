"""A curator's encrypted table: the message that refers to its chunks (spec 8)."""

from collections.abc import Sequence
from typing import ClassVar

from veiltab.wire.agreement import DIGEST
from veiltab.wire.contract import POPULATION, ROWS
from veiltab.wire.fields import (
    TEXT,
    Part,
    hexadecimal,
    items,
    malformed,
    message,
    nested,
    optional,
    part,
    wired,
)
from veiltab.wire.identity import PARTY_ID
from veiltab.wire.packing import chunk_count
from veiltab.wire.signed import SignedMessage

UPLOAD_ID = hexadecimal(16)
CHUNKS = items(DIGEST)
"""The digests of a column's chunks, in order (spec 7)."""


@part
class ColumnChunks(Part):
    """An attribute and the digests of its column's chunks."""

    attribute: str = wired(TEXT)
    chunks: tuple[bytes, ...] = wired(CHUNKS)


COLUMNS = items(nested(ColumnChunks), least=1)


@message
class Upload(SignedMessage):
    """A curator's columns; with ``population`` if curators sample, else with ``tokens``."""

    kind: ClassVar[str] = "upload"

    columns: tuple[ColumnChunks, ...] = wired(COLUMNS)
    curator: bytes = wired(PARTY_ID)
    population: int | None = wired(optional(POPULATION))
    rows: int = wired(ROWS)
    scope: bytes = wired(DIGEST)
    tokens: tuple[bytes, ...] | None = wired(optional(CHUNKS))
    upload_id: bytes = wired(UPLOAD_ID, key="upload")

    def check(self) -> None:
        """Refuse another number of chunks than the rows need, and a mixture of the two forms."""
        check_columns(self.columns, self.rows)
        if (self.population is None) == (self.tokens is None):
            raise malformed("population, tokens", "exactly one of the two must be null")
        if self.population is not None and self.rows > self.population:
            raise malformed("rows", f"must be at most the population, {self.population:,}")
        if self.tokens is not None:
            check_chunks(self.tokens, self.rows, "tokens")
            check_different(self.tokens, "tokens")


def check_columns(columns: Sequence[ColumnChunks], rows: int) -> None:
    """Refuse an attribute that comes twice, and columns of another length than ``rows``."""
    seen: set[str] = set()
    for position, column in enumerate(columns):
        if column.attribute in seen:
            raise malformed(f"columns[{position}].attribute", "comes twice")
        seen.add(column.attribute)
        check_chunks(column.chunks, rows, f"columns[{position}].chunks")


def check_different(chunks: Sequence[bytes], path: str) -> None:
    """Refuse a chunk of tokens or positions that comes twice: so would its respondents."""
    if len(set(chunks)) != len(chunks):
        raise malformed(path, "a chunk comes twice")


def check_chunks(chunks: Sequence[bytes], rows: int, path: str) -> None:
    """Refuse another number of chunks than ``rows`` rows have (spec 7)."""
    expected = chunk_count(rows)
    if len(chunks) != expected:
        raise malformed(path, f"{rows:,} rows have {expected:,} chunks, not {len(chunks):,}")
