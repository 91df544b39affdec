"""Charts of the error against the sample size, the number of cells or ε, in the house style.

Lines and symbols differ in more than colour, so that charts can be read in black and white.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

from veiltab.core import parameters, utility
from veiltab.core.plan import Plan
from veiltab.core.planner import Question
from veiltab.core.privacy import gamma_for
from veiltab.core.promises import known_population
from veiltab.errors import ParameterError
from veiltab.files.disk import write_output

# Okabe and Ito's colours for the colour-blind, in an order that also differs in grey.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
SUFFIXES = (".svg", ".png")
PIXELS_PER_POINT = 2.0

BOUND, DASHED, EXACT = "Theorem 2 bound", "bound ÷ √N", "exact RMSE"
WORST, TIGHTENED = "exact RMSE, worst case", "tightened bound"
PAPER, OURS, TRUSTED = "the paper", "veiltab", "a trusted party"
UNHINDERED, NOISY = "decoys, no noise by the server", "decoys, the plan's noise by the server"
MINIMAX, LAPLACE = "the paper's way at its best", "Laplace noise"
STROKES: dict[str, list[int]] = {BOUND: [1, 0], DASHED: [7, 4]}
OTHER_STROKES: tuple[list[int], ...] = ([2, 2], [9, 3, 2, 3], [13, 3], [5, 5])
SHAPES = ("circle", "square", "triangle-up", "diamond")
MARGIN = 1.12
"""How far an axis reaches beyond its data, as a factor."""

REACH = 100
"""How far the curves of a plan reach on either side of its sample size, as a factor."""

STEPS = 200

MANY_DECADES = 4.5
"""An axis over more decades has only powers of ten."""

REACH_OF_EPSILON, STEPS_OF_EPSILON = 10, 8
"""How far a plan's ε is varied, as a factor, and in how many steps on either side."""

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
    """Refuse a file name without a known suffix, before any work is done."""
    if path.suffix.lower() not in SUFFIXES:
        raise ParameterError(
            f"a picture's name must end in {' or '.join(SUFFIXES)}, not {path.name!r}",
            hint="SVG for print and the web, PNG for slides",
        )


def chart_svg(chart: alt.TopLevelMixin) -> str:
    """Return a chart in the house style as an SVG document."""
    return vl_convert.vegalite_to_svg(chart.to_dict() | {"config": _CONFIG})


def chart_png(chart: alt.TopLevelMixin) -> bytes:
    """Return a chart in the house style as a PNG picture."""
    picture: bytes = vl_convert.svg_to_png(chart_svg(chart), scale=PIXELS_PER_POINT)
    return picture


def save_chart(chart: alt.TopLevelMixin, *paths: Path) -> None:
    """Write a chart in the house style to each path; the suffixes decide the formats."""
    for path in paths:
        check_chart_path(path)
    svg = chart_svg(chart)
    for path in paths:
        if path.suffix.lower() == ".svg":
            write_output(path, svg.encode())
        else:
            write_output(path, vl_convert.svg_to_png(svg, scale=PIXELS_PER_POINT))


@dataclass(frozen=True, slots=True)
class Mark:
    """A point in a chart: its group sets the colour, its series the line or the symbol."""

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


@dataclass(frozen=True, slots=True)
class LineStyle:
    """The colour of a group, and its dashes as lengths of lines and gaps; none is a solid line."""

    color: str
    dashes: tuple[int, ...] = (1, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorChart:
    """Curves, points and vertical lines over logarithmic axes.

    With ``styles`` every group has its own line, in one legend, and points have no legend; without
    them groups differ in colour, and series in lines and symbols.
    """

    title: str
    subtitle: Sequence[str]
    x_title: str
    group_title: str
    curves: Sequence[Mark]
    points: Sequence[Mark] = ()
    verticals: Sequence[Vertical] = ()
    x_ticks: Sequence[float] | None = None
    x_format: str = ","
    y_title: str = "ℓ₂ error of the estimated distribution"
    symbol_title: str = "Simulation"
    styles: Mapping[str, LineStyle] | None = None

    def draw(self) -> alt.LayerChart:
        """Return the chart; :func:`save_chart` writes it."""
        layers = [*self._vertical_layers(), self._curve_layer()]
        if self.points:
            layers.append(self._point_layer())
        title = alt.TitleParams(text=self.title, subtitle=list(self.subtitle))
        return alt.LayerChart(layer=layers, title=title)

    def _curve_layer(self) -> alt.Chart:
        if self.styles is not None:
            return self._styled_curves(self.styles)
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

    def _styled_curves(self, styles: Mapping[str, LineStyle]) -> alt.Chart:
        dash = alt.StrokeDash(
            "group:N",
            title=self.group_title,
            sort=list(styles),
            scale=alt.Scale(domain=list(styles), range=[list(s.dashes) for s in styles.values()]),
            legend=_line_legend(),
        )
        lines = alt.Chart(_data(self.curves)).mark_line(clip=True, strokeWidth=2.2)
        return self._encode(lines, strokeDash=dash)

    def _point_layer(self) -> alt.Chart:
        if self.styles is not None:
            dots = alt.Chart(_data(self.points)).mark_point(filled=True, size=46, opacity=1)
            return self._encode(dots)
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
        if self.styles is not None:
            colors = [style.color for style in self.styles.values()]
            scale = alt.Scale(domain=list(self.styles), range=colors)
            return alt.Color(
                "group:N",
                title=self.group_title,
                sort=list(self.styles),
                scale=scale,
                legend=_line_legend(),
            )
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
        return alt.Y("y:Q", title=self.y_title, axis=axis, scale=_log_scale(values))


def ticks(values: Sequence[float]) -> list[float]:
    """Return the multiples by 1, 2 and 5 of powers of ten that lie within the values."""
    low, high = min(values), max(values)
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    multiples = (1, 2, 5) if math.log10(high / low) <= MANY_DECADES else (1,)
    steps = [float(f"{step}e{decade}") for decade in decades for step in multiples]
    return [tick for tick in steps if low / MARGIN <= tick <= high * MARGIN]


def _log_scale(values: Sequence[float]) -> alt.Scale:
    return alt.Scale(type="log", nice=False, domain=[min(values) / MARGIN, max(values) * MARGIN])


def _line_legend() -> alt.Legend:
    """Return a legend with a piece of each line; legends of the same kind and title become one."""
    return alt.Legend(symbolType="stroke", symbolSize=500, symbolStrokeWidth=2.5)


def _data(rows: Sequence[Mark | Vertical]) -> alt.InlineData:
    return alt.InlineData(values=[asdict(row) for row in rows])


def _unique(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def plan_chart(plan: Plan) -> ErrorChart:
    """Show the exact worst-case error: with decoys against ε, by rank against the sample size."""
    return _chart_by_size(plan) if plan.mechanism.decoys is None else _chart_by_epsilon(plan)


def _chart_by_epsilon(plan: Plan) -> ErrorChart:
    """Compare decoys, with this plan's channel or none, with the paper and a trusted party."""
    curves = [mark for epsilon in _epsilons(plan.epsilon) for mark in _errors_at(plan, epsilon)]
    summary = plan.decoys_summary
    assert summary is not None  # noqa: S101 - the plan has decoys
    delta = f", δ = {plan.delta:g}" if plan.delta else ""
    numbers = f"n = {plan.population_size:,} respondents, N = {plan.domain_size:,} cells"
    decoys = f"about {summary.expected:,.0f} decoys"
    return ErrorChart(
        title="Error against ε",
        subtitle=[
            numbers + delta,
            f"The plan: ε = {plan.epsilon:.4g}, {decoys}, RMSE {plan.rmse:.4g}",
        ],
        x_title="ε, for the researcher",
        group_title="",
        curves=curves,
        points=[
            Mark(plan.epsilon, plan.rmse, OURS, "the plan"),
            Mark(plan.epsilon, plan.rmse_published, OURS, "its published copy"),
        ],
        x_format="~g",
        symbol_title="Chosen",
    )


def _epsilons(epsilon: float) -> list[float]:
    """Return values of ε on both sides of the chosen one, evenly spaced in logarithm."""
    steps = range(-STEPS_OF_EPSILON, STEPS_OF_EPSILON + 1)
    around = (epsilon * REACH_OF_EPSILON ** (step / STEPS_OF_EPSILON) for step in steps)
    return [value for value in around if value <= parameters.MAX_EPSILON]


def _errors_at(plan: Plan, epsilon: float) -> Iterator[Mark]:
    n, cells = known_population(plan.population_size), plan.domain_size
    free = Question(
        population_size=n,
        domain_size=cells,
        delta=plan.delta,
        mechanism="decoys",
        epsilon_with_curator=math.inf,
        linkage=plan.linkage,
        curator_cells=plan.curator_cells,
    )
    questions = {UNHINDERED: free}
    if plan.epsilon_with_curator is not None:
        limit = min(plan.epsilon_with_curator, float(parameters.MAX_EPSILON))
        questions[NOISY] = replace(free, epsilon_with_curator=limit)
    for series, question in questions.items():
        other = question.plan_or_none(epsilon)
        if other is not None:
            yield Mark(epsilon, other.rmse, OURS, series)
    size = round(utility.minimax_sample_size(n, cells, epsilon))
    gamma = gamma_for(n, size, epsilon)
    yield Mark(epsilon, utility.worst_case_rmse(n, size, cells, gamma), PAPER, MINIMAX)
    yield Mark(epsilon, utility.laplace_rmse(n, cells, epsilon), TRUSTED, LAPLACE)


def _chart_by_size(plan: Plan) -> ErrorChart:
    """Show the exact worst-case error and the paper's bounds against the sample size."""
    curves, ranked = [], plan.ranked
    for size in _sizes(plan):
        gamma = gamma_for(ranked.population_size, size, plan.epsilon)
        exact = utility.worst_case_rmse(ranked.population_size, size, plan.domain_size, gamma)
        bound = utility.error_bound(size, plan.domain_size, gamma)
        tightened = utility.tightened_bound(size, plan.domain_size, gamma)
        curves.append(Mark(size, exact, OURS, WORST))
        curves.append(Mark(size, bound, PAPER, BOUND))
        curves.append(Mark(size, tightened, PAPER, TIGHTENED))
    best = plan.paper.optimal_sample_size
    return ErrorChart(
        title=f"Error against sample size at ε = {plan.epsilon:.4g}",
        subtitle=[
            f"n = {plan.population_size:,} respondents, N = {plan.domain_size:,} cells",
            f"The plan: m = {plan.sample_size:,}, RMSE {plan.rmse:.4g}",
        ],
        x_title="sample size m",
        group_title="",
        curves=curves,
        points=[Mark(ranked.sample_size, plan.rmse, OURS, "the plan")],
        verticals=[Vertical(best, PAPER, f"m* = {best:,}")],
        symbol_title="Chosen",
    )


def _sizes(plan: Plan) -> list[int]:
    """Return sample sizes around the chosen one and the paper's, evenly spaced in logarithm."""
    population = plan.ranked.population_size
    both = (plan.ranked.sample_size, plan.paper.optimal_sample_size)
    low = math.log(max(1, min(both) / REACH))
    high = math.log(min(population, max(both) * REACH))
    step = (high - low) / STEPS
    spread = (round(math.exp(low + i * step)) for i in range(STEPS + 1))
    # Near 2^53 the exponential of a logarithm can exceed the number itself.
    return sorted({*both, *(min(size, population) for size in spread)})
