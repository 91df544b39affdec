"""New pads for the sampled rows of a stored table: the question and the answer (spec 12.2)."""

from typing import ClassVar

from veiltab.core.parameters import check_sample_size
from veiltab.wire.agreement import DIGEST
from veiltab.wire.contract import POPULATION, ROWS
from veiltab.wire.fields import input_errors_at, message, wired
from veiltab.wire.identity import PARTY_ID
from veiltab.wire.signed import SignedMessage
from veiltab.wire.upload import (
    CHUNKS,
    COLUMNS,
    UPLOAD_ID,
    ColumnChunks,
    check_chunks,
    check_columns,
    check_different,
)


@message
class RepadRequest(SignedMessage):
    """The server asks a curator for new pads at these positions of its stored table."""

    kind: ClassVar[str] = "repad-request"

    curator: bytes = wired(PARTY_ID)
    population: int = wired(POPULATION)
    positions: tuple[bytes, ...] = wired(CHUNKS)
    sample_size: int = wired(ROWS)
    study: bytes = wired(DIGEST)
    upload_digest: bytes = wired(DIGEST, key="upload")

    def check(self) -> None:
        """Refuse a sample larger than the population, and another number of positions."""
        with input_errors_at("sample_size"):
            check_sample_size(self.sample_size, self.population)
        check_chunks(self.positions, self.sample_size, "positions")
        check_different(self.positions, "positions")


@message
class Repad(SignedMessage):
    """The curator answers with the differences between new and old pads."""

    kind: ClassVar[str] = "repad"

    columns: tuple[ColumnChunks, ...] = wired(COLUMNS)
    curator: bytes = wired(PARTY_ID)
    request_digest: bytes = wired(DIGEST, key="request")
    rows: int = wired(ROWS)
    study: bytes = wired(DIGEST)
    upload_id: bytes = wired(UPLOAD_ID, key="upload")

    def check(self) -> None:
        """Refuse another number of chunks than the rows need."""
        check_columns(self.columns, self.rows)
