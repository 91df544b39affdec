"""Linear and smooth statistics of one's own."""

import numpy as np
import pytest

import veiltab as vt
from tests.support.estimates import million_cells
from veiltab.inference.functional import BENDS, Linearised
from veiltab.inference.quantities import KNOWN

TABLE = vt.adult_table(24)
ESTIMATE = vt.simulate(TABLE, epsilon=1, seed=3)
NOISY = vt.simulate(TABLE, epsilon=0.5, mechanism="paper", seed=3)
RICH, MEN = "salary = '>50K'", "gender = 'male'"
Array = np.ndarray


def share(cells: Array) -> float:
    """Return the share of the rich."""
    return float(cells[..., 1].sum())


def odds(cells: Array) -> float:
    """Return the odds ratio of being rich, men against women."""
    (poor_men, rich_men), (poor_women, rich_women) = cells.sum(axis=(0, 1))
    return float(rich_men * poor_women / (poor_men * rich_women))


def odds_gradient(cells: Array) -> Array:
    """Return its derivatives, from the logarithm's."""
    four = cells.sum(axis=(0, 1))
    signs = np.array([[-1.0, 1.0], [1.0, -1.0]])
    return np.broadcast_to(odds(cells) * signs / four, (3, 2, 2, 2))


@pytest.mark.parametrize("estimate", [ESTIMATE, NOISY, ESTIMATE.publish()])
def test_an_indicator_gives_the_share_and_its_errors(estimate: vt.Estimate) -> None:
    """The errors are those of the two sets of cells, not of the 24 cells one by one."""
    weights = np.zeros((3, 2, 2, 2))
    weights[..., 1] = 1
    found, known = estimate.linear(weights, label="rich"), estimate.probability(RICH)
    assert found.label == "rich"
    assert found.value == pytest.approx(known.value)
    for name in ("standard_error", "sampling_error", "privacy_error"):
        assert getattr(found, name) == pytest.approx(getattr(known, name), rel=1e-9)
    flat = estimate.linear(weights.reshape(-1))
    assert (flat.low, flat.high) == (found.low, found.high)
    smooth = estimate.functional(share, population="finite")
    assert smooth.value == pytest.approx(found.value)
    assert smooth.low == pytest.approx(found.low, rel=1e-6)


def test_a_constant_is_known() -> None:
    """The shares sum to one."""
    found = ESTIMATE.linear(np.full(24, 2.5))
    assert (found.value, found.low, found.high, found.method) == (2.5, 2.5, 2.5, KNOWN)


def test_weights_may_have_any_constant_added() -> None:
    """Which moves the statistic and leaves its error."""
    weights = np.arange(24.0)
    plain, moved = ESTIMATE.linear(weights), ESTIMATE.linear(weights + 7)
    assert moved.value == pytest.approx((plain.value or 0) + 7)
    assert moved.standard_error == pytest.approx(plain.standard_error)


def test_a_statistic_by_differences_or_by_its_gradient() -> None:
    """The same answer, near that of the odds ratio."""
    by_differences = ESTIMATE.functional(odds, population="finite")
    exact = ESTIMATE.functional(odds, odds_gradient, population="finite")
    known = ESTIMATE.odds_ratio(RICH, MEN, population="finite")
    assert by_differences.standard_error == pytest.approx(exact.standard_error, rel=1e-5)
    assert exact.value == pytest.approx(known.value)
    assert exact.standard_error == pytest.approx(known.standard_error, rel=1e-6)
    assert exact.low == pytest.approx(known.low, rel=0.01)


def test_a_statistic_that_bends_says_so() -> None:
    """And its interval goes as far as the statistic does."""
    found = NOISY.functional(odds)
    assert BENDS in found.warnings
    assert found.high is not None
    assert found.value is not None
    assert found.standard_error is not None
    assert found.high > found.value + 2 * found.standard_error
    assert BENDS not in ESTIMATE.functional(lambda cells: float(cells[0].sum())).warnings


@pytest.mark.parametrize(
    ("statistic", "why"),
    [
        (lambda cells: np.log(cells[0, 0, 0, 0] - 1), "is nan"),
        (lambda cells: 1 / (cells * 0).sum(), "is inf"),
        (lambda cells: float(cells.sum()), "derivatives vanish"),
        (
            lambda cells: float(((cells - ESTIMATE.unbiased.reshape(cells.shape)) ** 2).sum()),
            "vani",
        ),
    ],
)
def test_what_the_delta_method_cannot_answer_is_refused(statistic: object, why: str) -> None:
    """With its reason, and never NaN or an interval of width zero."""
    found = ESTIMATE.functional(statistic)  # type: ignore[arg-type]
    assert not found.estimable
    assert why in found.warnings[0]


def test_derivatives_that_are_not_finite_are_refused() -> None:
    """They depend on the release; a wrong shape is a mistake, and an error."""
    found = ESTIMATE.functional(share, lambda cells: cells * np.inf)
    assert "no finite derivatives" in found.warnings[0]
    with pytest.raises(vt.errors.ParameterError, match="the derivatives are not one finite number"):
        ESTIMATE.functional(share, lambda _: [1.0, 2.0])
    with pytest.raises(vt.errors.ParameterError, match="the weights are not one finite number"):
        ESTIMATE.linear(np.full(24, np.nan))


def test_a_statistic_that_ends_within_its_interval_is_refused() -> None:
    """A logarithm that meets zero on the way to an end."""
    first = float(NOISY.unbiased[0])
    found = NOISY.functional(lambda cells: float(np.log(cells[0, 0, 0, 0] - first + 1e-4)))
    assert not found.estimable
    assert "not finite throughout" in found.warnings[0]


def test_combinations_have_the_covariance_of_their_sums() -> None:
    """Two statistics, and their difference as one."""
    first, second = np.arange(24.0), np.arange(24.0) ** 2
    pair = Linearised.of(ESTIMATE, np.stack([first, second]), "super")
    alone = Linearised.of(ESTIMATE, (first - second)[np.newaxis], "super")
    assert pair.errors([1, -1]) == pytest.approx(alone.errors([1]), rel=1e-9)
    assert pair.margins([1, -1], 1.96) == pytest.approx(alone.margins([1], 1.96), rel=1e-9)


@pytest.mark.slow
def test_a_million_cells() -> None:
    """A linear statistic takes seconds; differences are refused."""
    estimate = million_cells()
    found = estimate.linear(np.arange(10**6) % 100)
    assert found.estimable
    with pytest.raises(vt.errors.ParameterError, match="would take too long by differences"):
        estimate.functional(lambda cells: float(cells[0, 0, 0]))
