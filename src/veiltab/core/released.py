"""Released counts: what a researcher decrypts and counts, and what every estimate starts from."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from veiltab.core import estimators
from veiltab.core.channel import MAX_ESTIMATED_CELLS
from veiltab.core.coin_design import CoinDesign
from veiltab.core.designs import release_design, size_known
from veiltab.core.plan import Plan
from veiltab.core.publication import PublicationNoise, publication_digest
from veiltab.core.schema import CountTable, Schema
from veiltab.core.uncertainty import Population, ReleaseDesign, VarianceComponents
from veiltab.errors import ParameterError, TooFewPeopleError

Estimator = Literal["clipped", "unbiased", "projected", "most_likely"]
"""How shares are estimated.

"clipped" is the unbiased estimate of each condition by itself, moved into 0..1; "projected" is the
proper distribution that is nearest to all of them.
"""

CLEARLY_SOMEBODY = 5.0
"""Shares need an estimated population of at least so many of its own standard errors."""

Shares = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class ReleasedCounts:
    """Released rows, counted in the cells of a schema, with the plan behind them.

    The schema may hold only some of the attributes that were released together: a marginal's
    channel has the same keep probability, and its cells have the decoys of several joint cells.
    ``publication`` is the noise of a published copy, None for the researcher's own view.
    """

    schema: Schema
    counts: NDArray[np.int64]
    plan: Plan
    publication: PublicationNoise | None = None

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
        self._check_sum(counts)
        counts.flags.writeable = False
        object.__setattr__(self, "counts", counts)
        self._check_marginal()

    def _check_sum(self, counts: NDArray[np.int64]) -> None:
        if self.publication is not None:  # noise makes any whole numbers possible
            return
        size = self.plan.sample_size
        if counts.min() < 0 or (size is not None and int(counts.sum()) != size):
            expected = "" if size is None else f", but the plan releases {size:,} records"
            raise ParameterError(
                f"the counts sum to {int(counts.sum()):,}{expected}; no count may be negative",
                hint="give the counts of the released records, before any estimation",
            )

    def _check_marginal(self) -> None:
        cells = self.schema.domain_size
        tables = [self.plan.domain_size]
        if self.publication is not None:
            tables.append(self.publication.cells)
        if any(table % cells for table in tables) or tables[0] % tables[-1]:
            raise ParameterError(
                f"a table of {tables[0]:,} cells has no marginal of {cells:,} cells",
                hint="a marginal's number of cells divides the joint table's",
            )

    @property
    def size_known(self) -> bool:
        """Whether it is known how many respondents the release is about."""
        return size_known(self.plan)

    @property
    def digest(self) -> str | None:
        """The digest by which the audit log names a published copy; None for the own view.

        A marginal of a published copy has its own.
        """
        if self.publication is None:
            return None
        return publication_digest(self.schema, self.counts, self.publication.epsilon).hex()

    @cached_property
    def unbiased(self) -> Shares:
        """The unbiased estimate of each cell's share (spec 11); it can be negative."""
        return estimators.unbiased(self.counts, self.design())

    @cached_property
    def plausible(self) -> Shares:
        """The unbiased estimate projected on the proper distributions.

        Plug-in variances are computed from it, because it never gives a negative one.
        """
        return estimators.project(self.unbiased)

    def shares(self, estimator: Estimator = "clipped") -> Shares:
        """Return the estimated share of each cell, in the schema's order."""
        if estimator not in get_args(Estimator):
            raise ParameterError(
                f"there is no estimator {estimator!r}",
                hint=f"choose one of {', '.join(get_args(Estimator))}; for a table of some"
                " attributes, take their marginal first",
            )
        if estimator == "most_likely":
            return estimators.most_likely(self.counts, self.design())
        if estimator == "projected":
            return self.plausible
        return self.unbiased if estimator == "unbiased" else np.clip(self.unbiased, 0, 1)

    def design(self, population: Population = "finite") -> ReleaseDesign:
        """Return everything but the data that the errors of shares depend on.

        Where the number of people in common is unknown, too few of them are refused: shares would
        be ratios of noise.
        """
        design = self.count_design(population)
        if isinstance(design, CoinDesign) and not design.known:
            people, error = design.people(int(self.counts.sum()))
            if people < CLEARLY_SOMEBODY * error:
                raise TooFewPeopleError(
                    f"almost nobody is in this release: about {max(people, 0):,.0f} people, with a"
                    f" standard error of {error:,.0f}",
                    hint="shares need more people in common than noise; estimate.population() and"
                    " estimate.people() give numbers with their intervals",
                )
        return design

    def count_design(self, population: Population = "finite") -> ReleaseDesign:
        """Return the design for numbers of people, which needs nobody in particular."""
        return release_design(
            self.plan,
            cells=self.schema.domain_size,
            population=population,
            publication=self.publication,
            rows=int(self.counts.sum()),
        )

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
