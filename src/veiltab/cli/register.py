"""``veiltab register``: meet a server, make sure which one it is, and become known to it."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from veiltab.cli.asking import LONGEST_SECRET, ask_secret, confirm, on_terminal, read_secret
from veiltab.cli.identity import spell
from veiltab.cli.output import console, json_option, print_facts, print_json
from veiltab.cli.party import PATIENCE, Party, party_options
from veiltab.errors import InputError, MismatchError

if TYPE_CHECKING:
    from veiltab.client.home import Home
    from veiltab.wire.contract import PublicIdentity

FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("register")
@click.argument("url")
@click.option(
    "--invitation-file",
    type=FILE,
    help="The operator's code.  By default it is asked for, or read from stdin.",
)
@click.option("--ca-file", type=FILE, help="The authority of the server's certificate, if private.")
@click.option(
    "--server-fingerprint",
    help='The fingerprint that the operator has told you, such as "12345 67890 …".',
)
@click.option("--yes", is_flag=True, help="Trust the server that answers, without being asked.")
@click.option(
    "--replace",
    is_flag=True,
    help="Forget the server known before; its studies cannot be continued.",
)
@party_options
@json_option
def register_command(
    url: str,
    invitation_file: Path | None,
    ca_file: Path | None,
    server_fingerprint: str | None,
    yes: bool,
    replace: bool,
    party: Party,
    as_json: bool,
) -> None:
    """Register with the server at URL.

    Its operator gives you an invitation, and tells you the server's fingerprint.  The server's
    identity is remembered: from now on your home speaks to no other.  Registering again changes
    nothing.

    \b
    Examples:
      veiltab register https://stats.example.org
      veiltab register https://stats.example.org --invitation-file tax-office.code \\
        --server-fingerprint "12345 67890 12345 67890 12345 67890"
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.client.api import Reach, Retry, Server

    home = party.home
    home.public  # noqa: B018 - no identity, nothing to register
    reach, retry = Reach(ca_file=ca_file), Retry(total=PATIENCE)
    found = Server.discover(url, reach=reach, retry=retry)
    if home.server is not None and not replace:
        home.pin_server(url, found)  # refuses any other server than the one before
    else:
        _check_server(found, server_fingerprint, yes=yes)
    identity = party.identity()
    invitation = _invitation(invitation_file)
    with Server(url, found, identity, reach=reach, retry=retry) as server:
        server.register(invitation)
    _remember(home, url, found, ca_file, replace=replace)
    _report(url, found, identity.party_id, as_json=as_json)


def _check_server(found: "PublicIdentity", expected: str | None, *, yes: bool) -> None:
    """Have somebody compare the fingerprint before anything is sent."""
    shown = spell(found)
    if expected is None:
        confirm(
            f"The server is {found.name!r}, with the fingerprint {shown}.\n"
            "Is this what its operator has told you?",
            yes=yes,
        )
    elif "".join(expected.split()) != "".join(shown.split()):
        raise MismatchError(
            f"the server that answers has the fingerprint {shown}, and not {expected}",
            hint="check the URL and the fingerprint with the operator; nothing was sent",
        )


def _invitation(file: Path | None) -> str:
    if file is not None:
        return read_secret(file, "invitation").strip()
    if on_terminal():
        return ask_secret("Invitation").strip()
    found = sys.stdin.read(LONGEST_SECRET).strip()
    if not found:
        raise InputError(
            "there is no invitation",
            hint="name its file with --invitation-file, or pipe it in",
        )
    return found


def _remember(
    home: "Home", url: str, found: "PublicIdentity", ca_file: Path | None, *, replace: bool
) -> None:
    from veiltab.client.session import keep_authority

    if replace:
        home.forget_server()
    home.pin_server(url, found)
    keep_authority(home, None if ca_file is None else ca_file.read_bytes())


def _report(url: str, server: "PublicIdentity", me: bytes, *, as_json: bool) -> None:
    fingerprint = spell(server)
    if as_json:
        about = {"name": server.name, "party": server.party_id.hex(), "fingerprint": fingerprint}
        print_json({"url": url, "server": about, "party": me.hex()})
    else:
        facts = {"server": server.name, "url": url, "fingerprint": fingerprint, "party": me.hex()}
        print_facts(console(), {"registered": "yes", **facts})
