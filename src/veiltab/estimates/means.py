"""Questions about a variable with numbers: means, variances, quantiles; and survey weights."""

from typing import overload

import polars as pl

from veiltab.core.uncertainty import Population
from veiltab.estimates.questions import Event, Names, Questions, names_of
from veiltab.inference import mean_tables, means, quantiles, weighting
from veiltab.inference.conditions import everybody_or
from veiltab.inference.quantiles import CategoryQuantile
from veiltab.inference.quantities import Quantity
from veiltab.inference.scores import Bounds, Scores, Variable
from veiltab.inference.weighting import WeightedQuantity


class MeanQuestions(Questions):
    """The mean of a scored variable, its variance and quantiles, and weighted shares."""

    @overload
    def mean(
        self,
        variable: str,
        scores: Scores | None = None,
        by: None = None,
        given: Event | None = None,
        bounds: Bounds | None = None,
        *,
        level: float = 0.95,
        population: Population = "finite",
    ) -> Quantity: ...

    @overload
    def mean(
        self,
        variable: str,
        scores: Scores | None = None,
        *,
        by: Names,
        given: Event | None = None,
        bounds: Bounds | None = None,
        level: float = 0.95,
        population: Population = "finite",
    ) -> pl.DataFrame: ...

    def mean(
        self,
        variable: str,
        scores: Scores | None = None,
        by: Names | None = None,
        given: Event | None = None,
        bounds: Bounds | None = None,
        *,
        level: float = 0.95,
        population: Population = "finite",
    ) -> Quantity | pl.DataFrame:
        """Estimate the mean of a variable, among all or among ``given``.

        ``scores`` are the numbers of the categories: in their order, or by name for some of them.
        Without a score a category counts as the number that its name states, or as the middle of
        its bin; one that is open at an end needs a score, or one of the ``bounds``: the smallest
        and the largest possible value.  With ``by`` there is a table with a row for each group.
        """
        question = self._question(level, population)
        numbered, within = Variable(variable, scores, bounds), everybody_or(given, self.schema)
        if by is None:
            return means.mean(question, numbered, within)
        return mean_tables.mean_table(question, numbered, names_of(by), within)

    def variance(
        self,
        variable: str,
        scores: Scores | None = None,
        given: Event | None = None,
        bounds: Bounds | None = None,
        *,
        level: float = 0.95,
        population: Population = "finite",
    ) -> Quantity:
        """Estimate the variance of a variable, scored as in :meth:`mean`.

        It is the mean square of the distance from the mean: of the scores, so that what varies
        within a bin is not in it.
        """
        question, within = self._question(level, population), everybody_or(given, self.schema)
        return means.variance(question, Variable(variable, scores, bounds), within)

    def mean_difference(
        self,
        variable: str,
        group: Event,
        versus: Event | None = None,
        scores: Scores | None = None,
        bounds: Bounds | None = None,
        *,
        level: float = 0.95,
        population: Population = "super",
    ) -> Quantity:
        """Estimate the mean in a group less that in another, by default in everybody else."""
        question = self._question(level, population)
        _, members, others = self._groups(group, group, versus)
        numbered = Variable(variable, scores, bounds)
        return means.mean_difference(question, numbered, members, others)

    def quantile(
        self,
        variable: str,
        q: float,
        given: Event | None = None,
        bounds: Bounds | None = None,
        *,
        level: float = 0.95,
        population: Population = "finite",
    ) -> Quantity:
        """Estimate a quantile of a binned variable: the value below which the share q lies.

        People are taken to be spread evenly within a bin.  ``bounds`` are the smallest and the
        largest possible value, for outer bins that are open; without them a quantile that falls
        into an open bin is not estimable, and an interval that reaches into one has no end there.
        """
        question, within = self._question(level, population), everybody_or(given, self.schema)
        numbered = Variable(variable, bounds=bounds)
        return quantiles.quantile(question, numbered, quantiles.check_q(q), within)

    def median(
        self,
        variable: str,
        given: Event | None = None,
        bounds: Bounds | None = None,
        *,
        level: float = 0.95,
        population: Population = "finite",
    ) -> Quantity:
        """Estimate the median of a binned variable, as :meth:`quantile` does."""
        return self.quantile(variable, 0.5, given, bounds, level=level, population=population)

    def quantile_category(
        self,
        variable: str,
        q: float = 0.5,
        given: Event | None = None,
        *,
        level: float = 0.95,
        population: Population = "finite",
    ) -> CategoryQuantile:
        """Estimate in which category a quantile lies, by the order of the schema.

        It needs no numbers, only categories in a sensible order.
        """
        question, within = self._question(level, population), everybody_or(given, self.schema)
        numbered = Variable(variable)
        return quantiles.quantile_category(question, numbered, quantiles.check_q(q), within)

    def weighted(
        self,
        event: Event,
        weight: str,
        scores: Scores | None = None,
        given: Event | None = None,
        bounds: Bounds | None = None,
        *,
        level: float = 0.95,
        population: Population = "super",
    ) -> WeightedQuantity:
        """Estimate a share with survey weights, among all or among ``given``.

        ``weight`` is the attribute that holds the weights, in bins; a bin counts as its middle, or
        as its number in ``scores``.  ``bounds`` are the smallest and the largest weight.  The
        answer also says how far the exact weights could move it.
        """
        question, within = self._question(level, population), everybody_or(given, self.schema)
        weights = Variable(weight, scores, bounds)
        return weighting.weighted(question, self._condition(event), weights, within)

    def weighted_mean(
        self,
        variable: str,
        weight: str,
        scores: Scores | None = None,
        given: Event | None = None,
        bounds: Bounds | None = None,
        *,
        weight_scores: Scores | None = None,
        weight_bounds: Bounds | None = None,
        level: float = 0.95,
        population: Population = "super",
    ) -> WeightedQuantity:
        """Estimate the mean of a variable with survey weights, scored as in :meth:`mean`.

        ``weight_scores`` and ``weight_bounds`` are about the weights, as in :meth:`weighted`.
        """
        question, within = self._question(level, population), everybody_or(given, self.schema)
        numbered = Variable(variable, scores, bounds)
        weights = Variable(weight, weight_scores, weight_bounds, prefix="weight_")
        return weighting.weighted_mean(question, numbered, weights, within)
