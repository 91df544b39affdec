"""Servers that lie with their own good key: about a release, about the rows, about the log."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from sqlalchemy import update

from tests.support.servers import Server, make_context, running
from veiltab.party.context import PartyContext
from veiltab.party.remote import RemoteServer
from veiltab.protocol.server import study as server_study
from veiltab.protocol.server.match import Shuffled
from veiltab.protocol.server.release import perturb_and_sign
from veiltab.protocol.sorting import Records
from veiltab.protocol.verify import sign
from veiltab.server.context import ServiceContext
from veiltab.server.db.tables import MESSAGES, STUDIES
from veiltab.wire.messages import Release
from veiltab.wire.signed import Signed

Change = Callable[[Release], Release]


@contextmanager
def lying_releases(change: Change) -> Iterator[None]:
    """Let the servers of this process release something else, sign it, and log it as it is."""
    honest = perturb_and_sign

    def lying(contract: Any, plan: Any, joined: Any, uploads: Any, key: Any, **rest: Any) -> Any:  # noqa: ANN401
        released = honest(contract, plan, joined, uploads, key, **rest)
        return sign(change(released.body), key)

    with mock.patch.object(server_study, "perturb_and_sign", lying):
        yield


@contextmanager
def copied_rows(copies: int) -> Iterator[None]:
    """Let the servers of this process release one respondent's row so many times."""
    honest = Shuffled.sample

    def copying(self: Shuffled, size: int) -> Iterator[list[Records]]:
        for chunk in honest(self, size):
            rows = np.arange(chunk[0].size)
            rows[:copies] = 0
            yield [np.ascontiguousarray(table[rows]) for table in chunk]

    with mock.patch.object(Shuffled, "sample", copying):
        yield


def released_by(context: ServiceContext, study: bytes) -> Signed[Release]:
    """Return the release that a server has kept."""
    with context.database.reading() as records:
        (message,) = records.messages(study, Release.kind)
    return Release.loads(message.content)


@contextmanager
def serving_instead(context: ServiceContext, study: bytes, change: Change) -> Iterator[Release]:
    """Let a server serve another release than the logged one, signed by its own key."""
    real = released_by(context, study)
    other = sign(change(real.body), context.key)
    _put(context, study, other.dumps())
    try:
        yield other.body
    finally:
        _put(context, study, real.dumps())


def _put(context: ServiceContext, study: bytes, content: bytes) -> None:
    chosen = MESSAGES.c.study == study, MESSAGES.c.kind == Release.kind
    with context.database.transaction() as records:
        records._connection.execute(update(MESSAGES).where(*chosen).values(content=content))


@contextmanager
def contract_instead(context: ServiceContext, study: bytes, content: bytes) -> Iterator[None]:
    """Let a server serve a contract with other signatures."""
    with context.database.reading() as records:
        record = records.study(study)
    assert record is not None
    changed = update(STUDIES).where(STUDIES.c.study == study)
    with context.database.transaction() as records:
        records._connection.execute(changed.values(contract=content))
    try:
        yield
    finally:
        with context.database.transaction() as records:
            records._connection.execute(changed.values(contract=record.contract))


@contextmanager
def forked(service: Server, folder: Path) -> Iterator[Server]:
    """Run a second server with the same key, and a copy of all that the first one has."""
    data = service.context.folders.path
    service.context.database.scrub()
    shutil.copytree(data, folder)
    with running(make_context(folder)) as second:
        yield second


def moved(session: PartyContext, service: Server) -> PartyContext:
    """Return a party that another server of the same name and key answers."""
    server = RemoteServer(service.url, session.server.pinned, session.identity)
    moved_there = replace(session, server=server)
    service.sessions.append(moved_there)
    return moved_there
