"""Questions about two attributes: how strongly they are associated, and whether at all."""

from collections.abc import Mapping, Sequence

import polars as pl

from veiltab.core.uncertainty import Population
from veiltab.estimates.questions import Names, Questions, names_of
from veiltab.inference import association
from veiltab.inference.hypotheses import HypothesisTest
from veiltab.inference.independence import independence_test, pair_table
from veiltab.inference.quantities import Quantity
from veiltab.inference.residuals import deviation_table


class AssociationQuestions(Questions):
    """Correlation, Cramér's V, mutual information, deviations from independence, and its test."""

    def correlation(
        self,
        x: str,
        y: str,
        scores: Mapping[str, Sequence[float]] | None = None,
        *,
        level: float = 0.95,
        population: Population = "super",
    ) -> Quantity:
        """Estimate Pearson's correlation; categories count as 0, 1, 2, … unless scored."""
        return association.correlation(self._question(level, population), x, y, scores)

    def cramers_v(
        self, x: str, y: str, *, level: float = 0.95, population: Population = "super"
    ) -> Quantity:
        """Estimate Cramér's V, from 0 (independence) to 1 (one attribute determines the other)."""
        return association.cramers_v(self._question(level, population), x, y)

    def mutual_information(
        self, x: str, y: str, *, level: float = 0.95, population: Population = "super"
    ) -> Quantity:
        """Estimate the mutual information of two attributes, in bits."""
        return association.mutual_information(self._question(level, population), x, y)

    def independence_test(
        self, x: str, y: str, given: Names | None = None, *, population: Population = "super"
    ) -> HypothesisTest:
        """Test whether two attributes are independent, or independent within groups of others."""
        return independence_test(self, x, y, names_of(given or ()), population)

    def deviations(
        self, x: str, y: str, *, level: float = 0.95, population: Population = "super"
    ) -> pl.DataFrame:
        """Return how far each cell of two attributes lies from independence, with its interval.

        ``deviation`` is the share of the cell less ``expected``, the product of its row's and its
        column's share; ``residual`` is the same in the standard errors that it would have under
        independence, where about one in twenty is beyond two.
        """
        return deviation_table(pair_table(self, x, y), level, population)
