"""What a party holds in memory does not grow with the table: a release, an answer, an estimate.

The tables are longer than anything that is worked on at a time, and parts are made small, so that
whatever is held of every row at once would show.
"""

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.simulator import Simulator
from veiltab.crypto.entropy import CipherEntropy
from veiltab.files import bundles
from veiltab.files.chunks import FolderChunks
from veiltab.files.spool import FolderSpool
from veiltab.protocol import sorting
from veiltab.protocol.in_process import Terms
from veiltab.protocol.researcher import count_records
from veiltab.protocol.server import match
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.study import ServerStudy
from veiltab.wire.states import State

FEW, MANY = 600_000, 1_100_000
ROW_BYTES = 2
"""What a row may add, of both curators together: digests of chunks, and nothing of the rows."""


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make buffers, parts and bundles small, and one thread: several hold more at times."""
    monkeypatch.setenv("VEILTAB_THREADS", "1")
    monkeypatch.setattr(sorting, "BUFFER_ROWS", 1 << 14)
    monkeypatch.setattr(match, "PART_BYTES", 1 << 19)
    monkeypatch.setattr(bundles, "BUNDLE_BYTES", 1 << 19)


def everybody(rows: int) -> Terms:
    """Return terms by which the server samples the whole population."""
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


@pytest.mark.slow
@pytest.mark.parametrize("step", [release_peak, repad_peak, estimate_peak])
def test_memory_does_not_grow_with_the_rows(
    step: Callable[[int, Path], int], tmp_path: Path
) -> None:
    """Many more rows: a column of positions alone would take four times what is allowed."""
    step(1_000, tmp_path / "first")  # whatever is made once in a process
    few, many = step(FEW, tmp_path / "few"), step(MANY, tmp_path / "many")
    assert many - few < ROW_BYTES * (MANY - FEW)
