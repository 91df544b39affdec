"""Refunds: only where nothing could be learnt, and nothing will be, whatever others do."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from unittest import mock

import polars as pl
import pytest

from tests.support.http_simulator import HttpStudy, HttpTerms, http_study, join_parties
from tests.support.servers import Server, make_context, running
from tests.support.simulator import Stage
from veiltab.data.tables import open_table
from veiltab.errors import (
    BudgetError,
    ConnectionFailedError,
    NotFoundError,
    ParameterError,
    StateError,
    UnknownPartyError,
    VeiltabError,
)
from veiltab.files.private import locked
from veiltab.party import curator, evidence, refunds
from veiltab.party import push as pushing
from veiltab.party.checking import Source
from veiltab.party.context import PartyContext
from veiltab.party.costs import costs
from veiltab.party.ledgers import Ledgers, Note
from veiltab.party.progress import ignore_progress
from veiltab.party.proposal import StudyDraft
from veiltab.party.push import push
from veiltab.party.refunds import refund
from veiltab.party.remote import RemoteServer
from veiltab.party.study_folder import StudyFolder
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.curator.ledger import Ledger, Refund
from veiltab.protocol.in_process import LATER
from veiltab.protocol.logged import Logged
from veiltab.wire.audit import AuditEntry
from veiltab.wire.states import AuditEvent, State

TERMS = HttpTerms(shares=({"first": 2}, {"second": 2}), population=4, sample_size=2, epsilon=0.1)
REASON = "the wrong export"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all studies of this module."""
    with running(make_context(tmp_path_factory.mktemp("refunds") / "data")) as server:
        yield server


@pytest.fixture(scope="module")
def parties(service: Server, tmp_path_factory: pytest.TempPathFactory) -> list[PartyContext]:
    """Return two curators and a researcher, the same for all studies of this module."""
    folder = tmp_path_factory.mktemp("parties")
    return join_parties(service, folder, ["curator 1", "curator 2", "researcher"])


@pytest.fixture
def begin(service: Server, parties: list[PartyContext], tmp_path: Path) -> Callable[..., HttpStudy]:
    """Return how to take a study to a stage, and end it."""

    def begin(stage: Stage, *, aborted: bool = True, **terms: object) -> HttpStudy:
        chosen = HttpTerms(**{**_fields(TERMS), "title": tmp_path.name, **terms})  # type: ignore[arg-type]
        study = http_study(service, tmp_path, stage, terms=chosen, parties=parties)
        if aborted:
            study.curators[1].server.abort(study.study, "the wrong table")
        return study

    return begin


def _fields(terms: HttpTerms) -> dict[str, object]:
    return {name: getattr(terms, name) for name in HttpTerms.__dataclass_fields__}


def spent(study: HttpStudy) -> tuple[Fraction, list[Refund]]:
    """Return what the first curator's ledger of the study says."""
    ledger = study.curators[0].home.ledgers.open_ledger(study.terms.title).ledger
    return ledger.epsilon_spent, list(ledger.refunds)


def assert_refused_for_ever(study: HttpStudy) -> None:
    """Neither sign nor push nor grant, and no second refund."""
    first = study.curators[0]
    signed = first.home.study(study.study).contract()
    assert signed is not None
    ledger = first.home.ledgers.open_ledger(study.terms.title).ledger
    with pytest.raises(StateError, match="refunded"):
        curator._sign(first, signed, ledger)
    to = public_identity(study.researcher.identity)
    if len(signed.signatures) == 2:
        with pytest.raises(StateError, match="refunded"):
            push(first, signed, None, ignore_progress, None)
        with pytest.raises(StateError, match="refunded"):
            curator.give_grant(first, signed, to, None, LATER)
    with pytest.raises(StateError, match="refunded already: the wrong export"):
        refund(first, study.study, REASON)


@pytest.mark.slow
def test_a_study_to_which_nothing_was_sent_is_refunded(begin: Callable[..., HttpStudy]) -> None:
    """The charge stays visible, with reason, date and the end of the log; sums are exact."""
    for linkage in ("aligned", "matched"):
        study = begin(Stage.OPEN, linkage=linkage, title=f"nothing sent, {linkage}")
        first = study.curators[0]
        assert spent(study) == (Fraction(1, 10), [])
        stored = refund(first, study.study, REASON)
        (made,) = stored.ledger.refunds
        assert (made.reason, made.basis, made.done) == (REASON, "nothing-sent", True)
        assert made.log == evidence.examine(first, study.study).logged.seen
        assert abs(made.at - first.now) < 60
        assert spent(study) == (Fraction(0), [made])
        assert stored.ledger.entry_of(study.study) is not None
        assert_refused_for_ever(study)


@pytest.mark.slow
def test_what_was_uploaded_is_refunded_when_its_pads_are_gone(
    begin: Callable[..., HttpStudy],
) -> None:
    """Where all hold the same respondents, with both kinds of pads."""
    for pads in ("stream", "one-time"):
        study = begin(Stage.PREPARED, aborted=False, pads=pads, title=f"uploaded, {pads}")
        study.upload(0)
        study.curators[1].server.abort(study.study, "the wrong table")
        folder = study.curators[0].home.study(study.study)
        stored = refund(study.curators[0], study.study, REASON)
        assert stored.ledger.refunds[0].basis == "never-granted"
        assert spent(study)[0] == 0
        left = {path.name for path in folder.path.iterdir()}
        assert not left & {"prepared.json", "private", "outgoing"}
        assert_refused_for_ever(study)


@pytest.mark.slow
def test_who_is_in_the_table_is_not_refunded(begin: Callable[..., HttpStudy]) -> None:
    """Where the server matches, tokens that were sent tell whom a curator holds."""
    study = begin(Stage.PREPARED, linkage="matched")
    with pytest.raises(StateError, match="tokens tell whom you hold"):
        refund(study.curators[0], study.study, REASON)
    assert spent(study) == (Fraction(1, 10), [])


@pytest.mark.slow
def test_nothing_is_refunded_before_the_end_or_after_a_release_or_grant(
    begin: Callable[..., HttpStudy],
) -> None:
    """By what the home knows, by the log, and by the server's list of grants."""
    study = begin(Stage.OPEN, aborted=False)
    first = study.curators[0]

    def refused(words: str) -> None:
        with pytest.raises(VeiltabError, match=words):
            refund(first, study.study, REASON)
        assert spent(study) == (Fraction(1, 10), [])
        assert first.home.study(study.study).path.is_dir()

    refused("the study is open, and can still go on")
    study.go_to(Stage.RELEASED)
    refused("it was released")
    study.go_to(Stage.GRANTED)
    refused("you have given a grant of it")
    shutil.rmtree(first.home.study(study.study).path / "grants")  # an old copy of the home
    refused("it was released")
    entries, head, logged = evidence.read_whole_log(first, study.contract.body)
    ended = [e for e in entries if e.event != AuditEvent.RELEASED]
    hidden = [e for e in ended if e.event != AuditEvent.GRANTED]
    lied = Logged(logged.seen, uploads=logged.uploads)
    for shown, words in ((ended, "its log has a grant by you"), (hidden, "another copy")):
        log = [*shown[:-1], _aborted(shown[-1])]
        with mock.patch.object(refunds, "read_whole_log", return_value=(log, head, lied)):
            refused(words)
    with pytest.raises(BudgetError, match="not charged"):
        refund(first, bytes(32), REASON)
    for reason in ("", "two\nlines", "x" * 2000):
        with pytest.raises(ParameterError, match="the reason"):
            refund(first, study.study, reason)


def _aborted(entry: AuditEntry) -> AuditEntry:
    return replace(entry, state="aborted")


@pytest.mark.slow
def test_a_home_that_has_forgotten_its_upload_refunds_nothing(
    begin: Callable[..., HttpStudy],
) -> None:
    """The log has it; whoever holds its pads could still grant."""
    study = begin(Stage.PREPARED, aborted=False)
    study.upload(0)
    study.curators[1].server.abort(study.study, "the wrong table")
    first = study.curators[0]
    (first.home.study(study.study).path / "prepared.json").unlink()
    with pytest.raises(StateError, match="an upload by you that this home does not have"):
        refund(first, study.study, REASON)
    with (
        mock.patch.object(RemoteServer, "contract", side_effect=NotFoundError("gone", hint="")),
        pytest.raises(StateError, match="does not know it any more"),
    ):
        refund(first, study.study, REASON)
    assert spent(study) == (Fraction(1, 10), [])


EFFECTS: tuple[tuple[type, str], ...] = (
    (Ledgers, "save"),
    (StudyFolder, "forget_pads"),
)


@pytest.mark.slow
def test_a_refund_survives_a_crash_before_and_after_each_effect(
    begin: Callable[..., HttpStudy],
) -> None:
    """The charge counts until the pads are gone; from the first write on, the study is refused."""
    study = begin(Stage.PREPARED)
    first, folder = study.curators[0], study.curators[0].home.study(study.study)
    copy = folder.path.parent / "copy"
    ledger = first.home.ledgers._path(study.terms.title)
    before = ledger.read_bytes()
    shutil.copytree(folder.path, copy)
    for stop in range(7):
        shutil.rmtree(folder.path)
        shutil.copytree(copy, folder.path)
        ledger.write_bytes(before)
        steps = _run_until(stop, first, study.study)
        prepared = (folder.path / "prepared.json").exists()
        epsilon, made = spent(study)
        assert len(steps) == min(stop + 1, 6)
        assert epsilon == (0 if stop >= 5 else Fraction(1, 10))
        assert not (prepared and epsilon == 0), "refunded while somebody could still decrypt"
        assert not (not prepared and not made), "the pads are gone, and nothing says why"
        if made:
            with pytest.raises(StateError, match="refunded"):
                first.home.ledgers.check_charged(study.contract.body)
            (cost,) = costs(first.home.ledgers, study.contract.body, study.terms.title)
            assert cost.refusal is not None
            assert not cost.charged
            assert cost.epsilon_before == cost.epsilon_after == float(10**6 - epsilon)
        if stop < 5:
            refund(first, study.study, "another reason")
            assert not (folder.path / "prepared.json").exists()
        assert spent(study)[0] == 0
        assert [r.reason for r in spent(study)[1]] == ["another reason" if stop < 1 else REASON]


def _run_until(stop: int, context: PartyContext, study: bytes) -> list[str]:
    """Refund a study, and crash at one of the points before and after each effect."""
    steps: list[str] = []

    def crashing(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def effect(*arguments: object) -> object:
            for when in ("before", "after"):
                steps.append(f"{when} {name}")
                if len(steps) > stop:
                    raise KeyboardInterrupt
                if when == "before":
                    result = real(*arguments)
            return result

        return effect

    with ExitStack() as patches:
        for owner, name in EFFECTS:
            effect = crashing(name, getattr(owner, name))
            patches.enter_context(mock.patch.object(owner, name, effect))
        if stop < 6:
            with pytest.raises(KeyboardInterrupt):
                refund(context, study, REASON)
        else:
            refund(context, study, REASON)
    return steps


@pytest.mark.slow
def test_a_grant_at_the_same_time_stops_the_refund(begin: Callable[..., HttpStudy]) -> None:
    """Whoever grants keeps the grant and then looks at the ledger; the refund does the reverse."""
    study = begin(Stage.PREPARED)
    first, real = study.curators[0], Ledgers.save
    folder = first.home.study(study.study)

    def granting(ledgers: Ledgers, *arguments: object) -> object:
        saved = real(ledgers, *arguments)  # type: ignore[arg-type]
        patches.enter_context(mock.patch.object(StudyFolder, "grants", return_value=[object()]))
        return saved

    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(Ledgers, "save", granting))
        with pytest.raises(StateError, match="you have given a grant of it"):
            refund(first, study.study, REASON)
    assert (folder.path / "prepared.json").exists()
    assert spent(study)[0] == Fraction(1, 10)


@pytest.mark.slow
def test_a_push_that_waited_for_the_refund_sends_nothing(begin: Callable[..., HttpStudy]) -> None:
    """It looks at the ledger when nobody else is at work, however the server says things stand."""
    study = begin(Stage.OPEN, linkage="matched")
    first = study.curators[0]
    signed = first.contract(study.study)
    status = replace(first.server.status(study.study), state=State.OPEN)
    (attribute,) = signed.body.curators[0].attributes
    values = [attribute.categories[number % 2] for number in range(4)]
    table = open_table(pl.DataFrame({"id": range(4), attribute.name: values}))

    def refunded_first(path: Path, wait: float) -> AbstractContextManager[None]:
        refund(first, study.study, REASON)
        return locked(path, wait)

    with (
        mock.patch.object(pushing, "locked", refunded_first),
        mock.patch.object(RemoteServer, "status", return_value=status),
        mock.patch.object(RemoteServer, "send_chunks") as sent,
        pytest.raises(StateError, match="was refunded to"),
    ):
        push(first, signed, lambda: Source(table, ("id",)), ignore_progress, None)
    assert not sent.called
    assert not (first.home.study(study.study).path / "prepared.json").exists()


@pytest.mark.slow
def test_signing_what_takes_no_signature_charges_nothing(begin: Callable[..., HttpStudy]) -> None:
    """Neither a study that was ended before, nor one that ends while it is signed."""
    study = begin(Stage.PROPOSED, aborted=False)
    second = study.curators[1]
    signed = second.contract(study.study)
    ledger = second.home.ledgers.set_limits("people", 1.0).ledger
    real = RemoteServer.sign

    def late(server: RemoteServer, scope: bytes, contract: object) -> object:
        study.curators[0].server.abort(study.study, "never mind")
        return real(server, scope, contract)  # type: ignore[arg-type]

    with (
        mock.patch.object(RemoteServer, "sign", late),
        pytest.raises(StateError, match="nothing stays charged"),
    ):
        curator.sign(second, signed, ledger)
    after = second.home.ledgers.open_ledger("people").ledger
    assert after.epsilon_spent == 0
    assert [(r.basis, r.done) for r in after.refunds] == [("nothing-sent", True)]
    other = begin(Stage.PROPOSED, title=f"{study.terms.title}, ended")
    with pytest.raises(StateError, match="the wrong table; it takes no signature, and nothing was"):
        curator.sign(second, second.contract(other.study), after)
    assert second.home.ledgers.ledger_of(other.study) is None


@pytest.mark.slow
def test_a_refused_proposal_leaves_nothing(
    begin: Callable[..., HttpStudy], service: Server, tmp_path: Path
) -> None:
    """Neither by the budget nor by the server; one that was interrupted is taken up."""
    study = begin(Stage.PROPOSED, aborted=False)
    me, home = study.curators[0], study.curators[0].home
    attributes = [table.attributes for table in study.holdings]

    def draft(title: str, *curators: PartyContext) -> StudyDraft:
        terms = HttpTerms(title=title, epsilon=0.1, sample_size=2)
        return terms.draft(curators or study.curators, attributes, study.researcher)

    known = home.studies()
    small = home.ledgers.set_limits("small", 0.01).ledger
    with pytest.raises(BudgetError):
        curator.propose(me, draft("too much"), small)
    assert home.studies() == known
    people = home.ledgers.set_limits("people", 1.0).ledger
    stranger = service.join("stranger", tmp_path / "stranger")
    stranger.server.block(me.identity.party_id)
    with pytest.raises(UnknownPartyError):
        curator.propose(me, draft("refused", me, stranger), people)
    assert home.studies() == known
    after = home.ledgers.open_ledger("people").ledger
    assert (after.epsilon_spent, len(after.entries)) == (Fraction(0), 1)
    assert [(r.basis, r.log, r.done) for r in after.refunds] == [("nothing-sent", None, True)]
    gone = ConnectionFailedError("gone", hint="")
    with (
        mock.patch.object(RemoteServer, "propose", side_effect=gone),
        pytest.raises(ConnectionFailedError),
    ):
        curator.propose(me, draft("interrupted"), after)
    (kept,) = set(home.studies()) - set(known)
    charged = home.ledgers.open_ledger("people").ledger
    assert curator.propose(me, draft("interrupted"), charged).study_id == kept
    assert home.ledgers.open_ledger("people").ledger.epsilon_spent == Fraction(1, 10)


@pytest.mark.slow
def test_an_interrupted_or_refunded_proposal_does_not_come_back(
    begin: Callable[..., HttpStudy],
) -> None:
    """What was left before a contract was kept is swept; refunded terms make another study."""
    study = begin(Stage.PROPOSED, aborted=False)
    me, home = study.curators[0], study.curators[0].home
    attributes = [table.attributes for table in study.holdings]
    terms = HttpTerms(title="taken back", epsilon=0.1, sample_size=2)
    draft = terms.draft(study.curators, attributes, study.researcher)
    ledger = home.ledgers.set_limits("others", 1.0).ledger
    known = home.studies()
    with (
        mock.patch.object(curator, "_sign", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        curator.propose(me, draft, ledger)
    assert len(home.studies()) == len(known) + 1
    gone = ConnectionFailedError("gone", hint="")
    with (
        mock.patch.object(RemoteServer, "propose", side_effect=gone),
        pytest.raises(ConnectionFailedError),
    ):
        curator.propose(me, draft, ledger)
    (kept,) = set(home.studies()) - set(known)
    refund(me, kept, "proposed it by mistake")
    again = curator.propose(me, draft, home.ledgers.open_ledger("others").ledger)
    assert again.study_id != kept
    after = home.ledgers.open_ledger("others").ledger
    assert (after.epsilon_spent, len(after.entries)) == (Fraction(1, 10), 2)


def test_refunds_are_exact_and_never_lost(tmp_path: Path) -> None:
    """Ten times 0.1, three of them back, is 0.7; a stale copy of the ledger is refused."""
    ledgers = Ledgers(tmp_path / "ledgers")
    ledger = Ledger(dataset="x", epsilon_limit=1.0, delta_limit=1e-6)
    for number in range(10):
        ledger = ledger.charge(bytes([number]) * 32, 0.1, 1e-7, None)
    ledgers.save(ledger, {entry.study: Note("a study", 1) for entry in ledger.entries})
    assert not ledger.supports(0.1, 0.0)
    for number in range(3):
        made = Refund(
            study=bytes([number]) * 32,
            reason=REASON,
            at=1,
            basis="nothing-sent",
            log=(2, bytes(32)),
        )
        begun = ledger.begin_refund(made)
        assert begun.epsilon_spent == ledger.epsilon_spent, "not before it is done"
        ledgers.save(begun)
        ledger = begun.finish_refund(made.study)
        ledgers.save(ledger)
        with pytest.raises(VeiltabError, match="has changed since"):
            ledgers.save(begun)
    assert (ledger.epsilon_spent, ledger.delta_spent) == (Fraction(7, 10), Fraction(7, 10**7))
    assert ledgers.open_ledger("x").ledger == ledger
    assert ledger.supports(0.3, 3e-7)
    assert not ledger.supports(0.30000001, 0.0)
    with pytest.raises(StateError, match="refunded"):
        ledger.charge(bytes(32), 0.1, 0.0, None)
    with pytest.raises(BudgetError, match="not charged"):
        ledger.begin_refund(Refund(study=b"?", reason="", at=1, basis="nothing-sent", log=None))
