"""The search for the coin and the law of decoys with the least worst-case error.

Without δ the law is geometric, P(D = z) ∝ qᶻ, and the coin follows from q.  With δ it may also be
two-sided geometric, P(D = z) ∝ q^|z − s| for z ≥ 0, cut off where its tail no longer matters.
The search runs on floats; what it proposes is turned into integers, and those are accounted for
exactly.  Nothing here imports NumPy: a plan must not wait for it.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from veiltab.core import decoys, parameters, utility
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import MAX_WEIGHTS, Coin, Geometric, LinkageMode, WeightTable
from veiltab.core.privacy import LEAST_ODDS, delta_below
from veiltab.core.roots import least_place
from veiltab.errors import InfeasiblePlanError

TAIL_SHARE = 1 / 512
"""The share of δ that the cut-off tail of a two-sided law may cost."""

SEARCH_SHARE = 1 - 1 / 256
"""The share of δ that the search spends; the rest is for the tail and for rounding."""

NUDGE = 1e-9
"""How much flatter laws get, relatively, so that rounded weights do not exceed the ratio e^ε."""

FEWEST_DECOYS = 1e-6
"""Of laws whose squared errors differ by no more than this share, the least centre is taken."""

GEOMETRIC_RANGE = (-70.0, 43.0)
"""Where ln(q/(1 − q)) is searched: q from e⁻⁷⁰ to 1 − 2⁻⁶²."""

REACH, STEP = 6.0, 0.2
"""How far, and how finely, ln(q/(1 − q)) is searched on both sides of where 1/q² is e^ε.

If δ is larger than ε, laws that fall by δ a step come in too."""

NEARLY = 0.99
"""A centre is below its law's mean, but by less than this, where the limit on decoys matters."""

LONGEST = MAX_WEIGHTS - 1024
"""How many weights a table may have in the search; a nudge can make it a little longer."""

SHORT_DIGITS, FLOAT_DIGITS, POWER_BITS = 16, 50, 128
NEGLIGIBLE = 1e-9
"""A smaller share of respondents is not worth leaving out."""

ROUNDING_ROOM = 1 - 1e-4
"""The share of the limit on decoys that the search uses: a rounded ratio can need a few more."""

FINE, COARSE = 1e-10, 1e-3
"""How closely ln(q/(1 − q)) is searched: for the best centre, and to find which that is."""

HOPELESS = 1.5
"""A centre whose squared error on the grid is larger than the least by this factor is passed over:
between two places of the grid no error falls by so much."""

SMALL_CENTRES = 9
"""Centres 0 to 8 are all tried, larger ones in steps of a quarter."""

DIRECT_SUM = 40
"""Up to this centre the left side's moments are added up; the formula would lose digits."""


@dataclass(frozen=True, slots=True)
class TwoSided:
    """A candidate: the law's ratio and centre, the share 1 − β left out, and the squared error."""

    ratio: float
    centre: int
    left_out: float
    error: float


@dataclass(frozen=True)
class DecoySearch:
    """A question: for whom to plan, what to promise, and what else is fixed.

    ``gamma`` is the channel's, None without one.  ``patterns`` is how many cells get decoys, those
    of absence included; ``max_decoys`` limits their expected number, and without it the limit is
    a million or the expected sample, whichever is more.
    """

    population_size: int
    domain_size: int
    epsilon: float
    delta: float
    linkage: LinkageMode
    gamma: float | None
    patterns: int
    max_decoys: float | None = None

    def geometric(self) -> tuple[Coin, Geometric]:
        """Return the best geometric law, and the largest coin that keeps ε with it (pure).

        The squared error is a sum of exponentials of ln(q/(1 − q)) with positive weights, so it
        has a single valley.
        """
        if self._eta < LEAST_ODDS:  # β < η for every law, and the error would overflow
            raise self._too_strict()
        low, high = GEOMETRIC_RANGE
        high = max(low, min(high, self._steepest_allowed()))
        place = least_place(self._geometric_error, low, high, FINE)
        threshold = int(DRAW_RANGE * short_ratio(1 / (1 + math.exp(-place))))
        law = Geometric(min(max(threshold, 1), DRAW_RANGE - 1))
        coin = decoys.largest_coin(law, self.epsilon)
        if coin < LEAST_ODDS * DRAW_RANGE:
            raise self._too_strict()
        return Coin(coin), law

    def _too_strict(self) -> InfeasiblePlanError:
        return InfeasiblePlanError(
            f"epsilon {self.epsilon:g} is too small: next to nobody could take part, and"
            " nothing but noise would be released",
            hint="use a larger epsilon",
        )

    def _geometric_error(self, place: float) -> float:
        odds = math.exp(place)  # q/(1 − q)
        return self._error((1 + 1 / odds) / self._eta, odds, odds * (1 + odds))

    def _steepest_allowed(self) -> float:
        """Return the largest ln(q/(1 − q)) whose decoys, patterns·q/(1 − q), are within the limit.

        The expected sample nβ, β = qη/(1 + qη), may be the larger limit.
        """
        room = self._limit(0.0) / self.patterns
        if self.max_decoys is None:
            sampled = self.population_size * self._eta / self.patterns
            room = max(room, (sampled - 1) / (1 + self._eta))
        return math.log(ROUNDING_ROOM * min(room, parameters.MOST_DECOYS / self.patterns))

    def _limit(self, sample: float) -> float:
        if self.max_decoys is not None:
            return self.max_decoys
        return min(max(float(parameters.MAX_DECOYS), sample), parameters.MOST_DECOYS)

    def _error(self, odds_against: float, mean: float, variance: float) -> float:
        return utility.worst_decoys_error(
            self.population_size,
            self.domain_size,
            odds_against=odds_against,
            mean=mean,
            variance=variance,
            gamma=self.gamma,
            linkage=self.linkage,
        )

    def two_sided(self) -> tuple[Coin, WeightTable] | None:
        """Return the best two-sided law and its coin, accounted for exactly.

        None if each would have too many decoys or too long a table; a δ that integer weights
        cannot keep is refused.
        """
        best = self._best_two_sided()
        if best.error == math.inf:
            return None
        for attempt in range(4):
            nudge = NUDGE * 100**attempt
            ratio = short_ratio(best.ratio * (1 + nudge * (1 - best.ratio)))
            law = two_sided_table(ratio, best.centre, self.delta * TAIL_SHARE)
            coin = coin_leaving_out(best.left_out * (1 + nudge))
            if decoys.exact_delta(coin, law, self.epsilon) <= delta_below(self.delta):
                return coin, law
        raise InfeasiblePlanError(
            f"decoys with whole weights out of 2^64 cannot keep delta {self.delta:g}",
            hint="promise delta 0, or a larger one, such as 1e-9",
        )

    def _best_two_sided(self) -> TwoSided:
        """Search centres coarsely, then around the best, then for the least as good a one.

        There can be two valleys, one near the geometric law and one where β is near 1.
        """
        centres = list(self._centres())
        best = self._at_centre(self._promising(centres))
        step = max(1, best.centre // 4)
        while step:
            near = [c for c in (best.centre - step, best.centre + step) if 0 <= c <= centres[-1]]
            better = min(map(self._at_centre, near), key=lambda c: c.error, default=best)
            if better.error < best.error:
                best = better
            else:
                step //= 2
        return self._fewest_decoys(best)

    def _promising(self, centres: Sequence[int]) -> int:
        """Return the centre with the least error, as far as a coarse search can tell."""
        places = [self._on_grid(centre) for centre in centres]
        hopeless = HOPELESS * min(error for _, error in places)
        near = [
            (self._refined(place, centre, COARSE).error, centre)
            for (place, error), centre in zip(places, centres, strict=True)
            if error <= hopeless
        ]
        return min(near)[1]

    def _fewest_decoys(self, best: TwoSided) -> TwoSided:
        """Return the candidate with the least centre that is practically as good."""
        low, high = -1, best
        while high.centre - low > 1:
            middle = self._at_centre((low + high.centre) // 2)
            if middle.error <= best.error * (1 + FEWEST_DECOYS):
                high = middle
            else:
                low = middle.centre
        return high

    def _centres(self) -> Iterator[int]:
        """Yield centres up to one where the law's mass at 0 is surely below δ.

        Those at which the limit on decoys is reached are among them.
        """
        most = math.ceil(2 * math.log(1 / self.delta) / self.epsilon) + 1
        most = min(most, MAX_WEIGHTS)
        limits = (self._limit(0.0), self._limit(self.population_size))
        edges = {int(NEARLY * limit / self.patterns) for limit in limits}
        yield from sorted(edge for edge in edges if edge < most)
        centre = 0
        while centre < most:
            yield centre
            centre += 1 if centre < SMALL_CENTRES else centre // 4
        yield most

    def _at_centre(self, centre: int) -> TwoSided:
        """Return the best ratio for a centre: on a grid, then between its neighbours."""
        place, _ = self._on_grid(centre)
        return self._refined(place, centre, FINE)

    def _on_grid(self, centre: int) -> tuple[float, float]:
        """Return the best place for ln(q/(1 − q)) on a grid, and the error there."""
        high = REACH - math.log(math.expm1(self.epsilon / 2))
        low = -REACH - math.log(math.expm1(self.epsilon / 2 + self.delta))
        places = (low + STEP * i for i in range(math.ceil((high - low) / STEP)))
        error, place = min((self._at_place(place, centre).error, place) for place in places)
        return place, error

    def _refined(self, first: float, centre: int, tolerance: float) -> TwoSided:
        """Return the best ratio between the neighbours of a place on the grid, itself included."""
        second = least_place(
            lambda place: self._at_place(place, centre).error,
            first - STEP,
            first + STEP,
            tolerance,
        )
        found = [self._at_place(place, centre) for place in (second, first)]
        return min(found, key=lambda candidate: candidate.error)

    def _at_place(self, place: float, centre: int) -> TwoSided:
        return self._candidate(1 / (1 + math.exp(-place)), centre)

    def _candidate(self, ratio: float, centre: int) -> TwoSided:
        left_out = self._least_left_out(ratio, centre)
        mean, variance = two_sided_moments(ratio, centre)
        taking_part = 1 - left_out
        length = two_sided_length(ratio, centre, self.delta * TAIL_SHARE)
        decoys_limit = self._limit(self.population_size * taking_part)
        if length > LONGEST or self.patterns * mean > ROUNDING_ROOM * decoys_limit:
            return TwoSided(ratio, centre, left_out, math.inf)
        error = self._error(left_out / taking_part, mean, variance)
        return TwoSided(ratio, centre, left_out, error)

    def _least_left_out(self, ratio: float, centre: int) -> float:
        """Return the least 1 − β that keeps δ, by Newton's steps on a convex, jointed line.

        The ratio P/D has three values: 1 − β at 0, 1 − β + βq up to the centre, 1 − β + β/q above.
        """
        at_zero, below, above = two_sided_masses(ratio, centre)
        eta, spare = self._eta, self.delta * SEARCH_SHARE
        pairs = (
            (above * at_zero, 1 / ratio),
            (below * at_zero, ratio),
            (above * below, 1 / ratio - (1 + eta) * ratio),
        )
        left_out = 0.0
        for _ in range(len(pairs) + 1):
            excess, slope = -spare, 0.0
            for mass, step in pairs:  # each costs mass·[step − (1 − β)(step + η)]₊
                if step > left_out * (step + eta):
                    excess += mass * (step - left_out * (step + eta))
                    slope += mass * (step + eta)
            if excess <= 0:
                break
            left_out += excess / slope
        return min(left_out, 1 - 1e-15)

    @cached_property
    def _eta(self) -> float:
        return math.expm1(self.epsilon)


def short_ratio(ratio: float) -> float:
    """Round a number between 0 and 1 up, to about 16 binary digits of it and of its rest to 1.

    No plan is better for more digits, and fewer are the same on every machine.
    """
    digits = SHORT_DIGITS - math.floor(math.log2(min(ratio, 1 - ratio)))
    step = 2.0 ** -min(digits, FLOAT_DIGITS)
    return math.ceil(ratio / step) * step


def coin_leaving_out(share: float) -> Coin:
    """Return the coin that leaves out about this share of the respondents, or a little more."""
    if share < NEGLIGIBLE:
        return Coin(DRAW_RANGE)
    return Coin(max(DRAW_RANGE - int(DRAW_RANGE * short_ratio(share)), 1))


def two_sided_masses(ratio: float, centre: int) -> tuple[float, float, float]:
    """Return P(D = 0), P(1 ≤ D ≤ s) and P(D > s) for P(D = z) ∝ q^|z − s|."""
    tail = ratio**centre
    total = 1 + ratio - tail * ratio
    return tail * (1 - ratio) / total, (1 - tail) / total, ratio / total


def two_sided_moments(ratio: float, centre: int) -> tuple[float, float]:
    """Return the mean and the variance for P(D = z) ∝ q^|z − s|, z ≥ 0."""
    rest, tail = 1 - ratio, ratio**centre
    total = (1 + ratio - tail * ratio) / rest
    first_above, second_above = ratio / rest**2, ratio * (1 + ratio) / rest**3
    if centre <= DIRECT_SUM:
        powers = [ratio**k for k in range(centre + 1)]
        first_below = sum(k * power for k, power in enumerate(powers))
        second_below = sum(k * k * power for k, power in enumerate(powers))
    else:
        s, shorter = centre, tail * ratio
        first_below = ratio * (1 - (s + 1) * tail + s * shorter) / rest**2
        inner = (2 * s * s + 2 * s - 1) * shorter - s * s * shorter * ratio
        second_below = ratio * (1 + ratio - (s + 1) ** 2 * tail + inner) / rest**3
    shift = (first_above - first_below) / total
    return centre + shift, (second_above + second_below) / total - shift**2


def two_sided_length(ratio: float, centre: int, tail: float) -> int:
    """Return how many values z ≥ 0 there are before P(D = z) ∝ q^|z − s| falls below ``tail``."""
    peak = (1 - ratio) / (1 + ratio - ratio ** (centre + 1))
    return centre + 1 + max(1, math.ceil(math.log(tail / peak) / math.log(ratio)))


def two_sided_table(ratio: float, centre: int, tail: float) -> WeightTable:
    """Return integer weights for P(D = z) ∝ q^|z − s|, cut off where it falls below ``tail``.

    Powers are whole numbers over 2¹²⁸, rounded down, so that they are the same on every machine.
    What rounding leaves of 2⁶⁴ goes to the centre.
    """
    length = two_sided_length(ratio, centre, tail)
    numerator, denominator = ratio.as_integer_ratio()
    powers = [1 << POWER_BITS]
    while len(powers) < max(centre + 1, length - centre):
        powers.append(powers[-1] * numerator // denominator)
    steps = [powers[abs(z - centre)] for z in range(length)]
    total = sum(steps)
    weights = [DRAW_RANGE * step // total for step in steps]
    weights[centre] += DRAW_RANGE - sum(weights)
    return WeightTable(tuple(weights))
