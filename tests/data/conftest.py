"""The fixtures of the tests of databases."""

from tests.support.storage import postgresql

__all__ = ["postgresql"]
