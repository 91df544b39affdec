"""What the words on a screen mean: printed below it, once for each word that a command shows.

Commands need not do anything for it: whatever is printed through :mod:`veiltab.cli.output` is
remembered until it is explained, before a question is asked and when the command ends.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from veiltab.report.glossary import meanings

if TYPE_CHECKING:
    from rich.console import Console


class _Shown:
    """What a command has shown to people so far, and which words were explained."""

    def __init__(self) -> None:
        self.screens: list[Console] = []
        self.remarks: dict[bool, list[str]] = {False: [], True: []}
        self.explained: set[str] = set()

    def explain(self) -> None:
        """Explain every word that was shown since the last time, on the screen that shows it."""
        for screen in self.screens:
            new = self._new(screen.export_text())
            if new:
                _print(screen, new)
                screen.export_text()  # forgets the explanation
        for err, lines in self.remarks.items():
            for line in notes(self._new(" ".join(lines))):
                click.echo(line, err=err)
            lines.clear()

    def _new(self, text: str) -> dict[str, str]:
        new = meanings(text, self.explained)
        self.explained |= new.keys()
        return new


class Help(click.HelpFormatter):
    """Help for a command, with what its words mean at the end."""

    def getvalue(self) -> str:
        """Return the help."""
        text = super().getvalue()
        words = meanings(text)
        if words:
            with self.section("What the words mean"):
                self.write_dl(list(words.items()))
        return super().getvalue()


class Context(click.Context):
    """The context of every command: its help explains its words."""

    formatter_class = Help


def notes(words: Mapping[str, str]) -> list[str]:
    """Write explanations as lines below an error or a warning."""
    return [f"note: {word}: {meaning}" for word, meaning in words.items()]


def _print(screen: "Console", words: Mapping[str, str]) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table.grid(padding=(0, 3))
    for word, meaning in words.items():
        table.add_row(Text(word, style="italic"), Text(meaning, style="dim"))
    screen.print("\nWhat the words mean:")
    screen.print(table)


class _Now:
    """The command that runs; tests run many in one process."""

    shown = _Shown()


def begin() -> None:
    """Forget what an earlier command of this process has shown."""
    _Now.shown = _Shown()


def watch(screen: "Console") -> "Console":
    """Explain the words of a screen, which must record what it shows, when it is time to."""
    _Now.shown.screens.append(screen)
    return screen


def remember(remark: str, *, err: bool) -> None:
    """Explain the words of a line, on stdout or stderr, when it is time to."""
    _Now.shown.remarks[err].append(remark)


def explain() -> None:
    """Explain the words that were shown since the last time: a question comes, or the end."""
    _Now.shown.explain()
