"""``veiltab server``: what the operator does with parties, studies and the disk."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.main import OrderedGroup
from veiltab.cli.output import (
    confirm,
    console,
    json_option,
    moment,
    print_facts,
    print_json,
    print_rows,
    show_help,
)
from veiltab.cli.serve import database_address, server_options
from veiltab.cli.server_key import rotate_key_command
from veiltab.party.names import readable

if TYPE_CHECKING:
    from veiltab.server.context import ServiceContext
    from veiltab.server.db.operators import OperatorLine, PartyLine

YES = click.option("--yes", is_flag=True, help="Do not ask.")
_KIB = 1024


def _open(data: Path, database: str | None, database_file: Path | None) -> "ServiceContext":
    from veiltab.hosting import existing_server

    return existing_server(data, database_address(database, database_file))


def _operator(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a server, and ``--json``."""
    return server_options(json_option(command))


@click.group("server", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def server_group(context: click.Context) -> None:
    """Look after a server: its parties, its studies and its disk.

    These commands work while the server runs, and when it does not.

    \b
    Examples:
      veiltab server party list --data /srv/veiltab
      veiltab server study list --data /srv/veiltab
      veiltab server disk --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    show_help(context)


server_group.add_command(rotate_key_command)


@server_group.group("party", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def party_group(context: click.Context) -> None:
    """List, ban and remove parties."""
    show_help(context)


@party_group.command("list")
@_operator
def list_parties(
    data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """List all registered parties, with what they use.

    \b
    Example:
      veiltab server party list --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    server = _open(data, database, database_file)
    with server.database:
        with server.database.reading() as records:
            lines = records.party_lines()
        parties = [_party_json(server, line) for line in lines]
    if as_json:
        print_json({"parties": parties})
        return
    print_rows(
        console(),
        ("name", "party", "since", "state", "open", "messages", "chunks"),
        [
            (
                party["name"],
                party["party"][:16],
                moment(party["created"]),
                "registered" if party["banned"] is None else "banned",
                str(party["open_proposals"]),
                _size(party["message_bytes"]),
                _size(party["chunk_bytes"]),
            )
            for party in parties
        ],
        numbers=3,
    )


@party_group.command("show")
@click.argument("party")
@_operator
def show_party(
    party: str, data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """Show PARTY, named by its name, its fingerprint or the first digits of its id.

    \b
    Example:
      veiltab server party show "Tax office" --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    server = _open(data, database, database_file)
    with server.database:
        line = _find_party(server, party)
        facts = _party_json(server, line)
        with server.database.reading() as records:
            studies = [_study_json(study) for study in records.study_lines(line.party)]
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
            "messages": _size(facts["message_bytes"]),
            "chunks": _size(facts["chunk_bytes"]),
            "studies": str(len(studies)),
        },
    )


@party_group.command("ban")
@click.argument("party")
@_operator
def ban_party(
    party: str, data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """Refuse PARTY from now on, as if it were not registered.

    Its studies stay as they are.  A running server knows of it within seconds.

    \b
    Example:
      veiltab server party ban "Tax office" --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    _set_banned(party, _open(data, database, database_file), banned=True, as_json=as_json)


@party_group.command("unban")
@click.argument("party")
@_operator
def unban_party(
    party: str, data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """Allow PARTY again.

    \b
    Example:
      veiltab server party unban "Tax office" --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    _set_banned(party, _open(data, database, database_file), banned=False, as_json=as_json)


@party_group.command("remove")
@click.argument("party")
@YES
@_operator
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

    server = _open(data, database, database_file)
    with server.database:
        line = _find_party(server, party)
        confirm(f"Remove {readable(line.name)!r} ({line.party.hex()[:16]})?", yes=yes)
        ended = remove_party(server, line.party)
    if as_json:
        print_json({"party": line.party.hex(), "ended": [study.hex() for study in ended]})
    else:
        click.echo(f"Removed {readable(line.name)}; ended {len(ended)} of its proposals.")


@server_group.group("study", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def study_group(context: click.Context) -> None:
    """List, end and archive studies and vaults."""
    show_help(context)


@study_group.command("list")
@_operator
def list_studies(
    data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """List all studies and vaults.

    \b
    Example:
      veiltab server study list --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    server = _open(data, database, database_file)
    with server.database, server.database.reading() as records:
        studies = [_study_json(line) for line in records.study_lines()]
    if as_json:
        print_json({"studies": studies})
        return
    print_rows(
        console(),
        ("study", "kind", "title", "state", "changed", "chunks"),
        [
            (
                study["study"][:16],
                study["kind"],
                study["title"],
                study["state"] if study["archived"] is None else "archived",
                moment(study["updated"]),
                _size(study["chunk_bytes"]),
            )
            for study in studies
        ],
        numbers=1,
    )


@study_group.command("show")
@click.argument("study")
@_operator
def show_study(
    study: str, data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """Show STUDY, named by its title or by the first digits of its id.

    \b
    Example:
      veiltab server study show 3fa9 --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.server.operator import find_study

    server = _open(data, database, database_file)
    with server.database:
        line = find_study(server, study)
        with server.database.reading() as records:
            named = records.named(line.study)
    facts = _study_json(line)
    parties = [
        {"name": readable(member.name), "party": member.party.hex(), "role": member.role}
        for member in named
    ]
    if as_json:
        print_json({**facts, "parties": parties})
        return
    archived = facts["archived"]
    print_facts(
        console(),
        {
            facts["kind"]: facts["study"],
            "title": facts["title"],
            "state": facts["state"],
            "reason": facts["reason"] or "none",
            "proposed": f"{moment(facts['created'])}, by {facts['proposer'][:16]}",
            "changed": moment(facts["updated"]),
            "archived": "no" if archived is None else moment(archived),
            "chunks": _size(facts["chunk_bytes"]),
            "parties": ", ".join(f"{each['name']} ({each['role']})" for each in parties),
        },
    )


@study_group.command("abort")
@click.argument("study")
@click.option("--reason", default="ended by its operator", help="What all who are named see.")
@YES
@_operator
def abort_study(
    study: str,
    reason: str,
    yes: bool,
    data: Path,
    database: str | None,
    database_file: Path | None,
    as_json: bool,
) -> None:
    """End STUDY before its release, or close a vault, and delete its chunks.

    \b
    Example:
      veiltab server study abort 3fa9 --reason "the disk is full" --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.core.schema import check_text
    from veiltab.server.housekeeping import end
    from veiltab.server.operator import find_study

    check_text(reason, "the reason")
    server = _open(data, database, database_file)
    with server.database:
        line = find_study(server, study)
        confirm(f"End {readable(line.title)!r} ({line.study.hex()[:16]})?", yes=yes)
        end(server, line.study, reason)
    _print_ended([line.study], "ended", as_json=as_json)


@study_group.command("expire")
@click.option(
    "--days",
    type=click.IntRange(0, 3650),
    default=30,
    show_default=True,
    help="How old the proposals are at least.",
)
@_operator
def expire_studies(
    days: int, data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """End the proposals that not everybody has signed.

    A running server does this by itself after 30 days.

    \b
    Example:
      veiltab server study expire --days 7 --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.server.housekeeping import expire_proposals

    server = _open(data, database, database_file)
    with server.database:
        ended = expire_proposals(server, days)
    _print_ended(ended, "expired", as_json=as_json)


@study_group.command("archive")
@click.argument("study", required=False)
@click.option(
    "--days",
    type=click.IntRange(0, 36500),
    default=365,
    show_default=True,
    help="Without STUDY: how long nothing has changed, at least.",
)
@YES
@_operator
def archive_studies(
    study: str | None,
    days: int,
    yes: bool,
    data: Path,
    database: str | None,
    database_file: Path | None,
    as_json: bool,
) -> None:
    """Delete the messages and chunks of STUDY, or of all that ended long ago.

    Contracts and logs stay.  Nobody can estimate from an archived study any more.  A running server
    does this by itself after 365 days, but not while a grant is good.

    \b
    Examples:
      veiltab server study archive 3fa9 --data /srv/veiltab
      veiltab server study archive --days 90 --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.server.housekeeping import archive, archive_finished
    from veiltab.server.operator import find_study

    server = _open(data, database, database_file)
    with server.database:
        if study is None:
            confirm(f"Archive all studies that ended {days} days ago?", yes=yes)
            archived = archive_finished(server, days)
        else:
            line = find_study(server, study)
            confirm(f"Archive {readable(line.title)!r} ({line.study.hex()[:16]})?", yes=yes)
            archive(server, line.study)
            archived = [line.study]
    _print_ended(archived, "archived", as_json=as_json)


@server_group.command("disk")
@_operator
def disk_command(
    data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """Show how full the server's disk is, and who uses it.

    \b
    Example:
      veiltab server disk --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.server.operator import disk_of

    server = _open(data, database, database_file)
    with server.database:
        disk = disk_of(server)
        with server.database.reading() as records:
            lines = records.party_lines()
        parties = [_party_json(server, line) for line in lines]
    parties.sort(key=lambda party: -party["chunk_bytes"] - party["message_bytes"])
    if as_json:
        shown = {
            "total_bytes": disk.total,
            "free_bytes": disk.free,
            "reserve_bytes": disk.reserve,
            "quota_bytes": disk.quota,
            "ballast": disk.ballast,
        }
        print_json({**shown, "parties": parties})
        return
    taking = "yes" if disk.free >= disk.reserve else "no: only reading and aborts work"
    print_facts(
        console(),
        {
            "disk": _size(disk.total),
            "free": _size(disk.free),
            "reserve": _size(disk.reserve),
            "takes uploads": taking,
            "for a full disk": "reserved" if disk.ballast else "nothing is reserved",
            "a party may use": _size(disk.quota),
        },
    )
    rows = [
        (party["name"], _size(party["message_bytes"]), _size(party["chunk_bytes"]))
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


def _print_ended(studies: list[bytes], what: str, *, as_json: bool) -> None:
    if as_json:
        print_json({what: [study.hex() for study in studies]})
        return
    for study in studies:
        click.echo(study.hex())
    if not studies:
        click.echo(f"Nothing {what}.")


def _party_json(server: "ServiceContext", line: "PartyLine") -> dict[str, Any]:
    from veiltab.crypto.identity import fingerprint
    from veiltab.server.operator import party_use

    use = party_use(server, line.party)
    return {
        "name": readable(line.name),
        "party": line.party.hex(),
        "fingerprint": fingerprint(line.party),
        "created": line.created,
        "banned": line.banned,
        "open_proposals": use.open_proposals,
        "message_bytes": use.message_bytes,
        "chunk_bytes": use.chunk_bytes,
    }


def _study_json(line: "OperatorLine") -> dict[str, Any]:
    return {
        "study": line.study.hex(),
        "kind": line.kind,
        "title": readable(line.title),
        "state": line.state,
        "reason": line.reason,
        "proposer": line.proposer.hex(),
        "created": line.created,
        "updated": line.updated,
        "archived": line.archived,
        "chunk_bytes": line.size,
    }


def _size(size: int) -> str:
    """Write a number of bytes for people."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < _KIB:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KIB
    return f"{amount:.1f} TiB"
