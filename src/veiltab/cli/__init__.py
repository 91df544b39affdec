"""The ``veiltab`` command."""
