"""From a table to an intake: ids and categories, batch by batch."""

from collections.abc import Mapping, Sequence

from veiltab.core.recode import Rule
from veiltab.errors import LinkageError
from veiltab.protocol.curator.table import Intake
from veiltab.sources.encoding import Encoder
from veiltab.sources.ids import id_messages, row_messages
from veiltab.sources.tables import Table
from veiltab.wire.contract import Linkage

BATCH_ROWS = 1 << 18
"""Rows that are read at a time, unless somebody asks for others."""


def feed(
    intake: Intake,
    table: Table,
    linkage: Linkage,
    ids: Sequence[str] = (),
    *,
    rules: Mapping[str, Rule] | None = None,
    columns: Mapping[str, str] | None = None,
    batch_rows: int = BATCH_ROWS,
) -> None:
    """Take in a whole table, and close the intake.

    ``ids`` are the columns that tell respondents apart, as many as the agreement says; ``rules``
    and ``columns`` are those of :class:`~veiltab.sources.encoding.Encoder`.  If values have no
    category the table is read to its end, so that one error shows all of them.
    """
    if len(ids) != (linkage.columns or 0):
        raise LinkageError(
            f"{len(ids)} id columns are named, and the agreement has {linkage.columns or 0}",
            hint="name one for each part of an id; none where rows are matched by their order",
        )
    encoder = Encoder(intake.schema, rules, columns)
    first = 1
    for frame in table.batches([*ids, *encoder.columns], batch_rows):
        if linkage.by == "rows":
            messages = row_messages(frame.height, first_row=first)
        else:
            messages = id_messages(frame, ids, linkage.normalisation, first_row=first)
        codes = encoder.encode(frame)
        if codes is not None:
            intake.add(messages, codes)
        first += frame.height
    encoder.finish()
    intake.close()
