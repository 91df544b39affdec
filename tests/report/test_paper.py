"""The report on paper, as a browser prints it: nothing is cut off, and no page is half empty."""

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.estimates import released_estimate
from tests.support.programs import BROWSER, PDF_PICTURES, PDF_TEXT, needed
from veiltab.core.resampling import apportion
from veiltab.core.schema import Attribute, CountTable, Schema
from veiltab.estimates import Estimate
from veiltab.report.formatting import points

REGIONS = ("North West", "North East", "Yorkshire and the Humber", "East Midlands", "Wales",
           "Donaudampfschifffahrtsgesellschaft", "عمر")  # fmt: skip
INCOMES = ("lowest", "second", "third", "fourth", "highest of them all")


def seven_by_five() -> Estimate:
    """Return the estimate of a table that is wide, with one name from right to left."""
    schema = Schema([Attribute("region", REGIONS), Attribute("income group", INCOMES)])
    weights = np.outer([5.0, 4, 3, 2, 2, 1, 1], [1.0, 2, 3, 2, 1]) + np.eye(7, 5) * 4
    return released_estimate(CountTable(schema, apportion(weights.reshape(-1), 50_000)), 2.0)


def run(*command: str | Path) -> bytes:
    """Run a program and return what it prints."""
    arguments = [str(part) for part in command]
    return subprocess.run(arguments, check=True, capture_output=True, timeout=120).stdout  # noqa: S603 - fixed programs


def pages(pdf: Path) -> list[NDArray[np.uint8]]:
    """Return the pages as grey pictures of 20 dots per inch."""
    stream, found = run(needed(PDF_PICTURES), "-r", "20", "-gray", pdf), []
    while stream:
        header = re.match(rb"P5\s+(\d+)\s+(\d+)\s+255\s", stream)
        assert header is not None
        width, height = int(header[1]), int(header[2])
        end = header.end() + width * height
        picture = np.frombuffer(stream[header.end() : end], dtype=np.uint8)
        found.append(picture.reshape(height, width))
        stream = stream[end:]
    return found


def four_by_three() -> Estimate:
    """Return an estimate of three attributes: each pair has a small map and its groups."""
    schema = Schema(
        [
            Attribute("x", [str(place) for place in range(4)]),
            Attribute("y", [str(place) for place in range(3)]),
            Attribute("g", [f"group {place}" for place in range(3)]),
        ]
    )
    weights = np.einsum("i,j,k->ijk", [4.0, 3, 2, 2], [4.0, 3, 3], [5.0, 3, 2])
    return released_estimate(CountTable(schema, apportion(weights.reshape(-1), 20_000)), 1.0)


def printed(estimate: Estimate, folder: Path) -> Path:
    """Return the report as a browser prints it."""
    estimate.report(folder / "report.html")
    pdf = folder / "report.pdf"
    run(
        needed(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--no-first-run",
        f"--user-data-dir={folder / 'browser'}",
        "--no-pdf-header-footer",
        f"--print-to-pdf={pdf}",
        f"file://{folder / 'report.html'}",
    )
    return pdf


def check_paper(pdf: Path) -> None:
    """Nothing is cut off, and less than a third of a page is blank, but for the last one."""
    drawn = [page < 235 for page in pages(pdf)]
    for ink in drawn:
        assert not ink[:, :3].any()
        assert not ink[:, -3:].any()
    for number, ink in enumerate(drawn[:-1], start=1):
        lines = np.flatnonzero(ink.any(axis=1))
        assert lines[-1] > ink.shape[0] * 2 / 3, number


@pytest.mark.slow
def test_a_wide_table_is_printed_whole(tmp_path: Path) -> None:
    """Every category, share and interval is on paper, within margins, and pages are full."""
    text_of = needed(PDF_TEXT)
    estimate = seven_by_five()
    pdf = printed(estimate, tmp_path)
    text = re.sub(r"\s", "", run(text_of, "-raw", pdf, "-").decode())
    for name in (*REGIONS[:-1], *INCOMES):  # text from right to left comes out in another order
        assert name.replace(" ", "") in text
    for share, low, high in estimate.table().select("share", "low", "high").iter_rows():
        interval = f"{points(low)}–{points(high)}"
        tile = rf"{points(share)}([▲▼][\d.]+)?(standarderrors\w+)?{interval}"
        assert re.search(tile, text)  # in the heat map
        assert f"{points(share)}%{interval}" in text  # in the whole table
    check_paper(pdf)


@pytest.mark.slow
def test_pairs_follow_each_other_on_paper(tmp_path: Path) -> None:
    """A pair's map and its groups need not be on one page: with several, none stays half empty."""
    check_paper(printed(four_by_three(), tmp_path))
