"""When the approximations behind an interval fail, and how to say so."""

import numpy as np

from veiltab.estimates.released import Released

FEW_RECORDS = 100
"""Fewer released records than this make every interval rough."""

FEW_PER_CELL = 3.0
"""Fewer expected records in a released cell make its interval, and a band, rough."""


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
    return tuple(found)


def sample_warnings(released: Released) -> tuple[str, ...]:
    """Return what is to be known about everything that this release says."""
    size = released.plan.sample_size
    if size >= FEW_RECORDS:
        return ()
    return (f"only {size:,} records were released: intervals are rough",)
