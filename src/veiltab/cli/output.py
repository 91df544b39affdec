"""What commands share in talking to people and to scripts."""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console

Item = TypeVar("Item")
Command = TypeVar("Command", bound=Callable[..., Any])


def json_option(command: Command) -> Command:
    """Add the ``--json`` flag that every command has."""
    flag = click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead.")
    return flag(command)


def print_json(value: object) -> None:
    """Print one JSON object; numbers that JSON does not know are a bug, not output."""
    click.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def console() -> "Console":
    """Return where results for people are printed: plain text unless it is a terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 100
    return Console(highlight=False, width=width)


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
