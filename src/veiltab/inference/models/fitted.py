"""A fit and what follows from it: the covariance of the coefficients, and their intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import ndtr

from veiltab.core.parameters import is_number
from veiltab.core.released import Shares
from veiltab.core.uncertainty import Population, critical_value
from veiltab.errors import ModelError
from veiltab.inference.diagnostics import sample_warnings
from veiltab.inference.functional import Linearised
from veiltab.inference.models.distance import Distance
from veiltab.inference.models.profile import Profile
from veiltab.inference.models.separation import HiddenCell, hidden_cells, hidden_words
from veiltab.inference.models.solving import FARTHEST, Solution, is_linear, solve
from veiltab.inference.models.specification import Specification
from veiltab.inference.quantities import Quantity

Ends = tuple[float | None, float | None]

METHOD = "estimating equations inverted"
NO_END = (
    "the interval has no {side} limit: the release does not exclude that the coefficient is"
    " infinite (separation)"
)
NO_END_OF_LINE = "the interval has no {side} limit: the covariates may hardly vary, by the noise"


@dataclass(frozen=True, eq=False)
class Fitted:
    """A specification, and the level and the population of all that is asked about it."""

    specification: Specification
    population: Population
    level: float

    @cached_property
    def distance(self) -> Distance:
        """How far coefficients are from what the release says."""
        spec = self.specification
        return Distance.of(spec.equations, spec.released, self.population)

    @cached_property
    def solution(self) -> Solution:
        """The root of the equations, or why there is none."""
        return solve(self.distance, self.specification.names)[0]

    @property
    def converged(self) -> bool:
        """Whether there is a root that is a maximum."""
        return self.solution.problem is None

    @property
    def estimate(self) -> Shares:
        """The coefficients; an error if there are none."""
        if self.solution.problem is not None:
            raise ModelError(
                f"the model was not fitted: {self.solution.problem}",
                hint="use fewer terms or categories, or merge categories that are rare",
            )
        return self.solution.parameters

    @cached_property
    def linearised(self) -> Linearised:
        """The coefficients to first order, with their covariance by cause."""
        spec, estimate = self.specification, self.estimate
        slopes = spec.equations.jacobian(estimate, spec.released.unbiased)
        influence: Shares = -np.linalg.inv(slopes) @ spec.equations.scores(estimate)
        return Linearised.of(spec.released, influence, self.population)

    @cached_property
    def profile(self) -> Profile:
        """Intervals by the distance."""
        farthest = None if is_linear(self.specification.equations) else FARTHEST
        return Profile(self.distance, self.estimate, self.linearised.total, farthest)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What applies to everything that is computed from this release."""
        return sample_warnings(self.specification.released)

    @cached_property
    def hidden_cells(self) -> tuple[HiddenCell, ...]:
        """The groups whose coefficients may be finite by the noise alone."""
        return hidden_cells(self.specification, self.population)

    @property
    def hidden(self) -> tuple[str, ...]:
        """Where coefficients may be finite by the noise alone, in words."""
        return hidden_words(self.hidden_cells)

    def deviates(self, combinations: Shares, ends: Sequence[Ends]) -> list[float | None]:
        """Return the normal deviates of the hypotheses that combinations are zero, one per row.

        So far from the estimate that no nearest coefficients are found, it is the combination in
        standard errors, if the interval says clearly that zero is out.
        """
        values, zero = combinations @ self.estimate, np.zeros(len(combinations))
        nearest = self.profile.nearest(combinations, zero)
        deviates: list[float | None] = []
        for row, (low, high) in enumerate(ends):
            value = float(values[row])
            if nearest.settled[row]:
                deviates.append(float(np.copysign(nearest.distance[row] ** 0.5, value)))
            elif (low is not None and low > 0) or (high is not None and high < 0):
                deviates.append(value / self.linearised.errors(combinations[row])[0])
            else:
                deviates.append(None)
        return deviates

    def quantity(self, combination: Shares, label: str) -> Quantity:
        """Estimate a combination of the coefficients."""
        if self.solution.problem is not None:
            return Quantity.not_estimable(
                label,
                self.solution.problem,
                level=self.level,
                method=METHOD,
                population=self.population,
            )
        [(low, high)] = self.profile.ends(combination[np.newaxis], critical_value(self.level))
        total, sampling, privacy = self.linearised.errors(combination)
        return Quantity(
            label=label,
            value=float(combination @ self.estimate),
            standard_error=total,
            sampling_error=sampling,
            privacy_error=privacy,
            low=low,
            high=high,
            level=self.level,
            method=METHOD,
            population=self.population,
            warnings=(*self.warnings, *self.hidden, *self.limits(low, high)),
        )

    def limits(self, low: float | None, high: float | None) -> tuple[str, ...]:
        """Say where an interval has no end."""
        words = NO_END_OF_LINE if is_linear(self.specification.equations) else NO_END
        sides = [side for side, end in (("lower", low), ("upper", high)) if end is None]
        return tuple(words.format(side=side) for side in sides)

    def weights(self, combination: Mapping[str, float]) -> Shares:
        """Return the weights of a combination that names coefficients."""
        names = self.specification.names
        weights = np.zeros(len(names))
        for name, weight in combination.items():
            if name not in names:
                listed = ", ".join(map(repr, names[:10]))
                raise ModelError(
                    f"the model has no coefficient {name!r}", hint=f"the coefficients are {listed}"
                )
            weights[names.index(name)] = weight if is_number(weight) else np.nan
        if not np.isfinite(weights).all() or not weights.any():
            raise ModelError(
                "all weights are zero, or one is not finite",
                hint=f"give weights of some of {', '.join(map(repr, names[:10]))}",
            )
        return weights


def two_sided(deviate: float | None) -> float | None:
    """Return the p-value of a normal deviate."""
    return None if deviate is None else float(2 * ndtr(-abs(deviate)))
