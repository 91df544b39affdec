"""The reference is complete, and nothing in the documentation points into the void."""

import dataclasses
import inspect
import pkgutil
import re
import shlex
from functools import cache
from pathlib import Path

import click
import pytest

import veiltab
from tests.support.cases import for_each
from tests.support.documents import (
    COMMANDS,
    PARAMETERS,
    REFERENCE,
    ROOT,
    listed,
    prose,
    rows,
    section,
    spelt,
    tables,
)
from veiltab import errors
from veiltab.paper.claims import Claim
from veiltab.paper.experiment import Result

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])

LOGGERS = {"veiltab.access", "veiltab.service", "veiltab.db"}
"""Names in logs and of files that look like modules."""

documents = for_each("document", DOCUMENTS)


def test_commands_that_are_imported_late_are_there() -> None:
    """All the tests below would be silent about a command that nobody has found."""
    assert {"veiltab", "veiltab plan", "veiltab id new", "veiltab study sign"} <= set(COMMANDS)


@for_each("name", COMMANDS)
def test_every_option_of_every_command_and_no_other(name: str) -> None:
    """Each has a row in its command's section, with its type and its default; arguments too."""
    text = section(REFERENCE / "commands.md", name)
    real = [parameter for command, parameter in PARAMETERS if command == name]
    assert sorted(listed(text, "option")) == sorted(map(spelt, real))
    table = {row[0]: row for row in rows(text)}
    for parameter in real:
        row = table[spelt(parameter)]
        assert len(row) == 4
        flag = isinstance(parameter, click.Option) and parameter.is_flag
        assert row[1] == ("flag" if flag else parameter.type.name)
        default = parameter.to_info_dict().get("default")
        if parameter.required:
            assert row[2] == "required"
        elif flag:
            assert row[2] == "off"
        else:
            assert row[2] == ("none" if default is None else str(default))


def test_every_example_is_a_command_line() -> None:
    """Examples that need a server are not run, but every word of them is one that exists."""
    text = (REFERENCE / "commands.md").read_text("utf-8")
    blocks = re.findall(r"^```text$\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    assert len(lines) >= 15
    for line in lines:
        words = shlex.split(line.partition(" > ")[0])
        name = next(n for n in _names(words) if n in COMMANDS)
        rest = words[len(name.split()) :]
        COMMANDS[name].command.make_context(name, rest, parent=COMMANDS[name].parent).close()


def _names(words: list[str]) -> list[str]:
    """Return what could be the name of the command, the longest first."""
    return [" ".join(words[:end]) for end in (3, 2, 1)]


@for_each("name", [n for n, c in COMMANDS.items() if not isinstance(c.command, click.Group)])
def test_every_command_has_an_example(name: str) -> None:
    """In its section; those of commands that need no server are elsewhere, and run."""
    if name in {"veiltab plan", "veiltab simulate", "veiltab reproduce"}:
        return
    text = (REFERENCE / "commands.md").read_text("utf-8")
    own = text.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
    group = name.removesuffix(" show")
    assert re.search(rf"^(\$ )?({name}|{group})\b", own, flags=re.MULTILINE), name


def test_every_choice_is_named() -> None:
    """Options with a fixed set of values list them all."""
    for name, option in PARAMETERS:
        if isinstance(option.type, click.Choice):
            text = section(REFERENCE / "commands.md", name)
            for choice in option.type.choices:
                assert f"`{choice}`" in text, (name, option.name, choice)


def test_every_key_of_a_plan() -> None:
    """The tables list the keys of ``veiltab plan --json`` in their order, and no others."""
    printed = veiltab.plan(
        population_size=10_000, domain_size=4, epsilon=0.5, delta=1e-6, mechanism="decoys"
    ).as_dict()
    keys = listed(section(REFERENCE / "commands.md", "Keys of a plan"), "key")
    objects = [value for value in printed.values() if isinstance(value, dict)]
    assert len(objects) == 4
    assert keys == [*printed, *(key for value in objects for key in value)]


@pytest.mark.parametrize(
    ("heading", "kind"), [("Keys of a row", Result), ("Keys of a claim", Claim)]
)
def test_every_key_of_a_row(heading: str, kind: type[Result | Claim]) -> None:
    """The tables list the keys of ``simulate`` and ``reproduce`` in their order."""
    keys = listed(section(REFERENCE / "commands.md", heading), "key")
    assert keys == [field.name for field in dataclasses.fields(kind)]


def test_every_error_and_no_other() -> None:
    """Each class has one row with its code, exit code and HTTP status, and each row is a class."""
    real = {
        (name, error.code, str(error.exit_code), str(error.http_status))
        for name, error in inspect.getmembers(errors, inspect.isclass)
        if issubclass(error, errors.VeiltabError)
    }
    found = [t for t in tables(prose(REFERENCE / "errors.md")) if t.header[1] == "code"]
    shown = [tuple(row) for table in found for row in table.rows]
    assert sorted(shown) == sorted(real)
    assert len({code for _, code, *_ in real}) == len(real), "two errors share a code"


def test_every_error_is_explained() -> None:
    """Each class is more than a row of codes: it has a heading, or a row that says when."""
    text = prose(REFERENCE / "errors.md")
    headings = set(re.findall(r"^## (\w+)$", text, flags=re.MULTILINE))
    found = [t for t in tables(text) if t.header == ["class", "when", "what to do"]]
    explained = {row[0] for table in found for row in table.rows} | headings
    for name, error in inspect.getmembers(errors, inspect.isclass):
        if issubclass(error, errors.VeiltabError):
            assert name in explained


def test_every_public_name() -> None:
    """The Python reference begins with a table of exactly the names of the package."""
    table = rows(prose(REFERENCE / "python.md").split("\n## ", maxsplit=1)[0])
    assert sorted(row[0] for row in table) == sorted(veiltab.__all__)


def test_every_package_is_named() -> None:
    """The last section of the Python reference lists every package and module, and no other."""
    names = re.findall(r"`(veiltab\.\w+)`", section(REFERENCE / "python.md", "Packages below"))
    own = {f"veiltab.{module.name}" for module in pkgutil.iter_modules(veiltab.__path__)}
    assert sorted(names) == sorted(own - {"veiltab.__main__", "veiltab.errors"})


def slug(heading: str) -> str:
    """Return the anchor that a heading gets."""
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


@cache
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
    for name in re.findall(r"`(test_\w+)`", text):
        assert name in named_tests(), f"{document.name}: {name}"


@cache
def named_tests() -> frozenset[str]:
    """Return the names of all tests."""
    sources = (path.read_text("utf-8") for path in ROOT.glob("tests/**/test_*.py"))
    return frozenset(name for source in sources for name in re.findall(r"def (test_\w+)\(", source))


@documents
def test_every_module_that_is_named_exists(document: Path) -> None:
    """As a file of the sources, or with dots from ``veiltab`` on; loggers are no modules."""
    text = prose(document)
    packages = "|".join(module.name for module in pkgutil.iter_modules(veiltab.__path__))
    for path in re.findall(rf"`(?:src/veiltab/)?((?:{packages})/[\w/]+\.py)`", text):
        assert (ROOT / "src" / "veiltab" / path).exists(), f"{document.name}: {path}"
    for name in set(re.findall(r"`(veiltab(?:\.\w+)+)", text)) - LOGGERS:
        pkgutil.resolve_name(name)


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
