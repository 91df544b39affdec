"""Figures 6 to 9, which go beyond the paper: other ways to keep a promise, and a trusted party.

The curves are exact errors for the hardest data, uniform ones, and need no simulation; the points
are simulated releases of such data.  Noise by the server protects from a curator who helps the
researcher.  The paper's way cannot do without it; decoys are shown with none, and with the paper's.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from veiltab.core.plan import MechanismName, Plan, plan
from veiltab.data.counts import CARDINALITIES
from veiltab.paper.experiment import ADULT_POPULATION, Result, Setting, distribution_table
from veiltab.report.charts import COLORS, ErrorChart, LineStyle, Mark

CELLS = 24
EPSILON = 0.5
DELTA = 1e-6
EPSILONS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0)
POPULATIONS = (300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000)
DOMAIN_SIZES = (2, 6, *CARDINALITIES, 3_072, 12_288)
"""What figures 6, 7 and 8 vary; whatever they do not has the values above."""

GAIN_POPULATIONS = (10**9, 10**6, ADULT_POPULATION, 10_000)
GAIN_DOMAIN_SIZES = (2, 4, 8, 16, 24, 48, 96, 192, 384, 768, 1_536, 3_072)
"""The curves of figure 9, from above down, and where they have points."""

SIMULATED = range(CARDINALITIES[0], CARDINALITIES[-1] + 1)
"""The cells of tables that are simulated: smaller ones need more runs for an error as exact, and
larger ones take long."""

PAPER, PURE_DECOYS = "the paper's way (δ = 0)", "decoys (δ = 0)"
GUARDED_DECOYS = "decoys (δ = 0, the paper's γ)"
SHUFFLED, DECOYS = "shuffling (δ = 1e-6)", "decoys (δ = 1e-6)"
TRUSTED, LIMIT = "a trusted party (δ = 0)", "2√N"
EXACT, SIMULATION = "exact RMSE", "simulated RMSE"

COLUMNS = {
    PAPER: "pure_rmse",
    SHUFFLED: "shuffle_rmse",
    PURE_DECOYS: "decoys_rmse",
    GUARDED_DECOYS: "decoys_guarded_rmse",
    DECOYS: "decoys_delta_rmse",
    TRUSTED: "trusted_party_rmse",
}
"""What the table of all curves calls the ways."""

INK = "#222222"
STYLES = {
    PAPER: LineStyle(COLORS[1]),
    GUARDED_DECOYS: LineStyle(COLORS[5], (4, 2)),
    PURE_DECOYS: LineStyle(COLORS[0]),
    SHUFFLED: LineStyle(COLORS[3], (9, 3, 2, 3)),
    DECOYS: LineStyle(COLORS[2], (7, 3)),
    TRUSTED: LineStyle(INK, (2, 3)),
}
"""Lines for the ways, mostly in the order of their errors, the largest first."""

GAIN_LINES = (
    LineStyle(COLORS[2], (7, 3)),
    LineStyle(COLORS[3], (9, 3, 2, 3)),
    LineStyle(COLORS[0]),
    LineStyle(COLORS[1], (13, 3)),
)
"""Lines for the populations of figure 9."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way to keep a promise: a mechanism, the δ that it may spend, and the server's noise.

    A way with decoys is ``guarded`` if the server's noise is as strong as the paper's, so that a
    researcher whom a curator helps learns no more; otherwise there is none.
    """

    mechanism: MechanismName
    delta: float = 0.0
    guarded: bool = False

    def plan(self, population_size: int, domain_size: int, epsilon: float) -> Plan:
        """Plan a release in this way."""
        with_curator = None
        if self.mechanism == "decoys":
            papers = WAYS[PAPER].plan(population_size, domain_size, epsilon)
            with_curator = papers.epsilon_with_curator if self.guarded else math.inf
        return plan(
            population_size=population_size,
            domain_size=domain_size,
            epsilon=epsilon,
            delta=self.delta,
            mechanism=self.mechanism,
            epsilon_with_curator=with_curator,
            anyway=True,  # the paper's own settings are compared, whatever they are worth
        )


WAYS = {
    PAPER: Way("paper"),
    GUARDED_DECOYS: Way("decoys", guarded=True),
    PURE_DECOYS: Way("decoys"),
    SHUFFLED: Way("shuffle", DELTA),
    DECOYS: Way("decoys", DELTA),
}
"""The ways that are planned; a trusted party needs no plan."""

Sizes = tuple[int, int, float]
"""A population n, a number of cells N, and an ε."""

Axis = Literal["epsilon", "population_size", "domain_size"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonFigure:
    """One of the figures: what it varies, where, and what it keeps fixed."""

    number: int
    slug: str
    title: str
    axis: Axis
    x_title: str
    x_ticks: Sequence[float]
    fixed: str
    sizes: tuple[Sizes, ...]
    ways: tuple[str, ...] = tuple(WAYS)

    @property
    def stem(self) -> str:
        """The file's name without its suffix."""
        return f"figure-{self.number}-{self.slug}"


FIGURES = (
    ComparisonFigure(
        number=6,
        slug="epsilon",
        title="Error against ε",
        axis="epsilon",
        x_title="privacy ε",
        x_ticks=(0.05, 0.1, 0.2, 0.5, 1, 2),
        fixed=f"n = {ADULT_POPULATION:,} respondents, N = {CELLS} cells",
        sizes=tuple((ADULT_POPULATION, CELLS, epsilon) for epsilon in EPSILONS),
    ),
    ComparisonFigure(
        number=7,
        slug="population",
        title="Error against the number of respondents",
        axis="population_size",
        x_title="respondents n",
        x_ticks=(1_000, 10_000, 100_000, 1_000_000, 10_000_000),
        fixed=f"ε = {EPSILON:g}, N = {CELLS} cells",
        sizes=tuple((size, CELLS, EPSILON) for size in POPULATIONS),
    ),
    ComparisonFigure(
        number=8,
        slug="cells",
        title="Error against the number of cells",
        axis="domain_size",
        x_title="number of cells N",
        x_ticks=DOMAIN_SIZES,
        fixed=f"ε = {EPSILON:g}, n = {ADULT_POPULATION:,} respondents",
        sizes=tuple((ADULT_POPULATION, cells, EPSILON) for cells in DOMAIN_SIZES),
    ),
)
GAIN_FIGURE = ComparisonFigure(
    number=9,
    slug="gain",
    title="How many times less error decoys leave than the paper's way",
    axis="domain_size",
    x_title="number of cells N",
    x_ticks=GAIN_DOMAIN_SIZES,
    fixed=f"ε = {EPSILON:g} and δ = 0 for both; exact worst-case RMSE",
    sizes=tuple((n, cells, EPSILON) for n in GAIN_POPULATIONS for cells in GAIN_DOMAIN_SIZES),
    ways=(PAPER, PURE_DECOYS),
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Plans of several ways for the same respondents, table and ε."""

    figure: int
    population_size: int
    domain_size: int
    epsilon: float
    plans: Mapping[str, Plan]

    @property
    def errors(self) -> dict[str, float]:
        """The exact worst-case RMSE of each way that was planned, and of a trusted party."""
        errors = {way: chosen.rmse for way, chosen in self.plans.items()}
        return errors | {TRUSTED: self.plans[PAPER].trusted_party_rmse}

    def gain(self, way: str) -> float:
        """Return how many times less error a way leaves than the paper's."""
        return self.errors[PAPER] / self.errors[way]

    def row(self) -> dict[str, object]:
        """Return the errors as a row of a table; a way that was not planned has none."""
        errors = self.errors
        return {
            "figure": self.figure,
            "population_size": self.population_size,
            "domain_size": self.domain_size,
            "epsilon": self.epsilon,
            "delta": DELTA,
            **{column: errors.get(way) for way, column in COLUMNS.items()},
        }


def compare(figure: ComparisonFigure, sizes: Sizes) -> Comparison:
    """Plan every way of a figure at one of its places."""
    return Comparison(figure.number, *sizes, {way: WAYS[way].plan(*sizes) for way in figure.ways})


@dataclass(frozen=True, slots=True)
class SimulatedPoint:
    """The experiment behind a point of figures 6 to 8: one way to publish uniform data."""

    comparison: Comparison
    way: str
    setting: Setting


def simulated_points(comparisons: Iterable[Comparison]) -> list[SimulatedPoint]:
    """Return the experiments behind all points: every way, wherever tables are simulated."""
    points = []
    for compared in comparisons:
        if compared.figure == GAIN_FIGURE.number or compared.domain_size not in SIMULATED:
            continue
        table = distribution_table("uniform", compared.domain_size, compared.population_size)
        for way, chosen in compared.plans.items():
            setting = Setting(distribution="uniform", table=table, plan=chosen)
            points.append(SimulatedPoint(compared, way, setting))
    return points


def comparison_chart(
    figure: ComparisonFigure,
    comparisons: Sequence[Comparison],
    simulated: Iterable[tuple[SimulatedPoint, Result]],
) -> ErrorChart:
    """Show the error of every way: exact ones as curves, simulated ones as points."""
    shown = [compared for compared in comparisons if compared.figure == figure.number]
    points = [(p, r) for p, r in simulated if p.comparison.figure == figure.number]
    runs = f"{points[0][1].runs:,} simulated releases of uniform data each"
    return ErrorChart(
        title=f"Figure {figure.number}. {figure.title}",
        subtitle=[
            f"{figure.fixed}; decoys without noise by the server, unless γ is named",
            f"Lines: exact RMSE for the hardest data; points: {runs}",
        ],
        x_title=figure.x_title,
        y_title="RMSE (ℓ₂) of the estimated distribution",
        group_title="",
        curves=[
            Mark(getattr(compared, figure.axis), compared.errors[way], way, EXACT)
            for way in STYLES
            for compared in shown
        ],
        points=[
            Mark(getattr(point.comparison, figure.axis), result.rmse, point.way, SIMULATION)
            for point, result in points
        ],
        x_ticks=figure.x_ticks,
        x_format="~g" if figure.axis == "epsilon" else ",",
        styles=STYLES,
    )


def gain_chart(comparisons: Sequence[Comparison]) -> ErrorChart:
    """Show how the gain over the paper's way follows 2√N, the longer the more respondents."""
    figure = GAIN_FIGURE
    shown = [compared for compared in comparisons if compared.figure == figure.number]
    names = [f"n = {size:,}" for size in GAIN_POPULATIONS]
    return ErrorChart(
        title=f"Figure {figure.number}. {figure.title}",
        subtitle=[figure.fixed],
        x_title=figure.x_title,
        y_title="RMSE of the paper's way ÷ RMSE of decoys",
        group_title="",
        curves=[
            *(Mark(cells, limit(cells), LIMIT, EXACT) for cells in GAIN_DOMAIN_SIZES),
            *(
                Mark(c.domain_size, c.gain(PURE_DECOYS), f"n = {c.population_size:,}", EXACT)
                for c in shown
            ),
        ],
        x_ticks=figure.x_ticks,
        styles={LIMIT: LineStyle(INK, (2, 3))} | dict(zip(names, GAIN_LINES, strict=True)),
    )


def limit(domain_size: int) -> float:
    """Return 2√N, what the gain of decoys without δ over the paper's way tends to for large n."""
    return 2 * math.sqrt(domain_size)
