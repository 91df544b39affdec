"""The charts of a demonstration: errors, estimates beside the truth, what the server received."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from veiltab.demo.results import Column, StudyResult
from veiltab.report.charts import COLORS, chart_svg
from veiltab.report.html import Html, element

TRUTH_COLOR = "#222222"
PALE = "#888888"
STUDY_COLORS = (COLORS[1], COLORS[0], COLORS[2])
SHAPES = ("circle", "square", "triangle-up")
TRUSTED = "a trusted party"
INTERVAL = 2
"""How many standard errors an error bar reaches to each side: about 95% hold the truth."""

SYMBOLS = (
    '<circle cx="11" cy="7" r="4" fill="{color}"/>',
    '<rect x="7" y="3" width="8" height="8" fill="{color}"/>',
    '<path d="M11 2L16 11H6Z" fill="{color}"/>',
)
LINE = '<path d="M0 7H22" stroke="{color}" stroke-width="2"/>'
TRUTH = '<path d="M11 0V14" stroke="#222222" stroke-width="2"/>'


@dataclass(frozen=True, slots=True)
class Size:
    """The width of a chart and the height of a row, in pixels."""

    width: int
    step: int


WIDE, NARROW = Size(560, 32), Size(205, 34)


@dataclass(frozen=True, slots=True)
class Charts:
    """Each chart for a wide screen and for a narrow one."""

    errors: tuple[str, str]
    estimates: tuple[str, str]
    column: tuple[str, str]


def error_chart(results: Sequence[StudyResult], size: Size) -> alt.LayerChart:
    """Show the error of each study on one scale, found and predicted, above a trusted party's."""
    found = {result.label: result.l2_error for result in results}
    predicted = {result.label: result.predicted_rmse for result in results}
    predicted[TRUSTED] = float(results[0].plan["trusted_party_rmse"])
    names, decades = list(predicted), _decades([*found.values(), *predicted.values()])
    color = alt.Color(
        "way:N",
        scale=alt.Scale(domain=names, range=[*STUDY_COLORS[: len(results)], PALE]),
        legend=None,
    )
    y = alt.Y(
        "way:N", sort=names, title=None, axis=alt.Axis(ticks=False, domain=False, labelPadding=8)
    )
    x = alt.X(
        "error:Q",
        title="distance from the truth (ℓ₂)",
        scale=alt.Scale(type="log", nice=False, domain=[decades[0], decades[-1]]),
        axis=alt.Axis(values=decades, format="~g"),
    )
    ticked, dotted = (
        alt.Chart(
            alt.InlineData(values=[{"way": way, "error": error} for way, error in values.items()])
        ).encode(x=x, y=y)
        for values in (predicted, found)
    )
    layers = [
        ticked.mark_tick(color=TRUTH_COLOR, thickness=2, size=20, opacity=1),
        dotted.mark_point(filled=True, size=90, opacity=1).encode(color=color),
    ]
    chart = alt.LayerChart(layer=layers)
    return chart.properties(width=size.width, height=alt.Step(size.step))


def _decades(values: Sequence[float]) -> list[float]:
    """Return the powers of ten from just below the values to just above them."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return [float(f"1e{power}") for power in range(low, high + 1)]


def estimate_chart(results: Sequence[StudyResult], size: Size) -> alt.FacetChart:
    """Show each cell's estimates with their error bars, and the truth as a line across them."""
    studies = [result.label for result in results]
    rows = _rows(results)
    groups = list(dict.fromkeys(row["group"] for row in rows))
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    y = alt.Y(
        "cell:N", sort=cells, title=None, axis=alt.Axis(ticks=False, domain=False, labelPadding=8)
    )
    offset = alt.YOffset("study:N", sort=studies)
    color = alt.Color(
        "study:N",
        sort=studies,
        scale=alt.Scale(domain=studies, range=list(STUDY_COLORS[: len(studies)])),
        legend=None,
    )
    shape = alt.Shape(
        "study:N",
        sort=studies,
        scale=alt.Scale(domain=studies, range=list(SHAPES[: len(studies)])),
        legend=None,
    )
    x = alt.X("share:Q", title="share of all people, in %", axis=alt.Axis(tickCount=5))
    base = alt.Chart().encode(y=y)
    bars = base.mark_rule(strokeWidth=2).encode(
        x=alt.X("low:Q"), x2="high:Q", yOffset=offset, color=color
    )
    points = base.mark_point(filled=True, size=38, opacity=1).encode(
        x=x, yOffset=offset, color=color, shape=shape
    )
    truth = base.mark_tick(color=TRUTH_COLOR, thickness=2, size=size.step - 4, opacity=1).encode(
        x="truth:Q"
    )
    layers = alt.layer(bars, points, truth).properties(
        width=size.width, height=alt.Step(size.step, **{"for": "position"})
    )
    header = alt.Header(
        title=None, labelOrient="top", labelAnchor="start", labelFontSize=12,
        labelFontWeight="bold", labelPadding=2, labelColor=TRUTH_COLOR,
    )  # fmt: skip
    row = alt.Row("group:N", sort=groups, header=header)
    return layers.facet(row=row, data=alt.InlineData(values=rows), spacing=10)


def _rows(results: Sequence[StudyResult]) -> list[dict[str, Any]]:
    """Return a row for each cell of each study, in per cent."""
    split = len(results[0].names) // 2
    return [
        {
            "group": ", ".join(cell.categories[:split]),
            "cell": ", ".join(cell.categories[split:]),
            "study": result.label,
            "share": 100 * cell.share,
            "low": 100 * (cell.share - INTERVAL * cell.standard_error),
            "high": 100 * (cell.share + INTERVAL * cell.standard_error),
            "truth": 100 * cell.truth,
        }
        for result in results
        for cell in result.cells
    ]


def column_chart(column: Column, size: Size) -> alt.FacetChart:
    """Show a column's categories in the curator's table, and in what the server received."""
    kinds = ("in the table", "on the server")
    rows = [
        {"kind": kind, "category": name, "share": 100 * number / sum(counts)}
        for kind, counts in zip(kinds, (column.table, column.received), strict=True)
        for name, number in zip(column.categories, counts, strict=True)
    ]
    color = alt.Color(
        "kind:N", scale=alt.Scale(domain=list(kinds), range=[PALE, COLORS[0]]), legend=None
    )
    base = alt.Chart().encode(
        y=alt.Y(
            "kind:N",
            sort=list(kinds),
            title=None,
            axis=alt.Axis(ticks=False, domain=False, labelPadding=8),
        ),
        x=alt.X("share:Q", title="share of the rows, in %", axis=alt.Axis(tickCount=5)),
    )
    layers = alt.layer(base.mark_bar(height={"band": 0.8}).encode(color=color))
    header = alt.Header(
        title=None, labelOrient="top", labelAnchor="start", labelFontSize=12,
        labelFontWeight="bold", labelPadding=2, labelColor=TRUTH_COLOR,
    )  # fmt: skip
    row = alt.Row("category:N", sort=list(column.categories), header=header)
    whole = layers.properties(width=size.width, height=alt.Step(18))
    return whole.facet(row=row, data=alt.InlineData(values=rows), spacing=8)


def draw_charts(results: Sequence[StudyResult], column: Column) -> Charts:
    """Draw the charts, which takes a second; the other results may still be missing."""
    return Charts(
        (_svg(error_chart(results, WIDE)), _svg(error_chart(results, NARROW))),
        (_svg(estimate_chart(results, WIDE)), _svg(estimate_chart(results, NARROW))),
        (_svg(column_chart(column, WIDE)), _svg(column_chart(column, NARROW))),
    )


def figure(charts: tuple[str, str], caption: str, key: Html | None = None) -> Html:
    """Return a chart with its caption; the page's style sheet chooses the width."""
    wide, narrow = (
        element("div", Html(svg), class_=f"chart {name}", role="img", aria_label=caption)
        for name, svg in zip(("wide", "narrow"), charts, strict=True)
    )
    return element("figure", key or Html(""), wide, narrow, element("figcaption", caption))


def study_key(studies: Sequence[StudyResult]) -> Html:
    """Return the legend of the chart of estimates."""
    marks = [
        (LINE + symbol).format(color=color)
        for symbol, color in zip(SYMBOLS, STUDY_COLORS, strict=True)
    ]
    items = [(mark, study.label) for mark, study in zip(marks, studies, strict=False)]
    return _key([*items, (TRUTH, "the truth")])


def error_key() -> Html:
    """Return the legend of the chart of errors."""
    return _key([(SYMBOLS[0].format(color=PALE), "found"), (TRUTH, "predicted by the formula")])


def _key(items: Sequence[tuple[str, str]]) -> Html:
    return element(
        "ul", *(element("li", _swatch(mark), text) for mark, text in items), class_="key"
    )


def _svg(chart: alt.TopLevelMixin) -> str:
    """Return a chart as an SVG for use inside a page, where it needs no name spaces."""
    return re.sub(r' xmlns(:\w+)?="[^"]*"', "", chart_svg(chart))


def _swatch(content: str) -> Html:
    svg = f'<svg width="22" height="14" aria-hidden="true">{content}</svg>'
    return element("span", Html(svg), class_="chart")
