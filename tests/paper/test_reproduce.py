"""Reproducing the paper: every file is there and whole, and the same seed gives the same bytes."""

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from veiltab.errors import OutputError, ParameterError
from veiltab.paper import reproduce as module
from veiltab.paper.comparison import Comparison, ComparisonFigure, Sizes, compare
from veiltab.paper.figures import sample_sizes
from veiltab.paper.reproduce import Reproduction, reproduce
from veiltab.report.charts import save_chart

RUNS = 10
STEMS = [
    *("figure-1-adult", "figure-2-adult-and-uniform", "figure-3-adult-and-linear"),
    *("figure-4-adult-and-peaky", "figure-5-cardinality"),
    *("figure-6-epsilon", "figure-7-population", "figure-8-cells", "figure-9-gain"),
]
FILES = sorted([f"{stem}{suffix}" for stem in STEMS for suffix in (".png", ".svg")])
DATA = {1: 1, 2: 2, 3: 2, 4: 2}
"""How many data sets each of the first four figures shows."""

COLUMNS = [
    *("figure", "distribution", "mechanism", "population_size", "cells", "epsilon", "delta"),
    *("sample_size", "coin_probability", "expected_rows", "gamma", "runs", "mean_l2", "rmse"),
    *("rmse_standard_error", "exact_rmse", "error_bound", "tightened_bound"),
]


@pytest.fixture(scope="module", autouse=True)
def planned_once() -> Iterator[None]:
    """Plan figures 6 to 9 once for all tests: no seed has a part in it, and it takes seconds."""
    plans: dict[object, Comparison] = {}

    def compare_once(figure: ComparisonFigure, sizes: Sizes) -> Comparison:
        key = (figure.number, sizes)
        if key not in plans:
            plans[key] = compare(figure, sizes)
        return plans[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "compare", compare_once)
        yield


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Reproduction]:
    """Reproduce the paper once, in a folder two levels below one that is there."""
    folder = tmp_path_factory.mktemp("paper") / "new" / "folder"
    return folder, reproduce(folder, runs=RUNS, seed=1)


def rows_of(folder: Path) -> list[dict[str, str]]:
    """Read the results as a spreadsheet would."""
    text = (folder / "results.csv").read_text(encoding="utf-8")
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.slow
def test_every_file_is_there_and_reported(reproduced: tuple[Path, Reproduction]) -> None:
    """Eighteen pictures and two tables, nothing half-written, nothing else."""
    folder, found = reproduced
    assert sorted(path.name for path in folder.iterdir()) == [
        "comparison.csv",
        *FILES,
        "results.csv",
    ]
    assert sorted(found.files) == sorted(folder.iterdir())
    for path in found.files:
        assert path.stat().st_size > 1000
        assert path.stat().st_mode & 0o777 == 0o644


@pytest.mark.slow
def test_the_pictures_are_pictures(reproduced: tuple[Path, Reproduction]) -> None:
    """Each SVG parses and has the figure's number in its text; each PNG has its signature."""
    folder, _ = reproduced
    for number, stem in enumerate(STEMS, start=1):
        root = ET.fromstring((folder / f"{stem}.svg").read_text(encoding="utf-8"))  # noqa: S314
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert f"Figure {number}." in "".join(root.itertext())
        data = (folder / f"{stem}.png").read_bytes()
        assert data.startswith(b"\x89PNG\r\n\x1a\n")
        assert data[-8:-4] == b"IEND"


@pytest.mark.slow
def test_the_table_has_every_point_of_every_figure(reproduced: tuple[Path, Reproduction]) -> None:
    """One line a point, under the documented names."""
    rows = rows_of(reproduced[0])
    assert list(rows[0]) == COLUMNS
    for figure, data in DATA.items():
        points = [
            (r["distribution"], r["epsilon"], r["sample_size"])
            for r in rows
            if r["figure"] == str(figure)
        ]
        assert len(points) == len(set(points)) == data * 3 * len(sample_sizes())
    fifth = [(r["distribution"], r["epsilon"], r["cells"]) for r in rows if r["figure"] == "5"]
    assert len(fifth) == len(set(fifth)) == 4 * 3 * 7
    names = ("figure", "population_size", "cells", "epsilon", "mechanism", "delta", "gamma")
    others = [tuple(r[name] for name in names) for r in rows if int(r["figure"]) > 5]
    # Five ways at nine ε, nine populations and the paper's seven cardinalities.
    assert len(others) == len(set(others)) == 5 * (9 + 9 + 7)
    assert len(rows) == 7 * 3 * len(sample_sizes()) + 84 + len(others)


@pytest.mark.slow
def test_the_comparison_has_every_point_of_figures_6_to_9(
    reproduced: tuple[Path, Reproduction],
) -> None:
    """All ε for the paper's population, all populations, all numbers of cells, and the gains."""
    text = (reproduced[0] / "comparison.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    places = [
        (int(r["figure"]), int(r["population_size"]), int(r["domain_size"]), float(r["epsilon"]))
        for r in rows
    ]
    epsilons = [0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0]
    sizes = [300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000]
    cells = [2, 6, 12, 24, 48, 96, 192, 384, 768, 3_072, 12_288]
    assert places[:29] == [
        *((6, 45_222, 24, epsilon) for epsilon in epsilons),
        *((7, size, 24, 0.5) for size in sizes),
        *((8, 45_222, number, 0.5) for number in cells),
    ]
    assert {place[0] for place in places[29:]} == {9}
    for row in rows:
        assert float(row["decoys_rmse"]) < float(row["pure_rmse"])
    for row in rows[:29]:
        pure, decoys = float(row["pure_rmse"]), float(row["decoys_rmse"])
        assert decoys < float(row["decoys_guarded_rmse"]) < pure
        assert float(row["decoys_delta_rmse"]) < min(decoys, float(row["shuffle_rmse"]))
        assert float(row["decoys_delta_rmse"]) < 1.01 * float(row["trusted_party_rmse"])


@pytest.mark.slow
def test_the_table_holds_numbers(reproduced: tuple[Path, Reproduction]) -> None:
    """Every point has its runs, and errors that are positive and, by rank, below the bound."""
    for row in rows_of(reproduced[0]):
        assert row["runs"] == str(RUNS)
        assert 0 < float(row["mean_l2"]) <= float(row["rmse"])
        if row["mechanism"] == "decoys":
            assert (row["sample_size"], row["error_bound"], row["tightened_bound"]) == ("", "", "")
            assert 0 < float(row["coin_probability"]) <= 1
        else:
            assert float(row["rmse"]) < float(row["error_bound"])
            assert float(row["tightened_bound"]) < float(row["error_bound"])
            assert row["coin_probability"] == ""
        assert float(row["rmse"]) == pytest.approx(float(row["exact_rmse"]), rel=0.9)


@pytest.mark.slow
def test_the_claims_come_along(reproduced: tuple[Path, Reproduction]) -> None:
    """Nine verdicts on the paper's figures, and seven on ours."""
    figures = [claim.figure for claim in reproduced[1].claims]
    assert figures == [1, 1, 2, 3, 4, 5, 5, 5, None, 6, 6, 6, 6, 8, 9, None]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(
    reproduced: tuple[Path, Reproduction], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second time into the same folder replaces the files by the same numbers.

    Of the pictures, which take seconds, only the first is drawn again.
    """
    folder, first = reproduced

    def draw_first(chart: Any, *paths: Path) -> None:  # noqa: ANN401 - handed on
        if folder / FILES[0] in paths:
            save_chart(chart, *paths)

    monkeypatch.setattr(module, "save_chart", draw_first)
    before = (folder / "results.csv").read_bytes()
    (folder / "results.csv").write_text("stale")
    (folder / FILES[0]).write_text("stale")
    again = reproduce(folder, runs=RUNS, seed=1)
    assert (folder / "results.csv").read_bytes() == before
    assert (folder / FILES[0]).stat().st_size > 1000
    assert again == first
    assert sorted(path.name for path in folder.iterdir()) == [
        "comparison.csv",
        *FILES,
        "results.csv",
    ]


@pytest.mark.slow
def test_another_seed_gives_other_numbers(
    reproduced: tuple[Path, Reproduction], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulated numbers change, and nothing that theory says does; no picture is needed for it."""
    monkeypatch.setattr(module, "_draw", lambda *_: [])
    reproduce(tmp_path, runs=RUNS, seed=2)
    pairs = list(zip(rows_of(reproduced[0]), rows_of(tmp_path), strict=True))
    for one, other in pairs:
        for name in ("figure", "distribution", "sample_size", "gamma", "exact_rmse"):
            assert one[name] == other[name]
    changed = sum(one["rmse"] != other["rmse"] for one, other in pairs)
    assert changed > 0.95 * len(pairs)  # tiny samples have few outcomes, and may coincide


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    """Below a file nothing can be written; the file stays as it is."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputError, match=r"cannot write .*folder: Not a directory"):
        reproduce(tmp_path / "file" / "folder", runs=RUNS)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("runs", [9, 1, 0, -10, 10**7 + 1])
def test_too_few_or_too_many_runs_are_refused(tmp_path: Path, runs: int) -> None:
    """Before anything is written, not even the folder."""
    with pytest.raises(ParameterError, match="number of runs must be a whole number from 10"):
        reproduce(tmp_path / "new", runs=runs)
    assert list(tmp_path.iterdir()) == []


def test_a_bad_seed_is_refused(tmp_path: Path) -> None:
    """Before anything is written, too."""
    with pytest.raises(ParameterError, match="seed must be a whole number from 0"):
        reproduce(tmp_path / "new", runs=RUNS, seed=-1)
    assert list(tmp_path.iterdir()) == []
