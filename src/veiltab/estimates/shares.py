"""Questions about shares: probabilities, differences and ratios of conditions; people."""

import polars as pl

from veiltab.core.uncertainty import Population
from veiltab.estimates.questions import Event, Questions
from veiltab.inference import people, quantities
from veiltab.inference.quantities import Quantity


class ShareQuestions(Questions):
    """The share of a condition, and what is made of a few such shares."""

    def people(self, event: Event, *, level: float = 0.95) -> Quantity:
        """Estimate how many respondents meet a condition."""
        return people.people(self._question(level, "finite"), self._condition(event))

    def people_table(self, *, level: float = 0.95) -> pl.DataFrame:
        """Return a row per cell with the estimated number of respondents and its interval."""
        return people.people_table(self, level=level)

    def population(self, *, level: float = 0.95) -> Quantity:
        """Return how many respondents the release is about.

        It is known where the curators compared their populations; where the server matched rows
        among decoys, it is estimated.
        """
        return people.population(self._question(level, "finite"))

    def probability(
        self,
        event: Event,
        given: Event | None = None,
        *,
        level: float = 0.95,
        population: Population = "finite",
    ) -> Quantity:
        """Estimate the share of those who meet a condition, among all or among ``given``.

        It is the unbiased estimate, moved into 0..1: the share that every table shows.
        """
        question = self._question(level, population)
        if given is None:
            return quantities.probability(question, self._condition(event))
        return quantities.proportion(question, self._condition(event), self._condition(given))

    def difference(
        self,
        first: Event,
        second: Event,
        given: Event | None = None,
        *,
        level: float = 0.95,
        population: Population = "finite",
    ) -> Quantity:
        """Estimate P(first) − P(second), or P(first | given) − P(second | given)."""
        within = None if given is None else self._condition(given)
        return quantities.difference(
            self._question(level, population),
            self._condition(first),
            self._condition(second),
            within,
        )

    def risk_difference(
        self,
        outcome: Event,
        group: Event,
        versus: Event | None = None,
        *,
        level: float = 0.95,
        population: Population = "super",
    ) -> Quantity:
        """Estimate P(outcome | group) − P(outcome | versus), by default versus everybody else.

        It describes the larger population by default, as ratios do; so intervals are wider than
        those of the respondents alone.
        """
        question = self._question(level, population)
        return quantities.risk_difference(question, *self._groups(outcome, group, versus))

    def risk_ratio(
        self,
        outcome: Event,
        group: Event,
        versus: Event | None = None,
        *,
        level: float = 0.95,
        population: Population = "super",
    ) -> Quantity:
        """Estimate P(outcome | group) / P(outcome | versus), by default versus everybody else.

        If the denominator cannot be told from zero, there is no upper limit: ``high`` is None, and
        a warning says why.
        """
        question = self._question(level, population)
        return quantities.risk_ratio(question, *self._groups(outcome, group, versus))

    def odds_ratio(
        self,
        outcome: Event,
        group: Event,
        versus: Event | None = None,
        *,
        level: float = 0.95,
        population: Population = "super",
    ) -> Quantity:
        """Estimate the odds of the outcome in a group, divided by those in another group.

        The other group is ``versus``, by default everybody else.  There may be no upper limit, as
        with :meth:`risk_ratio`.
        """
        question = self._question(level, population)
        return quantities.odds_ratio(question, *self._groups(outcome, group, versus))
