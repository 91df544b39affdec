"""What each party can see of a study, and what nobody ever can: data that is not perturbed."""

import base64
import hashlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest

from tests.support.http_simulator import (
    HttpStudy,
    HttpTerms,
    held_releases,
    http_study,
    join_parties,
)
from tests.support.requests import CURATORS, NAMED, RELEASED, Request, Route, asked, signer_of
from tests.support.servers import make_context, running
from tests.support.simulator import Stage
from veiltab.files.chunks import JoinedChunks
from veiltab.party.context import PartyContext
from veiltab.server import views
from veiltab.server.context import ServiceContext
from veiltab.wire.bundles import unbundle

pytestmark = pytest.mark.slow

READS = sorted(route for route in NAMED | CURATORS | RELEASED if route[0] == "GET")
CHUNKS = ("POST", "/v1/studies/{study}/release/chunks")
STATUS_KEYS = {
    "study",
    "title",
    "state",
    "reason",
    "role",
    "updated",
    "curators",
    "researchers",
    "granted",
}


@dataclass(eq=False)
class Watched:
    """A study, and everything that was ever on the server's disk for it."""

    study: HttpStudy
    outsider: PartyContext
    client: httpx.Client
    joined: dict[bytes, bytes] = field(default_factory=dict)

    @property
    def parties(self) -> dict[str, PartyContext]:
        """Everybody, by role."""
        first, second = self.study.curators
        names = {"first": first, "second": second, "researcher": self.study.researcher}
        return {**names, "outsider": self.outsider}

    def unperturbed(self) -> dict[bytes, bytes]:
        """Return all chunks that must never be served, by digest."""
        return {**self.study.chunks(0), **self.study.chunks(1), **self.joined}

    def get(self, session: PartyContext, path: str) -> httpx.Response:
        """Ask for something, as a party."""
        return signer_of(session).sign(Request("GET", path)).send(self.client)

    def answers(self, session: PartyContext) -> Iterator[tuple[Route, httpx.Response]]:
        """Ask everything that can be asked, with every digest that can be guessed."""
        for route in READS:
            yield (
                route,
                self.get(session, route[1].format(study=self.study.study.hex(), digest="00" * 32)),
            )
        hidden, released = [*self.unperturbed()], self._released()
        for digest in (*hidden, *released):
            yield CHUNKS, self.ask(session, [digest])
        for digest in hidden:  # also in good company
            yield CHUNKS, self.ask(session, [*released, digest, *released])

    def ask(self, session: PartyContext, digests: Sequence[bytes]) -> httpx.Response:
        """Ask for released chunks, as a party."""
        path = CHUNKS[1].format(study=self.study.study.hex())
        plain = Request("POST", path, asked(digests))
        return signer_of(session).sign(plain).send(self.client)

    def _released(self) -> list[bytes]:
        if self.study.stage < Stage.RELEASED:
            return []
        release = self.study.curators[0].server.release(self.study.study).body
        columns = [column.chunks for column in release.columns]
        return [digest for chunks in columns for digest in chunks]


@pytest.fixture(params=["aligned", "matched"])
def watched(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Watched]:
    """Return a study that is prepared, of either kind, whose joined rows are noted too."""
    joined: dict[bytes, bytes] = {}

    real = JoinedChunks.put

    def put(self: JoinedChunks, chunk: bytes) -> bytes:
        digest = real(self, chunk)
        joined[digest] = chunk
        return digest

    monkeypatch.setattr(JoinedChunks, "put", put)
    with (
        running(make_context(tmp_path / "data")) as service,
        httpx.Client(base_url=service.url) as client,
    ):
        *parties, outsider = join_parties(service, tmp_path, ("Süd", "Nord", "Dr. West", "Ost"))
        terms = HttpTerms(linkage=request.param)
        study = http_study(service, tmp_path, Stage.PREPARED, terms=terms, parties=parties)
        yield Watched(study, outsider, client, joined)


def forms(data: bytes) -> list[bytes]:
    """Return the ways in which an answer could hold some bytes."""
    return [data, data.hex().encode(), base64.b64encode(data)]


def leaks(watched: Watched) -> list[tuple[str, Route, str]]:
    """Find everything in any answer to anybody that should not be there."""
    found = []
    chunks = watched.unperturbed()
    own = {name: set(watched.study.chunks(i)) for i, name in enumerate(("first", "second"))}
    for name, session in watched.parties.items():
        for route, answer in watched.answers(session):
            hidden = {f"chunk {d.hex()}": forms(c) for d, c in chunks.items()}
            hidden |= {
                f"id {u.body.upload_id.hex()}": forms(u.body.upload_id)
                for u in watched.study.uploads
            }
            foreign = chunks.keys() - own.get(name, set())
            hidden |= {f"digest {digest.hex()}": forms(digest) for digest in foreign}
            content = answer.content
            found += [
                (name, route, what)
                for what, written in hidden.items()
                if any(form in content for form in written)
            ]
    return found


def test_nothing_unperturbed_is_ever_served(watched: Watched) -> None:
    """To nobody, on no route, in no state: neither chunks, nor upload ids, nor others' digests."""
    study = watched.study
    assert min(len(chunk) for chunk in watched.unperturbed().values()) > 20
    study.go_to(Stage.ONE_UPLOADED)
    assert leaks(watched) == []
    with held_releases():
        study.go_to(Stage.UPLOADED)
        assert study.curators[0].server.status(study.study).state == "uploaded"
        assert leaks(watched) == []
    study.go_to(Stage.GRANTED)
    assert (len(watched.joined) > 0) == (study.terms.linkage == "matched")
    assert leaks(watched) == []
    served = [route for route, answer in watched.answers(study.researcher) if answer.is_success]
    assert CHUNKS in served


def test_the_search_finds_what_it_looks_for(
    watched: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service that serves what it has received would be noticed."""
    study = watched.study.go_to(Stage.ONE_UPLOADED)
    party = study.curators[0].identity.party_id

    def leaky(
        context: ServiceContext, _: object, number: bytes, digests: Sequence[bytes]
    ) -> views.Served:
        store = context.folders.received(number, party)
        body = b"".join(store.get(digest) for digest in digests if store.has(digest))
        return views.Served(len(body), iter([body]))

    monkeypatch.setattr(views, "release_chunks", leaky)
    found = leaks(watched)
    assert {name for name, _, _ in found} == {"first", "second", "researcher", "outsider"}
    assert {route for _, route, _ in found} == {CHUNKS}


def test_guessed_digests_are_refused_alike(watched: Watched) -> None:
    """Whether the server has received such a chunk or not."""
    watched.study.go_to(Stage.GRANTED)
    answers = {
        name: [watched.ask(session, [digest]) for digest in (*watched.unperturbed(), bytes(32))]
        for name, session in watched.parties.items()
    }
    codes = {name: {a.json()["code"] for a in found} for name, found in answers.items()}
    assert codes == {
        "first": {"not_granted"},
        "second": {"not_granted"},
        "researcher": {"not_granted"},
        "outsider": {"not_found"},
    }
    assert all(len({answer.content for answer in found}) == 1 for found in answers.values())


def test_what_is_left_on_the_disk(watched: Watched, tmp_path: Path) -> None:
    """After the release: the perturbed chunks, and nothing else of the study."""
    study = watched.study.go_to(Stage.RELEASED)
    folder = tmp_path / "data" / "studies" / study.study.hex()
    release = study.curators[0].server.release(study.study).body
    columns = [column.chunks for column in release.columns]
    columns += [upload.positions or () for upload in release.uploads]
    expected = {digest for chunks in columns for digest in chunks}
    end = time.monotonic() + 10  # it is deleted right after the release can be seen
    while time.monotonic() < end and [each.name for each in folder.iterdir()] != ["released"]:
        time.sleep(0.02)
    [bundle] = [path for path in folder.rglob("*") if path.is_file()]
    found = {hashlib.sha256(chunk).digest() for _, chunk in unbundle(bundle.read_bytes())}
    assert (bundle.parent.name, found) == ("released", expected)
    assert expected.isdisjoint(watched.unperturbed())


def test_a_status_says_this_and_no_more(watched: Watched) -> None:
    """The same fields for each role; what was granted is the asking researcher's own."""
    study = watched.study.go_to(Stage.GRANTED)
    path = f"/v1/studies/{study.study.hex()}"
    found = {name: watched.get(s, path).json() for name, s in watched.parties.items()}
    assert found.pop("outsider")["code"] == "not_found"
    for status in found.values():
        assert status.keys() == STATUS_KEYS
        assert all(
            each.keys() == {"name", "party", "signed", "aligned", "uploaded"}
            for each in status["curators"]
        )
        assert all(each.keys() == {"name", "party"} for each in status["researchers"])
        assert (status["state"], status["reason"]) == ("released", None)
    assert {name: each["role"] for name, each in found.items()} == {
        "first": "curator",
        "second": "curator",
        "researcher": "researcher",
    }
    assert found["researcher"]["granted"] == ["smoker", "age", "income", "region"]
    assert found["first"]["granted"] == found["second"]["granted"] == []
    differing = {"role", "granted"}
    rest = [{k: v for k, v in each.items() if k not in differing} for each in found.values()]
    assert rest[0] == rest[1] == rest[2]


def test_grants_are_between_two(watched: Watched) -> None:
    """A curator sees those that it gave, a researcher those that it was given."""
    study = watched.study.go_to(Stage.GRANTED)
    first, second = study.curators
    given = {
        name: {grant.body.curator for grant in session.server.grants(study.study)}
        for name, session in watched.parties.items()
        if name != "outsider"
    }
    assert given == {
        "first": {first.identity.party_id},
        "second": {second.identity.party_id},
        "researcher": {first.identity.party_id, second.identity.party_id},
    }


def test_a_grant_makes_a_researcher(tmp_path: Path) -> None:
    """If the contract names none, whoever is granted something is let in, and nobody before."""
    with running(make_context(tmp_path / "data")) as service:
        study = http_study(service, tmp_path, Stage.RELEASED, terms=HttpTerms(named=False))
        server = study.researcher.server
        assert server.studies() == []
        study.go_to(Stage.GRANTED)
        (line,) = server.studies(inbox=True)
        assert (line.study, line.role) == (study.study, "researcher")
        assert server.status(study.study).researchers is None
