"""The released counts of a table: where they come from, and what every estimate starts from."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
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


@dataclass(frozen=True, slots=True)
class Promise:
    """What somebody can learn about one respondent at most: ε and δ of differential privacy."""

    against: str
    epsilon: float
    delta: float

    def __str__(self) -> str:
        """Say the numbers, without a δ of zero."""
        delta = f", δ = {self.delta:g}" if self.delta else ""
        return f"ε = {self.epsilon:.4g}{delta} against {self.against}"


@dataclass(frozen=True, slots=True)
class Provenance:
    """The study behind an estimate, as far as it is known; all of it travels with the numbers.

    ``study`` is the study's id in hexadecimal.  Without ``promises`` those of the plan are given.
    """

    study: str | None = None
    title: str | None = None
    perturbed_by: str | None = None
    promises: tuple[Promise, ...] = ()


def promises_of(plan: Plan) -> tuple[Promise, ...]:
    """Return what a plan promises against whom."""
    return (
        Promise("whoever sees the release", plan.epsilon_achieved, plan.delta_achieved),
        Promise(
            "somebody who also knows who was sampled, in which order",
            plan.epsilon_if_order_known,
            0.0,
        ),
    )


Estimator = Literal["best", "unbiased", "projected", "most_likely"]
BEST: Literal["projected"] = "projected"
"""What "best" stands for: the least error on average over the paper's settings."""

Shares = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Released:
    """Released, still perturbed counts, one per cell of a schema, and the plan behind them.

    The schema may hold only some of the attributes that were released together: the channel of a
    marginal is the same.
    """

    schema: Schema
    counts: NDArray[np.int64]
    plan: Plan
    provenance: Provenance = field(default=Provenance(), kw_only=True)

    def __post_init__(self) -> None:
        """Refuse counts that are not a release of this plan; keep a copy that nobody changes."""
        counts = np.array(self.counts)
        cells = self.schema.domain_size
        if cells > MAX_ESTIMATED_CELLS:
            raise ParameterError(
                f"these attributes have {cells:,} joint cells",
                hint=f"estimate fewer attributes at a time: at most {MAX_ESTIMATED_CELLS:,} cells",
            )
        if counts.shape != (cells,) or counts.dtype.kind not in "iu":
            raise ParameterError(
                f"the schema has {cells:,} cells, and the counts are {counts.dtype} of shape"
                f" {counts.shape}",
                hint="give one whole number per cell, in the schema's order",
            )
        counts = counts.astype(np.int64)
        if counts.min() < 0 or int(counts.sum()) != self.plan.sample_size:
            raise ParameterError(
                f"the counts sum to {int(counts.sum()):,}, and the plan releases"
                f" {self.plan.sample_size:,} records; none may be negative",
                hint="give the counts of the released records, before any estimation",
            )
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)
        _ = self.channel  # refuses a schema that is no marginal of what was released

    @property
    def channel(self) -> GammaDiagonal:
        """What the perturbation did to these attributes: the joint channel's marginal."""
        return self.plan.channel.marginal(self.schema.domain_size)

    @property
    def promises(self) -> tuple[Promise, ...]:
        """What the respondents were promised, against whom."""
        return self.provenance.promises or promises_of(self.plan)

    @cached_property
    def unbiased(self) -> Shares:
        """The paper's estimate of each cell's share; it may be negative where next to nobody is."""
        return self.channel.estimate(self.counts)

    @cached_property
    def plausible(self) -> Shares:
        """The best estimate: a proper distribution, which variances are computed from."""
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
        """Return what the errors depend on, apart from the data."""
        return ReleaseDesign(
            self.channel, self.plan.population_size, self.plan.sample_size, population
        )

    def uncertainty(self, population: Population = "finite") -> VarianceComponents:
        """Return the plug-in covariance of the unbiased estimate."""
        return VarianceComponents(self.plausible, self.design(population))

    def marginal(self, names: str | Iterable[str]) -> Self:
        """Keep these attributes, in this order: the same as having asked for them alone."""
        wanted = [names] if isinstance(names, str) else list(names)
        table = CountTable(self.schema, self.counts).marginal(wanted)
        return type(self)(table.schema, table.counts, self.plan, provenance=self.provenance)

    def generator(self, purpose: str) -> np.random.Generator:
        """Return randomness for resampling that is the same whenever the counts are the same.

        It is mere post-processing: privacy does not depend on it.
        """
        digest = hashlib.sha256(purpose.encode() + b"\0" + self.counts.astype("<i8").tobytes())
        return np.random.default_rng(int.from_bytes(digest.digest()))


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
