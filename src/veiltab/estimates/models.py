"""Questions of regression: models of an outcome, and log-linear models of a whole table."""

from veiltab.core.uncertainty import Population, critical_value
from veiltab.estimates.questions import Questions
from veiltab.inference.models import specification
from veiltab.inference.models.fitted import Fitted
from veiltab.inference.models.results import ModelFit
from veiltab.inference.models.specification import Specification
from veiltab.inference.scores import NamedScores, check_named_scores


class ModelQuestions(Questions):
    """Models, by formulas in the usual notation.

    On the right side of a formula an attribute's name stands for its categories, coded against the
    first one; ``C(name, Treatment('category'))``, ``C(name, Sum)`` and ``C(name, Poly)`` code them
    otherwise, and ``scores(name)`` is a number: that of ``scores``, or 0, 1, 2, ….  Names that are
    no plain words stand in backticks.  Nothing of a formula is evaluated as Python.
    """

    def logistic(
        self,
        formula: str,
        *,
        event: str | None = None,
        scores: NamedScores | None = None,
        level: float = 0.95,
        population: Population = "super",
    ) -> ModelFit:
        """Fit a logistic regression, such as ``salary ~ gender + education``.

        The outcome is an attribute with two categories, the second of which is the event, unless
        ``event`` names the other; or a condition such as ``salary == '>50K'``.
        """
        named = check_named_scores(scores, self.schema)
        return _fit(specification.logistic(self, formula, event, named), level, population)

    def multinomial(
        self,
        formula: str,
        *,
        scores: NamedScores | None = None,
        level: float = 0.95,
        population: Population = "super",
    ) -> ModelFit:
        """Fit the logits of every category of an attribute against its first one."""
        named = check_named_scores(scores, self.schema)
        return _fit(specification.multinomial(self, formula, named), level, population)

    def ordinal(
        self,
        formula: str,
        *,
        scores: NamedScores | None = None,
        level: float = 0.95,
        population: Population = "super",
    ) -> ModelFit:
        """Fit proportional odds for an attribute whose categories are in order.

        A positive coefficient moves the outcome towards the last category.
        """
        named = check_named_scores(scores, self.schema)
        return _fit(specification.ordinal(self, formula, named), level, population)

    def regress(
        self,
        formula: str,
        *,
        scores: NamedScores | None = None,
        level: float = 0.95,
        population: Population = "super",
    ) -> ModelFit:
        """Fit a linear regression of an attribute's scores, which are 0, 1, 2, … unless given."""
        named = check_named_scores(scores, self.schema)
        return _fit(specification.linear(self, formula, named), level, population)

    def loglinear(
        self,
        formula: str,
        *,
        scores: NamedScores | None = None,
        level: float = 0.95,
        population: Population = "super",
    ) -> ModelFit:
        """Fit a log-linear model of the shares of cells, such as ``~ gender * education``.

        It is a Poisson regression of the cells; the shares sum to one, which sets its intercept.
        """
        named = check_named_scores(scores, self.schema)
        return _fit(specification.loglinear(self, formula, named), level, population)


def _fit(chosen: Specification, level: float, population: Population) -> ModelFit:
    critical_value(level)  # refuse a level before anything is computed
    return ModelFit(Fitted(chosen, population, level))
