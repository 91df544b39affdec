"""Options that commands share: who runs them, and where a table is."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from veiltab.cli.output import (
    ask_secret,
    count,
    guard_keys,
    on_terminal,
    read_secret,
    tell,
    warn,
)
from veiltab.cli.serve import check_no_password
from veiltab.errors import HomeError, KeyFileError, ParameterError, PassphraseError

if TYPE_CHECKING:
    from veiltab.crypto.identity import PrivateIdentity
    from veiltab.data.tables import Table
    from veiltab.party.home import Home
    from veiltab.party.session import Session


T = TypeVar("T")

PATIENCE = 20.0
"""Seconds to try a server that does not answer, while somebody looks on."""

TRIES = 3
"""How often a person may type a passphrase."""

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
        identity = self.unlock(self.home.open)
        guard_keys()
        return identity

    def unlock(self, use: Callable[[str | None], T], *, by_hand: bool = False) -> T:
        """Do what may need the passphrase: from a file, the keyring, or the terminal.

        A person may try three times.  With ``by_hand`` the keyring is not asked.
        """
        from veiltab.party import passphrases

        home = self.home
        if not home.locked:
            return use(None)
        if self.passphrase_file is not None:
            return use(read_secret(self.passphrase_file, "passphrase"))
        kept = None if by_hand else passphrases.kept(home)
        if kept is not None:
            try:
                return use(kept)
            except PassphraseError:
                warn(
                    "the keyring has another passphrase; give it the right one: veiltab id keyring"
                )
        return self._unlock_by_hand(home, use)

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

    def _unlock_by_hand(self, home: "Home", use: Callable[[str | None], T]) -> T:
        if not on_terminal():
            raise KeyFileError(
                f"the identity in {home.path} is locked, and there is no terminal to ask on",
                hint="name a file that holds the passphrase with --passphrase-file",
            )
        for left in range(TRIES - 1, 0, -1):
            try:
                return use(ask_secret(f"Passphrase of {_name(home)}"))
            except PassphraseError:
                warn(f"this is not the passphrase; {count(left, 'more try', 'more tries')}")
        return use(ask_secret(f"Passphrase of {_name(home)}"))


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


def meaning_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what a table means: ``--id``, ``--recode`` and ``--duplicates``."""
    for option in (_DUPLICATES, _RECODE, _ID):
        option(command)
    return command


_ID = click.option(
    "--id",
    "ids",
    metavar="COLUMN",
    multiple=True,
    help="A column that tells respondents apart; repeat it if an id has several.",
)
_RECODE = click.option(
    "--recode",
    type=click.Path(dir_okay=False, path_type=Path),
    help="How your columns and values map to the attributes: a recode file, never sent.",
)
_DUPLICATES = click.option(
    "--duplicates",
    type=click.Choice(["refuse", "first", "last", "identical"]),
    help="Which row counts of those with the same id: none by default, the first or last one, or"
    " one of them if they are identical in every attribute.",
)

ENVIRONMENT = "VEILTAB_TABLE_URL"
Command = TypeVar("Command", bound=Callable[..., object])


class TableSource:
    """The table that a command's options name, and how they say it is written."""

    def __init__(
        self,
        option: str,
        location: str | None,
        query: str | None,
        table_file: Path | None,
        format_options: dict[str, Any],
    ) -> None:
        """Take the options; nothing is opened yet."""
        self._option, self._location = option, location
        self._query, self._file = query, table_file
        self._format_options = format_options
        self._opened: Table | None = None

    @property
    def named(self) -> bool:
        """Whether the options name a table."""
        return self._location is not None or self._file is not None

    @property
    def known(self) -> bool:
        """Whether the options, or the environment, name a table."""
        return self.named or bool(os.environ.get(ENVIRONMENT))

    @property
    def stem(self) -> str:
        """The name of a file without its ending; empty for a database."""
        location = self._location
        return "" if location is None or "://" in location else Path(location).name.split(".")[0]

    def open(self) -> "Table":
        """Open the table, and warn of what is in doubt about how it is read."""
        from veiltab.data.tables import open_table

        location = _location(self._option, self._location, self._file)
        table = open_table(location, self._query, **self._format_options)
        if self._opened is None:
            for note in table.format.notes:
                warn(note)
        self._opened = table
        return table

    @property
    def read_as(self) -> dict[str, str]:
        """How the table was read, as a fact to print; none if it was not."""
        return {} if self._opened is None else {"read as": str(self._opened.format)}

    def to_json(self) -> dict[str, Any] | None:
        """Return how the table was read; ``None`` if it was not."""
        return None if self._opened is None else self._opened.format.to_json()


def table_options(name: str, variable: str) -> Callable[[Command], Callable[..., Any]]:
    """Add the option or argument for a table under this name, and all that say how to read it.

    The command gets them as one :class:`TableSource` under the name of ``variable``.
    """

    def add(command: Command) -> Callable[..., Any]:
        @wraps(command)
        def with_table(
            *arguments: Any, query: str | None, table_file: Path | None, **options: Any
        ) -> Any:  # noqa: ANN401 - whatever the command returns
            how = {key: options.pop(key) for key in _FORMAT_KEYS}
            location = options.pop(variable)
            source = TableSource(name, location, query, table_file, how)
            return command(*arguments, **{variable: source}, **options)

        if not name.startswith("-"):
            location = click.argument(variable, metavar=name, required=False)
        else:
            location = _location_option(name, variable)
        for option in (*reversed(_FORMAT_OPTIONS), _TABLE_FILE, _QUERY, location):
            option(with_table)
        return with_table

    return add


def _location_option(name: str, variable: str) -> Callable[[Command], Command]:
    return click.option(
        name,
        variable,
        metavar="FILE_OR_URL",
        help="A .csv, .tsv, .txt, .parquet, .xlsx or .ods file, a text file with .gz or .zst, a"
        " folder of .parquet files, or a database: sqlite:///… or postgresql://…, without a"
        " password.",
    )


_QUERY = click.option("--query", help="In a database: the name of a table, or an SQL query.")
_TABLE_FILE = click.option(
    "--table-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"A file that holds the database's address, password included; ${ENVIRONMENT} can hold it"
    " too.",
)
_FORMAT_KEYS = (
    "separator",
    "encoding",
    "decimal",
    "thousands",
    "quote",
    "header",
    "skip_lines",
    "sheet",
)
_FORMAT_OPTIONS = (
    click.option(
        "--separator",
        metavar="MARK",
        help="What separates the fields of a text file: one character, or comma, semicolon, tab,"
        " bar or space.  Found by looking if left out, as are the next ones.",
    ),
    click.option("--encoding", metavar="NAME", help="Such as utf-8, utf-16, cp1252 or latin-1."),
    click.option("--decimal", metavar="MARK", help="What stands before decimals: comma or point."),
    click.option("--thousands", metavar="MARK", help="What stands between thousands, likewise."),
    click.option(
        "--quote", metavar="MARK", help='What encloses fields: \' or ", or none.  " by default.'
    ),
    click.option(
        "--header/--no-header",
        default=None,
        help="Whether the first line has the names; without, they are column_1, column_2, …",
    ),
    click.option(
        "--skip-lines", type=click.IntRange(min=0), help="How many lines stand above the header."
    ),
    click.option("--sheet", metavar="NAME", help="Which sheet of a workbook."),
)


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
