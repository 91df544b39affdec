"""A server that lies, with its own good signature: what each party refuses."""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.support.http_simulator import HttpStudy, HttpTerms, held_releases, http_study
from tests.support.lying_server import (
    contract_instead,
    copied_rows,
    forked,
    lying_releases,
    moved,
    serving_instead,
)
from tests.support.servers import Server, make_context, running
from tests.support.simulator import Stage, attribute
from veiltab.core.privacy import largest_keep_threshold
from veiltab.errors import (
    AuditError,
    BudgetError,
    EquivocationError,
    InputError,
    MismatchError,
    PromiseError,
    SignatureError,
)
from veiltab.party import curator
from veiltab.party.context import PartyContext
from veiltab.party.evidence import examine, fetch_contract, fetch_release
from veiltab.party.push import push
from veiltab.party.researcher import estimate_study
from veiltab.party.witnesses import audit
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.in_process import LATER
from veiltab.protocol.verify import sign
from veiltab.protocol.witness import leave_witness, verify_equivocation
from veiltab.server.db.records import MessageRecord
from veiltab.wire.audit import Equivocation, Witness
from veiltab.wire.codec import load
from veiltab.wire.messages import Release
from veiltab.wire.signed import Signed

MATCHED = HttpTerms(linkage="matched")
BILLION = 10**9


def grant(study: HttpStudy, place: int = 0) -> None:
    """Let a curator grant everything to the researcher."""
    session = study.curators[place]
    to = public_identity(study.researcher.identity)
    curator.give_grant(session, session.contract(study.study), to, None, LATER)


def estimate(study: HttpStudy) -> None:
    """Let the researcher estimate all that it was granted."""
    estimate_study(study.researcher, study.researcher.contract(study.study))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Run a server that the tests make lie."""
    with running(make_context(tmp_path_factory.mktemp("lying") / "data")) as server:
        yield server


@pytest.fixture(scope="module")
def granted(service: Server, tmp_path_factory: pytest.TempPathFactory) -> HttpStudy:
    """Go through a whole study with an honest server."""
    return http_study(service, tmp_path_factory.mktemp("granted"), Stage.GRANTED)


def less_noise(release: Release) -> Release:
    """Claim a billion respondents, and add the little noise that these would need."""
    keep = largest_keep_threshold(BILLION, release.rows, release.cells, release.epsilon)
    return replace(release, population=BILLION, keep_threshold=keep)


OTHER_RELEASES = {
    "another nonce": lambda release: replace(release, nonce=bytes(16)),
    "other chunks": lambda release: replace(
        release,
        columns=(
            replace(release.columns[0], chunks=release.columns[1].chunks),
            *release.columns[1:],
        ),
    ),
}


@pytest.mark.parametrize("change", OTHER_RELEASES.values(), ids=OTHER_RELEASES)
def test_another_release_than_the_logged_one_is_refused(
    service: Server, granted: HttpStudy, change: object
) -> None:
    """By a curator who grants, by a researcher who estimates, and by whoever audits.

    The release is signed by the server itself and keeps its promise: only the log tells.
    """
    assert callable(change)
    with serving_instead(service.context, granted.study, change) as other:
        assert granted.researcher.server.release(granted.study).body == other
        for refuse in (
            lambda: grant(granted),
            lambda: estimate(granted),
            lambda: examine(granted.researcher, granted.study),
            lambda: audit(granted.curators[1], granted.study),
        ):
            with pytest.raises(AuditError, match="release is not the one in") as caught:
                refuse()
            assert sign(other, service.context.key).digest.hex() in caught.value.message
            assert "veiltab audit" in caught.value.hint
    estimate(granted)


def test_a_hidden_signature_is_noticed(service: Server, granted: HttpStudy) -> None:
    """A contract with fewer signatures than the log has shown before is not the same one."""
    whole = granted.contract
    fewer = Signed(whole.body, whole.signatures[:1])
    with (
        contract_instead(service.context, granted.study, fewer.dumps()),
        pytest.raises(AuditError, match="not the same ones"),
    ):
        fetch_contract(granted.curators[0], granted.study)
    assert fetch_contract(granted.curators[0], granted.study) == whole


def test_what_the_log_binds_is_kept_in_the_home(granted: HttpStudy) -> None:
    """The digests of the contract, of every upload and of the release, for every party."""
    release, _ = fetch_release(granted.researcher, granted.contract.body)
    for session in (*granted.curators, granted.researcher):
        examine(session, granted.study)
        pinned = session.home.study(granted.study).log.read()
        assert pinned is not None
        assert pinned.release == release.digest
        assert pinned.contract == granted.contract.digest
        assert pinned.uploads == {u.body.curator: u.digest for u in granted.uploads}
        assert pinned.signers == {c.identity.party_id for c in granted.curators}


def test_a_release_about_more_people_than_a_curator_holds_gets_no_pads(
    service: Server, tmp_path: Path
) -> None:
    """With n = 10⁹ the numbers keep their promise, and there is hardly any noise."""
    with lying_releases(less_noise):
        study = http_study(service, tmp_path, Stage.RELEASED, terms=MATCHED)
    release, plan = fetch_release(study.curators[0], study.contract.body)
    assert (release.body.population, plan.population_size) == (BILLION, BILLION)
    assert plan.ranked.keep_probability > 0.9999
    with pytest.raises(PromiseError, match="1,000,000,000 respondents in common"):
        grant(study)
    assert study.curators[0].server.grants(study.study) == []


def test_a_row_that_is_copied_is_refused_by_the_researcher(service: Server, tmp_path: Path) -> None:
    """Two hundred copies of one person's row would show it through any noise."""
    with copied_rows(200):
        study = http_study(service, tmp_path, Stage.GRANTED, terms=MATCHED)
    with pytest.raises(MismatchError, match="not different rows"):
        estimate(study)


def test_a_ledger_restored_from_an_old_copy_stops_push_and_grant(
    service: Server, tmp_path: Path
) -> None:
    """Nothing leaves that is not charged; signing again charges it, and both go on."""
    study = http_study(service, tmp_path, Stage.OPEN)
    first = study.curators[0]
    ledgers = first.home.path / "ledgers"
    shutil.copytree(ledgers, tmp_path / "charged")
    first.home.ledgers.set_limits("people", 10.0)
    (charged,) = [path for path in ledgers.iterdir() if "people" not in path.name]
    charged.unlink()
    signed = first.contract(study.study)
    with pytest.raises(BudgetError, match="not charged") as caught:
        push(first, signed, None, lambda _: None, None)
    assert "veiltab study sign" in caught.value.hint
    study.go_to(Stage.RELEASED)
    with pytest.raises(BudgetError, match="not charged"):
        grant(study)
    curator.sign(first, signed, first.home.ledgers.open_ledger("people").ledger)
    assert first.home.ledgers.open_ledger("people").epsilon_left == 9
    grant(study)


def test_who_has_ended_a_study_is_named_as_in_the_contract(service: Server, tmp_path: Path) -> None:
    """A party can register under any name; the contract's is the one that all have signed."""
    hospital, office = (service.join(n, tmp_path / n) for n in ("hospital", "the tax office"))
    terms = HttpTerms(title="named otherwise")
    held = [[attribute("first", 2)], [attribute("second", 3)]]
    draft = terms.draft([hospital, office], held, None)
    named = replace(draft.curators[1].identity, name="a shop")
    curators = (draft.curators[0], replace(draft.curators[1], identity=named))
    contract = curator.propose(hospital, replace(draft, curators=curators), terms.ledger)
    office.contract(contract.study_id)
    status = office.server.abort(contract.study_id, "no reason")
    assert status.reason == "a shop: no reason"
    entries = examine(hospital, contract.study_id).entries
    assert (entries[-1].event, entries[-1].actor) == ("aborted", office.identity.party_id)


@dataclass
class Split:
    """A study on a server that was forked: each curator has uploaded to another copy of it."""

    study: HttpStudy
    fork: Server
    second: PartyContext

    @property
    def first(self) -> PartyContext:
        """The curator who is with the first copy."""
        return self.study.curators[0]

    def relay(self, signed: Signed[Witness]) -> None:
        """Let what a party has left at the first copy turn up at the second."""
        with self.fork.context.database.transaction() as records:
            records.replace_message(
                MessageRecord(
                    study=self.study.study,
                    kind=Witness.kind,
                    sender=signed.body.party,
                    reference=b"",
                    digest=signed.digest,
                    content=signed.dumps(),
                    at=0,
                )
            )


@pytest.fixture(scope="module")
def split(service: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Split]:
    """Fork a server after a study was opened."""
    folder = tmp_path_factory.mktemp("split")
    with held_releases():
        study = http_study(service, folder / "homes", Stage.PREPARED)
        with forked(service, folder / "fork") as fork:
            second = moved(study.curators[1], fork)
            study.upload(0)
            second.server.send_chunks(study.study, study.chunks(1).items())
            second.server.upload(study.study, study.uploads[1])
            yield Split(study, fork, second)


def test_two_logs_show_when_the_parties_compare_files(split: Split, tmp_path: Path) -> None:
    """Each log is whole by itself; the two signed ends together prove that the server lies."""
    study, key = split.study.study, split.first.server.pinned.signing_key
    head, proof = tmp_path / "head.json", tmp_path / "proof.json"
    audit(split.first, study).save_head(head)
    with pytest.raises(EquivocationError, match="two different logs"):
        audit(split.second, study, [head], proof)
    found = Equivocation.from_json(load(proof.read_bytes()))
    assert verify_equivocation(found, key) == study
    with pytest.raises(AuditError, match="does not prove"):
        verify_equivocation(replace(found, second=found.first, entries=()), key)
    with pytest.raises(AuditError, match="does not prove"):
        verify_equivocation(found, split.first.identity.signing.public)
    with pytest.raises(InputError, match="not an end of this study's log"):
        audit(split.second, study, [proof])


def test_two_logs_show_through_the_server(split: Split) -> None:
    """As soon as what one party was shown reaches the other."""
    study = split.study.study
    split.relay(leave_witness(audit(split.first, study).head, split.first.identity))
    with pytest.raises(EquivocationError, match="curator 1 was shown"):
        audit(split.second, study)


def test_a_longer_log_than_is_shown_is_refused(split: Split) -> None:
    """A server that has signed for more entries than it shows hides them, or has gone back."""
    study, key = split.study.study, split.fork.context.key
    shown = examine(split.first, study).head.body
    more = sign(replace(shown, length=shown.length + 9), key)
    split.relay(leave_witness(more, split.first.identity))
    with pytest.raises(AuditError, match="was shown"):
        audit(split.second, study)


INVENTED = {
    "by nobody": lambda head, me: sign(head, me.identity.signing),
    "of another study": lambda head, me: sign(replace(head, study=bytes(32)), me.identity.signing),
}


@pytest.mark.parametrize("invent", INVENTED.values(), ids=INVENTED)
def test_a_witness_is_no_weapon(split: Split, invent: object) -> None:
    """A head that the server has not signed is shown as such, and stops nobody."""
    assert callable(invent)
    study = split.study.study
    head = examine(split.second, study).head.body
    made_up = invent(replace(head, hash=bytes(32)), split.first)
    split.relay(leave_witness(made_up, split.first.identity))
    (witness,) = audit(split.second, study).witnesses
    assert (witness.who, witness.verdict) == ("curator 1", "invalid")


def test_parties_say_what_they_were_shown(service: Server, granted: HttpStudy) -> None:
    """Each one's head is one row, replaced by longer ones alone, and no entry of the log."""
    first, second = granted.curators
    before = len(examine(first, granted.study).entries)
    audit(second, granted.study)
    (seen,) = audit(first, granted.study).witnesses
    assert (seen.who, seen.verdict, seen.length) == ("curator 2", "same", before)
    short = replace(examine(second, granted.study).head.body, length=1)
    second.server.leave_head(
        granted.study, leave_witness(sign(short, service.context.key), second.identity)
    )
    grant(granted)
    assert audit(first, granted.study).witnesses[0].verdict == "behind"
    assert {signed.body.party for signed in first.server.heads(granted.study)} == {
        first.identity.party_id,
        second.identity.party_id,
    }
    assert len(examine(first, granted.study).entries) == before + 1
    with pytest.raises(SignatureError):
        second.server.leave_head(
            granted.study, leave_witness(sign(short, second.identity.signing), second.identity)
        )
