"""``veiltab server``: what the operator does with parties, studies and the disk."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from veiltab.cli.invite import invite_command
from veiltab.cli.main import OrderedGroup
from veiltab.cli.operator import (
    YES,
    disk_facts,
    disk_json,
    open_server,
    operator_options,
    party_json,
    size_text,
    study_json,
)
from veiltab.cli.output import (
    confirm,
    console,
    day,
    moment,
    print_facts,
    print_json,
    print_rows,
    show_help,
)
from veiltab.cli.server_key import rotate_key_command
from veiltab.cli.server_status import status_command
from veiltab.cli.server_studies import study_group
from veiltab.party.known.names import readable

if TYPE_CHECKING:
    from veiltab.server.context import ServiceContext
    from veiltab.server.db.operators import PartyLine


@click.group("server", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def server_group(context: click.Context) -> None:
    """Look after a server: invite parties, and see to its studies and its disk.

    These commands work whether the server runs or not.

    \b
    Examples:
      veiltab server status --data /srv/veiltab
      veiltab server party list --data /srv/veiltab
      veiltab server study list --data /srv/veiltab
      veiltab server disk --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    show_help(context)


server_group.add_command(invite_command)
server_group.add_command(rotate_key_command)


@server_group.group("party", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def party_group(context: click.Context) -> None:
    """List, ban and remove parties."""
    show_help(context)


@party_group.command("list")
@operator_options
def list_parties(
    data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """List all registered parties, with what they use.

    \b
    Example:
      veiltab server party list --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    server = open_server(data, database, database_file)
    with server.database:
        with server.database.reading() as records:
            lines = records.party_lines()
        parties = [party_json(server, line) for line in lines]
    if as_json:
        print_json({"parties": parties})
        return
    print_rows(
        console(),
        ("name", "party", "since", "state", "open", "messages", "chunks"),
        [
            (
                party["name"],
                party["party"][:12],
                day(party["created"]),
                "registered" if party["banned"] is None else "banned",
                str(party["open_proposals"]),
                size_text(party["message_bytes"]),
                size_text(party["chunk_bytes"]),
            )
            for party in parties
        ],
        numbers=3,
        whole="party",
    )


@party_group.command("show")
@click.argument("party")
@operator_options
def show_party(
    party: str, data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """Show PARTY, named by its name, its fingerprint or the first digits of its id.

    \b
    Example:
      veiltab server party show "Tax office" --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    server = open_server(data, database, database_file)
    with server.database:
        line = _find_party(server, party)
        facts = party_json(server, line)
        with server.database.reading() as records:
            studies = [study_json(study) for study in records.study_lines(line.party)]
    if as_json:
        print_json({**facts, "studies": studies})
        return
    banned = facts["banned"]
    print_facts(
        console(),
        {
            "name": facts["name"],
            "party": facts["party"],
            "fingerprint": facts["fingerprint"],
            "registered": moment(facts["created"]),
            "banned": "no" if banned is None else f"since {moment(banned)}",
            "open proposals": str(facts["open_proposals"]),
            "messages": size_text(facts["message_bytes"]),
            "chunks": size_text(facts["chunk_bytes"]),
            "studies": str(len(studies)),
        },
    )


@party_group.command("ban")
@click.argument("party")
@operator_options
def ban_party(
    party: str, data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """Refuse PARTY from now on, as if it were not registered.

    Its studies stay as they are.  A running server knows of it within seconds.

    \b
    Example:
      veiltab server party ban "Tax office" --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    _set_banned(party, open_server(data, database, database_file), banned=True, as_json=as_json)


@party_group.command("unban")
@click.argument("party")
@operator_options
def unban_party(
    party: str, data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """Allow PARTY again.

    \b
    Example:
      veiltab server party unban "Tax office" --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    _set_banned(party, open_server(data, database, database_file), banned=False, as_json=as_json)


@party_group.command("remove")
@click.argument("party")
@YES
@operator_options
def remove_party_command(
    party: str,
    yes: bool,
    data: Path,
    database: str | None,
    database_file: Path | None,
    as_json: bool,
) -> None:
    """Forget PARTY, and end its proposals that wait for signatures.

    With a new invitation it can register again.  Studies that everybody has signed stay; abort
    those that cannot go on without it.

    \b
    Example:
      veiltab server party remove "Tax office" --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.server.operator import remove_party

    server = open_server(data, database, database_file)
    with server.database:
        line = _find_party(server, party)
        confirm(f"Remove {readable(line.name)!r} ({line.party.hex()[:16]})?", yes=yes)
        ended = remove_party(server, line.party)
    if as_json:
        print_json({"party": line.party.hex(), "ended": [study.hex() for study in ended]})
    else:
        click.echo(f"Removed {readable(line.name)}; ended {len(ended)} of its proposals.")


server_group.add_command(study_group)


server_group.add_command(status_command)


@server_group.command("disk")
@operator_options
def disk_command(
    data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """Show how full the server's disk is, and who uses it.

    \b
    Example:
      veiltab server disk --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.server.operator import disk_of

    server = open_server(data, database, database_file)
    with server.database:
        disk = disk_of(server)
        with server.database.reading() as records:
            lines = records.party_lines()
        parties = [party_json(server, line) for line in lines]
    parties.sort(key=lambda party: -party["chunk_bytes"] - party["message_bytes"])
    if as_json:
        print_json({**disk_json(disk), "parties": parties})
        return
    facts = {
        **disk_facts(disk),
        "for aborts": "space is set aside" if disk.ballast else "nothing is set aside",
        "a party may use": size_text(disk.quota),
    }
    print_facts(console(), facts)
    rows = [
        (party["name"], size_text(party["message_bytes"]), size_text(party["chunk_bytes"]))
        for party in parties
    ]
    click.echo()
    print_rows(console(), ("party", "messages", "chunks"), rows, numbers=2)


def _find_party(server: "ServiceContext", text: str) -> "PartyLine":
    from veiltab.crypto.identity import fingerprint
    from veiltab.server.operator import find_party

    return find_party(server, text, fingerprint)


def _set_banned(party: str, server: "ServiceContext", *, banned: bool, as_json: bool) -> None:
    from veiltab.server.operator import set_banned

    with server.database:
        line = _find_party(server, party)
        set_banned(server, line.party, banned=banned)
    if as_json:
        print_json({"party": line.party.hex(), "banned": banned})
    else:
        click.echo(f"{'Banned' if banned else 'Allowed'} {readable(line.name)}.")
