"""Real databases for the tests of the service."""

from tests.support.databases import address, postgresql

__all__ = ["address", "postgresql"]
