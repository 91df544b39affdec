"""The charts of a demonstration: estimates beside the truth, and what the server received."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from veiltab.report.demo_results import Column, StudyResult
from veiltab.report.style import COLORS

TRUTH_COLOR = "#222222"
PALE = "#888888"
STUDY_COLORS = (COLORS[1], COLORS[0])
SHAPES = ("circle", "square")
INTERVAL = 2
"""How many standard errors an error bar reaches to each side: about 95 % hold the truth."""


@dataclass(frozen=True, slots=True)
class Size:
    """How much room a chart has."""

    width: int
    step: int


WIDE, NARROW = Size(560, 24), Size(205, 26)


def estimate_chart(results: Sequence[StudyResult], size: Size) -> alt.FacetChart:
    """Show each cell's estimates with their error bars, and the truth as a line across them."""
    studies = [each.promise for each in results]
    rows = _rows(results)
    groups = list(dict.fromkeys(row["group"] for row in rows))
    cells = list(dict.fromkeys(row["cell"] for row in rows))
    y = alt.Y(
        "cell:N", sort=cells, title=None, axis=alt.Axis(ticks=False, domain=False, labelPadding=8)
    )
    offset = alt.YOffset("study:N", sort=studies)
    color = alt.Color(
        "study:N", sort=studies, scale=alt.Scale(domain=studies, range=list(STUDY_COLORS)),
        legend=None,
    )  # fmt: skip
    shape = alt.Shape(
        "study:N", sort=studies, scale=alt.Scale(domain=studies, range=list(SHAPES)), legend=None
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
            "study": result.promise,
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
