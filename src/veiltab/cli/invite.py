"""``veiltab server invite``: what the operator hands to whoever is to register."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.operator import open_server, operator_options
from veiltab.cli.output import console, day, moment, print_facts, print_json, print_rows, tell
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.server.context import ServiceContext
    from veiltab.server.db.records import Invitation as InvitationLine

DAYS = 14


@click.command("invite")
@click.argument("name", required=False)
@click.option("--url", help="Where the party finds the server, such as https://stats.example.org.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the invitation to this new file, to be mailed; needs --url.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=DAYS,
    show_default=True,
    help="How long the invitation can be used.",
)
@click.option("--list", "listing", is_flag=True, help="List all invitations, without their codes.")
@operator_options
def invite_command(
    name: str | None,
    url: str | None,
    out: Path | None,
    days: int,
    listing: bool,
    data: Path,
    database: str | None,
    database_file: Path | None,
    as_json: bool,
) -> None:
    """Invite somebody to register, once: by a file to mail, or by a code.

    NAME is for your own list, and stands in the file.  With --out, everything that the party needs
    is in the file: the URL, the server's fingerprint, and the code.  Without, the code alone goes
    to stdout; it has four groups of four, and can be read out.  It cannot be shown again, and works
    while the server runs.

    Tell the fingerprint by telephone in any case, so that they can compare it: whoever can change
    their mail can change the file too.

    \b
    Examples:
      veiltab server invite --data /srv/veiltab "Tax office" \\
        --url https://stats.example.org --out tax-office.invitation
      veiltab server invite --data /srv/veiltab "Tax office" > tax-office.code
      veiltab server invite --data /srv/veiltab --list
    """  # noqa: D301 - \b tells click to leave the lines alone
    if (name is None) != listing:
        raise ParameterError(
            "give either a name or --list",
            hint='as in: veiltab server invite --data DIR "Tax office"',
        )
    if name is None and (url or out):
        raise ParameterError("a list needs no --url and no --out", hint="leave them out")
    _check_file(url, out)
    server = open_server(data, database, database_file)
    with server.database:
        if name is None:
            _list(server, as_json=as_json)
        else:
            _invite(server, name, days, url=url, out=out, as_json=as_json)


def _check_file(url: str | None, out: Path | None) -> None:
    """Refuse a file that could not be written or used, before a code is drawn."""
    from veiltab.files.disk import check_new
    from veiltab.party.connection import checked_url

    if url is not None:
        checked_url(url, allow_insecure=False)
    if out is not None:
        check_new(out)
        if url is None:
            raise ParameterError(
                "the file has to say where the server is",
                hint="give --url, as parties reach it: https://stats.example.org",
            )


def _invite(
    server: "ServiceContext",
    name: str,
    days: int,
    *,
    url: str | None,
    out: Path | None,
    as_json: bool,
) -> None:
    from veiltab.crypto.identity import fingerprint
    from veiltab.party.registration import write_invitation
    from veiltab.server.invitations import invite
    from veiltab.wire.codec import check_typed
    from veiltab.wire.invitations import Invitation

    check_typed(name, "the name")
    digits, ends = fingerprint(server.identity.party_id), 0

    def hand_over(code: str, expires: int) -> None:
        nonlocal ends
        ends = expires
        if out is not None and url is not None:
            about = {"name": name, "url": url, "server": server.identity.name}
            sent = Invitation(**about, fingerprint=digits, code=code, expires=expires)
            write_invitation(out, sent)

    code = invite(server, name, days, hand_over)
    if as_json:
        facts = {"code": code, "name": name, "expires": ends, "server_fingerprint": digits}
        print_json({**facts, "url": url, "file": None if out is None else str(out)})
    elif out is None:
        tell(
            f"An invitation for {name}, good once until {moment(ends)}.  It cannot be shown again."
        )
        tell(f"Tell them the server's fingerprint too, by telephone: {digits}")
        click.echo(code)
    else:
        _tell_by_voice(name, out, ends, digits)


def _tell_by_voice(name: str, out: Path, expires: int, digits: str) -> None:
    print_facts(
        console(),
        {
            "mail to them": str(out),
            "for": name,
            "good once until": moment(expires),
            "tell by telephone": digits,
        },
    )
    click.echo(
        "\nThe file holds the code: mail it to nobody else, and delete it afterwards.  The digits"
        " are the\nserver's fingerprint: have them compared by voice, so that a changed file is"
        " found out."
    )


def _list(server: "ServiceContext", *, as_json: bool) -> None:
    with server.database.reading() as records:
        invitations = [_line(invitation, server.now) for invitation in records.invitations()]
    if as_json:
        print_json({"invitations": invitations})
        return
    print_rows(
        console(),
        ("name", "state", "created", "expires", "party"),
        [
            (
                invitation["name"],
                invitation["state"],
                day(invitation["created"]),
                day(invitation["expires"]),
                (invitation["party"] or "")[:16],
            )
            for invitation in invitations
        ],
    )


def _line(invitation: "InvitationLine", now: int) -> dict[str, Any]:
    return {
        "name": invitation.name,
        "state": invitation.state(now),
        "created": invitation.created,
        "expires": invitation.expires,
        "used": invitation.used,
        "party": None if invitation.party is None else invitation.party.hex(),
    }
