"""The files that an estimate writes: a report, pictures and tables; none is overwritten."""

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from tests.support.documents import read_page
from tests.support.estimates import ORIGIN, adult_estimate, released_estimate
from veiltab.core.schema import Attribute, CountTable, Schema
from veiltab.errors import OutputError
from veiltab.estimates import Estimate
from veiltab.inference.independence import independence_test
from veiltab.report import view

ESTIMATE = adult_estimate().marginal(["gender", "salary"])
WRITERS: dict[str, Callable[[Path], object]] = {
    "report": ESTIMATE.report,
    "csv": ESTIMATE.write_csv,
    "parquet": ESTIMATE.write_parquet,
    "save": ESTIMATE.save,
}


def test_a_report_is_complete_by_itself(tmp_path: Path) -> None:
    """Who took part comes from the provenance, also after saving and loading."""
    origin = replace(
        ORIGIN,
        researcher="Dr. Rivera",
        holders={"salary": "Tax office", "gender": "Registry"},
        linkage="matched",
        pads="one-time",
    )
    Estimate.from_counts(ESTIMATE, provenance=origin).save(tmp_path / "saved")
    condition = "salary = '>50K'"
    Estimate.load(tmp_path / "saved").report(str(tmp_path / "r.html"), conditions=[condition])
    text = read_page((tmp_path / "r.html").read_text("utf-8")).text
    for known in ("Dr. Rivera", "held by Tax office", "the server", "one-time pads", condition):
        assert known in text
    assert "Registry, Tax office: Work and wages, study" in text


def test_options_reach_the_report(tmp_path: Path) -> None:
    """Level, population and kind of interval."""
    ESTIMATE.report(tmp_path / "r.html", level=0.9, simultaneous=True, population="super")
    text = read_page((tmp_path / "r.html").read_text("utf-8")).text
    assert "simultaneous 90% interval" in text
    assert "the larger population that the respondents were drawn from" in text


@pytest.mark.slow
def test_a_report_and_its_pictures_are_computed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Conditions make no difference to the pictures."""
    calls = []

    def counted(*arguments: object, **options: object) -> object:
        calls.append(arguments)
        return independence_test(*arguments, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(view, "independence_test", counted)
    estimate = Estimate.from_counts(ESTIMATE)
    estimate.report(tmp_path / "r.html", conditions=["salary = '>50K'"])
    files = estimate.figures(tmp_path / "pictures")
    assert len(calls) == 1
    assert sorted(tmp_path.glob("pictures/*")) == sorted(files)
    estimate.report(tmp_path / "other.html", level=0.9)
    assert len(calls) == 2


def test_tables(tmp_path: Path) -> None:
    """CSV and Parquet hold the table with its options; Parquet also what was promised."""
    table = ESTIMATE.table("unbiased", level=0.9)
    ESTIMATE.write_csv(tmp_path / "t.csv", "unbiased", level=0.9)
    ESTIMATE.write_parquet(tmp_path / "t.parquet", "unbiased", level=0.9)
    marked = table.with_columns(status=pl.lit(ESTIMATE.status))
    assert (tmp_path / "t.csv").read_text("utf-8") == marked.write_csv()
    assert pl.read_parquet(tmp_path / "t.parquet").rows() == table.rows()
    note = pl.read_parquet_metadata(tmp_path / "t.parquet")["veiltab"]
    assert json.loads(note) == ESTIMATE.summary()


def test_no_name_is_a_formula_in_a_spreadsheet(tmp_path: Path) -> None:
    """Whoever proposes a study chooses its names, and a formula could send the shares away."""
    names = [Attribute("=A1", ["@x", "-1"]), Attribute("b", ["=B1", "c"])]
    counts = CountTable(Schema(names), np.full(4, 250))
    released_estimate(counts, 3.0).write_csv(tmp_path / "t.csv")
    head, *rows = csv.reader((tmp_path / "t.csv").read_text("utf-8").splitlines())
    assert head[:2] == ["'=A1", "b"]
    assert [row[:2] for row in rows] == [["'@x", "'=B1"], ["'@x", "c"], ["-1", "'=B1"], ["-1", "c"]]


@pytest.mark.parametrize("writer", WRITERS)
def test_nothing_is_overwritten(writer: str, tmp_path: Path) -> None:
    """A name that is taken is refused, and what is there stays."""
    taken = tmp_path / "taken"
    taken.write_text("mine")
    with pytest.raises(OutputError, match="exists already"):
        WRITERS[writer](taken)
    assert taken.read_text() == "mine"


def test_pictures_need_an_empty_folder(tmp_path: Path) -> None:
    """One with anything in it is refused."""
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(OutputError, match="is not empty"):
        ESTIMATE.figures(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]
