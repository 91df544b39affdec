"""The paper's way: m of n respondents, cut by rank in a secret order, through a channel.

With s the released shares, T̂ = (s − (1 − p)/N)/p.  Its covariance has two causes:

    Cov(T̂) = (1/m)[A⁻¹ diag(AT) A⁻ᵀ − diag(T)] + (f/m)(diag(T) − TTᵀ).

The first part comes from the channel; it would be there had everybody been sampled.  The second
comes from the sampling, with f = (n − m)/(n − 1) when the respondents themselves are of interest,
and f = 1 when they stand for a larger population.  In the common form of all covariances, the
channel has the coefficients (1 − p)/(mp), (1 − p)/(mp²) and (1 − p)/(mp), and the sampling f/m.

The noise of a published copy, with variance w in every cell, adds to the sum of the counts, which
is known to be m; so its mean is taken off again, and what is left adds Nw/(mp)² to the second.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from veiltab.core.cell_law import RankLaw
from veiltab.core.channel import GammaDiagonal, number_like
from veiltab.core.publication import PublicationNoise, noise_variance
from veiltab.core.resampling import (
    MAX_COUNTED_POPULATION,
    add_publication_noise,
    apportion,
    draw_without_replacement,
)
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import CovarianceForm, Population, ReleaseDesign
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veiltab.core.channel import Numbers

    Counts = NDArray[np.int64]
    Array = NDArray[np.float64]


@dataclass(frozen=True)
class RankDesign(ReleaseDesign):
    """A sample of m of n respondents through a channel; ``publication`` is a copy's noise."""

    channel: GammaDiagonal
    population_size: int
    sample_size: int
    population: Population = "finite"
    publication: PublicationNoise | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown population."""
        self._check_population()

    @property
    def cells(self) -> int:  # type: ignore[override]  # read-only
        """How many cells the table has."""
        return self.channel.domain_size

    @property
    def sampling_factor(self) -> Fraction:
        """f: (n − m)/(n − 1) for the respondents themselves, 1 for a larger population."""
        if self.population == "super":
            return Fraction(1)
        return finite_population_correction(self.population_size, self.sample_size)

    @cached_property
    def sampling(self) -> CovarianceForm:
        """(f/m)(diag(T) − TTᵀ)."""
        return CovarianceForm(self.sampling_factor / self.sample_size, Fraction(0), Fraction(0))

    @cached_property
    def privacy(self) -> CovarianceForm:
        """The channel's part, and the noise of a published copy."""
        keep, size = self.channel.keep_probability, self.sample_size
        moved = (1 - keep) / (keep * size)
        noise = noise_variance(self.publication) / (keep * size) ** 2
        return CovarianceForm(moved, moved / keep + noise, moved)

    @property
    def cell_variance(self) -> tuple[Any, Any]:
        """That of m independent draws through the channel, v/(mp²) with v = pθ + (1 − p)/N."""
        keep, size = self.channel.keep_probability, self.sample_size
        noise = noise_variance(self.publication) / (keep * size) ** 2 / self.cells
        return self.channel.spread / (keep**2 * size) + noise, 1 / (keep * size)

    def estimate_sets(self, counts: "Numbers", sizes: Any) -> "Numbers":  # noqa: ANN401 - see the interface
        """Return (s − k(1 − p)/N)/p for sets of k cells."""
        totals = counts.sum(axis=-1, keepdims=True)
        number = number_like(counts)
        if self.publication is None:
            if not (totals > 0).all() or not (counts >= 0).all():
                raise ParameterError(
                    "a release has no records, or a cell with a negative number of them",
                    hint="give the counts of the released records, at least one in total",
                )
            shares = counts / totals
        else:
            excess = (totals - self.sample_size) * number(Fraction(1, self.cells))
            shares = (counts - excess * sizes) * number(Fraction(1, self.sample_size))
        estimates: Numbers = (shares - sizes * number(self.channel.spread)) / number(
            self.channel.keep_probability
        )
        return estimates

    @property
    def normal(self) -> bool:
        """A released cell is a sum over many records."""
        return True

    def shape(self, weights: "Numbers", shares: "Numbers", fractions: "Numbers") -> Shape:  # noqa: ARG002 - the interface
        """Return that of the normal law."""
        zero = np.zeros(shares.shape[:-1])
        return Shape(zero, zero)

    def cell_law(self, rows: int) -> RankLaw:
        """Return the law of a cell of the sample."""
        publication = self.publication
        return RankLaw(
            cells=self.cells,
            surplus=rows - self.sample_size,
            people=float(self.population_size),
            keep=float(self.channel.keep_probability),
            finite=self.population == "finite",
            noise=None if publication is None else publication.law,
            noise_terms=0 if publication is None else publication.cells // self.cells,
            sample_size=self.sample_size,
        )

    def marginal(self, cells: int) -> Self:
        """Return the same sample through the channel of fewer cells."""
        return replace(self, channel=self.channel.marginal(cells))

    def expected_rows(self, shares: "Array") -> "Array":
        """Return m(pT + (1 − p)/N)."""
        return self.sample_size * self.channel.transform(shares)

    @property
    def drawable(self) -> bool:
        """Whether the population is small enough for NumPy's hypergeometric sampler."""
        return self.population == "super" or self.population_size <= MAX_COUNTED_POPULATION

    def draw(self, respondents: "Counts", runs: int, generator: np.random.Generator) -> "Counts":
        """Draw who is sampled and kept, and where the others go."""
        keep = float(self.channel.keep_probability)
        kept = generator.binomial(self.sample_size, keep, size=runs)
        uniform = np.full(respondents.size, 1 / respondents.size)
        replaced = generator.multinomial(self.sample_size - kept, uniform)
        released = draw_without_replacement(respondents, kept, generator) + replaced
        return add_publication_noise(released, self.publication, generator)

    def redraw(self, distribution: "Array", runs: int, generator: np.random.Generator) -> "Counts":
        """Draw from whole people, or from a larger population through the channel."""
        if self.population == "super":
            chances = self.channel.transform(distribution)
            released = generator.multinomial(self.sample_size, chances / chances.sum(), size=runs)
            return add_publication_noise(released, self.publication, generator)
        if not self.drawable:
            raise ParameterError(
                f"a finite population of {self.population_size:,} is too large to draw from",
                hint="ask about the larger population instead, with population='super'",
            )
        return self.draw(apportion(distribution, self.population_size), runs, generator)


def finite_population_correction(population_size: int, sample_size: int) -> Fraction:
    """Return f = (n − m)/(n − 1); it is 0 if everybody is sampled."""
    if sample_size == population_size:
        return Fraction(0)
    return Fraction(population_size - sample_size, population_size - 1)
