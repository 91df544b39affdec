"""The exact covariance of the estimate, kept as a diagonal and a few vectors, never as a matrix.

Cov(T̂) = (1/m)[A⁻¹ diag(AT) A⁻ᵀ − diag(T) + f(diag(T) − TTᵀ)],  f = (n − m)/(n − 1).

A⁻¹ = I/p − bJ with b = (1 − p)/(pN), so with v = AT the first term is
diag(v)/p² − (b/p)(v1ᵀ + 1vᵀ) + b²11ᵀ, and every question costs O(N).
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from veiltab.core.channel import GammaDiagonal
from veiltab.core.exact import number_like

if TYPE_CHECKING:
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
