"""Estimates that are made from others: calibrated to known margins, or pooled over releases."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from veiltab.core.released import Shares
from veiltab.core.schema import Schema
from veiltab.core.uncertainty import Population
from veiltab.errors import ParameterError
from veiltab.estimates.questions import Event, Names, names_of
from veiltab.inference import combined, quantities
from veiltab.inference.calibration import Calibration, margins_table
from veiltab.inference.combined import Combination, CombinedQuestion
from veiltab.inference.comparison import Pooled
from veiltab.inference.conditions import Condition, other_group, read_condition
from veiltab.inference.diagnostics import cell_warnings, sample_warnings
from veiltab.inference.functional import per_cell
from veiltab.inference.hypotheses import HypothesisTest
from veiltab.inference.quantities import Quantity
from veiltab.inference.scores import check_magnitude
from veiltab.inference.wording import described

DerivedEstimator = Literal["clipped", "unbiased", "projected"]


@dataclass(frozen=True, eq=False, repr=False)
class DerivedEstimate:
    """Shares of a table with their errors, made from those of one or more releases.

    All answers are about one population, which was chosen when the estimate was made.
    """

    _source: Combination

    @property
    def schema(self) -> Schema:
        """The attributes and their categories."""
        return self._source.released.schema

    @property
    def population(self) -> Population:
        """Whom the answers describe: "finite", the respondents, or "super", a larger population."""
        return self._source.population

    @property
    def warnings(self) -> tuple[str, ...]:
        """What to know before a number is quoted."""
        release = self._source.released
        return (*sample_warnings(release), *cell_warnings(release), *self._source.notes)

    def __repr__(self) -> str:
        """Return what it is and what it is about, without counts."""
        return f"<{type(self).__name__}: {self}, {described(self._source.released)}>"

    def shares(self, estimator: DerivedEstimator = "clipped") -> Shares:
        """Return the share of each cell, in the schema's order.

        "unbiased" ones are right on average and may be negative, "clipped" ones are moved to 0 or 1
        then, and "projected" ones are the proper distribution nearest to them.
        """
        if estimator not in get_args(DerivedEstimator):
            raise ParameterError(
                f"there is no estimator {estimator!r} here",
                hint=f"choose one of {', '.join(get_args(DerivedEstimator))}",
            )
        unbiased = self._source.unbiased
        if estimator == "clipped":
            return np.clip(unbiased, 0, 1)
        return (self._source.plausible if estimator == "projected" else unbiased).copy()

    def to_numpy(self, estimator: DerivedEstimator = "clipped") -> NDArray[np.float64]:
        """Return the shares as an array with an axis per attribute."""
        return self.shares(estimator).reshape(self.schema.sizes)

    def table(
        self, estimator: DerivedEstimator = "clipped", *, level: float = 0.95
    ) -> pl.DataFrame:
        """Return the joint table: a row per cell, with its share, errors and interval."""
        shares, clipped = self.shares(estimator), estimator == "clipped"
        return combined.combined_table(self._source, shares, level, shown=clipped)

    def conditional(self, of: Names, given: Names, *, level: float = 0.95) -> pl.DataFrame:
        """Return the shares of ``of`` within each group of ``given``, with intervals."""
        return combined.combined_conditionals(self._source, names_of(of), names_of(given), level)

    def probability(
        self, event: Event, given: Event | None = None, *, level: float = 0.95
    ) -> Quantity:
        """Estimate the share of those who meet a condition, among all or among ``given``."""
        question, condition = self._ask(level), self._condition(event)
        if given is None:
            return self._noted(combined.probability(question, condition))
        return self._noted(combined.proportion(question, condition, self._condition(given)))

    def difference(
        self, first: Event, second: Event, given: Event | None = None, *, level: float = 0.95
    ) -> Quantity:
        """Estimate P(first) − P(second), or P(first | given) − P(second | given)."""
        within = None if given is None else self._condition(given)
        return self._noted(
            quantities.difference(
                self._ask(level), self._condition(first), self._condition(second), within
            )
        )

    def risk_difference(
        self, outcome: Event, group: Event, versus: Event | None = None, *, level: float = 0.95
    ) -> Quantity:
        """Estimate P(outcome | group) − P(outcome | versus), by default versus everybody else."""
        groups = self._groups(outcome, group, versus)
        return self._noted(quantities.risk_difference(self._ask(level), *groups))

    def risk_ratio(
        self, outcome: Event, group: Event, versus: Event | None = None, *, level: float = 0.95
    ) -> Quantity:
        """Estimate P(outcome | group) / P(outcome | versus), by default versus everybody else."""
        groups = self._groups(outcome, group, versus)
        return self._noted(quantities.risk_ratio(self._ask(level), *groups))

    def odds_ratio(
        self, outcome: Event, group: Event, versus: Event | None = None, *, level: float = 0.95
    ) -> Quantity:
        """Estimate the odds of the outcome in a group, divided by those in another group."""
        groups = self._groups(outcome, group, versus)
        return self._noted(quantities.odds_ratio(self._ask(level), *groups))

    def linear(
        self, weights: ArrayLike, *, label: str = "linear statistic", level: float = 0.95
    ) -> Quantity:
        """Estimate Σ weight × share over the cells; ``weights`` have an axis per attribute."""
        flat = per_cell(weights, self._source.released, "weights")
        return self._noted(combined.linear(self._ask(level), flat, label))

    def mean(
        self,
        variable: str,
        scores: Mapping[str, float] | Sequence[float],
        given: Event | None = None,
        *,
        level: float = 0.95,
    ) -> Quantity:
        """Estimate the mean of a variable whose categories have these scores.

        ``given`` restricts it to those who meet a condition.
        """
        within = None if given is None else self._condition(given)
        label = f"mean of {variable}" + ("" if within is None else f" | {within.text}")
        cells = self._scores(variable, scores)
        return self._noted(combined.mean(self._ask(level), cells, within, label))

    def _scores(self, variable: str, scores: Mapping[str, float] | Sequence[float]) -> Shares:
        """Return the score of each cell."""
        attribute = self.schema.subset([variable]).attributes[0]
        listed = scores
        if isinstance(scores, Mapping):
            listed = [scores.get(category, float("nan")) for category in attribute.categories]
        try:
            numbers = np.asarray(listed, dtype=np.float64)
        except (TypeError, ValueError):
            numbers = np.array(np.nan)
        if numbers.shape != (attribute.size,) or not np.isfinite(numbers).all():
            raise ParameterError(
                f"the scores of {variable!r} are not one finite number for each category",
                hint=f"its categories are {', '.join(map(repr, attribute.categories))}",
            )
        check_magnitude(numbers, f"the scores of {variable!r}")
        axis = self.schema.names.index(variable)
        codes = self.schema.codes(np.arange(self.schema.domain_size))[axis]
        per_category: Shares = numbers[codes]
        return per_category

    def _ask(self, level: float) -> CombinedQuestion:
        return combined.ask(self._source, level)

    def _condition(self, event: Event) -> Condition:
        return read_condition(event, self.schema)

    def _groups(
        self, outcome: Event, group: Event, versus: Event | None
    ) -> tuple[Condition, Condition, Condition]:
        members = self._condition(group)
        others = None if versus is None else self._condition(versus)
        return self._condition(outcome), members, other_group(members, others)

    def _noted(self, quantity: Quantity) -> Quantity:
        """Add what is to be known about the whole estimate."""
        return replace(quantity, warnings=(*quantity.warnings, *self._source.notes))


@dataclass(frozen=True, eq=False, repr=False)
class CalibratedEstimate(DerivedEstimate):
    """An estimate that agrees with margins known from elsewhere, made by ``Estimate.calibrate``.

    What follows from exact margins alone is known, and has no error.  Where the share of a group
    is known, shares within the group are linear, and have intervals even if the group is small.
    """

    _source: Calibration

    @property
    def method(self) -> str:
        """How it was calibrated: "greg" or "rake"."""
        return self._source.method

    def margins(self) -> pl.DataFrame:
        """Return what each known share is, what the release alone says, and by how many errors.

        ``distance`` is the difference in standard errors of both; many large ones say that release
        and margins are not about the same people.
        """
        return margins_table(self._source)

    def __str__(self) -> str:
        """Say what it was calibrated to."""
        texts = ", ".join(margin.text for margin in self._source.margins.margins)
        return f"estimate calibrated to {texts} ({self.method})"


@dataclass(frozen=True, eq=False, repr=False)
class PooledEstimate(DerivedEstimate):
    """The weighted mean of several releases' shares, made by ``pool`` or ``Comparison.pooled``.

    The weights depend on the designs of the releases alone, not on their counts; so the mean is as
    unbiased as its parts.  It is the share of one population if all releases are about it; whether
    that can be is what :meth:`heterogeneity` tests.
    """

    _source: Pooled

    @property
    def weights(self) -> tuple[float, ...]:
        """The weight of each release, in their order; they sum to one."""
        return tuple(float(weight) for weight in self._source.weights)

    def heterogeneity(self) -> HypothesisTest:
        """Test whether all releases can have the same shares."""
        return self._source.heterogeneity

    def __str__(self) -> str:
        """Say how many releases it is made of."""
        return f"estimate pooled from {len(self.weights)} releases"
