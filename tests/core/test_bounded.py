"""Intervals between two limits: those of shares where the law is normal, and never empty."""

import numpy as np

from veiltab.core.bounded import bounded_interval
from veiltab.core.intervals import feldman_cousins

CRITICAL = 1.959964


def of_normal(estimates: np.ndarray, error: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends for estimates with normal errors of numbers within 0..1."""
    interval = bounded_interval(
        lambda theta: (estimates - theta) / error,
        np.zeros(estimates.size),
        np.ones(estimates.size),
        CRITICAL,
    )
    return interval.low, interval.high


def test_with_a_constant_error_it_is_the_interval_of_a_share() -> None:
    """On both sides of one half, and for estimates beyond the limits."""
    estimates = np.linspace(-0.2, 1.2, 141)
    low, high = of_normal(estimates, 0.05)
    share = feldman_cousins(estimates, (0.05**2, 0.0, 0.0), CRITICAL)
    np.testing.assert_allclose(low, share.low, atol=1e-6)
    np.testing.assert_allclose(high, share.high, atol=1e-6)


def test_it_is_never_empty_and_holds_a_limit_exactly_if_that_is_not_unusual() -> None:
    """At a limit the law is one-sided: 1.645 standard errors at 95%."""
    estimates = np.array([-3.0, 0.0, 0.0822, 0.0823, 0.9177, 0.9178, 4.0])
    low, high = of_normal(estimates, 0.05)
    assert (high > low).all()
    assert (low[:3] == 0).all()
    assert (low[3:] > 0).all()
    assert (high[-2:] == 1).all()
    assert (high[:-2] < 1).all()
