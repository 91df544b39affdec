"""How far an estimate may be off, and why: the sampling error, the privacy error, and both.

Cov(T̂) = (1/m)[A⁻¹ diag(AT) A⁻ᵀ − diag(T)] + (f/m)(diag(T) − TTᵀ).

The first part comes from the perturbation; it would be there had everybody been sampled.  The
second comes from the sampling, with f = (n − m)/(n − 1) when the respondents themselves are of
interest ("finite"), and f = 1 when they stand for a larger population that they were drawn from
("super").

No matrix is built for the cells of a table.  With A⁻¹ = I/p − bJ, b = (1 − p)/(pN) and v = AT,
A⁻¹ diag(v) A⁻ᵀ = diag(v)/p² − (b/p)(v1ᵀ + 1vᵀ) + b²11ᵀ, so a diagonal and a few vectors suffice and
every question costs O(N).

The same holds for sets of cells.  A replaced record falls into a set of k cells with probability
β = (1 − p)k/N, so a set with the true share θ has the released share v = pθ + β.  The estimates of
sets that divide the table have

Cov(θ̂) = (1/m)[(diag(v) − vvᵀ)/p² − (diag(θ) − θθᵀ)] + (f/m)(diag(θ) − θθᵀ).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from scipy.special import ndtri

from veiltab.core.channel import GammaDiagonal, number_like, square_roots
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veiltab.core.channel import Numbers

Population = Literal["finite", "super"]
"""Whom the estimates describe: the respondents, or the population that they were drawn from."""


@dataclass(frozen=True, slots=True)
class ReleaseDesign:
    """How a release came about: the channel, and a sample of m of n respondents.

    ``population`` says whom the estimates describe: "finite" are the respondents themselves,
    "super" is the larger population that they were drawn from.
    """

    channel: GammaDiagonal
    population_size: int
    sample_size: int
    population: Population = "finite"

    def __post_init__(self) -> None:
        """Refuse an unknown population."""
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
        return finite_population_correction(self.population_size, self.sample_size)

    def set_privacy(self, shares: "Numbers", cells: Any) -> "Numbers":  # noqa: ANN401 - see below
        """Return the privacy variance (v(1 − v)/p² − θ(1 − θ))/m of sets with these shares θ.

        ``cells`` is how many cells the sets have: one number for all, or one for each.
        """
        constant, slope = self.privacy_line(cells, shares)
        variances: Numbers = constant + slope * shares
        return variances

    def privacy_line(self, cells: Any, like: "Numbers") -> tuple[Any, Any]:  # noqa: ANN401 - above
        """Return the a and b of a set's privacy variance a + bθ, which is linear in θ.

        They are β(1 − β)/(mp²) and ((1 − 2β)/p − 1)/m.
        """
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


def finite_population_correction(population_size: int, sample_size: int) -> Fraction:
    """Return f = (n − m)/(n − 1); it is 0 if everybody is sampled."""
    if sample_size == population_size:
        return Fraction(0)
    return Fraction(population_size - sample_size, population_size - 1)


def _multinomial(shares: "Numbers") -> "Numbers":
    """Return diag(θ) − θθᵀ on the two last axes."""
    identity = np.eye(shares.shape[-1], dtype=np.int64)
    matrix: Numbers = (
        shares[..., np.newaxis] * identity - shares[..., np.newaxis] * shares[..., np.newaxis, :]
    )
    return matrix


@dataclass(frozen=True, slots=True)
class Covariance:
    """The covariance matrix of the estimated cells, stored as a diagonal and a few vectors.

    It is diag(d) − α(v1ᵀ + 1vᵀ) + β11ᵀ − σTTᵀ, with the fields in this order: d, v, T, α, β, σ.
    """

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

        If the distributions are many, one per row, it returns one covariance for each.
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

    Floats are for everyday use; an object array of Fractions gives exact answers.  An estimate
    instead of the unknown distribution gives the plug-in covariance.
    """
    keep = channel.keep_probability
    mix = (1 - keep) / (keep * channel.domain_size)
    share = finite_population_correction(population_size, sample_size)
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


@dataclass(frozen=True, slots=True, eq=False)
class VarianceComponents:
    """The covariance of the unbiased estimate of ``distribution``, by cause: privacy and sampling.

    An estimate instead of the unknown distribution gives the plug-in covariance.  A proper
    distribution never gives a negative variance.
    """

    distribution: "Numbers"
    design: ReleaseDesign

    @property
    def privacy_covariance(self) -> Covariance:
        """The part that the perturbation causes: all of it if everybody is sampled."""
        size = self.design.sample_size
        return estimate_covariance(self.distribution, self.design.channel, size, size)

    @property
    def sampling_covariance(self) -> Covariance:
        """The part that the sampling causes."""
        number = number_like(self.distribution)
        share = number(self.design.sampling_factor / self.design.sample_size)
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
        """Return the whole variance of weights·T̂."""
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
        errors: Numbers = centred * self._root(
            self.design.sampling_factor / self.design.sample_size
        )
        return errors

    def privacy_error(self, kept: "Numbers", replaced: "Numbers") -> "Numbers":
        """Turn independent standard numbers into privacy errors.

        A record is kept or replaced by a Bernoulli draw with variance p(1 − p), and the replaced
        ones fall into uniform cells.  Both errors sum to zero over the cells, so that A⁻¹ merely
        divides them by p.
        """
        number = number_like(self.distribution)
        keep = self.design.channel.keep_probability
        moved = kept * square_roots(self.distribution * number(keep * (1 - keep)))
        spread = replaced * self._root(self.design.channel.spread)
        # Replaced records are spread evenly over all cells, and the spread itself has mean zero.
        excess = (moved + spread).sum(axis=-1, keepdims=True) * number(
            Fraction(1, self.design.channel.domain_size)
        )
        scale = self._root(1 / (keep**2 * self.design.sample_size))
        errors: Numbers = (moved + spread - excess) * scale
        return errors

    def _root(self, value: Fraction) -> Any:  # noqa: ANN401 - float or Fraction
        number = number_like(self.distribution)
        return square_roots(np.array([number(value)]))[0]


@dataclass(frozen=True, slots=True, eq=False)
class CellVariances:
    """The variance of each cell's estimate: what privacy adds, what sampling adds, and the sum."""

    privacy: "Numbers"
    sampling: "Numbers"
    total: "Numbers"


def critical_value(level: float) -> float:
    """Return z with P(|Z| ≤ z) = level for a standard normal Z."""
    if not 0 < level < 1:
        raise ParameterError(
            f"a confidence level lies between 0 and 1, not at {level}",
            hint="the usual level is 0.95",
        )
    return float(ndtri((1 + level) / 2))
