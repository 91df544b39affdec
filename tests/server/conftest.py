"""Real databases for the tests of the service."""

from tests.support.storage import address, database, postgresql

__all__ = ["address", "database", "postgresql"]
