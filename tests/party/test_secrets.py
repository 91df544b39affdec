"""The study's secret: every curator contributes, nothing is lost, and nobody is left out."""

from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import pytest

from tests.support.http_simulator import HttpStudy, HttpTerms, http_study, join_parties
from tests.support.servers import Server, make_context, running
from tests.support.simulator import SHARES, Stage, holdings_of
from veiltab.errors import ConnectionFailedError, HomeError, MismatchError, StateError
from veiltab.party import curator
from veiltab.party.context import PartyContext
from veiltab.party.remote import RemoteServer
from veiltab.party.secrets import combined_secret, share_contribution
from veiltab.wire.messages import Secret
from veiltab.wire.signed import Signed

pytestmark = pytest.mark.slow

TERMS = HttpTerms(shares=SHARES[:3])


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a service for the studies of all tests here."""
    with running(make_context(tmp_path_factory.mktemp("service") / "data")) as service:
        yield service


def sealed_by(study: HttpStudy, sender: PartyContext) -> list[bytes]:
    """Return to whom a curator has sealed its contribution, as the server knows it."""
    me = sender.identity.party_id
    messages = sender.server.secrets(study.study)
    return [message.body.receiver for message in messages if message.body.sender == me]


def test_all_put_the_same_secret_together(service: Server, tmp_path: Path) -> None:
    """From contributions that all differ; it is none of them, and it is kept."""
    study = http_study(service, tmp_path, Stage.OPEN, terms=TERMS)
    contract = study.contract.body
    secrets = {combined_secret(session, contract) for session in study.curators}
    assert len(secrets) == 1
    folders = [session.home.study(study.study) for session in study.curators]
    contributions = {folder.contribution() for folder in folders}
    assert len(contributions) == 3
    assert None not in contributions
    assert not secrets & contributions
    assert {folder.secret() for folder in folders} == secrets


class Broken:
    """A connection that breaks at the nth secret, before or after the server has it."""

    def __init__(self, after: int, *, arrives: bool) -> None:
        """Let some secrets through."""
        self.left, self.arrives = after, arrives
        self.kept: list[bytes | None] = []
        self.session: PartyContext | None = None

    def __call__(self, study: bytes, signed: Signed[Secret]) -> None:
        """Send one, and look what the home holds at that moment."""
        assert self.session is not None
        self.kept.append(self.session.home.study(study).contribution())
        self.left -= 1
        if self.left >= 0 or self.arrives:
            RemoteServer.send_secret(self.session.server, study, signed)
        if self.left < 0:
            raise ConnectionFailedError("the cable is out", hint="plug it in")


@pytest.mark.parametrize("arrives", [False, True])
@pytest.mark.parametrize("after", [0, 1])
def test_signing_again_sends_what_is_missing(
    service: Server, tmp_path: Path, after: int, *, arrives: bool
) -> None:
    """Wherever it broke off: the same contribution, each once; kept before it was sent."""
    study = http_study(service, tmp_path, Stage.PROPOSED, terms=TERMS)
    session = study.curators[1]
    broken = Broken(after, arrives=arrives)
    broken.session = session
    signed = session.contract(study.study)
    with (
        mock.patch.object(session.server, "send_secret", broken),
        pytest.raises(ConnectionFailedError),
    ):
        curator.sign(session, signed, TERMS.ledger)
    kept = session.home.study(study.study).contribution()
    assert broken.kept
    assert set(broken.kept) == {kept}
    assert len(sealed_by(study, session)) == after + arrives
    assert not any(c.signed for c in session.server.status(study.study).curators[1:])
    curator.sign(session, signed, TERMS.ledger)
    assert session.home.study(study.study).contribution() == kept
    assert len(sealed_by(study, session)) == 2
    curator.sign(study.curators[2], signed, TERMS.ledger)
    assert study.curators[0].server.status(study.study).state == "open"
    contract = study.contract.body
    assert len({combined_secret(each, contract) for each in study.curators}) == 1


def test_a_part_that_is_missing_is_asked_for(service: Server, tmp_path: Path) -> None:
    """By name, with what to run; after that all goes on."""
    study = http_study(service, tmp_path, Stage.PROPOSED, terms=TERMS)
    contract = study.contract.body
    with pytest.raises(StateError, match="part of 'curator 2', 'curator 3'") as caught:
        combined_secret(study.curators[0], contract)
    assert "veiltab study sign" in caught.value.hint
    study.go_to(Stage.OPEN)
    assert combined_secret(study.curators[0], contract)


def test_a_proposer_who_was_stopped_sends_its_part_by_signing(
    service: Server, tmp_path: Path
) -> None:
    """Also when everybody else has signed by then."""
    names = ["curator 1", "curator 2", "curator 3", "researcher"]
    *curators, researcher = join_parties(service, tmp_path, names)
    first, second, third = curators
    attributes = [table.attributes for table in holdings_of(TERMS.shares, 1)]
    draft = TERMS.draft(curators, attributes, researcher)
    with (
        mock.patch.object(RemoteServer, "send_secret", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        curator.propose(first, draft, TERMS.ledger)
    (summary,) = first.server.studies()
    stopped = summary.study
    for session in (second, third):
        curator.sign(session, session.contract(stopped), TERMS.ledger)
    contract = first.contract(stopped)
    assert first.server.status(stopped).state == "open"
    with pytest.raises(StateError, match="part of 'curator 1'"):
        combined_secret(second, contract.body)
    curator.sign(first, contract, TERMS.ledger)
    assert combined_secret(second, contract.body) == combined_secret(first, contract.body)


def test_a_home_that_has_lost_its_part_does_not_draw_another(
    service: Server, tmp_path: Path
) -> None:
    """The others have the first one: the rows would never match."""
    study = http_study(service, tmp_path, Stage.OPEN, terms=TERMS)
    session, contract = study.curators[1], study.contract.body
    (session.home.study(study.study).path / "contribution.json").unlink()
    with pytest.raises(HomeError, match="has lost its part"):
        share_contribution(session, contract)
    with pytest.raises(StateError, match="part of 'curator 2'"):
        combined_secret(session, contract)


def test_the_proposers_part_is_the_one_that_the_contract_commits_to(
    service: Server, tmp_path: Path
) -> None:
    """A proposer who hands out another one is found out."""
    study = http_study(service, tmp_path, Stage.PROPOSED, terms=HttpTerms())
    first, second = study.curators
    contract = study.contract.body
    path = second.home.study(study.study).path
    curator.sign(second, second.contract(study.study), TERMS.ledger)
    other = mock.patch("veiltab.party.secrets.receive_secret", return_value=bytes(32))
    with other, pytest.raises(MismatchError):
        combined_secret(second, contract)
    assert not (path / "secret.json").exists()
    assert combined_secret(first, contract) == combined_secret(second, contract)
