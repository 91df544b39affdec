"""The object that a researcher works with."""

import importlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.core.uncertainty import Population
from veiltab.errors import InputError
from veiltab.estimates import association, quantities, storing, tables
from veiltab.estimates.conditions import Categories, Condition, negate, read_condition
from veiltab.estimates.independence import IndependenceTest, independence_test
from veiltab.estimates.quantities import Quantity, Question
from veiltab.estimates.released import Estimator, Released, table_warnings
from veiltab.estimates.tables import estimate_html

Names = str | Sequence[str]
Event = str | Mapping[str, Categories]
"""A condition: text such as ``salary = '>50K' and gender != 'male'``, or a mapping."""


class Estimate(Released):
    """An estimated table: shares, intervals, ratios and tests that are right under this noise.

    Points come from the estimator of your choice ("best" is the unbiased estimate projected on
    the proper distributions); intervals and standard errors always from the unbiased one.  What
    is resampled is drawn with a seed that follows from the counts, so results are reproducible.

    ``population`` says whom the numbers describe: "finite", the respondents themselves, or
    "super", the larger population that they were drawn from.
    """

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of the whole table has to know: where approximations are poor."""
        return table_warnings(self)

    def table(
        self,
        estimator: Estimator = "best",
        *,
        level: float = 0.95,
        simultaneous: bool = False,
        population: Population = "finite",
    ) -> pl.DataFrame:
        """Return the joint table: a row per cell, with its share, errors and interval.

        Each interval holds by itself with the confidence ``level``; ``simultaneous`` ones hold
        all together with it.  The last column says which.
        """
        return tables.joint_table(
            self,
            estimator=estimator,
            level=level,
            population=population,
            simultaneous=simultaneous,
        )

    def to_numpy(self, estimator: Estimator = "best") -> NDArray[np.float64]:
        """Return the shares as an array with an axis per attribute."""
        return self.shares(estimator).reshape(self.schema.sizes)

    def to_pandas(self, estimator: Estimator = "best", **options: Any) -> Any:  # noqa: ANN401 - pandas is optional
        """Return :meth:`table` as a pandas frame, if pandas is installed."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise InputError(
                "to_pandas needs the package pandas, which is not installed",
                hint="install it with `pip install pandas`, or use table(), a polars frame",
            ) from error
        frame = self.table(estimator, **options)
        columns = zip(frame.columns, frame, strict=True)
        return pandas.DataFrame({name: _pandas_column(pandas, column) for name, column in columns})

    def conditional(
        self,
        of: Names,
        given: Names,
        *,
        estimator: Estimator = "best",
        level: float = 0.95,
        population: Population = "finite",
    ) -> pl.DataFrame:
        """Return the shares of ``of`` within each group of ``given``, with Fieller's intervals.

        Where a group's own share cannot be told from zero, ``estimable`` is false and ``reason``
        says so; the numbers are then null.
        """
        return tables.conditional_table(
            self,
            _names(of),
            _names(given),
            estimator=estimator,
            level=level,
            population=population,
        )

    def probability(
        self,
        event: Event,
        given: Event | None = None,
        *,
        level: float = 0.95,
        population: Population = "finite",
    ) -> Quantity:
        """Estimate the share of those who meet a condition, among all or among some."""
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
        population: Population = "finite",
    ) -> Quantity:
        """Estimate P(outcome | group) − P(outcome | versus); versus everybody else by default."""
        question = self._question(level, population)
        return quantities.risk_difference(question, *self._groups(outcome, group, versus))

    def risk_ratio(
        self,
        outcome: Event,
        group: Event,
        versus: Event | None = None,
        *,
        level: float = 0.95,
        population: Population = "finite",
    ) -> Quantity:
        """Estimate P(outcome | group) / P(outcome | versus); versus everybody else by default."""
        question = self._question(level, population)
        return quantities.risk_ratio(question, *self._groups(outcome, group, versus))

    def odds_ratio(
        self,
        outcome: Event,
        group: Event,
        versus: Event | None = None,
        *,
        level: float = 0.95,
        population: Population = "finite",
    ) -> Quantity:
        """Estimate the odds of the outcome in a group, divided by those of everybody else.

        ``versus`` names another group to compare with.
        """
        question = self._question(level, population)
        return quantities.odds_ratio(question, *self._groups(outcome, group, versus))

    def correlation(
        self,
        x: str,
        y: str,
        scores: Mapping[str, Sequence[float]] | None = None,
        *,
        level: float = 0.95,
        population: Population = "finite",
    ) -> Quantity:
        """Estimate Pearson's correlation; categories count as 0, 1, 2, … unless scored."""
        return association.correlation(self._question(level, population), x, y, scores)

    def cramers_v(
        self, x: str, y: str, *, level: float = 0.95, population: Population = "finite"
    ) -> Quantity:
        """Estimate Cramér's V, from 0 (independent) to 1 (one attribute tells the other)."""
        return association.cramers_v(self._question(level, population), x, y)

    def mutual_information(
        self, x: str, y: str, *, level: float = 0.95, population: Population = "finite"
    ) -> Quantity:
        """Estimate how many bits one attribute tells about the other."""
        return association.mutual_information(self._question(level, population), x, y)

    def independence_test(
        self, x: str, y: str, given: Names | None = None, *, population: Population = "super"
    ) -> IndependenceTest:
        """Test whether two attributes are independent, or are so within groups of others."""
        return independence_test(self, x, y, _names(given or ()), population)

    def save(self, path: str | Path) -> None:
        """Write everything to a file that :meth:`load` reads: canonical JSON, counts packed."""
        storing.save(self, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Estimate":
        """Read a file that :meth:`save` wrote; whatever else it is, is refused."""
        schema, counts, plan, provenance = storing.load(Path(path))
        return cls(schema, counts, plan, provenance=provenance)

    def _repr_html_(self) -> str:
        """Return the table for notebooks: no scripts, no styles from elsewhere."""
        return estimate_html(self, self.warnings)

    def _question(self, level: float, population: Population) -> Question:
        return Question(released=self, level=level, population=population)

    def _condition(self, event: Event) -> Condition:
        return read_condition(event, self.schema)

    def _groups(
        self, outcome: Event, group: Event, versus: Event | None
    ) -> tuple[Condition, Condition, Condition]:
        found = self._condition(group)
        other = negate(found) if versus is None else self._condition(versus)
        return self._condition(outcome), found, other


def _names(names: str | Iterable[str]) -> list[str]:
    return [names] if isinstance(names, str) else list(names)


def _pandas_column(pandas: Any, column: pl.Series) -> Any:  # noqa: ANN401 - pandas is optional
    if isinstance(column.dtype, pl.Enum):
        codes, categories = column.to_physical().to_numpy(), column.dtype.categories.to_list()
        return pandas.Categorical.from_codes(codes, categories)
    return column.to_numpy()
