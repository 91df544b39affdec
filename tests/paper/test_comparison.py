"""Figures 6 to 9: the errors of all ways at the same promise, and the claims made of them."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache

import pytest

from veiltab.core.plan import Plan, plan
from veiltab.paper.claims import Claim, check_comparisons
from veiltab.paper.comparison import (
    CELLS,
    COLUMNS,
    DECOYS,
    DELTA,
    FIGURES,
    GAIN_FIGURE,
    GUARDED_DECOYS,
    PAPER,
    PURE_DECOYS,
    SHUFFLED,
    STYLES,
    TRUSTED,
    WAYS,
    Comparison,
    SimulatedPoint,
    compare,
    comparison_chart,
    gain_chart,
    limit,
    simulated_points,
)
from veiltab.paper.experiment import ADULT_POPULATION, Result, run_experiment

EPSILON_FIGURE, _, CELLS_FIGURE = FIGURES
SIZES = [(ADULT_POPULATION, CELLS, epsilon) for epsilon in (0.1, 0.5, 1.0)]
SHUFFLING, AS_TRUSTED, GAIN, GUARDED, MORE_CELLS, TENDS, FORMULA = range(7)
"""The claims, in the order in which they are checked."""

RUNS = 20


@cache
def compared() -> tuple[Comparison, ...]:
    """Return what the claims look at: the paper's settings, 24 and 768 cells, and figure 9."""
    return (
        *(compare(EPSILON_FIGURE, sizes) for sizes in SIZES),
        *(compare(CELLS_FIGURE, (ADULT_POPULATION, cells, 0.5)) for cells in (24, 768)),
        *(compare(GAIN_FIGURE, sizes) for sizes in GAIN_FIGURE.sizes),
    )


@cache
def simulated() -> tuple[tuple[SimulatedPoint, Result], ...]:
    """Return real results for the points at these settings, from few runs."""
    points = simulated_points(compared())
    return tuple((point, run_experiment(point.setting, RUNS, seed=6)) for point in points)


def results() -> list[Result]:
    """Return the results without their points."""
    return [result for _, result in simulated()]


def test_every_error_is_a_plans() -> None:
    """Exactly what the planner says of each mechanism; a trusted party adds Laplace noise."""
    for each, (population, cells, epsilon) in zip(compared()[:3], SIZES, strict=True):

        def planned(n: int = population, c: int = cells, e: float = epsilon, **way: object) -> Plan:
            return plan(population_size=n, domain_size=c, epsilon=e, **way)  # type: ignore[arg-type]

        papers = planned(mechanism="paper")
        assert each.errors == {
            PAPER: papers.rmse,
            GUARDED_DECOYS: planned(
                mechanism="decoys", epsilon_with_curator=papers.epsilon_with_curator
            ).rmse,
            PURE_DECOYS: planned(mechanism="decoys", epsilon_with_curator=math.inf).rmse,
            SHUFFLED: planned(mechanism="shuffle", delta=DELTA).rmse,
            DECOYS: planned(mechanism="decoys", delta=DELTA, epsilon_with_curator=math.inf).rmse,
            TRUSTED: math.sqrt(2 * cells) * 2 / (epsilon * population),
        }


def test_the_reference_values() -> None:
    """Decoys reach the errors that were computed for them independently of this program."""
    errors = [each.errors for each in compared()]
    for number, (pure, with_delta, guarded) in enumerate(
        [(0.0174, 0.0038, 0.0334), (0.0066, 0.00062, 0.0148), (0.0041, 0.00031, 0.0111)]
    ):
        assert errors[number][PURE_DECOYS] <= pure
        assert errors[number][DECOYS] <= with_delta
        assert errors[number][GUARDED_DECOYS] <= guarded
    assert errors[4][PURE_DECOYS] <= 0.0087
    assert errors[4][DECOYS] <= 0.0036


def test_the_server_adds_noise_only_where_it_is_named() -> None:
    """The guarded way is as safe from a curator who helps as the paper's; other decoys are not."""
    plans = compared()[1].plans
    papers, guarded = plans[PAPER].epsilon_with_curator, plans[GUARDED_DECOYS].epsilon_with_curator
    assert papers is not None
    assert guarded is not None
    assert papers * 0.999 < guarded <= papers
    assert plans[PURE_DECOYS].epsilon_with_curator is plans[DECOYS].epsilon_with_curator is None
    assert {plans[way].delta for way in (PAPER, GUARDED_DECOYS, PURE_DECOYS)} == {0}
    assert {plans[way].delta for way in (SHUFFLED, DECOYS)} == {DELTA}


def test_the_gain_follows_its_limit() -> None:
    """For a billion respondents it is 2√(N − η/4), as the exact errors say, within 1.5%.

    The paper's way gains a little from sampling a large part of the population: that is the η/4.
    """
    shown = [each for each in compared() if each.figure == GAIN_FIGURE.number]
    assert {each.population_size for each in shown} == {10_000, ADULT_POPULATION, 10**6, 10**9}
    for each in shown:
        exact_limit = 2 * math.sqrt(each.domain_size - math.expm1(0.5) / 4)
        assert each.gain(PURE_DECOYS) < exact_limit < limit(each.domain_size)
        if each.population_size == 10**9:
            assert each.gain(PURE_DECOYS) == pytest.approx(exact_limit, rel=0.025)


def test_a_row_has_every_error() -> None:
    """Under a name for each way; ways that figure 9 leaves out have none."""
    row = compared()[1].row()
    assert list(row) == [
        *("figure", "population_size", "domain_size", "epsilon", "delta"),
        *("pure_rmse", "shuffle_rmse", "decoys_rmse", "decoys_guarded_rmse", "decoys_delta_rmse"),
        "trusted_party_rmse",
    ]
    assert list(row.values())[:5] == [6, ADULT_POPULATION, CELLS, 0.5, DELTA]
    assert {way: row[column] for way, column in COLUMNS.items()} == compared()[1].errors
    left_out = {name for name, value in compared()[-1].row().items() if value is None}
    assert left_out == {"shuffle_rmse", "decoys_guarded_rmse", "decoys_delta_rmse"}


def test_the_figures_cover_the_settings() -> None:
    """Each varies what it says and nothing else, with the paper's own settings among the others."""
    assert [figure.stem for figure in (*FIGURES, GAIN_FIGURE)] == [
        *("figure-6-epsilon", "figure-7-population", "figure-8-cells", "figure-9-gain"),
    ]
    for figure, place in zip(FIGURES, (2, 0, 1), strict=True):
        varied = [sizes[place] for sizes in figure.sizes]
        assert varied == sorted(set(varied))
        assert len(varied) >= 9
        fixed = [{sizes[other] for sizes in figure.sizes} for other in range(3) if other != place]
        assert [len(values) for values in fixed] == [1, 1]
    assert set(SIZES) <= set(EPSILON_FIGURE.sizes)


def test_every_way_is_simulated_where_tables_are() -> None:
    """Uniform data with the plan's own sizes; figure 9 and the extreme tables have no points."""
    points = simulated_points([*compared(), compare(CELLS_FIGURE, (ADULT_POPULATION, 2, 0.5))])
    assert len(points) == 5 * len(WAYS)
    for point in points:
        setting = point.setting
        assert (setting.distribution, setting.plan) == (
            "uniform",
            point.comparison.plans[point.way],
        )
        assert setting.table.population_size == point.comparison.population_size
        assert setting.table.schema.domain_size == point.comparison.domain_size


def test_the_charts_show_every_way_at_every_setting() -> None:
    """Curves through the exact errors, points at the simulated ones, each in its own line."""
    chart = comparison_chart(EPSILON_FIGURE, compared(), simulated())
    lines = {(mark.group, mark.x): mark.y for mark in chart.curves}
    assert lines == {
        (way, each.epsilon): error for each in compared()[:3] for way, error in each.errors.items()
    }
    points = {(mark.group, mark.x): mark.y for mark in chart.points}
    assert points == {
        (point.way, result.epsilon): result.rmse
        for point, result in simulated()
        if point.comparison.figure == EPSILON_FIGURE.number
    }
    assert chart.styles == STYLES
    assert f"{RUNS} simulated releases" in chart.subtitle[1]
    by_cells = comparison_chart(CELLS_FIGURE, compared(), simulated())
    assert {mark.x for mark in by_cells.curves} == {24, 768}


def test_lines_differ_in_more_than_colour() -> None:
    """No two ways have the same dashes, except solid lines far apart from each other."""
    for styles in (STYLES, gain_chart(compared()).styles):
        assert styles is not None
        assert len({style.color for style in styles.values()}) == len(styles)
        dashed = [style.dashes for style in styles.values() if style.dashes != (1, 0)]
        assert len(dashed) == len(set(dashed)) >= len(styles) - 2


def test_the_gain_chart_shows_the_limit() -> None:
    """A line for 2√N, and one below it for each population."""
    chart = gain_chart(compared())
    assert chart.styles is not None
    lines: dict[str, dict[float, float]] = {name: {} for name in chart.styles}
    for mark in chart.curves:
        lines[mark.group][mark.x] = mark.y
    top = lines.pop("2√N")
    assert top == {cells: 2 * math.sqrt(cells) for _, cells, _ in GAIN_FIGURE.sizes}
    assert list(lines) == ["n = 1,000,000,000", "n = 1,000,000", "n = 45,222", "n = 10,000"]
    for line in lines.values():
        assert line.keys() == top.keys()
        assert all(line[cells] < top[cells] for cells in top)


def changed(figure: int, way: str, factor: float) -> list[Comparison]:
    """Pretend that a way has another error, in one figure, by the plans of another ε."""
    return [
        replace(each, plans={**each.plans, way: Doctored(each.plans[way], factor)})  # type: ignore[dict-item]
        if each.figure == figure
        else each
        for each in compared()
    ]


class Doctored:
    """A plan with another error."""

    def __init__(self, real: Plan, factor: float) -> None:
        """Multiply the plan's error."""
        self.rmse = real.rmse * factor
        self.trusted_party_rmse = real.trusted_party_rmse


def broken(comparisons: Sequence[Comparison], simulations: Sequence[Result]) -> list[int]:
    """Return which claims do not hold."""
    claims = check_comparisons(comparisons, simulations)
    return [number for number, claim in enumerate(claims) if not claim.holds]


def test_every_claim_holds() -> None:
    """And says what was measured."""
    claims = check_comparisons(compared(), results())
    assert [claim for claim in claims if not claim.holds] == []
    assert [claim.figure for claim in claims] == [6, 6, 6, 6, 8, 9, None]
    assert all(any(letter.isdigit() for letter in claim.measured) for claim in claims)
    assert "8.2 to 8.6 times less" in measured(claims, GAIN)
    assert "20.4 to 35.0 times less" in measured(claims, SHUFFLING)


def measured(claims: Sequence[Claim], number: int) -> str:
    """Return what a claim reports."""
    return claims[number].measured


@pytest.mark.parametrize(
    ("claim", "figure", "way", "factor"),
    [
        pytest.param(SHUFFLING, 6, SHUFFLED, 1.1, id="shuffling gains less than twenty times"),
        pytest.param(AS_TRUSTED, 6, DECOYS, 1.05, id="decoys have more error than a trusted party"),
        pytest.param(GAIN, 6, PURE_DECOYS, 1.1, id="decoys gain less than eight times"),
        pytest.param(GUARDED, 6, GUARDED_DECOYS, 1.1, id="less than three with the paper's noise"),
        pytest.param(MORE_CELLS, 8, PURE_DECOYS, 1.1, id="less than 35 with 768 cells"),
        pytest.param(TENDS, 9, PURE_DECOYS, 1.03, id="a gain far below its limit"),
        pytest.param(TENDS, 9, PURE_DECOYS, 0.97, id="a gain above its limit"),
    ],
)
def test_a_contradiction_is_noticed(claim: int, figure: int, way: str, factor: float) -> None:
    """Errors that contradict one claim break that one and no other."""
    assert broken(changed(figure, way, factor), results()) == [claim]


def test_a_wrong_formula_is_noticed() -> None:
    """One simulated point that is off by more than chance is enough."""
    first, *others = results()
    wrong = replace(first, rmse=1.5 * first.exact_rmse, rmse_standard_error=None)
    assert broken(compared(), [wrong, *others]) == [FORMULA]
    assert "1 of 25 points" in measured(check_comparisons(compared(), [wrong, *others]), FORMULA)
