"""``veiltab console``: pages for a party or an operator, on their own computer."""

import contextlib
import os
import sys
import webbrowser
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

import click

from veiltab.cli.options import PartyOptions, party_options
from veiltab.cli.output import guard_keys, json_option, on_terminal, print_json
from veiltab.cli.serve import METRICS_PORT
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from veiltab.console.app import ConsoleServer
    from veiltab.console.state import ConsoleState, OperatorState


@click.command("console")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=0,
    help="The port to listen on.  Any free one by default.",
)
@click.option(
    "--idle",
    type=click.FloatRange(min=1),
    default=15.0,
    show_default=True,
    help="Minutes without a click after which the keys are locked.",
)
@click.option(
    "--server",
    "data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Show the operator's pages of the server in this folder instead of a party's.",
)
@click.option("--database", help="The server's database, as for veiltab serve.")
@click.option(
    "--database-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file that holds the address of the server's database, password included.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65_535),
    default=METRICS_PORT,
    show_default=True,
    help="The port for the server's metrics, on this computer; 0 for none.",
)
@click.option(
    "--log",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The file that the server's log goes to.",
)
@click.option("--no-browser", is_flag=True, help="Print the link, and open no browser.")
@party_options
@json_option
def console_command(
    port: int,
    idle: float,
    data: Path | None,
    database: str | None,
    database_file: Path | None,
    metrics_port: int,
    log: Path | None,
    no_browser: bool,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Show your studies, budgets and results as pages, on this computer alone.

    It prints a link that works once, and opens it in your browser.  Press Enter for a new link,
    and Ctrl-C to end.  Nobody else can open the pages, and your keys are locked when nobody uses
    them.  A home without keys gets them on the first page.

    With --server, the pages are those of a server's operator: parties, invitations, studies, disk,
    requests and log.  They work whether the server runs or not.

    \b
    Examples:
      veiltab console
      veiltab console --home hospital --no-browser
      veiltab console --server /srv/veiltab --log /var/log/veiltab.log
    """  # noqa: D301 - \b tells click to leave the lines alone
    if data is not None:
        with _operator(data, database, database_file, metrics_port, log) as operator:
            _serve(operator, port, browser=not no_browser, as_json=as_json)
        return
    if database or database_file or log:
        raise ParameterError(
            "--database, --database-file and --log are a server's", hint="give --server too"
        )
    _serve(_party(party, idle), port, browser=not no_browser, as_json=as_json)


def _party(party: PartyOptions, idle: float) -> "ConsoleState":
    from veiltab.console.keys import ConsoleParty
    from veiltab.console.state import ConsoleState
    from veiltab.files.private import check_private_folder

    home = party.home
    owner = ConsoleParty(Path(home.path), idle_seconds=60 * idle)
    if os.path.lexists(home.path):
        check_private_folder(home.path)
    elif party.passphrase_file is None:
        return ConsoleState(owner)  # its first page makes an identity
    if party.passphrase_file is not None or (home.exists and not home.locked):
        owner.take(party.identity())
    return ConsoleState(owner)


@contextlib.contextmanager
def _operator(
    data: Path,
    database: str | None,
    database_file: Path | None,
    metrics_port: int,
    log: Path | None,
) -> "Iterator[OperatorState]":
    from veiltab.cli.operator import open_server
    from veiltab.console.state import OperatorState

    server = open_server(data, database, database_file)
    with server.database:
        yield OperatorState(server, log, metrics_port)


def _serve(
    state: "ConsoleState | OperatorState", port: int, *, browser: bool, as_json: bool
) -> None:
    from veiltab.console.app import ConsoleServer
    from veiltab.crypto.entropy import SystemEntropy

    guard_keys()
    server = ConsoleServer(state, SystemEntropy(), port)

    def ready() -> None:
        _announce(server, as_json=as_json, browser=browser and not as_json)
        if on_terminal() and not as_json:
            Thread(target=_new_links, args=(server,), daemon=True).start()

    server.run(ready)


def _announce(server: "ConsoleServer", *, as_json: bool, browser: bool) -> None:
    link = server.link()
    if as_json:
        print_json({"url": link})
        sys.stdout.flush()
        return
    click.echo(f"Open {link}")
    click.echo("The link works once.  Press Enter for another one, Ctrl-C to end.", err=True)
    if browser:
        with contextlib.suppress(webbrowser.Error):
            webbrowser.open(link)


def _new_links(server: "ConsoleServer") -> None:
    for _ in sys.stdin:
        click.echo(f"Open {server.link()}")
