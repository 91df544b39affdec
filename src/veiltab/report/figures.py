"""The pictures of a report as SVG and PNG files, for papers and slides."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from veiltab.files.disk import make_output_folder
from veiltab.report import words
from veiltab.report.charts import SUFFIXES, save_chart
from veiltab.report.dots import END, POINT
from veiltab.report.formatting import between, points
from veiltab.report.heat import residual_text, shade, shade_words
from veiltab.report.html import NOT_ESTIMABLE, minus
from veiltab.report.view import (
    Comparison,
    ReportOptions,
    Row,
    ShownTable,
    View,
    quantity_row,
)

WIDTH, STEP, LINE = 460, 26, 15
"""The width of a chart, and the heights of a row and of a line of its name, in pixels."""

PANEL = 300
INK, MUTED, BLUE, ORANGE = "#222222", "#566069", "#123A5C", "#D55E00"
SHADES = {
    -4: "#A34E05", -3: "#E08214", -2: "#FDB863", -1: "#FEE0B6", 0: "#FFFFFF",
    1: "#D1E5F0", 2: "#92C5DE", 3: "#4393C3", 4: "#1B5C9E",
}  # fmt: skip
"""The colours of residuals, as the page has them."""

STRONG = 4
"""Cells of this colour are so dark that their numbers are white."""

TILE, LONGEST_LINE = 104, 26
PIECE = re.compile(rf"[^\s/-]{{0,{LONGEST_LINE}}}[\s/-]|[^\s/-]{{1,{LONGEST_LINE}}}")
"""A part of a name after which a line may end."""

LETTER = 7
"""About the width of a letter, in pixels."""

LONGEST_NAME = 40

LINES = "split(datum.label, '\\n')"
"""Shows a name in the lines into which :func:`wrapped` broke it."""

Figure = tuple[str, alt.TopLevelMixin]
"""A file name without its suffix, and the chart."""

Track = Callable[[Sequence[Figure], str], Iterable[Figure]]
"""Wraps a list of work to show its progress, as :func:`veiltab.cli.output.track` does."""


def save_figures(view: View, folder: Path, track: Track | None = None) -> list[Path]:
    """Write every picture of a report to a folder as SVG and PNG, and return the files."""
    make_output_folder(folder)
    charts = list(figures(view))
    files = []
    for name, chart in track(charts, "Drawing") if track else charts:
        paths = [folder / f"{name}{suffix}" for suffix in SUFFIXES]
        save_chart(chart, *paths)
        files += paths
    return files


def figures(view: View) -> Iterator[Figure]:
    """Yield each picture with a name for its files."""
    for number, part in enumerate(view.marginals, start=1):
        yield f"attribute-{number}-{plain(part.names[0])}", dot_chart(part, view.options)
    if any(strength is not None for strength in view.associations):
        yield "pairs", strength_chart(view)
    for number, pair in enumerate(view.pairs, start=1):
        together = "-".join(map(plain, pair.names))
        yield f"pair-{number}-{together}", heat_chart(pair.joint, pair.residuals, view.options)
        given, of = map(plain, pair.comparison.within.names)
        chart = within_chart(pair.comparison, view.options)
        yield f"pair-{number}-{of}-within-{given}", chart


def plain(name: str) -> str:
    """Return a name that every file system accepts, in lower case with hyphens."""
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    hyphenated = re.sub(r"[^a-z0-9]+", "-", ascii_only.lower()).strip("-")
    return hyphenated[:LONGEST_NAME].strip("-") or "other"


def dot_chart(
    part: ShownTable, options: ReportOptions, subtitle: str | None = None
) -> alt.TopLevelMixin:
    """Show the shares of one attribute with their intervals."""
    if subtitle is None:
        subtitle = f"Share and {words.interval_name(options)}"
        if not part.whole:
            subtitle += f"; the {len(part.rows)} largest of {part.total:,} categories"
    rows = [_numbers(row, 100) | {"category": wrapped(row.labels[-1])} for row in part.rows]
    title = alt.TitleParams(text=part.names[-1], subtitle=subtitle)
    return _dots(rows, "share, in %").properties(
        title=title, width=WIDTH, height=_step([row["category"] for row in rows])
    )


def strength_chart(view: View) -> alt.TopLevelMixin:
    """Show Cramér's V of every pair with its interval."""
    rows = [
        _numbers(quantity_row(strength), 1) | {"category": wrapped(f"{a} × {b}")}
        for ((a, b), _), strength in zip(view.tests, view.associations, strict=True)
        if strength is not None
    ]
    title = alt.TitleParams(
        text="Strength of association",
        subtitle=f"Cramér's V and its {100 * view.options.level:g}% interval",
    )
    return _dots(rows, "Cramér's V").properties(
        title=title, width=WIDTH, height=_step([row["category"] for row in rows])
    )


def within_chart(comparison: Comparison, options: ReportOptions) -> alt.TopLevelMixin:
    """Set the groups of one attribute side by side, in a panel for each category of another."""
    part = comparison.within
    given, of = part.names
    overall = {row.labels[0]: row.share for row in comparison.overall.rows}
    rows = [
        _numbers(row, 100)
        | {
            "category": wrapped(row.labels[0]),
            "panel": wrapped(f"{of}: {row.labels[1]}"),
            "all": 100 * (overall[row.labels[1]] or 0.0),
        }
        for row in part.rows
    ]
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    header = alt.Header(
        title=None, labelAnchor="start", labelFontSize=12, labelFontWeight="bold", labelPadding=4,
        labelColor=INK, labelExpr=LINES, labelLimit=0,
    )  # fmt: skip
    name = words.interval_name(options, simultaneous=False)
    title = alt.TitleParams(
        text=f"{of} within each group of {given}",
        subtitle=f"Share of the group and {name}; the dashed line is the share among all",
    )
    across = alt.Chart().mark_rule(color=ORANGE, strokeDash=[4, 3]).encode(x="all:Q")
    layers = alt.LayerChart(layer=[across, *_dot_layers(alt.Chart(), rows, "share, in %")])
    panel = layers.properties(width=PANEL, height=_step([row["category"] for row in rows]))
    facet = alt.Facet("panel:N", sort=panels, header=header)
    data = alt.InlineData(values=rows)
    return panel.facet(facet=facet, data=data, columns=2, spacing=20).properties(title=title)


def _dots(rows: list[dict[str, Any]], title: str) -> alt.LayerChart:
    """Return dots with intervals."""
    base = alt.Chart(alt.InlineData(values=rows))
    return alt.LayerChart(layer=_dot_layers(base, rows, title))


def _dot_layers(base: alt.Chart, rows: list[dict[str, Any]], title: str) -> list[alt.Chart]:
    """Return the layers of dots and intervals; an interval without an end goes on to the edge."""
    order = list(dict.fromkeys(row["category"] for row in rows))
    base = base.encode(
        y=alt.Y("category:N", scale=alt.Scale(domain=order), title=None, axis=_name_axis(order))
    )
    shown = (row.get(number) for row in rows for number in ("value", "low", "high", "all"))
    ends = [0.0, *(number for number in shown if number is not None)]
    least, most = min(ends), max(ends)
    if not most > least:  # nothing to show: any axis will do
        most = 1.0
    x = alt.X("from:Q", title=title, axis=alt.Axis(tickCount=5),
              scale=alt.Scale(domain=[least, most], nice=True))  # fmt: skip
    caps = base.mark_tick(color=BLUE, thickness=1.5, size=9, opacity=1)
    edges = {"from": f"isValid(datum.low) ? datum.low : {least}",
             "to": f"isValid(datum.high) ? datum.high : {most}"}  # fmt: skip
    interval = base.transform_filter("isValid(datum.low) || isValid(datum.high)")
    return [
        interval.transform_calculate(**edges)
        .mark_rule(color=BLUE, strokeWidth=1.5)
        .encode(x=x, x2="to:Q"),
        caps.transform_filter("isValid(datum.low)").encode(x="low:Q"),
        caps.transform_filter("isValid(datum.high)").encode(x="high:Q"),
        base.transform_filter("isValid(datum.value)")
        .mark_point(size=46, stroke=BLUE, strokeWidth=1.5, opacity=1)
        .encode(x="value:Q", fill=_fill(rows)),
        base.transform_filter(f"datum.mark === '{NOT_ESTIMABLE}'")
        .mark_text(align="left", color=MUTED, fontStyle="italic")
        .encode(x=alt.value(6), text="mark:N"),
    ]


def _fill(rows: list[dict[str, Any]]) -> alt.Fill:
    """Return the fill of dots: hollow at an end of an interval, which a legend explains."""
    explained = any(row["mark"] == END for row in rows)
    legend = alt.Legend(title=None, orient="bottom", direction="vertical", symbolStrokeColor=BLUE)
    return alt.Fill(
        "mark:N",
        scale=alt.Scale(domain=[POINT, END], range=[BLUE, "white"]),
        legend=legend if explained else None,
    )


def _name_axis(names: Sequence[str]) -> alt.Axis:
    """Return an axis of names at the left, whose lines are centred on their rows."""
    most = max((_lines(name) for name in names), default=1)
    shifts = [
        {"test": f"length({LINES}) === {lines}", "value": -(lines - 1) * LINE / 2}
        for lines in range(2, most + 1)
    ]
    offset: Any = {"condition": shifts, "value": 0} if shifts else 0
    return alt.Axis(ticks=False, domain=False, labelExpr=LINES, labelLimit=0, labelPadding=9,
                    labelLineHeight=LINE, labelOffset=offset)  # fmt: skip


def heat_chart(
    part: ShownTable,
    residuals: Sequence[float],
    options: ReportOptions,
    subtitle: str | None = None,
) -> alt.TopLevelMixin:
    """Show the shares of two attributes, coloured by how far they are from independence."""
    first, second = part.names
    rows = _tiles(part, residuals)
    names = [list(dict.fromkeys(row[place] for row in rows)) for place in ("first", "second")]
    above = alt.Axis(
        orient="top", ticks=False, domain=False, labelAngle=0, labelExpr=LINES, labelLimit=0,
        labelLineHeight=LINE, labelPadding=LINE * max(map(_lines, names[1])) - 8,
    )  # fmt: skip
    base = alt.Chart(alt.InlineData(values=rows)).encode(
        y=alt.Y("first:N", title=first, sort=names[0], axis=_name_axis(names[0])),
        x=alt.X("second:N", title=second, sort=names[1], axis=above),
    )
    scale = alt.Scale(domain=[shade_words(s) for s in SHADES], range=list(SHADES.values()))
    legend = alt.Legend(title=["standard errors from", "independence"], symbolStrokeColor="#888888",
                        symbolStrokeWidth=0.5, symbolType="square")  # fmt: skip
    tiles = base.mark_rect(stroke="#C8CDD2", strokeWidth=1).encode(
        color=alt.Color("shade:N", scale=scale, legend=legend, sort=list(scale.domain))
    )
    dark = alt.condition(alt.datum["strong"], alt.value("white"), alt.value(INK))
    numbers = base.encode(color=dark)
    title = alt.TitleParams(
        text=f"{first} and {second}",
        subtitle=[subtitle or f"Share and {words.interval_name(options)}, in %",
                  "▲ higher, ▼ lower than under independence, in standard errors"],
    )  # fmt: skip
    return alt.layer(
        tiles,
        numbers.mark_text(fontSize=13, fontWeight="bold", dy=-13).encode(text="number:N"),
        numbers.mark_text(fontSize=11, dy=3).encode(text="interval:N"),
        numbers.mark_text(fontSize=11, dy=17).encode(text="apart:N"),
    ).properties(title=title, width=alt.Step(_tile_width(rows)), height=_step(names[0], 58))


def _tiles(part: ShownTable, residuals: Sequence[float]) -> list[dict[str, Any]]:
    """Return the cells of a heat map under fixed names instead of the attributes' own."""
    digits = part.digits
    return [
        {
            "first": wrapped(row.labels[0]),
            "second": wrapped(row.labels[1], TILE // LETTER),
            "share": None if row.share is None else 100 * row.share,
            "number": NOT_ESTIMABLE if row.share is None else minus(points(row.share, digits)),
            "interval": minus(between(row.low, row.high, digits)),
            "apart": residual_text(residual),
            "shade": shade_words(shade(residual)),
            "strong": abs(shade(residual)) == STRONG,
        }
        for row, residual in zip(part.rows, residuals, strict=True)
    ]


def _tile_width(rows: list[dict[str, Any]]) -> int:
    """Return a width that fits the longest interval, and the longest line of a heading."""
    lines = (line for row in rows for line in row["second"].splitlines())
    interval = max(len(row["interval"]) for row in rows)
    return max(TILE, 8 * interval, LETTER * (1 + max(map(len, lines))))


def _numbers(row: Row, unit: float) -> dict[str, Any]:
    """Return a share and its interval; None stands for what is missing."""
    names = {"value": row.share, "low": row.low, "high": row.high}
    values = {name: None if x is None else unit * x for name, x in names.items()}
    mark = END if row.at_end else POINT if row.estimable else NOT_ESTIMABLE
    return values | {"mark": mark}


def wrapped(name: str, width: int = LONGEST_LINE) -> str:
    """Break a long name into lines, so that no chart cuts it off.

    Lines end after a space, a slash or a hyphen; only a word longer than any line is broken.
    """
    lines = [""]
    for piece in PIECE.findall(name):
        if lines[-1] and len(f"{lines[-1]}{piece}".rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def _step(names: Sequence[str], least: int = STEP) -> alt.Step:
    """Return the height of a row that has room for the lines of every name."""
    return alt.Step(max(least, LINE * max(map(_lines, names), default=1) + STEP - LINE))


def _lines(name: str) -> int:
    return name.count("\n") + 1
