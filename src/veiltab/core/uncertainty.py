"""How far an estimate may be off, and why: the sampling error, the privacy error, and both.

Cov(T̂) = (1/m)[A⁻¹ diag(AT) A⁻ᵀ − diag(T)] + (f/m)(diag(T) − TTᵀ).

The first part is the perturbation's; it would be there had everybody been asked.  The second is
the sample's, with f = (n − m)/(n − 1) when the respondents themselves are of interest ("finite"),
and f = 1 when they stand for a larger population that they were drawn from ("super").  Both parts
are kept as a few vectors: every question costs O(N).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import ndtri

from veiltab.core.channel import GammaDiagonal
from veiltab.core.covariance import Covariance, estimate_covariance
from veiltab.core.design import Design, Population
from veiltab.core.exact import number_like, square_roots
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veiltab.core.exact import Numbers


@dataclass(frozen=True, slots=True, eq=False)
class Uncertainty:
    """The covariance of the unbiased estimate of ``distribution``, in its two parts.

    With an estimate in the place of the unknown distribution it is the plug-in covariance; a
    proper distribution never gives a negative variance.
    """

    distribution: "Numbers"
    channel: GammaDiagonal
    population_size: int
    sample_size: int
    population: Population = "finite"

    @property
    def design(self) -> Design:
        """Everything but the distribution."""
        return Design(self.channel, self.population_size, self.sample_size, self.population)

    @property
    def privacy_covariance(self) -> Covariance:
        """The part that the perturbation causes: all of it if everybody is sampled."""
        return estimate_covariance(
            self.distribution, self.channel, self.sample_size, self.sample_size
        )

    @property
    def sampling_covariance(self) -> Covariance:
        """The part that is there because not everybody was sampled."""
        number = number_like(self.distribution)
        share = number(self.design.sampling_factor / self.sample_size)
        zero = number(Fraction(0))
        return Covariance(
            diagonal=self.distribution * share,
            released=self.distribution,
            distribution=self.distribution,
            cross=zero,
            constant=zero,
            outer=share,
        )

    def privacy(self, weights: "Numbers") -> Any:  # noqa: ANN401 - float or Fraction
        """Return the variance of weights·T̂ that the perturbation causes."""
        return self.privacy_covariance.between(weights, weights)

    def sampling(self, weights: "Numbers") -> Any:  # noqa: ANN401 - float or Fraction
        """Return the variance of weights·T̂ that the sampling causes."""
        return self.sampling_covariance.between(weights, weights)

    def total(self, weights: "Numbers") -> Any:  # noqa: ANN401 - float or Fraction
        """Return the variance of weights·T̂: the sum of both."""
        return self.between(weights, weights)

    def between(self, left: "Numbers", right: "Numbers") -> Any:  # noqa: ANN401 - float or Fraction
        """Return the covariance of left·T̂ and right·T̂."""
        return self.privacy_covariance.between(left, right) + self.sampling_covariance.between(
            left, right
        )

    def cells(self) -> "CellVariances":
        """Return the variance of each cell's estimate, and its two parts."""
        privacy = self.design.set_privacy(self.distribution, 1)
        sampling = self.design.set_sampling(self.distribution)
        return CellVariances(privacy, sampling, privacy + sampling)

    def draw(self, draws: int, generator: np.random.Generator) -> "NDArray[np.float64]":
        """Draw error vectors, one per row, from the normal law with exactly this covariance."""
        shape = (draws, self.distribution.size)
        errors = self.privacy_error(
            generator.standard_normal(shape), generator.standard_normal(shape)
        )
        if self.design.sampling_factor:
            errors += self.sampling_error(generator.standard_normal(shape))
        return errors

    def sampling_error(self, normal: "Numbers") -> "Numbers":
        """Turn independent standard numbers into sampling errors: √(f/m)(√T∘g − T Σ√T∘g)."""
        weighted = normal * square_roots(self.distribution)
        centred = weighted - weighted.sum(axis=-1, keepdims=True) * self.distribution
        errors: Numbers = centred * self._root(self.design.sampling_factor / self.sample_size)
        return errors

    def privacy_error(self, kept: "Numbers", replaced: "Numbers") -> "Numbers":
        """Turn independent standard numbers into privacy errors.

        Whether a record of cell i is kept has variance p(1 − p), and moves it between i and
        everywhere; where the replaced ones fall is uniform.  Both sum to zero, where A⁻¹ only
        divides by p.
        """
        number = number_like(self.distribution)
        keep = self.channel.keep_probability
        moved = kept * square_roots(self.distribution * number(keep * (1 - keep)))
        spread = replaced * self._root(self.channel.spread)
        # The sum of what was moved is spread over all cells; what is spread has the mean zero.
        excess = (moved + spread).sum(axis=-1, keepdims=True) * number(
            Fraction(1, self.channel.domain_size)
        )
        errors: Numbers = (moved + spread - excess) * self._root(1 / (keep**2 * self.sample_size))
        return errors

    def _root(self, value: Fraction) -> Any:  # noqa: ANN401 - float or Fraction
        number = number_like(self.distribution)
        return square_roots(np.array([number(value)]))[0]


@dataclass(frozen=True, slots=True, eq=False)
class CellVariances:
    """The variances of all cells: what privacy adds, what sampling adds, and the sum."""

    privacy: "Numbers"
    sampling: "Numbers"
    total: "Numbers"


def critical_value(level: float) -> float:
    """Return z with P(|Z| ≤ z) = level for a standard normal Z."""
    if not 0 < level < 1:
        raise ParameterError(
            f"a confidence level lies between 0 and 1, not at {level}",
            hint="0.95 is the usual one",
        )
    return float(ndtri((1 + level) / 2))
