"""The Python reference names every public member of the API, and none that does not exist."""

import inspect
import re
from dataclasses import fields, is_dataclass

import pytest

import veiltab as vt
from tests.support.documents import REFERENCE, section
from veiltab.data.table_format import TableFormat
from veiltab.party.alignments import AlignmentStatus
from veiltab.party.answers import Status
from veiltab.party.checking import Preview
from veiltab.party.coalitions import Coalition
from veiltab.party.costs import Cost
from veiltab.party.curator import GivenGrant
from veiltab.party.known.known import Acquaintance, KnownParties
from veiltab.party.ledgers import StoredLedger
from veiltab.party.progress import Progress
from veiltab.wire.audit import AuditEntry
from veiltab.wire.contract import Contract, PublicIdentity

PAGE = REFERENCE / "python.md"

WHOLE: dict[str, type] = {
    "Plan": vt.Plan,
    "OverlapPlan": vt.OverlapPlan,
    "OverlapEstimate": vt.OverlapEstimate,
    "Home": vt.Home,
    "Session": vt.Session,
    "Study": vt.Study,
    "Vault": vt.Vault,
    "Known parties": KnownParties,
    "Acquaintance": Acquaintance,
    "Preview": Preview,
    "Table format": TableFormat,
    "Cost": Cost,
    "Coalition": Coalition,
    "Progress": Progress,
    "Alignment": AlignmentStatus,
    "Status": Status,
    "Grant": GivenGrant,
    "Budget": StoredLedger,
    "Estimate": vt.Estimate,
    "Quantity": vt.Quantity,
    "ModelFit": vt.ModelFit,
    "CalibratedEstimate": vt.CalibratedEstimate,
    "PooledEstimate": vt.PooledEstimate,
    "Comparison": vt.Comparison,
    "WeightedQuantity": vt.WeightedQuantity,
    "CategoryQuantile": vt.CategoryQuantile,
    "HypothesisTest": vt.HypothesisTest,
    "Attribute": vt.Attribute,
    "Schema": vt.Schema,
    "Bins": vt.Bins,
    "ValueMap": vt.ValueMap,
    "Recode": vt.Recode,
    "CountTable": vt.CountTable,
    "Errors": vt.VeiltabError,
}
"""Sections that name every public member of a class, and only those."""

PARTLY: dict[str, type] = {
    "Terms": Contract,
    "Public identity": PublicIdentity,
    "Audit entry": AuditEntry,
}
"""Sections about messages of the protocol: what they name exists."""

INSTANCE = {"Home": {"path"}, "Errors": {"message", "hint"}}
"""Attributes that only objects have, not their classes."""

OF_MESSAGES = {"canonical", "check", "from_json", "to_json", "kind", "left_out"}
"""What every message has besides its own fields."""


def spans(heading: str) -> list[str]:
    """Return what the first cells of a section's tables show as code, subsections left out."""
    own = re.split(r"^#", section(PAGE, heading), maxsplit=1, flags=re.MULTILINE)[0]
    cells = re.findall(r"^\| (`.*?`) \|", own, flags=re.MULTILINE)
    return [span for cell in cells for span in re.findall(r"`([^`]+)`", cell)]


def name_of(span: str) -> str:
    """Return the member that a span is about: its last name before any parenthesis."""
    return span.partition("(")[0].rpartition(".")[2]


def parameters(span: str) -> list[str]:
    """Return the parameters that a span shows, without their defaults."""
    inside = re.sub(r"\"[^\"]*\"|\(\)", "x", span.partition("(")[2].rpartition(")")[0])
    return [part.partition("=")[0].strip(" *") for part in inside.split(",") if part]


def members(kind: type) -> set[str]:
    """Return the public names of a class, and the fields that its objects have."""
    inherited = {*dir(Exception)} if issubclass(kind, Exception) else set()
    names = {name for name in dir(kind) if not name.startswith("_")} - inherited
    own = {field.name for field in fields(kind)} if is_dataclass(kind) else set()
    return names | {name for name in own if not name.startswith("_")}


@pytest.mark.parametrize("heading", WHOLE)
def test_every_public_member_and_no_other(heading: str) -> None:
    """Each method, property and field of the class is in the section's tables, once."""
    shown = [name_of(span) for span in spans(heading)]
    real = members(WHOLE[heading]) | INSTANCE.get(heading, set())
    if heading == "Status":
        real -= OF_MESSAGES
    assert sorted(shown) == sorted(real)


@pytest.mark.parametrize("heading", PARTLY)
def test_what_is_named_of_a_message_exists(heading: str) -> None:
    """A contract has more members than users need; those that are named are there."""
    shown = {name_of(span) for span in spans(heading)}
    assert len(shown) >= 5
    assert shown <= members(PARTLY[heading])


@pytest.mark.parametrize("heading", [*WHOLE, "Functions"])
def test_every_parameter(heading: str) -> None:
    """Whatever is called is shown with its parameters, in order; ``…`` stands for some of them."""
    checked = 0
    for span in spans(heading):
        owner = vt if heading == "Functions" else WHOLE[heading]
        value = getattr(owner, name_of(span), None)
        if is_dataclass(owner) and name_of(span) in {field.name for field in fields(owner)}:
            value = None  # a field, whatever its default can do
        assert callable(value) == ("(" in span), span
        if not callable(value):
            continue
        real = [name for name in inspect.signature(value).parameters if name != "self"]
        shown = parameters(span)
        if shown[-1:] == ["…"]:
            shown[-1:] = ["level", "population"]
        assert shown == real, span
        checked += 1
    assert checked or heading not in {"Functions", "Home", "Session", "Study", "Estimate"}


def test_every_function() -> None:
    """Public functions are exactly those in the table."""
    real = {name for name in vt.__all__ if inspect.isfunction(getattr(vt, name))}
    assert {name_of(span) for span in spans("Functions")} == real


def test_what_the_members_of_a_budget_and_a_status_have() -> None:
    """Names in the explanations of a section are checked where other objects are meant."""
    text = section(PAGE, "Budget")
    ledger = re.findall(r"`(\w+)", text.partition("| `ledger` |")[2].partition("\n")[0])
    budget = StoredLedger.__dataclass_fields__["ledger"].type
    assert len(ledger) == 12
    assert all(name in dir(budget) for name in ledger)
