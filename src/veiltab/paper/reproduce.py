"""Run every experiment of the paper and our own, draw the figures, and check the claims."""

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from veiltab.core.parameters import check_runs, check_seed
from veiltab.files.disk import make_output_folder, write_output
from veiltab.paper import comparison, figures
from veiltab.paper.claims import Claim, check_claims, check_comparisons
from veiltab.paper.comparison import Comparison, SimulatedPoint, compare
from veiltab.paper.experiment import Result, run_experiment
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
    """Run every experiment and write the figures and all their points to ``folder``.

    ``track`` shows progress, once for each part of the work.
    """
    check_runs(runs, fewest=FEWEST_RUNS)
    check_seed(seed)
    make_output_folder(folder)
    experiments = _run(runs, seed, track)
    tables = {
        "results.csv": experiments.point_rows(),
        "comparison.csv": [compared.row() for compared in experiments.compared],
    }
    for name, rows in tables.items():
        write_output(folder / name, _csv_bytes(rows))
    pictures = _draw(folder, experiments.charts(), track)
    claims = check_claims(experiments.by_size, experiments.by_cells)
    claims += check_comparisons(experiments.compared, [r for _, r in experiments.simulated])
    return Reproduction([*pictures, *(folder / name for name in tables)], claims)


@dataclass(frozen=True, slots=True)
class Experiments:
    """The results of all experiments: the paper's own, and those of the comparison."""

    by_size: Sequence[Result]
    by_cells: Sequence[Result]
    compared: Sequence[Comparison]
    simulated: Sequence[tuple[SimulatedPoint, Result]]

    def charts(self) -> dict[str, ErrorChart]:
        """Return every figure by the name of its file."""
        charts = {
            figure.stem: figures.sample_size_chart(figure, self.by_size)
            for figure in figures.SAMPLE_SIZE_FIGURES
        }
        charts[figures.CARDINALITY_FIGURE.stem] = figures.cardinality_chart(self.by_cells)
        for figure in comparison.FIGURES:
            chart = comparison.comparison_chart(figure, self.compared, self.simulated)
            charts[figure.stem] = chart
        charts[comparison.GAIN_FIGURE.stem] = comparison.gain_chart(self.compared)
        return charts

    def point_rows(self) -> list[dict[str, object]]:
        """Return one row for every simulated point of every figure."""
        numbered = [
            (figure.number, result)
            for figure in figures.SAMPLE_SIZE_FIGURES
            for result in figure.pick(self.by_size)
        ]
        numbered += [(figures.CARDINALITY_FIGURE.number, result) for result in self.by_cells]
        numbered += [(point.comparison.figure, result) for point, result in self.simulated]
        return [{"figure": number} | asdict(result) for number, result in numbered]


def _run(runs: int, seed: int, track: Track) -> Experiments:
    by_size, by_cells = figures.sample_size_settings(), figures.cardinality_settings()
    settings = track([*by_size, *by_cells], "Running the paper's experiments")
    results = [run_experiment(setting, runs, seed) for setting in settings]
    places = [
        (figure, sizes)
        for figure in (*comparison.FIGURES, comparison.GAIN_FIGURE)
        for sizes in figure.sizes
    ]
    compared = [compare(figure, sizes) for figure, sizes in track(places, "Planning other ways")]
    points = track(comparison.simulated_points(compared), "Simulating other ways")
    simulated = [(point, run_experiment(point.setting, runs, seed)) for point in points]
    return Experiments(results[: len(by_size)], results[len(by_size) :], compared, simulated)


def _csv_bytes(rows: Sequence[Mapping[str, object]]) -> bytes:
    """Return rows of the same keys as a CSV file with a header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _draw(folder: Path, charts: Mapping[str, ErrorChart], track: Track) -> list[Path]:
    written = []
    for stem, chart in track(list(charts.items()), "Drawing the figures"):
        paths = [folder / f"{stem}{suffix}" for suffix in (".svg", ".png")]
        save_chart(chart.draw(), *paths)
        written += paths
    return written
