"""What ``import veiltab`` shows, and what it loads."""

import pydoc
import re
import subprocess
import sys
from pathlib import Path

import pytest

import veiltab

DOCS = Path(__file__).parents[2] / "docs"
HEAVY = ("numpy", "polars", "scipy", "httpx", "fastapi", "sqlalchemy", "cryptography", "altair")


def test_dir_shows_exactly_the_public_names() -> None:
    """In a fresh process, where nothing has been imported yet."""
    code = "import veiltab; print(*dir(veiltab))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert shown.stdout.split() == sorted(veiltab.__all__)
    assert dir(veiltab) == sorted(veiltab.__all__)


@pytest.mark.parametrize("name", veiltab.__all__)
def test_every_public_name_can_be_used_and_says_what_it_is(name: str) -> None:
    """Each comes from the module that it is said to come from."""
    value = getattr(veiltab, name)
    assert name == "__version__" or (value.__doc__ or "").strip()


def test_star_import_gives_the_public_names() -> None:
    """Nothing more, and nothing less."""
    names: dict[str, object] = {}
    exec("from veiltab import *", names)  # noqa: S102 - what a notebook does
    assert names.keys() - {"__builtins__"} == set(veiltab.__all__)


def test_a_name_that_is_not_there() -> None:
    """Is told as Python tells it; so ``hasattr`` works."""
    with pytest.raises(AttributeError, match="module 'veiltab' has no attribute 'Bench'"):
        veiltab.Bench  # noqa: B018
    assert not hasattr(veiltab, "_nothing")


def test_importing_loads_nothing_heavy() -> None:
    """Each name is loaded when it is first used."""
    code = f"import sys, veiltab; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603
    assert shown.stdout.split() == []


def test_help_says_which_function_to_call_for_what() -> None:
    """Every public name is in the module's documentation."""
    page = pydoc.plain(pydoc.render_doc(veiltab))
    summary = page[: page.index("PACKAGE CONTENTS")] if "PACKAGE CONTENTS" in page else page
    for name in set(veiltab.__all__) - {"__version__", "Plan", "Session"}:
        assert re.search(rf"\b{name}\b", summary), name
    assert "Session" in summary


def test_the_reference_names_every_public_name() -> None:
    """``docs/reference/python.md`` has each of them as code."""
    page = (DOCS / "reference" / "python.md").read_text(encoding="utf-8")
    for name in veiltab.__all__:
        assert re.search(rf"`(veiltab\.|vt\.)?{name}\b", page), name
