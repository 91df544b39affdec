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
from veiltab.report.formatting import points
from veiltab.report.view import ReportOptions, ShownTable, View

WIDTH, STEP = 460, 26
INK, PALE = "#222222", "#7FB6DD"
SHADES = ["#F2F7FC", "#084480"]
WHITE_FROM = 0.62
"""A tile above this fraction of the largest share is so dark that its number is white."""

NARROWEST_TILE, WIDEST_TILE = 104, 190
LONGEST_NAME = 40

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
        yield f"attribute-{number}-{plain(part.names[0])}", bar_chart(part, view.options)
    for number, pair in enumerate(view.pairs, start=1):
        together = "-".join(map(plain, pair.joint.names))
        yield f"pair-{number}-{together}", heat_chart(pair.joint, view.options)
        given, of = map(plain, pair.within_first.names)
        yield f"pair-{number}-{of}-within-{given}", within_chart(pair.within_first, view.options)


def plain(name: str) -> str:
    """Return a name that every file system accepts, in lower case with hyphens."""
    ascii_only = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    hyphenated = re.sub(r"[^a-z0-9]+", "-", ascii_only.lower()).strip("-")
    return hyphenated[:LONGEST_NAME].strip("-") or "other"


def bar_chart(part: ShownTable, options: ReportOptions) -> alt.TopLevelMixin:
    """Show the shares of one attribute with their intervals."""
    subtitle = f"Share and {words.interval_name(options)}"
    if not part.whole:
        subtitle += f"; the {len(part.rows)} largest of {part.total:,} categories"
    layers = _bars(_rows(part), [row.labels[-1] for row in part.rows])
    title = alt.TitleParams(text=part.names[-1], subtitle=subtitle)
    return layers.properties(title=title, width=WIDTH, height=alt.Step(STEP))


def within_chart(part: ShownTable, options: ReportOptions) -> alt.TopLevelMixin:
    """Show the shares of one attribute within the groups of another."""
    given, of = part.names
    groups = list(dict.fromkeys(f"{given}: {row.labels[0]}" for row in part.rows))
    layers = _bars(None, list(dict.fromkeys(row.labels[1] for row in part.rows)))
    header = alt.Header(
        title=None, labelOrient="top", labelAnchor="start", labelFontSize=12,
        labelFontWeight="bold", labelPadding=2, labelColor=INK,
    )  # fmt: skip
    name = words.interval_name(options, simultaneous=False)
    title = alt.TitleParams(
        text=f"{of} within each group of {given}", subtitle=f"Share of the group and {name}"
    )
    panel = layers.properties(width=WIDTH, height=alt.Step(STEP))
    row = alt.Row("group:N", sort=groups, header=header)
    data = alt.InlineData(values=_rows(part))
    return panel.facet(row=row, data=data, spacing=10).properties(title=title)


def _bars(rows: list[dict[str, Any]] | None, order: list[str]) -> alt.LayerChart:
    """Return bars with intervals; without rows they take the data of the enclosing chart."""
    base = alt.Chart() if rows is None else alt.Chart(alt.InlineData(values=rows))
    base = base.encode(
        y=alt.Y("category:N", sort=order, title=None, axis=alt.Axis(ticks=False, domain=False))
    )
    x = alt.X("share:Q", title="share, in %", axis=alt.Axis(tickCount=5))
    caps = base.mark_tick(color=INK, thickness=1.5, size=9, opacity=1)
    layers = [
        base.mark_bar(color=PALE, height={"band": 0.66}).encode(x=x),
        base.mark_rule(color=INK, strokeWidth=1.5).encode(x="low:Q", x2="high:Q"),
        caps.encode(x="low:Q"),
        caps.encode(x="high:Q"),
    ]
    return alt.LayerChart(layer=layers)


def heat_chart(part: ShownTable, options: ReportOptions) -> alt.TopLevelMixin:
    """Show the shares of two attributes as tiles with their numbers."""
    first, second = part.names
    most = max(*(row.share or 0.0 for row in part.rows), 1e-12)
    base = alt.Chart(alt.InlineData(values=_rows(part))).encode(
        y=alt.Y("first:N", title=first, sort=_order(part, 0), axis=_tile_axis()),
        x=alt.X("category:N", title=second, sort=_order(part, 1), axis=_tile_axis(orient="top")),
    )
    scale = alt.Scale(domain=[0, 100 * most], range=SHADES, clamp=True)
    tiles = base.mark_rect(stroke="white", strokeWidth=3).encode(
        color=alt.Color("share:Q", scale=scale, title="share, in %")
    )
    dark = alt.condition(
        alt.datum["share"] > 100 * most * WHITE_FROM, alt.value("white"), alt.value(INK)
    )
    numbers = base.encode(color=dark)
    title = alt.TitleParams(
        text=f"{first} and {second}", subtitle=f"Share and {words.interval_name(options)}, in %"
    )
    return alt.layer(
        tiles,
        numbers.mark_text(fontSize=13, fontWeight="bold", dy=-7).encode(text="number:N"),
        numbers.mark_text(fontSize=11, dy=9).encode(text="interval:N"),
    ).properties(title=title, width=alt.Step(_tile_width(part)), height=alt.Step(52))


def _tile_width(part: ShownTable) -> int:
    """Return a width that fits the longest column name, within limits."""
    longest = max(map(len, _order(part, 1)))
    return min(WIDEST_TILE, max(NARROWEST_TILE, 8 * longest))


def _tile_axis(**options: Any) -> alt.Axis:
    return alt.Axis(ticks=False, domain=False, labelAngle=0, labelLimit=WIDEST_TILE, **options)


def _order(part: ShownTable, place: int) -> list[str]:
    return list(dict.fromkeys(row.labels[place] for row in part.rows))


def _rows(part: ShownTable) -> list[dict[str, Any]]:
    """Return the estimable rows in per cent, under fixed names instead of the attributes' own."""
    return [
        {
            "group": f"{part.names[0]}: {row.labels[0]}",
            "first": row.labels[0],
            "category": row.labels[-1],
            "share": 100 * row.share,
            "low": 100 * row.low,
            "high": 100 * row.high,
            "number": points(row.share, part.digits),
            "interval": f"{points(row.low, part.digits)}–{points(row.high, part.digits)}",
        }
        for row in part.rows
        if row.share is not None and row.low is not None and row.high is not None
    ]
