"""A plan: how many respondents to sample and how much to perturb, for a promise of privacy."""

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from veiltab.core import parameters, privacy, utility
from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.roots import last_root
from veiltab.errors import InfeasiblePlanError, ParameterError

PURE, SHUFFLE = "pure", "shuffle"
ACCOUNTINGS = {PURE: 1, SHUFFLE: 1}
"""The accountings and their versions: Theorem 1 alone, and the privacy blanket, which needs a δ."""

VERIFIERS_ROOM = 1 - 1e-6
"""The share of δ that plans use, so that parties who round differently find it kept as well."""

CLEARLY = 1.02
"""A rough error larger by this factor rules a sample size out."""

FAR = 50.0
"""Replaces the logarithm of an infinite error."""

SMALLEST_EPSILON = 1e-9
"""The least ε that is searched; below it a release would be pure noise anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperPlan:
    """What the paper's own choice m* would give, for comparison."""

    optimal_sample_size: int
    gamma: float
    error_bound: float
    tightened_bound: float
    rmse: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that fixes a release's privacy; all else follows from these numbers.

    A plan that does not keep its promise cannot be built, wherever its numbers come from.
    """

    population_size: int
    domain_size: int
    epsilon: float
    delta: float = 0.0
    sample_size: int
    keep_threshold: int
    accounting: str = PURE

    def __post_init__(self) -> None:
        """Check every number, then the promise itself, exactly."""
        parameters.check_population_size(self.population_size)
        parameters.check_domain_size(self.domain_size)
        parameters.check_epsilon(self.epsilon)
        parameters.check_delta(self.delta)
        parameters.check_sample_size(self.sample_size, self.population_size)
        if self.accounting not in ACCOUNTINGS:
            raise ParameterError(
                f"unknown accounting {self.accounting!r}",
                hint=f"choose one of {', '.join(ACCOUNTINGS)}",
            )
        if not self._promise_holds():
            raise InfeasiblePlanError(
                f"the threshold {self.keep_threshold} spends more than epsilon {self.epsilon:g},"
                f" delta {self.delta:g}",
                hint="let veiltab.plan choose the threshold",
            )

    def _promise_holds(self) -> bool:
        if self.accounting == PURE:
            return privacy.promise_holds(
                self.population_size, self.sample_size, self.channel, self.epsilon
            )
        if self.delta == 0 or self.gamma == 1:  # nothing to spend, or a γ that floats round to 1
            return False
        return 0 < self.delta_achieved <= self.delta

    @property
    def channel(self) -> GammaDiagonal:
        """The channel through which the server sends each sampled record."""
        return GammaDiagonal.from_threshold(self.domain_size, self.keep_threshold)

    @property
    def accounting_version(self) -> int:
        """The version of the accounting, which goes with its name wherever a promise goes."""
        return ACCOUNTINGS[self.accounting]

    @property
    def gamma(self) -> float:
        """The channel's γ, rounded for reading."""
        return float(self.channel.gamma)

    @property
    def keep_probability(self) -> float:
        """The channel's p, rounded for reading."""
        return float(self.channel.keep_probability)

    @property
    def epsilon_achieved(self) -> float:
        """The ε that the integers really give, rounded up; never above ``epsilon``.

        With the shuffle accounting it is the promised ε, and what is left over is in δ.
        """
        if self.accounting == SHUFFLE:
            return self.epsilon
        return privacy.epsilon_achieved(self.population_size, self.sample_size, self.channel)

    @property
    def delta_achieved(self) -> float:
        """The δ that is really spent at ``epsilon_achieved``; never above ``delta``."""
        if self.accounting == PURE:
            return 0.0
        from veiltab.core.accounting import Blanket, sampled_delta  # noqa: PLC0415 - needs SciPy

        blanket = Blanket(self.sample_size, self.domain_size, self.gamma)
        return sampled_delta(self.population_size, blanket, self.epsilon, self.delta)

    @property
    def epsilon_if_order_known(self) -> float:
        """The ε against somebody who knows who was sampled, and in which order: ln γ."""
        return privacy.epsilon_if_order_known(self.channel)

    @property
    def rmse(self) -> float:
        """The exact root mean squared ℓ₂ error of the joint table, for the hardest data."""
        return utility.exact_rmse(
            self.population_size,
            self.sample_size,
            self.domain_size,
            self.channel.gamma,
            Fraction(1, self.domain_size),
        )

    @property
    def trusted_party_rmse(self) -> float:
        """What a party trusted with all records would reach by adding Laplace noise to counts."""
        return utility.laplace_rmse(self.population_size, self.domain_size, self.epsilon)

    @property
    def bytes_per_curator(self) -> int:
        """How many bytes m ciphertexts of log₂N bits take: the most that a curator sends.

        A curator sends only the part of its own attributes.
        """
        return math.ceil(self.sample_size * math.log2(self.domain_size) / 8)

    @property
    def paper(self) -> PaperPlan:
        """The paper's way for the same population, cells and ε: its m*, and its bounds there."""
        best = utility.paper_sample_size(self.population_size, self.domain_size, self.epsilon)
        gamma = privacy.gamma_for(self.population_size, best, self.epsilon)
        return PaperPlan(
            optimal_sample_size=best,
            gamma=gamma,
            error_bound=utility.error_bound(best, self.domain_size, gamma),
            tightened_bound=utility.tightened_bound(best, self.domain_size, gamma),
            rmse=utility.worst_case_rmse(self.population_size, best, self.domain_size, gamma),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as ``veiltab plan --json`` prints it."""
        return {
            "population_size": self.population_size,
            "domain_size": self.domain_size,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "sample_size": self.sample_size,
            "gamma": self.gamma,
            "keep_probability": self.keep_probability,
            # A 64-bit integer does not survive JSON readers that use floats for numbers.
            "keep_threshold": str(self.keep_threshold),
            "accounting": self.accounting,
            "accounting_version": self.accounting_version,
            "epsilon_achieved": self.epsilon_achieved,
            "delta_achieved": self.delta_achieved,
            "epsilon_if_order_known": self.epsilon_if_order_known,
            "rmse": self.rmse,
            "paper": asdict(self.paper),
            "trusted_party_rmse": self.trusted_party_rmse,
            "bytes_per_curator": self.bytes_per_curator,
        }


def plan(
    *,
    population_size: int,
    domain_size: int,
    epsilon: float | None = None,
    delta: float = 0.0,
    sample_size: int | None = None,
    target_rmse: float | None = None,
) -> Plan:
    """Plan a release of a joint table of ``domain_size`` cells about ``population_size`` people.

    Give ``epsilon`` to get the least worst-case error for that promise, or ``target_rmse`` to get
    the smallest ε that reaches it.  ``sample_size`` fixes the sample; otherwise the best is taken.
    """
    parameters.check_population_size(population_size)
    parameters.check_domain_size(domain_size)
    parameters.check_delta(delta)
    if sample_size is not None:
        parameters.check_sample_size(sample_size, population_size)
    if (epsilon is None) == (target_rmse is None):
        raise ParameterError(
            "give either an epsilon or a target RMSE, and not both",
            hint="epsilon is the privacy you promise, the target RMSE is the error you accept",
        )
    size = None if sample_size is None else int(sample_size)  # NumPy's numbers would overflow
    question = _Question(int(population_size), int(domain_size), delta, size)
    if epsilon is not None:
        return question.plan_for_epsilon(epsilon)
    assert target_rmse is not None  # noqa: S101 - tells the type checker what was checked above
    return question.plan_for_rmse(target_rmse)


@dataclass(frozen=True, slots=True)
class _Question:
    """A question to the planner, apart from ε and the target."""

    population_size: int
    domain_size: int
    delta: float
    sample_size: int | None

    def plan_for_epsilon(self, epsilon: float) -> Plan:
        """Return the better of both accountings; with δ = 0 there is only the paper's."""
        parameters.check_epsilon(epsilon)
        plans: list[Plan] = []
        refused: InfeasiblePlanError | None = None
        try:
            plans.append(self._pure(epsilon))
        except InfeasiblePlanError as error:
            refused = error
        if self.delta > 0:
            plans += self._shuffled(epsilon)
        if not plans:
            assert refused is not None  # noqa: S101 - one of both was tried
            raise refused
        return min(plans, key=lambda candidate: candidate.rmse)

    def plan_for_rmse(self, target_rmse: float) -> Plan:
        """Find the smallest ε; more ε never raises the error."""
        parameters.check_target_rmse(target_rmse)
        largest = float(parameters.MAX_EPSILON)
        best = self.plan_for_epsilon(largest)
        if best.rmse > target_rmse:
            raise InfeasiblePlanError(
                f"no epsilon up to {parameters.MAX_EPSILON} reaches an RMSE of {target_rmse:g};"
                f" the least is {best.rmse:.3g}",
                hint="accept a larger error, or sample more respondents",
            )

        def excess(strictness: float) -> float:
            nonlocal best
            candidate = self._plan_or_none(math.exp(-strictness))
            if candidate is None:
                return FAR
            if candidate.rmse <= target_rmse and candidate.epsilon < best.epsilon:
                best = candidate
            return math.log(candidate.rmse / target_rmse)

        precision = 1e-12 if self.delta == 0 else 1e-4  # each step is slower with δ
        last_root(excess, -math.log(largest), -math.log(SMALLEST_EPSILON), 1.0, precision)
        return best

    def _plan_or_none(self, epsilon: float) -> Plan | None:
        try:
            return self.plan_for_epsilon(epsilon)
        except InfeasiblePlanError:
            return None

    def _pure(self, epsilon: float) -> Plan:
        """Return the paper's way at its best: Theorem 1 and the minimax sample size."""
        n, cells = self.population_size, self.domain_size
        if self.sample_size is not None:
            sizes = {self.sample_size}
        else:  # the error is convex in m, so the best integer is beside the best real number
            best = utility.minimax_sample_size(n, cells, epsilon)
            sizes = {math.floor(best), math.ceil(best)}
        plans = [
            self._plan(epsilon, m, privacy.largest_keep_threshold(n, m, cells, epsilon), PURE)
            for m in sorted(sizes)
        ]
        return min(plans, key=lambda candidate: candidate.rmse)

    def _shuffled(self, epsilon: float) -> list[Plan]:
        """Return plans by shuffling: for everybody, and for smaller samples while they gain."""
        sizes = {round(self.population_size / 2 ** (k / 2)) for k in range(64)}
        if self.sample_size is not None:
            sizes = {self.sample_size}
        # With m ≤ δn, δ would even allow releasing the sample in the clear; we do not.
        least = self.delta * self.population_size / parameters.LARGEST_DELTA
        plans: list[Plan] = []
        for size in sorted((m for m in sizes if m >= max(1, least)), reverse=True):
            if plans and self._rough_rmse(epsilon, size) > CLEARLY * plans[-1].rmse:
                break
            candidate = self._shuffled_sample(epsilon, size)
            if candidate is not None:
                plans.append(candidate)
        return plans

    def _rough_rmse(self, epsilon: float, size: int) -> float:
        """Return roughly the error of a shuffled sample, to see whether it is worth a plan."""
        from veiltab.core.accounting import rough_gamma  # noqa: PLC0415 - needs SciPy

        gamma = rough_gamma(self.population_size, size, self.domain_size, epsilon, self.delta)
        if gamma is None:
            return math.inf
        return utility.worst_case_rmse(self.population_size, size, self.domain_size, gamma)

    def _shuffled_sample(self, epsilon: float, size: int) -> Plan | None:
        from veiltab.core.accounting import largest_gamma  # noqa: PLC0415 - needs SciPy

        n, cells = self.population_size, self.domain_size
        gamma = largest_gamma(n, size, cells, epsilon, self.delta * VERIFIERS_ROOM)
        if gamma is None:
            return None
        width = math.ceil(DRAW_RANGE / (cells + Fraction(gamma) - 1))
        threshold = DRAW_RANGE - cells * width
        try:
            return self._plan(epsilon, size, threshold, SHUFFLE)
        except (InfeasiblePlanError, ParameterError):  # too few records would be kept for 64 bits
            return None

    def _plan(self, epsilon: float, size: int, threshold: int, accounting: str) -> Plan:
        return Plan(
            population_size=self.population_size,
            domain_size=self.domain_size,
            epsilon=float(epsilon),
            delta=float(self.delta),
            sample_size=size,
            keep_threshold=threshold,
            accounting=accounting,
        )
