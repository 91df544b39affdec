"""Charts: their axes, legends and series as drawn, and the files they end up in."""

import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from veiltab.core import utility
from veiltab.core.plan import Plan, plan
from veiltab.core.privacy import gamma_for
from veiltab.errors import OutputError, ParameterError
from veiltab.report.charts import (
    BOUND,
    DASHED,
    LAPLACE,
    MINIMAX,
    NOISY,
    OURS,
    PAPER,
    TIGHTENED,
    UNHINDERED,
    WORST,
    ErrorChart,
    LineStyle,
    Mark,
    Vertical,
    check_chart_path,
    plan_chart,
    save_chart,
    ticks,
)

CHART = ErrorChart(
    title="A title",
    subtitle=["first line", "second line"],
    x_title="sample size m",
    group_title="Privacy",
    curves=[
        Mark(10, 0.5, "ε = 1", BOUND),
        Mark(1000, 0.05, "ε = 1", BOUND),
        Mark(10, 0.1, "ε = 1", DASHED),
        Mark(10, 0.2, "ε = 2", "exact RMSE"),
    ],
    points=[Mark(30, 0.3, "ε = 1", "UCI Adult"), Mark(30, 0.2, "ε = 2", "peaky")],
    verticals=[Vertical(100, "ε = 1", "m* = 100")],
)


def layers(chart: ErrorChart) -> dict[str, dict[str, Any]]:
    """Return the layers of the drawn specification by their kind of mark, with their rows."""
    spec: dict[str, Any] = chart.draw().to_dict()
    found = {}
    for layer in spec["layer"]:
        data = layer.get("data") or spec["data"]
        found[layer["mark"]["type"]] = layer | {"rows": spec["datasets"][data["name"]]}
    return found


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 10], [1, 2, 5, 10]),
        ([30, 45222], [50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000]),
        ([0.03, 0.7], [0.05, 0.1, 0.2, 0.5]),
        ([1, 1], [1]),
        ([7, 7], []),
        ([9, 3, 5], [5, 10]),
        ([3e-6, 0.7], [1e-5, 1e-4, 1e-3, 1e-2, 0.1]),
    ],
)
def test_ticks(values: list[float], expected: list[float]) -> None:
    """1, 2 and 5 times powers of ten, from the least value to the largest, or just beyond.

    Over many decades only the powers of ten are left.
    """
    assert ticks(values) == expected


@given(st.lists(st.floats(1e-20, 1e17), min_size=1))
def test_ticks_of_any_values(values: list[float]) -> None:
    """They are round, in order, and within an eighth of the values' range."""
    found = ticks(values)
    assert found == sorted(set(found))
    for tick in found:
        assert f"{tick:.3e}"[:5] in ("1.000", "2.000", "5.000")
        assert min(values) / 1.125 <= tick <= max(values) * 1.125
    if max(values) / min(values) >= 2.5:
        assert found


def test_both_axes_are_logarithmic_and_hold_all_marks() -> None:
    """The domain reaches a little beyond the data on either side, in every layer."""
    for layer in layers(CHART).values():
        scale = layer["encoding"]["x"]["scale"]
        assert scale["type"] == "log"
        assert scale["domain"] == pytest.approx([10 / 1.12, 1000 * 1.12])
    for kind in ("line", "point"):
        scale = layers(CHART)[kind]["encoding"]["y"]["scale"]
        assert scale["type"] == "log"
        assert scale["domain"] == pytest.approx([0.05 / 1.12, 0.5 * 1.12])


def test_the_drawn_data_are_the_marks() -> None:
    """Every curve point and every symbol is in the specification, as it was given."""
    drawn = layers(CHART)
    for kind, marks in (("line", CHART.curves), ("point", CHART.points)):
        assert drawn[kind]["rows"] == [asdict(mark) for mark in marks]
    lines = [{"x": 100, "group": "ε = 1", "label": "m* = 100"}]
    assert drawn["rule"]["rows"] == lines
    assert drawn["text"]["rows"] == lines
    assert drawn["text"]["encoding"]["text"]["field"] == "label"


def test_channels_read_their_own_fields() -> None:
    """What is called x is drawn along x, and so on."""
    fields = {"x": "x", "y": "y", "color": "group", "strokeDash": "series", "shape": "series"}
    for kind in ("line", "point"):
        encoding = layers(CHART)[kind]["encoding"]
        assert len(encoding) == 4
        for channel, definition in encoding.items():
            assert definition["field"] == fields[channel]


def test_legends_name_every_group_and_series_once() -> None:
    """Colours stand for the groups, dashes for the theory, symbols for the simulations."""
    drawn = layers(CHART)
    color = drawn["line"]["encoding"]["color"]
    assert (color["title"], color["scale"]["domain"]) == ("Privacy", ["ε = 1", "ε = 2"])
    dash = drawn["line"]["encoding"]["strokeDash"]
    assert (dash["title"], dash["scale"]["domain"]) == ("Theory", [BOUND, DASHED, "exact RMSE"])
    shape = drawn["point"]["encoding"]["shape"]
    assert (shape["title"], shape["scale"]["domain"]) == ("Simulation", ["UCI Adult", "peaky"])
    for channel in (color, dash, shape):
        styles = channel["scale"]["range"]
        assert len({str(style) for style in styles}) == len(channel["scale"]["domain"])


def test_all_layers_share_their_colours() -> None:
    """A group has one colour, whether it is a curve, a symbol or a vertical line."""
    scales = [layer["encoding"]["color"]["scale"] for layer in layers(CHART).values()]
    assert len(scales) == 4
    assert all(scale == scales[0] for scale in scales)


def test_titles() -> None:
    """The title, its lines below, and what the axes measure."""
    spec: dict[str, Any] = CHART.draw().to_dict()
    assert spec["title"] == {"text": "A title", "subtitle": ["first line", "second line"]}
    assert layers(CHART)["line"]["encoding"]["x"]["title"] == "sample size m"
    assert "error" in layers(CHART)["line"]["encoding"]["y"]["title"]


def test_curves_alone_make_a_chart() -> None:
    """Points and vertical lines are optional."""
    chart = ErrorChart(title="", subtitle=[], x_title="", group_title="", curves=CHART.curves)
    assert list(layers(chart)) == ["line"]


def test_styled_groups_share_one_legend() -> None:
    """Colour and dashes come from the group alone, with one title; points add no legend."""
    styles = {"paper": LineStyle("#D55E00"), "decoys": LineStyle("#0072B2", (7, 3))}
    chart = replace(
        CHART,
        curves=[Mark(10, 0.5, "paper", ""), Mark(10, 0.1, "decoys", "")],
        points=[Mark(10, 0.11, "decoys", "")],
        verticals=[],
        styles=styles,
        y_title="times less error",
    )
    drawn = layers(chart)
    line, point = drawn["line"]["encoding"], drawn["point"]["encoding"]
    for channel, shades in (("color", ["#D55E00", "#0072B2"]), ("strokeDash", [[1, 0], [7, 3]])):
        assert line[channel]["field"] == "group"
        assert line[channel]["title"] == "Privacy"
        assert line[channel]["scale"] == {"domain": ["paper", "decoys"], "range": shades}
        assert line[channel]["legend"] == line["color"]["legend"]
    assert point["color"] == line["color"]
    assert "shape" not in point
    assert line["y"]["title"] == "times less error"


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".svg", ".png", ".SVG", ".Png"])
def test_the_suffix_decides_the_format(tmp_path: Path, suffix: str) -> None:
    """SVG parses and has the title as text; PNG has its signature."""
    path = tmp_path / f"chart{suffix}"
    save_chart(CHART.draw(), path)
    data = path.read_bytes()
    if suffix.lower() == ".svg":
        assert "A title" in "".join(ET.fromstring(data.decode()).itertext())  # noqa: S314
    else:
        assert data.startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.parametrize("name", ["chart.pdf", "chart", "svg", ".svg", "chart.svg.gz", "chart."])
def test_other_suffixes_are_refused_before_anything_is_written(tmp_path: Path, name: str) -> None:
    """Even if the first of two paths would do."""
    with pytest.raises(ParameterError, match=r"must end in \.svg or \.png"):
        save_chart(CHART.draw(), tmp_path / "good.svg", tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_an_output_error(tmp_path: Path) -> None:
    """The path is a good one, but not a place to write to."""
    check_chart_path(tmp_path / "missing" / "chart.svg")
    with pytest.raises(OutputError, match="No such file or directory"):
        save_chart(CHART.draw(), tmp_path / "missing" / "chart.svg")


@pytest.mark.parametrize("size", [None, 1, 1472, 45222])
def test_the_chart_of_a_plan(size: int | None) -> None:
    """Curves are the formulas; the plan's point lies on ours; the line stands at the paper's m*."""
    chosen = plan(
        population_size=45222,
        domain_size=24,
        epsilon=0.5,
        sample_size=size,
        mechanism="paper",
        anyway=True,
    )
    chart = plan_chart(chosen)
    for mark in chart.curves:
        m = int(mark.x)
        gamma = gamma_for(45222, m, 0.5)
        expected = {
            (OURS, WORST): utility.worst_case_rmse(45222, m, 24, gamma),
            (PAPER, BOUND): utility.error_bound(m, 24, gamma),
            (PAPER, TIGHTENED): utility.tightened_bound(m, 24, gamma),
        }
        assert mark.y == expected[mark.group, mark.series]
    assert [(p.x, p.y) for p in chart.points] == [(chosen.sample_size, chosen.rmse)]
    exact = {mark.x: mark.y for mark in chart.curves if mark.series == WORST}
    assert exact[chosen.ranked.sample_size] == pytest.approx(chosen.rmse, rel=1e-9)
    assert [(line.x, line.group) for line in chart.verticals] == [(1472, PAPER)]
    assert "m = " in chart.subtitle[1]


@pytest.mark.parametrize(
    ("delta", "with_curator"),
    [(0.0, None), (0.0, math.inf), pytest.param(1e-6, None, marks=pytest.mark.slow)],
    ids=str,
)
def test_the_chart_of_a_plan_with_decoys(delta: float, with_curator: float | None) -> None:
    """Against ε: plans at other ε, the paper's way, a trusted party; the plan lies on its curve."""
    chosen = plan(
        population_size=45222,
        domain_size=24,
        epsilon=0.5,
        delta=delta,
        epsilon_with_curator=with_curator,
        mechanism="decoys",
    )
    chart = plan_chart(chosen)
    assert [(p.x, p.y) for p in chart.points] == [
        (0.5, chosen.rmse),
        (0.5, chosen.rmse_published),
    ]
    curves = {
        name: {mark.x: mark.y for mark in chart.curves if mark.series == name}
        for name in (NOISY, UNHINDERED, MINIMAX, LAPLACE)
    }
    assert bool(curves[NOISY]) == (chosen.channel is not None)
    here = curves[NOISY] or curves[UNHINDERED]
    # The curve's law is the best with this channel, the plan's is the best without.
    assert 0.99 * chosen.rmse < here[0.5] <= chosen.rmse * (1 + 1e-9)
    for name in (UNHINDERED, MINIMAX, LAPLACE):
        assert min(curves[name]) == pytest.approx(0.05)
        assert max(curves[name]) == pytest.approx(5)
        errors = [curves[name][x] for x in sorted(curves[name])]
        assert errors == sorted(errors, reverse=True)
    assert curves[LAPLACE][0.5] == chosen.trusted_party_rmse
    assert curves[UNHINDERED][0.5] < curves[MINIMAX][0.5] / 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("population", "cells", "epsilon"),
    [
        *((1, 2, 1.0), (1, 2, 50.0), (2, 2, 1e-9), (3, 1000, 0.1)),
        *((2**53, 2, 50.0), (2**53, 24, 1.0), (2**53, 2**48, 1.0), (2**53 - 1, 2, 1e-20)),
    ],
)
def test_extreme_plans_can_be_drawn(
    tmp_path: Path, population: int, cells: int, epsilon: float
) -> None:
    """One respondent, or 2^53: sample sizes stay within the population, and errors positive."""
    chosen = plan(
        population_size=population,
        domain_size=cells,
        epsilon=epsilon,
        mechanism="paper",
        anyway=True,
    )
    chart = plan_chart(chosen)
    assert all(1 <= mark.x <= population for mark in chart.curves)
    assert all(0 < mark.y < math.inf for mark in chart.curves)
    save_chart(chart.draw(), tmp_path / "plan.svg")
    assert (tmp_path / "plan.svg").stat().st_size > 1000


@pytest.mark.slow
@given(
    st.integers(1, 2**53) | st.integers(2**52, 2**53),
    st.integers(2, 10**6),
    st.floats(1e-6, 50),
    st.floats(0, 1),
)
@settings(deadline=None)
def test_sample_sizes_of_any_plan(n: int, cells: int, epsilon: float, share: float) -> None:
    """No curve leaves the population, wherever the plan lies in it."""
    size = max(1, min(n, round(share * n)))
    chosen: Plan = plan(
        population_size=n, domain_size=cells, epsilon=epsilon, sample_size=size, anyway=True
    )
    sizes = [mark.x for mark in plan_chart(chosen).curves]
    assert min(sizes) >= 1
    assert max(sizes) <= n
    assert {chosen.sample_size, chosen.paper.optimal_sample_size} <= set(sizes)
