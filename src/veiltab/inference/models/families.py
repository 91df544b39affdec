"""What an outcome's chances depend on: the log-likelihood of one answer, and its derivatives.

A family takes the linear predictors of a pattern of covariates and returns, for each level of the
outcome, the first and second derivatives of the level's log-likelihood.  Arrays have axes for the
patterns, the levels of the outcome and the predictors, in this order; axes in front of them stand
for many parameters at once.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.special import expit

from veiltab.core.released import Shares


class Family(ABC):
    """The law of an outcome with some levels, given linear predictors."""

    levels: int
    predictors: int

    @abstractmethod
    def first(self, predictors: Shares) -> Shares:
        """Return the derivatives of each level's log-likelihood: patterns × levels × predictors."""

    @abstractmethod
    def second(self, predictors: Shares) -> Shares:
        """Return the second derivatives: patterns × levels × predictors × predictors."""

    @abstractmethod
    def means(self, predictors: Shares) -> Shares:
        """Return what is predicted for each pattern: the chances of the levels, or one mean."""

    @abstractmethod
    def slopes(self, predictors: Shares) -> Shares:
        """Return the derivatives of :meth:`means`: patterns × predictions × predictors."""

    together: int
    """How many of the :attr:`contrasts` one prediction depends on."""

    @property
    @abstractmethod
    def contrasts(self) -> Shares:
        """Combinations of the predictors, one per row, in which predictions rise or fall."""

    @abstractmethod
    def limits(self, low: Shares, high: Shares) -> tuple[Shares, Shares]:
        """Return between which numbers predictions lie if the contrasts lie between these."""


@dataclass(frozen=True, slots=True)
class Multinomial(Family):
    """Logits of each level against the first one; with two levels, logistic regression."""

    levels: int

    @property
    def predictors(self) -> int:  # type: ignore[override]  # read-only
        """One for each level but the first."""
        return self.levels - 1

    def means(self, predictors: Shares) -> Shares:
        """Return the chance of each level."""
        logits = np.concatenate([np.zeros((*predictors.shape[:-1], 1)), predictors], axis=-1)
        odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
        chances: Shares = odds / odds.sum(axis=-1, keepdims=True)
        return chances

    def slopes(self, predictors: Shares) -> Shares:
        """π_k(1[k = r] − π_r)."""
        chances = self.means(predictors)
        slopes: Shares = chances[..., np.newaxis] * self._apart(chances)
        return slopes

    @property
    def together(self) -> int:  # type: ignore[override]  # read-only
        """Those of a level with all others."""
        return self.levels - 1

    @property
    def contrasts(self) -> Shares:
        """Return the logits of each level against each one before it."""
        logits = np.eye(self.levels)[:, 1:]
        return np.array([logits[k] - logits[j] for j, k in _pairs(self.levels)])

    def limits(self, low: Shares, high: Shares) -> tuple[Shares, Shares]:
        """π_k = 1/(1 + Σ exp(η_j − η_k)), which falls in each difference."""
        least, most = np.zeros(self.levels), np.zeros(self.levels)
        with np.errstate(over="ignore"):
            for (j, k), below, above in zip(_pairs(self.levels), low, high, strict=True):
                least[k], most[k] = least[k] + np.exp(-below), most[k] + np.exp(-above)
                least[j], most[j] = least[j] + np.exp(above), most[j] + np.exp(below)
        return 1 / (1 + least), 1 / (1 + most)

    def first(self, predictors: Shares) -> Shares:
        """1[k = r] − π_r for level k and predictor r."""
        return self._apart(self.means(predictors))

    def second(self, predictors: Shares) -> Shares:
        """−(diag(π) − ππᵀ), the same for all levels."""
        chances = self.means(predictors)[..., 1:]
        columns = chances[..., np.newaxis]
        spread = columns * np.eye(self.predictors) - columns * chances[..., np.newaxis, :]
        shape = (*chances.shape[:-1], self.levels, self.predictors, self.predictors)
        return np.broadcast_to(-spread[..., np.newaxis, :, :], shape)

    def _apart(self, chances: Shares) -> Shares:
        return np.eye(self.levels)[:, 1:] - chances[..., np.newaxis, 1:]


@dataclass(frozen=True, slots=True)
class ProportionalOdds(Family):
    """Ordered levels: predictor j is the logit of the chance to be in the levels up to j."""

    levels: int

    @property
    def predictors(self) -> int:  # type: ignore[override]  # read-only
        """One for each threshold between two levels."""
        return self.levels - 1

    def means(self, predictors: Shares) -> Shares:
        """Return the chance of each level: a difference of two cumulated ones."""
        return np.diff(_cumulated(predictors), axis=-1)

    def slopes(self, predictors: Shares) -> Shares:
        """Return how the chances of the two levels at a threshold change with it."""
        upper = _density(expit(predictors))
        return upper[..., np.newaxis, :] * self._signs

    together = 2

    @property
    def contrasts(self) -> Shares:
        """Return the predictors themselves."""
        return np.eye(self.predictors)

    def limits(self, low: Shares, high: Shares) -> tuple[Shares, Shares]:
        """Return the differences of the cumulated chances' limits."""
        least, most = _cumulated(low), _cumulated(high)
        return np.maximum(least[1:] - most[:-1], 0), most[1:] - least[:-1]

    @np.errstate(divide="ignore", invalid="ignore")
    def first(self, predictors: Shares) -> Shares:
        """Return the slopes divided by the chances; not finite where a level has no chance."""
        return self.slopes(predictors) / self.means(predictors)[..., np.newaxis]

    @np.errstate(divide="ignore", invalid="ignore")
    def second(self, predictors: Shares) -> Shares:
        """±f′/P on the diagonal, less the products of the first derivatives."""
        cumulated, first = expit(predictors), self.first(predictors)
        bent = _density(cumulated) * (1 - 2 * cumulated)
        own = bent[..., np.newaxis, :] * self._signs / self.means(predictors)[..., np.newaxis]
        second: Shares = (
            own[..., np.newaxis] * np.eye(self.predictors)
            - first[..., :, np.newaxis] * first[..., np.newaxis, :]
        )
        return second

    @property
    def _signs(self) -> Shares:
        """A level gains by the threshold above it, and loses by the one below."""
        return np.eye(self.levels)[:, :-1] - np.eye(self.levels)[:, 1:]


@dataclass(frozen=True, slots=True, eq=False)
class Scored(Family):
    """Levels with scores, whose mean is the predictor: least squares."""

    scores: Shares

    @property
    def levels(self) -> int:  # type: ignore[override]  # read-only
        """One for each score."""
        return self.scores.size

    @property
    def predictors(self) -> int:  # type: ignore[override]  # read-only
        """The mean."""
        return 1

    def means(self, predictors: Shares) -> Shares:
        """Return the mean score."""
        return predictors

    def slopes(self, predictors: Shares) -> Shares:
        """Return one."""
        return np.ones((*predictors.shape, 1))

    together = 1

    @property
    def contrasts(self) -> Shares:
        """Return the mean itself."""
        return np.eye(1)

    def limits(self, low: Shares, high: Shares) -> tuple[Shares, Shares]:
        """Return the same limits."""
        return low, high

    def first(self, predictors: Shares) -> Shares:
        """Score − mean."""
        return (self.scores - predictors)[..., np.newaxis]

    def second(self, predictors: Shares) -> Shares:
        """−1."""
        return np.full((*predictors.shape[:-1], self.levels, 1, 1), -1.0)


def _pairs(levels: int) -> list[tuple[int, int]]:
    return list(combinations(range(levels), 2))


def _cumulated(predictors: Shares) -> Shares:
    ends = np.zeros((*predictors.shape[:-1], 1))
    return np.concatenate([ends, expit(predictors), ends + 1], axis=-1)


def _density(cumulated: Shares) -> Shares:
    density: Shares = cumulated * (1 - cumulated)
    return density
