"""``veiltab demo``: the whole system on this machine, from keys to estimates."""

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from veiltab.cli.output import console, json_option, print_json
from veiltab.errors import OutputError, ParameterError
from veiltab.files.disk import make_output_folder, write_output

if TYPE_CHECKING:
    from rich.status import Status

    from veiltab.demo.demonstration import Demonstration
    from veiltab.demo.results import DemoResults
    from veiltab.demo.story import Story


MARK, PARTIES, REPORT = ".veiltab-demo", "parties", "report.html"
MARK_TEXT = f"""\
`veiltab demo` made this folder.  The next demonstration here deletes {PARTIES}/ and {REPORT}, and
nothing else.
"""


CELLS = 24
SMALLEST_EPSILON = 0.05
"""Less would sample fewer than a hundred people, and there would be nothing to see."""


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """The folder for a demonstration's report and, while it runs, for its parties."""

    path: Path

    @property
    def parties(self) -> Path:
        """Where each party has a folder."""
        return self.path / PARTIES

    @property
    def report(self) -> Path:
        """The page that stays."""
        return self.path / REPORT

    def prepare(self) -> None:
        """Make the folder, or empty one that a demonstration made; refuse any other."""
        mark = self.path / MARK
        if self.path.is_dir() and not mark.is_file() and any(self.path.iterdir()):
            raise OutputError(
                f"{self.path} holds files that no demonstration has made",
                hint="name another folder with --out; nothing in this one was touched",
            )
        make_output_folder(self.path)
        write_output(mark, MARK_TEXT.encode())
        self.delete_parties()
        self.report.unlink(missing_ok=True)
        self.parties.mkdir(mode=0o700)

    def delete_parties(self) -> None:
        """Delete the parties' folders: keys, tables, and the server's files."""
        if self.parties.is_symlink():  # made by somebody else; what it points to is not ours
            self.parties.unlink()
        elif self.parties.is_dir():
            shutil.rmtree(self.parties)


@click.command("demo")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("demo"),
    show_default=True,
    help="The folder for the report; made if need be, and reused if a demonstration made it.",
)
@click.option(
    "--epsilon", type=float, default=0.5, show_default=True, help="The privacy that is promised."
)
@click.option(
    "--delta",
    type=float,
    default=1e-6,
    show_default=True,
    help="The δ of a third study, with decoys; 0 leaves it out.",
)
@click.option("--keep", is_flag=True, help="Keep every party's folder: keys, tables, databases.")
@json_option
def demo_command(out: Path, epsilon: float, delta: float, keep: bool, as_json: bool) -> None:
    """Run whole studies on this machine, and show what each party sees.

    A server, two curators and two researchers act through the real commands, each as a process
    with a home of its own.  The data are the paper's: 45,222 people of the 1994 census, two
    attributes with each curator.  The paper's way and decoys are run side by side.  Nothing leaves
    this machine, and nothing is left running.

    \b
    Examples:
      veiltab demo
      veiltab demo --out demo-strict --epsilon 0.1 --delta 0
      veiltab demo --keep --json
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.core.parameters import check_delta, check_epsilon

    check_epsilon(epsilon)
    check_delta(delta)
    if epsilon < SMALLEST_EPSILON:
        raise ParameterError(
            f"with ε = {epsilon:g} there would be hardly anybody in the paper's sample",
            hint=f"choose at least {SMALLEST_EPSILON:g} for a demonstration",
        )
    folder = DemoFolder(out.absolute())
    folder.prepare()
    results = _run(folder, epsilon, delta, keep=keep, printed=not as_json)
    if as_json:
        print_json(results.as_dict(str(folder.report)))


def _run(
    folder: "DemoFolder", epsilon: float, delta: float, *, keep: bool, printed: bool
) -> "DemoResults":
    from veiltab.data.counts import adult_table
    from veiltab.demo.demonstration import Demonstration
    from veiltab.demo.parties import make_parties, make_study_terms
    from veiltab.demo.processes import Processes
    from veiltab.demo.story import Story

    start = time.monotonic()
    progress = DemoProgress()
    with Processes(progress.tell) as processes:
        parties, table = make_parties(folder.parties), adult_table(CELLS)
        demonstration = Demonstration(processes, parties, make_study_terms(epsilon, delta), table)
        story = Story(console(), demonstration)
        for step, print_step in _steps(demonstration, story):
            with progress:
                processes.wait_for(step)
            if printed:
                print_step()
        with progress:
            results = processes.wait_for(lambda: _report(demonstration, folder, start))
            processes.stop()
    if not keep:
        folder.delete_parties()
    if printed:
        story.verified(results)
        story.end(results, folder.report, folder.parties if keep else None)
    return results


def _steps(
    demonstration: "Demonstration", story: "Story"
) -> Iterator[tuple[Callable[[], None], Callable[[], None]]]:
    """Yield each step, and what prints it afterwards."""
    yield (lambda: None), story.begin
    yield demonstration.enrol, story.enrolled
    yield demonstration.agree, story.agreed
    yield demonstration.push, story.pushed
    yield demonstration.estimate, story.estimated
    yield demonstration.publish, story.published
    yield demonstration.store, story.stored


def _report(demonstration: "Demonstration", folder: "DemoFolder", start: float) -> "DemoResults":
    """Write the page; its charts are drawn while the parties verify the log."""
    verifying = demonstration.processes.later(demonstration.verify)
    from veiltab.demo.charts import draw_charts
    from veiltab.demo.page import demo_page
    from veiltab.files.disk import write_output

    charts = draw_charts(demonstration.results, demonstration.column)
    verifying.result()
    results = demonstration.summary(time.monotonic() - start)
    write_output(folder.report, demo_page(results, charts).encode())
    return results


class DemoProgress(contextlib.AbstractContextManager["DemoProgress"]):
    """Shows on stderr, if it is a terminal, which command was started last."""

    def __init__(self) -> None:
        """Show nothing yet."""
        self._status: Status | None = None

    def __enter__(self) -> Self:
        """Start to show progress."""
        if sys.stderr.isatty():
            self._status = console(stderr=True).status("Starting")
            self._status.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop showing it."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def tell(self, text: str) -> None:
        """Show a command; threads may call this at any time."""
        status = self._status
        if status is not None:
            from rich.text import Text

            status.update(Text(text, no_wrap=True, overflow="ellipsis"))
