"""A curator with a stored table: which requests for new pads it answers, and each once."""

from dataclasses import replace

import numpy as np
import pytest

from tests.support.chunks import write_positions
from tests.support.simulator import STORED_TERMS, Simulator
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import MismatchError, SignatureError, StateError
from veiltab.protocol.curator.stored import StoredTable
from veiltab.protocol.verify import sign
from veiltab.wire.contract import CuratorTerms


def test_a_request_is_answered_once() -> None:
    """The same request gets the same answer; another one for this study gets none."""
    case = Simulator().draw()
    answer = case.answer(0)
    assert case.answer(0) is answer
    other = write_positions(np.arange(20), case.outcome.received)
    with pytest.raises(StateError, match="for other rows"):
        case.answer(0, positions=other)
    assert case.answer(0) is answer


def test_two_studies_get_two_answers() -> None:
    """With pads of their own, though the stored rows are the same."""
    parties = Simulator()
    deposit = parties.deposit()
    one, two = parties.draw(deposit), parties.draw(deposit)
    first, second = one.answer(0), two.answer(0)
    assert first.message.body.upload_id != second.message.body.upload_id
    assert first.pads.material([0, 1]) != second.pads.material([0, 1])


@pytest.mark.parametrize(
    "rows",
    [[*range(19), 40], [*range(19), 2**48 - 1], [*range(19), 0], [7] * 20],
    ids=["one too far", "far too far", "one twice", "all the same"],
)
def test_positions_must_be_different_rows_of_the_table(rows: list[int]) -> None:
    """A row that is asked for twice would give two ciphertexts under related pads."""
    case = Simulator().draw()
    positions = write_positions(np.array(rows), case.outcome.received)
    with pytest.raises(MismatchError, match="not different rows"):
        case.answer(0, positions=positions)
    last = write_positions(np.arange(20, 40), case.outcome.received)
    assert case.answer(0, positions=last).message.body.rows == 20


def test_a_request_must_be_the_servers_for_this_study_table_and_curator() -> None:
    """Signed by the server of the contract, with the numbers that were agreed on."""
    case = Simulator().draw()
    digests = [table.upload.digest for table in case.deposit.stored]
    other = case.rehearsal.curators[1].party_id
    for changes in ({"study": bytes(32)}, {"upload_digest": digests[1]}, {"curator": other}):
        with pytest.raises(MismatchError, match="another study, table or curator"):
            case.answer(0, **changes)
    fewer = write_positions(np.arange(19), case.outcome.received)
    with pytest.raises(MismatchError, match="not what was agreed"):
        case.answer(0, sample_size=19, positions=fewer)
    for signer in (*case.rehearsal.curators, case.rehearsal.researcher):
        forged = sign(case.requests[0].body, signer.signing)
        with pytest.raises(SignatureError):
            case.deposit.stored[0].repad(
                case.outcome.contexts[0], case.outcome.contract, forged, case.outcome.received
            )


def test_a_curator_answers_only_for_its_own_table() -> None:
    """Not for another's, nor for a contract that names other uploads, vaults or attributes."""
    case = Simulator().draw()
    contract = case.outcome.contract.body
    assert contract.stored is not None
    first, second = contract.curators
    stored = contract.stored
    wrong = [
        replace(contract, stored=None),
        replace(contract, stored=replace(stored, uploads=stored.uploads[::-1])),
        replace(contract, stored=replace(stored, vault=bytes(32))),
        replace(contract, curators=(CuratorTerms(first.identity, first.attributes[::-1]), second)),
        replace(contract, curators=(CuratorTerms(first.identity, first.attributes[:1]), second)),
    ]
    context = case.outcome.contexts[0]
    for other in wrong:
        signed = case.rehearsal.sign(other)
        request = sign(
            replace(case.requests[0].body, study=other.study_id), case.rehearsal.server.signing
        )
        refusal = "not about this stored table|not read this vault|vault differ in curators"
        with pytest.raises(MismatchError, match=refusal):
            case.deposit.stored[0].repad(context, signed, request, case.outcome.received)
    with pytest.raises(MismatchError, match="not about this stored table"):
        case.deposit.stored[1].repad(
            context, case.outcome.contract, case.requests[0], case.outcome.received
        )
    stranger = PrivateIdentity.create("stranger", CipherEntropy.from_seed(8, "stranger"))
    with pytest.raises(MismatchError, match="is not a curator"):
        case.deposit.stored[0].repad(
            replace(context, identity=stranger),
            case.outcome.contract,
            case.requests[0],
            case.outcome.received,
        )


def test_one_time_pads_cannot_be_stored() -> None:
    """A table under one-time pads, prepared for a study, does not become a stored one."""
    rehearsal = Simulator()
    vault = rehearsal.deposit().vault.body
    terms = replace(STORED_TERMS, pads="one-time")
    prepared = rehearsal.study(terms).prepare()[0]
    with pytest.raises(MismatchError, match="not prepared for this vault"):
        StoredTable(vault, prepared)
