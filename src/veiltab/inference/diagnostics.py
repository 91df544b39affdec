"""Warnings about a release: where the approximations behind its intervals are poor."""

import numpy as np

from veiltab.core.coin_design import CoinDesign
from veiltab.core.rank_design import RankDesign
from veiltab.core.released import ReleasedCounts

FEW_RECORDS = 100
"""With fewer people who took part than this, every interval is rough."""

FEW_PER_CELL = 3.0
"""By rank, a cell with fewer expected records has a rough interval, and so has a band."""

ONE_ROW = 1.0
"""With decoys, a standard error below one row makes an interval rough: rows are whole numbers."""


def sample_warnings(released: ReleasedCounts) -> tuple[str, ...]:
    """Return the warnings that apply to everything computed from this release."""
    sampled = released.plan.sample_size
    size = expected_to_take_part(released) if sampled is None else sampled
    if size >= FEW_RECORDS:
        return ()
    if sampled is None:
        few = f"only about {size:,.0f} people are expected to have taken part"
    else:
        few = f"only {sampled:,} records were released"
    return (f"{few}: all intervals are rough",)


def expected_to_take_part(released: ReleasedCounts) -> float:
    """Return how many people throw a coin that lets them take part, on average."""
    design = released.count_design()
    assert isinstance(design, CoinDesign)  # noqa: S101 - by rank the sample has a fixed size
    return float(design.population_size) * float(design.coin)


def table_warnings(released: ReleasedCounts) -> tuple[str, ...]:
    """Return the warnings for a reader of the whole table."""
    warnings = [*sample_warnings(released), *cell_warnings(released)]
    empty = int(np.count_nonzero(released.unbiased <= 0))
    if empty:
        warnings.append(
            f"in {empty:,} of {released.unbiased.size:,} cells the estimated share is zero: the"
            " data cannot distinguish it from zero, and its interval starts at zero"
        )
    return tuple(warnings)


def cell_warnings(released: ReleasedCounts) -> list[str]:
    """Say if single cells are too small for the approximations."""
    design = released.design()
    if isinstance(design, RankDesign):
        smallest = float(design.expected_rows(released.plausible).min())
        if smallest >= FEW_PER_CELL:
            return []
        few = f"some cells are expected to hold only {smallest:.2g} released records"
        advice = "the intervals of single cells are rough; ask for fewer attributes at a time"
        return [f"{few}, noise included: {advice}"]
    variance = float(released.uncertainty().cells().total.min())
    rows = expected_to_take_part(released) * max(variance, 0.0) ** 0.5
    if rows >= ONE_ROW or released.counts.size == 1:
        return []
    little = f"the noise of some cells is as small as {rows:.2g} rows, and rows are whole numbers"
    return [f"{little}: the intervals of single cells are rough"]
