"""Where the records and fields of CSV (RFC 4180) begin and end, on whole blocks of bytes."""

import csv
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veiltab.errors import TableError

_END, _RETURN = b"\n\r"


@dataclass(frozen=True, slots=True)
class Marks:
    """What separates fields, and what encloses those that hold a separator or a line break."""

    separator: bytes
    quote: bytes = b'"'
    """Empty if quotes mean nothing."""

    def first_end(self, data: bytes) -> int:
        """Return where the first record ends: at a line break outside quotes, or with the data."""
        stop = data.find(b"\n") + 1
        while stop and self._quotes(data, 0, stop) % 2:
            stop = data.find(b"\n", stop) + 1
        return stop or len(data)

    def last_end(self, data: bytes) -> int:
        """Return where the last whole record of data that begins with one ends, or 0."""
        stop = data.rfind(b"\n") + 1
        open_quotes = self._quotes(data, 0, stop) % 2
        while stop and open_quotes:
            before = data.rfind(b"\n", 0, stop - 1) + 1
            open_quotes ^= self._quotes(data, before, stop) % 2
            stop = before
        return stop

    def is_open(self, data: bytes) -> bool:
        """Tell whether data that begin with a record end within quotes."""
        return self._quotes(data, 0, len(data)) % 2 == 1

    def records(self, block: bytes) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return where the line break of each record is, and how many fields each one has."""
        data = np.frombuffer(block, dtype=np.uint8)
        places = np.flatnonzero(self._outside_quotes(data))
        ends = np.flatnonzero(data[places] == _END)
        return places[ends], np.diff(ends, prepend=-1)

    def stray_quote(self, block: bytes) -> int | None:
        """Return the place of a quote that neither begins nor ends a field, and is not doubled.

        Readers of CSV do not agree on what such a row says.  The data begin with a record and end
        with a line break.
        """
        if not self.quote:
            return None
        data = np.frombuffer(block, dtype=np.uint8)
        quote, separator = self.quote[0], self.separator[0]
        quotes = np.flatnonzero(data == quote)
        opening, closing = quotes[::2], quotes[1::2]
        wrong = np.concatenate(
            [
                opening[~np.isin(data[opening - 1], (quote, separator, _END))],
                closing[~np.isin(data[closing + 1], (quote, separator, _END, _RETURN))],
            ]
        )
        return int(wrong.min()) if wrong.size else None

    def split(self, record: bytes) -> list[str]:
        """Split one record, such as the header, into its fields."""
        text, quotes = record.decode().rstrip("\r\n"), bool(self.quote)
        try:
            (fields,) = csv.reader(
                [text],
                strict=True,
                delimiter=self.separator.decode(),
                quotechar=self.quote.decode() if quotes else None,
                quoting=csv.QUOTE_MINIMAL if quotes else csv.QUOTE_NONE,
            )
        except (csv.Error, ValueError):
            raise TableError("the header is not well quoted", hint="fix its quotes") from None
        return fields

    def _quotes(self, data: bytes, start: int, stop: int) -> int:
        return data.count(self.quote, start, stop) if self.quote else 0

    def _outside_quotes(self, data: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Mark the separators and line breaks that separate fields and records."""
        marks: NDArray[np.bool_] = (data == self.separator[0]) | (data == _END)
        if self.quote:
            quotes = data == self.quote[0]
            if quotes.any():
                marks &= ~np.logical_xor.accumulate(quotes)
        return marks
