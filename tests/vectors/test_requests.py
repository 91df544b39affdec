"""Signed requests, by a reader that was written from the specification of the service alone."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.vectors import spec_service
from tests.vectors.spec_bytes import RefusedError, party_id
from tests.vectors.spec_service import SKEW, Parts, admit

ROOT = Path(__file__).parents[2]
SPECIFICATION = (ROOT / "docs" / "spec" / "service-v1.md").read_text("utf-8")
GOOD, BAD = (
    json.loads((ROOT / "vectors" / f"{name}.json").read_bytes())["cases"]
    for name in ("requests", "bad_requests")
)
EXAMPLE = GOOD[0]

good = pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in GOOD])


def request_of(case: dict[str, Any]) -> dict[str, Any]:
    """Return the request of a good case as it arrives."""
    parts = {name: case[name] for name in ("method", "path", "query", "body")}
    return {**parts, "headers": list(case["expect"]["headers"].items())}


def registered() -> list[dict[str, Any]]:
    """Return the parties that the server of the vectors knows."""
    found: list[dict[str, Any]] = BAD[0]["registered"]
    return found


def world(case: dict[str, Any]) -> dict[str, Any]:
    """Return what a server knows besides the request."""
    return {name: case[name] for name in ("server", "now", "registered", "used")}


@good
def test_the_base_and_the_headers(case: dict[str, Any]) -> None:
    """Section 3: both come out byte for byte."""
    digest = spec_service.content_digest(bytes.fromhex(case["body"]))
    parts = Parts(case["method"], case["path"], case["query"], digest, case["server"])
    seed, nonce = bytes.fromhex(case["signing_seed"]), bytes.fromhex(case["nonce"])
    base, headers = spec_service.sign(seed, parts, case["created"], nonce, case["party"])
    assert {"base": base, "headers": headers} == case["expect"]


@good
@pytest.mark.parametrize("late", [-SKEW, 0, SKEW])
def test_a_good_request_is_admitted(case: dict[str, Any], late: int) -> None:
    """Section 4: at any time that is near enough."""
    now = case["created"] + late
    found = admit(request_of(case), case["server"], now, registered(), [])
    assert found == case["party"]


@good
@pytest.mark.parametrize("late", [-SKEW - 1, SKEW + 1])
def test_a_second_more_is_too_much(case: dict[str, Any], late: int) -> None:
    """Section 4.1: the window has sharp edges."""
    now = case["created"] + late
    with pytest.raises(RefusedError):
        admit(request_of(case), case["server"], now, registered(), [])


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in BAD])
def test_a_bad_request_is_refused(case: dict[str, Any]) -> None:
    """Section 4: everything that the package refuses is refused by the document, too."""
    with pytest.raises(RefusedError):
        admit(case["request"], **world(case))


def test_the_worked_example_is_a_vector() -> None:
    """What section 3.3 shows is the first case, line by line."""
    section = SPECIFICATION.split("### 3.3 ")[1].split("\n### ")[0]
    shown = [line.removeprefix("    ") for line in section.splitlines() if line.startswith("    ")]
    headers = [f"{name}: {value}" for name, value in EXAMPLE["expect"]["headers"].items()]
    body = bytes.fromhex(EXAMPLE["body"]).decode()
    inputs = [EXAMPLE["signing_seed"], EXAMPLE["nonce"]]
    for line in (*EXAMPLE["expect"]["base"].split("\n"), *headers, body, *inputs):
        assert line in shown or any(each.endswith(f" {line}") for each in shown), line


def test_the_parties_are_who_they_say() -> None:
    """The id in a request is that of the keys which the server knows (protocol, section 2)."""
    assert [party_id(each) for each in registered()] == [EXAMPLE["party"]]
