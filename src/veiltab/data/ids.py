"""Respondents' ids: from columns of a table to the bytes that tokens are made of (spec 5)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import time

import numpy as np
import polars as pl

from veiltab.crypto.linkage import IdMessages
from veiltab.data.dates import DateForm
from veiltab.data.folding import RULES, folded
from veiltab.data.offenders import Offenders, Problem
from veiltab.errors import LinkageError

SEPARATOR = "\x1f"
_LISTED = 5
_SLICE = 1 << 20
_LETTERS = 26


def id_messages(
    frame: pl.DataFrame,
    columns: Sequence[str],
    normalisation: Sequence[str],
    *,
    dates: Mapping[str, DateForm] | None = None,
    first_row: int = 1,
    bad_ids: "BadIds | None" = None,
) -> IdMessages:
    """Normalise the id columns and join them; empty and odd ids are errors.

    ``dates`` says how dates are written in some columns.  For a part of a longer table,
    ``first_row`` is the number of its first row, and ``bad_ids`` collects what is wrong: an id
    that cannot be used is then replaced by one that no other row has.  Repeated ids are found by
    :meth:`veiltab.protocol.curator.table.Intake.close`.
    """
    if not columns:
        raise LinkageError(
            "no id column is named", hint="name the columns that tell respondents apart"
        )
    _check_rules(normalisation)
    found = BadIds() if bad_ids is None else bad_ids
    bad = pl.repeat(value=False, n=frame.height, eager=True)
    raw = []
    for name in columns:
        form = (dates or {}).get(name)
        column, odd = _column(frame, name, form)
        wanted = "" if form is None else form.form
        for problem, where in odd.items():
            bad |= found.add(column.shown, where, problem, first_row, wanted)
        raw.append(column.plain)
    plain = _plain_messages(raw[0], normalisation) if len(raw) == 1 and not bad.any() else None
    if plain is not None:
        return plain
    texts = [folded(text, normalisation) for text in raw]
    for text in texts:
        empty = (text.is_null() | (text == "")).fill_null(value=True) & ~bad
        bad |= found.add(text, empty, "empty id", first_row)
    joined = texts[0]
    for text in texts[1:]:
        joined = joined + SEPARATOR + text
    messages = _to_bytes(_usable(joined, bad, first_row))
    # First whether, and only then where: most tables have nothing to find.
    separators = (len(texts) - 1) * len(joined)
    if bad.any() or np.count_nonzero(messages.data < ord(" ")) != separators:
        for text in texts:
            control = text.str.contains("[\x00-\x1f]").fill_null(value=False)
            bad |= found.add(text, control, "control character in id", first_row)
        messages = _to_bytes(_usable(joined, bad, first_row))
    if bad_ids is None:
        found.finish()
    return messages


def _usable(joined: pl.Series, bad: pl.Series, first_row: int) -> pl.Series:
    """Put row numbers after a NUL, which no id has, in the place of ids that cannot be used."""
    if not bad.any():
        return joined
    rows = pl.int_range(first_row, first_row + len(joined), eager=True).cast(pl.String)
    return pl.select(pl.when(bad).then("\0" + rows).otherwise(joined)).to_series()


def row_messages(count: int, *, first_row: int = 1) -> IdMessages:
    """Use row numbers as ids, for tables that are already aligned; row 1 is ``0``."""
    numbers = pl.int_range(first_row - 1, first_row - 1 + count, eager=True)
    return _to_bytes(numbers.cast(pl.String))


@dataclass(frozen=True, slots=True)
class _IdTexts:
    """A column of ids: as they are compared, and as the table shows them."""

    plain: pl.Series
    shown: pl.Series


def _column(
    frame: pl.DataFrame, name: str, form: DateForm | None
) -> tuple[_IdTexts, dict[Problem, pl.Series]]:
    """Return a column of ids as texts, and which are no dates where dates are expected.

    A date has one text only, that of ISO 8601.
    """
    if name not in frame.columns:
        raise LinkageError(
            f"the table has no id column {name!r}",
            hint=f"its columns are {', '.join(map(repr, frame.columns)) or 'none'}",
        )
    column = frame[name]
    if column.dtype == pl.Date or (form is not None and column.dtype == pl.Datetime):
        return _typed_dates(column)
    if not (column.dtype.is_integer() or column.dtype in (pl.String, pl.Categorical, pl.Enum)):
        raise LinkageError(
            f"the id column {name!r} is {column.dtype}; ids are text, whole numbers or dates",
            hint="convert it to text, in the same way as the other curators do; for dates, write"
            " their form under [ids] in a recode file",
        )
    texts = column.cast(pl.String)
    return (_IdTexts(texts, texts), {}) if form is None else _iso_dates(texts, form)


def _typed_dates(column: pl.Series) -> tuple[_IdTexts, dict[Problem, pl.Series]]:
    """Write dates that the table has as such; a time of day belongs to no date."""
    texts = _IdTexts(column.dt.strftime("%Y-%m-%d"), column.cast(pl.String))
    if column.dtype != pl.Datetime:
        return texts, {}
    return texts, {"time of day in id": (column.dt.time() != time(0)).fill_null(value=False)}


def _iso_dates(texts: pl.Series, form: DateForm) -> tuple[_IdTexts, dict[Problem, pl.Series]]:
    """Write dates as all curators do; each different one is read once."""
    different = texts.unique().drop_nulls()
    iso = form.to_iso(different)
    places = texts.cast(pl.Enum(different)).to_physical()
    dates = iso.gather(places).alias(texts.name)
    bad = dates.is_null() & texts.is_not_null() & (texts.str.strip_chars() != "")
    return _IdTexts(dates, texts), {"no date in id": bad.fill_null(value=False)}


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
    return messages


def _check_rules(rules: Sequence[str]) -> None:
    unknown = [rule for rule in rules if rule not in RULES]
    if unknown:
        raise LinkageError(
            f"there is no normalisation rule {unknown[0]!r}", hint=f"choose from {', '.join(RULES)}"
        )


class BadIds:
    """Ids that cannot be used, collected over the parts of a table, so that one error shows all.

    The first few are in the message: ids stay on the curator's own screen.
    """

    def __init__(self, offenders: Offenders | None = None) -> None:
        """Start with nothing wrong; ``offenders`` is told of every row."""
        self._offenders = Offenders() if offenders is None else offenders
        self._counts: dict[tuple[Problem, str], int] = {}
        self._shown: dict[tuple[Problem, str], list[str]] = {}
        self._forms: dict[tuple[Problem, str], str] = {}

    def add(
        self, text: pl.Series, bad: pl.Series, problem: Problem, first_row: int, form: str = ""
    ) -> pl.Series:
        """Count the bad ones among the ids of a column, and return which ones they are.

        ``form`` is how its dates are to be written, if it has any.
        """
        rows = bad.arg_true()
        if len(rows):
            kind = (problem, text.name)
            self._forms[kind] = form
            self._counts[kind] = self._counts.get(kind, 0) + len(rows)
            shown = self._shown.setdefault(kind, [])
            for row in rows[: _LISTED - len(shown)]:
                shown.append(f"row {row + first_row}: {show_id(text[row])}")
            self._offenders.add(problem, text.name, rows + first_row, text.filter(bad))
        return bad

    def error(self) -> LinkageError | None:
        """Return one error about all of them, if there are any."""
        lines = []
        for (problem, column), count in self._counts.items():
            shown = self._shown[problem, column]
            more = f"; and {count - len(shown):,} more" if count > len(shown) else ""
            what = _WORDS[problem].format(form=self._forms[problem, column])
            rows = "1 row has" if count == 1 else f"{count:,} rows have"
            lines.append(f"{rows} {what} in column {column!r} ({'; '.join(shown)}{more})")
        if not lines:
            return None
        return LinkageError(
            "\n".join(lines),
            hint="each respondent needs one id of its own; fix the table (row 1 is the first"
            f" data row){self._about_dates()}",
        )

    def _about_dates(self) -> str:
        if all(problem != "no date in id" for problem, _ in self._counts):
            return ""
        return "; or, if it writes all dates in another way, say so under [ids] in the recode file"

    def finish(self) -> None:
        """Raise the error, if there is one."""
        error = self.error()
        if error is not None:
            raise error


_WORDS: dict[Problem, str] = {
    "empty id": "an empty id",
    "control character in id": "an id with a control character",
    "no date in id": "no date of the form {form}",
    "time of day in id": "a time of day beside the date",
}


def show_id(value: str | None) -> str:
    """Show an id on one line, with its parts apart."""
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
