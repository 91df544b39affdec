"""What pages say instead of options and commands, and that no text names one in another way."""

import ast
import math
import re
from dataclasses import fields

import pytest

from tests.support.cases import for_each
from tests.support.documents import ROOT
from tests.support.pages import NAMES_OPTION
from veiltab.console.pages.ledger import odds
from veiltab.console.wording import WORDS, on_page
from veiltab.data.table_format import FormatOptions, option
from veiltab.remedies import Remedy

SOURCES = ROOT / "src" / "veiltab"

NO_PAGES = (
    *("cli", "demo", "hosting", "paper", "server", "remedies.py", "report"),
    # What only commands do, and what is said before there is a page
    *("party/agent", "party/passphrases.py", "party/rotation.py", "party/witnesses.py"),
    "console/app.py",
)
"""Whose texts are on no page of a console, or are about files and styles."""

NO_HOME = "name it with --home or VEILTAB_HOME"
"""Is said where there is no place for a home: then there is no console either."""


def filled(remedy: Remedy) -> str:
    """Return a remedy as an error has it."""
    values = (
        ("sheet", "'May 2026'", "sheet", "'May 2026'") if remedy is Remedy.OPTION else ("3fa9",)
    )
    return remedy.format(*values[: remedy.count("{}")])


@pytest.mark.parametrize("remedy", Remedy, ids=lambda remedy: remedy.name)
def test_a_page_has_words_of_its_own(remedy: Remedy) -> None:
    """They take the place of all of the command's words, and of nothing around them."""
    shown = on_page(f"first; {filled(remedy)}, or begin anew")
    assert shown.startswith("first; ")
    assert shown.endswith(", or begin anew")
    assert filled(remedy) not in shown
    assert not NAMES_OPTION.search(shown)
    assert "VEILTAB" not in shown
    assert WORDS.keys() == set(Remedy)


def test_how_a_file_is_written_is_said_by_the_fields() -> None:
    """Whatever the value is; two in one text are told apart."""
    names = {one.name for one in fields(FormatOptions)} - {"header"}
    for name in names - {"skip_lines"}:
        for value in ("semicolon", "'", '"', "a b", "(x)", "ü"):
            shown = on_page(f"first: {option(name, value)}; and more")
            assert re.fullmatch(
                "first: write .+ into “.+” where the table is chosen; and more", shown
            )
            assert f"write {value} into" in shown
    both = on_page(
        f"{option('skip_lines', 3)} or {Remedy.NO_HEADER}, {option('encoding', 'cp850')}"
    )
    assert both == (
        "write 3 into “Lines above the header” where the table is chosen or choose “is a row” for"
        " “The first line” where the table is chosen, write cp850 into “Encoding of letters” where"
        " the table is chosen"
    )


def test_no_text_names_an_option_by_itself() -> None:
    """Each takes it from the list of remedies, for which pages have words."""
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        place = path.relative_to(SOURCES).as_posix()
        if place.startswith(NO_PAGES):
            continue
        tree = ast.parse(path.read_text("utf-8"))
        documents = {
            id(node.value)
            for node in ast.walk(tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        }
        found += [
            f"{place}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in documents
            and NAMES_OPTION.search(node.value)
            and node.value != NO_HOME
        ]
    assert found == []


@for_each("epsilon", [0.001, 0.1, 0.5, 1, 2, 3, 5, 6.9])
def test_what_a_guess_could_become_is_rounded_up(epsilon: float) -> None:
    """A promise of "at most" must not be less than the truth, and says no more than it needs to."""
    said = re.search(r"become ([0-9.]+)% at most", odds(epsilon))
    assert said is not None
    truth = 100 / (1 + math.exp(-epsilon))
    assert truth <= float(said[1]) <= truth + 0.1
