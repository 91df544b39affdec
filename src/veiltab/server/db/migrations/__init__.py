"""The history of the database's schema; ``veiltab.server.db.database`` runs it."""
