"""The tables of the page on estimates are measured again, with fewer releases and other seeds."""

import math

import numpy as np
import pytest

from tests.support.coverage import (
    Coverage,
    decoy_settings,
    estimator_gains,
    interval_coverage,
    summaries,
)
from tests.support.documents import ROOT, prose, tables

PAGE = ROOT / "docs" / "explanation" / "estimates.md"
RUNS, SEED = 800, 3
SHOWN_RUNS = 5_000

Row = list[str]


def shown(column: str, first: str = "data") -> list[Row]:
    """Return the rows of the page's table that has this column, and this one first."""
    (found,) = [
        table
        for table in tables(prose(PAGE))
        if column in table.header and table.header[0] == first
    ]
    return [row for row in found.rows if row[0] != "mean"]


def measured() -> dict[tuple[str, str], dict[str, list[Coverage]]]:
    """Return the coverage of each setting, by the first word of the quantity."""
    found: dict[tuple[str, str], dict[str, list[Coverage]]] = {}
    for row in interval_coverage(RUNS, SEED):
        setting = found.setdefault((row.distribution, f"{row.epsilon:g}"), {})
        setting.setdefault(row.quantity.split()[0], []).append(row)
    return found


def far(rows: list[Coverage]) -> float:
    """Return the coverage that is farthest from 95%."""
    return max((row.coverage or 0.0 for row in rows), key=lambda each: abs(each - 0.95))


def margin(share: float, often: float) -> float:
    """Return four standard errors of the difference between two measured shares, in percent.

    The shares are of those releases that have a number at all, which is as ``often`` as said.
    """
    inside = min(max(share, 0.01), 0.99)
    return 400 * math.sqrt(inside * (1 - inside) / often * (1 / RUNS + 1 / SHOWN_RUNS))


@pytest.mark.slow
def test_what_estimators_gain() -> None:
    """Each RMSE to 5%, and what is left of it to two points."""
    rows = shown("most likely")
    gains = estimator_gains(RUNS, SEED)
    assert len(rows) == len(gains) == 12
    for row, gain in zip(rows, gains, strict=True):
        assert row[:3] == [gain.distribution, f"{gain.epsilon:g}", f"{gain.sample_size:,}"]
        assert float(row[3]) == pytest.approx(gain.unbiased, rel=0.05)
        assert float(row[4].rstrip("%")) == pytest.approx(100 * gain.projected_ratio, abs=2)
        assert float(row[5].rstrip("%")) == pytest.approx(100 * gain.most_likely_ratio, abs=2)
    table = np.array([[float(cell.rstrip("%")) for cell in row[4:]] for row in rows])
    text = PAGE.read_text("utf-8")
    assert "| mean | | | | {:.1f}% | {:.1f}% |".format(*table.mean(axis=0)) in text


@pytest.mark.slow
def test_how_often_intervals_hold() -> None:
    """Every entry lies in 93% to 97%, and comes out again; ratios may have their own shares."""
    coverage = measured()
    rows, ratios = shown("cells"), shown("risk ratio: given")
    for table in (rows, ratios):
        assert [(row[0], row[1]) for row in table] == list(coverage)
    kinds = ("cells", "marginal", "difference", "conditional", "band")
    for name, epsilon, *entries in rows:
        for entry, kind in zip(entries, kinds, strict=True):
            assert 93 <= float(entry) <= 97
            assert float(entry) == pytest.approx(
                100 * far(coverage[name, epsilon][kind]), abs=margin(0.95, 1)
            ), (name, epsilon, kind)
    for name, epsilon, *entries in ratios:
        for kind, given, holds in (("risk", *entries[:2]), ("odds", *entries[2:])):
            (found,) = coverage[name, epsilon][kind]
            assert found.coverage is not None
            often, covered = float(given) / 100, float(holds) / 100
            assert abs(found.estimable - often) * 100 <= margin(often, 1), (name, epsilon, kind)
            assert abs(found.coverage - covered) * 100 <= margin(covered, often), (name, epsilon)


@pytest.mark.slow
def test_how_often_intervals_hold_with_decoys() -> None:
    """Every entry lies in 93% to 97%; three settings of different kinds come out again."""
    rows = {row[0]: [float(entry) for entry in row[1:]] for row in shown("cells", "setting")}
    settings = {setting.name: setting for setting in decoy_settings()}
    assert list(rows) == list(settings)
    assert all(93 <= entry <= 97 for entries in rows.values() for entry in entries)
    kinds = ("cells", "marginal", "difference", "conditional", "risk", "odds", "band")
    for name in ("sparse, pure", "peaked, everybody takes part", "adult, published"):
        counts = settings[name].releases(RUNS, SEED)
        found: dict[str, list[float]] = {}
        for quantity, coverage, _ in summaries(
            settings[name].table, settings[name].design(counts), counts, 0.95
        ):
            found.setdefault(quantity.split()[0], []).append(coverage or 0.0)
        for entry, kind in zip(rows[name], kinds, strict=True):
            farthest = max(found[kind], key=lambda each: abs(each - 0.95))
            assert entry == pytest.approx(100 * farthest, abs=margin(0.95, 1)), (name, kind)


def test_the_mean_ratio_decides_what_best_stands_for() -> None:
    """The projected estimate has the least error on average, as the page says."""
    table = [[float(cell.rstrip("%")) for cell in row[4:6]] for row in shown("most likely")]
    projected, likely = np.mean(table, axis=0)
    assert projected < likely < 100
