"""What the operator's commands share: the data directory, the database, the server's identity."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from veiltab.cli.asking import read_secret
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.crypto.identity import PrivateIdentity
    from veiltab.server.context import Context
    from veiltab.server.directory import DataDirectory
    from veiltab.server.limits import Settings

ENVIRONMENT = "VEILTAB_DATABASE"
DEFAULT_NAME = "veiltab server"
Command = TypeVar("Command", bound=Callable[..., object])


def server_options(command: Command) -> Command:
    """Add ``--data``, ``--database`` and ``--database-file``."""
    for option in (_DATABASE_FILE, _DATABASE, _DATA):
        option(command)
    return command


_DATA = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The server's folder: its key, its database and the chunks of studies.",
)
_DATABASE = click.option(
    "--database",
    help=f"sqlite:///… or postgresql://…, without a password.  The default is ${ENVIRONMENT}, or"
    " an SQLite file in the data folder.",
)
_DATABASE_FILE = click.option(
    "--database-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file that holds the address of the database, password included.",
)


def database_address(database: str | None, file: Path | None) -> str | None:
    """Return the database's address; none stands for the one in the data folder."""
    if database is not None and file is not None:
        raise ParameterError(
            "give either --database or --database-file, and not both",
            hint="the file is for an address with a password in it",
        )
    if file is not None:
        return read_secret(file, "database address").strip()
    if database is not None:
        check_no_password(database, "--database", f"${ENVIRONMENT}, or --database-file")
        return database
    return os.environ.get(ENVIRONMENT) or None


def check_no_password(address: str, option: str, instead: str) -> None:
    """Refuse a password on the command line, where every user of the computer can read it."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        return  # whoever reads the address says what is wrong with it, and does not repeat it
    if url.password is not None or any("password" in key.lower() for key in url.query):
        raise ParameterError(
            f"the address in {option} has a password, which others on this computer could read",
            hint=f"put the whole address into {instead}; and change the password",
        )


def open_server(
    folders: "DataDirectory",
    database: str | None,
    identity: "PrivateIdentity",
    settings: "Settings | None" = None,
) -> "Context":
    """Return the server of a data folder; nothing is read from its database yet."""
    from veiltab.crypto.entropy import SystemEntropy
    from veiltab.protocol.curator.agreement import public_identity
    from veiltab.server.context import Context
    from veiltab.server.db.database import Database
    from veiltab.server.limits import Settings

    return Context(
        identity=public_identity(identity),
        key=identity.signing,
        database=Database(database or folders.database_url),
        folders=folders,
        entropy=SystemEntropy(),
        clock=time.time,
        settings=settings or Settings(),
    )


def server_identity(folders: "DataDirectory", name: str | None) -> "tuple[PrivateIdentity, bool]":
    """Return the server's identity, and whether it was made just now; the caller has the lock."""
    from veiltab.crypto.keyfile import load_identity

    if not folders.key_file.exists():
        return _new_identity(folders, name or DEFAULT_NAME), True
    identity = load_identity(folders.key_file, None)
    if name not in (None, identity.name):
        raise ParameterError(
            f"this server is called {identity.name!r}, and not {name!r}",
            hint="leave --name out: contracts name the server, so its name stays",
        )
    return identity, False


def _new_identity(folders: "DataDirectory", name: str) -> "PrivateIdentity":
    """Write the key beside its place and move it there: half a key would be worse than none."""
    from veiltab.crypto.entropy import SystemEntropy
    from veiltab.crypto.identity import PrivateIdentity
    from veiltab.crypto.keyfile import save_identity

    entropy = SystemEntropy()
    identity = PrivateIdentity.create(name, entropy)
    temporary = folders.key_file.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    save_identity(identity, temporary, None, entropy)
    temporary.replace(folders.key_file)
    return identity
