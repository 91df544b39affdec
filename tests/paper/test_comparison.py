"""What shuffling gains: the numbers behind figures 6 and 7, and the claim made of them."""

from dataclasses import replace

import pytest

from veiltab.core.plan import plan
from veiltab.paper.claims import check_gain
from veiltab.paper.experiment import ADULT_POPULATION
from veiltab.paper.figures import (
    CELLS,
    DELTA,
    Comparison,
    compare,
    epsilon_chart,
    population_chart,
)


@pytest.fixture(scope="module")
def compared() -> list[Comparison]:
    """Plan the paper's own settings all three ways."""
    return [compare(ADULT_POPULATION, epsilon) for epsilon in (0.1, 0.5, 1.0)]


@pytest.mark.slow
def test_the_three_errors_are_the_plans(compared: list[Comparison]) -> None:
    """Exactly what the planner says, with and without δ; the trusted party is the best."""
    for each in compared:
        asked = {"population_size": ADULT_POPULATION, "domain_size": CELLS, "epsilon": each.epsilon}
        assert each.pure_rmse == plan(**asked, mechanism="paper").rmse  # type: ignore[arg-type]
        shuffled = plan(**asked, delta=DELTA, mechanism="shuffle")  # type: ignore[arg-type]
        assert each.shuffle_rmse == shuffled.rmse
        assert each.trusted_party_rmse == shuffled.trusted_party_rmse
        assert each.trusted_party_rmse < each.shuffle_rmse < each.pure_rmse


@pytest.mark.slow
def test_twenty_to_thirty_five_times_less_error(compared: list[Comparison]) -> None:
    """At the paper's settings; and over a hundred times for a million respondents."""
    gains = [each.gain for each in compared]
    assert gains == pytest.approx([20.4, 32.4, 35.0], abs=0.2)
    assert compare(1_000_000, 0.5).gain > 100


def test_the_claim_can_fail(compared: list[Comparison]) -> None:
    """It holds here, and not where one setting gains less than twenty times."""
    assert check_gain(compared).holds
    worse = replace(compared[1], shuffle_rmse=compared[1].pure_rmse / 19)
    assert not check_gain([compared[0], worse, compared[2]]).holds
    elsewhere = replace(worse, population_size=ADULT_POPULATION + 1)
    assert check_gain([*compared, elsewhere]).holds


def test_the_charts_show_every_way_at_every_setting(compared: list[Comparison]) -> None:
    """Three curves through the compared settings."""
    chart = epsilon_chart(compared)
    assert len(chart.curves) == 9
    assert {mark.x for mark in chart.curves} == {0.1, 0.5, 1.0}
    assert len({mark.group for mark in chart.curves}) == 3
    others = population_chart(compared)
    assert {mark.x for mark in others.curves} == {ADULT_POPULATION}
    assert {mark.y for mark in others.curves} == {mark.y for mark in chart.curves}
