"""Charts of error: against the size of the sample, or against the number of cells.

They take plain rows, so that what is drawn can be looked at and tested without drawing it.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import altair as alt

from veiltab.report.style import COLORS

BOUND, DASHED, EXACT = "Theorem 2 bound", "bound ÷ √N", "exact RMSE"
STROKES: dict[str, list[int]] = {BOUND: [1, 0], DASHED: [7, 4]}
OTHER_STROKES: tuple[list[int], ...] = ([2, 2], [9, 3, 2, 3], [13, 3], [5, 5])
SHAPES = ("circle", "square", "triangle-up", "diamond")
MARGIN = 1.12
"""How far an axis reaches beyond its data, as a factor."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A place in a chart: its group gives the colour, its series the line or the symbol."""

    x: float
    y: float
    group: str
    series: str


@dataclass(frozen=True, slots=True)
class Vertical:
    """A vertical line with a label at its top."""

    x: float
    group: str
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorChart:
    """Curves, points and vertical lines over logarithmic axes."""

    title: str
    subtitle: Sequence[str]
    x_title: str
    group_title: str
    curves: Sequence[Mark]
    points: Sequence[Mark] = ()
    verticals: Sequence[Vertical] = ()
    x_ticks: Sequence[float] | None = None
    x_format: str = ","
    symbol_title: str = "Simulation"

    def draw(self) -> alt.LayerChart:
        """Return the chart; :func:`veiltab.report.style.save_chart` writes it."""
        layers = [*self._vertical_layers(), self._curve_layer()]
        if self.points:
            layers.append(self._point_layer())
        title = alt.TitleParams(text=self.title, subtitle=list(self.subtitle))
        return alt.LayerChart(layer=layers, title=title)

    def _curve_layer(self) -> alt.Chart:
        series = _unique(mark.series for mark in self.curves)
        others = iter(OTHER_STROKES)
        strokes = [STROKES.get(name) or next(others) for name in series]
        lines = alt.Chart(_data(self.curves)).mark_line(clip=True, strokeWidth=2)
        if len(series) == 1:  # nothing to tell apart
            return self._encode(lines)
        dash = alt.StrokeDash(
            "series:N",
            title="Theory",
            sort=series,
            scale=alt.Scale(domain=series, range=strokes),
            legend=alt.Legend(symbolType="stroke", symbolSize=600, symbolStrokeColor="#555555"),
        )
        return self._encode(lines, strokeDash=dash)

    def _point_layer(self) -> alt.Chart:
        series = _unique(mark.series for mark in self.points)
        shape = alt.Shape(
            "series:N",
            title=self.symbol_title,
            sort=series,
            scale=alt.Scale(domain=series, range=list(SHAPES[: len(series)])),
            legend=alt.Legend(symbolStrokeColor="#555555"),
        )
        symbols = alt.Chart(_data(self.points)).mark_point(size=42, strokeWidth=1.6, opacity=1)
        return self._encode(symbols, shape=shape)

    def _vertical_layers(self) -> list[alt.Chart]:
        if not self.verticals:
            return []
        base = alt.Chart(_data(self.verticals)).encode(x=self._x(), color=self._color())
        return [
            base.mark_rule(strokeWidth=1.2),
            base.mark_text(align="left", baseline="top", dx=4, dy=2, fontSize=11).encode(
                y=alt.value(0), text="label:N"
            ),
        ]

    def _encode(self, chart: alt.Chart, **channel: Any) -> alt.Chart:
        encoded: alt.Chart = chart.encode(x=self._x(), y=self._y(), color=self._color(), **channel)
        return encoded

    def _color(self) -> alt.Color:
        groups = _unique(mark.group for mark in (*self.curves, *self.points))
        return alt.Color(
            "group:N",
            title=self.group_title,
            sort=groups,
            scale=alt.Scale(domain=groups, range=list(COLORS[: len(groups)])),
            legend=alt.Legend(symbolType="stroke", symbolSize=300, symbolStrokeWidth=4),
        )

    def _x(self) -> alt.X:
        values = [mark.x for mark in (*self.curves, *self.points)]
        axis = alt.Axis(values=list(self.x_ticks or ticks(values)), format=self.x_format)
        return alt.X("x:Q", title=self.x_title, axis=axis, scale=_log_scale(values))

    def _y(self) -> alt.Y:
        values = [mark.y for mark in (*self.curves, *self.points)]
        axis = alt.Axis(values=ticks(values), format="~g")
        title = "ℓ₂ error of the estimated distribution"
        return alt.Y("y:Q", title=title, axis=axis, scale=_log_scale(values))


def ticks(values: Sequence[float]) -> list[float]:
    """Return the numbers 1, 2 and 5 times a power of ten that lie within the values."""
    low, high = min(values), max(values)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = [float(f"{step}e{decade}") for decade in decades for step in (1, 2, 5)]
    return [tick for tick in steps if low / MARGIN <= tick <= high * MARGIN]


def _log_scale(values: Sequence[float]) -> alt.Scale:
    return alt.Scale(type="log", nice=False, domain=[min(values) / MARGIN, max(values) * MARGIN])


def _data(rows: Sequence[Mark | Vertical]) -> alt.InlineData:
    return alt.InlineData(values=[asdict(row) for row in rows])


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
