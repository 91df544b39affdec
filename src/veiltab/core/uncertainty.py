"""How far an estimate may be off, and why: sampling error, privacy error, and both.

The exact covariance is kept as a diagonal and a few vectors, never as a matrix.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from scipy.special import ndtri

from veiltab.core.channel import GammaDiagonal
from veiltab.core.exact import number_like, square_roots
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veiltab.core.exact import Numbers


@dataclass(frozen=True, slots=True)
class Covariance:
    """diag(d) − α(v1ᵀ + 1vᵀ) + β11ᵀ − σTTᵀ: the covariance of the estimated cells."""

    diagonal: "Numbers"
    released: "Numbers"
    distribution: "Numbers"
    cross: Any
    constant: Any
    outer: Any

    def variances(self) -> "Numbers":
        """Return the variance of each cell's estimate; their sum is the mean squared error."""
        crossed = 2 * self.cross * self.released
        variances: Numbers = (
            self.diagonal - crossed + self.constant - self.outer * self.distribution**2
        )
        return variances

    def between(self, left: "Numbers", right: "Numbers") -> Any:  # noqa: ANN401 - float or Fraction
        """Return the covariance of the two linear statistics left·T̂ and right·T̂.

        Of many distributions at once, one per row, it returns one covariance each.
        """
        total_left, total_right = left.sum(), right.sum()
        crossed = (self.released @ left) * total_right + (self.released @ right) * total_left
        products = (self.distribution @ left) * (self.distribution @ right)
        return (
            self.diagonal @ (left * right)
            - self.cross * crossed
            + self.constant * total_left * total_right
            - self.outer * products
        )


def estimate_covariance(
    distribution: "Numbers", channel: GammaDiagonal, population_size: int, sample_size: int
) -> Covariance:
    """Return the covariance of the estimate of ``distribution`` from m of n respondents.

    Floats are for everyday use; an object array of Fractions gives exact answers.  With an
    estimate in the place of the unknown distribution it is the plug-in covariance.
    """
    keep = channel.keep_probability
    mix = (1 - keep) / (keep * channel.domain_size)
    share = sampling_share(population_size, sample_size)
    number = number_like(distribution)
    released = channel.transform(distribution)
    return Covariance(
        diagonal=released * number(1 / (keep**2 * sample_size))
        - distribution * number((1 - share) / sample_size),
        released=released,
        distribution=distribution,
        cross=number(mix / (keep * sample_size)),
        constant=number(mix**2 / sample_size),
        outer=number(share / sample_size),
    )


def sampling_share(population_size: int, sample_size: int) -> Fraction:
    """Return f = (n − m)/(n − 1), the finite-population correction; 0 if everybody is sampled."""
    if sample_size == population_size:
        return Fraction(0)
    return Fraction(population_size - sample_size, population_size - 1)


Population = Literal["finite", "super"]


@dataclass(frozen=True, slots=True)
class Design:
    """The channel, how many of how many were sampled, and whom the estimates are to describe.

    The "finite" population are the respondents themselves; "super" is the larger population that
    they were drawn from.
    """

    channel: GammaDiagonal
    population_size: int
    sample_size: int
    population: Population = "finite"

    def __post_init__(self) -> None:
        """Refuse a word that is neither of the two populations."""
        if self.population not in get_args(Population):
            raise ParameterError(
                f"there is no population {self.population!r}",
                hint="'finite' asks about the respondents themselves, 'super' about the larger"
                " population that they were drawn from",
            )

    @property
    def sampling_factor(self) -> Fraction:
        """f: (n − m)/(n − 1) for the respondents themselves, 1 for a larger population."""
        if self.population == "super":
            return Fraction(1)
        return sampling_share(self.population_size, self.sample_size)

    def set_privacy(self, shares: "Numbers", cells: Any) -> "Numbers":  # noqa: ANN401 - see below
        """Return the privacy variance of sets of ``cells`` cells (one number, or one per set).

        It is (v(1 − v)/p² − θ(1 − θ))/m, which is linear in θ.
        """
        constant, slope = self.privacy_line(cells, shares)
        variances: Numbers = constant + slope * shares
        return variances

    def privacy_line(self, cells: Any, like: "Numbers") -> tuple[Any, Any]:  # noqa: ANN401 - above
        """Return β(1 − β)/(mp²) and ((1 − 2β)/p − 1)/m: a set's privacy variance over θ."""
        number = number_like(like)
        keep, size = self.channel.keep_probability, self.sample_size
        noise = cells * number(self.channel.spread)
        constant = noise * (1 - noise) * number(1 / (keep**2 * size))
        slope = (1 - 2 * noise) * number(1 / (keep * size)) - number(Fraction(1, size))
        return constant, slope

    def set_sampling(self, shares: "Numbers") -> "Numbers":
        """Return the sampling variance fθ(1 − θ)/m of sets."""
        factor = number_like(shares)(self.sampling_factor / self.sample_size)
        variances: Numbers = shares * (1 - shares) * factor
        return variances

    def partition_privacy(self, shares: "Numbers", cells: "Numbers") -> "Numbers":
        """Return the privacy covariance of sets that divide the table, on the two last axes."""
        number = number_like(shares)
        keep, size = self.channel.keep_probability, self.sample_size
        released = shares * number(keep) + cells * number(self.channel.spread)
        covariance: Numbers = _multinomial(released) * number(1 / (keep**2 * size))
        covariance -= _multinomial(shares) * number(Fraction(1, size))
        return covariance

    def partition_sampling(self, shares: "Numbers") -> "Numbers":
        """Return the sampling covariance of sets that divide the table, on the two last axes."""
        factor = number_like(shares)(self.sampling_factor / self.sample_size)
        covariance: Numbers = _multinomial(shares) * factor
        return covariance


def _multinomial(shares: "Numbers") -> "Numbers":
    """Return diag(θ) − θθᵀ on the two last axes."""
    identity = np.eye(shares.shape[-1], dtype=np.int64)
    matrix: Numbers = (
        shares[..., np.newaxis] * identity - shares[..., np.newaxis] * shares[..., np.newaxis, :]
    )
    return matrix


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
