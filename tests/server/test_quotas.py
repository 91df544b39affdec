"""What one party can use of a server: messages, disk and processor, and no more than that."""

import hashlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import polars as pl
import pytest
from sqlalchemy import Connection, event

from tests.server.db.study_records import STUDY, add_study
from tests.support.http_simulator import HttpStudy, http_study
from tests.support.proposals import Threesome, proposal, threesome
from tests.support.servers import QUICK, make_context, running
from tests.support.simulator import Stage
from veiltab.core.schema import Attribute
from veiltab.crypto.derivation import SECRET_BYTES
from veiltab.crypto.pads import PAD_KEY_BYTES
from veiltab.crypto.sealing import OVERHEAD
from veiltab.errors import (
    DigestError,
    MalformedError,
    MismatchError,
    OutOfSpaceError,
    QuotaError,
    RateLimitError,
    StateError,
    TooLargeError,
    UnavailableError,
)
from veiltab.files.bundles import BundledChunks
from veiltab.protocol.verify import sign
from veiltab.server import quotas, steps
from veiltab.server.context import ServiceContext
from veiltab.server.db.database import Database
from veiltab.server.db.records import MessageRecord
from veiltab.server.db.usage import Waiting
from veiltab.server.directory import DataDirectory
from veiltab.server.housekeeping import count_disk
from veiltab.server.limits import Lane
from veiltab.server.parsed import ParsedMessages
from veiltab.server.queue import FairQueue
from veiltab.wire import messages
from veiltab.wire.contract import Contract
from veiltab.wire.messages import SignedGrant, Upload
from veiltab.wire.signed import Signed

MIB = 2**20
ALONE = """\
title = "Alone"
epsilon = 1.0
population = 40
mechanism = "paper"
[linkage]
by = "ids"
[[curators]]
identity = "me"
attributes = [{name = "smoker", categories = ["no", "yes"]}]
"""


@pytest.fixture(scope="module")
def parties(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Threesome]:
    """One service for the tests that leave nothing behind that another would mind."""
    with threesome(tmp_path_factory.mktemp("quotas")) as made:
        yield made


class Granted(NamedTuple):
    """A study in which everything is granted."""

    http: HttpStudy
    context: ServiceContext


@pytest.fixture(scope="module")
def granted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Granted]:
    """Return a study whose curators have granted everything, and its server."""
    folder = tmp_path_factory.mktemp("granted")
    with running(make_context(folder / "data")) as service:
        yield Granted(http_study(service, folder, Stage.GRANTED), service.context)


@contextmanager
def changed(context: ServiceContext, **settings: Any) -> Iterator[None]:
    """Let a running server have other limits for a while."""
    before = context.settings
    object.__setattr__(context, "settings", replace(before, **settings))
    try:
        yield
    finally:
        object.__setattr__(context, "settings", before)


def open_study(parties: Threesome, number: int) -> bytes:
    """Let the attacker alone open a study; it is its only curator."""
    status = parties.attacker.server.propose(proposal(parties.attacker, number=number))
    assert status.state == "open"
    return status.study


def send(parties: Threesome, study: bytes, *chunks: bytes) -> None:
    """Send chunks as the attacker."""
    named = [(digest_of(chunk), chunk) for chunk in chunks]
    parties.attacker.server.send_chunks(study, named)


def digest_of(chunk: bytes) -> bytes:
    """Return the digest of a chunk."""
    return hashlib.sha256(chunk).digest()


# Messages


def long_contract(parties: Threesome, size: int, number: int = 0) -> Signed[Contract]:
    """Return a contract of about so many bytes, most of them categories."""
    categories = tuple(f"{place:05} {'x' * 90}" for place in range(size // 100))
    attributes = (Attribute("long", categories),)
    return proposal(parties.attacker, parties.victim, attributes=attributes, number=number)


def test_long_contracts_are_refused(parties: Threesome) -> None:
    """Two mebibytes name 20,000 categories; a longer contract costs seconds of everybody's time."""
    with pytest.raises(TooLargeError):
        parties.attacker.server.propose(long_contract(parties, 3 * MIB))
    assert parties.attacker.server.propose(long_contract(parties, MIB)).state == "proposed"


def test_a_status_reads_no_contract_and_no_grant(
    granted: Granted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten long contracts and forty requests made 5 GB; long grants slowed every status."""
    curator, study = granted.http.curators[0], granted.http.study
    grants = researcher_grants(granted.http)
    for kind in (Contract, Upload, SignedGrant):
        monkeypatch.setattr(kind, "loads", lambda *_: pytest.fail("a message was parsed"))
    assert [status.signed for status in curator.server.status(study).curators] == [True, True]
    assert set(granted.http.researcher.server.status(study).granted) == grants


def researcher_grants(study: HttpStudy) -> set[str]:
    """Return the attributes that were granted, by the grants themselves."""
    grants = study.researcher.server.grants(study.study)
    return {name for grant in grants for name in grant.body.attributes}


def test_an_abort_reads_no_contract(parties: Threesome, monkeypatch: pytest.MonkeyPatch) -> None:
    """It works whatever was proposed, and its author has the name that the contract gives it."""
    study = parties.attacker.server.propose(long_contract(parties, MIB, number=7)).study
    monkeypatch.setattr(Contract, "loads", lambda *_: pytest.fail("a contract was parsed"))
    status = parties.victim.server.abort(study, "not with me")
    assert (status.state, status.reason) == ("aborted", "victim: not with me")


@pytest.mark.parametrize("extra", [-1, 1, 11 * MIB // 64])
def test_a_sealed_grant_has_its_exact_length(granted: Granted, extra: int) -> None:
    """It holds one key for each attribute, and nothing else."""
    curator = granted.http.curators[0]
    grant = curator.server.grants(granted.http.study)[0]
    assert grant.sealed is not None
    sealed = (grant.sealed + bytes(max(0, extra)))[: len(grant.sealed) + extra]
    body = replace(grant.body, grant_id=bytes(16), sealed_digest=digest_of(sealed))
    wrong = SignedGrant(sign(body, curator.identity.signing), sealed)
    with pytest.raises((MismatchError, TooLargeError)):
        curator.server.send_grant(granted.http.study, wrong)


def test_sealed_parts_are_as_long_as_seals_are() -> None:
    """The server cannot seal, but knows how long a seal is."""
    assert messages.SEAL_BYTES == OVERHEAD
    assert messages.SEALED_SECRET_BYTES == OVERHEAD + SECRET_BYTES
    assert messages.PAD_KEY_BYTES == PAD_KEY_BYTES


def test_grants_are_not_without_number(granted: Granted) -> None:
    """Neither to one researcher nor in one study: everybody in it reads them, or their log."""
    curator, context = granted.http.curators[0], granted.context
    grant = curator.server.grants(granted.http.study)[0]
    for limits in ({"researcher_grants": 1}, {"study_grants": 1}):
        body = replace(grant.body, grant_id=bytes(15) + b"\1")
        another = SignedGrant(sign(body, curator.identity.signing), grant.sealed)
        with changed(context, **limits), pytest.raises(QuotaError, match="grants"):
            curator.server.send_grant(granted.http.study, another)


def test_messages_of_one_party_end_at_the_quota(parties: Threesome) -> None:
    """Others are not counted, and what is refused is not counted either."""
    context, first = parties.context, proposal(parties.attacker, parties.victim, number=20)
    with context.database.reading() as records:
        used = records.message_bytes(parties.attacker.identity.party_id)
    size = len(first.dumps())
    with changed(context, party_message_bytes=used + size):
        parties.attacker.server.propose(first)
        with pytest.raises(QuotaError, match="messages would have more than"):
            parties.attacker.server.propose(proposal(parties.attacker, parties.victim, number=21))
        parties.other.server.propose(proposal(parties.other, parties.victim, number=22))
    with context.database.reading() as records:
        assert records.message_bytes(parties.attacker.identity.party_id) == used + size


def test_short_messages_count_as_a_page_each(database: Database) -> None:
    """Their rows and log entries take space too; what was erased counts as nothing."""
    party, sizes = bytes(32), (1, 4_096, 5_000)
    add_study(database)
    with database.transaction() as records:
        for number, size in enumerate(sizes):
            content, reference = bytes(size), bytes([number])
            record = MessageRecord(STUDY, f"kind {size}", party, reference, b"", content, 0)
            records.add_message(record)
        assert records.message_bytes(party) == 4_096 + 4_096 + 5_000
        records.forget_contents(STUDY, "kind 5000")
        assert records.message_bytes(party) == 4_096 + 4_096


# Chunks


def test_chunks_of_one_party_end_at_the_quota(parties: Threesome) -> None:
    """A refused bundle leaves nothing; the same bundle again is not counted again."""
    study, context = open_study(parties, 30), parties.context
    party = parties.attacker.identity.party_id
    with context.database.reading() as records:
        used = records.message_bytes(party) + records.held_bytes(party)
    with changed(context, party_disk_bytes=used + MIB):
        for _ in range(3):
            send(parties, study, bytes(MIB // 2))
        with pytest.raises(QuotaError, match="chunks and messages"):
            send(parties, study, b"x" * (MIB // 2))
    assert parties.attacker.server.sent_chunks(study) == {digest_of(bytes(MIB // 2))}
    parties.attacker.server.abort(study, "enough")
    with context.database.reading() as records:
        assert records.held_bytes(party) == 0


def test_quotas_hold_for_requests_at_once(address: str, tmp_path: Path) -> None:
    """They are checked in the transaction that writes, on either database."""
    with threesome(tmp_path, database=address) as parties:
        study, context = open_study(parties, 31), parties.context
        party = parties.attacker.identity.party_id
        with context.database.reading() as records:
            used = records.message_bytes(party) + records.held_bytes(party)
        room = 4 * 65_536
        outcomes = []

        def attempt(number: int) -> None:
            try:
                send(parties, study, bytes([number]) * 10)
                outcomes.append(True)
            except QuotaError:
                outcomes.append(False)

        with changed(context, party_disk_bytes=used + room), ThreadPoolExecutor(8) as threads:
            list(threads.map(attempt, range(12)))
        assert sum(outcomes) == 4
        assert sum(context.folders.received_bytes(study).values()) == room


@pytest.mark.parametrize("fails", [False, True], ids=["written", "not written"])
def test_an_abort_during_a_push_leaves_no_quota_wrong(
    parties: Threesome, monkeypatch: pytest.MonkeyPatch, *, fails: bool
) -> None:
    """Else whoever aborts at the right moment has room for ever, or takes it from somebody."""
    study, context = open_study(parties, 70 + fails), parties.context
    party, put = parties.attacker.identity.party_id, BundledChunks.put_bundle
    with context.database.reading() as records:
        before = records.held_bytes(party)

    def abort_and_put(store: BundledChunks, name: bytes, pieces: Sequence[bytes]) -> bool:
        parties.attacker.server.abort(study, "now")
        if fails:
            raise StateError("the folder is gone", hint="look")
        return put(store, name, pieces)

    monkeypatch.setattr(BundledChunks, "put_bundle", abort_and_put)
    with pytest.raises(StateError):
        send(parties, study, bytes(MIB // 4))
    with context.database.reading() as records:
        assert records.held_bytes(party) == before


def test_what_ended_before_a_bundle_is_counted_takes_none(
    parties: Threesome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would ever count the bundle back: the study's folder is gone."""
    study, context = open_study(parties, 72), parties.context
    party, has = parties.attacker.identity.party_id, BundledChunks.has_bundle
    with context.database.reading() as records:
        before = records.held_bytes(party)

    def abort_and_look(store: BundledChunks, name: bytes, pieces: Sequence[bytes]) -> bool:
        parties.attacker.server.abort(study, "now")
        return has(store, name, pieces)

    monkeypatch.setattr(BundledChunks, "has_bundle", abort_and_look)
    with pytest.raises(StateError):
        send(parties, study, bytes(MIB // 4))
    with context.database.reading() as records:
        assert records.held_bytes(party) == before


def test_tiny_chunks_are_not_without_number(
    parties: Threesome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each costs memory wherever chunks are looked up, however short it is."""
    monkeypatch.setattr(quotas, "MAX_CHUNKS", 3)
    study = open_study(parties, 32)
    send(parties, study, b"1", b"2", b"3")
    with pytest.raises(QuotaError, match="more than 3 chunks"):
        send(parties, study, b"4")


def test_a_bundle_of_too_many_chunks_is_not_even_read(
    parties: Threesome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its count comes first, and its index would take a second to read."""
    monkeypatch.setattr(steps, "MAX_BUNDLED", 2)
    monkeypatch.setattr(steps, "check_bundle", lambda *_: pytest.fail("the index was read"))
    study = open_study(parties, 37)
    with pytest.raises(MalformedError, match="more than 2 chunks"):
        send(parties, study, b"1", b"2", b"3")


def upload_of(parties: Threesome, study: bytes, *chunks: bytes, rows: int) -> Signed[Upload]:
    """Return the attacker's upload message of one column."""
    body = Upload(
        columns=(messages.ColumnChunks("smoker", chunks),),
        curator=parties.attacker.identity.party_id,
        population=rows,
        rows=rows,
        scope=study,
        tokens=None,
        upload_id=bytes(16),
    )
    return sign(body, parties.attacker.identity.signing)


def test_an_upload_whose_chunks_are_missing_reads_none(
    parties: Threesome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise one could have gigabytes read again and again by leaving the last chunk out."""
    study = open_study(parties, 33)
    send(parties, study, b"first")
    monkeypatch.setattr(BundledChunks, "read", lambda *_: pytest.fail("a chunk was read"))
    missing = upload_of(parties, study, digest_of(b"first"), digest_of(b"last"), rows=70_000)
    with pytest.raises(DigestError, match="there is no chunk"):
        parties.attacker.server.upload(study, missing)


def test_an_upload_is_as_long_as_its_chunks_allow(parties: Threesome) -> None:
    """Whoever has sent nothing cannot send a message of mebibytes."""
    study = open_study(parties, 34)
    chunks = [number.to_bytes(32) for number in range(6_000)]
    long = upload_of(parties, study, *chunks, rows=6_000 * 65_536)
    with pytest.raises(TooLargeError, match="the message has more than"):
        parties.attacker.server.upload(study, long)


def test_a_chunk_is_named_once_in_a_column(parties: Threesome) -> None:
    """One chunk that was named 16,000 times made a release of two gigabytes."""
    study = open_study(parties, 35)
    chunk = digest_of(b"a chunk")
    with pytest.raises(Exception, match=r"columns\[0\].chunks: a chunk comes twice"):
        upload_of(parties, study, chunk, chunk, rows=70_000)
    upload_of(parties, study, digest_of(b""), digest_of(b""), rows=70_000)  # of one category


def test_nobody_uses_less_than_nothing(database: Database) -> None:
    """A bundle is counted back after the disk was counted without it."""
    party = b"p" * 32
    add_study(database)
    with database.transaction() as records:
        records.add_held(STUDY, party, 500, 2)
        records.set_held(STUDY, party, 100, 1)
        records.add_held(STUDY, party, -500, -2)
        assert (records.held_bytes(party), records.held_chunks(STUDY, party)) == (0, 0)


def test_what_a_crash_left_uncounted_is_counted_at_the_next_start(parties: Threesome) -> None:
    """The disk is right."""
    study, context = open_study(parties, 36), parties.context
    party = parties.attacker.identity.party_id
    send(parties, study, bytes(MIB // 4))
    for wrong in (0, 10 * MIB):
        with context.database.transaction() as records:
            records.set_held(study, party, wrong, 1)
        count_disk(context)
        with context.database.reading() as records:
            assert MIB // 4 <= records.held_by_study(study)[party] < MIB // 2


def test_a_release_is_counted_to_its_proposer(granted: Granted) -> None:
    """What the curators have sent is deleted, and what is released stays for long."""
    proposer = granted.http.curators[0].identity.party_id
    with granted.context.database.reading() as records:
        assert list(records.held_by_study(granted.http.study)) == [proposer]
        assert records.held_bytes(proposer) >= 65_536


# A disk that is full


def test_an_upload_without_room_is_refused_before_it_is_sent(
    parties: Threesome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the bytes that are still to come; what is left can be told in large steps only."""
    server, study = parties.attacker.server, open_study(parties, 42)
    send(parties, study, bytes(MIB))
    reserve = quotas.reserve_bytes(parties.context)
    step = reserve // quotas.ROOM_STEPS
    monkeypatch.setattr(DataDirectory, "free_bytes", lambda _: reserve + 2 * step + 1)
    room = 3 * step
    for total in (0, 1, MIB, room + MIB):  # one MiB of it is there already
        assert len(server.sent_chunks(study, total)) == 1
    with pytest.raises(OutOfSpaceError, match="no room for your upload") as caught:
        server.sent_chunks(study, room + MIB + 65_537)
    assert "nothing is lost" in caught.value.hint
    for free in (reserve - 1, 0):
        monkeypatch.setattr(DataDirectory, "free_bytes", lambda _, free=free: free)
        assert server.sent_chunks(study, 0)
        with pytest.raises(OutOfSpaceError, match="no room for your upload"):
            server.sent_chunks(study, 2 * MIB)
    monkeypatch.undo()
    with changed(parties.context, party_disk_bytes=4 * MIB):
        assert server.sent_chunks(study, 0)
        with pytest.raises(QuotaError, match="would have more than"):
            server.sent_chunks(study, 8 * MIB)
    server.abort(study, "enough")


def test_a_push_without_room_sends_nothing_and_is_done_later(
    parties: Threesome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The curator is told that it is the server's disk; the same command goes on from there."""
    home = parties.service.join("curator", tmp_path / "curator").home
    home.set_budget("people", 10.0)
    path = tmp_path / "study.toml"
    path.write_text(ALONE)
    table = pl.DataFrame({"id": [str(i) for i in range(40)], "smoker": ["no", "yes"] * 20})
    reserve = quotas.reserve_bytes(parties.context)
    with home.connect() as session:
        study = session.propose(path)
        with monkeypatch.context() as full:
            full.setattr(DataDirectory, "free_bytes", lambda _: reserve)
            with pytest.raises(OutOfSpaceError, match="the server's disk has no room"):
                study.push(table, ids="id")
        scope = bytes.fromhex(study.id)
        assert session._context.server.sent_chunks(scope) == set()
        study.push(table, ids="id")
        assert study.wait("released").state == "released"


def test_a_full_disk_takes_nothing_new_and_still_answers(
    parties: Threesome, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading, blocking and aborting go on; an abort gives its space back."""
    server, study = parties.attacker.server, open_study(parties, 40)
    send(parties, study, bytes(MIB))
    monkeypatch.setattr(DataDirectory, "free_bytes", lambda _: 10 * MIB)
    refused: list[Callable[[], object]] = [
        lambda: server.propose(proposal(parties.attacker, parties.victim, number=41)),
        lambda: send(parties, study, b"more"),
        lambda: server.upload(study, upload_of(parties, study, digest_of(b"more"), rows=10)),
    ]
    for request in refused:
        with pytest.raises(OutOfSpaceError, match="nearly full"):
            request()
    assert server.status(study).state == "open"
    assert server.studies()
    assert server.contract(study).body.study_id == study
    parties.victim.server.block(bytes(32))
    parties.victim.server.unblock(bytes(32))
    assert server.abort(study, "to make room").state == "aborted"
    assert parties.context.folders.received_bytes(study) == {}


@contextmanager
def full_disk(database: Database, pages: Callable[[], int]) -> Iterator[None]:
    """Let SQLite have no more than some further pages on its disk."""

    def limit(connection: Connection) -> None:
        used = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {used + pages()}")

    event.listen(database._engine, "begin", limit)
    try:
        yield
    finally:
        event.remove(database._engine, "begin", limit)


def use_nonces(database: Database) -> None:
    """Write until something goes wrong, as many requests would."""
    for round_ in range(1_000):
        with database.transaction() as records:
            for number in range(100):
                records.use_nonce(bytes(32), (100 * round_ + number).to_bytes(16), 0)


def test_an_abort_succeeds_on_a_disk_without_a_free_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that was kept for this is given up, and the request is repeated."""
    with threesome(tmp_path, replace(QUICK, ballast_bytes=MIB)) as parties:
        study, context = open_study(parties, 0), parties.context
        context.folders.keep_ballast(MIB, 0)
        pages, drop = [0], context.folders.drop_ballast

        def make_room() -> bool:
            dropped = drop()
            pages[0] += 100 * dropped
            return dropped

        monkeypatch.setattr(context.database, "make_room", make_room)
        with full_disk(context.database, lambda: pages[0]):
            with pytest.raises(UnavailableError, match="was full"):
                use_nonces(context.database)
            assert not context.folders.has_ballast()
            assert parties.attacker.server.abort(study, "no room").state == "aborted"
        assert context.folders.received_bytes(study) == {}


def test_the_ballast_is_kept_only_where_there_is_room(tmp_path: Path) -> None:
    """It is made once, and not from the reserve."""
    folders = DataDirectory(tmp_path / "data")
    folders.keep_ballast(MIB, 2**60)
    assert not folders.has_ballast()
    folders.keep_ballast(MIB, 0)
    folders.keep_ballast(MIB, 0)
    assert (tmp_path / "data" / ".ballast").stat().st_blocks * 512 >= MIB
    assert folders.drop_ballast()
    assert not folders.drop_ballast()


# The processor


def test_long_work_is_done_in_turn_by_party() -> None:
    """Whoever asks once does not wait for everything that somebody else has asked before."""
    lane, order = Lane(), []
    started, go_on = threading.Event(), threading.Event()

    def work(party: str) -> None:
        with lane.turn(party):
            order.append(party)
            started.set()
            go_on.wait(10)

    def begin(party: str) -> threading.Thread:
        thread = threading.Thread(target=work, args=(party,))
        thread.start()
        return thread

    threads = [begin("attacker")]
    assert started.wait(10)
    for party, waiting in (("attacker", 1), ("attacker", 2), ("attacker", 3), ("victim", 4)):
        threads.append(begin(party))
        while sum(map(len, lane._waiting.values())) < waiting:
            pass
    go_on.set()
    for thread in threads:
        thread.join(10)
    assert order == ["attacker", "attacker", "victim", "attacker", "attacker"]


def test_few_threads_wait_for_one_party() -> None:
    """The others are told to come back, and leave the threads to others."""
    lane = Lane(most_waiting=0)
    with pytest.raises(RateLimitError), lane.turn("attacker"):
        pass


def test_parsed_messages_are_few() -> None:
    """As many as have a number of bytes together; and each is parsed once while it is kept."""
    parsed, calls = ParsedMessages(10), []

    def loads(content: bytes) -> bytes:
        calls.append(content)
        return content

    for content in (b"1234", b"5678", b"1234", b"abcd", b"5678"):
        assert parsed.load(loads, content) == content
    assert calls == [b"1234", b"5678", b"abcd", b"5678"]


def test_releases_take_turns_by_proposer() -> None:
    """A hundred studies of one proposer do not delay the one of another."""
    queue = FairQueue()
    waiting = [Waiting(bytes([n]), b"attacker", size=n + 1) for n in range(5)]
    waiting.append(Waiting(b"small", b"victim", size=100))
    order = []
    while chosen := queue.choose(waiting, ()):
        waiting.remove(chosen)
        order.append(chosen.proposer)
    assert order[:3].count(b"victim") == 1
    assert queue.choose([Waiting(b"1", b"x", 1)], {b"1"}) is None


def test_the_smallest_of_a_proposer_comes_first() -> None:
    """Its own large studies delay its own small ones least."""
    queue = FairQueue()
    waiting = [Waiting(bytes([n]), b"one", size=100 - n) for n in range(3)]
    assert queue.choose(waiting, ()) == waiting[2]
