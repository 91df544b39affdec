"""Studies that promise (ε, δ): the accounting travels with them and everybody checks it."""

from dataclasses import replace

import numpy as np
import pytest

from veiltab.core.schema import Attribute
from veiltab.crypto.entropy import CipherEntropy
from veiltab.data.ids import row_messages
from veiltab.errors import BudgetError, MalformedError, PromiseError
from veiltab.protocol.curator.agreement import sign_contract, unsigned
from veiltab.protocol.curator.ledger import Ledger
from veiltab.protocol.in_process import Holding, Outcome, Rehearsal, Terms
from veiltab.protocol.researcher import count_records, open_access
from veiltab.protocol.verify import sign

PEOPLE = 4000
SHUFFLED = Terms(epsilon=1.0, delta=1e-6)


def rehearsal() -> Rehearsal:
    """Return two curators with two and three categories."""
    ids = row_messages(PEOPLE)
    rows = np.arange(PEOPLE)
    holdings = [
        Holding((Attribute("a", ["x", "y"]),), [(rows % 2).astype(np.uint8)], ids),
        Holding((Attribute("b", ["p", "q", "r"]),), [(rows % 3).astype(np.uint8)], ids),
    ]
    return Rehearsal(holdings, CipherEntropy.from_seed(1, "shuffle"))


@pytest.fixture(scope="module")
def parties() -> Rehearsal:
    """Share the parties: making them is the slow part."""
    return rehearsal()


@pytest.fixture(scope="module")
def outcome(parties: Rehearsal) -> Outcome:
    """Share one study, up to its release."""
    return parties.run(SHUFFLED)


@pytest.mark.parametrize("way", ["aligned", "fresh", "stored"])
def test_a_study_with_delta_samples_everybody_and_errs_little(parties: Rehearsal, way: str) -> None:
    """All ways: the release names its accounting, and the estimate is as good as planned."""
    terms = replace(SHUFFLED, linkage="aligned" if way == "aligned" else "matched")
    found = parties.run_stored(terms, parties.deposit()) if way == "stored" else parties.run(terms)
    release = found.study.release().body
    assert (release.accounting, release.delta, release.rows) == ("shuffle-1", 1e-6, PEOPLE)
    result = count_records(parties.access(found), found.released)
    assert result.plan.accounting == "shuffle"
    assert 0 < result.plan.delta_achieved <= 1e-6
    error = float(np.linalg.norm(result.unbiased - 1 / 6))
    # The error's square is at most χ² with 5 degrees of freedom: 4 times the RMSE is far out.
    assert error < 4 * result.plan.rmse < 0.1


def test_less_noise_than_promised_is_refused(parties: Rehearsal, outcome: Outcome) -> None:
    """A verifier recomputes δ from the release's own numbers."""
    release = outcome.study.release().body
    assert release.keep_threshold is not None
    looser = sign(
        replace(release, keep_threshold=release.keep_threshold + 6 * 2**55), parties.server.signing
    )
    with pytest.raises(PromiseError, match="does not keep its promise"):
        open_access(parties.researcher, outcome.contract, looser, [], now=0)


def test_the_other_accounting_must_be_agreed_on(parties: Rehearsal, outcome: Outcome) -> None:
    """A study with δ = 0 takes no shuffled release, and a shuffled threshold is not pure."""
    pure = parties.run(Terms(epsilon=1.0))
    smuggled = replace(pure.study.release().body, accounting="shuffle-1")
    with pytest.raises(PromiseError, match="other parameters"):
        open_access(
            parties.researcher, pure.contract, sign(smuggled, parties.server.signing), [], now=0
        )
    claimed = replace(outcome.study.release().body, accounting="pure-1")
    with pytest.raises(PromiseError, match="does not keep its promise"):
        open_access(
            parties.researcher, outcome.contract, sign(claimed, parties.server.signing), [], now=0
        )


def test_the_contract_names_the_accounting_of_its_delta(outcome: Outcome) -> None:
    """Neither may stand without the other."""
    contract = outcome.contract.body
    with pytest.raises(MalformedError, match="accounting"):
        replace(contract, accounting="pure-1")
    with pytest.raises(MalformedError, match="accounting"):
        replace(contract, delta=0.0)


def test_the_ledger_keeps_delta_and_the_accounting(parties: Rehearsal, outcome: Outcome) -> None:
    """Signing charges both; a data set without a budget for δ takes no such study."""
    contract, curator = outcome.contract.body, parties.curators[0]
    with pytest.raises(BudgetError, match="delta 1e-06 exceeds"):
        sign_contract(unsigned(contract), curator, Ledger(dataset="d", epsilon_limit=5.0))
    ledger = Ledger(dataset="d", epsilon_limit=5.0, delta_limit=1e-5)
    _, charged = sign_contract(unsigned(contract), curator, ledger)
    (entry,) = charged.entries
    assert (entry.epsilon, entry.delta, entry.accounting) == (1.0, 1e-6, "shuffle-1")
    assert charged.supports(1.0, 9e-6)
    assert not charged.supports(1.0, 1e-5)
