"""Where a curator's table is: options that never take a password."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from veiltab.cli.asking import read_secret
from veiltab.cli.server_options import check_no_password
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.data.tables import Table

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
    """Open the table that is meant."""
    from veiltab.data.tables import open_table

    return open_table(_location(option, location, table_file), query)


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
    found = os.environ.get(ENVIRONMENT)
    if not found:
        raise ParameterError(
            "no table is named",
            hint=f"name a file or a database with {option}, --table-file or ${ENVIRONMENT}",
        )
    return found
