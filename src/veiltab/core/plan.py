"""A plan: how many respondents to sample and how much to perturb, for a promise of privacy."""

import math
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal, Self, cast, get_args

from veiltab.core import decoys, parameters, privacy, utility
from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.mechanism import (
    Coin,
    Geometric,
    Law,
    LinkageMode,
    Mechanism,
    Rank,
    WeightTable,
)
from veiltab.core.roots import last_root
from veiltab.errors import InfeasiblePlanError, ParameterError

PURE, SHUFFLE, DECOYS = "pure", "shuffle", "decoys"
ACCOUNTINGS = {PURE: 1, SHUFFLE: 1, DECOYS: 1}
"""The accountings and their versions: Theorem 1 alone, the privacy blanket, which needs a δ, and
the exact accounting of decoys."""

MechanismName = Literal["auto", "decoys", "paper", "shuffle"]
"""What users call the mechanisms; ``auto`` leaves the choice to the planner."""

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


@dataclass(frozen=True, slots=True)
class Ranked:
    """The numbers that only a plan by rank has: a known sample, and a channel."""

    population_size: int
    sample_size: int
    channel: GammaDiagonal

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that fixes a release's privacy; all else follows from these numbers.

    A plan that does not keep its promise cannot be built, wherever its numbers come from.
    ``population_size`` is None where decoys are planned before anybody knows how many respondents
    the curators have in common; their promise does not depend on it.
    """

    population_size: int | None
    domain_size: int
    epsilon: float
    delta: float = 0.0
    mechanism: Mechanism
    accounting: str = PURE
    linkage: LinkageMode = "aligned"
    epsilon_public: float = None  # type: ignore[assignment]  # left out, it becomes ε
    curator_cells: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        """Check every number, then the promise itself, exactly."""
        self._check_numbers()
        if cast("float | None", self.epsilon_public) is None:
            object.__setattr__(self, "epsilon_public", self.epsilon)
        parameters.check_epsilon(self.epsilon_public)
        if self.accounting not in ACCOUNTINGS:
            raise ParameterError(
                f"unknown accounting {self.accounting!r}",
                hint=f"choose one of {', '.join(ACCOUNTINGS)}",
            )
        if (self.accounting == DECOYS) != (self.mechanism.decoys is not None):
            raise ParameterError(
                f"the accounting {self.accounting!r} does not go with this mechanism",
                hint=f"decoys have an accounting of their own, {DECOYS!r}",
            )
        if not self._promise_holds():
            raise InfeasiblePlanError(self._broken_promise(), hint="let veiltab.plan choose it")

    def _check_numbers(self) -> None:
        if self.population_size is not None:
            parameters.check_population_size(self.population_size)
        parameters.check_domain_size(self.domain_size)
        parameters.check_epsilon(self.epsilon)
        parameters.check_delta(self.delta)
        parameters.check_linkage(self.linkage)
        if self.curator_cells is not None:
            parameters.check_curator_cells(self.curator_cells, self.domain_size)
        size = self.sample_size
        if size is not None:
            if self.population_size is None:
                raise ParameterError(
                    "a sample by rank needs a known population",
                    hint="give the population, or plan with decoys",
                )
            parameters.check_sample_size(size, self.population_size)
        elif self.patterns is not None:
            parameters.check_patterns(self.patterns)
        _ = self.channel  # refuses a threshold that leaves the cells uneven

    def _broken_promise(self) -> str:
        promise = f"epsilon {self.epsilon:g}, delta {self.delta:g}"
        law = self.mechanism.decoys
        if law is None:
            return f"the threshold {self.keep_threshold} spends more than {promise}"
        if isinstance(law, WeightTable) and self.delta == 0:
            return "a law of decoys with a largest number cannot keep a promise without delta"
        return f"the coin {self.coin_threshold} with this law of decoys spends more than {promise}"

    def _promise_holds(self) -> bool:
        if self.accounting == DECOYS:
            return self._decoys_keep_the_promise()
        if self.accounting == PURE:
            ranked = self.ranked
            return privacy.promise_holds(
                ranked.population_size, ranked.sample_size, ranked.channel, self.epsilon
            )
        if (
            self.delta == 0 or self.ranked.gamma == 1
        ):  # nothing to spend, or a γ that floats round to 1
            return False
        return 0 < self.delta_achieved <= self.delta

    def _decoys_keep_the_promise(self) -> bool:
        coin, law = self._coin_and_law
        if isinstance(law, Geometric):
            return decoys.pure_promise_holds(coin, law, self.epsilon)
        if self.delta == 0:
            return False
        return decoys.exact_delta(coin, law, self.epsilon) <= privacy.delta_below(self.delta)

    @classmethod
    def by_rank(
        cls,
        *,
        population_size: int,
        domain_size: int,
        epsilon: float,
        delta: float = 0.0,
        sample_size: int,
        keep_threshold: int,
        accounting: str = PURE,
        linkage: LinkageMode = "aligned",
        epsilon_public: float | None = None,
    ) -> Self:
        """Build a plan of the paper's kind: a sample cut by rank, and a channel, without decoys."""
        return cls(
            population_size=population_size,
            domain_size=domain_size,
            epsilon=epsilon,
            delta=delta,
            mechanism=Mechanism(Rank(sample_size), None, keep_threshold),
            accounting=accounting,
            linkage=linkage,
            epsilon_public=epsilon if epsilon_public is None else epsilon_public,
        )

    @property
    def ranked(self) -> Ranked:
        """Population, sample and channel of a plan by rank; other plans are refused."""
        population, size, channel = self.population_size, self.sample_size, self.channel
        if population is None or size is None or channel is None:
            raise ParameterError(
                "this plan has decoys, and no sample of a known size",
                hint="plan with mechanism='paper' or 'shuffle' where a cut by rank is meant",
            )
        return Ranked(population, size, channel)

    @property
    def _coin_and_law(self) -> tuple[Coin, Law]:
        coin, law = self.mechanism.coin, self.mechanism.decoys
        assert coin is not None  # noqa: S101 - decoys go with a coin
        assert law is not None  # noqa: S101 - as above
        return coin, law

    @property
    def mechanism_name(self) -> str:
        """What users call the mechanism: decoys, paper or shuffle."""
        return {PURE: "paper", SHUFFLE: "shuffle", DECOYS: "decoys"}[self.accounting]

    @property
    def accounting_version(self) -> int:
        """The version of the accounting, which goes with its name wherever a promise goes."""
        return ACCOUNTINGS[self.accounting]

    @property
    def sample_size(self) -> int | None:
        """How many respondents are sampled; None with a coin, which leaves the number open."""
        sampling = self.mechanism.sampling
        return sampling.size if isinstance(sampling, Rank) else None

    @property
    def coin_threshold(self) -> int | None:
        """The coin's c, with β = c/2⁶⁴; None by rank."""
        coin = self.mechanism.coin
        return None if coin is None else coin.threshold

    @property
    def coin_probability(self) -> float | None:
        """The chance β with which a respondent takes part, rounded for reading; None by rank."""
        coin = self.mechanism.coin
        return None if coin is None else float(coin.probability)

    @property
    def keep_threshold(self) -> int | None:
        """The channel's t, with p = t/2⁶⁴; None without a channel."""
        return self.mechanism.keep_threshold

    @property
    def channel(self) -> GammaDiagonal | None:
        """The channel through which the server sends each row, or None if it adds no noise."""
        if self.keep_threshold is None:
            return None
        return GammaDiagonal.from_threshold(self.domain_size, self.keep_threshold)

    @property
    def gamma(self) -> float | None:
        """The channel's γ, rounded for reading; None without a channel."""
        return None if self.channel is None else float(self.channel.gamma)

    @property
    def keep_probability(self) -> float | None:
        """The channel's p, rounded for reading; None without a channel."""
        return None if self.channel is None else float(self.channel.keep_probability)

    @property
    def patterns(self) -> int | None:
        """How many patterns of cells get decoys of their own.

        In matched linkage absence is one more category of each curator, except that nobody is
        absent from all: ∏(N_k + 1) − 1 patterns, None as long as the curators' cells are unknown.
        """
        if self.linkage == "aligned":
            return self.domain_size
        if self.curator_cells is None:
            return None
        return math.prod(cells + 1 for cells in self.curator_cells) - 1

    @property
    def expected_rows(self) -> float | None:
        """How many rows the researcher is expected to get; None if the population is unknown."""
        if self.sample_size is not None:
            return float(self.sample_size)
        if self.population_size is None:
            return None
        coin, _ = self._coin_and_law
        return self.population_size * float(coin.probability) + self.expected_decoys

    @property
    def expected_decoys(self) -> float:
        """How many decoys the joint table is expected to have; 0 by rank."""
        law = self.mechanism.decoys
        return 0.0 if law is None else self.domain_size * float(law.mean)

    @property
    def expected_pattern_decoys(self) -> float | None:
        """How many decoys are expected in all patterns, absence included; None if not known."""
        law = self.mechanism.decoys
        if law is None:
            return 0.0
        return None if self.patterns is None else self.patterns * float(law.mean)

    @property
    def epsilon_achieved(self) -> float:
        """The ε that the integers really give, rounded up; never above ``epsilon``.

        Where δ is spent it is the promised ε, and what is left over is in δ.
        """
        if self.accounting == PURE:
            ranked = self.ranked
            return privacy.epsilon_achieved(
                ranked.population_size, ranked.sample_size, ranked.channel
            )
        if self.accounting == DECOYS:
            coin, law = self._coin_and_law
            ratio = decoys.pure_ratio(coin, law) if isinstance(law, Geometric) else None
            if ratio is not None:
                return privacy.log_above(ratio)
        return self.epsilon

    @property
    def delta_achieved(self) -> float:
        """The δ that is really spent at ``epsilon_achieved``; never above ``delta``."""
        if self.accounting == PURE:
            return 0.0
        if self.accounting == DECOYS:
            coin, law = self._coin_and_law
            if isinstance(law, Geometric):
                return 0.0
            return privacy.float_above(decoys.exact_delta(coin, law, self.epsilon))
        from veiltab.core.accounting import Blanket, sampled_delta  # noqa: PLC0415 - needs SciPy

        ranked = self.ranked
        blanket = Blanket(ranked.sample_size, self.domain_size, ranked.gamma)
        return sampled_delta(ranked.population_size, blanket, self.epsilon, self.delta)

    @property
    def epsilon_with_curator(self) -> float | None:
        """The ε against a researcher whom a curator helps: ln γ; None if the server adds no noise.

        The curator knows who was sampled, in which order, and every decoy.
        """
        return None if self.channel is None else privacy.epsilon_if_order_known(self.channel)

    @property
    def epsilon_if_order_known(self) -> float | None:
        """The same number as ``epsilon_with_curator``, under its older name."""
        return self.epsilon_with_curator

    @property
    def epsilon_membership(self) -> float | None:
        """The ε for somebody whose record is added or removed, not replaced (matched linkage only).

        It holds with the plan's δ.  None if the linkage is aligned, or if there is no finite ε.
        """
        if self.linkage == "aligned" or self.mechanism.decoys is None:
            return None
        coin, law = self._coin_and_law
        if isinstance(law, Geometric):
            return decoys.epsilon_above(decoys.membership_ratio(coin, law))
        delta = privacy.delta_below(self.delta)
        return decoys.epsilon_above(decoys.membership_ratio_with_delta(coin, law, delta))

    @property
    def rmse(self) -> float:
        """The exact root mean squared ℓ₂ error of the joint table, for the hardest data."""
        ranked = self.ranked
        return utility.exact_rmse(
            ranked.population_size,
            ranked.sample_size,
            self.domain_size,
            ranked.channel.gamma,
            Fraction(1, self.domain_size),
        )

    @property
    def trusted_party_rmse(self) -> float:
        """What a party trusted with all records would reach by adding Laplace noise to counts."""
        return utility.laplace_rmse(self._population, self.domain_size, self.epsilon)

    @property
    def _population(self) -> int:
        if self.population_size is None:
            raise ParameterError(
                "without a population there is no error to state",
                hint="plan with an estimate of the number of respondents in common",
            )
        return self.population_size

    @property
    def bytes_per_curator(self) -> int:
        """How many bytes the expected rows take, at log₂N bits each: the most a curator sends.

        A curator sends only the part of its own attributes.
        """
        rows = self.expected_rows
        assert rows is not None or self._population  # noqa: S101 - raises without a population
        return math.ceil((rows or 0) * math.log2(self.domain_size) / 8)

    @property
    def paper(self) -> PaperPlan:
        """The paper's way for the same population, cells and ε: its m*, and its bounds there."""
        population = self._population
        best = utility.paper_sample_size(population, self.domain_size, self.epsilon)
        gamma = privacy.gamma_for(population, best, self.epsilon)
        return PaperPlan(
            optimal_sample_size=best,
            gamma=gamma,
            error_bound=utility.error_bound(best, self.domain_size, gamma),
            tightened_bound=utility.tightened_bound(best, self.domain_size, gamma),
            rmse=utility.worst_case_rmse(population, best, self.domain_size, gamma),
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
            "keep_threshold": None if self.keep_threshold is None else str(self.keep_threshold),
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
    mechanism: MechanismName = "auto",
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
    _check_mechanism(mechanism, delta)
    if (epsilon is None) == (target_rmse is None):
        raise ParameterError(
            "give either an epsilon or a target RMSE, and not both",
            hint="epsilon is the privacy you promise, the target RMSE is the error you accept",
        )
    size = None if sample_size is None else int(sample_size)  # NumPy's numbers would overflow
    question = _Question(int(population_size), int(domain_size), delta, size, mechanism)
    if epsilon is not None:
        return question.plan_for_epsilon(epsilon)
    assert target_rmse is not None  # noqa: S101 - tells the type checker what was checked above
    return question.plan_for_rmse(target_rmse)


def _check_mechanism(mechanism: str, delta: float) -> None:
    if mechanism not in get_args(MechanismName):
        raise ParameterError(
            f"there is no mechanism {mechanism!r}",
            hint=f"choose one of {', '.join(get_args(MechanismName))}",
        )
    if mechanism == "decoys":
        raise InfeasiblePlanError("decoys are not planned yet", hint="choose another mechanism")
    if mechanism == "shuffle" and delta == 0:
        raise ParameterError(
            "shuffling gains nothing without a delta",
            hint="allow a small delta, such as 1e-6, or choose the mechanism 'paper'",
        )


@dataclass(frozen=True, slots=True)
class _Question:
    """A question to the planner, apart from ε and the target."""

    population_size: int
    domain_size: int
    delta: float
    sample_size: int | None
    mechanism: MechanismName

    def plan_for_epsilon(self, epsilon: float) -> Plan:
        """Return the better of both accountings; with δ = 0 there is only the paper's."""
        parameters.check_epsilon(epsilon)
        plans: list[Plan] = []
        refused: InfeasiblePlanError | None = None
        try:
            plans.append(self._pure(epsilon))
        except InfeasiblePlanError as error:
            refused = error
        if self.delta > 0 and self.mechanism != "paper":
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
        return Plan.by_rank(
            population_size=self.population_size,
            domain_size=self.domain_size,
            epsilon=float(epsilon),
            delta=float(self.delta),
            sample_size=size,
            keep_threshold=threshold,
            accounting=accounting,
        )
