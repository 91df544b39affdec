"""The reference as data: its sections and tables, and the commands that it is about."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click

from veiltab.cli.main import veiltab as program

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"


def walk(
    command: click.Command, name: str = "veiltab", parent: click.Context | None = None
) -> Iterator[tuple[str, click.Context]]:
    """Yield a command and all its subcommands, each with its full name and its context."""
    settings = command.context_settings if parent is None else {}
    context = click.Context(command, parent=parent, info_name=name, **settings)
    yield name, context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            child = command.get_command(context, each)
            assert child is not None
            yield from walk(child, f"{name} {each}", context)


COMMANDS = dict(walk(program))
PARAMETERS = [
    (name, parameter)
    for name, context in COMMANDS.items()
    for parameter in context.command.get_params(context)
]


def spelt(parameter: click.Parameter) -> str:
    """Return what the first cell of a parameter's row has to be."""
    if isinstance(parameter, click.Option):
        return ", ".join(parameter.opts)
    return parameter.human_readable_name


def prose(document: Path) -> str:
    """Return a document without its code blocks."""
    return re.sub(r"^```.*?^```$", "", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def section(document: Path, heading: str) -> str:
    """Return what stands below a heading, up to the next one of the same or a higher level."""
    found = re.search(
        rf"^(#+) {re.escape(heading)}$\n(.*?)(?=^(?!\1#)#+ |\Z)",
        prose(document),
        flags=re.DOTALL | re.MULTILINE,
    )
    assert found is not None, f"{document.name} has no heading {heading!r}"
    return found[2]


@dataclass(frozen=True)
class Table:
    """A table of a document, without code marks."""

    header: list[str]
    rows: list[list[str]]


def tables(text: str) -> list[Table]:
    """Return all tables of a text."""
    found = []
    for block in re.findall(r"(?:^\|.*\n?)+", text, flags=re.MULTILINE):
        header, rule, *lines = [_cells(line) for line in block.splitlines()]
        assert set("".join(rule)) == {"-"}, block
        found.append(Table(header, lines))
    return found


def _cells(line: str) -> list[str]:
    cells = re.split(r"(?<!\\)\|", line)[1:-1]
    return [cell.replace("`", "").strip() for cell in cells]


def rows(text: str) -> list[list[str]]:
    """Return the rows of all tables, without their headers."""
    return [row for table in tables(text) for row in table.rows]


def listed(text: str, first: str) -> list[str]:
    """Return the first cells of all tables whose first column is called so."""
    return [row[0] for table in tables(text) if table.header[0] == first for row in table.rows]


def paths(value: object, place: str = "") -> list[str]:
    """Return every key of a JSON value in the way in which the reference writes it."""
    if isinstance(value, dict):
        inner = [(f"{place}.{key}" if place else str(key), each) for key, each in value.items()]
        found = [path for key, each in inner for path in (key, *paths(each, key))]
    else:
        items = value if isinstance(value, list) else []
        found = [path for each in items for path in paths(each, f"{place}[]")]
    return list(dict.fromkeys(found))
