"""The audit log, by a reader that was written from the specification of the service alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.vectors.spec_bytes import RefusedError
from tests.vectors.spec_service import EVENTS, STATES, verify_log, verify_witness

ROOT = Path(__file__).parents[2]
CASES = json.loads((ROOT / "vectors" / "audit.json").read_bytes())["cases"]
GOOD = [case for case in CASES if not case["name"].startswith("bad_")]
BAD = [case for case in CASES if case["name"].startswith("bad_")]
WITNESSES = json.loads((ROOT / "vectors" / "witness.json").read_bytes())["cases"]


def inputs(case: dict[str, Any]) -> dict[str, Any]:
    """Return what a client has."""
    return {key: value for key, value in case.items() if key not in {"name", "expect"}}


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in GOOD])
def test_a_right_log(case: dict[str, Any]) -> None:
    """Section 7: every hash, and what to remember."""
    assert verify_log(**inputs(case)) == case["expect"]


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in BAD])
def test_a_rewritten_log_is_refused(case: dict[str, Any]) -> None:
    """Section 7.3: everything that the package refuses is refused by the document, too."""
    with pytest.raises(RefusedError):
        verify_log(**inputs(case))


@pytest.mark.parametrize("name", ["bad_rollback", "bad_fork", "bad_begun_anew"])
def test_only_memory_finds_these(name: str) -> None:
    """Section 7.4: whoever sees such a log for the first time has no reason to refuse it."""
    case = next(each for each in BAD if each["name"] == name)
    forgetful = inputs(case) | {"seen": None}
    assert verify_log(**forgetful)["seen"]["length"] == len(case["entries"])


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in WITNESSES])
def test_witnesses_and_proofs(case: dict[str, Any]) -> None:
    """Section 7.5: what a party was shown, and what proves that a server has signed two logs."""
    if case["name"].startswith("bad_"):
        with pytest.raises(RefusedError):
            verify_witness(**inputs(case))
    else:
        assert verify_witness(**inputs(case)) == case["expect"]


def test_every_event_and_state_is_in_the_specification() -> None:
    """The tables of section 7.1 and of section 6 have a row for each."""
    text = (ROOT / "docs" / "spec" / "service-v1.md").read_text("utf-8")
    events = text.split("### 7.1 ")[1].split("\n### ")[0]
    states = text.split("## 6. ")[1].split("\n## ")[0]
    for event in EVENTS:
        assert f"| `{event}` |" in events, event
    for state in STATES:
        assert f"| `{state}` |" in states, state
