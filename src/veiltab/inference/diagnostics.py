"""Warnings about a release: where the approximations behind its intervals are poor."""

import numpy as np

from veiltab.core.released import ReleasedCounts

FEW_RECORDS = 100
"""With fewer released records than this, every interval is rough."""

FEW_PER_CELL = 3.0
"""With fewer expected records in a released cell, its interval is rough, and so is a band."""

FAR_IN_ERRORS = 3.0
"""Standard errors by which the projection may move a share before a reader is warned."""


def sample_warnings(released: ReleasedCounts) -> tuple[str, ...]:
    """Return the warnings that apply to everything computed from this release."""
    size = released.plan.ranked.sample_size
    if size >= FEW_RECORDS:
        return ()
    return (f"only {size:,} records were released: all intervals are rough",)


def table_warnings(released: ReleasedCounts) -> tuple[str, ...]:
    """Return the warnings for a reader of the whole table."""
    warnings = list(sample_warnings(released))
    shares = released.plausible
    smallest = released.plan.ranked.sample_size * float(released.channel.transform(shares).min())
    if smallest < FEW_PER_CELL:
        warnings.append(
            f"some cells are expected to hold only {smallest:.2g} released records, noise included:"
            " the intervals of single cells are rough; ask for fewer attributes at a time"
        )
    empty = int(np.count_nonzero(shares == 0))
    if empty:
        warnings.append(
            f"in {empty:,} of {shares.size:,} cells the estimated share is zero: the data cannot"
            " distinguish it from zero, and its interval starts at zero"
        )
    moved = _moved(released)
    if moved:
        warnings.append(
            f"in {moved:,} of {shares.size:,} cells the projection on the proper distributions"
            " moved the share by more than three standard errors: it can lie outside its interval;"
            " rely on the interval"
        )
    return tuple(warnings)


def _moved(released: ReleasedCounts) -> int:
    """Count the cells whose projected share is far from the unbiased one."""
    errors = np.sqrt(np.maximum(released.uncertainty().cells().total, 0.0))
    far = np.abs(released.plausible - released.unbiased) > FAR_IN_ERRORS * errors
    return int(np.count_nonzero(far))
