"""Intervals and tests at settings that nothing was tuned on.

The short versions here have fewer releases, and bounds of four standard errors and two points: a
correct program fails one of their entries in 10,000 at most.  ``make soak`` asks every question at
every setting of 2,000 releases.
"""

import math

import pytest

from tests.support.heldout import HELD_OUT
from tests.support.heldout_at_once import ASSOCIATIONS, EACH_AT_ONCE, measure_at_once
from tests.support.heldout_measures import (
    INTERVALS,
    PAIRS,
    TESTS,
    Interval,
    Test,
    measure,
    measure_pair,
)
from tests.support.heldout_models import BY_MODELS, PREDICTIONS
from tests.support.heldout_run import OUTSIDE, as_wanted, settled

SETTINGS = {setting.name: setting for setting in HELD_OUT}
ALL: list[Interval | Test] = [*INTERVALS, *TESTS]
QUESTIONS = {what.name: what for what in ALL}
CHANGES = {what.name: what for what in PAIRS}
SEED = 5


def slack(wanted: float, runs: int) -> float:
    """Return four standard errors of a measured share."""
    return 4 * math.sqrt(wanted * (1 - wanted) / runs)


def test_there_are_twenty_settings_of_every_kind() -> None:
    """All mechanisms, both ways to link, published or not, from a thousand people to a million."""
    assert len(SETTINGS) == len(HELD_OUT) == 20
    plans = [setting.plan for setting in HELD_OUT]
    assert {plan.mechanism_name for plan in plans} == {"decoys", "paper", "shuffle"}
    assert {plan.linkage for plan in plans} == {"aligned", "matched"}
    assert {plan.delta > 0 for plan in plans} == {setting.published for setting in HELD_OUT}
    sizes = [setting.people for setting in HELD_OUT]
    assert (min(sizes), max(sizes)) == (1_000, 1_000_000)
    assert any((setting.truth() == 0).any() for setting in HELD_OUT)


@pytest.mark.parametrize("name", [n for n in EACH_AT_ONCE if n not in ASSOCIATIONS])
def test_many_releases_are_judged_as_each_alone(name: str) -> None:
    """What is asked of arrays of releases says what users are told, release by release."""
    setting, runs = SETTINGS["confounded, 1,000 records"], 12
    together = EACH_AT_ONCE[name](name, setting, runs, SEED)
    if name in CHANGES:
        alone = measure_pair(CHANGES[name], setting, runs, SEED)
    else:
        alone = measure(QUESTIONS[name], setting, runs, SEED)
    assert together == alone
    assert together.rate is not None


@pytest.mark.parametrize("what", PREDICTIONS, ids=lambda what: what.name)
def test_predictions_of_many_releases_are_those_of_each_alone(what: Interval) -> None:
    """Combinations of coefficients, and a chance and a share by the delta method."""
    setting, runs = SETTINGS["matched, few people"], 4
    together = BY_MODELS[what.name](what.name, setting, runs, SEED)
    assert together == measure(what, setting, runs, SEED)
    assert together.rate is not None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clinic", "association in rare cells"])
def test_shares_and_ratios_cover(name: str) -> None:
    """Cells, marginals, bands, differences, conditional shares and ratios."""
    runs = 400
    for row in measure_at_once(SETTINGS[name], runs, SEED):
        assert row.rate is not None
        assert abs(row.rate - 0.95) <= 0.02 + slack(0.95, runs), row


def test_a_mean_in_a_rare_group_covers() -> None:
    """The skewness of the error is that at the mean asked about, not at the estimated one.

    With that of the estimated one, the interval holds in 92% of these releases.
    """
    setting, name = SETTINGS["association in rare cells"], "difference of means"
    row = EACH_AT_ONCE[name](name, setting, 5_000, SEED)
    assert row.rate is not None
    assert 0.75 < row.given < 0.88
    assert abs(row.rate - 0.95) <= slack(0.95, 4_000), row


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "question"),
    [
        ("confounded, 1,000 records", "independence within groups"),
        ("confounded, decoys", "trend within groups"),
        ("clinic", "Mantel–Haenszel"),
    ],
)
def test_sizes_under_confounding(name: str, question: str) -> None:
    """Within groups whose margins differ strongly, a null hypothesis is rejected in 5%."""
    runs = 150
    row = measure(QUESTIONS[question], SETTINGS[name], runs, SEED)
    assert row.rate is not None
    assert abs(row.rate - 0.05) <= 0.01 + slack(0.05, runs), row


@pytest.mark.soak
@pytest.mark.parametrize("name", SETTINGS)
def test_every_question_at_every_setting(name: str) -> None:
    """Intervals hold in 93% to 97%, and tests reject in 4% to 6%, but where the page says why not.

    2,000 releases of each are asked, and 10,000 others where these leave it in doubt.
    """
    outside = {(row.name, row.setting) for row in settled(SETTINGS[name]) if not as_wanted(row)}
    assert outside == {entry for entry in OUTSIDE if entry[1] == name}
