"""The paper's five result figures: which experiments they rest on, and what they show."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from veiltab.core import utility
from veiltab.core.privacy import gamma_for
from veiltab.data.counts import CARDINALITIES
from veiltab.paper.experiment import (
    ADULT_POPULATION,
    DISTRIBUTIONS,
    Result,
    Setting,
    Wishes,
    distribution_table,
    settings_for,
)
from veiltab.report.charts import BOUND, DASHED, EXACT, ErrorChart, Mark, Vertical

EPSILONS = (0.1, 0.5, 1.0)
CELLS = 24
NAMES = {"adult": "UCI Adult", "uniform": "uniform", "linear": "linear", "peaky": "peaky"}

SMALLEST_SAMPLE = 30
SPREAD_SIZES = 25
PAPER_SIZES = {e: utility.paper_sample_size(ADULT_POPULATION, CELLS, e) for e in EPSILONS}
"""The paper's m* for each ε: experiments are run there too, and vertical lines drawn."""

SIDE_BY_SIDE = dict(zip(DISTRIBUTIONS, (0.94, 0.98, 1.02, 1.06), strict=True))
"""Factors that set the four points at one number of cells apart."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure of the paper: its number, the file it goes to, and whose data it shows."""

    number: int
    slug: str
    distributions: tuple[str, ...]

    @property
    def stem(self) -> str:
        """The file's name without its suffix."""
        return f"figure-{self.number}-{self.slug}"

    @property
    def names(self) -> str:
        """The data that it shows, for a title."""
        return " and ".join(NAMES[name] for name in self.distributions)

    def pick(self, results: Sequence[Result]) -> list[Result]:
        """Return the results on this figure's data."""
        return [result for result in results if result.distribution in self.distributions]


SAMPLE_SIZE_FIGURES = (
    Figure(1, "adult", ("adult",)),
    Figure(2, "adult-and-uniform", ("adult", "uniform")),
    Figure(3, "adult-and-linear", ("adult", "linear")),
    Figure(4, "adult-and-peaky", ("adult", "peaky")),
)
CARDINALITY_FIGURE = Figure(5, "cardinality", DISTRIBUTIONS)


def sample_sizes(count: int = SPREAD_SIZES) -> list[int]:
    """Return whole sample sizes, evenly spread on a logarithmic scale up to everybody."""
    spread = np.geomspace(SMALLEST_SAMPLE, ADULT_POPULATION, count).round().astype(int)
    return sorted({*spread.tolist(), *PAPER_SIZES.values()})


def sample_size_settings() -> list[Setting]:
    """Return the experiments of figures 1 to 4: all data, all ε, all sample sizes."""
    wishes = [Wishes(sample_size=size) for size in sample_sizes()]
    return [
        setting
        for name in DISTRIBUTIONS
        for setting in settings_for(name, distribution_table(name, CELLS), EPSILONS, wishes)
    ]


def cardinality_settings() -> list[Setting]:
    """Return the experiments of figure 5: the paper's m* for every number of cells."""
    settings = []
    for cells in CARDINALITIES:
        for name in DISTRIBUTIONS:
            table = distribution_table(name, cells)
            for epsilon in EPSILONS:
                size = utility.paper_sample_size(ADULT_POPULATION, cells, epsilon)
                settings += settings_for(name, table, [epsilon], [Wishes(sample_size=size)])
    return settings


def sample_size_chart(figure: Figure, results: Sequence[Result]) -> ErrorChart:
    """Show the error against the sample size, with bounds, exact curves and the m* lines."""
    shown = figure.pick(results)
    return ErrorChart(
        title=f"Figure {figure.number}. Error against sample size: {figure.names}",
        subtitle=[
            f"n = {ADULT_POPULATION:,} respondents, N = {CELLS} cells; {_runs(shown)}",
            "Vertical lines: the paper's optimal sample size m*",
        ],
        x_title="sample size m",
        group_title="Privacy",
        curves=_sample_size_curves(figure),
        points=[_mark(r, r.sampled, r.mean_l2, NAMES[r.distribution]) for r in shown],
        verticals=[
            Vertical(size, _group(epsilon), f"m* = {size:,}")
            for epsilon, size in PAPER_SIZES.items()
        ],
    )


def cardinality_chart(results: Sequence[Result]) -> ErrorChart:
    """Show the error at the paper's m* against the number of cells."""
    adult = [result for result in results if result.distribution == "adult"]
    curves = [_mark(r, r.cells, r.bound, BOUND) for r in adult]
    curves += [_mark(r, r.cells, r.bound / r.cells**0.5, DASHED) for r in adult]
    for name in ("adult", "peaky"):  # the other two lie on the first
        chosen = [result for result in results if result.distribution == name]
        curves += [_mark(r, r.cells, r.exact_rmse, f"{EXACT}, {NAMES[name]}") for r in chosen]
    return ErrorChart(
        title="Figure 5. Error at the paper's optimal sample size m*, against cardinality",
        subtitle=[
            f"n = {ADULT_POPULATION:,} respondents; {_runs(results)}",
            "The four points at one number of cells are set side by side",
        ],
        x_title="number of cells N",
        group_title="Privacy",
        curves=curves,
        points=[
            _mark(r, r.cells * SIDE_BY_SIDE[r.distribution], r.mean_l2, NAMES[r.distribution])
            for r in results
        ],
        x_ticks=CARDINALITIES,
    )


def _sample_size_curves(figure: Figure) -> list[Mark]:
    squares = {n: distribution_table(n, CELLS).sum_of_squares for n in figure.distributions}
    curves = []
    for epsilon in EPSILONS:
        group = _group(epsilon)
        for size in sample_sizes(150):
            gamma = gamma_for(ADULT_POPULATION, size, epsilon)
            bound = utility.error_bound(size, CELLS, gamma)
            curves.append(Mark(size, bound, group, BOUND))
            curves.append(Mark(size, bound / CELLS**0.5, group, DASHED))
            for name, square in squares.items():
                exact = utility.exact_rmse(ADULT_POPULATION, size, CELLS, gamma, square)
                curves.append(Mark(size, exact, group, f"{EXACT}, {NAMES[name]}"))
    return curves


def _runs(results: Sequence[Result]) -> str:
    return f"each point is the mean of {results[0].runs:,} simulated releases"


def _mark(result: Result, x: float, y: float, series: str) -> Mark:
    return Mark(x, y, _group(result.epsilon), series)


def _group(epsilon: float) -> str:
    return f"ε = {epsilon:g}"
