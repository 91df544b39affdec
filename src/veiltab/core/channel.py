"""The γ-diagonal channel: how the server perturbs a record without being able to read it.

With ``keep_probability`` p a record stays as it is; otherwise it becomes a uniformly drawn cell.
In the paper's terms p = (γ − 1)/q with q = γ + N − 1, so that the matrix A has γ/q on its diagonal
and 1/q elsewhere.  No matrix is ever built: everything follows from p and N.  The formulas run on
floats every day, and on Fractions when they are checked.
"""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Numbers = NDArray[Any]
    "An array of float64, or an object array of Fractions; results are of the same kind."
    import numpy as np

    from veiltab.core.entropy import Entropy


def number_like(numbers: "Numbers") -> Callable[[Fraction], Any]:
    """Return the type for coefficients of this array: Fraction or float."""
    return Fraction if numbers.dtype == object else float


DRAW_RANGE = 2**64
"""One uniform draw below this bound decides what happens to a record."""

MAX_ESTIMATED_CELLS = 10**7
"""The largest joint table that is estimated as a whole."""


@dataclass(frozen=True, slots=True)
class GammaDiagonal:
    """A γ-diagonal channel over ``domain_size`` cells, with exact rational probabilities."""

    domain_size: int
    keep_probability: Fraction

    def __post_init__(self) -> None:
        """Refuse a channel that could not be inverted."""
        if self.domain_size < 1 or not 0 < self.keep_probability < 1:
            raise ParameterError(
                f"no gamma-diagonal channel over {self.domain_size} cells keeps a record with"
                f" probability {self.keep_probability}",
                hint="use at least one cell and a probability strictly between 0 and 1",
            )

    @classmethod
    def from_threshold(cls, domain_size: int, keep_threshold: int) -> "GammaDiagonal":
        """Build the channel that keeps a record when a 64-bit draw is below the threshold."""
        channel = cls(domain_size, Fraction(keep_threshold, DRAW_RANGE))
        channel.noise_width  # noqa: B018 - refuses a threshold that leaves the cells uneven
        return channel

    @property
    def gamma(self) -> Fraction:
        """γ: how much likelier a record is to be released as itself than as any other cell."""
        return 1 + self.domain_size * self.keep_probability / (1 - self.keep_probability)

    @property
    def normalizer(self) -> Fraction:
        """The paper's q = γ + N − 1."""
        return self.gamma + self.domain_size - 1

    @property
    def condition_number(self) -> Fraction:
        """The paper's c = 1 + N/(γ − 1), which is 1/p (Theorem 2)."""
        return 1 / self.keep_probability

    @property
    def spread(self) -> Fraction:
        """(1 − p)/N = 1/q: the probability that a record is replaced by a given cell."""
        return (1 - self.keep_probability) / self.domain_size

    @property
    def keep_threshold(self) -> int:
        """t, with p = t/2⁶⁴ exactly."""
        threshold = self.keep_probability * DRAW_RANGE
        if threshold.denominator != 1:
            raise ParameterError(
                "this channel's keep probability is not a multiple of 2^-64",
                hint="only a channel built from a threshold can be sampled; a composed one is"
                " sampled by applying its two parts in turn",
            )
        return threshold.numerator

    @property
    def noise_width(self) -> int:
        """M = (2⁶⁴ − t)/N: how many of the 2⁶⁴ draws stand for each replacement cell."""
        width, remainder = divmod(DRAW_RANGE - self.keep_threshold, self.domain_size)
        if remainder:
            raise ParameterError(
                f"the threshold {self.keep_threshold} does not leave the same number of draws to"
                f" each of {self.domain_size} cells",
                hint="use the threshold of a plan",
            )
        return width

    def probability(self, *, released: int, cell: int) -> Fraction:
        """Return A[released, cell]: γ/q if they are the same cell, else 1/q."""
        return (self.gamma if released == cell else Fraction(1)) / self.normalizer

    def marginal(self, domain_size: int) -> "GammaDiagonal":
        """Return what the channel does to some of the attributes, with ``domain_size`` cells.

        A replaced record is uniform over every attribute, so p stays the same.
        """
        if domain_size < 1 or self.domain_size % domain_size:
            raise ParameterError(
                f"a table of {self.domain_size} cells has no marginal of {domain_size} cells",
                hint="a marginal's number of cells divides the joint table's",
            )
        return GammaDiagonal(domain_size, self.keep_probability)

    def compose(self, other: "GammaDiagonal") -> "GammaDiagonal":
        """Return this channel followed by another: it keeps with probability p₁p₂."""
        if self.domain_size != other.domain_size:
            raise ParameterError(
                f"channels over {self.domain_size} and {other.domain_size} cells do not compose",
                hint="both must act on the same table",
            )
        return GammaDiagonal(self.domain_size, self.keep_probability * other.keep_probability)

    def transform(self, distribution: "Numbers") -> "Numbers":
        """Return A·T, the distribution of a released record; cells run along the last axis."""
        number = number_like(distribution)
        released: Numbers = distribution * number(self.keep_probability) + number(self.spread)
        return released

    def invert(self, shares: "Numbers") -> "Numbers":
        """Return A⁻¹·s = (s − (1 − p)/N)/p for shares that sum to one."""
        number = number_like(shares)
        distribution: Numbers = (shares - number(self.spread)) / number(self.keep_probability)
        return distribution

    def estimate(self, counts: "NDArray[np.int64]") -> "NDArray[np.float64]":
        """Estimate the distribution, without bias, from the counts of the released cells.

        Cells run along the last axis, so that many releases are estimated at once.
        """
        if counts.shape[-1] != self.domain_size or self.domain_size > MAX_ESTIMATED_CELLS:
            raise ParameterError(
                f"cannot estimate {self.domain_size} cells from {counts.shape[-1]} counts",
                hint=f"give one count per cell, and at most {MAX_ESTIMATED_CELLS} cells",
            )
        totals = counts.sum(axis=-1, keepdims=True)
        if not (totals > 0).all():
            raise ParameterError(
                "an empty release cannot be estimated", hint="release at least one record"
            )
        return self.invert(counts / totals)

    def perturb(self, cells: "NDArray[np.int64]", entropy: "Entropy") -> "NDArray[np.int64]":
        """Perturb an array of cells exactly, by adding noise in the cyclic group of the cells."""
        import numpy as np  # noqa: PLC0415 - planning needs none of it

        from veiltab.core.noise import draw_noise  # noqa: PLC0415 - needs NumPy

        noise = draw_noise(self, cells.size, entropy).astype(np.int64)
        return (cells + noise) % self.domain_size
