"""Charts inside a page: drawn for two widths, in the page's colours, with a key in HTML."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import altair as alt

from veiltab.report.demo_chart import NARROW, STUDY_COLORS, WIDE, column_chart, estimate_chart
from veiltab.report.demo_results import Column, StudyResult
from veiltab.report.html import Html, element
from veiltab.report.style import chart_svg

SYMBOLS = (
    '<circle cx="11" cy="7" r="4" fill="{color}"/>',
    '<rect x="7" y="3" width="8" height="8" fill="{color}"/>',
)
LINE = '<path d="M0 7H22" stroke="{color}" stroke-width="2"/>'
TRUTH = '<path d="M11 0V14" stroke="#222222" stroke-width="2"/>'


@dataclass(frozen=True, slots=True)
class Charts:
    """Each chart for a wide screen and for a narrow one."""

    estimates: tuple[str, str]
    column: tuple[str, str]


def draw_charts(results: Sequence[StudyResult], column: Column) -> Charts:
    """Draw the charts; this takes a second, and can be done before everything is known."""
    return Charts(
        (_svg(estimate_chart(results, WIDE)), _svg(estimate_chart(results, NARROW))),
        (_svg(column_chart(column, WIDE)), _svg(column_chart(column, NARROW))),
    )


def figure(charts: tuple[str, str], caption: str, key: Html | None = None) -> Html:
    """Return a chart with its caption; the page's style chooses which width is shown."""
    wide, narrow = (
        element("div", Html(svg), class_=f"chart {name}", role="img", aria_label=caption)
        for name, svg in zip(("wide", "narrow"), charts, strict=True)
    )
    return element("figure", key or Html(""), wide, narrow, element("figcaption", caption))


def study_key(studies: Sequence[StudyResult]) -> Html:
    """Return what the marks of the estimates' chart stand for."""
    marks = [
        (LINE + symbol).format(color=color)
        for symbol, color in zip(SYMBOLS, STUDY_COLORS, strict=True)
    ]
    items = [(mark, each.promise) for mark, each in zip(marks, studies, strict=False)]
    items.append((TRUTH, "the truth"))
    return element(
        "ul", *(element("li", _swatch(mark), text) for mark, text in items), class_="key"
    )


def _svg(chart: alt.TopLevelMixin) -> str:
    """Draw a chart for use inside a page, where an SVG needs no name spaces."""
    return re.sub(r' xmlns(:\w+)?="[^"]*"', "", chart_svg(chart))


def _swatch(content: str) -> Html:
    svg = f'<svg width="22" height="14" aria-hidden="true">{content}</svg>'
    return element("span", Html(svg), class_="chart")
