"""Server and researcher together against an honest study over HTTP, and what others are told.

The rows are matched, and each curator holds people whom the other does not.  The server keeps every
byte that it receives, the researcher hands over all pads, and together they open every row of every
upload.  What they get is the extended histogram: people who take part, and decoys, which nothing
but the study secret tells apart.
"""

import json
import logging
import re
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from unittest import mock

import httpx
import numpy as np
import polars as pl
import pytest

from tests.support.chunks import read_column, read_positions, read_released, read_tokens
from tests.support.decoy_study import DecoyStudy
from tests.support.decoys import reference_decoys
from tests.support.http_simulator import HttpTerms, held_releases, join_parties
from tests.support.laws import assert_fits
from tests.support.servers import Server, make_context, running, wait_for
from tests.support.simulator import attribute, tokens_of
from veiltab.core import group
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Geometric
from veiltab.data.ids import id_messages
from veiltab.errors import NotGrantedError, WithheldError
from veiltab.party import curator
from veiltab.party.connection import Connection
from veiltab.party.context import PartyContext
from veiltab.party.researcher import estimate_study
from veiltab.party.secrets import combined_secret
from veiltab.protocol.researcher import Access, open_access
from veiltab.protocol.stores import MemoryChunks
from veiltab.server.monitoring import JsonFormatter
from veiltab.wire.mechanism import DecoyTerms
from veiltab.wire.messages import Upload
from veiltab.wire.signed import Signed

pytestmark = pytest.mark.slow

ATTRIBUTES = (attribute("first", 30), attribute("second", 20))
ABSENT = (30, 20)
PEOPLE, ALONE = 9000, 3500
"""How many people each curator holds, and how many of them the other does not."""

LAW = Geometric(3 * DRAW_RANGE // 4)
TERMS = DecoyTerms(
    coin_threshold=DRAW_RANGE // 3, decoys=LAW, epsilon_public=0.7, keep_threshold=None
)
Pattern = tuple[int, ...]
"""A cell of each curator; its number of cells stands for absence."""


@dataclass(frozen=True)
class Row:
    """A row that is opened: its token, its pattern, and its place in each upload, or -1."""

    token: bytes
    pattern: Pattern
    places: tuple[int, ...]


@dataclass
class Heard:
    """What was listened to: answers by connection, and lines of all logs."""

    answers: list[tuple[int, bytes]] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)


@dataclass(eq=False)
class Conspiracy:
    """A study that went well, and all that anybody has seen of it."""

    study: DecoyStudy
    folder: Path
    """Where the server's data and the homes of all parties are."""
    uploads: list[Signed[Upload]]
    received: list[MemoryChunks]
    """What the server has copied of each curator's chunks, before it released the study."""
    answers: dict[str, list[bytes]]
    """Every answer of the server, by the name of the party."""
    logs: list[str]
    metrics: list[str]
    """The metrics before any upload, and before and after the researcher's visit."""

    @cached_property
    def access(self) -> Access:
        """What the researcher has: the release, and the pads of every row of every upload."""
        session, study = self.study.researcher, self.study.study
        release, grants = session.server.release(study), session.server.grants(study)
        return open_access(session.identity, session.contract(study), release, grants, now=0)

    @cached_property
    def rows(self) -> list[Row]:
        """All uploads, opened and put together by their tokens."""
        opened: dict[bytes, tuple[list[int], list[int]]] = {}
        for place, (upload, chunks) in enumerate(zip(self.uploads, self.received, strict=True)):
            body, held = upload.body, ATTRIBUTES[place]
            pads = self.access.pads[held.name].rows(slice(0, body.rows))
            column = read_column(body.columns[0].chunks, held, body.rows, chunks)
            codes = group.subtract(column, pads, held.size).tolist()
            tokens = read_tokens(body.tokens or (), body.rows, chunks)
            for number, (token, code) in enumerate(zip(tokens, codes, strict=True)):
                cells, places = opened.setdefault(token.tobytes(), (list(ABSENT), [-1, -1]))
                cells[place], places[place] = code, number
        return [
            Row(token, tuple(cells), tuple(places)) for token, (cells, places) in opened.items()
        ]

    @cached_property
    def people(self) -> dict[bytes, Pattern]:
        """Who really takes part, which only a curator can know: the pattern of each token."""
        contract = self.study.contract.body
        secret = combined_secret(self.study.curators[0], contract)
        held: dict[bytes, list[int]] = {}
        for place, table in enumerate(self.study.tables):
            codes = table.get_columns()[1].cast(pl.Int64).to_list()
            tokens = tokens_of(contract, secret, id_messages(table, ["id"], ()))
            for token, code in zip(tokens, codes, strict=True):
                if int.from_bytes(token[:8].tobytes(), "big") < TERMS.coin_threshold:
                    held.setdefault(token.tobytes(), list(ABSENT))[place] = code
        return {token: tuple(cells) for token, cells in held.items()}

    @cached_property
    def decoys(self) -> dict[bytes, Pattern]:
        """The decoys, from the specification and the secret: the pattern of each token."""
        contract = self.study.contract.body
        secret = combined_secret(self.study.curators[0], contract)
        radix = ABSENT[1] + 1
        return {
            token: divmod(pattern, radix) for pattern, token in reference_decoys(contract, secret)
        }


@contextmanager
def listening() -> Iterator[Heard]:
    """Record every answer that a party gets, refusals too, and every line of any log.

    Of other libraries no line below INFO: there they write down the length of every answer.
    """
    heard = Heard()
    judge = Connection._judge

    def record(self: Connection, answer: httpx.Response, body: bytes, limit: int) -> bytes:
        heard.answers.append((id(self), body))
        return judge(self, answer, body, limit)

    class Recorder(logging.Handler):
        def emit(self, entry: logging.LogRecord) -> None:
            if entry.levelno >= logging.INFO or entry.name.startswith("veiltab"):
                heard.logs.append(JsonFormatter().format(entry))

    root, recorder = logging.getLogger(), Recorder()
    level = root.level
    root.addHandler(recorder)
    root.setLevel(logging.DEBUG)
    try:
        with mock.patch.object(Connection, "_judge", record):
            yield heard
    finally:
        root.removeHandler(recorder)
        root.setLevel(level)


def tables() -> list[pl.DataFrame]:
    """Return the curators' tables, with codes that follow from the person."""
    frames = []
    for place, held in enumerate(ATTRIBUTES):
        ids = np.arange(PEOPLE) + place * ALONE
        codes = (ids * (7 + place) + ids // 11) % held.size
        frames.append(pl.DataFrame({"id": ids, held.name: [str(code) for code in codes]}))
    return frames


def open_study(server: Server, folder: Path) -> DecoyStudy:
    """Let two curators agree on a matched study with decoys."""
    *curators, researcher = join_parties(server, folder, ["hospital", "office", "researcher"])
    terms = HttpTerms(title="collusion", linkage="matched", epsilon=0.7, mechanism=TERMS)
    draft = terms.draft(curators, [[held] for held in ATTRIBUTES], researcher)
    study = curator.propose(curators[0], draft, terms.ledger).study_id
    curator.sign(curators[1], curators[1].contract(study), terms.ledger)
    return DecoyStudy(curators, researcher, tables(), study)


def copy_received(
    server: Server, study: DecoyStudy
) -> tuple[list[Signed[Upload]], list[MemoryChunks]]:
    """Let the server put aside what it has of both uploads, before it releases the study."""
    with server.context.database.reading() as records:
        messages = records.messages(study.study, Upload.kind)
    uploads = {message.sender: Upload.loads(message.content) for message in messages}
    kept = []
    for session in study.curators:
        folder = server.context.folders.received(study.study, session.identity.party_id)
        kept.append(MemoryChunks())
        for digest in folder.digests():
            kept[-1].put(folder.get(digest))
    return [uploads[session.identity.party_id] for session in study.curators], kept


def ask_for_everything(session: PartyContext, study: bytes) -> None:
    """Ask every question that the service answers a party of a study."""
    server = session.server
    questions = [server.status, server.contract, server.audit, server.grants, server.publications]
    server.studies()
    for question in questions:
        question(study)


def ask_as_curator(session: PartyContext, study: bytes) -> None:
    """Ask a curator's questions as well, and those that are not for it."""
    ask_for_everything(session, study)
    server = session.server
    server.secrets(study)
    server.alignments(study)
    server.sent_chunks(study)
    with pytest.raises(WithheldError):
        server.release(study)
    with pytest.raises(NotGrantedError):
        server.release_chunks(study, [bytes(32)])


@pytest.fixture(scope="module")
def conspiracy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Conspiracy]:
    """Go through a whole study, and listen everywhere."""
    folder = tmp_path_factory.mktemp("conspiracy")
    with running(make_context(folder / "data")) as server, listening() as heard:
        study = open_study(server, folder)
        metrics = [server.metrics()]
        with held_releases():
            for place in (0, 1, 0):
                study.push(place)
            uploads, received = copy_received(server, study)
        wait_for(study.curators[0], study.study, "released")
        study.grant()
        metrics.append(server.metrics())
        reader = study.researcher
        estimate_study(reader, reader.contract(study.study))
        metrics.append(server.metrics())
        for session in study.curators:
            ask_as_curator(session, study.study)
        ask_for_everything(reader, study.study)
        names = {id(party.server._connection): party.identity.name for party in server.sessions}
        answers: dict[str, list[bytes]] = {name: [] for name in names.values()}
        for connection, body in heard.answers:
            if connection in names:  # others have asked who the server is, to register
                answers[names[connection]].append(body)
        yield Conspiracy(study, folder, uploads, received, answers, heard.logs, metrics)


def test_they_open_the_extended_histogram_and_no_more(conspiracy: Conspiracy) -> None:
    """Every row of both uploads is somebody who takes part, or a decoy; nobody else is there."""
    opened = {row.token: row.pattern for row in conspiracy.rows}
    people, decoys = conspiracy.people, conspiracy.decoys
    assert not people.keys() & decoys.keys()
    assert opened == people | decoys
    alone = Counter(
        pattern.index(absent)
        for pattern in people.values()
        for absent in ABSENT
        if absent in pattern
    )
    assert min(alone[0], alone[1]) > 1000  # whom one curator holds alone
    assert len(people) < (PEOPLE + ALONE) / 2


def test_the_release_shows_them_nothing_new(conspiracy: Conspiracy) -> None:
    """Its rows are those that both curators sent, at the positions that it states."""
    release, chunks = conspiracy.access.release, MemoryChunks()
    whole = {row.places: row.pattern for row in conspiracy.rows if -1 not in row.places}
    digests = [digest for column in release.columns for digest in column.chunks]
    digests += [digest for upload in release.uploads for digest in upload.positions or ()]
    for chunk in conspiracy.study.researcher.server.release_chunks(conspiracy.study.study, digests):
        chunks.put(chunk)
    positions = [
        read_positions(upload.positions or (), release.rows, chunks) for upload in release.uploads
    ]
    stated = list(zip(*(column.tolist() for column in positions), strict=True))
    assert Counter(stated) == Counter(whole.keys())
    for place, (held, column) in enumerate(zip(ATTRIBUTES, release.columns, strict=True)):
        encrypted = read_released(column.chunks, held, release.rows, chunks)
        pads = conspiracy.access.pads[held.name].at(positions[place])
        decrypted = group.subtract(encrypted, pads, held.size).tolist()
        assert decrypted == [whole[places][place] for places in stated]


def test_every_pattern_has_decoys_by_the_law(conspiracy: Conspiracy) -> None:
    """What is left of the histogram without the people is geometric, in all 650 patterns.

    Those of one curator's absence, too, and independently of whether somebody is there.
    Chi-square with 1e-9 false alarms.
    """
    rows = Counter(row.pattern for row in conspiracy.rows)
    people = Counter(conspiracy.people.values())
    patterns = [divmod(number, ABSENT[1] + 1) for number in range(31 * 21 - 1)]
    assert set(rows) <= set(patterns)
    last = 9
    law = np.array([float(LAW.probability(number)) for number in range(last)])
    expected = np.append(law, 1 - law.sum())
    for chosen in (patterns, [p for p in patterns if p[0] == 30 or p[1] == 20]):
        left = [min(rows[pattern] - people[pattern], last) for pattern in chosen]
        share = expected
        counts = np.bincount(left, minlength=last + 1)
        if len(chosen) < 100:  # fewer patterns, wider classes
            counts, share = counts.reshape(-1, 5).sum(axis=1), share.reshape(-1, 5).sum(axis=1)
        assert_fits(counts, share)


def test_nothing_about_a_row_tells_whether_it_is_a_decoy(conspiracy: Conspiracy) -> None:
    """Tokens are uniform below the coin for people and for decoys, and both are mixed anywhere.

    Chi-square with 1e-9 false alarms; the places by the sum of ranks, within 6.1 of its standard
    errors, which is as rare.
    """
    kinds = {True: conspiracy.decoys.keys(), False: conspiracy.people.keys()}
    for tokens in kinds.values():
        high = np.array([int.from_bytes(token[:8], "big") for token in tokens], dtype=np.float64)
        shares = (high / TERMS.coin_threshold * 16).astype(np.int64)
        assert_fits(np.bincount(shares, minlength=16), np.full(16, 1 / 16))
        last = np.array([token[15] % 16 for token in tokens])
        assert_fits(np.bincount(last, minlength=16), np.full(16, 1 / 16))
    for place in (0, 1):
        sent = sorted(
            (row.places[place], row.token) for row in conspiracy.rows if row.places[place] >= 0
        )
        ranks = [rank for rank, (_, token) in enumerate(sent) if token in kinds[True]]
        some, all_rows = len(ranks), len(sent)
        error = (some * (all_rows - some) * (all_rows + 1) / 12) ** 0.5
        assert abs(sum(ranks) - some * (all_rows - 1) / 2) < 6.1 * error


def numbers(conspiracy: Conspiracy) -> tuple[set[int], set[int]]:
    """Return how many take part, and how many decoys there are, in all, in common, and by curator.

    All have four digits, so that none occurs by accident.
    """
    both = []
    for patterns in (conspiracy.people.values(), conspiracy.decoys.values()):
        held = [[cell < absent for cell, absent in zip(p, ABSENT, strict=True)] for p in patterns]
        by_curator = np.array(held).sum(axis=0).tolist()
        both.append({len(held), sum(map(all, held)), *by_curator})
        assert min(both[-1]) >= 1000
    return both[0], both[1]


def mentions(texts: Iterable[str], secrets: Iterable[int]) -> list[str]:
    """Return where one of the numbers stands by itself, with or without a comma."""
    either = "|".join(f"{number}|{number:,}" for number in secrets)
    pattern = re.compile(rf"(?<![\w.])(?:{either})(?![\w.])")
    return [text[:200] for text in texts if pattern.search(text)]


def stored_texts(path: Path) -> list[str]:
    """Return everything in a database that is text, or numbers, or bytes that are text."""
    texts = []
    with sqlite3.connect(path) as database:
        names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
        for (name,) in names:
            for row in database.execute(f'SELECT * FROM "{name}"'):  # noqa: S608 - our own tables
                texts += [as_text(value) for value in row]
    return texts


def as_text(value: object) -> str:
    """Return a value as text, in which bytes that are none count as nothing."""
    return value.decode("utf-8", "ignore") if isinstance(value, bytes) else str(value)


def texts_below(folder: Path) -> list[str]:
    """Return the content of all files that are text."""
    contents = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    return [content.decode() for content in contents if is_text(content)]


def is_text(content: bytes) -> bool:
    """Tell whether a file can be read as text."""
    try:
        return content.decode().isprintable() or b"\n" in content
    except UnicodeDecodeError:
        return False


def test_nobody_writes_down_who_takes_part_or_how_many_decoys_there_are(
    conspiracy: Conspiracy,
) -> None:
    """No answer, log, record, file or metric says it, on the server or with a curator."""
    people, decoys = numbers(conspiracy)
    known = {upload.body.rows for upload in conspiracy.uploads} | {conspiracy.access.release.rows}
    secrets = (people | decoys) - known
    assert len(secrets) >= 6  # two may be equal by accident
    places = {
        "answers": [as_text(body) for bodies in conspiracy.answers.values() for body in bodies],
        "logs": conspiracy.logs,
        "database": stored_texts(conspiracy.folder / "data" / "veiltab.db"),
        "files": texts_below(conspiracy.folder),
        "metrics": conspiracy.metrics,
    }
    assert all(places.values())
    assert mentions([json.dumps({"rows": next(iter(secrets))})], secrets)
    for place, texts in places.items():
        assert not mentions(texts, secrets), place


def test_curators_are_not_told_how_many_rows_were_joined(conspiracy: Conspiracy) -> None:
    """Nor how many the other curator has sent: knowing the decoys, it would know the overlap."""
    joined = conspiracy.access.release.rows
    first, second = (upload.body.rows for upload in conspiracy.uploads)
    told = {name: list(map(as_text, bodies)) for name, bodies in conspiracy.answers.items()}
    assert mentions(told["researcher"], [joined])
    assert not mentions(told["hospital"] + conspiracy.metrics, [joined, second])
    assert not mentions(told["office"] + conspiracy.metrics, [joined, first])


def test_the_metrics_weigh_neither_uploads_nor_the_release(conspiracy: Conspiracy) -> None:
    """Anybody may read them: a number of bytes would be a number of rows.

    Over the whole study, and over the researcher's visit, nothing grows but counts of requests and
    durations.
    """
    opened, released, visited = (samples(text) for text in conspiracy.metrics)
    for before, after in ((opened, visited), (released, visited)):
        grown = {name: value - before.get(name, 0.0) for name, value in after.items()}
        assert max(value for name, value in grown.items() if "_seconds" not in name) < 200
    smallest = min(upload.body.rows for upload in conspiracy.uploads)
    assert min(smallest, conspiracy.access.release.rows) > 1000


def samples(text: str) -> dict[str, float]:
    """Read metrics, without the times at which they were created."""
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines if "_created" not in name}
