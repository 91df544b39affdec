"""Theorem 1: enumerated exactly, solved both ways, and kept by the integers."""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.laws import index_orderings, orderings, worst_ratio
from veiltab.core import privacy
from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.errors import InfeasiblePlanError

CASES = [
    (1, 1, 2, Fraction(3)),
    (2, 1, 2, Fraction(3)),
    (3, 2, 2, Fraction(3)),
    (3, 2, 3, Fraction(5, 2)),
    (4, 2, 2, Fraction(7)),
    (4, 3, 2, Fraction(3, 2)),
    (3, 3, 2, Fraction(4)),
    (5, 3, 2, Fraction(3)),
    (4, 1, 3, Fraction(11, 3)),
    (3, 1, 4, Fraction(9)),
]


@pytest.mark.parametrize(("n", "m", "cells", "gamma"), CASES)
def test_theorem_1_holds_with_equality(n: int, m: int, cells: int, gamma: Fraction) -> None:
    """Over all neighbours and all releases the worst ratio is exactly 1 + (m/n)(γ − 1)."""
    worst = worst_ratio(n, cells, orderings(n, m), gamma)
    assert worst == privacy.likelihood_ratio(n, m, gamma)


def test_a_sample_in_index_order_breaks_theorem_1() -> None:
    """Secrecy of the choice is not enough: the order has to be random as well."""
    gamma = Fraction(3)
    worst = worst_ratio(5, 2, index_orderings(5, 3), gamma)
    assert worst > privacy.likelihood_ratio(5, 3, gamma) == Fraction(11, 5)
    assert float(worst) == pytest.approx(2.53, abs=0.005)


@given(
    n=st.integers(1, 10**9),
    share=st.floats(0, 1),
    epsilon=st.floats(1e-6, 50),
)
def test_theorem_1_inverts(n: int, share: float, epsilon: float) -> None:
    """Solving for γ and back gives the same ε."""
    m = max(1, round(share * n))
    gamma = privacy.gamma_for(n, m, epsilon)
    assert math.log(privacy.likelihood_ratio(n, m, gamma)) == pytest.approx(epsilon, rel=1e-6)


parameters = st.tuples(
    st.integers(1, 2**53),
    st.floats(0, 1),
    st.integers(2, 10**7),
    st.floats(1e-3, 50),
)


@given(parameters)
def test_the_threshold_is_the_largest_that_keeps_the_promise(
    drawn: tuple[int, float, int, float],
) -> None:
    """Checked against 200 digits: t keeps e^ε in both readings of ε, the next one up breaks it."""
    n, share, cells, epsilon = drawn
    m = max(1, min(n, round(share * n)))
    try:
        threshold = privacy.largest_keep_threshold(n, m, cells, epsilon)
    except InfeasiblePlanError:
        assert Fraction(n, m) * Fraction(math.expm1(epsilon)) * DRAW_RANGE < cells**2 * 1.001
        return
    width = (DRAW_RANGE - threshold) // cells
    with localcontext(prec=200):
        for reading in (Decimal(epsilon), Decimal(repr(epsilon))):
            assert _spent(n, m, cells, width) <= reading.exp()
        closest = min(Decimal(epsilon), Decimal(repr(epsilon))).exp()
        assert width == 1 or _spent(n, m, cells, width - 1) > closest


def _spent(n: int, m: int, cells: int, width: int) -> Decimal:
    """Return 1 + (m/n)·t/M in the current decimal precision."""
    return 1 + Decimal(m) * (DRAW_RANGE - cells * width) / (Decimal(n) * width)


@given(parameters)
def test_the_achieved_epsilon_is_rounded_up_and_never_above_the_promise(
    drawn: tuple[int, float, int, float],
) -> None:
    """The reported ε is the smallest float that is not below the true one."""
    n, share, cells, epsilon = drawn
    m = max(1, min(n, round(share * n)))
    try:
        threshold = privacy.largest_keep_threshold(n, m, cells, epsilon)
    except InfeasiblePlanError:
        return
    channel = GammaDiagonal.from_threshold(cells, threshold)
    achieved = privacy.epsilon_achieved(n, m, channel)
    ratio = privacy.likelihood_ratio(n, m, channel.gamma)
    assert privacy.promise_holds(n, m, channel, epsilon)
    with localcontext(prec=200):
        exact = (Decimal(ratio.numerator) / ratio.denominator).ln()
        assert Decimal(math.nextafter(achieved, 0)) < exact <= Decimal(achieved)
    assert achieved <= epsilon


def test_a_promise_that_is_broken_by_one_draw_in_2_64_is_noticed() -> None:
    """The check is exact: one step of the threshold beyond the largest fails."""
    n, m, cells, epsilon = 45222, 1222, 24, 0.5
    threshold = privacy.largest_keep_threshold(n, m, cells, epsilon)
    good = GammaDiagonal.from_threshold(cells, threshold)
    bad = GammaDiagonal.from_threshold(cells, threshold + cells)
    assert privacy.promise_holds(n, m, good, epsilon)
    assert not privacy.promise_holds(n, m, bad, epsilon)


def test_order_known_leaves_the_channel_alone() -> None:
    """Without the secret order only ln γ remains, however small the sample."""
    channel = GammaDiagonal.from_threshold(4, 2**63)
    assert channel.gamma == 5
    assert privacy.epsilon_if_order_known(channel) == pytest.approx(math.log(5), rel=1e-15)


@pytest.mark.parametrize(
    ("n", "m", "cells", "epsilon"),
    [(10, 10, 1000, 1e-20), (10, 1, 2, 1e-17), (1, 1, 2, 9e-11), (10**6, 1, 2**48, 1e-12)],
)
def test_an_epsilon_below_the_resolution_is_refused(
    n: int, m: int, cells: int, epsilon: float
) -> None:
    """Rather than release pure noise, or round the noise away, planning stops."""
    with pytest.raises(InfeasiblePlanError, match="nothing but noise") as caught:
        privacy.largest_keep_threshold(n, m, cells, epsilon)
    assert "fewer cells" in caught.value.hint
