"""A curator's table, read in batch by batch and read back in token order (spec 5).

However long the table is, memory holds one batch, or one part, at a time.  Meanwhile the spool
holds the tokens and codes of everybody.
"""

from collections.abc import Generator, Iterator, Sequence
from itertools import chain
from types import TracebackType
from typing import Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veiltab.core.schema import Codes, Schema, check_range
from veiltab.crypto.derivation import alignment_key, token_key
from veiltab.crypto.linkage import TOKEN_BYTES, IdMessages, alignment_digest, repeats, tokens
from veiltab.errors import LinkageError, ParameterError, SchemaError, StateError
from veiltab.protocol.sorting import (
    BLOCK,
    BUFFER_ROWS,
    KEY,
    PARTITIONS,
    Records,
    Sorter,
    Spool,
    block_bytes,
)
from veiltab.wire.contract import Agreement
from veiltab.wire.packing import SPAN_ROWS

Tokens: TypeAlias = NDArray[np.uint8]
Rows: TypeAlias = tuple[Tokens, list[Codes]]
"""Some rows: their tokens, and the codes of each attribute."""

_ROW, _TOKEN = "row", "token"
_LISTED_ROWS = 5


class Intake:
    """The respondents of one curator in one study or vault, each with its token and codes.

    Add the whole table, close, then align and prepare.  Used in a ``with`` statement it leaves
    nothing in the spool.
    """

    def __init__(
        self,
        agreement: Agreement,
        secret: bytes,
        schema: Schema,
        spool: Spool,
        *,
        partitions: int = PARTITIONS,
    ) -> None:
        """Start with no rows; ``schema`` has the curator's attributes, and the spool is emptied."""
        self.scope, self.schema = agreement.scope, schema
        self._token_key = token_key(secret, agreement.scope)
        self._alignment_key = alignment_key(secret, agreement.scope)
        self._spool, self._partitions = spool, partitions
        self._sorter = Sorter([(_ROW, "<i8"), *self._code_fields()], spool, partitions)
        self._population = 0
        self._digest: bytes | None = None

    def __enter__(self) -> Self:
        """Return the intake itself."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Empty the spool."""
        self._spool.clear()

    def add(self, ids: IdMessages, codes: Sequence[Codes]) -> None:
        """Add the next rows of the table: their ids, and the codes of each attribute."""
        if self._digest is not None:
            raise StateError(
                "the table was closed already", hint="add all rows first, and close it once"
            )
        self._check_codes(codes, len(ids))
        for start in range(0, len(ids), BUFFER_ROWS):
            stop = min(start + BUFFER_ROWS, len(ids))
            keys = tokens(self._token_key, ids.data, ids.offsets[start : stop + 1])
            rows = np.arange(self._population, self._population + stop - start)
            self._sorter.add(keys, [rows, *(column[start:stop] for column in codes)])
            self._population += stop - start

    def close(self) -> None:
        """Go through all respondents once: there must be some, and none may come twice."""
        if self._digest is not None:
            return
        if not self._population:
            raise LinkageError(
                "the table has no respondents", hint="give a table with at least one row"
            )
        self._sorter.flush()
        repeated = _Repeated()
        self._digest = alignment_digest(
            self._alignment_key, self._population, repeated.watch(self._sorter.parts())
        )
        if repeated.count:
            self._digest = None
            self._spool.clear()
            raise repeated.error()

    @property
    def population(self) -> int:
        """How many respondents there are."""
        self._check_closed()
        return self._population

    @property
    def alignment_digest(self) -> bytes:
        """The keyed digest of who they are (spec 5.1)."""
        return self._check_closed()

    def rows(self, limit: int | None = None) -> Iterator[Rows]:
        """Yield the rows in token order, up to ``limit`` of them, span by span."""
        self._check_closed()
        wanted = self._population if limit is None else min(limit, self._population)
        for records in self._sorter.spans(wanted):
            yield block_bytes(records, KEY), self._codes(records)

    def shuffled(self, order_key: bytes, spool: Spool) -> Generator[Rows]:
        """Yield all rows in ascending order of AES-256-CMAC(order key, token), span by span.

        ``spool`` must not be the one of the intake; it is emptied before and after.
        """
        if spool is self._spool:
            raise ParameterError("one spool cannot hold two orders", hint="give a second spool")
        fields = [(_TOKEN, BLOCK), *self._code_fields()]
        sorter = Sorter(fields, spool, self._partitions)
        offsets = np.arange(0, TOKEN_BYTES * (SPAN_ROWS + 1), TOKEN_BYTES)
        try:
            for row_tokens, codes in self.rows():
                keys = tokens(order_key, row_tokens.reshape(-1), offsets[: len(row_tokens) + 1])
                sorter.add(keys, [row_tokens.view(BLOCK).reshape(-1), *codes])
            sorter.flush()
            for records in sorter.spans(self._population):
                yield block_bytes(records, _TOKEN), self._codes(records)
        finally:
            spool.clear()

    def _code_fields(self) -> list[tuple[str, str]]:
        """Lay out a code of each attribute, by number: names may be anything."""
        types = (np.dtype(attribute.dtype).str for attribute in self.schema.attributes)
        return [(f"code {number}", dtype) for number, dtype in enumerate(types)]

    def _codes(self, records: Records) -> list[Codes]:
        return [np.ascontiguousarray(records[name]) for name, _ in self._code_fields()]

    def _check_codes(self, codes: Sequence[Codes], rows: int) -> None:
        """Refuse all but one code per respondent: the group would accept any number."""
        lengths = [len(column) for column in codes]
        names = ", ".join(map(repr, self.schema.names))
        if lengths != [rows] * len(self.schema.attributes):
            raise SchemaError(
                f"the table has columns of {lengths} codes for {rows:,} respondents",
                hint=f"give one code per respondent for each of {names}",
            )
        for attribute, column in zip(self.schema.attributes, codes, strict=True):
            check_range(column, attribute.size, f"codes of {attribute.name!r}")

    def _check_closed(self) -> bytes:
        if self._digest is None:
            raise StateError(
                "the table is not complete yet", hint="add all rows, and close it, before using it"
            )
        return self._digest


class _Repeated:
    """Counts the rows that share a token with another row, and remembers the first few."""

    def __init__(self) -> None:
        self.count = 0
        self._rows: list[int] = []

    def watch(self, parts: Iterator[Records]) -> Iterator[Tokens]:
        """Pass the tokens of sorted records on; equal ones are in the same part."""
        for records in parts:
            ordered = block_bytes(records, KEY)
            rows = records[_ROW][repeats(ordered)]
            if rows.size:
                self.count += rows.size
                first = np.sort(rows)[:_LISTED_ROWS].tolist()
                self._rows = sorted(chain(self._rows, first))[:_LISTED_ROWS]
            yield ordered

    def error(self) -> LinkageError:
        """Return the error, with the first rows, counted from 1."""
        rows = ", ".join(f"{row + 1}" for row in self._rows)
        return LinkageError(
            f"{self.count} rows share an id with another row, such as rows {rows}",
            hint="each respondent must occur once in a table (row 1 is the first data row)",
        )
