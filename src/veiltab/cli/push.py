"""``veiltab push``: sample, encrypt and send a curator's table."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.options import (
    LONG_PATIENCE,
    PartyOptions,
    names_table,
    open_source,
    party_options,
    table_options,
)
from veiltab.cli.output import (
    console,
    count,
    json_option,
    print_facts,
    print_json,
    show_progress,
    tell_waiting,
)
from veiltab.cli.terms import budgets

if TYPE_CHECKING:
    from veiltab.data.tables import Table
    from veiltab.party.push import Preview
    from veiltab.party.remote import Status
    from veiltab.party.study import Study


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
    help="Give up waiting after this many seconds.  By default it waits for ever.",
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
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Push your table to STUDY, encrypted.

    What leaves your computer is encrypted, and without ids.  The whole table is read and checked
    first.

    Curators compare keyed digests of their respondents and decoys before anything else; so this
    waits until the others push too.  It can be interrupted at any time: the same command again
    resumes where it stopped, and refuses a table that has changed.

    \b
    Examples:
      veiltab push "Smoking and income" --table patients.csv --id patient_no --dry-run
      veiltab push "Smoking and income" --table patients.csv --id patient_no
      veiltab push 3fa9 --table sqlite:///patients.db --query patients --id given --id born
      veiltab push 3fa9 --table-file database.txt --query "select * from v" --id nr --no-wait
    """  # noqa: D301 - \b tells click to leave the lines alone

    def source() -> "Table":
        return open_source("--table", table, query, table_file)

    with party.session(LONG_PATIENCE) as session:
        chosen = session.study(study)
        with show_progress() as progress:
            if dry_run:
                preview = chosen.check(source, ids, recode=recode, progress=progress)
            else:
                status = chosen.push(
                    source if names_table(table, table_file) else None,
                    ids,
                    recode=recode,
                    wait=not no_wait,
                    timeout=timeout,
                    progress=progress,
                )
        if dry_run:
            _print_preview(chosen, preview, budgets(chosen.terms, session.home), as_json=as_json)
            return
        me = session.identity.party_id
        sent = any(curator.party == me and curator.uploaded for curator in status.curators)
        if sent and wait_release:
            status = chosen.wait("released", timeout, progress=tell_waiting)
    _print_pushed(status, sent=sent, as_json=as_json)


def _print_pushed(status: "Status", *, sent: bool, as_json: bool) -> None:
    waiting = [
        curator.name
        for curator in status.curators
        if not (curator.uploaded if sent else curator.aligned)
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


def _print_preview(
    study: "Study", preview: "Preview", datasets: list[dict[str, Any]], *, as_json: bool
) -> None:
    plan = preview.plan
    charged = [dataset for dataset in datasets if dataset["charged"]]
    if as_json:
        print_json(
            {
                "study": study.id,
                "mechanism": plan.mechanism_name,
                "respondents": preview.respondents,
                "sample_size": plan.sample_size,
                "expected_rows": preview.rows,
                "expected_chunks": preview.chunks,
                "expected_bytes": preview.bytes,
                "epsilon": plan.epsilon,
                "delta": plan.delta,
                "epsilon_with_curator": plan.epsilon_with_curator,
                "epsilon_public": plan.epsilon_public,
                "budgets": charged,
            }
        )
        return
    about = "" if plan.sample_size is not None else "about "
    delta = f", δ = {plan.delta:g}" if plan.delta else ""
    helped = plan.epsilon_with_curator
    facts = {
        "study": preview.title,
        "table": f"{preview.respondents:,} respondents, all of it readable",
        "would be sent": f"{about}{preview.rows:,} encrypted rows in"
        f" {count(preview.chunks, 'chunk')}, {about}{preview.bytes:,} bytes",
        "promise": f"ε = {plan.epsilon:g}{delta}; if a curator helps the researcher,"
        f" {'no bound' if helped is None else f'ε = {helped:.6g}'}",
    }
    for dataset in charged:
        left, limit = dataset["epsilon_left"], dataset["epsilon_limit"]
        facts["budget"] = (
            f"{dataset['dataset']}: ε = {left:g} of {limit:g} left, this study included"
        )
    print_facts(console(), facts | {"sent": "nothing"})
