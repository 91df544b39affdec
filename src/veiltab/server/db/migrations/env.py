"""How Alembic runs a migration here: on a connection, and in a transaction, that it is given."""

from alembic import context

from veiltab.server.db.tables import METADATA

context.configure(connection=context.config.attributes["connection"], target_metadata=METADATA)
context.run_migrations()
