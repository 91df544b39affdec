"""Respondents' ids: from columns of a table to the bytes that tokens are made of (spec 5)."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from veiltab.crypto.linkage import IdMessages
from veiltab.errors import LinkageError

RULES = ("nfc", "trim", "lowercase")
SEPARATOR = "\x1f"
_LISTED = 5
_SLICE = 1 << 20
_LETTERS = 26


def id_messages(
    frame: pl.DataFrame,
    columns: Sequence[str],
    normalisation: Sequence[str],
    *,
    first_row: int = 1,
) -> IdMessages:
    """Normalise the id columns and join them; empty and odd ids are errors.

    For a part of a longer table, ``first_row`` is the number of its first row.  Repeated ids are
    found by :meth:`veiltab.protocol.curator.table.Intake.close`.
    """
    if not columns:
        raise LinkageError(
            "no id column is named", hint="name the columns that tell respondents apart"
        )
    raw = [_column(frame, name) for name in columns]
    plain = _plain_messages(raw[0], normalisation) if len(raw) == 1 else None
    if plain is not None:
        return plain
    texts = [_normalised(text, normalisation) for text in raw]
    for text in texts:
        _refuse(text, text.is_null() | (text == ""), "an empty id", first_row)
    joined = texts[0]
    for text in texts[1:]:
        joined = joined + SEPARATOR + text
    messages = _to_bytes(joined)
    # First whether, and only then where: most tables have nothing to find.
    if np.count_nonzero(messages.data < ord(" ")) != (len(texts) - 1) * len(joined):
        for text in texts:
            odd = text.str.contains("[\x00-\x1f]")
            _refuse(text, odd, "an id with a control character", first_row)
    return messages


def row_messages(count: int, *, first_row: int = 1) -> IdMessages:
    """Use row numbers as ids, for tables that are already aligned; row 1 is ``0``."""
    numbers = pl.int_range(first_row - 1, first_row - 1 + count, eager=True)
    return _to_bytes(numbers.cast(pl.String))


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


def _plain_messages(text: pl.Series, rules: Sequence[str]) -> IdMessages | None:
    """Return the bytes of ids that are in their normal form already; ``None`` if any is not.

    Most tables have nothing but printable ASCII.  Looking at bytes shows that in a fifth of the
    time that looking at texts takes.
    """
    if text.null_count():
        return None
    messages = _to_bytes(text)
    data, starts, stops = messages.data, messages.offsets[:-1], messages.offsets[1:]
    if not data.size or data.min() < ord(" ") or data.max() > ord("~") or (starts == stops).any():
        return None
    if "trim" in rules and ((data[starts] == ord(" ")) | (data[stops - 1] == ord(" "))).any():
        return None
    if "lowercase" in rules and (data - np.uint8(ord("A")) < _LETTERS).any():  # others wrap around
        return None
    return messages if set(rules) <= set(RULES) else None


def _normalised(text: pl.Series, rules: Sequence[str]) -> pl.Series:
    for rule in rules:
        if rule == "nfc":
            text = _composed(text)
        elif rule == "trim":
            text = text.str.strip_chars()
        elif rule == "lowercase":
            text = text.str.to_lowercase()
        else:
            raise LinkageError(
                f"there is no normalisation rule {rule!r}", hint=f"choose from {', '.join(RULES)}"
            )
    return text


def _composed(text: pl.Series) -> pl.Series:
    """Bring texts into the form NFC; those of ASCII alone are in it, and most ids are."""
    odd = (text.str.len_bytes() != text.str.len_chars()).arg_true()
    return text.scatter(odd, text.gather(odd).str.normalize("NFC")) if len(odd) else text


def _refuse(text: pl.Series, bad: pl.Series, what: str, first_row: int) -> None:
    """Name the first few offenders with their rows; ids stay on the curator's own screen."""
    rows = bad.fill_null(value=True).arg_true()
    if len(rows):
        shown = "; ".join(f"row {row + first_row}: {_show(text[row])}" for row in rows[:_LISTED])
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
    if lengths.size and lengths.min() == lengths.max():
        offsets = np.arange(lengths.size + 1, dtype=np.int64) * int(lengths[0])
    else:
        offsets = np.zeros(lengths.size + 1, dtype=np.int64)
        np.cumsum(lengths, out=offsets[1:])
    data = np.empty(int(offsets[-1]), dtype=np.uint8)
    for start in range(0, len(texts), _SLICE):  # one text of all ids could be too long for polars
        joined = texts[start : start + _SLICE].str.join("").item().encode()
        data[offsets[start] : offsets[start] + len(joined)] = np.frombuffer(joined, np.uint8)
    return IdMessages(data, offsets)
