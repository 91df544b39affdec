"""The table of the threat model says what a contract tells a curator before it signs."""

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.documents import ROOT, prose, section, tables
from tests.support.messages import HOSPITAL, TAX_OFFICE, plain_contract
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Geometric
from veiltab.party.coalitions import Coalition, coalitions
from veiltab.wire.contract import Contract, Linkage
from veiltab.wire.mechanism import DecoyTerms

PAGE = ROOT / "docs" / "explanation" / "threat-model.md"
PAGES = (PAGE, *(PAGE.with_name(name) for name in ("service.md", "under-attack.md")))
MATCHED = Linkage.by_ids(mode="matched")


def contract_of(mechanism: str, *, noise: bool) -> Contract:
    """Return a contract of the mechanism that a column of the table is about."""
    changes: dict[str, Any] = {"linkage": MATCHED} if mechanism.endswith("matched") else {}
    if not mechanism.startswith("decoys"):
        changes = {"delta": 1e-6, "accounting": "shuffle-1"} if mechanism == "shuffle" else {}
        return plain_contract(epsilon=0.75, population=10_000, **changes)
    size = HOSPITAL.schema.domain_size * TAX_OFFICE.schema.domain_size
    half = DRAW_RANGE // 2 // size * size + DRAW_RANGE % size
    terms = DecoyTerms(DRAW_RANGE // 3, Geometric(DRAW_RANGE // 2), 0.25, half if noise else None)
    return plain_contract(epsilon=1.0, accounting="decoys-1", mechanism=terms, **changes)


def cells(who: str) -> dict[str, str]:
    """Return what the page's table says of a coalition under each mechanism."""
    (table,) = [table for table in tables(prose(PAGE)) if "decoys, matched" in table.header]
    (row,) = [row for row in table.rows if row[0].startswith(f"[{who}]")]
    said = dict(zip(table.header[1:], row[1:], strict=True))
    if said["decoys, matched"].startswith("the same"):
        said["decoys, matched"] = said["decoys, aligned"]
    return said


def learned(mechanism: str, who: str, *, noise: bool = True) -> Coalition:
    """Return what the program says of it."""
    contract = contract_of(mechanism, noise=noise)
    (coalition,) = [coalition for coalition in coalitions(contract) if coalition.who == who]
    return coalition


MECHANISMS = ("paper", "shuffle", "decoys, aligned", "decoys, matched")


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_table_agrees_with_what_curators_read(mechanism: str) -> None:
    """Where the table has ε, ln γ or ε_public, so has the program; elsewhere it has no bound."""
    contract = contract_of(mechanism, noise=True)
    alone = learned(mechanism, "researcher")
    assert cells("a researcher alone")[mechanism].startswith("ε")
    assert (alone.epsilon, alone.delta) == (contract.epsilon, contract.delta)

    together = learned(mechanism, "researcher and server")
    said = cells("the server and a researcher")[mechanism]
    assert ("in the clear" in said) == (together.epsilon is None)
    assert said.startswith("ε") == (together.epsilon == contract.epsilon)

    helped = learned(mechanism, "researcher and curator")
    assert cells("a researcher and a curator")[mechanism].startswith("ln γ")
    assert helped.epsilon is not None
    assert helped.epsilon > 1

    readers = learned(mechanism, "readers of published copies")
    assert cells("readers of published copies")[mechanism] == "ε_public"
    assert readers.epsilon == (0.25 if contract.decoys else contract.epsilon)

    both = learned(mechanism, "server and curator")
    assert cells("the server and a curator")["decoys, aligned"].startswith("no values")
    assert both.numbers == "no values"


@pytest.mark.parametrize("mechanism", MECHANISMS[2:])
def test_without_noise_a_curator_gives_everything_away(mechanism: str) -> None:
    """As the table says in bold."""
    assert "without noise by the server, values" in cells("a researcher and a curator")[mechanism]
    assert learned(mechanism, "researcher and curator", noise=False).epsilon is None


@pytest.fixture(scope="module")
def test_names() -> dict[str, set[Path]]:
    """Return the files that have a test of each name."""
    names: dict[str, set[Path]] = {}
    for path in (ROOT / "tests").rglob("test_*.py"):
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                names.setdefault(node.name, set()).add(path)
    return names


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_test_that_is_named_exists(page: Path, test_names: dict[str, set[Path]]) -> None:
    """A promise whose test was renamed or removed is no longer shown by anything."""
    text = page.read_text("utf-8")
    cited = set(re.findall(r"`(?:tests/[\w/.]+::)?(test_\w+)`", text))
    files = re.findall(r"`(tests/[\w/.]+?)(?:::\w+)?`", text)
    assert cited or files
    assert sorted(cited - test_names.keys()) == []
    assert [name for name in files if not (ROOT / name).exists()] == []


def test_every_attack_of_the_review_is_played() -> None:
    """Each row of what was wrong names at least one test."""
    whole = section(PAGE, "What was wrong, and what holds now")
    rows = [row for table in tables(whole) for row in table.rows]
    assert len(rows) > 30
    assert [row[0] for row in rows if "test_" not in row[-1]] == []
