"""A fitted model as researchers see it: coefficients, predictions, contrasts and tests."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from veiltab.core.uncertainty import Population, critical_value
from veiltab.errors import ModelError
from veiltab.inference.hypotheses import HypothesisTest
from veiltab.inference.models import comparison, display
from veiltab.inference.models.fitted import METHOD, Fitted, two_sided
from veiltab.inference.models.prediction import New, predict
from veiltab.inference.models.solving import is_linear
from veiltab.inference.quantities import Quantity

NUMBERS = (
    "estimate",
    "standard_error",
    "sampling_error",
    "privacy_error",
    "z",
    "p_value",
    "low",
    "high",
)


@dataclass(frozen=True, eq=False, repr=False)
class ModelFit:
    """A model fitted to a release by estimating equations, with errors that count the noise.

    If it has not ``converged``, there are no numbers, and ``warnings`` says why.  An end of an
    interval that is None is no limit: the release excludes no value on that side.
    """

    _fitted: Fitted

    @property
    def model(self) -> str:
        """Which model it is, in words."""
        return self._fitted.specification.model

    @property
    def formula(self) -> str:
        """The formula, as it was given."""
        return self._fitted.specification.formula

    @property
    def outcome(self) -> str:
        """What the model is about; for a logistic regression, the event."""
        return self._fitted.specification.outcome

    @property
    def population(self) -> Population:
        """Whom the numbers describe."""
        return self._fitted.population

    @property
    def level(self) -> float:
        """The confidence level of all intervals."""
        return self._fitted.level

    @property
    def converged(self) -> bool:
        """Whether the equations have a solution; if not, there are no numbers."""
        return self._fitted.converged

    @property
    def terms(self) -> tuple[str, ...]:
        """The names of the coefficients."""
        return self._fitted.specification.names

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Where the release is too small or too noisy for the model, in sentences."""
        problem = self._fitted.solution.problem
        if problem is not None:
            return (*self._fitted.warnings, f"not estimable: {problem}")
        open_ended: dict[str, list[str]] = {}
        for row in self._rows:
            for words in self._fitted.limits(row["low"], row["high"]):
                open_ended.setdefault(words, []).append(row["term"])
        limits = [f"{', '.join(terms)}: {words}" for words, terms in open_ended.items()]
        return (*self._fitted.warnings, *self._fitted.hidden, *limits)

    @cached_property
    def coefficients(self) -> pl.DataFrame:
        """The coefficients as a frame: estimate, errors, z, p-value and interval of each term.

        Intervals hold the values that the equations do not contradict, and z and p-value come from
        the same distance; far from normal they differ from estimate ± 1.96 standard errors.
        """
        return pl.DataFrame(
            self._rows, schema={"term": pl.String} | dict.fromkeys(NUMBERS, pl.Float64)
        )

    @cached_property
    def covariance(self) -> NDArray[np.float64]:
        """The covariance matrix of the coefficients, in the order of ``terms``."""
        matrix = self._fitted.linearised.total.copy()
        matrix.flags.writeable = False
        return matrix

    @property
    def odds_ratios(self) -> pl.DataFrame:
        """The exponentials of the coefficients with their intervals: ratios of odds.

        Those of a log-linear model are ratios of shares, and of interactions ratios of odds.
        """
        if is_linear(self._fitted.specification.equations):
            raise ModelError(
                "a linear regression has no odds", hint="its coefficients are differences of means"
            )
        thresholds = len(self.terms) - len(self._slopes)
        rows = [
            {
                "term": row["term"],
                "odds_ratio": _exponential(row["estimate"]),
                "low": _exponential(row["low"], 0.0 if self.converged else None),
                "high": _exponential(row["high"]),
            }
            for row in self._rows[thresholds:]
        ]
        names = ("odds_ratio", "low", "high")
        return pl.DataFrame(rows, schema={"term": pl.String} | dict.fromkeys(names, pl.Float64))

    def predict(self, new: New | None = None) -> pl.DataFrame:
        """Predict chances or means for every pattern of the covariates, or for given rows.

        ``new`` is a polars frame, a mapping from attributes to categories, or a list of such
        mappings.  The chances of several categories, and shares of cells, have intervals by the
        delta method on the logit scale; all others are found as those of coefficients.
        """
        return predict(self._fitted, new)

    def contrast(
        self, weights: Mapping[str, float] | Sequence[Mapping[str, float]] | ArrayLike
    ) -> Quantity | HypothesisTest:
        """Estimate a combination of coefficients, or test whether several of them are zero.

        One mapping from terms to weights, or one row of weights, gives a quantity; a list of
        mappings, or a matrix with a row for each combination, gives a test of all together.
        """
        if isinstance(weights, Mapping):
            row = self._fitted.weights(weights)
            return self._fitted.quantity(row, _written(weights))
        rows, single = self._matrix(weights)
        labels = [_written(dict(zip(self.terms, row.tolist(), strict=True))) for row in rows]
        if single:
            return self._fitted.quantity(rows[0], labels[0])
        return comparison.test_combinations(self._fitted, rows, "; ".join(labels))

    def test(self, terms: str | Sequence[str]) -> HypothesisTest:
        """Test whether all coefficients of these terms are zero.

        A term is one of the formula, such as ``gender:education``, or one coefficient.
        """
        names = [terms] if isinstance(terms, str) else list(terms)
        if not names:
            raise ModelError("no term is named", hint=f"name some of {', '.join(self.terms)}")
        places = sorted({place for name in names for place in self._places(name)})
        rows = np.eye(len(self.terms))[places]
        return comparison.test_combinations(self._fitted, rows, f"no effect of {', '.join(names)}")

    def compare(self, other: "ModelFit") -> HypothesisTest:
        """Test the smaller of two nested models within the larger one, without a likelihood."""
        if not isinstance(other, ModelFit):
            raise ModelError(
                f"a model is compared with another fit, not with a {type(other).__name__}",
                hint="fit the smaller model too, as in fit.compare(estimate.logistic(…))",
            )
        pair = sorted((self, other), key=lambda fit: len(fit.terms))
        smaller, larger = (fit._fitted for fit in pair)  # noqa: SLF001 - of the same class
        return comparison.compare(larger, smaller)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return {
            "model": self.model,
            "formula": self.formula,
            "outcome": self.outcome,
            "mechanism": self._fitted.specification.released.plan.mechanism_name,
            "population": self.population,
            "level": self.level,
            "method": METHOD,
            "converged": self.converged,
            "coefficients": [dict(row) for row in self._rows],
            "covariance": self.covariance.tolist() if self.converged else None,
            "warnings": list(self.warnings),
        }

    def __repr__(self) -> str:
        """Return which model of what."""
        return f"<ModelFit: {self.model}, {self.formula!r}>"

    def __str__(self) -> str:
        """Return a table of the coefficients, with what they are about above it."""
        return display.as_text(self._facts, self._rows, self.level, self.warnings)

    def _repr_html_(self) -> str:
        """Return the same for notebooks: no scripts, no styles from elsewhere."""
        return display.as_html(self._facts, self._rows, self.level, self.warnings)

    @cached_property
    def _rows(self) -> list[dict[str, Any]]:
        """A row of numbers for each coefficient; None where there are none."""
        fitted = self._fitted
        if not fitted.converged:
            return [{"term": term} | dict.fromkeys(NUMBERS) for term in self.terms]
        rows, every = [], np.eye(len(self.terms))
        ends = fitted.profile.ends(every, critical_value(fitted.level))
        deviates = fitted.deviates(every, ends)
        for place, term in enumerate(self.terms):
            total, sampling, privacy = fitted.linearised.errors(every[place])
            (low, high), deviate = ends[place], deviates[place]
            numbers = (
                float(fitted.estimate[place]),
                total,
                sampling,
                privacy,
                deviate,
                two_sided(deviate),
                low,
                high,
            )
            rows.append({"term": term} | dict(zip(NUMBERS, numbers, strict=True)))
        return rows

    @property
    def _facts(self) -> list[tuple[str, str]]:
        released = self._fitted.specification.released
        plan = released.plan
        promise = f"ε = {plan.epsilon:g}" + (f", δ = {plan.delta:g}" if plan.delta else "")
        people = f"{plan.population_size:,}" if released.size_known else "not known"
        whom = "the respondents" if self.population == "finite" else "a larger population"
        return [
            ("Model", self.model),
            ("Formula", self.formula),
            ("Outcome", self.outcome),
            ("Mechanism", f"{plan.mechanism_name}, {promise}"),
            ("Respondents", people),
            ("Describes", whom),
            ("Converged", "yes" if self.converged else "no"),
        ]

    @property
    def _slopes(self) -> tuple[int, ...]:
        places = self._fitted.specification.terms.values()
        return tuple(sorted({place for listed in places for place in listed}))

    def _places(self, name: str) -> list[int]:
        terms = self._fitted.specification.terms
        for term, places in terms.items():
            if set(name.split(":")) == set(term.split(":")):
                return places
        if name in self.terms:
            return [self.terms.index(name)]
        listed = ", ".join(map(repr, terms))
        raise ModelError(f"the model has no term {name!r}", hint=f"the terms are {listed}")

    def _matrix(self, weights: Any) -> tuple[NDArray[np.float64], bool]:  # noqa: ANN401 - mappings or numbers
        """Return a row of weights per combination, and whether one row alone was given."""
        if isinstance(weights, list | tuple) and all(isinstance(row, Mapping) for row in weights):
            return np.array([self._fitted.weights(row) for row in weights]), False
        try:
            given = np.asarray(weights, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ModelError(
                "the weights of the coefficients are not numbers",
                hint=f"write them as in {{{self.terms[-1]!r}: 1}}",
            ) from error
        rows = np.atleast_2d(given)
        usable = rows.ndim == 2 and rows.shape[1] == len(self.terms)  # noqa: PLR2004 - a matrix
        if not usable or not np.isfinite(rows).all() or not rows.any(axis=1).all():
            raise ModelError(
                f"the weights have the shape {given.shape}, or are not finite, or all zero",
                hint=f"give a row of {len(self.terms)} weights for each combination",
            )
        return rows, given.ndim == 1


def _exponential(number: float | None, otherwise: float | None = None) -> float | None:
    """Return e to the power of a number; an end that is no limit stays so above."""
    return otherwise if number is None else float(np.exp(number))


def _written(weights: Mapping[str, float]) -> str:
    """Write a combination of coefficients."""
    parts = [
        f"{'−' if weight < 0 else '+'} {'' if abs(weight) == 1 else f'{abs(weight):g} · '}{name}"
        for name, weight in weights.items()
        if weight
    ]
    return " ".join(parts).removeprefix("+ ")
