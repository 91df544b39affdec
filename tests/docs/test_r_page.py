"""The pages with R: where R is installed their scripts are run, and print what is shown."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import veiltab as vt
from tests.support.documents import ROOT, blocks

PAGE = ROOT / "docs" / "howto" / "read-an-estimate-in-r.md"
OTHER_TOOLS = ROOT / "docs" / "explanation" / "compared-with-other-tools.md"
RSCRIPT = shutil.which("Rscript")


def need(*packages: str) -> None:
    """Skip the test where R or one of its packages is missing."""
    if RSCRIPT is None:
        pytest.skip("R is not installed")
    for package in packages:
        code = f"quit(status = !nzchar(system.file(package = '{package}')))"
        asked = [RSCRIPT, "--vanilla", "-e", code]
        if subprocess.run(asked, check=False, capture_output=True).returncode:  # noqa: S603 - R itself
            pytest.skip(f"R's package {package} is not installed")


def run_r(folder: Path, script: str, result: str = "NULL") -> tuple[str, Any]:
    """Run a script of the page; return what it prints, and an expression with all its digits."""
    assert RSCRIPT is not None
    wanted = (
        f"writeLines(jsonlite::toJSON({result}, digits = NA, auto_unbox = TRUE), 'result.json')"
    )
    done = subprocess.run(  # noqa: S603 - our own documents
        [RSCRIPT, "--vanilla", "-e", f"source('{script}'); {wanted}"],
        cwd=folder,
        env={"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout, json.loads((folder / "result.json").read_text("utf-8"))


def prepared(folder: Path) -> vt.Estimate:
    """Save the page's scripts, and export the estimate that its Python makes."""
    for block in blocks(PAGE):
        if block.remark == "file":
            (folder / block.reason).write_text(block.text, "utf-8")
    estimate = vt.simulate(vt.adult_table(24), epsilon=1.0, seed=1).publish()
    estimate.export(folder / "estimate.json")
    return estimate


def lines(text: str) -> list[str]:
    """Return lines without spaces at their ends."""
    return [line.rstrip() for line in text.rstrip().splitlines()]


def weights(estimate: vt.Estimate) -> tuple[np.ndarray, np.ndarray]:
    """Return the cells of rich men and of rich women."""
    table = estimate.table()
    rich = table["salary"] == ">50K"
    men, women = ((rich & (table["gender"] == who)).to_numpy() * 1.0 for who in ("male", "female"))
    return men, women


@pytest.mark.slow
def test_a_share_and_a_contrast_are_the_same_in_r(tmp_path: Path) -> None:
    """To 1e-9, for both populations; and the page shows what R prints."""
    need("jsonlite")
    estimate = prepared(tmp_path)
    men, women = weights(estimate)
    shown = [block.text for block in blocks(PAGE) if block.language == "text"]
    for population in ("finite", "super"):
        ask = f"lapply(statistics(estimate, A, '{population}'), unname)"
        printed, result = run_r(tmp_path, "shares.R", ask)
        assert lines(printed) == lines(shown[0])
        for row, weight in enumerate((men, women, men - women)):
            found = estimate.linear(weight, population=population)
            assert result["value"][row] == pytest.approx(found.value, abs=1e-9)
            error = result["cov"][row][row] ** 0.5
            assert error == pytest.approx(found.standard_error, abs=1e-9)


@pytest.mark.slow
def test_the_survey_package_gives_the_same_ratio(tmp_path: Path) -> None:
    """Its delta method on what was handed over is ours; derivatives are by differences here."""
    need("jsonlite", "survey")
    estimate = prepared(tmp_path)
    ask = "list(risk = c(coef(risk), SE(risk)), gap = c(coef(gap), SE(gap)))"
    printed, result = run_r(tmp_path, "contrasts.R", f"lapply({ask}, unname)")
    shown = [block.text for block in blocks(PAGE) if block.language == "text"]
    assert lines(printed) == lines(shown[0]) + lines(shown[1])
    ratio = estimate.functional(
        lambda t: (
            (t[:, :, 0, 1].sum() / t[:, :, 0].sum()) / (t[:, :, 1, 1].sum() / t[:, :, 1].sum())
        )
    )
    assert result["risk"] == pytest.approx([ratio.value, ratio.standard_error], rel=1e-7)
    men, women = weights(estimate)
    gap = estimate.linear(men - women, population="super")
    assert result["gap"] == pytest.approx([gap.value, gap.standard_error], abs=1e-9)


@pytest.mark.slow
def test_the_survey_package_prints_what_the_comparison_shows(tmp_path: Path) -> None:
    """Rows of both releases, weighted to their estimated shares."""
    need("jsonlite", "survey")
    for mechanism in ("paper", "decoys"):
        release = vt.simulate(vt.adult_table(24), epsilon=1, mechanism=mechanism, seed=1)
        shares = release.shares("projected")
        vt.decode_cells(np.arange(24), release.schema).with_columns(
            rich=(pl.col("salary") == ">50K").cast(pl.Float64),
            count=pl.Series(release.counts),
            weight=pl.Series(shares * release.counts.sum() / release.counts),
        ).write_csv(tmp_path / f"{mechanism}.csv")
    [script] = [block for block in blocks(OTHER_TOOLS) if block.remark == "file"]
    [shown] = [block.text for block in blocks(OTHER_TOOLS) if block.language == "text"]
    (tmp_path / script.reason).write_text(script.text, "utf-8")
    printed, _ = run_r(tmp_path, script.reason)
    assert lines(printed) == lines(shown)
