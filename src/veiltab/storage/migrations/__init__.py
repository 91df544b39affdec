"""The history of the database's schema; ``veiltab.storage.migration`` runs it."""
