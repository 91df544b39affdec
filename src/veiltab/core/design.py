"""How the records came to be released, and what follows for the share of any set of cells.

A set of k cells gets a record of noise with the chance β = (1 − p)k/N, so a set with the true
share θ has the released share v = pθ + β.  Of sets that divide the table the estimates have

Cov(θ̂) = (1/m)[(diag(v) − vvᵀ)/p² − (diag(θ) − θθᵀ)] + (f/m)(diag(θ) − θθᵀ),

the privacy error and the sampling error; nothing depends on the cells within the sets.
"""

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from veiltab.core.channel import GammaDiagonal
from veiltab.core.covariance import sampling_share
from veiltab.core.exact import number_like
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.core.exact import Numbers

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
