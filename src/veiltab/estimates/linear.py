"""Questions of one's own: any linear or smooth statistic of the table, with its standard error."""

from numpy.typing import ArrayLike

from veiltab.core.uncertainty import Population
from veiltab.estimates.questions import Questions
from veiltab.inference import functional
from veiltab.inference.functional import Gradient, Statistic
from veiltab.inference.quantities import Quantity


class LinearQuestions(Questions):
    """Linear and smooth statistics that a researcher brings along."""

    def linear(
        self,
        weights: ArrayLike,
        *,
        label: str = "linear statistic",
        level: float = 0.95,
        population: Population = "finite",
    ) -> Quantity:
        """Estimate Σ weight × share over the cells; ``weights`` have an axis per attribute.

        They may also be flat, in the order of :meth:`table`.  The estimate is unbiased.
        """
        return functional.linear(self._question(level, population), weights, label)

    def functional(
        self,
        statistic: Statistic,
        gradient: Gradient | None = None,
        *,
        label: str = "statistic",
        level: float = 0.95,
        population: Population = "super",
    ) -> Quantity:
        """Estimate any smooth function of the shares, by the delta method.

        ``statistic`` takes the unbiased shares, an array with an axis per attribute, and returns a
        number; ``gradient`` returns its derivatives in the same form, and is computed by
        differences if it is left out.  The statistic must be smooth where noise takes the shares:
        some of them may be negative.
        """
        return functional.functional(self._question(level, population), statistic, gradient, label)
