"""Nothing can be changed on its way: every byte of every message, and every byte of every chunk.

Each message is damaged, parsed, and given to the role that receives it, as it would be.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tests.support.decoys import decoy_terms, terms
from tests.support.simulator import Simulator
from veiltab.core.mechanism import LinkageMode
from veiltab.errors import DigestError, MessageError
from veiltab.protocol.curator.agreement import receive_secret, share_secret, sign_contract
from veiltab.protocol.curator.ledger import Ledger
from veiltab.protocol.curator.upload import align, check_alignment
from veiltab.protocol.in_process import Outcome, Terms
from veiltab.protocol.researcher import count_records, open_access, publication
from veiltab.protocol.stores import MemoryChunks
from veiltab.wire.contract import Contract
from veiltab.wire.mechanism import DecoyTerms
from veiltab.wire.messages import (
    Alignment,
    Publication,
    Release,
    Repad,
    RepadRequest,
    Secret,
    SignedGrant,
    Upload,
)

Take = Callable[[bytes], object]
"""Parses a message and gives it to the role that receives it."""

linkages = pytest.mark.parametrize("linkage", ["aligned", "matched"])
TERMS = Terms(epsilon=1.0, sample_size=20)
SOME = 5
"""Every fifth byte is enough where other tests change every one; 3, 5 and 7 have no common part."""


def damaged(data: bytes, step: int) -> Iterator[bytes]:
    """Yield the message with each of its bytes changed, one at a time, or each ``step``-th.

    Mostly one bit; every third time to another character of those that messages are made of,
    so that more of the damage survives the parser and meets the checks behind it.
    """
    for position in range(0, len(data), step):
        byte = data[position]
        other = byte ^ 1 << position % 7
        if position % 3 == 0:
            alphabet = b"0123456789abcdef"
            other = alphabet[position % 16]
            other = alphabet[(position + 1) % 16] if other == byte else other
        yield data[:position] + bytes([other]) + data[position + 1 :]


def assert_guarded(data: bytes, take: Take, step: int = 1) -> None:
    """Fail unless the message is taken as it is, and refused with any byte changed."""
    refused = 0
    for changed in damaged(data, step):
        with pytest.raises(MessageError):
            take(changed)
        refused += 1
    assert refused == math.ceil(len(data) / step)
    assert len(data) > 400
    take(data)


def opened(rehearsal: Simulator, outcome: Outcome) -> dict[str, Take]:
    """Return how a researcher takes a contract, a release and a grant."""
    contract, release = outcome.contract, outcome.study.release()
    first, second = rehearsal.grants(outcome)
    who = rehearsal.researcher
    return {
        "contract": lambda data: open_access(
            who, Contract.loads(data), release, [first, second], now=0
        ),
        "release": lambda data: open_access(
            who, contract, Release.loads(data), [first, second], now=0
        ),
        "grant": lambda data: open_access(
            who, contract, release, [first, SignedGrant.loads(data)], now=0
        ),
    }


@pytest.mark.slow
def test_contract() -> None:
    """A researcher, byte by byte; the server and a curator, who check it in the same way."""
    rehearsal = Simulator()
    outcome = rehearsal.run(TERMS)
    data = outcome.contract.dumps()
    assert_guarded(data, opened(rehearsal, outcome)["contract"])
    study = rehearsal._open(outcome.contract.body).study
    assert_guarded(data, lambda changed: study.sign(Contract.loads(changed)), SOME)
    ledger = Ledger(dataset="tampering", epsilon_limit=10.0)
    identity = rehearsal.curators[0]
    assert_guarded(
        data, lambda changed: sign_contract(Contract.loads(changed), identity, ledger), SOME
    )


@pytest.mark.slow
@linkages
def test_contract_with_decoys(linkage: LinkageMode) -> None:
    """A researcher; every number of the mechanism is signed."""
    rehearsal = Simulator()
    outcome = rehearsal.run(terms(linkage))
    data = outcome.contract.dumps()
    assert_guarded(data, opened(rehearsal, outcome)["contract"], SOME)


def test_secret() -> None:
    """The curator whom it is sealed to."""
    rehearsal = Simulator()
    staged = rehearsal.study(TERMS)
    first, second = rehearsal.curators
    message = share_secret(staged.contract, first, staged.secret, second.party_id)
    assert_guarded(
        message.dumps(),
        lambda data: receive_secret(staged.contract, second, Secret.loads(data)),
    )


def test_alignment() -> None:
    """The other curators, before they upload."""
    rehearsal = Simulator()
    staged = rehearsal.study(TERMS)
    first, second = (
        align(staged.contract, identity, intake)
        for identity, intake in zip(rehearsal.curators, staged.intakes, strict=True)
    )
    assert_guarded(
        first.dumps(),
        lambda data: check_alignment(staged.contract, [Alignment.loads(data), second]),
    )


@linkages
def test_alignment_of_decoys(linkage: LinkageMode) -> None:
    """The other curators, before they upload."""
    rehearsal = Simulator()
    staged = rehearsal.study(terms(linkage))
    first, second = (
        align(staged.contract, identity, intake)
        for identity, intake in zip(rehearsal.curators, staged.intakes, strict=True)
    )
    assert_guarded(
        first.dumps(),
        lambda data: check_alignment(staged.contract, [Alignment.loads(data), second]),
    )


mechanisms = pytest.mark.parametrize("mechanism", [None, decoy_terms()], ids=["paper", "decoys"])


@linkages
@mechanisms
def test_upload(linkage: LinkageMode, mechanism: DecoyTerms | None) -> None:
    """The server; after so many wrong ones it takes the right one."""
    rehearsal = Simulator()
    agreed = Terms(epsilon=1.0, sample_size=20, linkage=linkage, mechanism=mechanism)
    staged = rehearsal.study(agreed)
    first, second = staged.prepare()
    study = staged.outcome.study
    assert_guarded(first.message.dumps(), lambda data: study.upload(Upload.loads(data)))
    study.upload(second.message)
    study.release()


@linkages
@mechanisms
def test_release(linkage: LinkageMode, mechanism: DecoyTerms | None) -> None:
    """The researcher."""
    rehearsal = Simulator()
    outcome = rehearsal.run(replace(TERMS, linkage=linkage, mechanism=mechanism))
    data = outcome.study.release().dumps()
    assert_guarded(data, opened(rehearsal, outcome)["release"])


def test_publication() -> None:
    """The server, which keeps it."""
    rehearsal = Simulator()
    outcome = rehearsal.run(terms())
    study = outcome.study
    for grant in rehearsal.grants(outcome):
        study.accept_grant(grant, now=0)
    signed = publication(rehearsal.access(outcome), rehearsal.researcher, ["age"], bytes(32))
    assert_guarded(
        signed.dumps(), lambda data: study.accept_publication(Publication.loads(data), now=0)
    )


@pytest.mark.slow
def test_grant() -> None:
    """The researcher, and the server which keeps it; the sealed part is guarded as well."""
    rehearsal = Simulator()
    outcome = rehearsal.run(TERMS)
    take = opened(rehearsal, outcome)["grant"]
    data = rehearsal.grants(outcome)[1].dumps()
    assert_guarded(data, take)
    study = outcome.study
    assert_guarded(data, lambda changed: study.accept_grant(SignedGrant.loads(changed), now=0))


def test_repad_request_and_repad() -> None:
    """The curator who is asked for new pads, and the server which asked."""
    rehearsal = Simulator()
    deposit = rehearsal.deposit()
    agreed = Terms(epsilon=1.0, sample_size=20, linkage="matched")
    outcome = rehearsal._open(rehearsal.stored_contract(agreed, deposit))
    uploads = [table.upload for table in deposit.stored]
    requests = outcome.study.draw_from(deposit.vault, uploads, deposit.tables)
    desk, table = outcome.contexts[0], deposit.stored[0]
    request = requests[desk.identity.party_id]
    assert_guarded(
        request.dumps(),
        lambda data: table.repad(
            desk, outcome.contract, RepadRequest.loads(data), outcome.received
        ),
    )
    answer = table.repad(desk, outcome.contract, request, outcome.received)
    study = outcome.study
    assert_guarded(answer.message.dumps(), lambda data: study.repad(Repad.loads(data)))


def assert_chunks_guarded(store: MemoryChunks, take: Callable[[], object]) -> None:
    """Change bytes of every chunk, lose it, and swap it for the others; then leave all as it is."""
    genuine = dict(store._chunks)
    checked = 0
    for digest, chunk in genuine.items():
        changes = [
            chunk[:position] + bytes([chunk[position] ^ 1 << position % 8]) + chunk[position + 1 :]
            for position in range(0, len(chunk), 1 + len(chunk) // 300)
        ]
        changes += [other for other in genuine.values() if other != chunk]
        for change in changes:
            store._chunks[digest] = change
            with pytest.raises(DigestError, match="does not have the digest"):
                take()
            checked += 1
        del store._chunks[digest]
        with pytest.raises(DigestError, match="there is no chunk"):
            take()
        store._chunks[digest] = chunk
    assert checked > 80
    take()


@linkages
@mechanisms
def test_chunks_of_an_upload(linkage: LinkageMode, mechanism: DecoyTerms | None) -> None:
    """The server looks at every chunk before it takes the upload; tokens are chunks too."""
    rehearsal = Simulator(population=400)
    agreed = Terms(epsilon=1.0, sample_size=400, linkage=linkage, mechanism=mechanism)
    staged = rehearsal.study(agreed)
    first, _ = staged.prepare()
    study, body = staged.outcome.study, first.message.body
    own = {digest for column in body.columns for digest in column.chunks}
    own |= set(body.tokens or ())
    chunks = staged.outcome.received._chunks
    for digest in set(chunks) - own:
        del chunks[digest]
    assert_chunks_guarded(staged.outcome.received, lambda: study.upload(first.message))
    assert list(study.uploads) == [body.curator]


@linkages
@mechanisms
def test_chunks_of_a_release(linkage: LinkageMode, mechanism: DecoyTerms | None) -> None:
    """The researcher decrypts nothing of a damaged column; positions are chunks too."""
    rehearsal = Simulator(population=400)
    agreed = Terms(epsilon=1.0, sample_size=400, linkage=linkage, mechanism=mechanism)
    outcome = rehearsal.run(agreed)
    access = rehearsal.access(outcome)
    assert_chunks_guarded(outcome.released, lambda: count_records(access, outcome.released))


def test_chunks_of_a_repad() -> None:
    """Positions that a curator is asked about, and the differences that it answers with."""
    rehearsal = Simulator(population=400)
    deposit = rehearsal.deposit()
    agreed = Terms(epsilon=1.0, sample_size=400, linkage="matched")
    outcome = rehearsal._open(rehearsal.stored_contract(agreed, deposit))
    uploads = [table.upload for table in deposit.stored]
    requests = outcome.study.draw_from(deposit.vault, uploads, deposit.tables)
    desk, table = outcome.contexts[0], deposit.stored[0]
    request = requests[desk.identity.party_id]
    asked = MemoryChunks()
    for digest in request.body.positions:
        asked.put(outcome.received.get(digest))
    assert_chunks_guarded(asked, lambda: table.repad(desk, outcome.contract, request, asked))
    answer = table.repad(desk, outcome.contract, request, asked)
    chunks = outcome.received._chunks
    differences = {digest for column in answer.message.body.columns for digest in column.chunks}
    for digest in set(chunks) - differences:
        del chunks[digest]
    assert_chunks_guarded(outcome.received, lambda: outcome.study.repad(answer.message))
