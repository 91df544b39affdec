"""Input and output that all commands share: for people and for scripts.

Secrets are asked for on a terminal or read from a file, never taken from the command line.
"""

import json
import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from veiltab.cli.explaining import explain, remember, watch
from veiltab.errors import InputError, ParameterError
from veiltab.party.times import moment
from veiltab.wire.states import State

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress
    from rich.progress import TaskID

    from veiltab.party.progress import OnProgress, Progress


__all__ = ["moment"]

LONGEST_SECRET = 1 << 16

TWICE = "The same again, so that a slip is noticed"


class Seconds(click.FloatRange):
    """Seconds to wait: NaN is refused, which compares with nothing, so that no wait would end."""

    def __init__(self) -> None:
        """Take any number from 0."""
        super().__init__(min=0)

    def convert(
        self,
        value: Any,  # noqa: ANN401 - as click says
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> float:
        """Read the number."""
        number: float = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a number of seconds.", param, ctx)
        return number


class _Process:
    """Whether the commands have a process of their own: only then may they change it."""

    own = False


def own_process() -> None:
    """Say that this process runs one command and nothing else; its memory is never dumped."""
    from veiltab.crypto.process import forbid_core_dumps

    _Process.own = True
    forbid_core_dumps()


def guard_keys() -> None:
    """Keep the keys that were just read out of swap, where the system allows it."""
    from veiltab.crypto.process import keep_out_of_swap

    if _Process.own:
        keep_out_of_swap()


def on_terminal() -> bool:
    """Tell whether somebody can be asked."""
    return sys.stdin.isatty()


def confirm(
    question: str, *, yes: bool, hint: str = "make sure that you want it, and give --yes"
) -> None:
    """Ask before something that cannot be taken back; ``yes`` is the answer of a script."""
    check_can_ask(yes=yes, hint=hint)
    if yes:
        return
    explain()
    with ending_its_line():
        agreed = click.confirm(question, err=True)
    if not agreed:
        raise click.Abort


@contextmanager
def ending_its_line() -> Iterator[None]:
    """End the line of a question that is stopped by Ctrl-C; what follows has lines of its own."""
    try:
        yield
    except click.Abort:
        click.echo(err=True)
        raise


def check_can_ask(*, yes: bool, hint: str = "make sure that you want it, and give --yes") -> None:
    """Refuse what needs a yes where nobody can be asked, before anything is done."""
    if not yes and not on_terminal():
        raise ParameterError(
            "this needs to be confirmed, and there is no terminal to ask on",
            hint=hint,
        )


def ask_secret(prompt: str, *, twice: bool = False) -> str:
    """Ask on the terminal, without echo; ``twice`` until both answers are the same."""
    while True:
        answer: str = click.prompt(prompt, hide_input=True, err=True)
        if not twice or answer == click.prompt(TWICE, hide_input=True, err=True):
            return answer
        warn("the two differ; type it twice again")


def read_secret(path: Path, what: str, *, private: bool = True) -> str:
    """Read a secret from a file, without the end of its line.

    A file that others can read is refused, unless what is in it works only once.
    """
    from veiltab.files.private import check_private_file

    try:
        with path.open("rb") as file:
            if private:
                check_private_file(file.fileno(), path)
            text = file.read(LONGEST_SECRET + 1).decode()
    except OSError as error:
        raise InputError(
            f"cannot read the {what} from {path}: {error.strerror}", hint="check the path"
        ) from error
    except UnicodeDecodeError:  # its message would quote the secret
        raise InputError(f"the {what} in {path} is not UTF-8", hint="save it as UTF-8") from None
    secret = text.removesuffix("\n").removesuffix("\r")
    if not secret or len(text) > LONGEST_SECRET:
        raise InputError(f"there is no {what} in {path}", hint="put it there, on one line")
    return secret


Item = TypeVar("Item")
Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """Add the ``--json`` flag that every command has."""
    flag = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
    return flag(command)


def print_json(value: object) -> None:
    """Print one JSON object; numbers that JSON does not know are a bug, not output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def console(*, stderr: bool = False) -> "Console":
    """Return where results for people are printed: plain text unless it is a terminal.

    What its words mean is printed below them when the command asks something, or ends.
    """
    from rich.console import Console

    width = None if (sys.stderr if stderr else sys.stdout).isatty() else 100
    return watch(Console(highlight=False, width=width, stderr=stderr, record=True))


def say(text: str) -> None:
    """Print a line of the result."""
    click.echo(text)
    remember(text, err=False)


def tell(text: str) -> None:
    """Print a remark, which is not part of the result, if stderr is a terminal."""
    if sys.stderr.isatty():
        click.echo(text, err=True)
        remember(text, err=True)


def warn(text: str) -> None:
    """Print a warning, which everybody should see, to stderr."""
    click.echo(f"warning: {text}", err=True)
    remember(text, err=True)


def show_help(context: click.Context) -> None:
    """Print the help of a group that was called without a command."""
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def count(number: int, what: str, many: str | None = None) -> str:
    """Write how many there are of something; ``many`` is its plural, if that is not regular."""
    return f"{number:,} {what if number == 1 else many or f'{what}s'}"


def day(seconds: int) -> str:
    """Write the day of a time in Unix seconds, for tables that have to fit a narrow window."""
    return moment(seconds).partition(" ")[0]


def print_facts(screen: "Console", facts: Mapping[str, str]) -> None:
    """Print names and what they stand for in two columns; none of it is markup."""
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 3))
    for name, text in facts.items():
        table.add_row(Text(name, style="bold"), Text(text))
    screen.print(table)


def print_warnings(screen: "Console", warnings: Sequence[str]) -> None:
    """Print what is unwise, each on lines of its own below what was printed before."""
    from rich.text import Text

    for warning in warnings:
        screen.print(Text(f"\nWarning: {warning}."))


def print_rows(
    screen: "Console",
    names: Sequence[str],
    rows: Iterable[Sequence[str]],
    numbers: int = 0,
    whole: str | None = None,
) -> None:
    """Print a table whose last ``numbers`` columns are numbers; none of it is markup.

    Numbers stay on one line in a narrow window, and so does the column called ``whole``; long
    words are broken, and never cut.
    """
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for position, name in enumerate(names):
        right = position >= len(names) - numbers
        justify: Literal["left", "right"] = "right" if right else "left"
        table.add_column(
            Text(name), justify=justify, no_wrap=right or name == whole, overflow="fold"
        )
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    screen.print(table)


def track(items: Sequence[Item], description: str) -> Iterable[Item]:
    """Show a progress bar on stderr while the items are worked off, if it is a terminal."""
    if not sys.stderr.isatty():
        return items
    return _track_on_terminal(items, description)


def _track_on_terminal(items: Sequence[Item], description: str) -> Iterator[Item]:
    from rich.console import Console
    from rich.progress import track as rich_track

    screen = Console(stderr=True)
    yield from rich_track(items, description=description, console=screen, transient=True)


@contextmanager
def show_progress() -> "Iterator[OnProgress]":
    """Show reports of progress as bars on stderr, if it is a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        yield _ProgressBars(bars)


class _ProgressBars:
    """One bar for each step; while a push waits, a line that names the others."""

    def __init__(self, bars: "RichProgress") -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}
        self._told: Progress | None = None

    def __call__(self, report: "Progress") -> None:
        if report.step == "waiting":
            self._hide()
            self._tell(report)
            return
        description = report.step.capitalize()
        if description not in self._tasks:
            self._hide()
            self._tasks[description] = self._bars.add_task(description, total=report.total)
        self._bars.update(self._tasks[description], completed=report.done, total=report.total)

    def _hide(self) -> None:
        """Hide the bars of finished steps."""
        for task in self._tasks.values():
            self._bars.update(task, visible=False)

    def _tell(self, report: "Progress") -> None:
        if report == self._told:
            return
        self._told = report
        names = ", ".join(report.waiting_for) or "the others"
        what = f"Waiting for {names} to push too."
        if report.difference is not None:
            what = f"{report.difference}.  Waiting for whoever has the wrong table to correct it."
        self._bars.console.print(
            f"{what[0].upper()}{what[1:]}  Ctrl-C is safe: run the same command again later.",
            markup=False,
        )


def tell_waiting(report: "Progress") -> None:
    """Say on stderr who has to act before the study goes on."""
    done = "signed" if report.state == State.PROPOSED else "pushed"
    missing = f"; not {done} yet by: {', '.join(report.waiting_for)}" if report.waiting_for else ""
    tell(f"the study is {report.state}{missing}.  (Ctrl-C is safe.)")
