"""How many people curators have in common: one number with noise, and what it says (spec 13).

Each curator sends the tokens of those of its people whose coin says so, among decoys for every
pattern of presence.  The server counts the tokens that all curators have sent, J + D: J people and
D decoys.  It tells X = J + D + Z, with two-sided geometric noise Z of its own.

- Whoever sees the tokens (the server) faces the coins and the decoys: e^ε = 1 + β/(q(1 − β)) for
  any change of who holds one person, :mod:`veiltab.core.decoys`.
- Whoever knows the coins and the decoys (a curator) faces the noise: J changes by one at most with
  one person, so P(Z = z) ∝ r^|z| with r ≥ e^(−ε) keeps e^ε.

The estimate (X − q/(1 − q))/β uses nothing but X and the contract.  So it may be told to anybody:
the server has X, and learns nothing new from it.  Derivation: ``docs/explanation/decoys.md``.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from veiltab.core import parameters
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.decoys import largest_coin, membership_ratio, pure_promise_holds
from veiltab.core.mechanism import Coin, Geometric, draw_numbers
from veiltab.core.privacy import count_threshold, log_above
from veiltab.core.utility import publication_variance
from veiltab.errors import InfeasiblePlanError, ParameterError

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from veiltab.core.entropy import Entropy

    Array = NDArray[np.float64]

FEWEST_CURATORS, MOST_CURATORS = 2, 8
"""Every set of curators but the empty one has decoys of its own: 2ᵏ − 1 patterns."""

MOST_MEAN = 100_000
"""The largest mean of a law: numbers are drawn by trials, one after the other, and exactly."""

PEOPLE = 10_000
"""For how many people in common a count is planned if nobody says how many are expected."""

LEVEL = 0.95
"""How often an interval holds the number of people, if nobody says how often it should."""

_GRID = 600
_LEAST_LOSS = 1e-4
"""Between this and 1 the planner looks for 1 − q: a pattern has 10,000 decoys at most."""

_WIDTH = 9.0
"""Coins farther than so many standard deviations from their mean do not count."""

_MOST_VALUES = 1 << 14
"""How many numbers of coins are gone through at most; of very many people, every second or so."""


@dataclass(frozen=True, slots=True)
class OverlapPlan:
    """The numbers of an overlap count; they cannot be put together if they break the promise of ε.

    ``decoys`` is the law of how many decoys each pattern of presence gets, and ``noise`` that of
    each of the two numbers whose difference the server adds.
    """

    epsilon: float
    curators: int
    coin: Coin
    decoys: Geometric
    noise: Geometric

    def __post_init__(self) -> None:
        """Refuse numbers that break the promise, to the server or to a curator."""
        parameters.check_epsilon(self.epsilon)
        check_curators(self.curators)
        for law in (self.decoys, self.noise):
            if law.mean > MOST_MEAN:
                raise InfeasiblePlanError(
                    f"decoys or noise of about {float(law.mean):.3g} take too long to draw",
                    hint="agree on a larger epsilon; let veiltab plan the numbers",
                )
        if not pure_promise_holds(self.coin, self.decoys, self.epsilon):
            raise InfeasiblePlanError(
                f"the coin {self.coin.threshold} with this law of decoys tells the server more"
                f" than epsilon {self.epsilon:g}",
                hint="use the numbers that veiltab plans",
            )
        least = count_threshold(self.epsilon)
        if self.noise.threshold < least:
            raise InfeasiblePlanError(
                f"noise with the ratio {self.noise.threshold}/2^64 tells curators more than"
                f" epsilon {self.epsilon:g}",
                hint=f"its threshold is at least {least}",
            )

    @property
    def patterns(self) -> int:
        """How many patterns of presence get decoys."""
        return (1 << self.curators) - 1

    @property
    def expected_decoys(self) -> float:
        """How many decoys a curator sends on average: those of the patterns in which it is."""
        return (1 << self.curators >> 1) * float(self.decoys.mean)

    @property
    def epsilon_membership(self) -> float:
        """The ε of adding or removing a person whom nobody else replaces; never above ε."""
        ratio = membership_ratio(self.coin, self.decoys)
        assert ratio is not None  # noqa: S101 - the promise holds, so the coin is not certain
        return log_above(ratio)

    def mean(self, people: float) -> float:
        """Return the mean of the number that is told, if there are so many people in common."""
        return float(self.coin.probability) * people + float(self.decoys.mean)

    def variance(self, people: float) -> float:
        """Return the variance of that number: coins, decoys and noise."""
        chance = float(self.coin.probability)
        noise = float(publication_variance(self.noise.threshold))
        return people * chance * (1 - chance) + float(self.decoys.variance) + noise

    def standard_error(self, people: float) -> float:
        """Return the standard error of the estimate, if there are so many people in common."""
        return math.sqrt(self.variance(people)) / float(self.coin.probability)

    def warnings(self, people: int) -> tuple[str, ...]:
        """Say what is unwise about a count of so many people."""
        if self.standard_error(people) <= people:
            return ()
        error = f"the answer will be off by about {self.standard_error(people):,.0f} people"
        return (f"{error}, more than the {people:,} that are expected; a larger ε would tell more",)

    def add_noise(self, count: int, entropy: "Entropy") -> int:
        """Return what the server tells of a count, drawn exactly: once and for all (spec 13.2)."""
        more, fewer = (int(draw_numbers(self.noise, 1, entropy)[0]) for _ in range(2))
        return count + more - fewer

    def chance_below(self, number: int, people: int) -> float:
        """Return P(X ≤ number), if there are so many people in common."""
        values, chances = _coins(people, float(self.coin.probability))
        return float(chances @ self._noise_below(number - values))

    def _noise_below(self, number: "Array") -> "Array":
        """Return P(D + Z ≤ number), in closed form."""
        import numpy as np  # noqa: PLC0415 - planning needs none of it

        q, r = float(self.decoys.ratio), float(self.noise.ratio)
        share, both = (1 - q) / (1 + r), 1 - q * r
        below = share / both * r ** np.maximum(-number, 0)
        k = np.maximum(number, 0) + 1
        gap = -abs(math.log(q / r))
        # (rᵏ − qᵏ)/(r − q), also where q and r are nearly the same
        slope = max(q, r) ** (k - 1) * (k if gap == 0 else np.expm1(k * gap) / math.expm1(gap))
        above = share * r * slope + q**k * (1 - share * r / both)
        chances: Array = np.where(number < 0, below, 1 - above)
        return chances

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        return {
            "epsilon": self.epsilon,
            "epsilon_membership": self.epsilon_membership,
            "curators": self.curators,
            "coin_probability": float(self.coin.probability),
            "coin_threshold": str(self.coin.threshold),
            "decoy_threshold": str(self.decoys.threshold),
            "noise_threshold": str(self.noise.threshold),
            "expected_decoys": self.expected_decoys,
        }


@dataclass(frozen=True, slots=True)
class OverlapEstimate:
    """What the number of an overlap count says; it may be told to anybody."""

    number: int
    plan: OverlapPlan

    @property
    def unbiased(self) -> float:
        """The estimate before it is clipped: right on average, and at times below 0."""
        return (self.number - self.plan.mean(0)) / float(self.plan.coin.probability)

    @property
    def people(self) -> float:
        """About how many people all curators hold."""
        return max(0.0, self.unbiased)

    @property
    def standard_error(self) -> float:
        """The standard error of the estimate, with the estimate in the place of the truth."""
        return self.plan.standard_error(self.people)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """Return an interval that holds the number of people with this probability at least.

        It holds every number under which neither so small nor so large a number is told with a
        probability below (1 − level)/2, computed exactly.  What lies below the mean without anybody
        in common counts as this mean at the upper end, so that no interval is empty.
        """
        _check_level(level)
        tail = (1 - level) / 2
        highest = max(self.number, math.ceil(self.plan.mean(0)))
        low = _first(lambda n: 1 - self.plan.chance_below(self.number - 1, n) > tail, self)
        high = _first(lambda n: self.plan.chance_below(highest, n) <= tail, self) - 1
        return float(low), float(max(low, high))

    def share_of(self, size: int) -> float:
        """Return which share of a table with so many people is in common.

        Tell nobody: with the estimate itself, it tells how many people the table has.
        """
        if size < 1:
            raise ParameterError(f"a table cannot have {size} people", hint="give its true size")
        return min(1.0, self.people / size)

    def as_dict(self, level: float = LEVEL) -> dict[str, Any]:
        """Return the estimate as JSON values."""
        low, high = self.interval(level)
        return {
            "number": self.number,
            "people": self.people,
            "unbiased": self.unbiased,
            "standard_error": self.standard_error,
            "level": level,
            "low": low,
            "high": high,
        }


def plan_overlap(people: int, epsilon: float, curators: int = FEWEST_CURATORS) -> OverlapPlan:
    """Choose the numbers with the least error if about ``people`` are in common.

    More decoys allow a likelier coin, and blur the number.  No promise depends on ``people``.
    """
    parameters.check_population_size(people)
    parameters.check_epsilon(epsilon)
    check_curators(curators)
    epsilon = parameters.plain(epsilon)
    noise = Geometric(count_threshold(epsilon))
    noise_variance, growth = float(publication_variance(noise.threshold)), math.expm1(epsilon)

    def squared_error(loss: float) -> float:
        odds = (1 - loss) * growth
        chance = odds / (1 + odds)
        blur = (1 - loss) / loss**2 + noise_variance
        return people * (1 - chance) / chance + blur / chance**2

    losses = (_LEAST_LOSS ** (step / _GRID) for step in range(1, _GRID + 1))
    law = Geometric(int((1 - min(losses, key=squared_error)) * DRAW_RANGE))
    coin = largest_coin(law, epsilon)
    if not coin:
        raise InfeasiblePlanError(
            f"no coin is rare enough for epsilon {epsilon:g}", hint="agree on a larger epsilon"
        )
    return OverlapPlan(epsilon, curators, Coin(coin), law, noise)


def check_curators(curators: int) -> None:
    """Refuse a single curator, and more than there can be decoys for."""
    if not parameters.is_integer(curators) or not FEWEST_CURATORS <= curators <= MOST_CURATORS:
        raise ParameterError(
            f"an overlap count is between {FEWEST_CURATORS} and {MOST_CURATORS} curators,"
            f" not {curators!r}",
            hint="every set of curators needs decoys of its own; count in smaller groups",
        )


def _check_level(level: float) -> None:
    if not 0 < level < 1:
        raise ParameterError(
            f"a confidence level lies between 0 and 1, not at {level}",
            hint="the usual level is 0.95",
        )


def _coins(people: int, chance: float) -> "tuple[Array, Array]":
    """Return how many of so many people can take part, and the chances of it.

    However many people a server claims, the memory is bounded.
    """
    import numpy as np  # noqa: PLC0415 - planning needs none of it
    from scipy.special import gammaln, xlog1py, xlogy  # noqa: PLC0415 - as above

    mean, spread = people * chance, math.sqrt(people * chance * (1 - chance))
    low = max(0, math.floor(mean - _WIDTH * spread - 2 * _WIDTH))
    high = min(people, math.ceil(mean + _WIDTH * spread + 4 * _WIDTH))
    step = 1 + (high - low) // _MOST_VALUES
    values = np.arange(low, high + 1, step, dtype=np.float64)
    logs = -gammaln(values + 1) - gammaln(people - values + 1)
    logs += xlogy(values, chance) + xlog1py(people - values, -chance)
    weights = np.exp(logs - logs.max())
    return values, weights / weights.sum()


def _first(holds: "Callable[[int], bool]", estimate: OverlapEstimate) -> int:
    """Return the least number of people for which something holds that then holds for all more."""
    if holds(0):
        return 0
    step = 4 * math.ceil(estimate.standard_error)
    low, high = 0, max(1, round(estimate.people))
    if holds(high):
        while high > step and holds(high - step):
            high -= step
        low = max(0, high - step)
    else:
        while not holds(high):
            low, high = high, high + step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
