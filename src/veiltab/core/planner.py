"""How plans are found: the least worst-case error for a promise, or the least ε for an error.

Every candidate is a :class:`~veiltab.core.plan.Plan`, which checks its promise exactly; what is
compared is the exact error of what would really be run, the server's noise included.
"""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import get_args

from veiltab.core import parameters, privacy, utility
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.comparison import ShufflePlan
from veiltab.core.decoy_search import DecoySearch
from veiltab.core.mechanism import Coin, Law, LinkageMode, Mechanism
from veiltab.core.plan import DECOYS, PURE, SHUFFLE, MechanismName, Plan
from veiltab.core.roots import last_root
from veiltab.errors import InfeasiblePlanError, ParameterError

VERIFIERS_ROOM = 1 - 1e-6
"""The share of δ that shuffled plans use, so that parties who round differently find it kept."""

CLEARLY = 1.02
"""A rough error larger by this factor rules a sample size out."""

FAR = 50.0
"""Replaces the logarithm of an infinite error."""

SMALLEST_EPSILON = 1e-9
"""The least ε that is searched; below it a release would be pure noise anyway."""

CHANNELS_PART = 1.1
"""By default the server's noise makes the error of decoys larger by this factor."""

NO_NOISE = 1e100
"""A γ that replaces next to no record."""

CHANNEL_DIGITS = 24
"""How many binary digits the server's default noise has."""

DELTAS_GAIN = 0.999
"""A law of decoys that spends δ must lower the error by this factor against one that does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question to the planner, apart from ε and the target."""

    population_size: int
    domain_size: int
    delta: float = 0.0
    sample_size: int | None = None
    mechanism: MechanismName = "auto"
    epsilon_with_curator: float | None = None
    epsilon_public: float | None = None
    linkage: LinkageMode = "aligned"
    curator_cells: tuple[int, ...] | None = None
    max_decoys: float | None = None

    def __post_init__(self) -> None:
        """Check each number, and that they do not contradict each other."""
        parameters.check_population_size(self.population_size)
        parameters.check_domain_size(self.domain_size)
        parameters.check_delta(self.delta)
        parameters.check_linkage(self.linkage)
        if self.sample_size is not None:
            parameters.check_sample_size(self.sample_size, self.population_size)
        if self.epsilon_with_curator is not None:
            parameters.check_epsilon_with_curator(self.epsilon_with_curator)
        if self.epsilon_public is not None:
            parameters.check_epsilon(self.epsilon_public, "epsilon_public")
        if self.curator_cells is not None:
            parameters.check_curator_cells(self.curator_cells, self.domain_size)
        if self.max_decoys is not None:
            parameters.check_max_decoys(self.max_decoys)
        self._check_mechanism()
        for name in ("population_size", "domain_size", "sample_size"):
            value = getattr(self, name)
            if value is not None:  # NumPy's numbers would overflow
                object.__setattr__(self, name, int(value))

    def _check_mechanism(self) -> None:
        if self.mechanism not in get_args(MechanismName):
            raise ParameterError(
                f"there is no mechanism {self.mechanism!r}",
                hint=f"choose one of {', '.join(get_args(MechanismName))}",
            )
        if self.mechanism == "shuffle" and self.delta == 0:
            raise ParameterError(
                "shuffling gains nothing without a delta",
                hint="allow a small delta, such as 1e-6, or choose the mechanism 'paper'",
            )
        if self.mechanism == "decoys" and self.sample_size is not None:
            raise ParameterError(
                "with decoys the size of the sample cannot be fixed",
                hint="each respondent takes part by a coin; leave the sample size out, or choose"
                " the mechanism 'paper'",
            )

    def plan_for_epsilon(self, epsilon: float) -> Plan:
        """Return the plan with the least error among those that the question allows.

        Where the choice is free, decoys are taken if they can be: no other mechanism promises
        anything against researcher and server together, however small its error.
        """
        parameters.check_epsilon(epsilon)
        if self._free:
            with contextlib.suppress(InfeasiblePlanError):
                return min(self._decoys(epsilon), key=lambda candidate: candidate.rmse)
        plans: list[Plan] = []
        refused: InfeasiblePlanError | None = None
        for way in self._ways():
            try:
                plans += way(epsilon)
            except InfeasiblePlanError as error:
                refused = refused or error
        if not plans:
            assert refused is not None  # noqa: S101 - some way was tried
            raise refused
        return min(plans, key=lambda candidate: candidate.rmse)

    @property
    def _free(self) -> bool:
        """Whether the planner chooses the mechanism; a sample of a fixed size has no decoys."""
        return self.mechanism == "auto" and self.sample_size is None

    def _ways(self) -> list[Callable[[float], list[Plan]]]:
        if self.mechanism == "decoys":
            return [self._decoys]
        ways: list[Callable[[float], list[Plan]]] = [self._pure]
        if self.delta > 0 and self.mechanism != "paper":
            ways.append(self._shuffled)
        return ways

    def plan_for_rmse(self, target_rmse: float) -> Plan:
        """Find the smallest ε; more ε never raises the error."""
        parameters.check_target_rmse(target_rmse)
        if not self._free:
            return _smallest_epsilon(self, target_rmse)
        try:
            return _smallest_epsilon(replace(self, mechanism="decoys"), target_rmse)
        except InfeasiblePlanError:
            by_rank = replace(self, mechanism="shuffle" if self.delta else "paper")
            return _smallest_epsilon(by_rank, target_rmse)

    def plan_or_none(self, epsilon: float) -> Plan | None:
        """Return the plan for ε, or None if there is none."""
        try:
            return self.plan_for_epsilon(epsilon)
        except InfeasiblePlanError:
            return None

    def _decoys(self, epsilon: float) -> list[Plan]:
        """Return the best plans with decoys: without δ, and with it where that gains enough."""
        fixed = self._curators_threshold()
        gamma = None if fixed is None else float(self._channel_gamma(fixed))
        search = DecoySearch(
            self.population_size,
            self.domain_size,
            epsilon,
            self.delta,
            self.linkage,
            gamma,
            self._patterns(),
            self.max_decoys,
        )
        pure = self._decoys_plan(epsilon, *search.geometric(), fixed)
        if self.delta == 0:
            return [pure]
        try:
            found = search.two_sided()
        except InfeasiblePlanError:
            if self.mechanism == "decoys":
                raise
            found = None
        if found is None:
            return [pure]
        spending = self._decoys_plan(epsilon, *found, fixed)
        return [spending if spending.rmse < DELTAS_GAIN * pure.rmse else pure]

    def _patterns(self) -> int:
        """Return how many patterns get decoys; the joint cells while the curators' are unknown."""
        if self.linkage == "aligned" or self.curator_cells is None:
            return self.domain_size
        return math.prod(cells + 1 for cells in self.curator_cells) - 1

    def _curators_threshold(self) -> int | None:
        """Return the channel's threshold if the ε against a helping curator is fixed."""
        if self.epsilon_with_curator in (None, math.inf):
            return None
        assert self.epsilon_with_curator is not None  # noqa: S101 - for the type checker
        return privacy.curator_keep_threshold(self.domain_size, self.epsilon_with_curator)

    def _channel_gamma(self, threshold: int) -> Fraction:
        return 1 + Fraction(threshold * self.domain_size, DRAW_RANGE - threshold)

    def _decoys_plan(self, epsilon: float, coin: Coin, law: Law, threshold: int | None) -> Plan:
        plan = Plan(
            population_size=self.population_size,
            domain_size=self.domain_size,
            epsilon=float(epsilon),
            delta=float(self.delta),
            mechanism=Mechanism(coin, law, threshold),
            accounting=DECOYS,
            linkage=self.linkage,
            epsilon_public=self._epsilon_public(epsilon),
            curator_cells=self.curator_cells,
        )
        if self.epsilon_with_curator is not None:
            return plan
        return replace(plan, mechanism=Mechanism(coin, law, self._default_threshold(plan)))

    def _default_threshold(self, plan: Plan) -> int | None:
        """Return the threshold at which the channel makes the error a tenth larger.

        The channel adds (1/p² − 1)(1 − 1/N) times the expected rows to the squared error of the
        counts; no channel is left if that asks for less noise than 64 bits can draw.
        """
        assert plan.expected_rows is not None  # noqa: S101 - the population is known
        assert plan.coin_probability is not None  # noqa: S101 - decoys have a coin
        sampled = self.population_size * plan.coin_probability
        room = (CHANNELS_PART**2 - 1) * (plan.rmse * sampled) ** 2
        noise = room / (plan.expected_rows * (1 - 1 / self.domain_size))  # 1/p² − 1
        replaced = -math.expm1(-0.5 * math.log1p(noise))
        width = int(replaced * DRAW_RANGE / self.domain_size)
        surplus = max(0, width.bit_length() - CHANNEL_DIGITS)
        width = width >> surplus << surplus  # the same on every machine
        return DRAW_RANGE - self.domain_size * width if width else None

    def _epsilon_public(self, epsilon: float) -> float:
        return float(epsilon if self.epsilon_public is None else self.epsilon_public)

    def _pure(self, epsilon: float) -> list[Plan]:
        """Return the paper's way at its best: Theorem 1 and the minimax sample size.

        If γ is limited, larger samples than the best one can cost nothing.
        """
        n, cells = self.population_size, self.domain_size
        fixed = self._curators_threshold()
        if self.sample_size is not None:
            sizes = {self.sample_size}
        else:  # the error is convex in m, so the best integer is beside the best real number
            best = utility.minimax_sample_size(n, cells, epsilon)
            sizes = {math.floor(best), math.ceil(best)}
            if fixed is not None:
                free = n * math.expm1(epsilon) / float(self._channel_gamma(fixed) - 1)
                sizes |= {min(n, max(1, round_(free))) for round_ in (math.floor, math.ceil)}
        plans = []
        for m in sorted(sizes):
            threshold = privacy.largest_keep_threshold(n, m, cells, epsilon)
            plans.append(self._by_rank(epsilon, m, min(threshold, fixed or threshold), PURE))
        return [min(plans, key=lambda candidate: candidate.rmse)]

    def _shuffled(self, epsilon: float) -> list[Plan]:
        """Return plans by shuffling: for everybody, and for smaller samples while they gain."""
        plans: list[Plan] = []
        for size in self._shuffled_sizes():
            if plans and self._without_noise(size) > CLEARLY * plans[-1].rmse:
                break
            if plans and self._rough_rmse(epsilon, size) > CLEARLY * plans[-1].rmse:
                break
            candidate = self._shuffled_sample(epsilon, size)
            if candidate is not None:
                plans.append(candidate)
        return plans

    def _shuffled_sizes(self) -> list[int]:
        """Return the sizes of samples to try, the largest first."""
        sizes = {round(self.population_size / 2 ** (k / 2)) for k in range(64)}
        if self.sample_size is not None:
            sizes = {self.sample_size}
        n, delta = self.population_size, self.delta
        worth = (m for m in sizes if m >= 1 and privacy.is_worth_delta(n, m, delta))
        return sorted(worth, reverse=True)

    def shuffled_rmse_at_most(self, epsilon: float) -> float:
        """Return an error that shuffling reaches, a few percent above its least, in no time.

        It is that of the paper's way if shuffling gains nothing.
        """
        parameters.check_epsilon(epsilon)
        least = self._pure(epsilon)[0].rmse
        best = math.inf
        for size in self._shuffled_sizes():
            if self._is_beaten(epsilon, size, CLEARLY * best):
                break
            rough = self._rough_rmse(epsilon, size)
            if rough > CLEARLY * best:
                break
            best = min(best, rough)
        return min(least, best)

    def _without_noise(self, size: int) -> float:
        """Return the error of a sample alone, which no γ can go below; it grows as samples fall."""
        n, cells = self.population_size, self.domain_size
        return utility.worst_case_rmse(n, size, cells, NO_NOISE)

    def _is_beaten(self, epsilon: float, size: int, rmse: float) -> bool:
        """Tell whether a shuffled sample has a larger error than this, which is soon computed."""
        from veiltab.core.accounting import roughly_keeps  # noqa: PLC0415 - needs SciPy

        if rmse == math.inf:
            return False
        n, cells, fixed = self.population_size, self.domain_size, self._curators_threshold()
        needed = utility.gamma_reaching(n, size, cells, rmse)
        if fixed is not None and needed > self._channel_gamma(fixed):
            return True
        return not roughly_keeps(n, size, cells, epsilon, self.delta, gamma=needed)

    def _rough_rmse(self, epsilon: float, size: int) -> float:
        """Return roughly the error of a shuffled sample, to see whether it is worth a plan."""
        from veiltab.core.accounting import rough_gamma, roughly_keeps  # noqa: PLC0415 - as above

        n, cells, fixed = self.population_size, self.domain_size, self._curators_threshold()
        limit = math.inf if fixed is None else float(self._channel_gamma(fixed))
        if limit < math.inf and roughly_keeps(n, size, cells, epsilon, self.delta, gamma=limit):
            return utility.worst_case_rmse(n, size, cells, limit)
        gamma = rough_gamma(n, size, cells, epsilon, self.delta)
        if gamma is None:
            return math.inf
        return utility.worst_case_rmse(n, size, cells, min(gamma, limit))

    def _shuffled_sample(self, epsilon: float, size: int) -> Plan | None:
        from veiltab.core.accounting import largest_gamma  # noqa: PLC0415 - needs SciPy

        n, cells = self.population_size, self.domain_size
        gamma = largest_gamma(n, size, cells, epsilon, self.delta * VERIFIERS_ROOM)
        if gamma is None:
            return None
        width = math.ceil(DRAW_RANGE / (cells + Fraction(gamma) - 1))
        threshold = DRAW_RANGE - cells * width
        try:
            fixed = self._curators_threshold() or threshold
            return self._by_rank(epsilon, size, min(threshold, fixed), SHUFFLE)
        except (InfeasiblePlanError, ParameterError):  # too few records would be kept for 64 bits
            return None

    def _by_rank(self, epsilon: float, size: int, threshold: int, accounting: str) -> Plan:
        return Plan.by_rank(
            population_size=self.population_size,
            domain_size=self.domain_size,
            epsilon=float(epsilon),
            delta=float(self.delta),
            sample_size=size,
            keep_threshold=threshold,
            accounting=accounting,
            linkage=self.linkage,
            epsilon_public=self._epsilon_public(epsilon),
        )


def _smallest_epsilon(question: Question, target_rmse: float) -> Plan:
    """Return the plan with the smallest ε whose error is at most the target."""
    largest = float(parameters.MAX_EPSILON)
    best = question.plan_for_epsilon(largest)
    if best.rmse > target_rmse:
        raise InfeasiblePlanError(
            f"no epsilon up to {parameters.MAX_EPSILON} reaches an RMSE of {target_rmse:g};"
            f" the least is {best.rmse:.3g}",
            hint="accept a larger error, or sample more respondents",
        )

    def excess(strictness: float) -> float:
        nonlocal best
        candidate = question.plan_or_none(math.exp(-strictness))
        if candidate is None:
            return FAR
        if candidate.rmse <= target_rmse and candidate.epsilon < best.epsilon:
            best = candidate
        return math.log(candidate.rmse / target_rmse)

    precision = 1e-12 if question.delta == 0 else 1e-4  # each step is slower with δ
    last_root(excess, -math.log(largest), -math.log(SMALLEST_EPSILON), 1.0, precision)
    return best


@lru_cache(maxsize=64)
def shuffled_plan(
    population_size: int, domain_size: int, epsilon: float, delta: float
) -> ShufflePlan | None:
    """Return what shuffling would give, or None if it gains nothing beyond the paper's way."""
    if delta == 0:
        return None
    question = Question(
        population_size=population_size, domain_size=domain_size, delta=delta, mechanism="shuffle"
    )
    try:
        best = question.plan_for_epsilon(epsilon)
    except InfeasiblePlanError:
        return None
    if best.accounting != SHUFFLE:
        return None
    ranked = best.ranked
    return ShufflePlan(sample_size=ranked.sample_size, gamma=ranked.gamma, rmse=best.rmse)
