"""What a curator signs, what that costs, and whom it tells the secret."""

from dataclasses import replace

import pytest

from tests.support.decoys import terms as decoy_study_terms
from tests.support.simulator import LocalStudy, Simulator
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.sealing import seal
from veiltab.errors import (
    BudgetError,
    MismatchError,
    SealError,
    SignatureError,
)
from veiltab.protocol.curator.agreement import (
    new_contribution,
    new_secret,
    receive_secret,
    share_secret,
    sign_contract,
    sign_vault,
    study_secret,
    unsigned,
)
from veiltab.protocol.curator.ledger import Ledger
from veiltab.protocol.in_process import Terms
from veiltab.protocol.verify import cosign, sign
from veiltab.wire.signed import Signature, Signed

TERMS = Terms(epsilon=0.5, sample_size=20)
LEDGER = Ledger(dataset="patients", epsilon_limit=1.0)


def test_signing_charges_the_ledger() -> None:
    """The signature and the charge come out together; signing again costs nothing more."""
    rehearsal = Simulator()
    contract, _ = rehearsal.propose(TERMS)
    signed, charged = sign_contract(unsigned(contract), rehearsal.curators[0], LEDGER)
    assert [s.key for s in signed.signatures] == [rehearsal.curators[0].signing.public]
    assert [(e.study, e.epsilon) for e in charged.entries] == [(contract.study_id, 0.5)]
    again, same = sign_contract(signed, rehearsal.curators[0], charged)
    assert (again, same) == (signed, charged)
    both, _ = sign_contract(signed, rehearsal.curators[1], LEDGER)
    assert len(both.signatures) == 2


def test_a_stated_population_counts_only_where_it_is_checked() -> None:
    """Among decoys nobody can count the people whom the server matches, whatever is stated."""
    rehearsal = Simulator()
    strict = replace(LEDGER, smallest_population=100)
    aligned, _ = rehearsal.propose(decoy_study_terms("aligned", population=100))
    assert sign_contract(unsigned(aligned), rehearsal.curators[0], strict)[1].entries
    matched, _ = rehearsal.propose(decoy_study_terms("matched", population=100))
    with pytest.raises(BudgetError, match="is below 100"):
        sign_contract(unsigned(matched), rehearsal.curators[0], strict)


def test_nobody_but_a_curator_can_sign() -> None:
    """Neither a contract nor a vault; and nothing is charged."""
    rehearsal = Simulator()
    contract, _ = rehearsal.propose(TERMS)
    vault = rehearsal.deposit().vault
    for identity in (rehearsal.server, rehearsal.researcher):
        with pytest.raises(MismatchError, match="is not a curator"):
            sign_contract(unsigned(contract), identity, LEDGER)
        with pytest.raises(MismatchError, match="is not a curator"):
            sign_vault(vault, identity)


def test_a_foreign_or_wrong_signature_is_not_countersigned() -> None:
    """A curator checks who has signed before it does."""
    rehearsal = Simulator()
    contract, _ = rehearsal.propose(TERMS)
    other, _ = rehearsal.propose(TERMS)
    vault = rehearsal.deposit().vault
    first, second = rehearsal.curators
    moved = cosign(unsigned(other), second.signing).signatures
    nonsense = Signature(second.signing.public, bytes(64))
    for bad in (
        cosign(unsigned(contract), rehearsal.server.signing),
        Signed(contract, moved),
        Signed(contract, (nonsense,)),
    ):
        with pytest.raises(SignatureError):
            sign_contract(bad, first, LEDGER)
    with pytest.raises(SignatureError):
        sign_vault(cosign(vault, rehearsal.server.signing), first)


def test_above_the_limit_there_is_no_signature() -> None:
    """And no charge: the ledger stays what it was."""
    rehearsal = Simulator()
    spent = LEDGER
    for _ in range(2):
        contract, _ = rehearsal.propose(TERMS)
        _, spent = sign_contract(unsigned(contract), rehearsal.curators[0], spent)
    third, _ = rehearsal.propose(TERMS)
    before = spent.entries
    with pytest.raises(BudgetError):
        sign_contract(unsigned(third), rehearsal.curators[0], spent)
    assert spent.entries == before
    assert len(before) == 2


def shared() -> tuple[Simulator, LocalStudy, PrivateIdentity, PrivateIdentity]:
    """Return an open study and its two curators."""
    rehearsal = Simulator()
    first, second = rehearsal.curators
    return rehearsal, rehearsal.study(TERMS), first, second


def test_a_secret_is_for_one_curator() -> None:
    """The receiver opens it; another does not, and cannot by readdressing it either."""
    rehearsal, staged, first, second = shared()
    message = share_secret(staged.contract, first, staged.secret, second.party_id)
    assert receive_secret(staged.contract, second, message) == staged.secret
    with pytest.raises(MismatchError, match="another curator"):
        receive_secret(staged.contract, first, message)
    with pytest.raises(MismatchError, match="is not a curator"):
        share_secret(staged.contract, first, staged.secret, rehearsal.researcher.party_id)
    readdressed = sign(replace(message.body, receiver=first.party_id), first.signing)
    with pytest.raises(SealError):
        receive_secret(staged.contract, first, readdressed)
    assert staged.secret not in message.dumps()
    assert staged.secret.hex().encode() not in message.dumps()


def test_a_secret_cannot_be_moved_to_another_study() -> None:
    """Not as it is, and not with a new signature: the seal is bound to the study."""
    _, staged, first, second = shared()
    message = share_secret(staged.contract, first, staged.secret, second.party_id)
    other = replace(staged.contract, title="another study")
    with pytest.raises(MismatchError, match="another study"):
        receive_secret(other, second, message)
    moved = sign(replace(message.body, scope=other.scope), first.signing)
    with pytest.raises(SealError):
        receive_secret(other, second, moved)


def test_a_secret_comes_from_a_curator_of_the_study() -> None:
    """Somebody else's is refused, also if it is the right one."""
    rehearsal, staged, _, second = shared()
    message = share_secret(staged.contract, rehearsal.researcher, staged.secret, second.party_id)
    with pytest.raises(MismatchError, match="is not a curator"):
        receive_secret(staged.contract, second, message)
    genuine = share_secret(staged.contract, second, staged.secret, second.party_id)
    with pytest.raises(SignatureError):
        receive_secret(staged.contract, second, sign(genuine.body, rehearsal.researcher.signing))


@pytest.mark.parametrize("wrong", [b"", bytes(31), bytes(33)])
def test_a_contribution_has_32_bytes(wrong: bytes) -> None:
    """An empty one would add nothing to the secret, and go unnoticed."""
    _, staged, first, second = shared()
    message = share_secret(staged.contract, first, staged.secret, second.party_id)
    context = staged.contract.scope + first.party_id + second.party_id
    with pytest.raises(MismatchError, match="commits to"):
        share_secret(staged.contract, first, wrong, second.party_id)
    sealed = seal(wrong, second.sealing.public, "secret", context)
    forged = sign(replace(message.body, sealed=sealed), first.signing)
    with pytest.raises(MismatchError, match="commits to"):
        receive_secret(staged.contract, second, forged)


def test_every_curator_contributes_to_the_secret() -> None:
    """It changes with each contribution and with the study, and with their order."""
    entropy = CipherEntropy.from_seed(1, "contributions")
    proposers, commitment, nonce = new_secret(entropy)
    rehearsal = Simulator(curators=3)
    contract = rehearsal.propose(TERMS, secret_commitment=commitment, nonce=nonce)[0]
    first, second, third = (terms.party_id for terms in contract.curators)
    others = [new_contribution(entropy) for _ in range(3)]
    secrets = {
        study_secret(terms, {first: one, second: two, third: three})
        for terms in (contract, replace(contract, title="another study"))
        for one, two, three in (
            (proposers, others[0], others[1]),
            (proposers, others[1], others[0]),
            (proposers, others[0], others[2]),
            (others[0], proposers, others[1]),
        )
    }
    assert len(secrets) == 8
    assert not secrets & {proposers, *others}


def test_the_proposers_contribution_is_the_one_that_the_contract_commits_to() -> None:
    """A proposer cannot send another one by mistake, nor to some curators on purpose."""
    entropy = CipherEntropy.from_seed(1, "contributions")
    proposers, commitment, nonce = new_secret(entropy)
    contract = Simulator().propose(TERMS, secret_commitment=commitment, nonce=nonce)[0]
    first, second = (terms.party_id for terms in contract.curators)
    other = new_contribution(entropy)
    assert len(study_secret(contract, {first: proposers, second: other})) == 32
    with pytest.raises(MismatchError, match="commits to"):
        study_secret(contract, {first: other, second: new_contribution(entropy)})
    for some in ({}, {first: proposers}, {second: other}):
        with pytest.raises(MismatchError, match="has not contributed"):
            study_secret(contract, some)


def test_a_vault_has_one_secret_to_which_it_commits() -> None:
    """Its tables outlive studies; whoever joins later must have the same one."""
    rehearsal = Simulator()
    deposit, (first, second) = rehearsal.deposit(), rehearsal.curators
    vault = deposit.vault.body
    message = share_secret(vault, first, deposit.secret, second.party_id)
    assert receive_secret(vault, second, message) == deposit.secret
    wrong = new_contribution(CipherEntropy.from_seed(1, "wrong"))
    with pytest.raises(MismatchError, match="commits to"):
        share_secret(vault, first, wrong, second.party_id)
    context = vault.scope + first.party_id + second.party_id
    sealed = seal(wrong, second.sealing.public, "secret", context)
    with pytest.raises(MismatchError, match="commits to"):
        receive_secret(vault, second, sign(replace(message.body, sealed=sealed), first.signing))
