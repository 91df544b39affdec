"""Two or more releases beside each other: years, regions, or studies of the same questions."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from veiltab.core.released import ReleasedCounts
from veiltab.core.schema import Schema
from veiltab.core.uncertainty import Population
from veiltab.errors import ParameterError
from veiltab.estimates.derived import PooledEstimate
from veiltab.estimates.estimate import Estimate
from veiltab.estimates.questions import Event
from veiltab.inference import comparison, means, quantities
from veiltab.inference.conditions import everybody_or, read_condition
from veiltab.inference.hypotheses import HypothesisTest
from veiltab.inference.quantities import Quantity, Question
from veiltab.inference.scores import Bounds, Scores, Variable
from veiltab.inference.wording import described


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """What has changed from a first release to a second one, made by :func:`compare`.

    Both have the attributes that they share.  Every difference is the second release less the
    first.  The releases are taken as independent: their noise always is.  With
    ``population="super"`` their respondents have to be independent draws too; if the same people
    are in both, a change is known better than its interval says.
    """

    first: ReleasedCounts
    second: ReleasedCounts
    population: Population

    @property
    def schema(self) -> Schema:
        """The attributes that both releases have."""
        return self.first.schema

    def table(self, *, level: float = 0.95) -> pl.DataFrame:
        """Return a row per cell: both shares, their difference, its errors and its interval."""
        return comparison.change_table(self.first, self.second, level, self.population)

    def probability(
        self, event: Event, given: Event | None = None, *, level: float = 0.95
    ) -> Quantity:
        """Estimate by how much the share of a condition has changed, among all or ``given``."""
        first, second = (self._share(r, event, given, level) for r in (self.first, self.second))
        return comparison.change(first, second, f"change of {first.label}")

    def ratio(self, event: Event, given: Event | None = None, *, level: float = 0.95) -> Quantity:
        """Estimate the second share of a condition, divided by the first."""
        first, second = (self._share(r, event, given, level) for r in (self.first, self.second))
        return comparison.ratio(first, second, f"{first.label}, second / first")

    def mean(
        self,
        variable: str,
        scores: Scores | None = None,
        given: Event | None = None,
        bounds: Bounds | None = None,
        *,
        level: float = 0.95,
    ) -> Quantity:
        """Estimate by how much the mean of a variable has changed, scored as in `Estimate.mean`."""
        numbered, within = Variable(variable, scores, bounds), everybody_or(given, self.schema)
        first, second = (
            means.mean(self._ask(release, level), numbered, within)
            for release in (self.first, self.second)
        )
        return comparison.change(first, second, f"change of {first.label}")

    def test(self) -> HypothesisTest:
        """Test whether anything in the whole table has changed."""
        return self._pooled.heterogeneity

    def pooled(self) -> PooledEstimate:
        """Return the mean of both releases, weighted by the precision of their designs."""
        return PooledEstimate(self._pooled)

    def __repr__(self) -> str:
        """Return what is compared, without counts."""
        return f"<Comparison: {self}>"

    def __str__(self) -> str:
        """Say what is compared, and about whom it is."""
        whom = "the respondents" if self.population == "finite" else "the larger populations"
        return f"changes between two releases of {described(self.first)}, of {whom}"

    @cached_property
    def _pooled(self) -> comparison.Pooled:
        return comparison.Pooled((self.first, self.second), self.population)

    def _ask(self, release: ReleasedCounts, level: float) -> Question:
        return Question(released=release, level=level, population=self.population)

    def _share(
        self, release: ReleasedCounts, event: Event, given: Event | None, level: float
    ) -> Quantity:
        question = self._ask(release, level)
        condition = read_condition(event, self.schema)
        if given is None:
            return quantities.probability(question, condition)
        return quantities.proportion(question, condition, read_condition(given, self.schema))


def compare(
    first: ReleasedCounts, second: ReleasedCounts, *, population: Population = "super"
) -> Comparison:
    """Compare two estimates of the same questions: years, regions, or studies.

    They may have different mechanisms, and attributes of their own, which are left out.  A common
    attribute must have the same categories, in any order.  With ``population="super"`` a change is
    one of the larger populations behind the respondents; with "finite" it is one of the
    respondents themselves.
    """
    one, other = comparison.pool([first, second], population).releases
    _check_apart([first, second])
    return Comparison(one, other, population)


def pool(
    estimates: Sequence[ReleasedCounts], *, population: Population = "super"
) -> PooledEstimate:
    """Pool two or more estimates of the same questions into one with less error.

    The weights follow from the designs of the releases alone.  ``heterogeneity`` of the answer
    tests whether the releases can be about the same shares; if they are not, the answer is their
    weighted mean, and says so.
    """
    listed = [estimates] if isinstance(estimates, ReleasedCounts) else list(estimates)
    pooled = comparison.pool(listed, population)
    _check_apart(listed)
    return PooledEstimate(pooled)


def _check_apart(estimates: Sequence[ReleasedCounts]) -> None:
    """Refuse two views of one release, whose noise is the same: parts, copies and saved files."""
    views = [estimate for estimate in estimates if isinstance(estimate, Estimate)]
    studies = [view.provenance.study for view in views if view.provenance.study is not None]
    releases = [id(view._copy) for view in views]  # noqa: SLF001 - what all parts of one share
    if len(set(studies)) < len(studies) or len(set(releases)) < len(releases):
        raise ParameterError(
            "two of the estimates are of the same release, with the same noise",
            hint="give estimates of different studies, not parts or copies of one; rehearsals need"
            " different seeds",
        )
