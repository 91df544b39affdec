"""A coin for each respondent, decoys in every cell, and perhaps a channel.

Each of n respondents takes part with probability β; each of N cells gets a number of decoys with
mean μ and variance v; the channel keeps a row with probability p, and p = 1 stands for none.  Of M
rows, y(x) are released in cell x, and

    g(x) = (y(x) − (1 − p)M/N)/p − μ    has the mean nβT(x).

If n is known, the rows that are too many or too few altogether are taken off again, from each cell
in proportion to its variance d = nβ(1 − β)T + v:  T̂ = g/(nβ) + (1 − Σg/(nβ))·d/Σd.  With T̂ for T in
d this has a closed form, and with ρ = nβ(1 − β)/Σd it is

    T̂ = (g + (nβ − Σg)(1 − ρ)/N) / (nβ − (nβ − Σg)ρ).

If n is not known, T̂ = g/Σg, which is the same formula with ρ = 1.  The noise of a published copy
adds to v, and the channel's inverse spreads it.  A marginal has the same formulas with the sums of
decoys and noise, so that unbiased estimates of marginals are sums of those of cells.

Let w be the variance of all published noise together, V = Nv + w, U = Nμ.  Then (nβ)² times the
covariance has, in the common form, the coefficients

    truth:    nβ(1 − β) + nβ(1 − p)/p,
    uniform:  V + w(1/p² − 1) + (nβ + (1 + p)U)(1 − p)/p²,
    shift:    ρV, or V if n is not known,  + nβ(1 − p)/p.

The derivation is in ``docs/explanation/estimates.md``.
"""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from veiltab.core.cell_law import CoinLaw
from veiltab.core.channel import DRAW_RANGE, number_like
from veiltab.core.mechanism import Coin, Geometric, Law, Mechanism
from veiltab.core.publication import PublicationNoise, noise_variance
from veiltab.core.resampling import (
    add_publication_noise,
    apportion,
    draw_decoys,
    perturb_counts,
)
from veiltab.core.shape import (
    FACTORIALS,
    LOGARITHM,
    Series,
    Shape,
    compose,
    cumulants_of,
    from_moments,
)
from veiltab.core.uncertainty import CovarianceForm, Population, ReleaseDesign
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from veiltab.core.channel import Numbers

    Counts = NDArray[np.int64]
    Array = NDArray[np.float64]

LEAST_WEIGHT = 1 / 2
"""Where the correction for a known n would divide by less than this share of nβ, it is made evenly.

So few people took part in such a release that nothing better can be said about it.
"""


@dataclass(frozen=True)
class CoinDesign(ReleaseDesign):
    """A coin for each respondent, decoys in each of ``domain_size`` cells, perhaps a channel.

    ``cells`` is the number of cells of the table that is looked at, a marginal perhaps.  Where the
    number of respondents is not ``known``, ``population_size`` is an estimate of it; it may be an
    array with one number for each of many releases, whose last axis has the length one.
    """

    mechanism: Mechanism
    domain_size: int
    cells: int
    population_size: Any
    known: bool = True
    population: Population = "finite"
    publication: PublicationNoise | None = None

    def __post_init__(self) -> None:
        """Refuse an unknown population, and a table that is no marginal."""
        self._check_population()
        published = self.domain_size if self.publication is None else self.publication.cells
        if self.domain_size % self.cells or published % self.cells:
            raise ParameterError(
                f"a table of {self.domain_size:,} cells has no marginal of {self.cells:,} cells",
                hint="a marginal's number of cells divides the joint table's",
            )

    @property
    def coin(self) -> Fraction:
        """The probability β with which a respondent takes part."""
        return Fraction(self._exact.coin)

    @cached_property
    def _exact(self) -> "_Numbers":
        """The mechanism's numbers as Fractions."""
        law, coin = self.mechanism.decoys, self.mechanism.sampling
        assert law is not None  # noqa: S101 - decoys go with a coin
        assert isinstance(coin, Coin)  # noqa: S101 - as above
        threshold = self.mechanism.keep_threshold
        keep = Fraction(1) if threshold is None else Fraction(threshold, DRAW_RANGE)
        return _Numbers(
            coin=coin.probability,
            keep=keep,
            decoys=self.domain_size * law.mean,
            decoy_variance=self.domain_size * law.variance,
            published=noise_variance(self.publication),
        )

    def _numbers(self, *, exact: bool) -> "_Numbers":
        return self._exact if exact else self._rounded

    @cached_property
    def _rounded(self) -> "_Numbers":
        return self._exact.rounded

    @property
    def _is_exact(self) -> bool:
        return isinstance(self.population_size, int | Fraction)

    @cached_property
    def sampling(self) -> CovarianceForm:
        """The coin alone: ((1 − β)/(nβ))(diag(T) − TTᵀ); 1/n more for a larger population."""
        numbers = self._numbers(exact=self._is_exact)
        left = 1 if self.population == "super" else 1 - numbers.coin
        chance = left / (self.population_size * numbers.coin)
        return CovarianceForm(chance, chance * 0, chance * 0)

    @cached_property
    def privacy(self) -> CovarianceForm:
        """Decoys, channel and published noise."""
        numbers = self._numbers(exact=self._is_exact)
        keep, noise, took = numbers.keep, numbers.noise, self.population_size * numbers.coin
        coins = took * (1 - numbers.coin)
        moved = (1 - keep) / keep
        spread = numbers.spread(took)
        tilt = noise * (coins / (coins + noise)) if self.known else noise
        return CovarianceForm(
            moved / took, (noise + spread) / took**2, (tilt + moved * took) / took**2
        )

    @property
    def cell_variance(self) -> tuple[Any, Any]:
        """The coefficients of the uniform part and of the true one."""
        total = self.total
        return total.uniform / self.cells, total.truth

    def unscaled_sets(self, counts: "Numbers", sizes: Any) -> "Numbers":  # noqa: ANN401 - see the interface
        """Return g of sets of k cells: estimates of how many of their people took part."""
        numbers = self._numbers(exact=counts.dtype == object)
        fractions = sizes * number_like(counts)(Fraction(1, self.cells))
        rows = counts.sum(axis=-1, keepdims=True)
        taking_part: Numbers = (
            counts - (1 - numbers.keep) * fractions * rows
        ) / numbers.keep - numbers.decoys * fractions
        return taking_part

    def estimate_sets(self, counts: "Numbers", sizes: Any) -> "Numbers":  # noqa: ANN401 - see the interface
        """Divide by how many took part: by what is expected if n is known, else by the sum."""
        exact = counts.dtype == object
        numbers = self._numbers(exact=exact)
        taking_part = self.unscaled_sets(counts, sizes)
        total = counts.sum(axis=-1, keepdims=True) - numbers.decoys
        if not self.known:
            least = np.sqrt(numbers.noise) if not exact else total  # a release of nobody is refused
            shares: Numbers = taking_part / np.maximum(total, least)
            return shares
        took = self.population_size * numbers.coin
        missing, weight = took - total, self._weight(total, numbers)
        fractions = sizes * number_like(counts)(Fraction(1, self.cells))
        corrected: Numbers = (taking_part + missing * (1 - weight) * fractions) / (
            took - missing * weight
        )
        return corrected

    def cell_law(self, rows: int) -> CoinLaw:
        """Return the law of a cell, with the estimate of n where it is not known."""
        numbers, publication = self._numbers(exact=False), self.publication
        law = self.mechanism.decoys
        assert law is not None  # noqa: S101 - decoys go with a coin
        return CoinLaw(
            cells=self.cells,
            surplus=rows,
            people=float(self.population_size),
            keep=numbers.keep,
            finite=self.population == "finite",
            weight=float(self._weight(np.array(rows - numbers.decoys), numbers))
            if self.known
            else 1.0,
            noise=None if publication is None else publication.law,
            noise_terms=0 if publication is None else publication.cells // self.cells,
            coin=numbers.coin,
            decoys=law,
            decoy_terms=self.domain_size // self.cells,
        )

    def _weight(self, total: "Numbers", numbers: "_Numbers") -> "Numbers":
        """Return the weight ρ for a known n, where this is the sum of g."""
        took = self.population_size * numbers.coin
        coins = took * (1 - numbers.coin)
        weight = coins / (coins + numbers.noise)
        few = took - (took - total) * weight < took * LEAST_WEIGHT
        return np.where(few, 0, weight)

    @property
    def normal(self) -> bool:
        """Decoys of single cells are few, and skew."""
        return False

    @property
    def many(self) -> bool:
        """Whether there are several estimates of the number of people."""
        return bool(np.ndim(self.population_size))

    def shape(self, weights: "Numbers", shares: "Numbers", fractions: "Numbers") -> Shape:
        """Compute the cumulants of the linear statistic, from those of all its rows."""
        return Shape.of_cumulants(self.cumulants(weights, shares, fractions))

    def cumulants(self, weights: "Numbers", shares: "Numbers", fractions: "Numbers") -> Series:
        """Return the first four cumulants of nβ Σ weights·(θ̂ − θ), to first order."""
        numbers, people = self._numbers(exact=False), self._people_beside(shares)
        coins = people * numbers.coin * (1 - numbers.coin)
        weight = coins / (coins + numbers.noise) if self.known else 1.0
        taken_off = weight * shares + (1 - weight) * fractions
        net = weights - (weights * taken_off).sum(axis=-1, keepdims=True)
        return self._row_cumulants(net, shares, fractions)

    def _people_beside(self, shares: "Numbers") -> "Array":
        """Return the number of people, with as many axes as the shares if there are several."""
        people = np.asarray(self.population_size, dtype=np.float64)
        missing = shares.ndim - people.ndim if people.ndim else 0
        return people.reshape((*people.shape, *(1,) * missing))

    def _row_cumulants(self, weights: "Numbers", shares: "Numbers", fractions: "Numbers") -> Series:
        """Return the first four cumulants of Σ weights·g.

        A row counts with the weight of the set in which it comes out of the channel.  Respondents
        have a coin and then a row each, and a cell has as many rows as decoys.
        """
        numbers = self._numbers(exact=False)
        law = self.mechanism.decoys
        assert law is not None  # noqa: S101 - decoys go with a coin
        keep, people = numbers.keep, self._people_beside(shares)
        mean = (weights * fractions).sum(axis=-1, keepdims=True)
        values = (weights - (1 - keep) * mean) / keep
        moments, raised = [], 1.0
        for _ in FACTORIALS:
            raised = raised * values
            moments.append(keep * raised + (1 - keep) * (fractions * raised).sum(-1, keepdims=True))
        row = from_moments(moments)
        decoys = compose(_series(_law_cumulants(law)), compose(LOGARITHM, row))
        causes = [
            self._respondents(row, people, shares),
            _times(decoys, self.domain_size * fractions),
        ]
        if self.publication is not None:
            noise = compose(_series(_noise_cumulants(self.publication)), (values, 0.0, 0.0, 0.0))
            causes.append(_times(noise, self.publication.cells * fractions))
        first, second, third, fourth = (
            sum(np.sum(cause, axis=-1) for cause in order) for order in zip(*causes, strict=True)
        )
        return cumulants_of((first, second, third, fourth))

    def _respondents(self, row: Series, people: "Array", shares: "Numbers") -> Series:
        """Return the series of all respondents' rows, from those of a row by its set.

        Respondents of a larger population are in a set by chance; those themselves are not.
        """
        coin = self._numbers(exact=False).coin
        if self.population == "finite":
            return _times(compose(LOGARITHM, _times(row, coin)), people * shares)
        first, second, third, fourth = (
            np.sum(order * shares, axis=-1, keepdims=True) for order in row
        )
        return _times(compose(LOGARITHM, _times((first, second, third, fourth), coin)), people)

    def people(self, rows: int) -> tuple[float, float]:
        """Estimate how many people the curators have in common, with the standard error."""
        numbers = self._exact
        people = (rows - numbers.decoys) / numbers.coin
        coins = numbers.coin * (1 - numbers.coin) * max(people, Fraction(0))
        return float(people), float(coins + numbers.noise) ** 0.5 / float(numbers.coin)

    def estimate_people(self, counts: "Numbers", sizes: Any) -> "Numbers":  # noqa: ANN401 - see the interface
        """Estimate how many people are in sets of k cells, whether or not n is known: g/β."""
        coin = self._numbers(exact=counts.dtype == object).coin
        people: Numbers = self.unscaled_sets(counts, sizes) / coin
        return people

    def people_variance(self, fractions: Any) -> tuple[Any, Any]:  # noqa: ANN401 - a number or an array
        """Return the a and b of the variance a + bν of the estimate g/β of ν people in a set."""
        numbers = self._numbers(exact=False)
        keep, took = numbers.keep, float(self.population_size) * numbers.coin
        moved, even = (1 - keep) / keep, fractions * (1 - fractions)
        constant = fractions * numbers.noise + moved * took * fractions**2
        constant += numbers.spread(took) * even
        slope = (1 - numbers.coin + moved * (1 - 2 * fractions)) / numbers.coin
        return constant / numbers.coin**2, slope

    def people_errors(self, people: "Array", fractions: Any) -> "tuple[Array, Array, Array]":  # noqa: ANN401 - as above
        """Return standard, sampling and privacy error of estimates of so many people."""
        constant, slope = self.people_variance(fractions)
        coin = float(self._exact.coin)
        total, sampling = constant + slope * people, (1 - coin) / coin * people
        privacy = np.maximum(total - sampling, 0)
        return np.sqrt(np.maximum(total, 0)), np.sqrt(sampling), np.sqrt(privacy)

    def people_shape(self, people: "Array", fractions: Any) -> Shape:  # noqa: ANN401 - as above
        """Return the shape of the estimate of so many people in a set of cells."""
        total = np.maximum(float(self.population_size), people)
        shares = np.stack([people, total - people], axis=-1) / float(self.population_size)
        part = np.stack(np.broadcast_arrays(fractions, 1 - fractions), axis=-1)
        return Shape.of_cumulants(self._row_cumulants(np.array([1.0, 0.0]), shares, part))

    def marginal(self, cells: int) -> Self:
        """Return the same release, looked at in fewer cells."""
        return replace(self, cells=cells)

    @property
    def drawable(self) -> bool:
        """Coins can be thrown for any number of people."""
        return True

    def draw(self, respondents: "Counts", runs: int, generator: np.random.Generator) -> "Counts":
        """Throw the coins, add decoys, then channel and published noise."""
        chance = float(self._exact.coin)
        took = generator.binomial(respondents, chance, size=(runs, respondents.size))
        return self._release(took, generator)

    def redraw(self, distribution: "Array", runs: int, generator: np.random.Generator) -> "Counts":
        """Draw whole people, or people of a larger population, and release them."""
        people = max(1, round(self.population_size))
        if self.population == "finite":
            return self.draw(apportion(distribution, people), runs, generator)
        took = generator.binomial(people, float(self._exact.coin), size=runs)
        chances = distribution / distribution.sum()
        return self._release(generator.multinomial(took, chances), generator)

    def _release(self, took: "Counts", generator: np.random.Generator) -> "Counts":
        law = self.mechanism.decoys
        assert law is not None  # noqa: S101 - decoys go with a coin
        rows = took + draw_decoys(law, self.domain_size // self.cells, took.shape, generator)
        keep = self._exact.keep
        released = rows if keep == 1 else perturb_counts(rows, float(keep), generator)
        return add_publication_noise(released, self.publication, generator)


@dataclass(frozen=True, slots=True)
class _Numbers:
    """What a mechanism by coin consists of: Fractions, or floats.

    ``decoys`` is their mean number in all cells together, and so are the two variances: those of
    the decoys and of the noise of a published copy.
    """

    coin: Any
    keep: Any
    decoys: Any
    decoy_variance: Any
    published: Any

    @property
    def noise(self) -> Any:  # noqa: ANN401 - float or Fraction
        """The variance of all noise but the channel's."""
        return self.decoy_variance + self.published

    def spread(self, took: Any) -> Any:  # noqa: ANN401 - float or Fraction
        """Return the variance that the channel spreads evenly, if so many people took part."""
        moved = (1 - self.keep) / self.keep / self.keep
        rows = took + (1 + self.keep) * self.decoys
        return self.published * (1 / self.keep**2 - 1) + moved * rows

    @property
    def rounded(self) -> "_Numbers":
        """The same numbers as floats."""
        return _Numbers(
            *map(float, (self.coin, self.keep, self.decoys, self.decoy_variance, self.published))
        )


@lru_cache(maxsize=64)
def _law_cumulants(law: Law) -> Series:
    if isinstance(law, Geometric):
        q, left = float(law.ratio), float(1 - law.ratio)
        third, fourth = q * (1 + q) / left**3, q * (1 + 4 * q + q**2) / left**4
        return float(law.mean), float(law.variance), third, fourth
    chances = np.array([float(weight) for weight in law.weights]) / DRAW_RANGE
    centred = np.arange(chances.size) - float(law.mean)
    second, third, fourth = (float(chances @ centred**power) for power in (2, 3, 4))
    return float(law.mean), second, third, fourth - 3 * second**2


def _noise_cumulants(publication: PublicationNoise) -> Series:
    _, second, _, fourth = _law_cumulants(publication.law)
    return 0.0, 2 * second, 0.0, 2 * fourth


def _series(cumulants: Series) -> Series:
    first, second, third, fourth = (c / f for c, f in zip(cumulants, FACTORIALS, strict=True))
    return first, second, third, fourth


def _times(series: Series, factor: Any) -> Series:  # noqa: ANN401 - a number or an array
    first, second, third, fourth = (coefficient * factor for coefficient in series)
    return first, second, third, fourth
