"""The fixtures of commands that read a database."""

from tests.support.storage import postgresql

__all__ = ["postgresql"]
