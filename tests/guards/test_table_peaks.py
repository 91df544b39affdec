"""Memory that reading a text file takes: some blocks, however long the file is."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.counting import exhaust, peak
from veiltab.data import csv_file
from veiltab.data.csv_file import CsvTable

BLOCK = 1 << 16
HELD = 12
"""Blocks that are held at a time: read, decoded, encoded, and the marks found in them."""


def written(path: Path, blocks: int) -> Callable[[], None]:
    """Write a compressed file in CP1252 that many blocks long, and return how to read it."""
    row = "P0000001;Köln;72,5\n".encode("cp1252")
    path.write_bytes(gzip.compress(b"id;town;weight\n" + row * (blocks * BLOCK // len(row)), 1))

    def read() -> None:
        exhaust(CsvTable(path).batches(["id", "weight"], 1000))

    return read


def test_a_long_file_is_held_in_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four times the file takes no more, although it is decompressed and decoded on the way."""
    monkeypatch.setattr(csv_file, "BLOCK_BYTES", BLOCK)
    monkeypatch.setattr(csv_file, "HEAD_BYTES", BLOCK)
    few, many = written(tmp_path / "few.csv.gz", 8), written(tmp_path / "many.csv.gz", 32)
    few()  # whatever is made once in a process
    short, long = peak(few), peak(many)
    assert long <= 1.05 * short
    assert long <= HELD * BLOCK
