"""The paper's figures: which experiments they rest on, and that they show what they say."""

import math
from collections.abc import Iterable
from itertools import pairwise

import pytest

from tests.support.paper import RUNS, paper_results
from veiltab.core import utility
from veiltab.core.privacy import gamma_for
from veiltab.paper.experiment import DISTRIBUTIONS, distribution_table
from veiltab.paper.figures import (
    CARDINALITY_FIGURE,
    EPSILONS,
    SAMPLE_SIZE_FIGURES,
    Figure,
    cardinality_chart,
    cardinality_settings,
    sample_size_chart,
    sample_size_settings,
    sample_sizes,
)
from veiltab.report.charts import BOUND, DASHED, ErrorChart, Mark

N = 45_222
PAPER = {0.1: 239, 0.5: 1472, 1.0: 3899}
"""The optimal sample sizes m* that the paper draws as vertical lines."""

EXACT = {"adult": "exact RMSE, UCI Adult", "peaky": "exact RMSE, peaky"}
four_figures = pytest.mark.parametrize("figure", SAMPLE_SIZE_FIGURES, ids=lambda f: f.stem)


def size_chart(figure: Figure) -> ErrorChart:
    """Return one of figures 1 to 4 with real results."""
    return sample_size_chart(figure, paper_results()[0])


def marks(where: Iterable[Mark], epsilon: float, series: str) -> dict[float, float]:
    """Return one curve, or one kind of points, as y by x."""
    chosen = [m for m in where if m.group == f"ε = {epsilon:g}" and m.series == series]
    found = {mark.x: mark.y for mark in chosen}
    assert len(found) == len(chosen), "two marks at one place"
    return found


def test_every_curve_has_at_least_twenty_sample_sizes() -> None:
    """From few to everybody, with the paper's m* among them, and no gap above a factor of 1.5."""
    sizes = sample_sizes()
    assert len(sizes) >= 20
    assert sizes == sorted(set(sizes))
    assert (sizes[0], sizes[-1]) == (30, N)
    assert set(PAPER.values()) <= set(sizes)
    assert max(b / a for a, b in pairwise(sizes)) < 1.5


def test_the_experiments_of_figures_1_to_4() -> None:
    """All four data sets, at all three ε, at every sample size: each once, on 24 cells."""
    settings = sample_size_settings()
    places = [(s.distribution, s.plan.epsilon, s.plan.sample_size) for s in settings]
    expected = {(d, e, m) for d in DISTRIBUTIONS for e in (0.1, 0.5, 1.0) for m in sample_sizes()}
    assert len(places) == len(expected)
    assert set(places) == expected
    assert {s.plan.domain_size for s in settings} == {24}
    assert {s.table.population_size for s in settings} == {N}


def test_the_experiments_of_figure_5() -> None:
    """Seven cardinalities, each at its own m* for each ε."""
    settings = cardinality_settings()
    places = {(s.distribution, s.plan.domain_size, s.plan.epsilon) for s in settings}
    cells = (12, 24, 48, 96, 192, 384, 768)
    assert places == {(d, c, e) for d in DISTRIBUTIONS for c in cells for e in (0.1, 0.5, 1.0)}
    assert len(settings) == len(places)
    for setting in settings:
        eta, root = math.expm1(setting.plan.epsilon), math.sqrt(setting.plan.domain_size)
        assert setting.plan.sample_size == round(N * eta * (1 + root) / root**3)


@pytest.mark.slow
def test_each_experiment_uses_its_own_data() -> None:
    """A setting's table is the one that its name says."""
    for setting in [*sample_size_settings(), *cardinality_settings()]:
        table = distribution_table(setting.distribution, setting.plan.domain_size)
        assert setting.table.counts.tolist() == table.counts.tolist()


@pytest.mark.slow
@four_figures
def test_points_are_the_results(figure: Figure) -> None:
    """Every simulated mean of the figure's data is drawn where it belongs, and no other."""
    results = [r for r in paper_results()[0] if r.distribution in figure.distributions]
    names = {"adult": "UCI Adult"}
    expected = {
        (r.sample_size, r.mean_l2, f"ε = {r.epsilon:g}", names.get(r.distribution, r.distribution))
        for r in results
    }
    points = size_chart(figure).points
    assert {(p.x, p.y, p.group, p.series) for p in points} == expected
    assert len(points) == len(expected) == 3 * len(sample_sizes()) * len(figure.distributions)


@pytest.mark.slow
@four_figures
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_curves_are_the_formulas(figure: Figure, epsilon: float) -> None:
    """Theorem 2's bound, the same over √N, and the exact RMSE, written out once more."""
    curves = size_chart(figure).curves
    bound = marks(curves, epsilon, BOUND)
    assert len(bound) >= 100
    for m, y in bound.items():
        odds = N * math.expm1(epsilon) / m
        assert y == pytest.approx(((1 + 24 / odds) * math.sqrt(24) + 1) / math.sqrt(m))
    scaled = marks(curves, epsilon, DASHED)
    assert scaled == pytest.approx({m: y / math.sqrt(24) for m, y in bound.items()})
    squares = distribution_table("adult", 24).sum_of_squares
    for m, y in marks(curves, epsilon, EXACT["adult"]).items():
        odds = N * math.expm1(epsilon) / m
        noise = 23 * (2 * (odds + 1) + 22) / (m * odds**2)
        assert y == pytest.approx(math.sqrt(noise + (1 - squares) * (N - m) / (m * (N - 1))))


@four_figures
def test_vertical_lines_stand_at_the_papers_optima(figure: Figure) -> None:
    """239, 1472 and 3899, each in the colour of its ε."""
    lines = {line.group: (line.x, line.label) for line in size_chart(figure).verticals}
    assert lines == {
        "ε = 0.1": (239, "m* = 239"),
        "ε = 0.5": (1472, "m* = 1,472"),
        "ε = 1": (3899, "m* = 3,899"),
    }


@four_figures
def test_every_data_set_has_its_exact_curve(figure: Figure) -> None:
    """Besides the two bounds, there are as many curves as data sets."""
    chart = size_chart(figure)
    series = {mark.series for mark in chart.curves}
    assert len(series) == 2 + len(figure.distributions)
    assert {mark.group for mark in chart.curves} == {"ε = 0.1", "ε = 0.5", "ε = 1"}
    assert str(figure.number) in chart.title
    assert f"{RUNS} simulated releases" in chart.subtitle[0]


def test_the_peaky_curve_is_the_peaky_formula() -> None:
    """Each exact curve uses its own data's ‖T‖²."""
    curves = size_chart(SAMPLE_SIZE_FIGURES[3]).curves
    squares = distribution_table("peaky", 24).sum_of_squares
    for m, y in marks(curves, 0.5, EXACT["peaky"]).items():
        assert y == utility.exact_rmse(N, int(m), 24, gamma_for(N, int(m), 0.5), squares)


def test_figure_5_shows_every_result_and_every_curve() -> None:
    """Points of the four data sets side by side; bounds and exact errors at each cardinality."""
    results = paper_results()[1]
    chart = cardinality_chart(results)
    assert len(chart.points) == len(results) == 4 * 7 * 3
    for result, point in zip(results, chart.points, strict=True):
        assert point.y == result.mean_l2
        assert point.group == f"ε = {result.epsilon:g}"
        assert abs(point.x / result.cells - 1) < 0.07
    assert len({point.x for point in chart.points}) == 4 * 7
    assert f"{RUNS} simulated releases" in chart.subtitle[0]
    assert chart.x_ticks == (12, 24, 48, 96, 192, 384, 768)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_the_curves_of_figure_5(epsilon: float) -> None:
    """The bound at m*, the same over √N, and the exact error of Adult and of peaky data."""
    by_cells = paper_results()[1]
    curves = cardinality_chart(by_cells).curves
    adult = [r for r in by_cells if (r.distribution, r.epsilon) == ("adult", epsilon)]
    peaky = [r for r in by_cells if (r.distribution, r.epsilon) == ("peaky", epsilon)]
    assert marks(curves, epsilon, BOUND) == {r.cells: r.error_bound for r in adult}
    scaled = {r.cells: r.bound / math.sqrt(r.cells) for r in adult}
    assert marks(curves, epsilon, DASHED) == pytest.approx(scaled)
    assert marks(curves, epsilon, EXACT["adult"]) == {r.cells: r.exact_rmse for r in adult}
    assert marks(curves, epsilon, EXACT["peaky"]) == {r.cells: r.exact_rmse for r in peaky}


def test_the_figures_have_the_papers_numbers_and_separate_files() -> None:
    """Five figures, five names."""
    all_five = [*SAMPLE_SIZE_FIGURES, CARDINALITY_FIGURE]
    assert [figure.number for figure in all_five] == [1, 2, 3, 4, 5]
    assert len({figure.stem for figure in all_five}) == 5
    assert [figure.distributions for figure in SAMPLE_SIZE_FIGURES] == [
        *(("adult",), ("adult", "uniform"), ("adult", "linear"), ("adult", "peaky")),
    ]
