"""Published copies: drawn once, kept, named in the log, and the same whatever goes wrong."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest

from tests.support.decoy_study import CELLS, DecoyStudy, decoy_study
from tests.support.servers import Server, make_context, running
from veiltab.errors import HomeError, NotGrantedError, StateError
from veiltab.estimates import Estimate
from veiltab.party import curator, publishing, study_folder
from veiltab.party.context import PartyContext
from veiltab.party.evidence import examine
from veiltab.party.home import Home
from veiltab.party.remote import RemoteServer
from veiltab.party.researcher import estimate_study, publish_study
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.in_process import LATER
from veiltab.protocol.researcher import publication

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a service for all tests here."""
    with running(make_context(tmp_path_factory.mktemp("service") / "data")) as service:
        yield service


@pytest.fixture(scope="module")
def study(service: Server, tmp_path_factory: pytest.TempPathFactory) -> DecoyStudy:
    """Return a study that is released, whose curators grant access to whom they like."""
    folder = tmp_path_factory.mktemp("study")
    study = decoy_study(service, folder, "matched", people=3_000, named=False)
    study.push_all()
    return study


@pytest.fixture
def reader(service: Server, study: DecoyStudy, tmp_path: Path) -> PartyContext:
    """Return a new researcher, to whom everything is granted."""
    session = service.join(f"reader of {tmp_path.name}", tmp_path / "reader")
    give(study, session)
    return session


def give(study: DecoyStudy, session: PartyContext, expires: int = LATER) -> None:
    """Let both curators grant everything to a researcher."""
    to = public_identity(session.identity)
    for each in study.curators:
        curator.give_grant(each, each.contract(study.study), to, None, expires)


def publish(study: DecoyStudy, reader: PartyContext, *attributes: str) -> Estimate:
    """Publish as a command would: with nothing remembered but what is in the home."""
    return publish_study(reader, reader.contract(study.study), attributes or None)


def events(study: DecoyStudy, reader: PartyContext) -> list[bytes | None]:
    """Return the digests of the messages of this researcher that the log calls published."""
    entries = examine(reader, study.study).entries
    me = reader.identity.party_id
    return [e.message for e in entries if e.event == "published" and e.actor == me]


def test_a_copy_has_noise_and_stays_the_same(study: DecoyStudy, reader: PartyContext) -> None:
    """In another process too; the log names it by its message, and everybody can fetch that."""
    own = estimate_study(reader, reader.contract(study.study))
    assert own.publication is None
    copy = publish(study, reader)
    assert copy.publication is not None
    assert copy.publication.epsilon == own.plan.epsilon_public
    assert not (copy.counts == own.counts).all()
    assert np.abs(copy.counts - own.counts).max() < 200
    for again in (publish(study, reader), own.publish(), own.publish()):
        assert (again.counts == copy.counts).all()
        assert again.digest == copy.digest
    (message,) = [
        signed
        for signed in study.curators[1].server.publications(study.study)
        if signed.body.researcher == reader.identity.party_id
    ]
    assert message.body.counts.hex() == copy.digest
    assert message.body.attributes == ("first", "second")
    assert events(study, reader) == [message.digest]


def test_every_researcher_has_noise_of_its_own(
    service: Server, study: DecoyStudy, reader: PartyContext, tmp_path: Path
) -> None:
    """Their copies differ, of the same release."""
    other = service.join("another", tmp_path / "other")
    give(study, other)
    copies = [publish(study, session) for session in (reader, other)]
    assert (copies[0].counts != copies[1].counts).any()


def test_parts_come_from_the_copy_and_more_is_refused(
    study: DecoyStudy, reader: PartyContext
) -> None:
    """A second copy would add up with the first one, so there is none."""
    narrow = publish(study, reader, "second")
    with pytest.raises(StateError, match="published already, of second") as caught:
        publish(study, reader, "first", "second")
    assert "add up" in caught.value.hint
    own = estimate_study(reader, reader.contract(study.study))
    with pytest.raises(StateError, match="published already, of second"):
        own.publish()
    assert (own.marginal(["second"]).publish().counts == narrow.counts).all()
    assert len(events(study, reader)) == 1


def test_a_part_of_a_copy_has_the_sums_of_its_noise(
    study: DecoyStudy, reader: PartyContext
) -> None:
    """And its attributes in any order."""
    copy = publish(study, reader)
    part = publish(study, reader, "second")
    table = copy.counts.reshape(3, 2)
    assert part.counts.tolist() == table.sum(axis=0).tolist()
    turned = publish(study, reader, "second", "first")
    assert turned.counts.reshape(2, 3).tolist() == table.T.tolist()
    own = estimate_study(reader, reader.contract(study.study), ["second"])
    assert own.publish().counts.tolist() == part.counts.tolist()


class Stopped(BaseException):
    """As if somebody had pulled the plug."""


class Plug:
    """Stops the process before or after the nth thing that reaches the disk or the server."""

    def __init__(self, number: int) -> None:
        """Count twice: the moment before each, and the moment after it."""
        self.left = number

    def around(self, real: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that may stop before or after it has done its work."""

        def work(*arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - as the real one
            self._tick()
            result = real(*arguments, **options)
            self._tick()
            return result

        return work

    def _tick(self) -> None:
        self.left -= 1
        if self.left == -1:
            raise Stopped


def test_a_publication_that_is_stopped_anywhere_is_taken_up(
    service: Server, study: DecoyStudy, tmp_path: Path
) -> None:
    """Nobody ever sees two copies: what was kept is what is published, once."""
    number, stopped = 0, True
    while stopped:
        reader = service.join(f"researcher {number}", tmp_path / str(number))
        give(study, reader)
        own, plug = estimate_study(reader, reader.contract(study.study)), Plug(number)
        with ExitStack() as stack:
            for owner, name in (
                (study_folder, "write_private"),
                (publishing, "draw_copy"),
                (RemoteServer, "publish"),
                (RemoteServer, "publications"),
            ):
                real = getattr(owner, name)
                stack.enter_context(mock.patch.object(owner, name, plug.around(real)))
            try:
                own.publish()
                stopped = False
            except Stopped:
                pass
        kept = reader.home.study(study.study).published()
        seen = {
            signed.body.counts
            for signed in reader.server.publications(study.study)
            if signed.body.researcher == reader.identity.party_id
        }
        assert not seen or kept is not None
        copy = publish(study, reader)
        assert kept is None or (kept[0].counts == copy.counts).all()
        assert seen <= {bytes.fromhex(copy.digest or "")}
        assert len(events(study, reader)) == 1
        number += 1
    assert number - 1 == 2 * 5  # publications, draw, two files, publish: before and after each


def test_a_lost_home_does_not_draw_a_second_copy(
    study: DecoyStudy, reader: PartyContext, tmp_path: Path
) -> None:
    """An older copy of the home, or a second one: the server remembers, and it is refused."""
    shutil.copytree(reader.home.path, tmp_path / "old")
    copy = publish(study, reader)
    old = replace(reader, home=Home(tmp_path / "old"))
    with pytest.raises(HomeError, match="this home does not have it"):
        publish(study, old)
    assert old.home.study(study.study).published() is None
    assert publish(study, reader).digest == copy.digest


def test_damaged_copies_are_not_published(study: DecoyStudy, reader: PartyContext) -> None:
    """A copy and a message that do not belong together are neither sent nor shown."""
    publish(study, reader)
    path = reader.home.study(study.study).path / "publication.json"
    path.unlink()
    with pytest.raises(HomeError, match="not the one that its publication names"):
        publish(study, reader)


def test_nothing_is_published_without_a_grant(
    service: Server, study: DecoyStudy, tmp_path: Path
) -> None:
    """Nor with the grant of one curator, who might be the reader; afterwards none is needed."""
    reader = service.join(f"reader of {tmp_path.name}", tmp_path / "reader")
    first = study.curators[0]
    to = public_identity(reader.identity)
    made = curator.give_grant(first, first.contract(study.study), to, None, LATER)
    with pytest.raises(NotGrantedError, match=r"every curator; .* from: office$"):
        reader.server.release(study.study)
    with pytest.raises(NotGrantedError, match=r"every curator; .* from: office$"):
        publish(study, reader, "first")
    assert reader.home.study(study.study).published() is None
    give(study, reader)
    copy = publish(study, reader, "first")
    assert copy.schema.names == ("first",)
    late = replace(reader, clock=lambda: float(made.body.expires + 1))
    assert (publish(study, late).counts == copy.counts).all()


def test_nothing_is_published_by_chance_while_a_grant_is_missing(
    service: Server, tmp_path: Path
) -> None:
    """There is one copy for ever, so while a curator has granted nothing, attributes are named."""
    study = decoy_study(service, tmp_path, "aligned", people=3_000, named=False)
    study.push_all()
    reader = service.join("an early bird", tmp_path / "early")
    first, to = study.curators[0], public_identity(reader.identity)
    curator.give_grant(first, first.contract(study.study), to, None, LATER)
    with pytest.raises(NotGrantedError, match="second"):
        publish(study, reader, "first", "second")
    with pytest.raises(NotGrantedError, match="no attribute has been granted yet by") as caught:
        publish(study, reader)
    assert "name the attributes to publish without: 'first'" in caught.value.hint
    assert reader.home.study(study.study).published() is None
    assert not events(study, reader)
    copy = publish(study, reader, "first")
    assert copy.schema.names == publish(study, reader).schema.names == ("first",)


def test_the_server_takes_one_publication_of_each_researcher(
    study: DecoyStudy, reader: PartyContext
) -> None:
    """The same again changes nothing; another one is refused, and the log stays."""
    copy = publish(study, reader)
    kept = reader.home.study(study.study).publication()
    assert kept is not None
    reader.server.publish(study.study, kept)
    own = estimate_study(reader, reader.contract(study.study))
    assert isinstance(own.publisher, publishing.StudyPublisher)
    other = publication(own.publisher.access, reader.identity, copy.schema.names, bytes(32))
    with pytest.raises(StateError, match="published another copy"):
        reader.server.publish(study.study, other)
    assert events(study, reader) == [kept.digest]
    for session in study.curators:
        forged = publication(own.publisher.access, session.identity, ["first"], bytes(32))
        with pytest.raises(NotGrantedError):
            session.server.publish(study.study, forged)


def test_the_whole_table_is_published_by_default(study: DecoyStudy, reader: PartyContext) -> None:
    """Everything that is granted, cell by cell."""
    assert publish(study, reader).counts.size == len(CELLS)
