"""The server's side of a study: its states, and messages at a wrong time or of a wrong form."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from tests.support.entropy import CountingEntropy
from tests.support.simulator import LocalStudy, Simulator
from veiltab.core.mechanism import LinkageMode
from veiltab.errors import (
    MessageError,
    MismatchError,
    SignatureError,
    StateError,
)
from veiltab.protocol.curator.agreement import unsigned
from veiltab.protocol.curator.upload import Prepared
from veiltab.protocol.in_process import Terms
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.server.transitions import TRANSITIONS, Event, advance, expect
from veiltab.protocol.stores import MemoryChunks
from veiltab.protocol.verify import cosign, sign
from veiltab.wire.messages import Upload
from veiltab.wire.signed import Signed
from veiltab.wire.states import State

TERMS = Terms(epsilon=1.0, sample_size=20)
SERVER_TERMS = Terms(epsilon=1.0, sample_size=20, linkage="matched")
linkages = pytest.mark.parametrize("linkage", ["aligned", "matched"])


def staged_uploads(
    linkage: LinkageMode = "aligned", **changes: Any
) -> tuple[Simulator, LocalStudy, list[Prepared[Upload]]]:
    """Return an open study whose curators are about to upload."""
    rehearsal = Simulator()
    terms = TERMS if linkage == "aligned" else SERVER_TERMS
    staged = rehearsal.study(terms, **changes)
    return rehearsal, staged, staged.prepare()


def resigned(rehearsal: Simulator, message: Signed[Upload], **changes: Any) -> Signed[Upload]:
    """Return an upload with some fields changed, signed by its own curator."""
    numbers = {identity.party_id: identity for identity in rehearsal.curators}
    return sign(replace(message.body, **changes), numbers[message.body.curator].signing)


def test_a_contract_for_another_server_is_refused() -> None:
    """Its release would be signed with a key that no researcher accepts."""
    rehearsal, staged, _ = staged_uploads()
    contract = staged.outcome.contract.body
    other = replace(contract, server=replace(contract.server, signing_key=bytes(31) + b"\x01"))
    context = ServerContext(
        rehearsal.server.signing, rehearsal.entropy, MemoryChunks(), MemoryChunks()
    )
    with pytest.raises(MismatchError, match="another server"):
        ServerStudy(context, other)


def state_of(study: ServerStudy) -> State:
    """Return where the study stands now, which a type checker would remember from before."""
    return study.state


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_what_is_not_in_the_table_cannot_happen(state: State, event: Event) -> None:
    """Every pair of a state and an event: it leads where the table says, or it is refused."""
    if (state, event) in TRANSITIONS:
        assert advance(state, event) is TRANSITIONS[state, event]
        return
    with pytest.raises(StateError, match=f"a study that is {state} cannot take") as caught:
        advance(state, event)
    possible = [str(e) for s, e in TRANSITIONS if s is state]
    assert all(event in caught.value.hint for event in possible or ["it has ended"])


def test_every_state_is_reached_and_every_study_ends() -> None:
    """From the proposal all states can be reached; released and aborted are the only ends."""
    reached, frontier = {State.PROPOSED}, [State.PROPOSED]
    while frontier:
        state = frontier.pop()
        following = {to for (at, _), to in TRANSITIONS.items() if at is state} - reached
        reached |= following
        frontier += following
    assert reached == set(State)
    ends = {state for state in State if not any(at is state for at, _ in TRANSITIONS)}
    assert ends == {State.RELEASED, State.ABORTED}
    assert {e for (_, e), to in TRANSITIONS.items() if to is State.RELEASED} == {Event.PERTURBED}


def test_expecting_a_state() -> None:
    """Steps that are no event are bound to a state as well."""
    expect(State.OPEN, State.OPEN, State.SAMPLED)
    with pytest.raises(StateError, match="is released, not open or sampled"):
        expect(State.RELEASED, State.OPEN, State.SAMPLED)


def test_a_study_opens_when_all_have_signed() -> None:
    """In any order, one by one, and again; a stranger's signature is refused."""
    rehearsal, staged, uploads = staged_uploads()
    contract = staged.contract
    study = ServerStudy(staged.outcome.study._context, contract)
    first, second = (identity.signing for identity in rehearsal.curators)
    with pytest.raises(SignatureError):
        study.sign(cosign(unsigned(contract), rehearsal.server.signing))
    study.sign(unsigned(contract))
    study.sign(cosign(unsigned(contract), second))
    study.sign(cosign(unsigned(contract), second))
    assert state_of(study) is State.PROPOSED
    with pytest.raises(StateError, match="is proposed, not open"):
        study.upload(uploads[0].message)
    study.sign(cosign(unsigned(contract), first))
    assert state_of(study) is State.OPEN
    assert study.contract == staged.outcome.contract
    study.sign(staged.outcome.contract)
    assert state_of(study) is State.OPEN


def test_another_contract_is_not_signed() -> None:
    """The server knows the contract that was proposed, to the last field."""
    _, staged, _ = staged_uploads()
    other = staged_uploads(population=40)[1]
    with pytest.raises(MismatchError, match="another contract"):
        staged.outcome.study.sign(other.outcome.contract)


@linkages
def test_an_upload_is_taken_once(linkage: LinkageMode) -> None:
    """The same bytes again change nothing; another preparation in its place is refused."""
    _, staged, (first, second) = staged_uploads(linkage)
    study = staged.outcome.study
    study.upload(first.message)
    study.upload(first.message)
    assert state_of(study) is State.OPEN
    other = staged.prepare()[0]
    with pytest.raises(StateError, match="another upload already"):
        study.upload(other.message)
    assert study.uploads[first.message.body.curator] == first.message
    study.upload(second.message)
    assert state_of(study) is State.UPLOADED
    study.upload(second.message)
    release = study.release()
    study.upload(first.message)
    with pytest.raises(StateError):
        study.upload(other.message)
    assert study.release() is release


def test_the_form_of_an_upload() -> None:
    """Another study, other columns, another number of rows, the other architecture."""
    rehearsal, staged, (first, _) = staged_uploads()
    study, body = staged.outcome.study, first.message.body
    columns = body.columns
    wrong: list[dict[str, Any]] = [
        {"scope": bytes(32)},
        {"columns": columns[::-1]},
        {"columns": columns[:1]},
        {"columns": (*columns, replace(columns[0], attribute="more"))},
        {"columns": (replace(columns[0], attribute="income"), columns[1])},
        {"columns": (replace(columns[0], chunks=columns[1].chunks), columns[1])},
        {"rows": 19},
        {"rows": 21},
        {"population": None, "tokens": columns[0].chunks},
    ]
    for changes in wrong:
        with pytest.raises(MessageError):
            study.upload(resigned(rehearsal, first.message, **changes))
    with pytest.raises(MismatchError, match="is not a curator"):
        study.upload(sign(replace(body, curator=bytes(32)), rehearsal.curators[0].signing))
    with pytest.raises(SignatureError):
        study.upload(sign(body, rehearsal.curators[1].signing))
    assert not study.uploads
    study.upload(first.message)


def test_the_other_form_is_refused_where_the_server_matches() -> None:
    """An upload without tokens could not be matched."""
    rehearsal, staged, (first, _) = staged_uploads("matched")
    with pytest.raises(MismatchError, match="the server matches"):
        staged.outcome.study.upload(resigned(rehearsal, first.message, population=40, tokens=None))


def test_an_upload_of_another_study_is_refused() -> None:
    """Of the same curators with the same data: uploads cannot be moved."""
    rehearsal, staged, _ = staged_uploads()
    other = rehearsal.study(TERMS).prepare()[0]
    with pytest.raises(MismatchError, match="for another study"):
        staged.outcome.study.upload(other.message)


def test_samples_of_different_populations_do_not_join() -> None:
    """The server compares them even if the curators did not, and takes no other upload then."""
    rehearsal, staged, (first, second) = staged_uploads()
    study = staged.outcome.study
    study.upload(first.message)
    study.upload(resigned(rehearsal, second.message, population=41))
    with pytest.raises(MismatchError, match="populations of \\['40', '41'\\]"):
        study.release()
    with pytest.raises(StateError):
        study.release()
    with pytest.raises(StateError):  # no second try: it could be used to ask many questions
        study.upload(second.message)
    assert study.state is State.ABORTED
    assert len(staged.outcome.received) > 0
    study.forget_unreleased()
    assert len(staged.outcome.received) == 0


def test_the_population_is_the_contracts_where_it_names_one() -> None:
    """In both architectures: as uploaded, and as matched."""
    with pytest.raises(MismatchError, match="states 39 respondents, not 40"):
        staged_uploads(population=39)
    _, staged, (first, second) = staged_uploads("matched", population=39)
    staged.outcome.study.upload(first.message)
    staged.outcome.study.upload(second.message)
    with pytest.raises(MismatchError, match="states 39 respondents, not 40"):
        staged.outcome.study.release()


@linkages
def test_a_release_is_drawn_once(linkage: LinkageMode) -> None:
    """Asked again it is the same object, and not a byte of entropy more is used."""
    rehearsal = Simulator()
    counting = CountingEntropy(rehearsal.server_entropy)
    rehearsal.server_entropy = counting
    staged = rehearsal.study(replace(TERMS, linkage=linkage))
    study = staged.finish().study
    used, release = counting.used, study.release()
    chunks = dict(staged.outcome.released._chunks)
    assert used > 0
    assert all(study.release() is release for _ in range(3))
    assert counting.used == used
    assert staged.outcome.released._chunks == chunks


@linkages
def test_ciphertext_is_forgotten_after_the_release(linkage: LinkageMode) -> None:
    """What was uploaded and not perturbed is gone; what is released shares no column with it."""
    rehearsal, staged, uploads = staged_uploads(linkage)
    for upload in uploads:
        staged.outcome.study.upload(upload.message)
    assert len(staged.outcome.received)
    released = staged.outcome.release().digest
    assert not len(staged.outcome.received)
    sent = {digest for sent in rehearsal.sent for digest in sent._chunks}
    kept = dict(staged.outcome.released._chunks)
    assert kept
    assert not sent & set(kept)
    staged.outcome.study.forget_unreleased()
    assert staged.outcome.study.release().digest == released
    assert staged.outcome.released._chunks == kept


@linkages
def test_ciphertext_is_kept_until_the_owner_of_the_study_says_so(linkage: LinkageMode) -> None:
    """No step deletes anything, so that whoever keeps the state can keep it first."""
    _, staged, uploads = staged_uploads(linkage)
    study, outcome = staged.outcome.study, staged.outcome
    received = dict(outcome.received._chunks)
    for upload in uploads:
        with pytest.raises(StateError, match="not released or aborted"):
            study.forget_unreleased()
        study.upload(upload.message)
    with pytest.raises(StateError, match="not released or aborted"):
        study.forget_unreleased()
    study.release()
    assert received.items() <= outcome.received._chunks.items()


def test_nobody_sets_the_state_from_outside() -> None:
    """Only the steps of a study lead from one state to the next."""
    _, staged, _ = staged_uploads()
    with pytest.raises(AttributeError):
        staged.outcome.study.state = State.RELEASED  # type: ignore[misc]


@linkages
def test_releasing_too_early(linkage: LinkageMode) -> None:
    """Before all have uploaded there is nothing to release."""
    _, staged, (first, _) = staged_uploads(linkage)
    with pytest.raises(StateError):
        staged.outcome.study.release()
    staged.outcome.study.upload(first.message)
    with pytest.raises(StateError):
        staged.outcome.study.release()
    assert not len(staged.outcome.released)


@linkages
@pytest.mark.parametrize("uploaded", [0, 1, 2])
def test_aborting(uploaded: int, linkage: LinkageMode) -> None:
    """At any time before the release; all chunks can be deleted then, and no step is possible."""
    _, staged, uploads = staged_uploads(linkage)
    study = staged.outcome.study
    for upload in uploads[:uploaded]:
        study.upload(upload.message)
    staged.outcome.released.put(b"perturbed before the release broke off")
    study.abort()
    assert state_of(study) is State.ABORTED
    assert len(staged.outcome.received) > 0
    study.forget_unreleased()
    assert not len(staged.outcome.received)
    assert not len(staged.outcome.released)
    checks = (
        lambda: study.check_granted(bytes(32), [bytes(32)], 0),
        lambda: study.check_researcher(bytes(32), 0),
    )
    for step in (study.release, study.abort, *checks):
        with pytest.raises(StateError):
            step()
    if uploaded < 2:
        with pytest.raises(StateError):
            study.upload(uploads[uploaded].message)


def test_a_release_cannot_be_aborted() -> None:
    """It stays what it is; asking for it again still works."""
    _, staged, _ = staged_uploads()
    outcome = staged.finish()
    release = outcome.study.release()
    with pytest.raises(StateError, match="cannot take"):
        outcome.study.abort()
    assert outcome.study.release() is release
