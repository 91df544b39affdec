"""Real databases for the tests of the service."""

from tests.support.storage import address, postgresql

__all__ = ["address", "postgresql"]
