"""``veiltab estimate`` with files: exports, saved estimates, and places that are taken."""

import csv
import json
from pathlib import Path

import polars as pl
import pytest

from tests.support.commands import Outcome, assert_refused, run_here
from tests.support.documents import read_page
from tests.support.estimates import adult_to_show, odd_estimate
from tests.support.http_simulator import http_study
from tests.support.servers import make_context, running
from tests.support.simulator import Stage
from veiltab.estimates import Estimate

Capture = pytest.CaptureFixture[str]
CONDITION = "salary = '>50K' and gender = 'female'"


@pytest.fixture(autouse=True)
def _no_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every home away: a saved estimate needs none."""
    monkeypatch.setenv("VEILTAB_HOME", str(tmp_path / "there" / "is" / "none"))


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """Save an estimate of the Adult table."""
    path = tmp_path / "adult.estimate"
    adult_to_show().save(path)
    return path


def load(capsys: Capture, path: Path, *options: object) -> Outcome:
    """Work on a saved estimate."""
    return run_here(capsys, "estimate", "--load", path, *options)


@pytest.mark.slow
def test_every_export_has_the_same_numbers(capsys: Capture, saved: Path, tmp_path: Path) -> None:
    """CSV, Parquet and JSON hold the table of the estimate, and so does a copy of it."""
    paths = {name: tmp_path / f"out.{name}" for name in ("csv", "parquet", "save", "report")}
    options = [part for name, path in paths.items() for part in (f"--{name}", path)]
    outcome = load(capsys, saved, *options, "--level", 0.9, "--estimator", "most-likely", "--json")
    assert outcome.code == 0
    assert outcome.err.startswith("warning: the researcher's own view: not for passing on")
    found = json.loads(outcome.out)
    table = Estimate.load(saved).table("most_likely", level=0.9)
    assert found["cells"] == table.rows(named=True)
    assert found["files"] == {name: str(path) for name, path in paths.items()}
    assert pl.read_parquet(paths["parquet"]).rows() == table.rows()
    with paths["csv"].open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == [*table.columns, "status"]
    for row, real in zip(rows[1:], table.rows(), strict=True):
        assert row[:4] == list(real[:4])
        assert [float(cell) for cell in row[4:-3]] == list(real[4:-2])
        assert (row[-3] or None) == real[-2]
        assert row[-2] == real[-1]
        assert "not for passing on" in row[-1]
    assert paths["save"].read_bytes() == saved.read_bytes()
    read_page(paths["report"].read_text("utf-8"))


def test_a_parquet_file_says_what_was_promised(
    capsys: Capture, saved: Path, tmp_path: Path
) -> None:
    """In its metadata, as JSON."""
    load(capsys, saved, "--parquet", tmp_path / "table.parquet")
    note = json.loads(pl.read_parquet_metadata(tmp_path / "table.parquet")["veiltab"])
    assert (note["epsilon"], note["delta"], note["title"]) == (1.0, 0.0, "Work and wages")
    assert len(note["promises"]) == 3
    assert note["published"] is None
    assert "not for passing on" in note["status"]


def test_odd_names_in_files(capsys: Capture, tmp_path: Path) -> None:
    """Quotes, emoji and right-to-left text come back from every file; in CSV, no formula does."""
    odd_estimate().save(tmp_path / "odd")
    options = ("--csv", tmp_path / "t.csv", "--parquet", tmp_path / "t.parquet")
    assert load(capsys, tmp_path / "odd", *options).code == 0
    table = odd_estimate().table()
    names = table.columns[:3]
    texts = table[names].with_columns(pl.all().cast(pl.String).str.replace(r"^[=+@-]", "'$0"))
    assert pl.read_csv(tmp_path / "t.csv", infer_schema=False)[names].rows() == texts.rows()
    assert pl.read_parquet(tmp_path / "t.parquet")[names].rows() == table[names].rows()


def test_some_attributes_of_a_saved_estimate(capsys: Capture, saved: Path) -> None:
    """In the order asked for; the same as the marginal."""
    options = ("--attribute", "salary", "--attribute", "gender", "--json")
    found = json.loads(load(capsys, saved, *options).out)
    assert [each["name"] for each in found["attributes"]] == ["salary", "gender"]
    table = Estimate.load(saved).marginal(["salary", "gender"]).table()
    assert found["cells"] == table.rows(named=True)


def test_conditions(capsys: Capture, saved: Path) -> None:
    """Each is answered, in order, as the estimate answers it."""
    options = ("--where", CONDITION, "--where", "gender = 'male'", "--population", "super")
    found = json.loads(load(capsys, saved, *options, "--json").out)["answers"]
    assert [each["condition"] for each in found] == [CONDITION, "gender = 'male'"]
    answer = Estimate.load(saved).probability(CONDITION, population="super")
    assert found[0] == {"condition": CONDITION, **answer.as_dict()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--where", "wealth = 'much'"), "there is no attribute 'wealth'"),
        (("--where", "gender = 'male' and gender = 'female'"), "nobody can meet the condition"),
        (("--where", "gender == "), "the condition ends where"),
        (("--attribute", "wealth"), "the schema has no attribute 'wealth'"),
        (("--level", "1"), "a confidence level lies between 0 and 1"),
        (("--grant", "x.grant"), "--grant goes with a study"),
        (("--csv", "same", "--parquet", "same"), "two files have the same name"),
    ],
)
def test_what_is_refused(
    capsys: Capture, saved: Path, tmp_path: Path, options: tuple[str, ...], message: str
) -> None:
    """In words, and before any file is written."""
    outcome = load(capsys, saved, *options, "--save", tmp_path / "new")
    assert_refused(outcome)
    assert message in outcome.err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("arguments", [(), ("study", "--load", "file")])
def test_either_a_study_or_a_file(capsys: Capture, arguments: tuple[str, ...]) -> None:
    """Not both, and not neither."""
    outcome = run_here(capsys, "estimate", *arguments)
    assert_refused(outcome)
    assert "either a study or a file" in outcome.err


def test_a_file_that_is_no_estimate(capsys: Capture, tmp_path: Path) -> None:
    """Or is not there at all."""
    (tmp_path / "text").write_text("hello")
    assert "is not a saved estimate" in load(capsys, tmp_path / "text").err
    assert "cannot read" in load(capsys, tmp_path / "none").err


@pytest.mark.parametrize("option", ["report", "csv", "parquet", "save"])
def test_nothing_is_overwritten(capsys: Capture, saved: Path, tmp_path: Path, option: str) -> None:
    """Whatever is there stays, and so it is with folders that do not exist."""
    taken = tmp_path / "taken"
    taken.write_text("mine")
    outcome = load(capsys, saved, f"--{option}", taken)
    assert_refused(outcome, code=1)
    assert "exists already" in outcome.err
    assert taken.read_text() == "mine"
    assert_refused(load(capsys, saved, f"--{option}", tmp_path / "no" / "folder"), code=1)


def test_figures_need_an_empty_folder(capsys: Capture, saved: Path, tmp_path: Path) -> None:
    """Pictures are drawn into a new or an empty one, and into no other."""
    folder = tmp_path / "pictures"
    folder.mkdir()
    options = ("--attribute", "gender", "--figures", folder)
    assert load(capsys, saved, *options).code == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "attribute-1-gender.png",
        "attribute-1-gender.svg",
    ]
    outcome = load(capsys, saved, *options)
    assert_refused(outcome, code=1)
    assert "is not empty" in outcome.err


@pytest.mark.slow
def test_from_a_running_service_to_a_report(capsys: Capture, tmp_path: Path) -> None:
    """Fetch, report and save with a server; then without one the same numbers again."""
    with running(make_context(tmp_path / "data")) as service:
        study = http_study(service, tmp_path, Stage.GRANTED)
        home = ("--home", study.researcher.home.path)
        files = ("--report", tmp_path / "out.html", "--save", tmp_path / "out.estimate")
        outcome = run_here(capsys, "publish", study.study.hex(), *home, *files, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    found = json.loads(outcome.out)
    assert found["published"]["epsilon"] == 1.0
    assert (found["study"], found["title"]) == (study.study.hex(), "a study")
    assert found["perturbed_by"] == "server"
    text = read_page((tmp_path / "out.html").read_text("utf-8")).text
    for known in (study.study.hex(), "curator 1", "curator 2", "researcher", "published copy"):
        assert known in text
    again = json.loads(load(capsys, tmp_path / "out.estimate", "--json").out)
    assert again | {"files": None} == found | {"files": None}
