"""The fixtures of every test of storage."""

from tests.support.storage import address, database, postgresql

__all__ = ["address", "database", "postgresql"]
