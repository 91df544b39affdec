"""Stored tables on the server: what each step does, and who sees what of it."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.servers import make_context
from tests.support.simulator import STORED_TERMS, Simulator
from tests.support.vaults import VaultOnServer, VaultStudy, request_of, stored_vault
from veiltab.errors import NotFoundError, NotGrantedError, StateError
from veiltab.protocol.curator.agreement import public_identity, share_secret
from veiltab.protocol.curator.grant import grant
from veiltab.protocol.curator.upload import CuratorContext
from veiltab.protocol.in_process import LATER
from veiltab.protocol.researcher import count_records, open_access
from veiltab.protocol.stores import MemoryChunks
from veiltab.server import grant_steps, steps, views
from veiltab.server.context import ServiceContext
from veiltab.server.stored_study import DRAWN
from veiltab.server.vaults import steps as vault_steps
from veiltab.server.vaults import views as vault_views
from veiltab.server.vaults.stored_vault import StoredVault
from veiltab.server.witnesses import vault_audit
from veiltab.wire.messages import Repad, RepadRequest, Upload


@pytest.fixture
def context(tmp_path: Path) -> ServiceContext:
    """Return a server without anything in it."""
    return make_context(tmp_path / "data", identity=Simulator().server)


def counts(study: VaultStudy) -> NDArray[np.int64]:
    """Let the curators grant everything to the researcher; return what it counts."""
    parties, contract = study.vault.parties, study.contract
    to = public_identity(parties.researcher)
    grants = []
    for place, identity in enumerate(parties.curators):
        desk = CuratorContext(identity, parties.entropy, MemoryChunks(), MemoryChunks())
        given = grant(desk, contract.body, study.answers[place], to, expires=LATER)
        grant_steps.grant(study.context, study.vault.sender(place, given.dumps()), study.study)
        grants.append(given)
    access = open_access(parties.researcher, contract, study.release(), grants, now=0)
    return count_records(access, study.context.folders.released(study.study)).counts


def test_a_stored_table_serves_three_studies(context: ServiceContext) -> None:
    """Nothing is uploaded again; without noise, each study counts everybody in its sample."""
    vault = VaultOnServer(context).store()
    before = views_of(vault)
    exact = replace(STORED_TERMS, epsilon=50.0, sample_size=40)
    expected = true_counts(vault)
    for _ in range(3):
        study = vault.study(exact)
        assert study.state == "open"
        assert study.work() == "sampled"
        assert study.answer_all().state == "joined"
        assert study.work() == "released"
        assert (counts(study) == expected).all()
    assert views_of(vault) == before
    assert study.events() == [
        *("proposed", "signed", "signed", "opened", "sampled", "sampled", "repadded", "repadded"),
        *("complete", "released", "granted", "granted"),
    ]


def views_of(vault: VaultOnServer) -> object:
    """Return what the first curator sees of a vault."""
    sent = views.chunks(vault.context, vault.sender(0), vault.vault, StoredVault)
    terms = views.contract(vault.context, vault.sender(0), vault.vault, StoredVault)
    return vault.status, sent, terms


def true_counts(vault: VaultOnServer) -> NDArray[np.int64]:
    """Return how many respondents are in each joint cell."""
    first, second = vault.parties.holdings
    columns = [*first.codes, *(codes[::-1] for codes in second.codes)]  # the order is reversed
    schema = vault.contract().schema
    return np.bincount(schema.cells(columns), minlength=schema.domain_size)


def test_the_life_of_a_vault(context: ServiceContext) -> None:
    """Proposed, open, stored, closed: by signatures, tables, and one curator's word."""
    vault = VaultOnServer(context, signed=False)
    states = [vault.state]
    vault.sign(1)
    states.append(vault.state)
    digests = [table.upload.digest.hex() for table in vault.deposit.stored]
    vault.send_table(1)
    assert [curator.upload for curator in vault.status.curators] == [None, digests[1]]
    states.append(vault.state)
    vault.send_table(0)
    states.append(vault.state)
    assert [curator.upload for curator in vault.status.curators] == digests
    vault.close(1, "the consent has ended")
    states.append(vault.state)
    assert states == ["proposed", "open", "open", "stored", "closed"]
    assert vault.status.reason == "curator 2: the consent has ended"
    log = vault_audit(context, vault.sender(0), vault.vault).entries
    assert [(entry["event"], entry["state"]) for entry in log] == [
        ("proposed", "proposed"),
        ("signed", "proposed"),
        ("signed", "open"),
        ("opened", "open"),
        ("uploaded", "open"),
        ("uploaded", "stored"),
        ("complete", "stored"),
        ("closed", "closed"),
    ]
    assert {entry["study"] for entry in log} == {vault.vault.hex()}


def test_the_secret_is_passed_on(context: ServiceContext) -> None:
    """To its receiver, as often as it likes, before the tables are stored."""
    vault = VaultOnServer(context)
    first, second = vault.parties.curators
    terms, secret = vault.deposit.vault.body, vault.deposit.secret
    message = share_secret(terms, first, secret, second.party_id)
    taken = [
        vault_steps.send_secret(context, vault.sender(0, message.dumps()), vault.vault)
        for _ in range(2)
    ]
    assert taken == [True, False]
    for place in range(2):
        seen = views.secrets(context, vault.sender(place), vault.vault, StoredVault)
        assert seen == [message.to_json()]


def test_vaults_and_studies_are_listed_apart(context: ServiceContext) -> None:
    """An id of the one is unknown among the others."""
    vault = VaultOnServer(context).store()
    study, sender = vault.study(), vault.sender(0)
    listed = vault_views.vaults(context, sender, None, 9, inbox=False).vaults
    assert [(line.vault, line.state, line.role) for line in listed] == [
        (vault.vault.hex(), "stored", "curator")
    ]
    studies = views.studies(context, sender, None, 9, inbox=False).studies
    assert [line.study for line in studies] == [study.study.hex()]
    with pytest.raises(NotFoundError, match="no such study for you"):
        views.status(context, sender, vault.vault)
    with pytest.raises(NotFoundError, match="no such vault for you"):
        vault_views.status(context, sender, study.study)


def test_nobody_else_sees_a_vault(context: ServiceContext) -> None:
    """Neither a stranger nor a researcher of a study on it; the same words as for none at all."""
    vault = VaultOnServer(context).store()
    study = vault.study()
    study.work()
    study.answer_all()
    study.work()
    counts(study)  # the researcher is named in the study now
    outsider = request_of(vault.parties.researcher)
    assert views.status(context, outsider, study.study).role == "researcher"
    assert vault_views.vaults(context, outsider, None, 9, inbox=False).vaults == []
    shared = (partial(view, kind=StoredVault) for view in (views.contract, views.chunks))
    for view in (vault_views.status, *shared, vault_audit):
        with pytest.raises(NotFoundError) as found:
            view(context, outsider, vault.vault)
        with pytest.raises(NotFoundError) as unknown:
            view(context, outsider, bytes(32))
        assert found.value.message == unknown.value.message
    with pytest.raises(NotFoundError):
        vault_steps.close(context, outsider, vault.vault, "mine now")
    assert vault.state == "stored"


def test_a_request_is_for_one_curator(context: ServiceContext) -> None:
    """Each sees its own positions and nobody else's, and only while pads are awaited."""
    study = VaultOnServer(context).store().study()
    with pytest.raises(StateError, match="the study is open, not sampled or joined"):
        study.request(0)
    study.work()
    first, second = (study.request(place).body for place in range(2))
    assert (first.curator, second.curator) == tuple(
        identity.party_id for identity in study.vault.parties.curators
    )
    assert not set(first.positions) & set(second.positions)
    with pytest.raises(NotGrantedError, match="not positions of your own rows"):
        study.positions(0, second.positions)
    with pytest.raises(NotFoundError):
        vault_views.repad_request(context, request_of(study.vault.parties.researcher), study.study)
    study.answer_all()
    assert study.request(0).body == first
    study.work()
    with pytest.raises(StateError, match="the study is released"):
        study.request(0)


def test_the_end_of_a_study_erases_what_was_drawn(context: ServiceContext) -> None:
    """Rows, positions, pads and the key: in the records and on the disk; the vault stays."""
    vault = VaultOnServer(context).store()
    folder = context.folders.path / "studies"
    stored = sorted((folder / vault.vault.hex()).rglob("*.chunks"))
    for abort in (False, True):
        study = vault.study()
        study.work()
        study.answer(0)
        kinds = (DRAWN, RepadRequest.kind, Repad.kind)
        assert all(any(study.messages(kind)) for kind in kinds)
        if abort:
            steps.abort(context, vault.sender(1), study.study, "changed our minds")
            assert not (folder / study.study.hex()).exists()
        else:
            study.answer(1)
            study.work()
            assert [each.name for each in (folder / study.study.hex()).iterdir()] == ["released"]
        assert not any(content for kind in kinds for content in study.messages(kind))
        assert study.record.noise_key is None
    assert sorted((folder / vault.vault.hex()).rglob("*.chunks")) == stored


def test_closing_deletes_the_tables_for_good(context: ServiceContext) -> None:
    """On the disk and in the records; and no later study reads them."""
    vault = VaultOnServer(context).store()
    contract = vault.contract()
    vault.close()
    vault.close()  # the same again changes nothing
    assert not (context.folders.path / "studies" / vault.vault.hex()).exists()
    with context.database.reading() as records:
        assert [m.content for m in records.messages(vault.vault, Upload.kind)] == [b"", b""]
    with pytest.raises(StateError, match="the vault is closed, not stored"):
        vault.study(contract=contract)
    assert stored_vault(context, vault.vault).state == "closed"


def test_studies_on_a_closed_vault(context: ServiceContext) -> None:
    """Those whose rows are drawn go on; those that wait for rows end, with the reason."""
    vault = VaultOnServer(context).store()
    drawn, waiting, proposed = vault.study(), vault.study(), vault.study(opened=False)
    assert drawn.work() == "sampled"
    vault.close()
    reason = "the vault that it reads was closed"
    for study in (waiting, proposed):
        assert (study.state, study.status.reason) == ("aborted", reason)
        assert study.events()[-1] == "aborted"
    assert drawn.answer_all().work() == "released"
