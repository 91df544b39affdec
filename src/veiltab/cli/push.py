"""``veiltab push``: sample, encrypt and send a curator's table."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from veiltab.cli.check import DropCount, check_study, dropped_fact, free_name
from veiltab.cli.options import (
    LONG_PATIENCE,
    PartyOptions,
    TableSource,
    meaning_options,
    party_options,
    table_options,
)
from veiltab.cli.output import (
    Seconds,
    console,
    json_option,
    print_facts,
    print_json,
    show_progress,
    tell_waiting,
)
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.party.remote import Status
    from veiltab.protocol.curator.table import Duplicates


@click.command("push")
@click.argument("study")
@table_options("--table", "table")
@meaning_options
@click.option("--dry-run", is_flag=True, help="Send nothing: the same as `veiltab study check`.")
@click.option("--no-wait", is_flag=True, help="Do not wait for other curators; push again later.")
@click.option("--wait-release", is_flag=True, help="Wait for the release afterwards.")
@click.option(
    "--timeout",
    type=Seconds(),
    help="Give up waiting after this many seconds.  By default it waits for ever.",
)
@party_options
@json_option
def push_command(
    study: str,
    table: TableSource,
    ids: tuple[str, ...],
    recode: Path | None,
    duplicates: "Duplicates | None",
    dry_run: bool,
    no_wait: bool,
    wait_release: bool,
    timeout: float | None,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Push your table to STUDY, encrypted.

    What leaves your computer is encrypted, and without ids.  The whole table is read and checked
    first, as `veiltab study check` does, which sends nothing.

    Curators compare keyed digests of their respondents and decoys before anything else; so this
    waits until the others push too.  It can be interrupted at any time: the same command again
    resumes where it stopped.  A wrong table can be corrected until something of it was sent: push
    the right one.

    \b
    Examples:
      veiltab push "Smoking and income" --table patients.csv --id patient_no
      veiltab push 3fa9 --table patients.csv --recode recode.toml --duplicates last
      veiltab push 3fa9 --table export.csv --id nr --separator ";" --encoding cp850 --dry-run
      veiltab push 3fa9 --table sqlite:///patients.db --query patients --id given --id born
      veiltab push 3fa9 --table-file database.txt --query "select * from v" --id nr --no-wait
    """  # noqa: D301 - \b tells click to leave the lines alone
    if no_wait and wait_release:
        raise ParameterError(
            "give either --no-wait or --wait-release, and not both",
            hint="--no-wait returns at once; push again later, with --wait-release",
        )
    if dry_run:
        options = {"recode": recode, "duplicates": duplicates, "offenders": free_name(table)}
        check_study(party, study, table, ids, options, as_json=as_json)
        return
    with party.session(LONG_PATIENCE) as session:
        chosen = session.study(study)
        with show_progress() as show:
            progress = DropCount(show)
            status = chosen.push(
                table.open if table.known else None,
                ids,
                recode=recode,
                duplicates=duplicates,
                wait=not no_wait,
                timeout=timeout,
                progress=progress,
            )
        me = session.identity.party_id
        sent = any(curator.party == me and curator.uploaded for curator in status.curators)
        if sent and wait_release:
            status = chosen.wait("released", timeout, progress=tell_waiting)
        waiting = [curator.name for curator in status.curators if not curator.uploaded]
        aligning = None if sent else chosen.alignment()
        if aligning is not None:  # others have to align first, or again
            waiting = list(aligning.waiting_for)
    _print_pushed(status, table, progress.dropped, waiting, sent=sent, as_json=as_json)


def _print_pushed(
    status: "Status",
    table: TableSource,
    dropped: int,
    waiting: list[str],
    *,
    sent: bool,
    as_json: bool,
) -> None:
    if as_json:
        print_json(
            {
                "study": status.study.hex(),
                "title": status.title,
                "state": status.state,
                "pushed": sent,
                "rows_dropped": dropped,
                "waiting_for": waiting,
                "table": table.to_json(),
            }
        )
        return
    facts = {"study": status.title, "state": status.state, **table.read_as}
    facts["pushed"] = "yes" if sent else "not yet: run the same command again"
    facts |= dropped_fact(dropped)
    if waiting:
        facts["waiting for"] = ", ".join(waiting)
    print_facts(console(), facts)
