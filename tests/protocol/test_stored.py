"""The server and stored tables: which it reads, what it draws and takes, and each once."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.chunks import read_positions
from tests.support.entropy import CountingEntropy
from tests.support.simulator import STORED_TERMS, Simulator
from veiltab.errors import MessageError, MismatchError, SignatureError, StateError
from veiltab.protocol.in_process import Deposit
from veiltab.protocol.verify import sign
from veiltab.wire.contract import Contract, CuratorTerms, Linkage, Stored
from veiltab.wire.signed import Signed
from veiltab.wire.states import State


def test_rows_are_drawn_once() -> None:
    """Asked again the server gives the same requests, and uses no more entropy."""
    rehearsal = Simulator()
    deposit = rehearsal.deposit()
    counting = CountingEntropy(rehearsal.server_entropy)
    rehearsal.server_entropy = counting
    case = rehearsal.draw(deposit)
    used, uploads = counting.used, [table.upload for table in deposit.stored]
    again = case.study.draw_from(deposit.vault, uploads, deposit.tables)
    assert list(again.values()) == case.requests
    assert counting.used == used > 0
    assert case.study.state is State.SAMPLED


def test_positions_are_different_rows_in_no_order() -> None:
    """Each study draws anew; positions are not sorted, and not the same for both curators."""
    parties = Simulator()
    deposit = parties.deposit()
    found = []
    for _ in range(2):
        case = parties.draw(deposit)
        for request in case.requests:
            body = request.body
            rows = read_positions(body.positions, 20, case.outcome.received).tolist()
            assert len(set(rows)) == 20
            assert rows != sorted(rows)
            found.append(rows)
    assert len({tuple(rows) for rows in found}) == 4


def test_a_study_on_stored_tables_takes_no_uploads() -> None:
    """Neither a new one nor the stored one itself."""
    case = Simulator().draw()
    fresh = case.rehearsal._open(case.rehearsal.stored_contract(STORED_TERMS, case.deposit)).study
    with pytest.raises(MismatchError, match="takes no uploads"):
        fresh.upload(case.deposit.stored[0].upload)
    with pytest.raises(StateError):
        case.study.upload(case.deposit.stored[0].upload)


def refuse_deposit(rehearsal: Simulator, contract: Contract, deposit: Deposit, match: str) -> None:
    """Check that the server does not draw from the deposit, and that nothing has happened."""
    study = rehearsal._open(contract).study
    uploads = [table.upload for table in deposit.stored]
    with pytest.raises(MismatchError, match=match):
        study.draw_from(deposit.vault, uploads, deposit.tables)
    assert study.state is State.OPEN
    assert not study.requests


def test_other_tables_than_the_contracts_are_refused() -> None:
    """Another vault, other uploads, in another order, one twice; or a contract without any."""
    rehearsal = Simulator()
    deposit = rehearsal.deposit()
    contract = rehearsal.stored_contract(STORED_TERMS, deposit)
    assert contract.stored is not None
    refuse_deposit(rehearsal, contract, rehearsal.deposit(), "does not read this vault")
    refuse_deposit(rehearsal, replace(contract, stored=None), deposit, "does not read this vault")
    first, second = contract.stored.uploads
    for uploads in ((first, bytes(32)), (second, first)):
        stored = Stored(contract.stored.vault, uploads)
        refuse_deposit(rehearsal, replace(contract, stored=stored), deposit, "not the uploads")
    study = rehearsal._open(contract).study
    tables = [table.upload for table in deposit.stored]
    for wrong in (tables[::-1], tables[:1], [], [*tables, tables[0]]):
        with pytest.raises(MismatchError, match="not the uploads"):
            study.draw_from(deposit.vault, wrong, deposit.tables)


@pytest.mark.parametrize("order", [(1, 0), (0, 0), (1, 1)])
def test_uploads_stand_in_the_order_of_the_curators(order: tuple[int, ...]) -> None:
    """A contract that names them otherwise is refused, even with uploads to match."""
    rehearsal = Simulator()
    deposit = rehearsal.deposit()
    contract = rehearsal.stored_contract(STORED_TERMS, deposit)
    tables = [deposit.stored[place].upload for place in order]
    stored = Stored(deposit.vault.body.vault_id, tuple(table.digest for table in tables))
    outcome = rehearsal._open(replace(contract, stored=stored))
    with pytest.raises(MismatchError, match="another order"):
        outcome.study.draw_from(deposit.vault, tables, deposit.tables)


def test_the_contract_has_the_vaults_terms() -> None:
    """Curators with their attributes, linkage and commitment; another server refuses at once."""
    rehearsal = Simulator()
    deposit = rehearsal.deposit()
    contract = rehearsal.stored_contract(STORED_TERMS, deposit)
    first, second = contract.curators
    fewer = CuratorTerms(first.identity, first.attributes[:1])
    changes: list[dict[str, Any]] = [
        {"curators": (fewer, second)},
        {"linkage": Linkage.by_rows("matched")},
        {"secret_commitment": bytes(32)},
    ]
    for change in changes:
        (name,) = change
        refuse_deposit(rehearsal, replace(contract, **change), deposit, f"differ in {name}$")


def test_the_vault_must_be_signed_by_all() -> None:
    """An unfinished vault is no vault."""
    rehearsal = Simulator()
    deposit = rehearsal.deposit()
    study = rehearsal._open(rehearsal.stored_contract(STORED_TERMS, deposit)).study
    half = Signed(deposit.vault.body, deposit.vault.signatures[:1])
    with pytest.raises(SignatureError):
        study.draw_from(half, [table.upload for table in deposit.stored], deposit.tables)


def test_new_pads_must_answer_the_servers_request() -> None:
    """Another study's answer, another request's, other columns, another number of rows."""
    parties = Simulator()
    deposit = parties.deposit()
    case, other = parties.draw(deposit), parties.draw(deposit)
    answer = case.answer(0).message
    body, first = answer.body, case.rehearsal.curators[0].signing
    columns = body.columns
    wrong: list[dict[str, Any]] = [
        {"study": bytes(32)},
        {"request_digest": case.requests[1].digest},
        {"rows": 19},
        {"columns": columns[::-1]},
        {"columns": columns[:1]},
        {"columns": (columns[0], replace(columns[1], chunks=columns[0].chunks))},
    ]
    for changes in wrong:
        with pytest.raises(MessageError):
            case.study.repad(sign(replace(body, **changes), first))
    with pytest.raises(MismatchError, match="answer another request"):
        case.study.repad(other.answer(0).message)
    with pytest.raises(SignatureError):
        case.study.repad(sign(body, case.rehearsal.curators[1].signing))
    with pytest.raises(MismatchError, match="is not a curator"):
        case.study.repad(sign(replace(body, curator=bytes(32)), first))
    assert case.study.state is State.SAMPLED
    case.study.repad(answer)


def test_new_pads_are_taken_once() -> None:
    """The same answer again changes nothing, another is refused; then all is joined."""
    case = Simulator().draw()
    first = case.answer(0).message
    case.study.repad(first)
    case.study.repad(first)
    changed = sign(replace(first.body, upload_id=bytes(16)), case.rehearsal.curators[0].signing)
    with pytest.raises(StateError, match="another repad already"):
        case.study.repad(changed)
    with pytest.raises(StateError):
        case.study.release()
    case.study.repad(case.answer(1).message)
    release = case.outcome.release()
    case.study.repad(first)
    assert case.study.release() is release
    assert not len(case.outcome.received)
    assert len(case.deposit.tables)


def test_new_pads_before_rows_are_drawn() -> None:
    """Nothing was asked yet."""
    case = Simulator().draw()
    early = case.rehearsal._open(case.outcome.contract.body).study
    with pytest.raises(StateError, match="is open, not sampled"):
        early.repad(case.answer(0).message)


def test_aborting_leaves_the_deposit_alone() -> None:
    """What was drawn is forgotten; the next study reads the same tables."""
    case = Simulator().draw()
    tables, answer = dict(case.deposit.tables._chunks), case.answer(0)
    case.study.abort()
    case.study.forget_unreleased()
    assert not len(case.outcome.received)
    with pytest.raises(StateError):
        case.study.repad(answer.message)
    assert case.deposit.tables._chunks == tables
    case.rehearsal.run_stored(STORED_TERMS, case.deposit)
