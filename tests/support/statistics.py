"""Statistical tests with the chance of a false alarm written into them."""

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtrc

FALSE_ALARM = 1e-9
"""The chance that a correct sampler fails one chi-square test; all seeds are fixed besides."""


def assert_fits(counts: NDArray[np.int64], probabilities: NDArray[np.float64]) -> None:
    """Fail if the counts are too far from the probabilities (Pearson's chi-square)."""
    expected = probabilities * counts.sum()
    assert expected.min() >= 5, "too few draws for a chi-square test"
    statistic = float(((counts - expected) ** 2 / expected).sum())
    p_value = float(chdtrc(counts.size - 1, statistic))
    assert p_value > FALSE_ALARM, f"chi-square {statistic:.1f}, p = {p_value:.2e}"
