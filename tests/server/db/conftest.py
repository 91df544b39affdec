"""The fixtures of every test of storage."""

from tests.support.databases import address, database, postgresql

__all__ = ["address", "database", "postgresql"]
