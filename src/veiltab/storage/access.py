"""What all records share: one transaction, and inserting a row unless it is there."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, Table
from sqlalchemy.dialects import postgresql, sqlite

CURATOR: Final = "curator"
RESEARCHER: Final = "researcher"


class Access:
    """One transaction's view of the database; the parts of ``Records`` build on it."""

    def __init__(self, connection: Connection, *, writing: bool) -> None:
        """Take a connection on which a transaction has begun."""
        self._connection = connection
        self._writing = writing

    def _insert_new(self, table: Table, values: Mapping[str, Any]) -> bool:
        """Insert a row unless one with its primary key is there; say whether it was inserted.

        Of two transactions that insert the same key at once, one waits for the other to end and
        then finds the row: exactly one of them is told ``True``.
        """
        statement = _insertion(self._connection.dialect.name, table)
        # SQLAlchemy asks the driver how many rows an INSERT made only if it is told to.
        options = {"preserve_rowcount": True}
        done = self._connection.execute(statement, values, execution_options=options)
        return done.rowcount == 1


@cache
def _insertion(dialect: str, table: Table) -> sqlite.Insert | postgresql.Insert:
    """Build a statement once: each request inserts a nonce, and building takes long."""
    if dialect == "sqlite":
        return sqlite.insert(table).on_conflict_do_nothing()
    return postgresql.insert(table).on_conflict_do_nothing()
