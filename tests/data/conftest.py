"""The fixtures of the tests of databases."""

from tests.support.databases import postgresql

__all__ = ["postgresql"]
