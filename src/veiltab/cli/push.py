"""``veiltab push``: sample, encrypt and send a curator's table."""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from veiltab.cli.options import LONG_PATIENCE, Party, open_source, party_options, table_options
from veiltab.cli.output import console, count, json_option, print_facts, print_json
from veiltab.cli.terms import LONGEST_POLL, SHORTEST_POLL, budgets, wait_for_state
from veiltab.errors import StateError
from veiltab.party.push import Watcher
from veiltab.wire.states import State

if TYPE_CHECKING:
    from veiltab.data.tables import Table
    from veiltab.party.push import Preview, Source
    from veiltab.party.remote import Status
    from veiltab.party.session import Session


class StillWaitingError(Exception):
    """Other curators have to push first, and nobody wants to wait for them."""

    def __init__(self, names: Sequence[str]) -> None:
        """Keep who they are."""
        super().__init__(", ".join(names))
        self.names = list(names)


class ScreenWatcher(Watcher):
    """Shows progress on stderr if it is a terminal; waits for other curators if it may."""

    def __init__(self, *, wait: bool, timeout: float | None) -> None:
        """Start the clock; ``None`` waits for as long as it takes."""
        self._wait = wait
        self._timeout = timeout
        self._start = time.monotonic()
        self._pause = SHORTEST_POLL
        self._told: list[str] = []
        self._tasks: dict[str, TaskID] = {}
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=Console(stderr=True),
            disable=not sys.stderr.isatty(),
            transient=True,
        )

    def __enter__(self) -> Self:
        """Show the bars."""
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Take them away."""
        self._progress.stop()

    def reading(self, rows: int, total: int | None) -> None:
        """Show how many rows of the table are read."""
        self._show("Reading rows", rows, total)

    def encrypting(self) -> None:
        """Say that the sample is being encrypted."""
        self._show("Encrypting", 0, None)

    def sending(self, chunks: int, total: int) -> None:
        """Show how many chunks the server has."""
        self._show("Sending chunks", chunks, total)

    def waiting(self, names: Sequence[str]) -> None:
        """Sleep a little, and say for whom; or end it."""
        if not self._wait:
            raise StillWaitingError(names)
        if self._timeout is not None and time.monotonic() - self._start >= self._timeout:
            raise StateError(
                f"waiting for {', '.join(map(repr, names))} to push too, after"
                f" {self._timeout:g} seconds",
                hint="run the same command again when they have; nothing is lost",
            )
        self._hide()
        if list(names) != self._told:
            self._told = list(names)
            if not self._progress.disable:
                self._progress.console.print(
                    f"Waiting for {', '.join(names)} to push too.  Ctrl-C is safe: run the same"
                    " command again later.",
                    markup=False,
                )
        time.sleep(self._pause)
        self._pause = min(2 * self._pause, LONGEST_POLL)

    def _show(self, what: str, done: int, total: int | None) -> None:
        if what not in self._tasks:
            self._hide()
            self._tasks[what] = self._progress.add_task(what, total=total)
        self._progress.update(self._tasks[what], completed=done, total=total)

    def _hide(self) -> None:
        """Take away the bars of what is done."""
        for task in self._tasks.values():
            self._progress.update(task, visible=False)


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
    from veiltab.party.push import preview, push

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
            status = wait_for_state(session, found, State.RELEASED, timeout)
    _print_pushed(status, sent=sent, as_json=as_json)


def _source(
    session: "Session", study: bytes, table: "Table", ids: tuple[str, ...], recode: Path | None
) -> "Source":
    from veiltab.data.recode import Recode, read_recode_file
    from veiltab.party.push import Source

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
