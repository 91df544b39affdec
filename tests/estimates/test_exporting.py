"""An exported estimate: other programs have all they need, and no N×N matrix."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import veiltab as vt
from veiltab.core.uncertainty import Population
from veiltab.errors import OutputError, ParameterError

WAYS: dict[str, dict[str, Any]] = {
    "pure": {},
    "delta": {"delta": 1e-6},
    "matched": {"linkage": "matched"},
    "channel": {"epsilon_with_curator": 3.0},
    "paper": {"mechanism": "paper"},
    "shuffle": {"mechanism": "shuffle", "delta": 1e-6},
}


def covariance(about: dict[str, Any], population: str, part: str, share: np.ndarray) -> np.ndarray:
    """Build the matrix that the documented formula describes."""
    k, cells = about["covariance"][population][part], share.size
    apart, ones = share - 1 / cells, np.ones((cells, cells))
    matrix: np.ndarray = (
        k["x"] * (np.diag(share) - np.outer(share, share))
        + k["y"] * (np.eye(cells) / cells - ones / cells**2)
        + k["z"] * np.outer(apart, apart)
    )
    return matrix


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("published", [False, True])
def test_the_factors_give_the_errors_of_any_sum(
    tmp_path: Path, way: str, *, published: bool
) -> None:
    """The formula of the reference, against this program's own errors, for every mechanism."""
    estimate = vt.simulate(vt.adult_table(24), epsilon=1.0, seed=3, **WAYS[way])
    estimate = estimate.publish() if published else estimate
    estimate.export(tmp_path / "estimate.json")
    about = json.loads((tmp_path / "estimate.json").read_text("utf-8"))
    cells = about["cells"]
    share, weights = np.array(cells["plausible"]), np.arange(24) % 5 - 1.5
    populations: tuple[Population, ...] = ("finite", "super")
    for population in populations:
        found = estimate.linear(weights, population=population)
        assert weights @ cells["unbiased"] == pytest.approx(found.value, rel=1e-12)
        own = estimate.uncertainty(population)
        for part, variance, error in (
            ("total", own.total, found.standard_error),
            ("sampling", own.sampling, found.sampling_error),
            ("privacy", own.privacy, found.privacy_error),
        ):
            matrix = covariance(about, population, part, share)
            exported = weights @ matrix @ weights
            assert exported == pytest.approx(variance(weights), rel=1e-9)
            # Answers plug in a table that takes cells of the same weight together.
            assert exported**0.5 == pytest.approx(error, rel=0.02)
        column = "standard_error" if population == "finite" else "standard_error_super"
        spread = np.diag(covariance(about, population, "total", share)) ** 0.5
        np.testing.assert_allclose(cells[column], spread, rtol=1e-9)


def test_both_formats_say_the_same(tmp_path: Path) -> None:
    """The columns, and the rest in the metadata of the Parquet file."""
    estimate = vt.simulate(vt.adult_table(24), epsilon=1.0, seed=3).publish()
    for name in ("a.json", "a.parquet"):
        estimate.export(tmp_path / name)
    about = json.loads((tmp_path / "a.json").read_text("utf-8"))
    frame = pl.read_parquet(tmp_path / "a.parquet")
    columns = about.pop("cells")
    assert {name: frame[name].to_list() for name in frame.columns} == columns
    assert json.loads(pl.read_parquet_metadata(tmp_path / "a.parquet")["veiltab"]) == about
    assert about["format"] == "veiltab export"
    assert about["version"] == 1
    assert about["cell_count"] == 24
    assert about["summary"] == json.loads(json.dumps(estimate.summary()))
    table = estimate.table("unbiased")
    assert columns["unbiased"] == table["share"].to_list()
    assert columns["salary"] == table["salary"].to_list()


def test_attributes_may_have_any_name(tmp_path: Path) -> None:
    """A column of numbers keeps its name; the attribute's gets another."""
    schema = vt.Schema([vt.Attribute("unbiased", ["a", "b"]), vt.Attribute("share", ["c", "d"])])
    table = vt.CountTable(schema, np.array([900, 800, 700, 600]))
    vt.simulate(table, epsilon=1.0, seed=0).export(tmp_path / "a.json")
    cells = json.loads((tmp_path / "a.json").read_text("utf-8"))["cells"]
    assert cells["unbiased (attribute)"] == ["a", "a", "b", "b"]
    assert cells["share"] == ["c", "d", "c", "d"]


def test_what_cannot_be_exported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another ending, a name that is taken, and too many cells for JSON."""
    estimate = vt.simulate(vt.adult_table(24), epsilon=1.0, seed=3)
    with pytest.raises(ParameterError, match="cannot be exported") as caught:
        estimate.export(tmp_path / "a.csv")
    assert ".parquet" in caught.value.hint
    estimate.export(tmp_path / "a.json")
    with pytest.raises(OutputError):
        estimate.export(tmp_path / "a.json")
    monkeypatch.setattr("veiltab.estimates.exporting.JSON_CELLS", 23)
    with pytest.raises(ParameterError, match="24 cells is too large for JSON"):
        estimate.export(tmp_path / "b.json")
    estimate.export(tmp_path / "b.parquet")
