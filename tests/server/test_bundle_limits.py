"""Bundles at the service: how much memory they take, and what happens when there is no more."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.http_simulator import HttpStudy, HttpTerms, http_study
from tests.support.servers import QUICK, Server, make_context, running
from tests.support.simulator import Stage
from veiltab.errors import DigestError, TooLargeError
from veiltab.party.progress import ignore_progress
from veiltab.party.push import push
from veiltab.party.remote import RemoteServer
from veiltab.party.researcher import estimate_study
from veiltab.server.context import ANSWER_BYTES
from veiltab.server.limits import Memory


def released(study: HttpStudy) -> list[bytes]:
    """Return the digests of all columns."""
    release = study.researcher.server.release(study.study).body
    return [digest for column in release.columns for digest in column.chunks]


@pytest.mark.slow
@pytest.mark.parametrize("room", [0, ANSWER_BYTES])
def test_answers_are_the_same_with_little_memory(tmp_path: Path, room: int) -> None:
    """If too many readers are slow, chunks are read again as they are sent; all is given back."""
    context = replace(make_context(tmp_path / "data"), answers=Memory(room))
    with running(context) as service:
        study = http_study(service, tmp_path, Stage.GRANTED)
        digests = released(study)
        assert len(digests) > 1
        store = context.folders.released(study.study)
        for _ in range(3):
            chunks = study.researcher.server.release_chunks(study.study, digests)
            assert chunks == [store.get(digest) for digest in digests]
        estimate_study(study.researcher, study.researcher.contract(study.study))
    assert context.answers._free == room


@pytest.mark.slow
def test_an_answer_has_its_limit(tmp_path: Path) -> None:
    """One byte more is refused; a part of it may be asked for."""
    context = make_context(tmp_path / "data")
    with running(context) as service:
        study = http_study(service, tmp_path, Stage.GRANTED)
        digests, server = released(study), study.researcher.server
        length = 4 + sum(36 + len(chunk) for chunk in server.release_chunks(study.study, digests))
    for most in (length, length - 1):
        settings = replace(QUICK, bundle_bytes=most)
        with running(replace(context, settings=settings)) as service:
            server = RemoteServer(service.url, context.identity, study.researcher.identity)
            if most < length:
                with pytest.raises(TooLargeError, match=f"the answer has more than {most:,} bytes"):
                    server.release_chunks(study.study, digests)
            assert server.release_chunks(study.study, digests[: len(digests) - (most < length)])
            server.close()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Server]:
    """Run a service."""
    with running(make_context(tmp_path / "data")) as service:
        yield service


@pytest.mark.slow
def test_a_chunk_that_the_curators_own_disk_has_damaged(service: Server, tmp_path: Path) -> None:
    """Is refused by the server, and named; with the file restored, pushing again is enough."""
    study = http_study(service, tmp_path, Stage.PREPARED, terms=HttpTerms(linkage="matched"))
    session = study.curators[0]
    file = min(session.home.study(study.study).outgoing.iterdir())
    whole = file.read_bytes()
    file.write_bytes(os.urandom(len(whole)))
    with pytest.raises(DigestError, match=f"stored chunk {file.name} is damaged"):
        push(session, session.contract(study.study), None, ignore_progress, None)
    assert bytes.fromhex(file.name) not in session.server.sent_chunks(study.study)
    file.write_bytes(whole)
    status = push(session, session.contract(study.study), None, ignore_progress, None)
    assert [each.uploaded for each in status.curators] == [True, False]
