"""Released counts: what a researcher decrypts and counts, and what every estimate starts from."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from veiltab.core import estimators
from veiltab.core.channel import MAX_ESTIMATED_CELLS, GammaDiagonal
from veiltab.core.plan import Plan
from veiltab.core.schema import CountTable, Schema
from veiltab.core.uncertainty import Population, ReleaseDesign, VarianceComponents
from veiltab.errors import ParameterError

Estimator = Literal["best", "unbiased", "projected", "most_likely"]
BEST: Estimator = "projected"
"""What "best" stands for: the least error on average over the paper's settings."""

Shares = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ReleasedCounts:
    """Sampled and perturbed records, counted in the cells of a schema, with the plan behind them.

    The schema may hold only some of the attributes that were released together: a marginal's
    channel has the same keep probability.
    """

    schema: Schema
    counts: NDArray[np.int64]
    plan: Plan

    def __post_init__(self) -> None:
        """Refuse counts that are not a release of this plan; keep a read-only copy of them."""
        check_cells(self.schema)
        counts, cells = np.array(self.counts), self.schema.domain_size
        if counts.shape != (cells,) or counts.dtype.kind not in "iu":
            raise ParameterError(
                f"the schema has {cells:,} cells, but the counts are {counts.dtype} of shape"
                f" {counts.shape}",
                hint="give one whole number per cell, in the schema's order",
            )
        counts = counts.astype(np.int64, copy=False)
        if counts.min() < 0 or int(counts.sum()) != self.plan.sample_size:
            raise ParameterError(
                f"the counts sum to {int(counts.sum()):,}, but the plan releases"
                f" {self.plan.sample_size:,} records; no count may be negative",
                hint="give the counts of the released records, before any estimation",
            )
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)
        _ = self.channel  # refuses a schema that is no marginal of what was released

    @property
    def channel(self) -> GammaDiagonal:
        """What the perturbation did to these attributes: the joint channel's marginal."""
        return self.plan.ranked.channel.marginal(self.schema.domain_size)

    @cached_property
    def unbiased(self) -> Shares:
        """The paper's estimate of each cell's share (spec 11); it can be negative."""
        return self.channel.estimate(self.counts)

    @cached_property
    def plausible(self) -> Shares:
        """The unbiased estimate projected on the proper distributions.

        Plug-in variances are computed from it, because it never gives a negative one.
        """
        return estimators.project(self.unbiased)

    def shares(self, estimator: Estimator = "best") -> Shares:
        """Return the estimated share of each cell, in the schema's order."""
        if estimator not in get_args(Estimator):
            raise ParameterError(
                f"there is no estimator {estimator!r}",
                hint=f"choose one of {', '.join(get_args(Estimator))}",
            )
        if estimator == "unbiased":
            return self.unbiased
        if estimator == "most_likely":
            return estimators.most_likely(self.counts, self.channel)
        return self.plausible

    def design(self, population: Population = "finite") -> ReleaseDesign:
        """Return everything but the data that the errors depend on."""
        ranked = self.plan.ranked
        return ReleaseDesign(self.channel, ranked.population_size, ranked.sample_size, population)

    def uncertainty(self, population: Population = "finite") -> VarianceComponents:
        """Return the plug-in covariance of the unbiased estimate."""
        return VarianceComponents(self.plausible, self.design(population))

    def marginal(self, names: str | Iterable[str]) -> Self:
        """Keep only these attributes, in this order, as if they had been counted alone."""
        kept = [names] if isinstance(names, str) else list(names)
        table = CountTable(self.schema, self.counts).marginal(kept)
        return replace(self, schema=table.schema, counts=table.counts)


def check_cells(schema: Schema) -> None:
    """Refuse a schema with more joint cells than can be estimated at once."""
    if schema.domain_size > MAX_ESTIMATED_CELLS:
        raise ParameterError(
            f"these attributes have {schema.domain_size:,} joint cells",
            hint=f"estimate fewer attributes at a time: at most {MAX_ESTIMATED_CELLS:,} cells",
        )
