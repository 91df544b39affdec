"""Respondents' ids: from columns of a table to the bytes that tokens are made of (spec 5)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.errors import LinkageError

RULES = ("nfc", "trim", "lowercase")
SEPARATOR = "\x1f"
_LISTED = 5
_SLICE = 1 << 20


@dataclass(frozen=True, slots=True, eq=False)
class IdMessages:
    """One byte string per respondent: message i is ``data[offsets[i]:offsets[i + 1]]``."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        """Return how many respondents there are."""
        return self.offsets.size - 1


def id_messages(
    frame: pl.DataFrame, columns: Sequence[str], normalisation: Sequence[str]
) -> IdMessages:
    """Normalise the id columns and join them; empty, odd and repeated ids are errors."""
    if not columns:
        raise LinkageError(
            "no id column is named", hint="name the columns that tell respondents apart"
        )
    texts = [_normalised(_column(frame, name), normalisation) for name in columns]
    for text in texts:
        _refuse(text, text.is_null() | (text == ""), "an empty id")
        _refuse(text, text.str.contains("[\x00-\x1f]"), "an id with a control character")
    joined = texts[0]
    for text in texts[1:]:
        joined = joined + SEPARATOR + text
    repeated = joined.is_duplicated()
    _refuse(joined, repeated, "an id that occurs more than once")
    return _to_bytes(joined)


def row_messages(count: int) -> IdMessages:
    """Stand row numbers in for ids, for tables that are already aligned."""
    return _to_bytes(pl.int_range(count, eager=True).cast(pl.String))


def _column(frame: pl.DataFrame, name: str) -> pl.Series:
    if name not in frame.columns:
        raise LinkageError(
            f"the table has no id column {name!r}",
            hint=f"its columns are {', '.join(map(repr, frame.columns)) or 'none'}",
        )
    column = frame[name]
    if not (column.dtype.is_integer() or column.dtype in (pl.String, pl.Categorical, pl.Enum)):
        raise LinkageError(
            f"the id column {name!r} is {column.dtype}; ids are text or whole numbers",
            hint="convert it to text, in the same way as the other curators do",
        )
    return column.cast(pl.String)


def _normalised(text: pl.Series, rules: Sequence[str]) -> pl.Series:
    for rule in rules:
        if rule == "nfc":
            text = text.str.normalize("NFC")
        elif rule == "trim":
            text = text.str.strip_chars()
        elif rule == "lowercase":
            text = text.str.to_lowercase()
        else:
            raise LinkageError(
                f"there is no normalisation rule {rule!r}", hint=f"choose from {', '.join(RULES)}"
            )
    return text


def _refuse(text: pl.Series, bad: pl.Series, what: str) -> None:
    """Name the first few offenders with their rows; ids stay on the curator's own screen."""
    rows = bad.fill_null(value=True).arg_true()
    if len(rows):
        shown = "; ".join(f"row {row + 1}: {_show(text[row])}" for row in rows[:_LISTED])
        more = f"; and {len(rows) - _LISTED:,} more" if len(rows) > _LISTED else ""
        raise LinkageError(
            f"{len(rows):,} rows have {what} in column {text.name!r} ({shown}{more})",
            hint="each respondent needs one id of its own; fix the table (row 1 is the first"
            " data row)",
        )


def _show(value: str | None) -> str:
    return "(missing)" if value is None else repr(value.replace(SEPARATOR, " + "))


def _to_bytes(texts: pl.Series) -> IdMessages:
    lengths = texts.str.len_bytes().to_numpy()
    offsets = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    data = np.empty(int(offsets[-1]), dtype=np.uint8)
    for start in range(0, len(texts), _SLICE):  # one text of all ids could be too long for polars
        joined = texts[start : start + _SLICE].str.join("").item().encode()
        data[offsets[start] : offsets[start] + len(joined)] = np.frombuffer(joined, np.uint8)
    return IdMessages(data, offsets)
