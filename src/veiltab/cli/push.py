"""``veiltab push``: sample, encrypt and send a curator's table."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from veiltab.cli.output import console, count, json_option, print_facts, print_json
from veiltab.cli.party import LONG_PATIENCE, Party, party_options
from veiltab.cli.status import wait_for_state
from veiltab.cli.tables import open_source, table_options
from veiltab.cli.terms import budgets

if TYPE_CHECKING:
    from veiltab.client.api import Status
    from veiltab.client.push import Preview, Source
    from veiltab.client.session import Session
    from veiltab.data.tables import Table


@click.command("push")
@click.argument("study")
@table_options("--table", "table")
@click.option(
    "--id",
    "ids",
    metavar="COLUMN",
    multiple=True,
    help="A column that tells respondents apart; repeat it if an id has several.",
)
@click.option(
    "--recode",
    type=click.Path(dir_okay=False, path_type=Path),
    help="How your columns and values map to the attributes: a recode file, never sent.",
)
@click.option(
    "--dry-run", is_flag=True, help="Say what would be sent and what it costs; send nothing."
)
@click.option("--no-wait", is_flag=True, help="Do not wait for other curators; push again later.")
@click.option("--wait-release", is_flag=True, help="Wait for the release afterwards.")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    help="Wait for so many seconds only.  By default it waits for ever.",
)
@party_options
@json_option
def push_command(
    study: str,
    table: str | None,
    query: str | None,
    table_file: Path | None,
    ids: tuple[str, ...],
    recode: Path | None,
    dry_run: bool,
    no_wait: bool,
    wait_release: bool,
    timeout: float | None,
    party: Party,
    as_json: bool,
) -> None:
    """Push your table to STUDY, encrypted.

    What leaves your computer is the sample, or all rows where the server samples: encrypted, and
    without ids.  The whole table is read and checked first.

    Where the curators sample, they compare a keyed digest of their respondents before anything
    else; so this waits until the others push too.  It can be interrupted at any time: the same
    command again goes on where it stopped.

    \b
    Examples:
      veiltab push "Smoking and income" --table patients.csv --id patient_no --dry-run
      veiltab push "Smoking and income" --table patients.csv --id patient_no
      veiltab push 3fa9 --table sqlite:///patients.db --query patients --id given --id born
      veiltab push 3fa9 --table-file database.txt --query "select * from v" --id nr --no-wait
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.cli.watching import ScreenWatcher, StillWaitingError
    from veiltab.client.push import preview, push

    with party.session(LONG_PATIENCE) as session:
        found = session.find_study(study)

        def source() -> "Source":
            opened = open_source("--table", table, query, table_file)
            return _source(session, found, opened, ids, recode)

        with ScreenWatcher(wait=not no_wait, timeout=timeout) as watcher:
            try:
                if dry_run:
                    planned = preview(session, found, source(), watcher)
                else:
                    status, sent = push(session, found, source, watcher), True
            except StillWaitingError:
                status, sent = session.server.status(found), False
        if dry_run:
            _print_preview(session, found, planned, as_json=as_json)
            return
        if sent and wait_release:
            status = wait_for_state(session, found, "released", timeout)
    _print_pushed(status, sent=sent, as_json=as_json)


def _source(
    session: "Session", study: bytes, table: "Table", ids: tuple[str, ...], recode: Path | None
) -> "Source":
    from veiltab.client.push import Source
    from veiltab.data.recode import Recode, read_recode_file

    schema = session.contract(study).body.schema_of(session.identity.party_id)
    return Source(table, ids, Recode() if recode is None else read_recode_file(recode, schema))


def _print_pushed(status: "Status", *, sent: bool, as_json: bool) -> None:
    waiting = [
        each.name for each in status.curators if not (each.uploaded if sent else each.aligned)
    ]
    if as_json:
        print_json(
            {
                "study": status.study.hex(),
                "title": status.title,
                "state": status.state,
                "pushed": sent,
                "waiting_for": waiting,
            }
        )
        return
    facts = {"study": status.title, "state": status.state}
    facts["pushed"] = "yes" if sent else "not yet: run the same command again"
    if waiting:
        facts["waiting for"] = ", ".join(waiting)
    print_facts(console(), facts)


def _print_preview(session: "Session", study: bytes, found: "Preview", *, as_json: bool) -> None:
    plan, contract = found.plan, session.contract(study).body
    charged = [each for each in budgets(contract, session.home) if each["charged"]]
    if as_json:
        print_json(
            {
                "study": study.hex(),
                "population_size": plan.population_size,
                "sample_size": plan.sample_size,
                "rows": found.rows,
                "chunks": found.chunks,
                "bytes": found.bytes,
                "epsilon": plan.epsilon,
                "delta": plan.delta,
                "epsilon_if_order_known": plan.epsilon_if_order_known,
                "budgets": charged,
            }
        )
        return
    delta = f", δ = {plan.delta:g}" if plan.delta else ""
    facts = {
        "study": contract.title,
        "table": f"{plan.population_size:,} respondents, all of it readable",
        "would be sent": f"{found.rows:,} encrypted rows in {count(found.chunks, 'chunk')},"
        f" {found.bytes:,} bytes",
        "promise": f"ε = {plan.epsilon:g}{delta}; if the order leaks,"
        f" ε = {plan.epsilon_if_order_known:.6g}",
    }
    for each in charged:
        facts["budget"] = (
            f"{each['dataset']}: ε = {each['epsilon_left']:g} of {each['epsilon_limit']:g} left,"
            " this study included"
        )
    print_facts(console(), facts | {"sent": "nothing"})
