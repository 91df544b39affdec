"""What each route answers when all is well, and when it comes at the wrong time."""

import hashlib
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import httpx
import pytest

from tests.support.http_simulator import HttpTerms, http_study
from tests.support.requests import Request, Signer, signer_of
from tests.support.servers import Server, make_context, running
from tests.support.simulator import SHARES, Stage
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import (
    DigestError,
    ExpiredError,
    MismatchError,
    NotFoundError,
    NotGrantedError,
    StateError,
    VeiltabError,
)
from veiltab.party import curator
from veiltab.party.context import PartyContext
from veiltab.party.evidence import examine
from veiltab.party.remote import RemoteServer
from veiltab.party.researcher import estimate_study
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.in_process import LATER
from veiltab.protocol.verify import sign
from veiltab.wire.bundles import CHUNK_BYTES, NamedChunk, bundle
from veiltab.wire.codec import MAX_TEXT, dump
from veiltab.wire.messages import Alignment


def named(*chunks: bytes) -> list[NamedChunk]:
    """Return chunks with their digests."""
    return [(hashlib.sha256(chunk).digest(), chunk) for chunk in chunks]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Server]:
    """Return a service without anything in it."""
    with running(make_context(tmp_path / "data")) as service:
        yield service


def post(
    session: PartyContext, url: str, path: str, body: bytes, method: str = "POST"
) -> httpx.Response:
    """Send a signed request by hand, for its status."""
    with httpx.Client(base_url=url) as client:
        return signer_of(session).sign(Request(method, path, body)).send(client)


def test_a_whole_study(service: Server, tmp_path: Path) -> None:
    """From a proposal to an estimate, with a log that everybody can verify."""
    study = http_study(service, tmp_path, Stage.PROPOSED)
    stages = (Stage.PROPOSED, Stage.OPEN, Stage.ONE_UPLOADED, Stage.RELEASED, Stage.GRANTED)
    first = study.curators[0].server
    states = [first.status(study.go_to(stage).study).state for stage in stages]
    assert states == ["proposed", "open", "open", "released", "released"]
    estimate = estimate_study(study.researcher, study.researcher.contract(study.study))
    assert estimate.unbiased.size == 2 * 3 * 4 * 5
    logs = [
        examine(session, study.study).entries for session in (*study.curators, study.researcher)
    ]
    assert logs[0] == logs[1] == logs[2]
    events = [(entry.event, entry.state) for entry in logs[0]]
    assert events[-4:] == [
        ("complete", "uploaded"),
        ("released", "released"),
        ("granted", "released"),
        ("granted", "released"),
    ]


@pytest.mark.slow
def test_repeated_messages_change_nothing(service: Server, tmp_path: Path) -> None:
    """The first is answered with 201 and any further one with 200, where a message is kept."""
    study = http_study(service, tmp_path, Stage.GRANTED)
    session, base = study.curators[0], f"/v1/studies/{study.study.hex()}"
    before = examine(session, study.study).entries
    (given,) = session.server.grants(study.study)
    repeated = {
        "/v1/studies": study.contract.dumps(),
        f"{base}/signatures": study.contract.dumps(),
        f"{base}/uploads": study.uploads[0].dumps(),
        f"{base}/grants": given.dumps(),
        f"{base}/alignments": session.server.alignments(study.study)[0].dumps(),
    }
    for path, body in repeated.items():
        sender = session
        if path.endswith("alignments"):  # in no order that matters
            party = session.server.alignments(study.study)[0].body.curator
            (sender,) = [s for s in study.curators if s.identity.party_id == party]
        assert post(sender, service.url, path, body).status_code == 200, path
    assert examine(session, study.study).entries == before


@pytest.mark.slow
def test_what_is_new_is_created(service: Server, tmp_path: Path) -> None:
    """Chunks and messages are answered with 201, and again with 200."""
    study = http_study(service, tmp_path, Stage.PREPARED)
    session, base = study.curators[0], f"/v1/studies/{study.study.hex()}"
    (first, second, *_), path = study.chunks(0).items(), f"{base}/chunks"
    assert session.server.sent_chunks(study.study) == set()
    bodies = [bundle([first])] * 2 + [bundle([first, second])] * 2
    statuses = [post(session, service.url, path, body, "PUT").status_code for body in bodies]
    assert statuses == [201, 200, 201, 200]
    assert session.server.sent_chunks(study.study) == {first[0], second[0]}
    assert study.curators[1].server.sent_chunks(study.study) == set()


HALF: dict[bytes, tuple[int, str]] = {
    b"": (422, "malformed_message"),
    bytes(4): (422, "malformed_message"),
    bundle(named(b"a"))[:3]: (422, "malformed_message"),
    bundle(named(b"a"))[:30]: (422, "malformed_message"),
    bundle(named(b"a", b"bc"))[:-1]: (422, "malformed_message"),
    bundle(named(b"a")) + b"\0": (422, "malformed_message"),
    b"\xff\xff\xff\xff" + b"a": (422, "malformed_message"),
    bundle(named(b"a", bytes(CHUNK_BYTES + 1))): (413, "too_large"),
}


@pytest.mark.slow
def test_half_a_bundle_is_not_taken(service: Server, tmp_path: Path) -> None:
    """Chunks that are cut off or too long are refused, and nothing of their bundle is kept."""
    study = http_study(service, tmp_path, Stage.OPEN)
    session = study.curators[0]
    path = f"/v1/studies/{study.study.hex()}/chunks"
    for body, expected in HALF.items():
        answer = post(session, service.url, path, body, "PUT")
        assert (answer.status_code, answer.json()["code"]) == expected, body[:40]
        assert session.server.sent_chunks(study.study) == set()


@pytest.mark.slow
def test_chunks_under_a_wrong_name_are_noticed(service: Server, tmp_path: Path) -> None:
    """When they are read; they are missing from then on, and the right ones mend it."""
    study = http_study(service, tmp_path, Stage.PREPARED)
    session, chunks = study.curators[0], study.chunks(0)
    wrong = dict.fromkeys(chunks, b"something else")
    session.server.send_chunks(study.study, wrong.items())
    assert session.server.sent_chunks(study.study) == set(chunks)
    with pytest.raises(DigestError):
        session.server.upload(study.study, study.uploads[0])
    assert session.server.sent_chunks(study.study) == set()
    study.upload(0)
    assert session.server.status(study.study).curators[0].uploaded


def test_an_upload_needs_its_chunks(service: Server, tmp_path: Path) -> None:
    """All of them; then it is taken, and no chunk that it does not name."""
    study = http_study(service, tmp_path, Stage.PREPARED)
    session = study.curators[0]
    first, *rest = study.chunks(0).items()
    session.server.send_chunks(study.study, rest)
    with pytest.raises(DigestError):
        session.server.upload(study.study, study.uploads[0])
    session.server.send_chunks(study.study, [first])
    status = session.server.upload(study.study, study.uploads[0])
    assert [each.uploaded for each in status.curators] == [True, False]
    with pytest.raises(MismatchError):
        session.server.send_chunks(study.study, [first, *named(b"new")])
    folder = tmp_path / "data" / "studies" / study.study.hex() / "received"
    before = sorted(folder.rglob("*"))
    session.server.send_chunks(study.study, [first, *rest])
    assert sorted(folder.rglob("*")) == before, "what is there is kept once"


@pytest.mark.slow
def test_steps_have_their_time(service: Server, tmp_path: Path) -> None:
    """Too early or too late, and nothing has happened."""
    study = http_study(service, tmp_path, Stage.PROPOSED)
    first, second = study.curators
    digest = hashlib.sha256(b"x").digest()
    with pytest.raises(StateError):
        first.server.send_chunks(study.study, named(b"x"))
    with pytest.raises(StateError):
        first.server.release(study.study)
    study.go_to(Stage.RELEASED)
    late = Alignment(
        attempt=2,
        curator=first.identity.party_id,
        decoys=None,
        digest=digest,
        population=9,
        study=study.study,
    )
    attempts: list[Callable[[], object]] = [
        lambda: first.server.abort(study.study, "too late"),
        lambda: first.server.send_chunks(study.study, named(b"x")),
        lambda: second.server.send_alignment(study.study, sign(late, first.identity.signing)),
    ]
    for attempt in attempts:
        with pytest.raises(VeiltabError):
            attempt()
    assert first.server.status(study.study).state == "released"
    assert not (tmp_path / "data" / "studies" / study.study.hex() / "received").exists()


@pytest.mark.slow
def test_contributions_to_the_secret_go_to_their_receivers(service: Server, tmp_path: Path) -> None:
    """And back to their senders, who look what is missing; to nobody else."""
    study = http_study(service, tmp_path, Stage.PROPOSED, terms=HttpTerms(shares=SHARES[:3]))
    first, second, third = (session.identity.party_id for session in study.curators)
    servers = [session.server for session in study.curators]

    def seen(server: RemoteServer) -> set[tuple[bytes, bytes]]:
        return {(m.body.sender, m.body.receiver) for m in server.secrets(study.study)}

    assert [seen(server) for server in servers] == [
        {(first, second), (first, third)},
        {(first, second)},
        {(first, third)},
    ]
    study.go_to(Stage.OPEN)
    others = {(first, second), (first, third), (second, first), (third, first)}
    assert seen(servers[0]) == others
    with pytest.raises(NotFoundError):
        study.researcher.server.secrets(study.study)


@pytest.mark.slow
def test_a_contribution_is_sealed_to_another_curator_once(service: Server, tmp_path: Path) -> None:
    """Neither to oneself nor a second time: what was sent stays."""
    study = http_study(service, tmp_path, Stage.PROPOSED)
    first, second = study.curators
    contract = study.contract.body
    for receiver, problem in (
        (first.identity.party_id, "sealed to its own sender"),
        (second.identity.party_id, "another secret was sent"),
        (study.researcher.identity.party_id, "is no curator"),
    ):
        body = replace(
            first.server.secrets(study.study)[0].body, receiver=receiver, sealed=bytes(1168)
        )
        with pytest.raises(VeiltabError, match=problem):
            first.server.send_secret(contract.study_id, sign(body, first.identity.signing))


@pytest.mark.slow
def test_curators_can_end_a_study(service: Server, tmp_path: Path) -> None:
    """Everybody sees why; what was uploaded is gone, and nothing more is taken."""
    study = http_study(service, tmp_path, Stage.ONE_UPLOADED)
    first, second = study.curators
    folder = tmp_path / "data" / "studies" / study.study.hex()
    assert folder.is_dir()
    status = second.server.abort(study.study, "we have changed our minds")
    assert (status.state, status.reason) == ("aborted", "curator 2: we have changed our minds")
    assert study.researcher.server.status(study.study).reason == status.reason
    assert not folder.exists()
    assert first.server.abort(study.study, "so have we").reason == status.reason
    with pytest.raises(StateError):
        study.upload(1)
    assert not folder.exists()
    assert [entry.event for entry in examine(first, study.study).entries][-1] == "aborted"


def test_a_long_reason_can_still_be_read(service: Server, tmp_path: Path) -> None:
    """It is cut to what clients take: a status that nobody can read would hide the end."""
    study = http_study(service, tmp_path, Stage.PROPOSED)
    reason = study.curators[0].server.abort(study.study, "x" * MAX_TEXT).reason
    assert reason is not None
    assert len(reason) == MAX_TEXT
    assert study.curators[1].server.status(study.study).reason == reason


@pytest.mark.slow
def test_grants_end(tmp_path: Path) -> None:
    """After its time, or for what it does not cover, a grant is worth nothing."""
    later = 0.0
    context = replace(make_context(tmp_path / "data"), clock=lambda: time.time() + later)
    with running(context) as service:
        study = http_study(service, tmp_path, Stage.RELEASED)
        first, second = study.curators
        server, to = study.researcher.server, public_identity(study.researcher.identity)
        curator.give_grant(first, first.contract(study.study), to, ["smoker"], context.now + 100)
        release = server.release(study.study).body
        chunks = {column.attribute: column.chunks[0] for column in release.columns}
        assert len(server.release_chunks(study.study, [chunks["smoker"]] * 2)) == 2
        for name in ("age", "income"):
            for asked in ([chunks[name]], [chunks["smoker"], chunks[name]]):
                with pytest.raises(NotGrantedError):
                    server.release_chunks(study.study, asked)
        assert server.status(study.study).granted == ("smoker",)
        later = 101.0
        with pytest.raises(ExpiredError):
            server.release_chunks(study.study, [chunks["smoker"]])
        with pytest.raises(NotGrantedError):
            server.release(study.study)
        assert server.status(study.study).granted == ()
        curator.give_grant(second, second.contract(study.study), to, ["income"], LATER)
        assert server.release_chunks(study.study, [chunks["income"]])
        with pytest.raises(ExpiredError):  # one that has expired refuses all of them
            server.release_chunks(study.study, [chunks["income"], chunks["smoker"]])


@pytest.mark.slow
def test_one_time_grants_leave_their_pads_at_home(service: Server, tmp_path: Path) -> None:
    """The server has the header alone, and serves what it covers; a whole one is refused."""
    study = http_study(service, tmp_path, Stage.RELEASED, terms=HttpTerms(pads="one-time"))
    first = study.curators[0]
    to = public_identity(study.researcher.identity)
    made = curator.give_grant(first, first.contract(study.study), to, None, LATER)
    assert made.sealed is not None
    (kept,) = study.researcher.server.grants(study.study)
    assert kept == made.header()
    answer = post(first, service.url, f"/v1/studies/{study.study.hex()}/grants", made.dumps())
    assert (answer.status_code, answer.json()["code"]) == (409, "mismatch")


@pytest.mark.slow
def test_contracts_of_another_server_are_refused(service: Server, tmp_path: Path) -> None:
    """Here nobody could release them."""
    study = http_study(service, tmp_path, Stage.OPEN)
    party = study.curators[0].identity
    server = PrivateIdentity.create("other", CipherEntropy.from_seed(2, "server"))
    context = make_context(tmp_path / "other", identity=server)
    with context.database.transaction() as records:
        records.add_party(public_identity(party), context.now)
    plain = Request("POST", "/v1/studies", study.contract.dumps())
    with running(context) as other, httpx.Client(base_url=other.url) as client:
        answer = Signer(party, server.party_id).sign(plain).send(client)
    assert (answer.status_code, answer.json()["code"]) == (409, "mismatch")
    assert "another server" in answer.json()["detail"]


def test_registering_again_is_no_change(service: Server, tmp_path: Path) -> None:
    """The same party may show the same invitation twice; another one may not."""
    first = service.join("Süd", tmp_path / "south")
    second = service.join("Nord", tmp_path / "north")
    identity = public_identity(second.identity).to_json()
    keys = {"identity": identity, "rotations": [], "sealing_key": identity["sealing_key"]}
    body = {**keys, "invitation": "0" * 40}
    answer = post(second, service.url, "/v1/parties", dump(body))
    assert (answer.status_code, answer.json()["code"]) == (403, "bad_invitation")
    assert first.server.studies() == second.server.studies() == []


def test_a_study_that_is_not_there(service: Server, tmp_path: Path) -> None:
    """Clients are told so in their own terms."""
    session = service.join("Süd", tmp_path / "south")
    with pytest.raises(NotFoundError):
        session.server.status(bytes(32))


@pytest.mark.slow
def test_two_studies_do_not_mix(service: Server, tmp_path: Path) -> None:
    """The same parties, twice: each study has its own messages, chunks and release."""
    one = http_study(service, tmp_path, Stage.GRANTED)
    parties = [*one.curators, one.researcher]
    terms = HttpTerms(title="another", linkage="matched")
    two = http_study(service, tmp_path, Stage.GRANTED, terms=terms, parties=parties)
    for study in (one, two):
        estimate_study(study.researcher, study.researcher.contract(study.study))
    for mine, other in ((one, two), (two, one)):
        chunk = mine.researcher.server.release(mine.study).body.columns[0].chunks[0]
        with pytest.raises(NotGrantedError):
            mine.researcher.server.release_chunks(other.study, [chunk])
