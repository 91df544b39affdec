"""The history of the database's schema; ``veiltab.server.db.migration`` runs it."""
