"""When the approximations behind an interval fail, and how to say so."""

import numpy as np

from veiltab.estimates.released import Released

FEW_RECORDS = 100
"""Fewer released records than this make every interval rough."""

FEW_PER_CELL = 3.0
"""Fewer expected records in a released cell make its interval, and a band, rough."""

FAR = 3.0
"""Standard errors by which a share may move when it is made plausible, without a word."""


def table_warnings(released: Released) -> tuple[str, ...]:
    """Return what a reader of the whole table has to know, in sentences."""
    found = list(sample_warnings(released))
    size, channel = released.plan.sample_size, released.channel
    shares = released.plausible
    least = size * float(channel.transform(shares).min())
    if least < FEW_PER_CELL:
        found.append(
            f"some cells hold only {least:.2g} released records on average, noise included:"
            " intervals of single cells are rough; fewer attributes at a time help"
        )
    empty = int(np.count_nonzero(shares == 0))
    if empty:
        found.append(
            f"{empty:,} of {shares.size:,} cells come out empty: whoever is in them cannot be told"
            " from noise, and their intervals start at zero"
        )
    moved = _moved(released)
    if moved:
        found.append(
            f"{moved:,} shares moved by more than three of their standard errors when they were"
            " made to lie between 0 and 1: they can lie outside their own intervals; trust those"
        )
    return tuple(found)


def _moved(released: Released) -> int:
    """Count the cells that the default estimator has taken far from the unbiased estimate."""
    errors = np.sqrt(np.maximum(released.uncertainty().cells().total, 0.0))
    far = np.abs(released.shares() - released.unbiased) > FAR * errors
    return int(np.count_nonzero(far))


def sample_warnings(released: Released) -> tuple[str, ...]:
    """Return what is to be known about everything that this release says."""
    size = released.plan.sample_size
    if size >= FEW_RECORDS:
        return ()
    return (f"only {size:,} records were released: intervals are rough",)
