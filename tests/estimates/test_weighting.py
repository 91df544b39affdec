"""Survey weights: weighted shares and means, and what the bins of the weights leave open."""

import itertools

import numpy as np
import pytest

import veiltab as vt
from tests.support.estimates import million_cells

WEIGHT = vt.Bins([1, 2]).attribute("weight")
SCHEMA = vt.Schema(
    [
        vt.Attribute("ill", ["no", "yes"]),
        vt.Attribute("age", ["0 to <20", "20 to <50", "50 to <90"]),
        WEIGHT,
    ]
)
COUNTS = np.random.default_rng(8).integers(50, 400, SCHEMA.domain_size)
TABLE = vt.CountTable(SCHEMA, COUNTS)
BOUNDS = (0.5, 4.0)
LOW, MIDDLE, HIGH = np.array([0.5, 1, 2]), np.array([0.75, 1.5, 3]), np.array([1, 2, 4])
EXACT = vt.simulate(TABLE, epsilon=40, seed=1)
NOISY = vt.simulate(TABLE, epsilon=1, mechanism="paper", seed=2)
ILL = "ill = 'yes'"


def test_without_noise_they_are_weighted_sums() -> None:
    """With the errors of a ratio of two sample means, as surveys linearise it."""
    people = COUNTS.reshape(2, 3, 3)
    found = EXACT.weighted(ILL, "weight", bounds=BOUNDS)
    share = (people[1] @ MIDDLE).sum() / (people @ MIDDLE).sum()
    assert found.value == pytest.approx(share, abs=1e-5)
    ill = np.array([0, 1])[:, None, None]
    squares = (people * (MIDDLE * (ill - share)) ** 2).sum()
    assert found.standard_error == pytest.approx(squares**0.5 / (people @ MIDDLE).sum(), rel=1e-3)
    mean = EXACT.weighted_mean("age", "weight", weight_bounds=BOUNDS)
    ages = np.array([10, 35, 70])
    assert mean.value == pytest.approx(
        (people.sum(axis=0) * np.outer(ages, MIDDLE)).sum() / (people @ MIDDLE).sum(), abs=1e-3
    )
    within = EXACT.weighted(ILL, "weight", given="age >= 50", bounds=BOUNDS)
    old = people[:, 2] @ MIDDLE
    assert within.value == pytest.approx(old[1] / old.sum(), abs=1e-5)
    assert within.label == "P(ill = 'yes' | age >= 50), weighted by weight"


def test_equal_weights_change_nothing() -> None:
    """The weighted share is the share, with its interval."""
    found = NOISY.weighted(ILL, "weight", [2, 2, 2], population="finite")
    plain = NOISY.probability(ILL)
    assert found.value == pytest.approx(plain.value)
    assert found.standard_error == pytest.approx(plain.standard_error, rel=1e-6)
    only = NOISY.weighted(ILL, "weight", [0, 1, 0], population="finite")
    among = NOISY.probability(ILL, "weight = '1 to <2'")
    assert (only.value, only.low, only.high) == pytest.approx((among.value, among.low, among.high))


@pytest.mark.parametrize("given", [None, "age < 50"])
def test_no_weights_within_the_bins_go_beyond_the_bounds(given: str | None) -> None:
    """All 2⁶ ways to take bounds by score and bin; the extremes are reached, and not exceeded."""
    people = COUNTS.reshape(2, 3, 3)[:, : 2 if given else 3]
    share = EXACT.weighted(ILL, "weight", given=given, bounds=BOUNDS)
    by_ill = people.sum(axis=1)
    shares = []
    for upper in itertools.product([0, 1], repeat=6):
        weights = np.where(np.array(upper).reshape(2, 3), HIGH, LOW)
        sums = (by_ill * weights).sum(axis=1)
        shares.append(sums[1] / sums.sum())
    assert share.least == pytest.approx(min(shares), abs=1e-5)
    assert share.most == pytest.approx(max(shares), abs=1e-5)


def test_means_have_the_extremes_of_all_weights_too() -> None:
    """All 2⁹ ways to take bounds by age and bin."""
    people = COUNTS.reshape(2, 3, 3).sum(axis=0)
    found = EXACT.weighted_mean("age", "weight", weight_bounds=BOUNDS)
    means = []
    for upper in itertools.product([0, 1], repeat=9):
        sums = (people * np.where(np.array(upper).reshape(3, 3), HIGH, LOW)).sum(axis=1)
        means.append(sums @ [10, 35, 70] / sums.sum())
    assert found.least == pytest.approx(min(means), abs=1e-3)
    assert found.most == pytest.approx(max(means), abs=1e-3)


def test_bounds_lie_around_the_answer_and_its_interval() -> None:
    """In order, and said in words."""
    for found in (
        NOISY.weighted(ILL, "weight", bounds=BOUNDS),
        NOISY.weighted_mean("age", "weight", weight_bounds=BOUNDS),
    ):
        ends = (found.outer_low, found.least, found.value, found.most, found.outer_high)
        numbers = [end for end in ends if end is not None]
        assert numbers == sorted(numbers)
        assert len(numbers) == 5
        assert "weight is known by its bins only" in found.warnings[-1]
        assert found.as_dict()["most"] == found.most


def test_an_open_bin_needs_a_number() -> None:
    """A score gives an answer; only bounds say what the bins leave open."""
    with pytest.raises(vt.errors.ParameterError, match="'>=2' of 'weight' is open"):
        NOISY.weighted(ILL, "weight")
    found = NOISY.weighted(ILL, "weight", {">=2": 3})
    assert found.estimable
    assert (found.least, found.outer_high) == (None, None)
    assert "a bin has no bounds" in found.warnings[-1]


@pytest.mark.parametrize("scores", [[0, 0, 0], [-1, 1, 2]])
def test_weights_are_not_negative(scores: list[float]) -> None:
    """Nor all zero."""
    with pytest.raises(vt.errors.ParameterError, match="are negative, or all of them are zero"):
        NOISY.weighted(ILL, "weight", scores)
    with pytest.raises(vt.errors.ParameterError, match="are negative"):
        NOISY.weighted(ILL, "weight", {">=2": 3}, bounds=(-3, 4))


def test_a_group_of_next_to_nobody_is_refused() -> None:
    """As everywhere."""
    counts = COUNTS.reshape(2, 3, 3).copy()
    counts[:, 2] = 0
    table = vt.CountTable(SCHEMA, counts.reshape(-1))
    estimate = vt.simulate(table, epsilon=0.5, mechanism="paper", seed=1)
    found = estimate.weighted(ILL, "weight", given="age >= 50", bounds=BOUNDS)
    assert not found.estimable
    assert found.least is None
    assert "age >= 50, weighted, cannot be distinguished from zero" in found.warnings[0]


@pytest.mark.slow
def test_a_million_cells() -> None:
    """Weights in a hundred bins."""
    found = million_cells().weighted("a1 = '7'", "a2")
    assert found.estimable
    assert found.least == pytest.approx(found.most)


def test_hints_name_the_options_of_weights() -> None:
    """The bounds of a weight are ``weight_bounds`` where the variable has bounds of its own."""
    with pytest.raises(vt.VeiltabError, match="is open") as refused:
        EXACT.weighted(ILL, "weight")
    assert "as in bounds=(lowest, highest)" in refused.value.hint
    with pytest.raises(vt.VeiltabError, match="is open") as refused:
        EXACT.weighted_mean("age", "weight")
    assert "as in weight_bounds=(lowest, highest)" in refused.value.hint
    found = EXACT.weighted_mean("age", "weight", weight_scores=[1, 2, 3])
    assert "give them with weight_bounds=(lowest, highest)" in found.warnings[-1]
