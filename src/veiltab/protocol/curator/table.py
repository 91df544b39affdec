"""A curator's table, read in batch by batch and read back in token order (spec 5).

However long the table is, memory holds one batch, or one part, at a time.  Meanwhile the spool
holds the tokens and codes of everybody.
"""

import hmac
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from types import TracebackType
from typing import Literal, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veiltab.core.schema import Codes, Schema, check_range
from veiltab.crypto.derivation import alignment_key, table_digest_key, token_key
from veiltab.crypto.linkage import (
    TOKEN_BYTES,
    IdMessages,
    alignment_digest,
    follows,
    repeats,
    tokens,
)
from veiltab.errors import LinkageError, ParameterError, SchemaError, StateError
from veiltab.protocol.curator.decoys import Decoys, Patterns, own_rows
from veiltab.protocol.sorting import (
    BLOCK,
    BUFFER_ROWS,
    KEY,
    KEY_RANGE,
    PARTITIONS,
    RANGE_STEP,
    Records,
    Sorter,
    Spool,
    block_bytes,
    cut,
    range_starts,
)
from veiltab.remedies import Remedy
from veiltab.wire.contract import Agreement, Contract
from veiltab.wire.mechanism import CoinTerms
from veiltab.wire.packing import SPAN_ROWS

Tokens: TypeAlias = NDArray[np.uint8]
Rows: TypeAlias = tuple[Tokens, list[Codes]]
"""Some rows: their tokens, and the codes of each attribute."""

Duplicates = Literal["refuse", "first", "last", "identical"]
"""What becomes of rows with the same id: refused, or one of them is kept."""

OnRepeated: TypeAlias = Callable[[NDArray[np.int64], Tokens], None]
"""Told of rows, counted from 0, that share their token; equal tokens stand together."""

_ROW, _TOKEN = "row", "token"
_NO_ROW = -1
"""Where a decoy stands in the table: nowhere."""

_LISTED_ROWS = 5


class Intake:
    """The respondents of one curator in one study or vault, each with its token and codes.

    Add the whole table, close, then align and prepare.  Where the study has decoys, closing
    invents those that the curator holds, and from then on they stand among the respondents.  Used
    in a ``with`` statement it leaves nothing in the spool.

    ``duplicates`` says what becomes of rows with the same id.  By default they are refused; else
    the first or the last of them in the table is kept, or one of them if their codes are identical.
    """

    def __init__(
        self,
        agreement: Agreement,
        secret: bytes,
        schema: Schema,
        spool: Spool,
        *,
        curator: bytes,
        partitions: int = PARTITIONS,
        duplicates: Duplicates = "refuse",
    ) -> None:
        """Start with no rows; ``schema`` has the curator's attributes, and the spool is emptied."""
        _check_schema(agreement.schema_of(curator), schema)
        self.scope, self.schema, self.curator = agreement.scope, schema, curator
        self._secret = secret
        self._token_key = token_key(secret, agreement.scope)
        self._contract = agreement if isinstance(agreement, Contract) else None
        self._terms = None if self._contract is None else self._contract.coin_terms
        self._spool, self._partitions = spool, partitions
        starts = _ranges(partitions, self._terms)
        self._sorter = Sorter([(_ROW, "<i8"), *self._code_fields()], spool, starts)
        self._population = 0
        self.duplicates: Duplicates = duplicates
        self._dropped = 0
        self._was_read = False
        self._closed: _Closed | None = None

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
        if self._was_read:
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

    def tokens(self, ids: IdMessages) -> Tokens:
        """Return the tokens of ids, in their order."""
        return tokens(self._token_key, ids.data, ids.offsets)

    def close(self, on_repeated: OnRepeated | None = None) -> None:
        """Go through all respondents once: there must be some, and none may come twice.

        Repeated rows are left out before, where that was chosen.  Only then are decoys added, so
        that none of the digests of respondents has any.  ``on_repeated`` is told of every row that
        is refused because another row has its id, part by part.
        """
        if self._closed is not None:
            return
        if not self._population:
            raise LinkageError(
                "the table has no respondents", hint="give a table with at least one row"
            )
        if self._was_read:  # some decoys may be among the respondents already
            raise StateError(
                "the table could not be closed before", hint="read it again from the start"
            )
        self._was_read = True
        self._sorter.flush()
        if self.duplicates != "refuse":
            self._drop_duplicates(on_repeated)
        reading = _Reading(self.schema, self._secret, self.scope, self._terms, on_repeated)
        alignment = alignment_digest(
            alignment_key(self._secret, self.scope),
            self._population,
            reading.watch(self._parts(), self._codes),
        )
        if reading.repeated.count:
            self._spool.clear()
            raise reading.repeated.error()
        table = reading.table_digest(alignment)
        if self._contract is None or self._terms is None:
            self._closed = _Closed(alignment, table)
            return
        patterns = Patterns.of(self._contract)
        decoys = Decoys(patterns, self._terms, self._secret, self.scope)
        rows = reading.participants + self._add_decoys(self._contract, decoys)
        self._closed = _Closed(alignment, table, decoys.digest, rows)

    def _drop_duplicates(self, on_repeated: OnRepeated | None) -> None:
        """Count the rows that are left out, and refuse those that are not identical if need be."""
        differing = _Repeated(on_repeated)
        for records in self._sorter.parts():
            ordered = block_bytes(records, KEY)
            again = follows(ordered)
            self._dropped += int(np.count_nonzero(again))
            if self.duplicates == "identical":
                where = _in_differing_runs(again, self._codes(records))
                differing.add(records[_ROW][where], ordered[where])
        if differing.count:
            self._spool.clear()
            raise differing.error(", and differ from it in some attribute")
        self._population -= self._dropped

    def _parts(self) -> Iterator[Records]:
        """Read the parts back in order, without rows that are left out.

        Rows of one token stand together in one part, in the order of the table.
        """
        for records in self._sorter.parts():
            if not self._dropped:
                yield records
                continue
            again = follows(block_bytes(records, KEY))
            left_out = np.append(again[1:], False) if self.duplicates == "last" else again
            yield records[~left_out]

    def _add_decoys(self, contract: Contract, decoys: Decoys) -> int:
        """Add the decoys that this curator holds, and return how many they are."""
        place = [terms.party_id for terms in contract.curators].index(self.curator)
        added = 0
        for numbers, row_tokens in decoys.spans():
            held, codes = own_rows(decoys.patterns, self.schema, place, numbers, row_tokens)
            self._sorter.add(held, [np.full(len(held), _NO_ROW), *codes])
            added += len(held)
        self._sorter.flush()
        return added

    @property
    def population(self) -> int:
        """How many respondents there are."""
        self._check_closed()
        return self._population

    @property
    def dropped(self) -> int:
        """How many rows of the table were left out, because another row has the same id."""
        self._check_closed()
        return self._dropped

    @property
    def alignment_digest(self) -> bytes:
        """The keyed digest of who they are (spec 5.1)."""
        return self._check_closed().alignment

    @property
    def table_digest(self) -> bytes:
        """The keyed digest of who they are and of their codes, for the curator alone."""
        return self._check_closed().table

    @property
    def decoy_digest(self) -> bytes | None:
        """The keyed digest of all decoys of the study (spec 5.2); None if it has none."""
        return self._check_closed().decoys

    @property
    def sample_rows(self) -> int | None:
        """How many rows are uploaded: whoever takes part, and decoys; None without decoys.

        As secret as the study secret is which of them, and how many, are decoys.
        """
        return self._check_closed().sample_rows

    def rows(self, limit: int | None = None) -> Iterator[Rows]:
        """Yield the rows in token order, up to ``limit`` of them, span by span.

        With decoys, the rows are those who take part and the decoys.  They come first: their tokens
        are below the coin's threshold, and all others are not.
        """
        most = self._rows_to_upload()
        wanted = most if limit is None else min(limit, most)
        for records in cut(self._parts(), wanted, SPAN_ROWS):
            yield block_bytes(records, KEY), self._codes(records)

    def shuffled(self, order_key: bytes, spool: Spool) -> Generator[Rows]:
        """Yield all rows in ascending order of AES-256-CMAC(order key, token), span by span.

        ``spool`` must not be the one of the intake; it is emptied before and after.
        """
        if spool is self._spool:
            raise ParameterError("one spool cannot hold two orders", hint="give a second spool")
        fields = [(_TOKEN, BLOCK), *self._code_fields()]
        sorter = Sorter(fields, spool, range_starts(self._partitions))
        offsets = np.arange(0, TOKEN_BYTES * (SPAN_ROWS + 1), TOKEN_BYTES)
        try:
            for row_tokens, codes in self.rows():
                keys = tokens(order_key, row_tokens.reshape(-1), offsets[: len(row_tokens) + 1])
                sorter.add(keys, [row_tokens.view(BLOCK).reshape(-1), *codes])
            sorter.flush()
            for records in sorter.spans(self._rows_to_upload()):
                yield block_bytes(records, _TOKEN), self._codes(records)
        finally:
            spool.clear()

    def _rows_to_upload(self) -> int:
        sample = self._check_closed().sample_rows
        return self._population if sample is None else sample

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

    def _check_closed(self) -> "_Closed":
        if self._closed is None:
            raise StateError(
                "the table is not complete yet", hint="add all rows, and close it, before using it"
            )
        return self._closed


@dataclass(frozen=True, slots=True)
class _Closed:
    """What is known of a table once all of it was read."""

    alignment: bytes
    table: bytes
    decoys: bytes | None = None
    sample_rows: int | None = None


class _Reading:
    """One pass over the sorted respondents: who comes twice, who takes part, and the digests."""

    def __init__(
        self,
        schema: Schema,
        secret: bytes,
        scope: bytes,
        terms: CoinTerms | None,
        on_repeated: OnRepeated | None,
    ) -> None:
        self.repeated = _Repeated(on_repeated)
        self.participants = 0
        self._most = None if terms is None else np.uint64(terms.coin_threshold - 1)
        self._key = table_digest_key(secret, scope)
        self._columns = [hmac.new(self._key, digestmod="sha256") for _ in schema.attributes]

    def watch(
        self, parts: Iterator[Records], codes_of: Callable[[Records], list[Codes]]
    ) -> Iterator[Tokens]:
        """Pass the tokens of sorted records on."""
        for records in parts:
            ordered = block_bytes(records, KEY)
            self.repeated.look_at(records[_ROW], ordered)
            if self._most is not None:
                high = ordered.view(">u8")[:, 0].astype(np.uint64)
                self.participants += int(np.count_nonzero(high <= self._most))
            for digest, codes in zip(self._columns, codes_of(records), strict=True):
                digest.update(codes.view(np.uint8).data)
            yield ordered

    def table_digest(self, alignment: bytes) -> bytes:
        """Return the digest of all tokens and codes, however the table was cut into parts."""
        columns = [digest.digest() for digest in self._columns]
        return hmac.digest(self._key, b"".join([alignment, *columns]), "sha256")


class _Repeated:
    """Counts the rows that share a token with another row, and remembers the first few."""

    def __init__(self, report: OnRepeated | None) -> None:
        self.count = 0
        self._rows: list[int] = []
        self._report = report

    def look_at(self, rows: NDArray[np.int64], ordered: Tokens) -> None:
        """Look for equal tokens in a sorted part; they never are in two parts."""
        where = repeats(ordered)
        self.add(rows[where], ordered[where])

    def add(self, repeated: NDArray[np.int64], tokens: Tokens) -> None:
        """Count rows, which were found to be repeated, with their tokens."""
        if repeated.size:
            if self._report is not None:
                self._report(repeated, tokens)
            self.count += repeated.size
            first = np.sort(repeated)[:_LISTED_ROWS].tolist()
            self._rows = sorted(chain(self._rows, first))[:_LISTED_ROWS]

    def error(self, how: str = "") -> LinkageError:
        """Return the error, with the first rows, counted from 1."""
        rows = ", ".join(f"{row + 1}" for row in self._rows)
        return LinkageError(
            f"{self.count:,} rows share an id with another row{how}, such as rows {rows}",
            hint="each respondent must occur once in a table (row 1 is the first data row): fix it,"
            ' or choose which row counts: duplicates = "first", "last" or "identical" in the recode'
            f" file, or {Remedy.DUPLICATES}",
        )


def _in_differing_runs(again: NDArray[np.bool_], codes: Sequence[Codes]) -> NDArray[np.bool_]:
    """Say which rows share a token with others, not all of which have the same codes."""
    differ = np.zeros(len(again), dtype=np.bool_)
    for column in codes:
        differ[1:] |= column[1:] != column[:-1]
    runs = np.cumsum(~again)
    return np.isin(runs, runs[differ & again])


def _ranges(partitions: int, terms: CoinTerms | None) -> list[int]:
    """Return where the parts of the table begin.

    Decoys all have tokens below the coin's threshold.  However small it is, half of the parts are
    for those, so that no part becomes much longer than it would without decoys.
    """
    border = KEY_RANGE if terms is None else terms.coin_threshold
    below = partitions // 2
    if border > KEY_RANGE - RANGE_STEP or not below:  # no range would be left above the border
        return range_starts(partitions)
    return range_starts(below, 0, border) + range_starts(partitions - below, border)


def _check_schema(own: Schema, schema: Schema) -> None:
    """Refuse columns that are not the curator's attributes."""
    if schema != own:
        raise SchemaError(
            f"the table was read as {', '.join(map(repr, schema.names))}",
            hint=f"the curator's attributes are {', '.join(map(repr, own.names))}",
        )
