"""``veiltab server study``: what the operator does with studies and vaults."""

from pathlib import Path

import click

from veiltab.cli.main import OrderedGroup
from veiltab.cli.operator import (
    YES,
    open_server,
    operator_options,
    print_ended,
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
from veiltab.party.known.names import readable


@click.group("study", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def study_group(context: click.Context) -> None:
    """List, end and archive studies and vaults."""
    show_help(context)


@study_group.command("list")
@operator_options
def list_studies(
    data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """List all studies and vaults.

    \b
    Example:
      veiltab server study list --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    server = open_server(data, database, database_file)
    with server.database, server.database.reading() as records:
        studies = [study_json(line) for line in records.study_lines()]
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
                day(study["updated"]),
                size_text(study["chunk_bytes"]),
            )
            for study in studies
        ],
        numbers=1,
        whole="study",
    )


@study_group.command("show")
@click.argument("study")
@operator_options
def show_study(
    study: str, data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """Show STUDY, named by its title or by the first digits of its id.

    \b
    Example:
      veiltab server study show 3fa9 --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.server.operator import find_study

    server = open_server(data, database, database_file)
    with server.database:
        line = find_study(server, study)
        with server.database.reading() as records:
            named = records.named(line.study)
    facts = study_json(line)
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
            "chunks": size_text(facts["chunk_bytes"]),
            "parties": ", ".join(f"{each['name']} ({each['role']})" for each in parties),
        },
    )


@study_group.command("abort")
@click.argument("study")
@click.option(
    "--reason",
    default="ended by its operator",
    help="What everybody who is named in it is told.",
)
@YES
@operator_options
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
    from veiltab.server.housekeeping import end
    from veiltab.server.operator import find_study
    from veiltab.wire.codec import check_typed

    check_typed(reason, "the reason")
    server = open_server(data, database, database_file)
    with server.database:
        line = find_study(server, study)
        confirm(f"End {readable(line.title)!r} ({line.study.hex()[:16]})?", yes=yes)
        end(server, line.study, reason)
    print_ended([line.study], "ended", as_json=as_json)


@study_group.command("expire")
@click.option(
    "--days",
    type=click.IntRange(0, 3650),
    default=30,
    show_default=True,
    help="The least age of the proposals, in days.",
)
@operator_options
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

    server = open_server(data, database, database_file)
    with server.database:
        ended = expire_proposals(server, days)
    print_ended(ended, "expired", as_json=as_json)


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
@operator_options
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

    server = open_server(data, database, database_file)
    with server.database:
        if study is None:
            confirm(f"Archive all studies that ended {days} days ago?", yes=yes)
            archived = archive_finished(server, days)
        else:
            line = find_study(server, study)
            confirm(f"Archive {readable(line.title)!r} ({line.study.hex()[:16]})?", yes=yes)
            archive(server, line.study)
            archived = [line.study]
    print_ended(archived, "archived", as_json=as_json)
