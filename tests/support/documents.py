"""The documentation: its blocks, tables and keys, and the elements of HTML pages."""

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from html.parser import HTMLParser
from pathlib import Path

import click

from veiltab.cli.main import veiltab as program

ROOT = Path(__file__).parents[2]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

_FENCE = re.compile(r"^```(\w*)$")
_REMARK = re.compile(r"^<!-- (not run|file|terminal|played): (\S.*\S) -->$")
REMARKS = re.compile(r"<!-- *(?:not run|file|terminal|played)\b")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block, and the remark on the line before it.

    ``not run`` says why, ``file`` names the file that the reader saves it as, ``terminal`` says
    what goes on running in a terminal of its own, and ``played`` who types it in a study of several
    parties.
    """

    document: Path
    line: int
    language: str
    text: str
    remark: str | None
    reason: str

    @property
    def place(self) -> str:
        """Where the block starts, for messages."""
        return f"{self.document.relative_to(ROOT)}:{self.line}"


def blocks(document: Path) -> Iterator[Block]:
    """Yield a document's fenced blocks in order."""
    lines = document.read_text("utf-8").splitlines()
    start: int | None = None
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        if fence is None:
            assert "```" not in line, f"{document}:{number + 1}: a fence must stand alone"
            continue
        if start is None:
            start = number
            continue
        assert not fence[1], f"{document}:{number + 1}: a block starts inside another"
        opening = _FENCE.match(lines[start])
        remark = _REMARK.match(lines[start - 1]) if start else None
        assert opening is not None
        yield Block(
            document,
            start + 1,
            opening[1],
            "\n".join(lines[start + 1 : number]) + "\n",
            remark[1] if remark else None,
            remark[2] if remark else "",
        )
        start = None
    assert start is None, f"{document}: a block does not end"


def commands(block: Block) -> Iterator[tuple[str, list[str]]]:
    """Yield each command of a console block with the lines that are shown below it.

    A command goes on in the next line after a backslash, as in a shell.
    """
    assert block.text.startswith("$ "), f"{block.place}: begin with a command"
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        length = 1 + next(i for i, line in enumerate(lines) if not line.endswith("\\"))
        yield "\n".join(lines[:length]), tidy(lines[length:])


def invocations(command: str) -> list[list[str]]:
    """Return the arguments of every ``veiltab`` in a line for the shell."""
    words = shlex.shlex(command.replace("\\\n", " "), posix=True, punctuation_chars=True)
    words.whitespace_split = True
    simple: list[list[str]] = [[]]
    for word in words:
        if set(word) <= set("|&;<>"):
            simple.append([])
        else:
            simple[-1].append(word)
    asked = [each[3:] if each[:2] == ["sudo", "-u"] else each for each in simple]
    return [each[1:] for each in asked if each and Path(each[0]).name == "veiltab"]


def tidy(lines: list[str]) -> list[str]:
    """Take away what cannot be seen: spaces at the ends of lines, empty lines at either end."""
    return "\n".join(line.rstrip() for line in lines).strip("\n").splitlines()


def agrees(shown: list[str], real: list[str]) -> bool:
    """Tell whether the shown lines are the real ones; a line ``...`` stands for any lines."""
    patterns = [
        r"(?:[^\n]*\n)*" if line == "..." else re.escape(line) + r"\n" for line in tidy(shown)
    ]
    text = "".join(f"{line}\n" for line in tidy(real))
    return re.fullmatch("".join(patterns), text) is not None


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


@cache
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


VOID = {"img", "input", "link", "meta", "wbr"}


@dataclass
class Element:
    """An element with its attributes, its children and its own text."""

    name: str
    attributes: dict[str, str]
    children: list["Element"] = field(default_factory=list)
    pieces: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text in it and in all its children, in order."""
        return "".join(self.pieces)

    def every(self, name: str) -> list["Element"]:
        """Return all elements of a name below this one, in order."""
        found = [] if self.name != name else [self]
        return found + [each for child in self.children for each in child.every(name)]

    def all(self) -> list["Element"]:
        """Return this element and all below."""
        return [self, *(each for child in self.children for each in child.all())]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.root = Element("document", {})
        self.open = [self.root]
        self.declarations: list[str] = []

    def handle_decl(self, decl: str) -> None:
        self.declarations.append(decl)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"{tag}: an attribute comes twice"
        found = Element(tag, {name: value or "" for name, value in attrs})
        self.open[-1].children.append(found)
        if tag not in VOID:
            self.open.append(found)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].name == tag, f"</{tag}> closes <{self.open[-1].name}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for element in self.open:
            element.pieces.append(data)


def read_page(page: str) -> Element:
    """Read a page, and refuse one that is not well formed."""
    reader = _Reader()
    reader.feed(page)
    reader.close()
    assert reader.declarations == ["doctype html"]
    assert reader.open == [reader.root], f"<{reader.open[-1].name}> is not closed"
    [whole] = reader.root.children
    assert whole.name == "html"
    return whole
