"""How every chart looks: readable in print, on a screen, and without telling colours apart."""

from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from veiltab.errors import ParameterError
from veiltab.report.files import write_whole

# Okabe and Ito's colours, which differ for the colour-blind, in an order that also differs in grey.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
SUFFIXES = (".svg", ".png")
PIXELS_PER_POINT = 2.0

_TEXT = "#222222"
_MUTED = "#555555"
_CONFIG: dict[str, Any] = {
    "background": "white",
    "font": "Liberation Sans, Arial, Helvetica, sans-serif",
    "title": {
        "anchor": "start",
        "color": _TEXT,
        "fontSize": 16,
        "offset": 14,
        "subtitleColor": _MUTED,
        "subtitleFontSize": 12,
        "subtitlePadding": 6,
    },
    "axis": {
        "domainColor": "#888888",
        "gridColor": "#E4E4E4",
        "labelColor": _TEXT,
        "labelFontSize": 12,
        "tickColor": "#888888",
        "titleColor": _TEXT,
        "titleFontSize": 13,
        "titleFontWeight": "normal",
        "titlePadding": 10,
    },
    "legend": {
        "labelColor": _TEXT,
        "labelFontSize": 12,
        "labelLimit": 320,
        "rowPadding": 4,
        "symbolSize": 80,
        "symbolStrokeWidth": 2,
        "titleColor": _TEXT,
        "titleFontSize": 12,
        "titleLimit": 320,
    },
    "view": {"stroke": None, "continuousWidth": 620, "continuousHeight": 420},
    "padding": 16,
}


def check_chart_path(path: Path) -> None:
    """Refuse a file name that says no known format, before any work is done."""
    if path.suffix.lower() not in SUFFIXES:
        raise ParameterError(
            f"a picture's name must end in {' or '.join(SUFFIXES)}, not {path.name!r}",
            hint="SVG for print and the web, PNG for slides",
        )


def chart_svg(chart: alt.TopLevelMixin) -> str:
    """Return a chart in the house style as an SVG document."""
    return vl_convert.vegalite_to_svg(chart.to_dict() | {"config": _CONFIG})


def save_chart(chart: alt.TopLevelMixin, *paths: Path) -> None:
    """Write a chart in the house style to each path; the suffixes decide the formats."""
    for path in paths:
        check_chart_path(path)
    svg = chart_svg(chart)
    for path in paths:
        if path.suffix.lower() == ".svg":
            write_whole(path, svg.encode())
        else:
            write_whole(path, vl_convert.svg_to_png(svg, scale=PIXELS_PER_POINT))
