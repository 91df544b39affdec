"""``veiltab invite``: one-time codes, by which the operator decides who may register."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.output import console, json_option, moment, print_json, print_rows, tell
from veiltab.cli.server_options import (
    database_address,
    open_server,
    server_identity,
    server_options,
)
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.server.context import Context
    from veiltab.server.db.records import Invitation

DAYS = 14


@click.command("invite")
@click.argument("name", required=False)
@server_options
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=DAYS,
    show_default=True,
    help="How long the invitation can be used.",
)
@click.option("--list", "listing", is_flag=True, help="List all invitations, without their codes.")
@json_option
def invite_command(
    name: str | None,
    data: Path,
    database: str | None,
    database_file: Path | None,
    days: int,
    listing: bool,
    as_json: bool,
) -> None:
    """Print a code with which one party can register, once.

    NAME is for your own list.  Only the code goes to stdout; hand it over in a way that nobody
    else can read.  It cannot be shown again, and works while the server runs.

    \b
    Examples:
      veiltab invite --data /srv/veiltab "Tax office" > tax-office.code
      veiltab invite --data /srv/veiltab --list
    """  # noqa: D301 - \b tells click to leave the lines alone
    if (name is None) != listing:
        raise ParameterError(
            "give either a name or --list",
            hint='as in: veiltab invite --data DIR "Tax office"',
        )
    context = _existing_server(data, database_address(database, database_file))
    with context.database:
        if name is None:
            _list(context, as_json=as_json)
        else:
            _invite(context, name, days, as_json=as_json)


def _existing_server(data: Path, database: str | None) -> "Context":
    """Open a server that has been started before: a mistyped folder must not become a new one."""
    from veiltab.server.directory import DataDirectory

    if not (data / "server.key").exists():
        raise ParameterError(
            f"there is no server in {data}", hint=f"start it first: veiltab serve --data {data}"
        )
    folders = DataDirectory(data)
    return open_server(folders, database, server_identity(folders, None)[0])


def _invite(context: "Context", name: str, days: int, *, as_json: bool) -> None:
    from veiltab.core.schema import check_text
    from veiltab.crypto.identity import fingerprint
    from veiltab.server.auth import SECONDS_A_DAY, invite

    check_text(name, "the name")
    code = invite(context, name, days)
    if as_json:
        expires = context.now + days * SECONDS_A_DAY
        found = {"code": code, "name": name, "expires": expires}
        print_json({**found, "server_fingerprint": fingerprint(context.identity.party_id)})
        return
    tell(f"An invitation for {name}, good once within {days} days.  It cannot be shown again.")
    tell(f"Tell them the server's fingerprint too: {fingerprint(context.identity.party_id)}")
    click.echo(code)


def _list(context: "Context", *, as_json: bool) -> None:
    with context.database.reading() as records:
        found = [_line(each, context.now) for each in records.invitations()]
    if as_json:
        print_json({"invitations": found})
        return
    print_rows(
        console(),
        ("name", "state", "created", "expires", "party"),
        [
            (
                each["name"],
                each["state"],
                moment(each["created"]),
                moment(each["expires"]),
                (each["party"] or "")[:16],
            )
            for each in found
        ],
    )


def _line(invitation: "Invitation", now: int) -> dict[str, Any]:
    used = invitation.party is not None
    return {
        "name": invitation.name,
        "state": "used" if used else "expired" if invitation.expires <= now else "open",
        "created": invitation.created,
        "expires": invitation.expires,
        "used": invitation.used,
        "party": None if invitation.party is None else invitation.party.hex(),
    }
