"""Every kernel on its own, as a share of the speed of the cipher that feeds it.

R is the speed of the AES-256-CTR keystream at one byte a record, in spans that stay in the
processor's cache, on one thread.  So is everything else here, unless it says how many threads.
"""

import hashlib
import hmac
from collections.abc import Callable
from functools import partial

import numpy as np
import polars as pl
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from benchmarks.timing import Ratio, compared, median_of
from veiltab.core import group
from veiltab.core.channel import GammaDiagonal
from veiltab.core.entropy import Entropy
from veiltab.core.noise import NoiseSource
from veiltab.core.plan import plan
from veiltab.core.schema import count_cells, mix
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.linkage import tokens
from veiltab.crypto.pads import StreamPad
from veiltab.protocol.parallel import available_threads
from veiltab.protocol.server.match import match_tokens
from veiltab.wire.packing import CHUNK_ROWS, SPAN_ROWS, chunk_slices, pack, span_slices, unpack

RECORDS = 1 << 25
TURNS = 32
"""Every kernel goes through its records in so many parts, and takes turns with the others."""

SIZES = (4, 6)
CELLS = 24
JOINED = 10_000_000
HASHED = 1_000_000
_ENDLESS = 1 << 62

Bytes = NDArray[np.uint8]


def kernel_ratios() -> list[Ratio]:
    """Return the rows of all kernels."""
    return [*_streams(), *_packing(), *_linkage()]


class _Columns:
    """A span of two attributes, and what encrypts, perturbs and decrypts it repeatedly.

    As in the protocol, codes are unpacked into a span that stays in the cache, and packed again.
    """

    def __init__(self, records: int) -> None:
        generator = np.random.default_rng(1)
        self.records = records
        self.codes = [generator.integers(0, k, SPAN_ROWS).astype(np.uint8) for k in SIZES]
        self.cells = mix(SIZES, self.codes)
        self.pads = [StreamPad(bytes([k]) * 32, k) for k in SIZES]
        self.out = np.empty(SPAN_ROWS, dtype=np.uint8)
        self.noise = NoiseSource(channel(), _ENDLESS, CipherEntropy(bytes(32)))
        self.stream = Cipher(AES256(bytes(32)), CTR(bytes(16))).encryptor()
        self.zeros = memoryview(bytes(SPAN_ROWS))

    def keystream(self) -> None:
        """Make one byte of keystream a record: R."""
        for _ in span_slices(self.records):
            self.stream.update_into(self.zeros, self.out.data)

    def copy(self) -> None:
        """Copy one byte a record."""
        for _ in span_slices(self.records):
            np.copyto(self.out, self.cells)

    def pad(self) -> None:
        """Make the pads of an attribute."""
        for where in span_slices(self.records):
            self.pads[1].rows(where.start, SPAN_ROWS)

    def encrypt(self) -> None:
        """Make the pads of an attribute and add them."""
        for where in span_slices(self.records):
            pad = self.pads[1].rows(where.start, SPAN_ROWS)
            group.add(self.codes[1], pad, SIZES[1], out=pad)

    def perturb(self) -> None:
        """Add exact noise to a column of cells."""
        for _ in span_slices(self.records):
            self.noise.draw(self.out)
            group.add(self.cells, self.out, CELLS, out=self.out)

    def decrypt(self) -> None:
        """Make the pads of two attributes, subtract them, and count the joint cells."""
        counts = np.zeros(CELLS, dtype=np.int64)
        for where in span_slices(self.records):
            decrypted = []
            for column, pad, size in zip(self.codes, self.pads, SIZES, strict=True):
                rows = pad.rows(where.start, SPAN_ROWS)
                decrypted.append(group.subtract(column, rows, size, out=rows))
            counts += count_cells(mix(SIZES, decrypted), CELLS)


def channel() -> GammaDiagonal:
    """Return the channel of 24 cells with ε = 1, everybody sampled."""
    people = 45_222
    chosen = plan(
        population_size=people, domain_size=CELLS, epsilon=1.0, sample_size=people, anyway=True
    )
    return chosen.ranked.channel


def decrypt_seconds(records: int = RECORDS) -> float:
    """Return the time to decrypt and count, next to the other libraries' histograms."""
    return _one(_Columns(records // TURNS).decrypt)


def perturb_seconds(records: int = RECORDS) -> float:
    """Return the time to perturb, next to the other libraries' randomised response."""
    return _one(_Columns(records // TURNS).perturb)


def tokens_seconds(records: int = RECORDS) -> float:
    """Return the time to make tokens, next to the other libraries' hashes of ids."""
    raw, ends = _random_bytes(16 * records), np.arange(0, 16 * records + 1, 16)
    return median_of({"tokens": lambda: tokens(bytes(32), raw, ends)})["tokens"]


def _one(work: Callable[[], object]) -> float:
    return median_of({"work": work}, turns=TURNS)["work"]


def _streams() -> list[Ratio]:
    table = _Columns(RECORDS // TURNS)
    goals = {
        "pad, k = 6": (table.pad, 0.18),
        "pad and encrypt, k = 6": (table.encrypt, 0.15),
        "perturb, 24 cells": (table.perturb, 0.17),
        "decrypt two attributes and count": (table.decrypt, 0.05),
    }
    works: dict[str, Callable[[], object]] = {name: work for name, (work, _) in goals.items()}
    works |= {"R": table.keystream, "memcpy": table.copy}
    seconds = median_of(works, turns=TURNS)
    cipher, copy = ("R", seconds["R"]), ("memcpy", seconds["memcpy"])
    rows = [compared("AES-256-CTR keystream (R)", seconds["R"], copy, records=RECORDS)]
    for name, (_, least) in goals.items():
        rows.append(compared(name, seconds[name], cipher, least=least, records=RECORDS))
        rows.append(compared(name, seconds[name], copy, records=RECORDS))
    return [*rows, _against_plain(table)]


def _against_plain(table: _Columns) -> Ratio:
    """Perturb as one would write it down with NumPy: inexact, and with predictable noise."""
    generator, keep = np.random.default_rng(1), float(channel().keep_probability)
    cells = generator.integers(0, CELLS, RECORDS).astype(np.uint8)

    def plain() -> None:
        kept = generator.random(RECORDS) < keep
        np.where(kept, cells, generator.integers(CELLS, size=RECORDS))

    def ours() -> None:
        for _ in range(TURNS):
            table.perturb()

    seconds = median_of({"ours": ours, "plain": plain})
    reference = "plain NumPy, on the whole column", seconds["plain"]
    return compared("perturb, 24 cells", seconds["ours"], reference, least=12, records=RECORDS)


def _packing() -> list[Ratio]:
    codes, part = _Columns(RECORDS).codes[1], RECORDS // TURNS
    packed = [pack(codes[where], SIZES[1]) for where in chunk_slices(SPAN_ROWS)]
    out = np.empty_like(codes)

    def pack_all() -> None:
        for _ in span_slices(part):
            for where in chunk_slices(SPAN_ROWS):
                pack(codes[where], SIZES[1])

    def unpack_all() -> None:
        for _ in span_slices(part):
            for chunk, where in zip(packed, chunk_slices(SPAN_ROWS), strict=True):
                out[where] = unpack(chunk, SIZES[1], CHUNK_ROWS)

    def copy() -> None:
        for _ in span_slices(part):
            np.copyto(out, codes)

    works = {"pack, k = 6": pack_all, "unpack, k = 6": unpack_all}
    seconds = median_of({**works, "memcpy": copy}, turns=TURNS)
    copied = "memcpy", seconds["memcpy"]
    return [compared(name, seconds[name], copied, records=RECORDS) for name in works]


def _linkage() -> list[Ratio]:
    key, raw = bytes(32), _random_bytes(16 * JOINED)
    ends = {width: np.arange(0, raw.size + 1, width) for width in (16, 25)}
    few = [raw[16 * row : 16 * row + 16].tobytes() for row in range(HASHED)]
    seconds = median_of(
        {
            "16": lambda: tokens(key, raw, ends[16]),
            "25": lambda: tokens(key, raw, ends[25]),
            "hmac": lambda: [hmac.digest(key, message, hashlib.sha256) for message in few],
        }
    )
    rows = []
    for width, least in ((16, 50), (25, None)):
        count = ends[width].size - 1
        one_by_one = "HMAC one by one", seconds["hmac"] * count / HASHED
        name = f"tokens of {width}-byte ids"
        rows.append(compared(name, seconds[str(width)], one_by_one, least=least, records=count))
    return [*rows, *_join(raw.reshape(-1, 16))]


def _join(ours: Bytes) -> list[Ratio]:
    """Match 10 million respondents with 10 million, in another order; polars uses all cores."""
    theirs = ours[np.random.default_rng(2).permutation(len(ours))]
    left, right = (_as_frame(table, name) for table, name in ((ours, "ours"), (theirs, "theirs")))
    cores = available_threads()
    seconds = median_of(
        {
            "one": partial(match_tokens, [ours, theirs], threads=1),
            "all": partial(match_tokens, [ours, theirs], threads=cores),
            "polars": lambda: left.join(right, on="id", how="inner"),
        }
    )
    name = f"join {len(ours):,} × {len(ours):,} by token, {cores} threads"
    polars, one = ("polars join", seconds["polars"]), ("one thread", seconds["one"])
    return [
        compared(name, seconds["all"], polars, least=3, records=len(ours)),
        compared(name, seconds["all"], one, least=1.3, records=len(ours)),
    ]


def _as_frame(tokens: Bytes, name: str) -> pl.DataFrame:
    """Return tokens as polars would hold them: texts of 16 characters, with row numbers."""
    ids = pl.DataFrame(tokens.view(np.uint64), schema=["id", "rest"]).select(
        pl.col("id").cast(pl.String).str.zfill(20).str.slice(4)
    )
    return ids.with_columns(pl.int_range(len(tokens)).alias(name))


def _random_bytes(count: int) -> Bytes:
    out = np.empty(count, dtype=np.uint8)
    source: Entropy = CipherEntropy(bytes([7]) * 32)
    source.fill(out)
    return out
