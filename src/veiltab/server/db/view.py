"""A connection on which a transaction has begun: what all parts of ``Records`` build on."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite


class TransactionView:
    """A connection on which a transaction has begun; the parts of ``Records`` build on it."""

    def __init__(self, connection: Connection, *, writing: bool) -> None:
        """Take the connection; ``writing`` says whether the transaction may write."""
        self._connection = connection
        self._writing = writing

    def _insert_new(self, table: Table, values: Mapping[str, Any]) -> bool:
        """Insert a row unless one with its primary key is there; say whether it was inserted.

        Of two transactions that insert the same key at once, one waits for the other to end and
        then finds the row: exactly one of them gets ``True``.
        """
        statement = _insertion(self._connection.dialect.name, table)
        # SQLAlchemy asks the driver how many rows an INSERT made only if it is told to.
        options = {"preserve_rowcount": True}
        result = self._connection.execute(statement, values, execution_options=options)
        return result.rowcount == 1


@cache
def _insertion(dialect: str, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Build a statement once: every request inserts a nonce, and building takes longer."""
    if dialect == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return postgresql.insert(table).on_conflict_do_nothing()
