"""How the time of a record grows in the kernels: with the records, and with the cells.

One span of a table is worked on over and over, so that no table is in memory as a whole: the pads,
the noise and the counts go on as they would in a long one.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from benchmarks.timing import Ratio, compared, median_of
from veiltab.core import group
from veiltab.core.noise import NoiseSource
from veiltab.core.plan import plan
from veiltab.core.schema import Attribute, Codes, Schema, count_cells, mix, unmix
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.pads import StreamPad
from veiltab.wire.packing import SPAN_ROWS, span_slices

RECORDS = (10**5, 10**6, 10**7, 10**8)
REFERENCE_RECORDS, RECORDS_FOR_CELLS = 10**6, 10**7
LEAST_RECORDS = 10**7
"""Fewer records are processed several times in a row, since a millisecond is too short to time."""

MOST_TIMES = 1.5
SIZES = (4, 6)
CELLS = {2: (2,), 24: SIZES, 256: (16, 16), 1_000: (25, 40), 10**6: (1_000, 1_000)}
REFERENCE_CELLS = 24
EPSILON = 3.0


def kernel_growth(largest: int = 10**8) -> list[Ratio]:
    """Measure the growth with the records, which should be linear, and with the cells."""
    return [*_by_records(largest), *_by_cells(min(largest, RECORDS_FOR_CELLS))]


class _Columns:
    """One span of a table, and all that works on it."""

    def __init__(self, sizes: Sequence[int]) -> None:
        generator = np.random.default_rng(1)
        self.schema = Schema(
            Attribute(str(number), map(str, range(size))) for number, size in enumerate(sizes)
        )
        self.codes: list[Codes] = [
            generator.integers(0, attribute.size, SPAN_ROWS).astype(attribute.dtype)
            for attribute in self.schema.attributes
        ]
        self.cells = mix(sizes, self.codes)
        self.pads = [StreamPad(bytes([number]) * 32, k) for number, k in enumerate(sizes)]
        size, people = self.schema.domain_size, REFERENCE_RECORDS
        chosen = plan(
            population_size=people,
            domain_size=size,
            epsilon=EPSILON,
            sample_size=people,
            anyway=True,
        )
        self.channel = chosen.ranked.channel

    def encrypt(self, records: int) -> None:
        """Make the pads of an attribute and add them."""
        size, codes = self.schema.sizes[-1], self.codes[-1]
        for where in span_slices(records):
            pad = self.pads[-1].rows(where.start, where.stop - where.start)
            group.add(codes[: pad.size], pad, size, out=pad)

    def perturb(self, records: int) -> None:
        """Draw noise, split it, and add each attribute its part, as a release does."""
        source = NoiseSource(self.channel, records, CipherEntropy(bytes(32)))
        noise = np.empty(SPAN_ROWS, dtype=source.dtype)
        for where in span_slices(records):
            drawn = noise[: where.stop - where.start]
            source.draw(drawn)
            parts = unmix(self.schema.sizes, drawn)
            for codes, part, size in zip(self.codes, parts, self.schema.sizes, strict=True):
                group.add(codes[: part.size], part, size, out=part)

    def count(self, records: int) -> None:
        """Count joint cells."""
        counts = self._no_counts()
        for where in span_slices(records):
            cells = self.cells[: where.stop - where.start]
            counts += count_cells(cells, self.schema.domain_size)

    def decrypt(self, records: int) -> None:
        """Make the pads of every attribute, subtract them, and count the joint cells."""
        counts = self._no_counts()
        for where in span_slices(records):
            decrypted = []
            for codes, pads, size in zip(self.codes, self.pads, self.schema.sizes, strict=True):
                pad = pads.rows(where.start, where.stop - where.start)
                decrypted.append(group.subtract(codes[: pad.size], pad, size, out=pad))
            counts += count_cells(mix(self.schema.sizes, decrypted), self.schema.domain_size)

    def _no_counts(self) -> NDArray[np.int64]:
        return np.zeros(self.schema.domain_size, dtype=np.int64)


def _by_records(largest: int) -> list[Ratio]:
    table = _Columns(SIZES)
    kernels: dict[str, Callable[[int], None]] = {
        "pad and encrypt, k = 6": table.encrypt,
        "perturb, 24 cells": table.perturb,
        "decrypt two attributes and count": table.decrypt,
    }
    rows = []
    for name, work in kernels.items():
        sizes = [records for records in RECORDS if records <= largest]
        repeats = {size: max(1, min(LEAST_RECORDS, largest) // size) for size in sizes}
        works = {str(size): partial(_repeat, work, size, repeats[size]) for size in sizes}
        times = median_of(works)
        rows += _compared_records(name, {size: times[str(size)] / repeats[size] for size in sizes})
    return rows


def _repeat(work: Callable[[int], None], records: int, times: int) -> None:
    for _ in range(times):
        work(records)


def _compared_records(name: str, times: dict[int, float]) -> list[Ratio]:
    """Compare with a multiple of the time for 10^6 records; only the most have a goal."""
    rows = []
    for records, seconds in times.items():
        if records == REFERENCE_RECORDS or REFERENCE_RECORDS not in times:
            continue
        factor = records / REFERENCE_RECORDS
        expected = factor * times[REFERENCE_RECORDS]
        last = records == max(times) and factor > 1
        rows.append(
            Ratio(
                name=f"{name}, {records:,} records",
                seconds=seconds,
                reference=f"{factor:g} × {REFERENCE_RECORDS:,}",
                reference_seconds=expected,
                goal=f"at most {MOST_TIMES:g} times" if last else "",
                met=not last or seconds <= MOST_TIMES * expected,
                records=records,
            )
        )
    return rows


def _by_cells(records: int) -> list[Ratio]:
    tables = {cells: _Columns(sizes) for cells, sizes in CELLS.items()}
    rows = []
    for name in ("perturb", "count"):
        works = {str(n): partial(getattr(table, name), records) for n, table in tables.items()}
        times = median_of(works, 3)
        reference = f"{REFERENCE_CELLS} cells", times[str(REFERENCE_CELLS)]
        rows += [
            compared(f"{name}, {cells:,} cells", times[str(cells)], reference, records=records)
            for cells in CELLS
            if cells != REFERENCE_CELLS
        ]
    return rows
