"""Options that commands share: who runs them, and where a table is."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from veiltab.cli.output import ask_secret, guard_keys, on_terminal, read_secret, tell
from veiltab.cli.serve import check_no_password
from veiltab.errors import HomeError, KeyFileError, ParameterError

if TYPE_CHECKING:
    from veiltab.crypto.identity import PrivateIdentity
    from veiltab.data.tables import Table
    from veiltab.party.home import Home
    from veiltab.party.session import Session


PATIENCE = 20.0
"""Seconds to try a server that does not answer, while somebody looks on."""

LONG_PATIENCE = 600.0
"""The same for a long transfer: a restart of the server must not end it."""


@dataclass(frozen=True, slots=True)
class PartyOptions:
    """The options that every command of a party has."""

    home_option: Path | None
    passphrase_file: Path | None

    @property
    def home(self) -> "Home":
        """The home that the options name."""
        from veiltab.party.home import Home

        return Home(self.home_option)

    def identity(self) -> "PrivateIdentity":
        """Open the identity; one that is locked takes its passphrase."""
        identity = self.home.open(self.passphrase())
        guard_keys()
        return identity

    def passphrase(self) -> str | None:
        """Return the passphrase of the identity, if it is locked."""
        return self._passphrase(self.home) if self.home.locked else None

    def session(self, patience: float | None = None) -> "Session":
        """Connect to the server that this home has registered with."""
        from veiltab.party.connection import Retry
        from veiltab.party.context import check_registered
        from veiltab.party.session import connect

        home = self.home
        check_registered(home)  # before a passphrase is asked for
        return connect(
            home,
            self.identity(),
            Retry(total=PATIENCE if patience is None else patience, on_wait=_tell_wait),
        )

    def _passphrase(self, home: "Home") -> str:
        if self.passphrase_file is not None:
            return read_secret(self.passphrase_file, "passphrase")
        if on_terminal():
            return ask_secret(f"Passphrase of {_name(home)}")
        raise KeyFileError(
            f"the identity in {home.path} is locked, and there is no terminal to ask on",
            hint="name a file that holds the passphrase with --passphrase-file",
        )


def _name(home: "Home") -> "str | Path":
    """Return what to call a home in a prompt: opening it writes a public identity that is lost."""
    try:
        return home.public.name
    except HomeError:
        return home.path


def party_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--home`` and ``--passphrase-file``, which the command gets as one ``party``."""

    @wraps(command)
    def with_party(
        *arguments: Any, home: Path | None, passphrase_file: Path | None, **options: Any
    ) -> Any:  # noqa: ANN401 - whatever the command returns
        return command(*arguments, party=PartyOptions(home, passphrase_file), **options)

    for option in (_PASSPHRASE_FILE, _HOME):
        option(with_party)
    return with_party


_HOME = click.option(
    "--home",
    type=click.Path(path_type=Path),
    help="Where your identity lives.  The default is $VEILTAB_HOME, or ~/.veiltab.",
)
_PASSPHRASE_FILE = click.option(
    "--passphrase-file",
    type=click.Path(path_type=Path),
    help="A file that holds the passphrase of your identity, for scripts.",
)


def _tell_wait(reason: str, seconds: float) -> None:
    tell(f"the server does not answer ({reason}); trying again in {seconds:.0f} s")


ENVIRONMENT = "VEILTAB_TABLE_URL"
Command = TypeVar("Command", bound=Callable[..., object])


def table_options(name: str, variable: str) -> Callable[[Command], Command]:
    """Add the option for a table under this name, ``--query`` and ``--table-file``."""

    def add(command: Command) -> Command:
        for option in (
            click.option(
                "--table-file",
                type=click.Path(dir_okay=False, path_type=Path),
                help=f"A file that holds the database's address, password included; ${ENVIRONMENT}"
                " can hold it too.",
            ),
            click.option("--query", help="In a database: the name of a table, or an SQL query."),
            click.option(
                name,
                variable,
                metavar="FILE_OR_URL",
                help="A .csv, .csv.gz or .parquet file, or a database: sqlite:///… or"
                " postgresql://…, without a password.",
            ),
        ):
            option(command)
        return command

    return add


def open_source(
    option: str, location: str | None, query: str | None, table_file: Path | None
) -> "Table":
    """Open the table that the options name."""
    from veiltab.data.tables import open_table

    return open_table(_location(option, location, table_file), query)


def names_table(location: str | None, table_file: Path | None) -> bool:
    """Tell whether the options, or the environment, name a table at all."""
    return not (location is None and table_file is None and not os.environ.get(ENVIRONMENT))


def _location(option: str, location: str | None, table_file: Path | None) -> str:
    if location is not None and table_file is not None:
        raise ParameterError(
            f"give either {option} or --table-file, and not both",
            hint="the file is for an address with a password in it",
        )
    if table_file is not None:
        return read_secret(table_file, "address of the table").strip()
    if location is not None:
        if "://" in location:
            check_no_password(location, option, f"${ENVIRONMENT}, or --table-file")
        return location
    address = os.environ.get(ENVIRONMENT)
    if not address:
        raise ParameterError(
            "no table is named",
            hint=f"name a file or a database with {option}, --table-file or ${ENVIRONMENT}",
        )
    return address
