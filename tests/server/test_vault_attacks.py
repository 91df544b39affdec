"""Parties who want to stop or mislead the others of a vault, and what the server refuses."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.servers import QUICK, make_context
from tests.support.simulator import STORED_TERMS, Simulator, holding
from tests.support.vaults import VaultOnServer, request_of
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import (
    DigestError,
    MismatchError,
    NotFoundError,
    QuotaError,
    SignatureError,
    StateError,
    UnknownPartyError,
    VeiltabError,
)
from veiltab.protocol.curator.agreement import public_identity, share_secret
from veiltab.protocol.verify import sign
from veiltab.server import block_steps, steps, vault_steps, vault_views
from veiltab.server.context import ServiceContext
from veiltab.server.worker import Lane
from veiltab.wire.bundles import bundle
from veiltab.wire.contract import Contract, Stored
from veiltab.wire.signed import Signed


@pytest.fixture
def context(tmp_path: Path) -> ServiceContext:
    """Return a server without anything in it."""
    return make_context(tmp_path / "data", identity=Simulator().server)


def test_a_curator_who_never_answers_stops_its_own_study_alone(context: ServiceContext) -> None:
    """Its study waits; other studies on the vault go on; the other curator can end the first."""
    vault = VaultOnServer(context).store()
    stuck, other = vault.study(), vault.study()
    stuck.work()
    stuck.answer(0)
    assert stuck.work() == "done"
    assert stuck.state == "sampled"
    assert [curator.uploaded for curator in stuck.status.curators] == [True, False]
    other.work()
    assert other.answer_all().work() == "released"
    steps.abort(context, vault.sender(0), stuck.study, "we have waited for a year")
    assert (stuck.state, vault.state) == ("aborted", "stored")
    with pytest.raises(StateError, match="the study is aborted"):
        stuck.put(1, bundle([(hashlib.sha256(b"late").digest(), b"late")]))


def test_new_pads_with_other_chunks(context: ServiceContext) -> None:
    """Missing, damaged or ill-formed ones are refused, and nothing is taken."""
    study = VaultOnServer(context).store().study()
    study.work()
    body = study.prepare(0).message.body
    first, *others = body.columns
    missing = replace(first, chunks=(bytes(32),))
    with pytest.raises(DigestError, match="there is no chunk"):
        study.answer(0, columns=(missing, *others))
    odd = b"\xff" * 999
    digest = hashlib.sha256(odd).digest()
    study.put(0, bundle([(digest, odd)]))
    with pytest.raises(VeiltabError, match="bytes"):
        study.answer(0, columns=(replace(first, chunks=(digest,)), *others))
    lying = hashlib.sha256(b"what was announced").digest()
    study.put(0, bundle([(lying, b"something else")]))
    with pytest.raises(DigestError):
        study.answer(0, columns=(replace(first, chunks=(lying,)), *others))
    assert not any(curator.uploaded for curator in study.status.curators)
    assert study.answer_all().work() == "released"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"request_digest": bytes(32)}, "answer another request"),
        ({"rows": 19}, "answer another request"),
        ({"curator": bytes(32)}, "of another party"),
        ({"study": bytes(32)}, "of another party or of another study"),
    ],
)
def test_new_pads_for_something_else(
    context: ServiceContext, changes: dict[str, object], problem: str
) -> None:
    """Another request, number of rows, curator or study."""
    study = VaultOnServer(context).store().study()
    study.work()
    with pytest.raises(MismatchError, match=problem):
        study.answer(0, **changes)
    assert study.state == "sampled"


def test_new_pads_cannot_be_replaced(context: ServiceContext) -> None:
    """The same again changes nothing; others, and further chunks, are refused."""
    study = VaultOnServer(context).store().study()
    study.work()
    study.answer(0)
    events = study.events()
    study.answer(0)
    assert study.events() == events
    with pytest.raises(StateError, match="another repad already"):
        study.answer(0, upload_id=bytes(16))
    with pytest.raises(MismatchError, match="has no such chunk"):
        study.put(0, bundle([(hashlib.sha256(b"more").digest(), b"more")]))
    other = study.vault.sender(1, study.prepare(0).message.dumps())
    with pytest.raises(MismatchError, match="of another party"):
        vault_steps.repad(context, other, study.study)


def test_pads_and_chunks_come_at_their_time(context: ServiceContext) -> None:
    """Neither before the rows are drawn nor for a study that reads no vault."""
    vault = VaultOnServer(context).store()
    study, early = vault.study(), vault.study()
    study.work()
    body = study.prepare(0).message.body
    signer = vault.parties.curators[0].signing
    moved = sign(replace(body, study=early.study), signer)
    with pytest.raises(StateError, match="the study is open, not sampled"):
        vault_steps.repad(context, vault.sender(0, moved.dumps()), early.study)
    with pytest.raises(StateError, match="the study is open, not sampled"):
        early.put(0, bundle([(hashlib.sha256(b"x").digest(), b"x")]))
    fresh = vault.parties.on_server(context, replace(STORED_TERMS))
    elsewhere = sign(replace(body, study=fresh.study), signer)
    with pytest.raises(StateError, match="the study is uploaded, not sampled"):
        vault_steps.repad(context, vault.sender(0, elsewhere.dumps()), fresh.study)


def test_a_study_on_a_vault_takes_no_upload(context: ServiceContext) -> None:
    """Somebody could otherwise slip a table into a study of others' stored ones."""
    vault = VaultOnServer(context).store()
    study = vault.study()
    upload = replace(vault.deposit.stored[0].upload.body, scope=study.study)
    signed = sign(upload, vault.parties.curators[0].signing)
    with pytest.raises(MismatchError, match="takes no uploads"):
        steps.upload(context, vault.sender(0, signed.dumps()), study.study)


def test_a_stored_table_cannot_be_replaced(context: ServiceContext) -> None:
    """Not by another upload, and not by other chunks."""
    vault = VaultOnServer(context)
    vault.send_table(0)
    body = vault.deposit.stored[0].upload.body
    other = sign(replace(body, upload_id=bytes(16)), vault.parties.curators[0].signing)
    for stored in (False, True):
        if stored:
            vault.send_table(1)
        with pytest.raises(StateError, match="has stored another table already"):
            vault_steps.upload(context, vault.sender(0, other.dumps()), vault.vault)
        chunk = bundle([(hashlib.sha256(b"more").digest(), b"more")])
        with pytest.raises(MismatchError, match="has no such chunk"):
            vault_steps.put_chunks(context, vault.sender(0, chunk), vault.vault)
    vault.send_table(0)  # the same again changes nothing
    assert vault.state == "stored"


def _other_uploads(vault: VaultOnServer, contract: Contract) -> Contract:
    first, _ = (table.upload.digest for table in vault.deposit.stored)
    return replace(contract, stored=Stored(vault.vault, (first, bytes(32))))


def _other_order(vault: VaultOnServer, contract: Contract) -> Contract:
    digests = tuple(table.upload.digest for table in vault.deposit.stored)
    return replace(contract, stored=Stored(vault.vault, digests[::-1]))


def _other_secret(_: VaultOnServer, contract: Contract) -> Contract:
    return replace(contract, secret_commitment=bytes(32))


def _fewer_curators(vault: VaultOnServer, contract: Contract) -> Contract:
    (first, *_), stored = contract.curators, contract.stored
    assert stored is not None
    return replace(contract, curators=(first,), stored=Stored(vault.vault, stored.uploads[:1]))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (_other_uploads, "other uploads"),
        (_other_order, "other uploads"),
        (_other_secret, "differ in secret_commitment"),
        (_fewer_curators, "differ in curators"),
    ],
)
def test_a_contract_that_is_not_of_the_vault(
    context: ServiceContext,
    change: Callable[[VaultOnServer, Contract], Contract],
    problem: str,
) -> None:
    """Its uploads, parties, secret: all must be those of the vault."""
    vault = VaultOnServer(context).store()
    body = change(vault, vault.contract())
    signed = sign(body, vault.parties.curators[0].signing)
    with pytest.raises(MismatchError, match=problem):
        steps.propose(context, vault.sender(0, signed.dumps()))


def test_a_study_on_somebody_elses_vault(context: ServiceContext) -> None:
    """Whoever is no curator of a vault cannot name it, nor find out whether it exists."""
    vault = VaultOnServer(context).store()
    intruder = PrivateIdentity.create("intruder", CipherEntropy.from_seed(5, "intruder"))
    contract = vault.contract()
    terms = replace(contract.curators[0], identity=public_identity(intruder))
    mine = replace(contract, curators=(terms, *contract.curators[1:]))
    unknown = replace(mine, stored=Stored(bytes(32), (bytes(32),) * 2))
    problems = set()
    for body in (mine, unknown):
        signed = sign(body, intruder.signing)
        with pytest.raises(NotFoundError) as found:
            steps.propose(context, request_of(intruder, signed.dumps()))
        problems.add(found.value.message)
    assert problems == {"there is no such vault for you"}


def test_a_study_on_a_vault_that_is_not_stored(context: ServiceContext) -> None:
    """A table is missing: nothing could be drawn."""
    vault = VaultOnServer(context)
    vault.send_table(0)
    with pytest.raises(StateError, match="the vault is open, not stored"):
        vault.study()


def test_proposals_of_vaults_that_are_refused(context: ServiceContext) -> None:
    """Of another server, without the sender, without its signature."""
    vault = VaultOnServer(context)
    first, second = vault.parties.curators
    body = vault.deposit.vault.body
    outsider = vault.parties.researcher
    elsewhere = replace(body, server=replace(body.server, name="another server"))
    with pytest.raises(MismatchError, match="another server"):
        vault_steps.propose(context, request_of(first, sign(elsewhere, first.signing).dumps()))
    with pytest.raises(MismatchError, match="is not a curator"):
        vault_steps.propose(context, request_of(outsider, sign(body, first.signing).dumps()))
    with pytest.raises(SignatureError, match="the proposer has not signed"):
        vault_steps.propose(context, request_of(first, sign(body, second.signing).dumps()))
    forged = Signed(body, sign(replace(body, title="x"), first.signing).signatures)
    with pytest.raises(SignatureError):
        vault_steps.propose(context, request_of(first, forged.dumps()))


def test_messages_of_a_vault_at_the_wrong_time(context: ServiceContext) -> None:
    """No table before all have signed; no secret after the tables; no signature on other terms."""
    vault = VaultOnServer(context, signed=False)
    with pytest.raises(StateError, match="the vault is proposed, not open"):
        vault.send_table(0)
    other = replace(vault.deposit.vault.body, title="another vault")
    signed = sign(other, vault.parties.curators[1].signing)
    with pytest.raises(MismatchError, match="another vault"):
        vault_steps.sign(context, vault.sender(1, signed.dumps()), vault.vault)
    vault.sign(1)
    vault.store()
    first, second = vault.parties.curators
    secret = share_secret(vault.deposit.vault.body, first, vault.deposit.secret, second.party_id)
    with pytest.raises(StateError, match="the vault is stored"):
        vault_steps.send_secret(context, vault.sender(0, secret.dumps()), vault.vault)
    vault.close()
    with pytest.raises(StateError, match="the vault is closed"):
        vault.send_table(0)


def test_nobody_in_common(tmp_path: Path) -> None:
    """The study ends with the reason; the vault stays, and says nothing about whom it holds."""
    tables = [holding({"smoker": 2}, range(40), 1), holding({"age": 3}, range(100, 140), 2)]
    parties = Simulator(holdings=tables)
    context = make_context(tmp_path / "data", identity=parties.server)
    vault = VaultOnServer(context, parties).store()
    study = vault.study()
    assert study.work() == "aborted"
    assert study.status.reason == "the curators have no respondent in common"
    assert study.record.noise_key is None
    assert (vault.state, vault.status.reason) == ("stored", None)


def release_all(context: ServiceContext) -> None:
    """Let the worker do all that waits."""
    lane = Lane(context, large=False)
    while lane.release_next():
        pass


def test_many_studies_draw_in_turn(context: ServiceContext) -> None:
    """All that wait are drawn by one pass of the worker, each once, each with rows of its own."""
    vault = VaultOnServer(context).store()
    studies = [vault.study() for _ in range(5)]
    release_all(context)
    requests = [study.request(0) for study in studies]
    positions = [next(iter(study.positions(0)._chunks.values())) for study in studies]
    assert len(set(positions)) == len(studies)
    release_all(context)
    assert [study.request(0) for study in studies] == requests
    for study in studies:
        study.answer_all()
    release_all(context)
    assert {study.state for study in studies} == {"released"}
    assert len({study.release().digest for study in studies}) == len(studies)


def test_stored_tables_count_for_as_long_as_they_are_kept(tmp_path: Path) -> None:
    """A party's space is shared by all its vaults and studies; closing a vault gives it back."""
    parties = Simulator()
    settings = replace(QUICK, party_disk_bytes=100_000)  # one table, which counts as 64 KiB
    context = make_context(tmp_path / "data", identity=parties.server, settings=settings)
    kept = VaultOnServer(context, parties).store()
    refused = VaultOnServer(context, parties)
    with pytest.raises(QuotaError, match="bytes on the server"):
        refused.store()
    kept.close()
    assert refused.store().state == "stored"


def test_vaults_count_as_proposals(tmp_path: Path) -> None:
    """Nobody's list is filled by vaults instead of studies."""
    parties = Simulator()
    settings = replace(QUICK, open_proposals=3)
    context = make_context(tmp_path / "data", identity=parties.server, settings=settings)
    for _ in range(3):
        VaultOnServer(context, parties, signed=False)
    with pytest.raises(QuotaError, match="wait for signatures"):
        VaultOnServer(context, parties, signed=False)


def test_a_vault_waits_in_the_inbox_until_it_is_looked_at(context: ServiceContext) -> None:
    """Whoever is named without being asked has it in no list; its proposer has."""
    vault = VaultOnServer(context, signed=False)

    def listed(place: int, *, inbox: bool) -> int:
        sender = vault.sender(place)
        return len(vault_views.vaults(context, sender, None, 9, inbox=inbox).vaults)

    assert [listed(place, inbox=False) for place in range(2)] == [1, 0]
    assert [listed(place, inbox=True) for place in range(2)] == [0, 1]
    vault_views.status(context, vault.sender(1), vault.vault)
    assert [listed(1, inbox=inbox) for inbox in (False, True)] == [1, 0]


def test_a_blocked_party_can_propose_no_vault(context: ServiceContext) -> None:
    """The refusal is that of a party which is not registered here."""
    parties = Simulator()
    parties.register(context)
    first, second = parties.curators
    block_steps.block(context, request_of(second), first.party_id)
    with pytest.raises(UnknownPartyError, match="'curator 2' cannot be reached here"):
        VaultOnServer(context, parties)
