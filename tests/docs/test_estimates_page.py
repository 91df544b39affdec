"""The tables of the page on estimates are measured again, with fewer releases and other seeds."""

import math

import numpy as np
import pytest

from tests.support.coverage import (
    Coverage,
    decoy_settings,
    estimator_gains,
    interval_coverage,
    paper_settings,
    summaries,
)
from tests.support.documents import ROOT, prose, tables
from tests.support.mean_coverage import measure
from tests.support.mean_coverage import settings as mean_settings
from tests.support.unkind import unkind_settings

PAGE = ROOT / "docs" / "explanation" / "estimates.md"
RUNS, SEED = 800, 3
SHOWN_RUNS = 5_000
AGAIN = {("adult", 0.5), ("peaky", 0.1)}
"""The settings by rank that are measured again; ``make soak`` measures all of them."""

DECOY_KINDS = (
    *("cells", "marginal", "difference", "conditional share", "risk difference"),
    *("risk ratio", "odds ratio", "band"),
)

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
    """Return the coverage of two settings again, by the first word of the quantity."""
    again = [s for s in paper_settings() if (s.distribution, s.plan.epsilon) in AGAIN]
    found: dict[tuple[str, str], dict[str, list[Coverage]]] = {}
    for row in interval_coverage(RUNS, SEED, settings=again):
        setting = found.setdefault((row.distribution, f"{row.epsilon:g}"), {})
        setting.setdefault(kind_of(row.quantity), []).append(row)
    return found


def kind_of(quantity: str) -> str:
    """Return the kind of a quantity: all marginals are of one."""
    return "marginal" if quantity.startswith("marginal") else quantity


def far(rows: list[Coverage]) -> float:
    """Return the coverage that is farthest from 95%."""
    return max((row.coverage for row in rows), key=lambda coverage: abs(coverage - 0.95))


def margin(share: float) -> float:
    """Return four standard errors of the difference between two measured shares, in percent."""
    inside = min(max(share, 0.01), 0.99)
    return 400 * math.sqrt(inside * (1 - inside) * (1 / RUNS + 1 / SHOWN_RUNS))


@pytest.mark.slow
def test_what_estimators_gain() -> None:
    """Each RMSE to 5%, and what is left of it to two points."""
    rows = shown("most likely")
    gains = estimator_gains(RUNS, SEED)
    assert len(rows) == len(gains) == 12
    for row, gain in zip(rows, gains, strict=True):
        assert row[:3] == [gain.distribution, f"{gain.epsilon:g}", f"{gain.sample_size:,}"]
        assert float(row[3]) == pytest.approx(gain.unbiased, rel=0.05)
        ratios = (gain.clipped_ratio, gain.projected_ratio, gain.most_likely_ratio)
        for entry, ratio in zip(row[4:], ratios, strict=True):
            assert float(entry.rstrip("%")) == pytest.approx(100 * ratio, abs=2)
    table = np.array([[float(cell.rstrip("%")) for cell in row[4:]] for row in rows])
    text = PAGE.read_text("utf-8")
    assert "| mean | | | | {:.1f}% | {:.1f}% | {:.1f}% |".format(*table.mean(axis=0)) in text


@pytest.mark.slow
def test_how_often_intervals_hold() -> None:
    """Every entry lies in 93% to 97%, or higher for ratios; two settings come out again."""
    coverage = measured()
    rows, ratios = shown("cells"), shown("risk ratio: holds")
    settings = [(s.distribution, f"{s.plan.epsilon:g}") for s in paper_settings()]
    for table in (rows, ratios):
        assert [(row[0], row[1]) for row in table] == settings
    kinds = ("cells", "marginal", "difference", "conditional share", "band")
    for name, epsilon, *entries in rows:
        assert all(93 <= float(entry) <= 97 for entry in entries)
        if (name, epsilon) not in coverage:
            continue
        for entry, kind in zip(entries, kinds, strict=True):
            assert float(entry) == pytest.approx(
                100 * far(coverage[name, epsilon][kind]), abs=margin(0.95)
            ), (name, epsilon, kind)
    for name, epsilon, *entries in ratios:
        assert all(float(entries[place]) >= 93 for place in (0, 3, 6))
        if (name, epsilon) not in coverage:
            continue
        (risk,), (odds,), (apart,) = (
            coverage[name, epsilon][kind]
            for kind in ("risk ratio", "odds ratio", "risk difference")
        )
        shares = [
            *(risk.coverage, risk.one_sided, 1 - risk.estimable),
            *(odds.coverage, odds.one_sided, 1 - odds.estimable),
            apart.coverage,
        ]
        for entry, share in zip(entries, shares, strict=True):
            assert float(entry) == pytest.approx(100 * share, abs=margin(share) + 0.5), name


@pytest.mark.slow
def test_how_often_intervals_hold_with_decoys() -> None:
    """Every entry lies in 93% to 97%; two settings of different kinds come out again."""
    rows = {row[0]: [float(entry) for entry in row[1:]] for row in shown("cells", "setting")}
    settings = {setting.name: setting for setting in decoy_settings()}
    assert list(rows) == list(settings)
    assert all(93 <= entry <= 97 for entries in rows.values() for entry in entries)
    for name in ("sparse, pure", "adult, pure, ε = 0.1, channel"):
        counts = settings[name].releases(RUNS, SEED)
        found: dict[str, list[float]] = {}
        for quantity, coverage, *_ in summaries(
            settings[name].table, settings[name].design(counts), counts, 0.95
        ):
            found.setdefault(kind_of(quantity), []).append(coverage)
        for entry, kind in zip(rows[name], DECOY_KINDS, strict=True):
            farthest = max(found[kind], key=lambda each: abs(each - 0.95))
            assert entry == pytest.approx(100 * farthest, abs=margin(0.95)), (name, kind)


MEANS = {
    "linear": ["linear"],
    "mean": ["mean"],
    "variance": ["variance"],
    "quantiles": ["0.1 quantile", "0.5 quantile", "0.9 quantile"],
    "weighted share": ["weighted share"],
    "weighted mean": ["weighted mean"],
    "mean, ill": ["mean, ill"],
    "variance, ill": ["variance, ill"],
    "median, ill": ["0.5 quantile, ill"],
    "difference, ill": ["mean difference, ill"],
    "mean, islands": ["mean, islands"],
    "variance, islands": ["variance, islands"],
    "difference, islands": ["mean difference, islands"],
    "weighted, islands": ["weighted share, islands"],
}
"""The columns of the tables about means, and what is measured for them."""


@pytest.mark.slow
def test_how_often_intervals_of_means_hold() -> None:
    """What is always given lies in 93% to 97.5%; two settings by rank come out again."""
    settings = mean_settings()
    for column in ("linear", "mean, ill"):
        (table,) = [t for t in tables(prose(PAGE)) if column in t.header]
        assert [row[0] for row in table.rows] == [setting.name for setting in settings]
        for row in table.rows:
            entries = dict(zip(table.header[1:], row[1:], strict=True))
            always = [e for name, e in entries.items() if "(" not in e and name != "smooth"]
            assert all(93 <= float(entry) <= 97.5 for entry in always), row
    for setting in settings[7:10:2]:
        found = {row.quantity: row for row in measure(setting, RUNS, SEED)}
        for column in ("linear", "mean, ill"):
            (table,) = [t for t in tables(prose(PAGE)) if column in t.header]
            [row] = [row for row in table.rows if row[0] == setting.name]
            for name, entry in zip(table.header[1:], row[1:], strict=True):
                if name == "smooth" or "(" in entry:
                    continue
                measured = [100 * found[quantity].coverage for quantity in MEANS[name]]
                farthest = max(measured, key=lambda each: abs(each - 95))
                assert float(entry) == pytest.approx(farthest, abs=margin(0.95)), (row, name)


@pytest.mark.slow
def test_how_often_ratios_hold_at_unkind_settings() -> None:
    """Every entry is at least 93%, and two settings come out again."""
    rows = {(row[0], row[1]): row[2:] for row in shown("describes", "unkind setting")}
    settings = {setting.name: setting for setting in unkind_settings()}
    assert [name for name, _ in rows] == [name for name in settings for _ in range(2)]
    assert all(float(entry) >= 93 for entries in rows.values() for entry in entries[:5])
    for name in ("ratio 0, by rank", "rare group, shuffle"):
        measured = settings[name].measure(RUNS, SEED, "super")
        shown_row = rows[name, "larger population"]
        for entry, (_, interval, truth) in zip(shown_row, measured, strict=False):
            found = 100 * float(interval.covers(truth).mean())
            assert float(entry) == pytest.approx(found, abs=margin(0.95)), name


def test_the_projected_estimate_has_the_least_error_on_average() -> None:
    """As the page says; clipping alone has less than none."""
    table = [[float(cell.rstrip("%")) for cell in row[4:7]] for row in shown("most likely")]
    clipped, projected, likely = np.mean(table, axis=0)
    assert projected < min(likely, clipped)
    assert max(likely, clipped) < 100
