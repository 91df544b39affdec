"""Bringing a database from one schema to the next with Alembic, which only that has to load."""

import threading
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

from veiltab.errors import StateError

FOLDER = Path(__file__).with_name("migrations")

_one_at_a_time = threading.Lock()
"""Alembic keeps the migration that runs in a global variable."""


def migrate(connection: Connection) -> None:
    """Upgrade to the newest schema inside the transaction that has begun."""
    refuse_newer(connection)
    with _one_at_a_time:
        command.upgrade(config_for(connection), "head")


def refuse_newer(connection: Connection) -> None:
    """Refuse a database whose schema this version does not know."""
    scripts = ScriptDirectory.from_config(config_for(connection))
    known = {script.revision for script in scripts.walk_revisions()}
    unknown = set(MigrationContext.configure(connection).get_current_heads()) - known
    if unknown:
        raise StateError(
            f"the database was made by a newer veiltab (schema {', '.join(sorted(unknown))})",
            hint="install that version or a later one, or restore a copy from before",
        )


def config_for(connection: Connection) -> Config:
    """Return what Alembic has to know: where the migrations are, and the connection."""
    config = Config()
    # The value is a template of configparser, in which a percent sign is written twice.
    config.set_main_option("script_location", str(FOLDER).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    config.attributes["connection"] = connection
    return config
