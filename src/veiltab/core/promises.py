"""The two kinds of release: what each promises, and how far its estimate is from the truth.

Behind every plan is one of them: a sample by rank through a channel, or a coin with decoys.
"""

import math
from dataclasses import dataclass
from fractions import Fraction

from veiltab.core import decoys, privacy, utility
from veiltab.core.channel import GammaDiagonal
from veiltab.core.mechanism import Coin, Geometric, Law, LinkageMode
from veiltab.errors import ParameterError


@dataclass(frozen=True, slots=True)
class RankedRelease:
    """A sample of a known size, cut by rank, of which each record goes through a channel.

    If it is ``shuffled``, the secret order counts as well (the accounting ``shuffle``).
    """

    population_size: int
    sample_size: int
    channel: GammaDiagonal
    shuffled: bool

    @property
    def keep_threshold(self) -> int:
        """The channel's t, with p = t/2⁶⁴."""
        return self.channel.keep_threshold

    @property
    def keep_probability(self) -> float:
        """The channel's p, rounded for reading."""
        return float(self.channel.keep_probability)

    @property
    def gamma(self) -> float:
        """The channel's γ, rounded for reading."""
        return float(self.channel.gamma)

    def holds(self, epsilon: float, delta: float) -> bool:
        """Tell whether the promise is kept, by Theorem 1 or by the privacy blanket."""
        if not self.shuffled:
            return privacy.promise_holds(
                self.population_size, self.sample_size, self.channel, epsilon
            )
        if delta == 0 or self.gamma == 1:  # nothing to spend, or a γ that floats round to 1
            return False
        if not privacy.is_worth_delta(self.population_size, self.sample_size, delta):
            return False
        return 0 < self.delta_achieved(epsilon, delta) <= delta

    def epsilon_achieved(self, epsilon: float) -> float:
        """Return the ε that the integers really give, rounded up; by shuffling the promised one."""
        if self.shuffled:
            return epsilon
        return privacy.epsilon_achieved(self.population_size, self.sample_size, self.channel)

    def delta_achieved(self, epsilon: float, delta: float) -> float:
        """Return an upper bound of the δ that is really spent."""
        if not self.shuffled:
            return 0.0
        from veiltab.core.accounting import Blanket, sampled_delta  # noqa: PLC0415 - needs SciPy

        blanket = Blanket(self.sample_size, self.channel.domain_size, self.gamma)
        return sampled_delta(self.population_size, blanket, epsilon, delta)

    def squared_error(self, published: Fraction) -> Fraction:
        """Return the exact squared error for the hardest data; ``published`` is a variance."""
        cells = self.channel.domain_size
        own = utility.mean_squared_error(
            self.population_size, self.sample_size, cells, self.channel.gamma, Fraction(1, cells)
        )
        return own + utility.published_error(
            self.sample_size, cells, self.channel.keep_probability, published
        )

    def bytes_per_curator(self) -> int:
        """Return how many bytes m ciphertexts of log₂N bits take."""
        return math.ceil(self.sample_size * math.log2(self.channel.domain_size) / 8)


TOKEN_BYTES = 16


@dataclass(frozen=True, slots=True)
class DecoyRelease:
    """Respondents who take part by a coin, among decoys, and a channel or none.

    ``population_size`` is None if it is not known; ``patterns`` is how many cells get decoys, those
    of absence included.
    """

    population_size: int | None
    domain_size: int
    coin: Coin
    law: Law
    channel: GammaDiagonal | None
    linkage: LinkageMode
    patterns: int

    def holds(self, epsilon: float, delta: float) -> bool:
        """Tell whether the promise is kept, exactly, whoever else but a curator helps."""
        if isinstance(self.law, Geometric):
            return decoys.pure_promise_holds(self.coin, self.law, epsilon)
        return delta > 0 and self._delta(epsilon) <= privacy.delta_below(delta)

    def _delta(self, epsilon: float) -> Fraction:
        if isinstance(self.law, Geometric):
            return Fraction(0)
        return decoys.exact_delta(self.coin, self.law, epsilon)

    def epsilon_achieved(self, epsilon: float) -> float:
        """Return the ε that the integers really give, rounded up; with δ, the promised one."""
        ratio = None
        if isinstance(self.law, Geometric):
            ratio = decoys.pure_ratio(self.coin, self.law)
        return epsilon if ratio is None else privacy.log_above(ratio)

    def delta_achieved(self, epsilon: float, delta: float) -> float:  # noqa: ARG002 - as by rank
        """Return the δ that is really spent, rounded up."""
        return privacy.float_above(self._delta(epsilon))

    def epsilon_membership(self, delta: float) -> float | None:
        """Return ε for a person who is added or removed instead of replaced; None if infinite."""
        if isinstance(self.law, Geometric):
            ratio = decoys.membership_ratio(self.coin, self.law)
        else:
            spare = privacy.delta_below(delta)
            ratio = decoys.membership_ratio_with_delta(self.coin, self.law, spare)
        if ratio is None:
            return None
        return privacy.log_above(ratio) if ratio > 1 else 0.0

    def expected_rows(self) -> float | None:
        """Return how many rows the joined table is expected to have."""
        if self.population_size is None:
            return None
        return self.population_size * float(self.coin.probability) + self.expected_decoys()

    def expected_decoys(self) -> float:
        """Return how many decoys the joint table is expected to have."""
        return self.domain_size * float(self.law.mean)

    def squared_error(self, published: Fraction) -> Fraction:
        """Return the exact squared error for the hardest data; ``published`` is a variance."""
        return utility.worst_decoys_error(
            known_population(self.population_size),
            self.domain_size,
            odds_against=1 / self.coin.probability - 1,
            mean=self.law.mean,
            variance=self.law.variance,
            gamma=None if self.channel is None else self.channel.gamma,
            linkage=self.linkage,
            published=published,
        )

    def bytes_per_curator(self) -> int:
        """Return about how many bytes the expected rows take, at log₂N bits each.

        In matched linkage every row has a token, and there are decoys for every pattern of absence.
        """
        sampled = known_population(self.population_size) * float(self.coin.probability)
        rows, row_bytes = sampled + self.expected_decoys(), math.log2(self.domain_size) / 8
        if self.linkage == "matched":
            rows = sampled + self.patterns * float(self.law.mean)
            row_bytes += TOKEN_BYTES
        return math.ceil(rows * row_bytes)


def known_population(population_size: int | None) -> int:
    """Return the population, or refuse to state what depends on it."""
    if population_size is None:
        raise ParameterError(
            "without a population there is no error or size to state",
            hint="plan with an estimate of the number of respondents in common",
        )
    return population_size
