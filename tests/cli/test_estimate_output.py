"""How an estimate is shown: large tables attribute by attribute, and odd names without harm."""

import io
import json
import re

import numpy as np
import pytest
from rich.console import Console

from tests.support.estimates import adult_to_show, million_cells
from veiltab import adult_table, simulate
from veiltab.cli.estimate_output import estimate_json, print_estimate
from veiltab.core.plan import plan
from veiltab.core.schema import Attribute, Schema
from veiltab.estimates import Estimate
from veiltab.report.formatting import between, percent, points
from veiltab.report.view import ReportOptions

SIZES = {"share": 10, "standard_error": 4, "age [bold]": 2}


@pytest.fixture
def estimate() -> Estimate:
    """Make an estimate of 80 cells with odd names, most of them empty."""
    attributes = [Attribute(name, map(str, range(size))) for name, size in SIZES.items()]
    counts = np.zeros(80, dtype=np.int64)
    counts[3], counts[70] = 30, 70
    chosen = plan(population_size=1000, domain_size=80, epsilon=2.0, sample_size=100)
    return Estimate(Schema(attributes), counts, chosen)


def printed(estimate: Estimate, options: ReportOptions | None = None, width: int = 100) -> str:
    """Return what people see."""
    out = io.StringIO()
    screen = Console(file=out, width=width, highlight=False)
    print_estimate(screen, estimate, options or ReportOptions(), {})
    return out.getvalue()


def test_a_small_table_for_people() -> None:
    """Each cell with its interval and both parts of its error, to the same digits."""
    estimate = adult_to_show()
    lines = printed(estimate).splitlines()
    table = estimate.table()
    for row in table.iter_rows(named=True):
        numbers = [
            percent(row["share"]),
            between(row["low"], row["high"]),
            *(points(row[f"{kind}_error"]) for kind in ("standard", "sampling", "privacy")),
        ]
        assert any(" ".join(line.split()).endswith(" ".join(numbers)) for line in lines)


def test_people_in_common_are_estimated_where_nobody_counts_them() -> None:
    """A matched study tells how many people it is about; an aligned one knows."""
    matched = simulate(adult_table(24), epsilon=1.0, linkage="matched", seed=1)
    people = matched.population(level=0.9)
    text = printed(matched, ReportOptions(level=0.9))
    assert f"about {people.value:,.0f} people (90% interval {people.low:,.0f}–" in text
    found = estimate_json(matched, ReportOptions(level=0.9), {})["people_in_common"]
    assert found == {
        "value": people.value,
        "standard_error": people.standard_error,
        "low": people.low,
        "high": people.high,
    }
    aligned = simulate(adult_table(24), epsilon=1.0, seed=1)
    assert "in common" not in printed(aligned)
    known = estimate_json(aligned, ReportOptions(), {})["people_in_common"]
    assert set(known.values()) == {45_222, 0}


def test_a_large_table_for_people(estimate: Estimate) -> None:
    """Each attribute by itself, a word about the rest, the largest cells, and the warnings."""
    text = printed(estimate)
    assert "The joint table has 80 cells: --csv and --parquet write them all." in text
    assert "The 10 largest" in text
    assert "age [bold]" in text
    assert "100 of 1,000 respondents" in text
    assert all(f"Warning: {warning[:40]}" in text for warning in estimate.warnings)
    shares = estimate.marginal("age [bold]").table()["share"]
    lines = [line.split() for line in text.splitlines()]
    assert ["age", "[bold]", "1", percent(shares[1])] in [line[:4] for line in lines]


@pytest.mark.parametrize("width", [40, 80, 200])
def test_no_name_is_cut(estimate: Estimate, width: int) -> None:
    """In a narrow window it is broken, but two categories never look the same."""
    assert "…" not in printed(estimate, width=width)


def test_shares_below_zero(estimate: Estimate) -> None:
    """Only the unbiased estimate has them, and they are explained."""
    assert "Shares below zero are noise" in printed(estimate, ReportOptions(estimator="unbiased"))
    text = printed(estimate)
    assert "Shares below zero are noise" not in text
    assert "it is shown as zero" in text
    table = text.split("P(")[0]
    assert not re.search(r"-\d", table)


@pytest.mark.slow
def test_never_a_missing_number() -> None:
    """Not even where next to nothing is known."""
    for each in (adult_to_show(0.01), adult_to_show(8.0), adult_to_show(1.0, 1e-6)):
        for options in (
            ReportOptions(),
            ReportOptions(simultaneous=True, population="super", level=0.999),
        ):
            text = printed(each, options)
            assert "nan" not in text.split()
            assert "inf" not in text.split()
            json.dumps(estimate_json(each, options, {}), allow_nan=False)


def test_a_band_is_called_so() -> None:
    """In the heading and in words."""
    text = printed(adult_to_show(), ReportOptions(simultaneous=True, level=0.9))
    assert "90% band" in text
    assert "hold together with 90% confidence" in text


def test_answers_for_people() -> None:
    """A condition, its share, and an interval that holds by itself, also beside a band."""
    estimate = adult_to_show()
    condition = "salary = '>50K'"
    text = printed(estimate, ReportOptions(conditions=(condition,), simultaneous=True))
    answer = estimate.probability(condition)
    assert answer.value is not None
    [line] = [line for line in text.splitlines() if line.startswith(condition)]
    assert percent(answer.value) in line
    assert "95% interval" in text


@pytest.mark.slow
def test_a_million_cells_for_people() -> None:
    """A screen or two, and quickly."""
    text = printed(million_cells())
    assert "… 60 more" in text
    assert len(text.splitlines()) < 160


def test_names_like_those_of_numbers(estimate: Estimate) -> None:
    """An attribute called share does not hide the share."""
    cells = estimate_json(estimate, ReportOptions(), {})["cells"]
    assert len(cells) == 80
    assert list(cells[70])[:4] == [
        *("share (attribute)", "standard_error (attribute)", "age [bold]"),
        "share",
    ]
    assert cells[70]["share (attribute)"] == "8"
    assert all(0 <= cell["share"] <= 1 for cell in cells)
    proper = estimate_json(estimate, ReportOptions(estimator="projected"), {})["cells"]
    assert sum(cell["share"] for cell in proper) == pytest.approx(1)
    assert all(cell["standard_error"] > 0 for cell in cells)
    errors = [(c["sampling_error"], c["privacy_error"], c["standard_error"]) for c in cells]
    for sampling, privacy, total in errors:
        assert np.hypot(sampling, privacy) == pytest.approx(total)
