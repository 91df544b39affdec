"""Taking in a whole table: every row is read, and everything that does not fit is found at once.

A push and a check read a table in the same way, so that both refuse the same tables.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.crypto.linkage import IdMessages
from veiltab.data.dates import DateForm
from veiltab.data.encoding import Encoder
from veiltab.data.ids import BadIds, id_messages, row_messages, show_id
from veiltab.data.offenders import Offenders, Repeats
from veiltab.data.recode import Rule
from veiltab.data.tables import BATCH_ROWS, Table
from veiltab.errors import LinkageError, MisfitError, VeiltabError
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.sorting import MemorySpool, Spool
from veiltab.remedies import Remedy
from veiltab.wire.contract import Linkage

_LISTED = 5


@dataclass(frozen=True, slots=True)
class Reading:
    """A table that was read to its end: how many rows it has, and what does not fit."""

    rows: int
    problems: tuple[VeiltabError, ...]

    def check(self) -> None:
        """Raise one error that says everything that is wrong, if anything is."""
        raise_problems(self.problems)


def raise_problems(problems: Sequence[VeiltabError]) -> None:
    """Raise the one problem that there is, or one error about all of them."""
    if len(problems) == 1:
        raise problems[0]
    if problems:
        raise _misfit(tuple(problems))


def _misfit(problems: tuple[VeiltabError, ...]) -> MisfitError:
    """Put the messages and hints of all problems into one error."""
    lines = [f"the table does not fit, for {len(problems)} reasons"]
    for problem in problems:
        first, *more = problem.message.splitlines()
        lines += [f"- {first}", *(f"  {line}" for line in more), f"  ({problem.hint})"]
    return MisfitError(
        "\n".join(lines),
        hint=f"correct the table, or how it is recoded; {Remedy.WRITE_OFFENDERS}",
        problems=problems,
    )


def feed(
    intake: Intake,
    table: Table,
    linkage: Linkage,
    ids: Sequence[str] = (),
    *,
    rules: Mapping[str, Rule] | None = None,
    columns: Mapping[str, str] | None = None,
    dates: Mapping[str, DateForm] | None = None,
    batch_rows: int = BATCH_ROWS,
    offenders: Offenders | None = None,
    spool: Spool | None = None,
    check_population: Callable[[int], None] | None = None,
) -> Reading:
    """Take in a whole table, close the intake, and return what is wrong with the table.

    ``ids`` are the columns that tell respondents apart, as many as the agreement says; ``rules``
    and ``columns`` are those of :class:`~veiltab.data.encoding.Encoder`, and ``dates`` says how
    dates are written in columns of ids.  Whatever does not fit,
    the table is read to its end, so that all of it shows; ``offenders`` is told of every row.
    ``spool`` holds rows with repeated ids meanwhile, and ``check_population`` may refuse the number
    of respondents.  With problems, the intake is of no use.
    """
    if len(ids) != (linkage.columns or 0):
        raise LinkageError(
            f"{_parts(linkage.columns or 0)}, and you named {len(ids) or 'none'}",
            hint=f"{Remedy.IDS}; none where rows match by their order",
        )
    offenders = Offenders() if offenders is None else offenders
    rows = _Rows(table, linkage, tuple(ids), dates or {}, batch_rows)
    encoder = Encoder(intake.schema, rules, columns, table.format.marks, offenders)
    bad_ids = BadIds(offenders)
    read = 0
    for first, frame in rows.batches(encoder.columns):
        read += frame.height
        messages = rows.messages(frame, first, bad_ids)
        codes = encoder.encode(frame)
        if codes is None:  # any codes will do to find repeated ids
            types = (attribute.dtype for attribute in intake.schema.attributes)
            codes = [np.zeros(frame.height, dtype=dtype) for dtype in types]
        intake.add(messages, codes)
    problems: list[VeiltabError | None] = [encoder.error(), bad_ids.error()]
    if problems[0] is not None and intake.duplicates == "identical":
        return _found(read, problems)  # which rows are identical shows when all have codes
    repeats = Repeats(MemorySpool() if spool is None else spool)
    try:
        problems.append(_close(intake, rows, repeats, offenders))
    finally:
        repeats.clear()
    if problems[-1] is None and check_population is not None:
        problems.append(_refusal(check_population, intake.population))
    return _found(read, problems)


def _parts(columns: int) -> str:
    if not columns:
        return "rows match by their order here, without ids"
    return f"an id has {columns:,} column{'s' * (columns != 1)} here"


def _found(rows: int, problems: Sequence[VeiltabError | None]) -> Reading:
    return Reading(rows, tuple(problem for problem in problems if problem is not None))


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a table, with their numbers and ids."""

    table: Table
    linkage: Linkage
    ids: tuple[str, ...]
    dates: Mapping[str, DateForm]
    batch_rows: int

    def batches(self, columns: Sequence[str] = ()) -> Iterator[tuple[int, pl.DataFrame]]:
        """Yield the ids and these columns, a batch at a time, with the number of the first row."""
        first = 1
        for frame in self.table.batches([*self.ids, *columns], self.batch_rows):
            yield first, frame
            first += frame.height

    def messages(self, frame: pl.DataFrame, first: int, bad_ids: BadIds) -> IdMessages:
        """Return what the tokens of some rows are made of."""
        if self.linkage.by == "rows":
            return row_messages(frame.height, first_row=first)
        rules = self.linkage.normalisation
        return id_messages(
            frame, self.ids, rules, dates=self.dates, first_row=first, bad_ids=bad_ids
        )


def _close(
    intake: Intake, rows: _Rows, repeats: Repeats, offenders: Offenders
) -> LinkageError | None:
    """Close the intake; where ids come twice, look them up and return the error."""
    try:
        intake.close(repeats.add)
    except LinkageError as error:
        shown = _look_up(intake, rows, repeats, offenders) if repeats.found else []
        return LinkageError("\n".join([error.message, *shown]), hint=error.hint)
    return None


def _look_up(intake: Intake, rows: _Rows, repeats: Repeats, offenders: Offenders) -> list[str]:
    """Read the table once more for the ids that are repeated, and show the first few.

    A database may return its rows in another order now.  An id that is not the one of before is
    left out, rather than put beside the wrong row.
    """
    shown: list[str] = []
    for first, frame in rows.batches():
        records = repeats.among(first, frame.height)
        if not records.size:
            continue
        found = frame[records["row"] - first]
        text = pl.concat_str(pl.col(rows.ids).cast(pl.String), separator=" + ")
        same = _same(intake, rows, found, records["token"])
        values = found.select(pl.when(same).then(text)).to_series()
        numbers, firsts = pl.Series(records["row"]), pl.Series(records["first"])
        offenders.add("repeated id", ", ".join(rows.ids), numbers, values, firsts)
        for row, value in zip(numbers[:_LISTED], values[:_LISTED], strict=True):
            if len(shown) < _LISTED and value is not None:
                shown.append(f"  row {row}: {show_id(value)}")
    return shown


def _same(intake: Intake, rows: _Rows, frame: pl.DataFrame, tokens: NDArray[np.void]) -> pl.Series:
    """Say which rows still have the token that they had when the intake saw them."""
    now = intake.tokens(rows.messages(frame, 1, BadIds()))
    return pl.Series(np.ascontiguousarray(now).view("V16").reshape(-1) == tokens)


def _refusal(check: Callable[[int], None], population: int) -> VeiltabError | None:
    try:
        check(population)
    except VeiltabError as error:
        return error
    return None
