"""Run every experiment of the paper, draw its figures, write all points, and check its claims."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from veiltab.core.parameters import check_runs, check_seed
from veiltab.files.disk import make_output_folder, write_output
from veiltab.paper import figures
from veiltab.paper.claims import Claim, check_claims, check_gain
from veiltab.paper.experiment import ADULT_POPULATION, Result, run_experiment
from veiltab.paper.figures import Comparison, compare
from veiltab.report.charts import ErrorChart, save_chart

FEWEST_RUNS = 10
"""Below this a point's mean says nothing about the paper's claims."""

DEFAULT_SEED = 1
"""Fixed, so that everybody who reproduces the paper gets the same numbers."""

Item = TypeVar("Item")


class Track(Protocol):
    """Passes on the items of a sequence, and shows how far the work is."""

    def __call__(self, items: Sequence[Item], description: str, /) -> Iterable[Item]:
        """Yield the items one by one."""


def _silently(items: Sequence[Item], _description: str) -> Iterable[Item]:
    return items


@dataclass(frozen=True, slots=True)
class Reproduction:
    """The files that were written, and the paper's claims with their verdicts."""

    files: list[Path]
    claims: list[Claim]


def reproduce(
    folder: Path, *, runs: int = 1000, seed: int = DEFAULT_SEED, track: Track = _silently
) -> Reproduction:
    """Run every experiment of the paper and write its figures and all points to ``folder``.

    ``track`` shows progress, once for each part of the work.
    """
    check_runs(runs, fewest=FEWEST_RUNS)
    check_seed(seed)
    make_output_folder(folder)
    by_size, by_cells = figures.sample_size_settings(), figures.cardinality_settings()
    settings = track([*by_size, *by_cells], "Running the paper's experiments")
    results = [run_experiment(setting, runs, seed) for setting in settings]
    size_results, cell_results = results[: len(by_size)], results[len(by_size) :]
    compared = _compare(track)
    tables = {
        "results.csv": _point_rows(size_results, cell_results),
        "comparison.csv": [asdict(comparison) for comparison in compared],
    }
    for name, rows in tables.items():
        write_output(folder / name, _csv_bytes(rows))
    pictures = _draw(folder, _charts(size_results, cell_results, compared), track)
    claims = [*check_claims(size_results, cell_results), check_gain(compared)]
    return Reproduction([*pictures, *(folder / name for name in tables)], claims)


def _csv_bytes(rows: Sequence[Mapping[str, object]]) -> bytes:
    """Return rows of the same keys as a CSV file with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _compare(track: Track) -> list[Comparison]:
    """Plan the settings of figures 6 and 7."""
    by_epsilon = [(ADULT_POPULATION, epsilon) for epsilon in figures.COMPARED_EPSILONS]
    by_population = [(size, figures.COMPARED_EPSILON) for size in figures.COMPARED_SIZES]
    settings = track([*by_epsilon, *by_population], "Planning with shuffling")
    return [compare(population, epsilon) for population, epsilon in settings]


def _charts(
    by_size: Sequence[Result], by_cells: Sequence[Result], compared: Sequence[Comparison]
) -> dict[str, ErrorChart]:
    charts = {
        figure.stem: figures.sample_size_chart(figure, by_size)
        for figure in figures.SAMPLE_SIZE_FIGURES
    }
    charts[figures.CARDINALITY_FIGURE.stem] = figures.cardinality_chart(by_cells)
    split = len(figures.COMPARED_EPSILONS)
    charts["figure-6-shuffling-epsilon"] = figures.epsilon_chart(compared[:split])
    charts["figure-7-shuffling-population"] = figures.population_chart(compared[split:])
    return charts


def _draw(folder: Path, charts: Mapping[str, ErrorChart], track: Track) -> list[Path]:
    written = []
    for stem, chart in track(list(charts.items()), "Drawing the figures"):
        paths = [folder / f"{stem}{suffix}" for suffix in (".svg", ".png")]
        save_chart(chart.draw(), *paths)
        written += paths
    return written


def _point_rows(by_size: Sequence[Result], by_cells: Sequence[Result]) -> list[dict[str, object]]:
    """Return one row for every point of figures 1 to 5."""
    rows: list[dict[str, object]] = [
        {"figure": figure.number} | asdict(result)
        for figure in figures.SAMPLE_SIZE_FIGURES
        for result in figure.pick(by_size)
    ]
    rows += [{"figure": figures.CARDINALITY_FIGURE.number} | asdict(result) for result in by_cells]
    return rows
