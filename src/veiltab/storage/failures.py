"""What a database refuses, as errors of veiltab: no SQL, no values, no passwords in them."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc

from veiltab.errors import StateError, UnavailableError, VeiltabError


@contextmanager
def database_errors() -> Iterator[None]:
    """Turn a database that does not answer into :class:`UnavailableError`.

    What the driver said is left out of the chain: PostgreSQL quotes rows, and rows have secrets.
    """
    try:
        yield
    except exc.TimeoutError:
        raise unavailable("every connection to it is in use") from None
    except exc.DBAPIError as error:
        problem = _translate(error)
        if problem is None:
            raise
        raise problem from None


def unavailable(reason: str) -> UnavailableError:
    """Build the error for a database that cannot be used now."""
    return UnavailableError(
        f"the database does not answer: {reason}",
        hint="try again later; the operator should look at the database and its disk",
    )


def _translate(error: exc.DBAPIError) -> VeiltabError | None:
    if isinstance(error, exc.IntegrityError):
        return StateError(
            "the database refuses a record that contradicts what is there",
            hint="look at the study's status; each step has its time, and happens once",
        )
    gone = isinstance(error, exc.OperationalError | exc.InterfaceError)
    # SQLite reports a file that is no database, or a damaged one, by the root of its errors.
    damaged = type(error) is exc.DatabaseError
    if gone or damaged or _reason(error) == "UndefinedTable" or error.connection_invalidated:
        return unavailable(_reason(error))
    return None


def _reason(error: exc.DBAPIError) -> str:
    """Say what happened: SQLite's own few words, or the name of PostgreSQL's condition."""
    original = error.orig
    if original is None:
        return type(error).__name__
    if type(original).__module__ == "sqlite3":
        return str(original)
    return type(original).__name__
