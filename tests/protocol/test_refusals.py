"""What must never happen, tried: foreign pads granted, two perturbations, other terms."""

from dataclasses import replace

import numpy as np
import pytest

from tests.support.simulator import Simulator
from veiltab.crypto.entropy import CipherEntropy
from veiltab.data.ids import row_messages
from veiltab.errors import MalformedError, MismatchError, NotGrantedError
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.curator.grant import grant
from veiltab.protocol.curator.stored import StoredTable
from veiltab.protocol.curator.upload import Prepared, StreamPads
from veiltab.protocol.in_process import LATER, Terms
from veiltab.protocol.server.accept import check_upload
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.stores import MemoryChunks
from veiltab.protocol.verify import cosign, sign
from veiltab.wire.contract import Linkage
from veiltab.wire.messages import Release
from veiltab.wire.signed import Signed
from veiltab.wire.states import State

TERMS = Terms(epsilon=2.0, sample_size=20)
STORED = replace(TERMS, linkage="matched")


def test_a_stored_tables_own_pads_are_never_granted() -> None:
    """They would open every row, in every study; only the study's new pads may be granted."""
    rehearsal = Simulator()
    deposit = rehearsal.deposit()
    outcome = rehearsal.run_stored(STORED, deposit)
    desk, to = outcome.contexts[0], public_identity(rehearsal.researcher)
    table = deposit.stored[0]
    kept = Prepared(table.upload, outcome.prepared[0].pads)
    with pytest.raises(MismatchError, match="belong to another study"):
        grant(desk, outcome.contract.body, kept, to, expires=LATER)


def test_pads_of_another_study_or_curator_are_not_granted() -> None:
    """A grant seals the pads of this study, of this curator, and of the contract's kind."""
    rehearsal = Simulator()
    first, second = rehearsal.run(TERMS), rehearsal.run(TERMS)
    once = rehearsal.run(replace(TERMS, pads="one-time"))
    contract, to = first.contract.body, public_identity(rehearsal.researcher)
    mixed = replace(first.prepared[0], pads=once.prepared[0].pads)
    for wrong in (second.prepared[0], first.prepared[1], mixed):
        with pytest.raises(MismatchError, match="belong to another"):
            grant(first.contexts[0], contract, wrong, to, expires=LATER)


def test_a_curator_or_the_server_cannot_be_the_researcher() -> None:
    """The curator knows the order, and the server the noise."""
    rehearsal = Simulator()
    outcome = rehearsal.run(TERMS)
    for party in (rehearsal.server, *rehearsal.curators):
        with pytest.raises(NotGrantedError, match="cannot be its researcher"):
            grant(
                outcome.contexts[0],
                outcome.contract.body,
                outcome.prepared[0],
                public_identity(party),
                expires=LATER,
            )


class Failing(MemoryChunks):
    """A store that fails after some chunks, as a full disk does."""

    def put(self, chunk: bytes) -> bytes:
        """Keep two chunks and no more."""
        if len(self) == 2:
            raise OSError("no space left")
        return super().put(chunk)


def test_a_release_that_fails_half_way_comes_out_the_same() -> None:
    """Nothing of the first try is served; taken up with the same randomness, it is the same."""
    rehearsal = Simulator()
    staged = rehearsal.study(TERMS)
    study, uploads = staged.outcome.study, staged.prepare()
    for prepared in uploads:
        study.upload(prepared.message)

    def release(store: MemoryChunks) -> tuple[Signed[Release], ServerStudy]:
        bench = replace(study._context, entropy=CipherEntropy(bytes(32)), released=store)
        found = ServerStudy.resume(bench, study.contract, study.state, study.uploads.values())
        return found.release(), found

    received = dict(staged.outcome.received._chunks)
    failing = Failing()
    with pytest.raises(OSError, match="no space left"):
        release(failing)
    assert study.state is State.UPLOADED
    assert staged.outcome.received._chunks == received
    first, second = failing._chunks, MemoryChunks()
    signed, found = release(second)
    assert len(first) == 2
    assert first.items() <= second._chunks.items()
    assert staged.outcome.received._chunks == received
    found.forget_unreleased()
    assert len(staged.outcome.received) == 0
    again = ServerStudy.resume(
        replace(study._context, released=second), study.contract, State.RELEASED, release=signed
    )
    assert again.release() is signed
    assert found.state is State.RELEASED


def test_a_vault_takes_whole_tables_only() -> None:
    """An upload in the form of a sample has no tokens to match."""
    rehearsal = Simulator()
    deposit = rehearsal.deposit()
    upload = deposit.stored[0].upload.body
    sample = replace(upload, tokens=None, population=upload.rows)
    with pytest.raises(MismatchError, match="of the other form"):
        check_upload(
            deposit.vault.body, sign(sample, rehearsal.curators[0].signing), deposit.tables
        )


def test_a_curator_answers_only_on_the_vaults_terms() -> None:
    """Even if all have signed: another server would learn what the vault's was to keep."""
    rehearsal = Simulator()
    deposit = rehearsal.deposit()
    outcome = rehearsal.run_stored(STORED, deposit)
    contract = outcome.contract.body
    pads = StreamPads(bytes(16), (), ())  # the refusal comes before any is used
    table = StoredTable(deposit.vault.body, Prepared(deposit.stored[0].upload, pads))
    for changes in (
        {"server": public_identity(rehearsal.researcher), "researchers": None},
        {"linkage": Linkage.by_rows("matched")},
        {"secret_commitment": bytes(32)},
    ):
        other = Signed(replace(contract, **changes), ())
        for identity in rehearsal.curators:
            other = cosign(other, identity.signing)
        request = outcome.study.requests[rehearsal.curators[0].party_id]
        key = rehearsal.researcher if "server" in changes else rehearsal.server
        asked = sign(replace(request.body, study=other.body.study_id), key.signing)
        with pytest.raises(MismatchError, match="differ in"):
            table.repad(outcome.contexts[0], other, asked, outcome.received)


def test_a_chunk_of_tokens_comes_once() -> None:
    """Named a thousand times it would fill the server's memory; so would its respondents be."""
    rehearsal = Simulator()
    upload = rehearsal.deposit().stored[0].upload.body
    rows = 2 * 65_536
    columns = tuple(replace(c, chunks=c.chunks * 2) for c in upload.columns)
    assert upload.tokens is not None
    with pytest.raises(MalformedError, match="a chunk comes twice"):
        replace(upload, rows=rows, columns=columns, tokens=upload.tokens * 2)


def test_ids_are_joined_in_slices() -> None:
    """More rows than one slice: every message is still its own row's number."""
    count = (1 << 20) + 3
    messages = row_messages(count)
    assert len(messages) == count
    for row in (0, 9, 10, (1 << 20) - 1, 1 << 20, count - 1):
        start, stop = messages.offsets[row : row + 2]
        assert messages.data[start:stop].tobytes() == str(row).encode()
    assert messages.offsets[-1] == messages.data.size
    assert np.all(np.diff(messages.offsets) >= 1)
