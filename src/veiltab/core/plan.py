"""A plan: how many respondents to sample and how much to perturb, for a promise of privacy."""

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

from veiltab.core import parameters, privacy, utility
from veiltab.core.channel import GammaDiagonal
from veiltab.errors import InfeasiblePlanError, ParameterError

SMALLEST_EPSILON = 1e-9
"""Where the search for the smallest ε starts; below it a release would be pure noise anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperPlan:
    """What the paper's own choice, m*, would give: for comparison."""

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
    accounting: str = "pure"

    def __post_init__(self) -> None:
        """Check every number, then the promise itself, exactly."""
        parameters.check_population_size(self.population_size)
        parameters.check_domain_size(self.domain_size)
        parameters.check_epsilon(self.epsilon)
        parameters.check_delta(self.delta)
        parameters.check_sample_size(self.sample_size, self.population_size)
        if self.accounting != "pure":
            raise ParameterError(
                f"unknown accounting {self.accounting!r}", hint='the one there is is "pure"'
            )
        if not privacy.promise_holds(
            self.population_size, self.sample_size, self.channel, self.epsilon
        ):
            raise InfeasiblePlanError(
                f"the threshold {self.keep_threshold} spends more than epsilon {self.epsilon:g}",
                hint="let veiltab.plan choose the threshold",
            )

    @property
    def channel(self) -> GammaDiagonal:
        """The channel through which the server sends each sampled record."""
        return GammaDiagonal.from_threshold(self.domain_size, self.keep_threshold)

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
        """The ε that the integers really give, rounded up; never above ``epsilon``."""
        return privacy.epsilon_achieved(self.population_size, self.sample_size, self.channel)

    @property
    def delta_achieved(self) -> float:
        """The δ that is really spent."""
        return self.delta

    @property
    def epsilon_if_order_known(self) -> float:
        """What remains against somebody who knows who was sampled and in which order: ln γ."""
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
    def bytes_per_curator(self) -> int:
        """The least that carries m ciphertexts of log₂N bits: all that a curator sends, at most.

        A curator sends only its own attributes' part of it.
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
            "epsilon_achieved": self.epsilon_achieved,
            "delta_achieved": self.delta_achieved,
            "epsilon_if_order_known": self.epsilon_if_order_known,
            "rmse": self.rmse,
            "paper": asdict(self.paper),
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
            "give either an epsilon or a target RMSE: one of them, and not both",
            hint="epsilon is the privacy you promise; the target RMSE the error you can live with",
        )
    if epsilon is not None:
        return _plan_for_epsilon(population_size, domain_size, epsilon, sample_size)
    assert target_rmse is not None  # noqa: S101 - tells the type checker what was checked above
    return _plan_for_rmse(population_size, domain_size, target_rmse, sample_size)


def _plan_for_epsilon(
    population_size: int, domain_size: int, epsilon: float, sample_size: int | None
) -> Plan:
    parameters.check_epsilon(epsilon)
    if sample_size is not None:
        sizes = {sample_size}
    else:  # the error is convex in m, so the best integer is beside the best real number
        best = utility.minimax_sample_size(population_size, domain_size, epsilon)
        sizes = {math.floor(best), math.ceil(best)}
    candidates = [
        Plan(
            population_size=population_size,
            domain_size=domain_size,
            epsilon=float(epsilon),
            sample_size=size,
            keep_threshold=privacy.largest_keep_threshold(
                population_size, size, domain_size, epsilon
            ),
        )
        for size in sorted(sizes)
    ]
    return min(candidates, key=lambda candidate: candidate.rmse)


def _plan_for_rmse(
    population_size: int, domain_size: int, target_rmse: float, sample_size: int | None
) -> Plan:
    """Find the smallest ε by bisection; more ε never raises the error."""
    parameters.check_target_rmse(target_rmse)
    enough = float(parameters.MAX_EPSILON)
    found = _plan_for_epsilon(population_size, domain_size, enough, sample_size)
    if found.rmse > target_rmse:
        raise InfeasiblePlanError(
            f"no epsilon up to {parameters.MAX_EPSILON} reaches an RMSE of {target_rmse:g};"
            f" the least is {found.rmse:.3g}",
            hint="accept a larger error, or sample more respondents",
        )
    low, high = math.log(SMALLEST_EPSILON), math.log(enough)
    while high - low > 1e-12:  # noqa: PLR2004 - far below what anybody reads of ε
        middle = (low + high) / 2
        candidate = _plan_or_none(population_size, domain_size, math.exp(middle), sample_size)
        if candidate is not None and candidate.rmse <= target_rmse:
            high, found = middle, candidate
        else:
            low = middle
    return found


def _plan_or_none(
    population_size: int, domain_size: int, epsilon: float, sample_size: int | None
) -> Plan | None:
    try:
        return _plan_for_epsilon(population_size, domain_size, epsilon, sample_size)
    except InfeasiblePlanError:
        return None
