"""What a party holds in memory does not grow with the table: a release, an answer, an estimate.

The tables are longer than anything that is worked on at a time, and parts are made small, so that
whatever is held of every row at once would show.
"""

import tracemalloc
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from tests.support.decoys import decoy_terms, terms
from tests.support.simulator import Simulator
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Geometric
from veiltab.core.schema import Schema
from veiltab.crypto.entropy import CipherEntropy
from veiltab.files import bundles
from veiltab.files.chunks import FolderChunks
from veiltab.files.spool import FolderSpool
from veiltab.protocol import sorting
from veiltab.protocol.curator import decoys, table
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.curator.upload import CuratorContext, align, prepare_table
from veiltab.protocol.in_process import Terms
from veiltab.protocol.researcher import count_records
from veiltab.protocol.server import match
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.study import ServerStudy
from veiltab.wire import packing
from veiltab.wire.states import State

FEW, MANY, FAR_MORE = 200_000, 500_000, 1_100_000
ROW_BYTES = 2
"""What a row may add, of both curators together: digests of chunks, and nothing of the rows."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make buffers, parts and bundles small, and one thread: several hold more at times."""
    monkeypatch.setenv("VEILTAB_THREADS", "1")
    monkeypatch.setattr(sorting, "BUFFER_ROWS", 1 << 14)
    monkeypatch.setattr(match, "PART_BYTES", 1 << 19)
    monkeypatch.setattr(bundles, "BUNDLE_BYTES", 1 << 19)
    monkeypatch.setattr(decoys, "SPAN_DECOYS", 1 << 14)


def everybody(rows: int) -> Terms:
    """Return terms by which the server matches and samples the whole population."""
    return Terms(epsilon=1.0, sample_size=rows, linkage="matched")


def peak(work: Callable[[], object]) -> int:
    """Return the most memory that is held at a time while something is done."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def on_disk(folder: Path) -> FolderChunks:
    """Return a store that holds nothing in memory."""
    return FolderChunks(folder, durable=False)


def release_peak(rows: int, folder: Path) -> int:
    """Upload two tables, and return what their release takes."""
    rehearsal = Simulator(population=rows)
    staged = rehearsal.study(everybody(rows))
    uploads = [each.message for each in staged.prepare()]
    received, released = on_disk(folder / "received"), bundles.BundledChunks(folder / "released")
    for chunk in staged.outcome.received._chunks.values():
        received.put(chunk)
    bench = ServerContext(
        rehearsal.server.signing,
        CipherEntropy.from_seed(1, "noise"),
        received,
        released,
        lambda name: FolderSpool(folder / "scratch", name),
    )
    signed = staged.outcome.contract
    study = ServerStudy.resume(bench, signed, State.UPLOADED, uploads)
    found = peak(study.release)
    assert study.release().body.rows == rows
    assert not (folder / "scratch").exists()
    return found


def repad_peak(rows: int, folder: Path) -> int:
    """Draw all rows of stored tables, and return what a curator's answer takes."""
    rehearsal = Simulator(population=rows)
    deposit = rehearsal.deposit()
    case = rehearsal.draw(deposit, rehearsal.stored_contract(everybody(rows), deposit))
    incoming, outgoing = on_disk(folder / "incoming"), on_disk(folder / "outgoing")
    for chunk in case.outcome.received._chunks.values():
        incoming.put(chunk)
    desk = case.outcome.contexts[0]
    desk = type(desk)(desk.identity, desk.entropy, outgoing, desk.private)
    request = case.requests[0]
    return peak(lambda: deposit.stored[0].repad(desk, case.outcome.contract, request, incoming))


def estimate_peak(rows: int, folder: Path) -> int:
    """Release everybody, and return what the researcher's estimate takes."""
    rehearsal = Simulator(population=rows)
    outcome = rehearsal.run(everybody(rows))
    access, released = rehearsal.access(outcome), on_disk(folder / "released")
    for chunk in outcome.released._chunks.values():
        released.put(chunk)
    return peak(lambda: count_records(access, released))


def decoys_peak(rows: int, folder: Path) -> int:
    """Invent so many decoys, and return what closing a table and preparing an upload takes."""
    mean = Fraction(rows, 30_000)  # there are so many cells
    law = Geometric(int(DRAW_RANGE * mean / (mean + 1)))
    rehearsal = Simulator(shares=({"a": 150, "b": 200},))
    staged = rehearsal.study(terms("matched", mechanism=decoy_terms(law=law), epsilon=5.0))
    own, (who,), contract = rehearsal.holdings[0], rehearsal.curators, staged.contract
    spool, order = FolderSpool(folder / "scratch"), FolderSpool(folder / "order")
    desk = CuratorContext(who, rehearsal.entropy, on_disk(folder / "out"), on_disk(folder / "own"))
    me, schema = who.party_id, Schema(own.attributes)

    def prepare() -> int:
        with Intake(contract, staged.secret, schema, spool, curator=me) as intake:
            intake.add(own.ids, own.codes)
            intake.close()
            aligned = [align(contract, who, intake)]
            made = prepare_table(desk, staged.outcome.contract, intake, order, aligned)
        return made.message.body.rows

    uploaded: list[int] = []
    found = peak(lambda: uploaded.append(prepare()))
    assert 0.8 * rows < uploaded[0] < 1.2 * rows + 100
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("step", "few", "many"),
    [(release_peak, FEW, MANY), (repad_peak, FEW, MANY), (estimate_peak, MANY, FAR_MORE)],
)
def test_memory_does_not_grow_with_the_rows(
    step: Callable[[int, Path], int], few: int, many: int, tmp_path: Path
) -> None:
    """Many more rows: a column of positions alone would take four times what is allowed."""
    step(1_000, tmp_path / "first")  # whatever is made once in a process
    growth = step(many, tmp_path / "many") - step(few, tmp_path / "few")
    assert growth < ROW_BYTES * (many - few)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_decoys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A million more decoys, at 28 bytes each, would be seen; a few spans more or less are not."""
    for module in (packing, sorting, table):
        monkeypatch.setattr(module, "SPAN_ROWS", packing.CHUNK_ROWS)
    decoys_peak(1_000, tmp_path / "first")
    few, many = (decoys_peak(n, tmp_path / str(n)) for n in (300_000, 1_300_000))
    assert many - few < 10**7
