"""What a curator reads before it signs: what each coalition could learn, in numbers and words."""

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.support.decoys import EPSILON, decoy_terms
from tests.support.messages import HOSPITAL, TAX_OFFICE, plain_contract
from veiltab.party.coalitions import Coalition, coalitions
from veiltab.wire.contract import Contract, Linkage

CELLS = HOSPITAL.schema.domain_size * TAX_OFFICE.schema.domain_size
BASE = (
    "researcher",
    "researcher and server",
    "researcher and curator",
    "server and curator",
    "readers of published copies",
)


def contract_of(**changes: Any) -> Contract:
    """Return a contract of two curators."""
    terms: dict[str, Any] = {
        "epsilon": EPSILON,
        "accounting": "decoys-1",
        "mechanism": decoy_terms(),
    }
    return plain_contract(**terms | changes)


def learned(contract: Contract) -> dict[str, Coalition]:
    """Return the coalitions by who they are."""
    found = {coalition.who: coalition for coalition in coalitions(contract)}
    assert all(coalition.words for coalition in found.values())
    return {str(who): coalition for who, coalition in found.items()}


def test_decoys_without_noise() -> None:
    """The server adds nothing for a researcher; a curator who helps reads everything."""
    found = learned(contract_of(mechanism=replace(decoy_terms(), epsilon_public=0.25)))
    assert tuple(found) == BASE
    assert found["researcher"].epsilon == found["researcher and server"].epsilon == EPSILON
    assert found["researcher and curator"].epsilon is None
    assert found["researcher and curator"].numbers == "no bound"
    assert "reads the other curators' values" in found["researcher and curator"].words
    assert found["readers of published copies"].epsilon == 0.25
    assert found["server and curator"].numbers == "no values"


def test_the_servers_noise_bounds_what_a_curator_can_give_away() -> None:
    """By ln γ, whatever the decoys are: γ = N + 1 if half of all rows are kept."""
    found = learned(contract_of(mechanism=decoy_terms(keep=0.5, cells=CELLS)))
    helped = found["researcher and curator"]
    assert helped.epsilon == pytest.approx(math.log(CELLS + 1), rel=1e-6)
    assert helped.numbers.startswith("ε = 2.5")


def test_matched_respondents() -> None:
    """Whether somebody is there at all is bounded as well; ids that are guessed are not."""
    found = learned(contract_of(linkage=Linkage.by_ids(mode="matched")))
    assert tuple(found) == (*BASE, "membership")
    membership = found["membership"].epsilon
    assert membership is not None
    assert 0 < membership < EPSILON
    assert "ids the curator guesses" in found["server and curator"].words
    assert "which of those who take part all" in found["researcher and curator"].words
    assert "which of those" not in learned(contract_of())["researcher and curator"].words


@pytest.mark.parametrize("population", [None, 10_000])
def test_the_papers_way(population: int | None) -> None:
    """Server and researcher together read the sample, and the contract says so."""
    paper = plain_contract(epsilon=1.0, population=population)
    found = learned(paper)
    assert tuple(found) == BASE
    together = found["researcher and server"]
    assert together.epsilon is None
    assert "without any noise" in together.words
    assert (found["researcher and curator"].epsilon is None) == (population is None)
    assert found["readers of published copies"].epsilon == 1.0


def test_delta_goes_with_the_promise() -> None:
    """Where it is spent, and nowhere else."""
    shuffled = plain_contract(epsilon=1.0, delta=1e-6, accounting="shuffle-1", population=10_000)
    found = learned(shuffled)
    assert found["researcher"].numbers == "ε = 1, δ = 1e-06"
    assert "plus δ" in found["researcher"].words
    assert found["readers of published copies"].delta == 0
