"""How many modules a record passes through on its way from a CSV file to a report."""

import sys
import threading
from pathlib import Path
from types import FrameType

import numpy as np
import polars as pl

import veiltab as vt
from veiltab.core.released import ReleasedCounts

PEOPLE = 100_000
CELLS = 7 * 13
LARGE = 16_384
"""Longer than any message of the study, and shorter than a chunk of its records."""

MOST_MODULES = 53
"""Four dozen and a few: decoys are records too, and the report has a module for each measure of
association, for residuals and for each kind of picture."""


def carries_records(value: object, depth: int = 0) -> bool:
    """Tell whether a value holds rows of a table, their ciphertext, or the counts of cells."""
    if isinstance(value, np.ndarray):
        return value.size >= LARGE or value.size == CELLS
    if isinstance(value, bytes | bytearray | memoryview):
        return len(value) >= LARGE
    if isinstance(value, pl.DataFrame | pl.Series):
        return len(value) >= LARGE or len(value) == CELLS
    if isinstance(value, list | tuple):
        return depth < 1 and any(carries_records(item, depth + 1) for item in value[:8])
    return isinstance(value, ReleasedCounts)


def test_a_record_passes_through_few_modules(tmp_path: Path) -> None:
    """Whoever follows one from the table to the report reads a few dozen modules, not a hundred."""
    numbers = np.arange(PEOPLE)
    tables = []
    for name, size in (("first", 7), ("second", 13)):
        path = tmp_path / f"{name}.csv"
        values = [f"{name} {value}" for value in (numbers * (size + 2) // 3) % size]
        pl.DataFrame({"person": numbers, name: values}).write_csv(path)
        tables.append(path)
    touched: set[str] = set()

    def look(frame: FrameType, event: str, returned: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if not module.startswith("veiltab.") or event not in ("call", "return"):
            return
        values = list(frame.f_locals.values()) if event == "call" else [returned]
        if any(map(carries_records, values)):
            touched.add(module)

    vt.rehearse(tables, on="person", epsilon=1.0, delta=1e-6)  # imports everything it needs
    threading.setprofile(look)
    sys.setprofile(look)
    try:
        estimate = vt.rehearse(tables, on="person", epsilon=1.0, delta=1e-6)
        estimate.report(tmp_path / "report.html")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert estimate.schema.domain_size == CELLS
    assert {"veiltab.data.csv_file", "veiltab.core.noise", "veiltab.report.view"} <= touched
    assert len(touched) <= MOST_MODULES, sorted(touched)
