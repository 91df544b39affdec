"""Bringing a database to the schema of this version, whatever version made it."""

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from veiltab.errors import StateError

FOLDER = Path(__file__).with_name("migrations")

_ADVISORY_LOCK = int.from_bytes(b"veiltab")
_one_at_a_time = threading.Lock()
"""Alembic keeps the migration that runs in a global variable."""


def upgrade(connection: Connection) -> None:
    """Upgrade to the newest schema inside the transaction that has begun: wholly or not at all.

    If several servers start at once, one upgrades and the others wait: SQLite has one writer at a
    time, and on PostgreSQL they queue for a lock.
    """
    if connection.dialect.name == "postgresql":
        # A table of many rows may take longer to change than any request may take.
        connection.execute(text("SET LOCAL statement_timeout = 0"))
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
    config = _config(connection)
    _refuse_newer(connection, ScriptDirectory.from_config(config))
    with _one_at_a_time:
        command.upgrade(config, "head")


def _config(connection: Connection) -> Config:
    config = Config()
    # The value is a template of configparser, in which a percent sign is written twice.
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config


def _refuse_newer(connection: Connection, scripts: ScriptDirectory) -> None:
    known = {script.revision for script in scripts.walk_revisions()}
    unknown = set(MigrationContext.configure(connection).get_current_heads()) - known
    if unknown:
        raise StateError(
            f"the database was made by a newer veiltab (schema {', '.join(sorted(unknown))})",
            hint="install that version or a later one, or restore a copy from before",
        )
