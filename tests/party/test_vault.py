"""Vaults from a curator's home: what it keeps, what it takes up again, and what it refuses."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.servers import Server, make_context, running, wait_for
from tests.support.stored import HELD, TITLE, VAULT_FILE, StoredParties, tables
from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import (
    BlockedError,
    ConnectionFailedError,
    HomeError,
    MismatchError,
    SealError,
    StateError,
    StudyFileError,
    UnknownPartyError,
)
from veiltab.files.private import write_private
from veiltab.party.context import PartyContext
from veiltab.party.draft import draft_vault
from veiltab.party.home import identity_text
from veiltab.party.session import Session
from veiltab.party.study_file import read_study_file
from veiltab.party.vaults.steps import known_vault
from veiltab.party.vaults.vault_file import example_vault, read_vault_file
from veiltab.protocol import rotating
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.verify import sign
from veiltab.wire.contract import Vault
from veiltab.wire.messages import Repad
from veiltab.wire.signed import Signed


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a server for all tests here."""
    with running(make_context(tmp_path_factory.mktemp("server") / "data")) as server:
        yield server


@pytest.fixture(scope="module")
def parties(server: Server, tmp_path_factory: pytest.TempPathFactory) -> StoredParties:
    """Return parties whose tables are stored, for all tests here."""
    parties = StoredParties.join(server, tmp_path_factory.mktemp("homes"))
    parties.store()
    return parties


def vault_file(parties: StoredParties, title: str) -> Path:
    """Write the file of another vault."""
    path = parties.folder / f"{title}.toml"
    path.write_text(VAULT_FILE.replace(TITLE, title), "utf-8")
    return path


def lose_answers(monkeypatch: pytest.MonkeyPatch, vaults: object, name: str) -> list[Any]:
    """Let the server do what it is asked, and its answer be lost; return how often."""
    real, calls = getattr(vaults, name), []

    def lost(*arguments: Any) -> None:
        calls.append(arguments)
        real(*arguments)
        raise ConnectionFailedError("gone", hint="wait")

    monkeypatch.setattr(vaults, name, lost)
    return calls


def test_a_proposal_that_was_interrupted_is_taken_up(
    parties: StoredParties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same file is the same vault, and its secret is sent to whom it is missing, once."""
    path, me = vault_file(parties, "interrupted"), Session(parties.hospital)
    vaults = parties.hospital.server.vaults
    lose_answers(monkeypatch, vaults, "propose")
    with pytest.raises(ConnectionFailedError):
        me.propose_vault(path)
    monkeypatch.undo()
    vault = me.propose_vault(path)
    again = me.propose_vault(path)
    assert vault.id == again.id
    assert [line.title for line in me.vaults()].count("interrupted") == 1
    secrets = vaults.secrets(bytes.fromhex(vault.id))
    assert [message.body.receiver for message in secrets] == [parties.taxes.identity.party_id]


def test_a_proposal_that_is_refused_or_stopped_leaves_nothing(
    parties: StoredParties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither a title that would stand for two vaults, nor a secret that nobody needs."""
    path, home = vault_file(parties, "refused"), parties.hospital.home
    me, known = Session(parties.hospital), home.vaults()
    parties.taxes.server.block(parties.hospital.identity.party_id)
    with pytest.raises(UnknownPartyError):
        me.propose_vault(path)
    assert home.vaults() == known
    parties.taxes.server.unblock(parties.hospital.identity.party_id)
    monkeypatch.setattr("veiltab.party.vaults.steps.unsigned", stop)
    with pytest.raises(KeyboardInterrupt):
        me.propose_vault(path)
    assert len(home.vaults()) == len(known) + 1
    monkeypatch.undo()
    vault = me.propose_vault(path)
    assert set(home.vaults()) == {*known, bytes.fromhex(vault.id)}


def stop(*_: object) -> None:
    """Press Ctrl-C."""
    raise KeyboardInterrupt


def test_a_push_goes_on_with_the_same_bytes(
    parties: StoredParties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the table, too; and another table is refused."""
    vault = Session(parties.hospital).propose_vault(vault_file(parties, "pushed twice"))
    Session(parties.taxes).vault("pushed twice").sign()
    table, _ = tables()
    sent = lose_answers(monkeypatch, parties.hospital.server.vaults, "upload")
    with pytest.raises(ConnectionFailedError):
        vault.push(table, "id")
    with pytest.raises(StateError, match="not the table that was pushed to this vault"):
        vault.push(table.reverse().head(HELD - 1), "id")
    monkeypatch.undo()
    assert vault.push().curators[0].upload == sent[0][1].digest
    vault.push(table, "id")
    vault.close("the test is over")


def test_a_table_is_pushed_when_all_have_signed(parties: StoredParties) -> None:
    """Not before; nobody's rows wait on the server for a vault that never opens."""
    vault = Session(parties.hospital).propose_vault(vault_file(parties, "unsigned"))
    with pytest.raises(Exception, match="the vault lacks"):
        vault.push(tables()[0], "id")


def test_a_study_about_another_table_is_not_signed(parties: StoredParties) -> None:
    """A server or a proposer that means another upload gets neither a signature nor a charge."""
    study = parties.proposed("another table")
    hospital = parties.hospital
    folder = hospital.home.vault(Session(hospital).home.find_vault(TITLE))
    kept = (folder.path / "prepared.json").read_bytes()
    other = Session(hospital).propose_vault(vault_file(parties, "other table"))
    Session(parties.taxes).vault("other table").sign()
    other.push(tables()[0], "id")
    theirs = hospital.home.vault(bytes.fromhex(other.id)).path / "prepared.json"
    spent = hospital.home.budgets()[0].ledger.epsilon_spent
    (folder.path / "prepared.json").write_bytes(theirs.read_bytes())
    with pytest.raises(HomeError, match="damaged"):  # it is of another vault
        Session(hospital).study("another table").sign()
    (folder.path / "prepared.json").unlink()
    with pytest.raises(StateError, match="nothing was pushed to this vault"):
        Session(hospital).study("another table").sign()
    write_private(folder.path / "prepared.json", kept)
    assert hospital.home.budgets()[0].ledger.epsilon_spent == spent
    study.abort("the test is over")


def test_a_vault_of_another_server_is_refused(
    parties: StoredParties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its fingerprint would be another one than that which was compared."""
    vaults = parties.hospital.server.vaults
    vault = Session(parties.hospital).vault(TITLE)
    signed = vault.terms()
    impostor = public_identity(PrivateIdentity.create("impostor", parties.hospital.entropy))

    def terms(_: bytes) -> Signed[Vault]:
        return Signed(replace(signed.body, server=impostor), signed.signatures)

    monkeypatch.setattr(vaults, "terms", terms)
    with pytest.raises(MismatchError, match="another server"):
        vault.terms()


def test_a_closed_vault_takes_no_study(parties: StoredParties) -> None:
    """And an open one takes none before all tables are there."""
    vault = Session(parties.hospital).propose_vault(vault_file(parties, "closed"))
    path = parties.study_file("on a closed vault")
    path.write_text(path.read_text("utf-8").replace(TITLE, "closed"), "utf-8")
    Session(parties.taxes).vault("closed").sign()
    with pytest.raises(StateError, match="not every table is stored"):
        Session(parties.hospital).propose(path)
    vault.push(tables()[0], "id")
    Session(parties.taxes).vault("closed").push(tables()[1], "id")
    vault.close("over")
    with pytest.raises(StateError, match="the vault is closed"):
        Session(parties.hospital).propose(path)
    with pytest.raises(StateError, match="the vault is closed"):
        Session(parties.taxes).vault("closed").push()
    for context in (parties.hospital, parties.taxes):
        folder = context.home.vault(bytes.fromhex(vault.id))
        assert not any(path.is_file() for path in folder.outgoing.rglob("*"))


def test_a_proposal_on_a_vault_is_taken_up(
    parties: StoredParties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same file again, while not everybody has signed, costs nothing more."""
    path, me = parties.study_file("proposed twice"), Session(parties.hospital)
    known = me.home.studies()
    monkeypatch.setattr("veiltab.party.ledgers.Ledgers.save", stop)
    with pytest.raises(KeyboardInterrupt):
        me.propose(path)
    assert len(me.home.studies()) == len(known) + 1
    monkeypatch.undo()
    first = me.propose(path)
    assert set(me.home.studies()) == {*known, bytes.fromhex(first.id)}
    spent = me.home.budgets()[0].ledger.epsilon_spent
    assert me.propose(path).id == first.id
    assert me.home.budgets()[0].ledger.epsilon_spent == spent
    first.abort("the test is over")


def test_a_release_from_another_answer_is_not_granted(parties: StoredParties) -> None:
    """As in a home that was restored from a copy of before the answer."""
    study = parties.released("restored", "sample_size = 20")
    contract = study.terms
    assert contract.stored is not None
    schema = contract.schema_of(parties.hospital.identity.party_id)
    answers = parties.hospital.home.vault(contract.stored.vault)
    folder = answers.answer_folder(contract.study_id, schema)
    request = folder.request()
    assert request is not None
    folder.save_request(Signed(replace(request.body, population=HELD), request.signatures))
    with pytest.raises(MismatchError, match="not made from the new pads"):
        study.grant(parties.folder / "rivera.json")
    (folder.path / "answer.json").unlink()
    with pytest.raises(StateError, match="has not answered"):
        study.grant(parties.folder / "rivera.json")


def test_one_time_pads_are_answered_and_handed_over(parties: StoredParties) -> None:
    """The new pads are as long as the sample, and stay in the home."""
    study = parties.released("one-time", 'pads = "one-time"\nsample_size = 20')
    grants = []
    for context in (parties.hospital, parties.taxes):
        path = parties.folder / f"{context.identity.name}.grant"
        mine = Session(context).study(study.id)
        mine.grant(parties.folder / "rivera.json", file=path)
        grants.append(path)
    estimate = Session(parties.researcher).study(study.id).estimate(grants=grants)
    assert estimate.counts.sum() == 20


ME, OTHER = (public_identity(PrivateIdentity.create(n, SystemEntropy())) for n in ("me", "other"))


def damage(folder: Path) -> None:
    """Let the disk change a byte in the middle of each file of a folder."""
    for file in folder.iterdir():
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)


def received(server: Server, scope: str, context: PartyContext) -> Path:
    """Return where the server keeps what a party has sent for a study or vault."""
    data = server.context.folders.path
    return data / "studies" / scope / "received" / context.identity.party_id.hex()


def test_a_table_that_the_server_has_damaged_is_pushed_again(
    server: Server, parties: StoredParties
) -> None:
    """Nobody could make the same bytes again, so they are kept for as long as the vault lives."""
    vault = Session(parties.hospital).vault(TITLE)
    damage(received(server, vault.id, parties.hospital))
    parties.proposed("on a damaged table")
    study = Session(parties.hospital).study("on a damaged table")
    study.sign()
    deadline = time.monotonic() + 20
    while vault.status().reason is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert "push it again" in str(vault.status().reason)
    vault.push()
    assert vault.status().reason is None
    wait_for(parties.hospital, bytes.fromhex(study.id), "sampled")


def test_an_answer_that_the_server_has_damaged_is_sent_again(
    server: Server, parties: StoredParties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the study would wait for it for ever."""
    study = parties.sampled("with damaged pads")
    other = Session(parties.taxes).study("with damaged pads")
    real = parties.taxes.server.vaults.repad

    def damage_and_repad(signed: Signed[Repad]) -> Any:  # noqa: ANN401 - what it was
        damage(received(server, study.id, parties.hospital))
        return real(signed)

    study.answer()
    monkeypatch.setattr(parties.taxes.server.vaults, "repad", damage_and_repad)
    other.answer()
    deadline = time.monotonic() + 20
    while study.status().reason is None and time.monotonic() < deadline:
        time.sleep(0.05)
    study.answer()
    wait_for(parties.hospital, bytes.fromhex(study.id), "released")


def test_an_answer_of_before_a_rotation_is_sent_under_the_new_key(
    parties: StoredParties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server takes nothing under an old key, and there is one answer only."""
    study, sent = parties.sampled("answered and rotated"), list[Signed[Repad]]()

    def lose(signed: Signed[Repad]) -> None:
        sent.append(signed)
        raise ConnectionFailedError("gone", hint="wait")

    monkeypatch.setattr(parties.hospital.server.vaults, "repad", lose)
    newer = rotating.rotate(parties.hospital.identity, SystemEntropy(), parties.hospital.now)
    for identity in (parties.hospital.identity, newer):
        context = replace(parties.hospital, identity=identity)
        with pytest.raises(ConnectionFailedError):
            Session(context).study(study.id).answer()
    assert sent[0].digest == sent[1].digest
    assert [signed.signatures[0].key for signed in sent] == [
        parties.hospital.identity.signing.public,
        newer.signing.public,
    ]


def test_no_answer_to_a_party_that_was_blocked(parties: StoredParties) -> None:
    """An answer gives out pads, like a push."""
    study = parties.sampled("with somebody blocked")
    taxes = public_identity(parties.taxes.identity)
    parties.hospital.home.known.block(taxes)
    try:
        with pytest.raises(BlockedError):
            study.answer()
    finally:
        parties.hospital.home.known.unblock(taxes.party_id)
    assert not study.status().curators[0].uploaded


def test_a_study_on_a_vault_is_refunded_only_if_no_rows_were_drawn(
    parties: StoredParties,
) -> None:
    """Positions tell curators whom all hold, and an answer has new pads: both stay charged."""
    early, late, answered = (
        parties.proposed("ended early"),
        parties.sampled("ended late"),
        parties.sampled("answered and ended"),
    )
    answered.answer()
    for study in (early, late, answered):
        study.abort("no need")
    made = early.refund("no need").ledger.refund_of(bytes.fromhex(early.id))
    assert made is not None
    assert (made.basis, made.done) == ("nothing-sent", True)
    for study, why in ((late, "rows of stored tables were drawn"), (answered, "answered it")):
        with pytest.raises(StateError, match=why):
            study.refund("no need")
        assert parties.hospital.home.ledgers.refund_of(bytes.fromhex(study.id)) is None


def test_another_secret_before_the_right_one_stops_nobody(
    parties: StoredParties, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any curator of a vault can seal something to another one."""
    vault = Session(parties.hospital).propose_vault(vault_file(parties, "two secrets"))
    other = Session(parties.taxes).vault("two secrets")
    other.sign()
    vaults = parties.taxes.server.vaults
    (right,) = vaults.secrets(bytes.fromhex(vault.id))
    sealed = bytes(len(right.body.sealed))
    junk = sign(replace(right.body, sealed=sealed), parties.hospital.identity.signing)
    monkeypatch.setattr(vaults, "secrets", lambda _: [junk])
    with pytest.raises(SealError):
        other.push(tables()[1], "id")
    monkeypatch.setattr(vaults, "secrets", lambda _: [junk, right])
    other.push(tables()[1], "id")
    vault.close("over")


def test_vault_files_are_read_strictly(tmp_path: Path) -> None:
    """The example is complete; and stored tables are matched, whatever somebody writes."""
    path = tmp_path / "vault.toml"
    (tmp_path / "tax-office.json").write_text(identity_text(OTHER), "utf-8")
    path.write_text(example_vault(), "utf-8")
    draft = read_vault_file(path, ME)
    assert [terms.identity for terms in draft.curators] == [ME, OTHER]
    assert draft.linkage.mode == "matched"
    aligned = example_vault().replace('by = "ids"', 'by = "ids"\nmode = "aligned"')
    for text, problem in (
        (aligned, "stored tables are matched"),
        (example_vault().replace('identity = "me"', 'identity = "tax-office.json"'), "is named"),
        (f"epsilon = 1.0\n{example_vault()}", "there is no such key"),
    ):
        path.write_text(text, "utf-8")
        with pytest.raises(StudyFileError, match=problem):
            read_vault_file(path, ME)
    path.write_text(example_vault(), "utf-8")
    stranger = public_identity(PrivateIdentity.create("stranger", SystemEntropy()))
    path.write_text(example_vault().replace('"me"', '"other.json"'), "utf-8")
    (tmp_path / "other.json").write_text(identity_text(ME), "utf-8")
    with pytest.raises(StudyFileError, match="you are not among the curators"):
        read_vault_file(path, stranger)


def test_a_study_file_takes_from_the_vault_what_the_vault_states(parties: StoredParties) -> None:
    """Its curators and linkage; decoys are refused, and so is what the home does not know."""
    me, find = parties.hospital.home.public, known_vault(parties.hospital.home)
    draft = read_study_file(parties.study_file("read"), me, find)
    assert draft.vault is not None
    assert (draft.curators, draft.linkage) == (draft.vault.curators, draft.vault.linkage)
    assert read_study_file(parties.study_file("read", "delta = 1e-6"), me, find).delta == 1e-6
    for more, problem in (
        ('mechanism = "decoys"', "stored tables have no decoys"),
        ("expected_population = 9", 'goes with mechanism = "decoys" only'),
        ('linkage = {by = "ids"}', "the vault states this"),
    ):
        with pytest.raises(StudyFileError, match=problem):
            read_study_file(parties.study_file("read", more), me, find)
    path = parties.study_file("read")
    with pytest.raises(StudyFileError, match="no vault is known here"):
        read_study_file(path, me)
    path.write_text(path.read_text("utf-8").replace(TITLE, "Nobody's"), "utf-8")
    with pytest.raises(StudyFileError, match="no vault matches"):
        read_study_file(path, me, find)


def test_a_drafted_vault_file_is_complete_when_the_partner_is(tmp_path: Path) -> None:
    """As a drafted study file is."""
    draft = draft_vault(tables()[0], ME, title="Drafted")
    path = tmp_path / "vault.toml"
    path.write_text(draft.text, "utf-8")
    with pytest.raises(StudyFileError, match=r"says FILL IN on line \d+ \(a comment\)"):
        read_vault_file(path, ME)
    alone = draft.text.partition("# FILL IN: the file")[0]
    path.write_text(alone, "utf-8")
    assert read_vault_file(path, ME).curators[0].attributes[0].name == "smoker"
