"""The whole of the paper's experiments: run, drawn, written down, and judged."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from veiltab.core.parameters import check_runs, check_seed
from veiltab.report.files import make_folder, write_whole
from veiltab.report.style import save_chart
from veiltab.simulation import figures
from veiltab.simulation.claims import Claim, check_claims
from veiltab.simulation.experiment import Result, run_experiment

FEWEST_RUNS = 10
"""Below this a point's mean says nothing about the paper's claims."""

DEFAULT_SEED = 1
"""Fixed, so that everybody who reproduces the paper gets the same numbers."""

Item = TypeVar("Item")


class Track(Protocol):
    """Wraps a sequence that is worked off, to show how far the work is."""

    def __call__(self, items: Sequence[Item], description: str, /) -> Iterable[Item]:
        """Hand out the items one by one."""


def _silently(items: Sequence[Item], _description: str) -> Iterable[Item]:
    return items


@dataclass(frozen=True, slots=True)
class Reproduction:
    """What came out: the files written, and the paper's claims with their verdicts."""

    files: list[Path]
    claims: list[Claim]


def reproduce(
    folder: Path, *, runs: int = 1000, seed: int = DEFAULT_SEED, track: Track = _silently
) -> Reproduction:
    """Run every experiment of the paper and write its figures and all points to ``folder``.

    ``track`` is wrapped around each part of the work, to show progress.
    """
    check_runs(runs, fewest=FEWEST_RUNS)
    check_seed(seed)
    make_folder(folder)
    by_size, by_cells = figures.sample_size_settings(), figures.cardinality_settings()
    settings = track([*by_size, *by_cells], "Running the paper's experiments")
    results = [run_experiment(setting, runs, seed) for setting in settings]
    size_results, cell_results = results[: len(by_size)], results[len(by_size) :]
    table = folder / "results.csv"
    write_whole(table, _csv(size_results, cell_results))
    pictures = _draw(folder, size_results, cell_results, track)
    return Reproduction([*pictures, table], check_claims(size_results, cell_results))


def _draw(
    folder: Path, by_size: Sequence[Result], by_cells: Sequence[Result], track: Track
) -> list[Path]:
    charts = {
        figure: figures.sample_size_chart(figure, by_size) for figure in figures.SAMPLE_SIZE_FIGURES
    }
    charts[figures.CARDINALITY_FIGURE] = figures.cardinality_chart(by_cells)
    written = []
    for figure, chart in track(list(charts.items()), "Drawing the figures"):
        paths = [folder / f"{figure.stem}{suffix}" for suffix in (".svg", ".png")]
        save_chart(chart.draw(), *paths)
        written += paths
    return written


def _csv(by_size: Sequence[Result], by_cells: Sequence[Result]) -> bytes:
    """Return one line for every point of every figure."""
    rows = [
        {"figure": figure.number} | asdict(result)
        for figure in figures.SAMPLE_SIZE_FIGURES
        for result in figure.pick(by_size)
    ]
    rows += [{"figure": figures.CARDINALITY_FIGURE.number} | asdict(result) for result in by_cells]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()
