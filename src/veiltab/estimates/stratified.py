"""Questions within strata: a common odds ratio, its tests, and trends of ordered categories."""

from collections.abc import Mapping, Sequence

from veiltab.core.uncertainty import Population
from veiltab.estimates.questions import Event, Names, Questions, names_of
from veiltab.inference import mantel_haenszel
from veiltab.inference.hypotheses import HypothesisTest
from veiltab.inference.quantities import Quantity


class StratifiedQuestions(Questions):
    """Mantel–Haenszel odds ratio and test, homogeneity of odds ratios, and tests of trend."""

    def trend_test(
        self,
        x: str,
        y: str,
        scores: Mapping[str, Sequence[float]] | None = None,
        given: Names | None = None,
        *,
        population: Population = "super",
    ) -> HypothesisTest:
        """Test whether two ordered attributes rise or fall together, also within groups.

        It is Mantel's linear-by-linear test: with two rows the test of Cochran and Armitage.
        Categories count as 0, 1, 2, … in their order, unless ``scores`` has numbers for an
        attribute.  The statistic is the sum over groups of the covariance of scores, in its
        standard errors; its sign is that of the trend, and the test is two-sided.
        """
        return mantel_haenszel.trend_test(self, (x, y), names_of(given or ()), scores, population)

    def mantel_haenszel(
        self,
        outcome: Event,
        group: Event,
        versus: Event | None = None,
        *,
        within: Names,
        level: float = 0.95,
        population: Population = "super",
    ) -> Quantity:
        """Estimate the odds ratio that all strata have in common, by Mantel and Haenszel's method.

        The strata are the joint categories of the attributes in ``within``.  The odds of the
        outcome in the group are divided by those in ``versus``, by default everybody else.
        """
        question = self._question(level, population)
        conditions = self._groups(outcome, group, versus)
        return mantel_haenszel.mantel_haenszel(question, *conditions, names_of(within))

    def mantel_haenszel_test(
        self,
        outcome: Event,
        group: Event,
        versus: Event | None = None,
        *,
        within: Names,
        population: Population = "super",
    ) -> HypothesisTest:
        """Test whether the outcome is unrelated to the group within every stratum.

        It looks for associations in the same direction in all strata; ``independence_test`` with
        ``given`` looks for any.
        """
        question = self._question(0.95, population)
        conditions = self._groups(outcome, group, versus)
        return mantel_haenszel.mantel_haenszel_test(question, *conditions, names_of(within))

    def homogeneity_test(
        self,
        outcome: Event,
        group: Event,
        versus: Event | None = None,
        *,
        within: Names,
        population: Population = "super",
    ) -> HypothesisTest:
        """Test whether the odds ratio of outcome and group is the same in all strata."""
        question = self._question(0.95, population)
        conditions = self._groups(outcome, group, versus)
        return mantel_haenszel.homogeneity_test(question, *conditions, names_of(within))
