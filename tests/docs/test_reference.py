"""The reference is complete, and nothing in the documentation points into the void."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import veiltab
from veiltab import errors
from veiltab.cli.main import veiltab as program
from veiltab.simulation.claims import Claim
from veiltab.simulation.experiment import Result

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

documents = pytest.mark.parametrize(
    "document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT))
)


def walk(
    command: click.Command, parent: click.Context | None = None
) -> Iterator[tuple[str, click.Context]]:
    """Yield a command and all its subcommands, each with its full name and its context."""
    name = "veiltab" if parent is None else f"{parent.info_name} {command.name}"
    settings = command.context_settings if parent is None else {}
    context = click.Context(command, parent=parent, info_name=name, **settings)
    yield name, context
    if isinstance(command, click.Group):
        for child in command.commands.values():
            yield from walk(child, context)


COMMANDS = dict(walk(program))
OPTIONS = [
    (name, option)
    for name, context in COMMANDS.items()
    for option in context.command.get_params(context)
]


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


def rows(text: str) -> list[list[str]]:
    """Return the cells of all rows of all tables, without code marks; headings among them."""
    lines = [line for line in text.splitlines() if line.startswith("|")]
    cells = [re.split(r"(?<!\\)\|", line)[1:-1] for line in lines]
    return [[cell.replace("`", "").strip() for cell in row] for row in cells]


def first_cells(text: str) -> list[str]:
    """Return the first cell of every row."""
    return [row[0] for row in rows(text)]


@pytest.mark.parametrize(
    ("name", "option"), OPTIONS, ids=[f"{name} {option.name}" for name, option in OPTIONS]
)
def test_every_option_of_every_command(name: str, option: click.Parameter) -> None:
    """It has a row in its command's section, with its type and its default."""
    assert isinstance(option, click.Option), "describe arguments too, and then check them here"
    table = {row[0]: row for row in rows(section(REFERENCE / "commands.md", name))}
    row = table[", ".join(option.opts)]
    assert row[1] == ("flag" if option.is_flag else option.type.name)
    default = option.to_info_dict()["default"]
    if option.required:
        assert row[2] == "required"
    elif option.is_flag:
        assert row[2] == "off"
    else:
        assert row[2] == ("none" if default is None else str(default))


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_that_does_not_exist(name: str) -> None:
    """The options in a command's section are exactly its own."""
    listed = [cell for cell in first_cells(section(REFERENCE / "commands.md", name)) if "-" in cell]
    real = [", ".join(option.opts) for command, option in OPTIONS if command == name]
    assert sorted(cell for cell in listed if not cell.startswith("---")) == sorted(real)


def test_every_choice_is_named() -> None:
    """Options with a fixed set of values list them all."""
    for name, option in OPTIONS:
        if isinstance(option.type, click.Choice):
            text = section(REFERENCE / "commands.md", name)
            for choice in option.type.choices:
                assert f"`{choice}`" in text, (name, option.name, choice)


def test_every_key_of_a_plan() -> None:
    """The tables list the keys of ``veiltab plan --json`` in their order, and no others."""
    printed = veiltab.plan(population_size=100, domain_size=4, epsilon=0.5).as_dict()
    listed = first_cells(section(REFERENCE / "commands.md", "Keys of a plan"))
    keys = [cell for cell in listed if cell != "key" and not cell.startswith("---")]
    assert keys == [*printed, *printed["paper"]]


@pytest.mark.parametrize(
    ("heading", "kind"), [("Keys of a row", Result), ("Keys of a claim", Claim)]
)
def test_every_key_of_a_row(heading: str, kind: type[Result | Claim]) -> None:
    """The tables list the keys of ``simulate`` and ``reproduce`` in their order."""
    listed = first_cells(section(REFERENCE / "commands.md", heading))
    keys = [cell for cell in listed if cell != "key" and not cell.startswith("---")]
    assert keys == [field.name for field in dataclasses.fields(kind)]


def test_every_error_and_no_other() -> None:
    """Each class has one row with its code, exit code and HTTP status, and each row is a class."""
    real = {
        (name, error.code, str(error.exit_code), str(error.http_status))
        for name, error in inspect.getmembers(errors, inspect.isclass)
        if issubclass(error, errors.VeiltabError)
    }
    tables = rows(prose(REFERENCE / "errors.md"))
    listed = [tuple(row) for row in tables if len(row) == 4 and row[0].endswith("Error")]
    assert sorted(listed) == sorted(real)
    assert len({code for _, code, *_ in real}) == len(real), "two errors share a code"


def test_every_error_is_explained() -> None:
    """Each class is more than a row of codes: it has a heading, or a row that says when."""
    text = prose(REFERENCE / "errors.md")
    headings = set(re.findall(r"^## (\w+)$", text, flags=re.MULTILINE))
    explained = {row[0] for row in rows(text) if len(row) == 3} | headings
    for name, error in inspect.getmembers(errors, inspect.isclass):
        if issubclass(error, errors.VeiltabError):
            assert name in explained


def test_every_public_name() -> None:
    """The Python reference lists exactly the names of the package, and where they live."""
    table = rows(prose(REFERENCE / "python.md").split("\n## ", maxsplit=1)[0])
    listed = {row[0]: row[2] for row in table if row[2].startswith("veiltab")}
    assert sorted(listed) == sorted(veiltab.__all__)
    assert {name: getattr(veiltab, name).__module__ for name in listed} == listed


def slug(heading: str) -> str:
    """Return the anchor that a heading gets."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(document: Path) -> set[str]:
    """Return the anchors of all headings."""
    found = re.findall(r"^#+ (.+)$", prose(document), flags=re.MULTILINE)
    assert len({slug(heading) for heading in found}) == len(found), f"{document}: equal headings"
    return {slug(heading) for heading in found}


@documents
def test_every_relative_link_leads_somewhere(document: Path) -> None:
    """To a file that is there and, with an anchor, to a heading in it."""
    without_code = re.sub(r"`[^`\n]*`", "", prose(document))
    for target in re.findall(r"\]\(([^)\s]+)\)", without_code):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (document.parent / path).resolve() if path else document
        assert file.exists(), f"{document.name}: {target}"
        assert file.is_relative_to(ROOT), f"{document.name}: {target}"
        assert not anchor or anchor in anchors(file), f"{document.name}: {target}"


@documents
def test_every_test_that_is_named_exists(document: Path) -> None:
    """A claim that something is checked names a test file, or a test in one."""
    text = document.read_text("utf-8")
    for path in re.findall(r"`(tests/[\w/]+\.py)`", text):
        assert (ROOT / path).exists(), f"{document.name}: {path}"
    sources = "".join(path.read_text("utf-8") for path in ROOT.glob("tests/**/test_*.py"))
    for name in re.findall(r"`(test_\w+)`", text):
        assert f"def {name}(" in sources, f"{document.name}: {name}"


def test_every_page_is_on_the_map() -> None:
    """A reader who starts at the index finds every page of its four kinds."""
    linked = set(re.findall(r"\]\(([^)#\s]+)\)", prose(ROOT / "docs" / "index.md")))
    for folder in ("tutorial", "howto", "reference", "explanation"):
        for page in (ROOT / "docs" / folder).glob("*.md"):
            assert f"{folder}/{page.name}" in linked


def test_every_decision_is_in_the_index() -> None:
    """The decisions are numbered without gaps, and each is listed."""
    folder = ROOT / "docs" / "adr"
    index = (folder / "README.md").read_text("utf-8")
    pages = sorted(folder.glob("0*.md"))
    assert [page.name[:4] for page in pages] == [f"{i:04}" for i in range(1, len(pages) + 1)]
    for page in pages:
        title = page.read_text("utf-8").splitlines()[0].removeprefix(f"# {page.name[:4]}. ")
        assert f"[{page.name[:4]}]({page.name}) | {title} |" in index
