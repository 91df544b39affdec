"""What the parties do with whole tables, each as a function of the number of rows.

The joint table has four attributes, of 2, 3, 4 and 5 categories; a curator's has the first two.
"""

from collections.abc import Iterator, Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

from tests.support.counting import exhaust, wrapped
from tests.support.kernel_runs import codes
from tests.support.simulator import Simulator
from veiltab.core.plan import Plan, plan
from veiltab.core.schema import Codes, Schema
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.linkage import IdMessages
from veiltab.protocol.curator.table import Intake, Rows
from veiltab.protocol.curator.upload import StreamPads, _encrypt
from veiltab.protocol.in_process import Terms
from veiltab.protocol.researcher import Access, StreamReader, count_records
from veiltab.protocol.server.release import perturb_and_sign
from veiltab.protocol.sorting import MemorySpool
from veiltab.protocol.stores import ChunkStore, Digests, MemoryChunks
from veiltab.wire.messages import Release, ReleasedUpload
from veiltab.wire.packing import (
    BLINDING_BYTES,
    SPAN_ROWS,
    blind,
    chunk_slices,
    pack_positions,
    span_slices,
)
from veiltab.wire.signed import Signed

REHEARSAL = Simulator()
CONTRACT, SECRET = REHEARSAL.propose(Terms(epsilon=1.0))
SCHEMA = CONTRACT.schema
OWN = Schema(SCHEMA.attributes[:2])
KEY = bytes(range(32))
ID_BYTES = 11
PARTITIONS = 16
TOKENS = np.zeros((SPAN_ROWS, 16), dtype=np.uint8)


class Forgetting(MemoryChunks):
    """Names every chunk by its digest, and forgets it."""

    def put(self, chunk: bytes) -> bytes:
        """Return the chunk's digest."""
        digest = super().put(chunk)
        self.clear()
        return digest


def columns(schema: Schema, rows: int) -> list[Codes]:
    """Return a column of codes for each attribute."""
    return [wrapped(codes(each.size, rows)) for each in schema.attributes]


def encrypt(rows: int) -> None:
    """Encrypt a curator's table, and send the tokens too."""
    tokens, own = wrapped(TOKENS), columns(OWN, SPAN_ROWS)
    pads = StreamPads(bytes(16), OWN.attributes, (KEY, bytes(32)))

    def spans() -> Iterator[Rows]:
        for where in span_slices(rows):
            part = slice(where.stop - where.start)
            yield tokens[part], [column[part] for column in own]

    _encrypt(OWN, spans(), rows, pads, Forgetting(), whole=True)


def perturb(rows: int) -> None:
    """Perturb and release joined rows."""
    release(rows, Forgetting(), None)


def release(
    rows: int, store: ChunkStore, positions: Digests | None
) -> tuple[Signed[Release], Plan]:
    """Release some rows, each curator's at the same positions."""
    joined = columns(SCHEMA, SPAN_ROWS)

    def part(where: slice) -> Sequence[Codes]:
        return [column[: where.stop - where.start] for column in joined]

    chosen = planned(rows)
    uploads = [ReleasedUpload(each.party_id, bytes(32), positions) for each in CONTRACT.curators]
    entropy = CipherEntropy(KEY)
    key = REHEARSAL.server.signing
    signed = perturb_and_sign(
        CONTRACT, chosen, part, uploads, key, row_count=rows, entropy=entropy, released=store
    )
    return signed, chosen


@cache
def planned(rows: int) -> Plan:
    """Return the plan of a release of everybody."""
    cells = SCHEMA.domain_size
    return plan(population_size=rows, domain_size=cells, epsilon=1.0, sample_size=rows, anyway=True)


@cache
def released(rows: int, *, positions: bool = False) -> tuple[Access, ChunkStore]:
    """Return what a researcher has of a release, and the chunks."""
    store = MemoryChunks()
    places = np.arange(rows, dtype=np.int64) * 7919 % rows
    chunks = tuple(
        store.put(blind(pack_positions(places[each]), bytes(BLINDING_BYTES)))
        for each in chunk_slices(rows)
    )
    signed, chosen = release(rows, store, chunks if positions else None)
    pads = {each.name: StreamReader(each.size, KEY) for each in SCHEMA.attributes}
    return Access(CONTRACT, signed, chosen, pads), store


def scattered(rows: int) -> tuple[Access, ChunkStore]:
    """Return the same, where the server sampled and rows may have been anywhere."""
    return released(rows, positions=True)


def count_released(rows: int) -> None:
    """Decrypt and count a release of consecutive rows."""
    access, store = released(rows)
    count_records(opened(access), store, SCHEMA.names[:3])


def count_scattered(rows: int) -> None:
    """Decrypt and count a release of rows anywhere."""
    access, store = scattered(rows)
    count_records(opened(access), store, SCHEMA.names[1:2])


def opened(access: Access) -> Access:
    """Return the same access with pads whose work is counted from the start."""
    pads = {each.name: StreamReader(each.size, KEY) for each in SCHEMA.attributes}
    return Access(access.contract, access.signed, access.plan, pads)


def ids(rows: int) -> IdMessages:
    """Return different ids of 11 bytes."""
    texts: NDArray[np.uint8] = np.zeros((rows, ID_BYTES), dtype=np.uint8)
    texts[:, :8] = np.arange(rows, dtype=np.int64).view(np.uint8).reshape(rows, 8)
    return IdMessages(wrapped(texts.reshape(-1)), wrapped(np.arange(rows + 1) * ID_BYTES))


def shuffle(rows: int) -> None:
    """Take in a table, and read it back in a fresh random order."""
    intake = filled(rows)
    exhaust(intake.shuffled(KEY, MemorySpool()))


def filled(rows: int) -> Intake:
    """Return a table that is complete."""
    me = CONTRACT.curators[0].party_id
    intake = Intake(CONTRACT, SECRET, OWN, MemorySpool(), curator=me, partitions=PARTITIONS)
    intake.add(ids(rows), columns(OWN, rows))
    intake.close()
    return intake
