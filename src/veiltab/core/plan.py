"""A plan: what is done to the records of a study, what that promises, and the error to expect."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal, Self, cast

from veiltab.core import parameters, privacy, utility
from veiltab.core.channel import GammaDiagonal
from veiltab.core.comparison import (
    DecoysSummary,
    PaperPlan,
    ShufflePlan,
    TrustedParty,
    decoys_summary,
    paper_plan,
)
from veiltab.core.mechanism import LinkageMode, Mechanism, Rank, WeightTable
from veiltab.core.parameters import plain
from veiltab.core.promises import DecoyRelease, RankedRelease, known_population
from veiltab.errors import InfeasiblePlanError, ParameterError, UselessPlanError
from veiltab.remedies import Remedy

PURE, SHUFFLE, DECOYS = "pure", "shuffle", "decoys"
ACCOUNTINGS = {PURE: 1, SHUFFLE: 1, DECOYS: 1}
"""The accountings and their versions: Theorem 1 alone, the privacy blanket, which needs a δ, and
the exact accounting of decoys."""

ERROR_KEYS = (
    "rmse",
    "rmse_per_cell",
    "rmse_published",
    "paper",
    "shuffle",
    "trusted",
    "trusted_party_rmse",
    "bytes_per_curator",
)
"""The keys of a plan's JSON that need a population."""

MANY = 100_000
"""Where nobody knows how many respondents there are, a δ above one in so many is warned of."""

MechanismName = Literal["auto", "decoys", "paper", "shuffle"]
"""What users call the mechanisms; ``auto`` leaves the choice to the planner."""


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
        parameters.check_epsilon(self.epsilon)
        if cast("float | None", self.epsilon_public) is None:
            object.__setattr__(self, "epsilon_public", self.epsilon)
        parameters.check_epsilon(self.epsilon_public, "epsilon_public")
        self._check_numbers()
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
        if not self._release.holds(self.epsilon, self.delta):
            raise InfeasiblePlanError(self._broken_promise(), hint="let veiltab.plan choose it")
        if self.accounting == DECOYS:  # a contract states it: refused before anybody signs
            privacy.publication_threshold(self.epsilon_public)

    def _check_numbers(self) -> None:
        if self.population_size is not None:
            parameters.check_population_size(self.population_size)
        parameters.check_domain_size(self.domain_size)
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
        else:
            patterns = self.patterns or self.domain_size
            parameters.check_patterns(patterns)
            parameters.check_expected_decoys(patterns / self.domain_size * self.expected_decoys)
            privacy.publication_threshold(self.epsilon_public)  # refuses what no noise can keep
        _ = self.channel  # refuses a threshold that leaves the cells uneven

    def _broken_promise(self) -> str:
        promise = f"epsilon {self.epsilon:g}, delta {self.delta:g}"
        law = self.mechanism.decoys
        if law is None:
            return f"the threshold {self.keep_threshold} spends more than {promise}"
        if isinstance(law, WeightTable) and self.delta == 0:
            return "a law of decoys with a largest number cannot keep a promise without delta"
        return f"the coin {self.coin_threshold} with this law of decoys spends more than {promise}"

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
    def _release(self) -> RankedRelease | DecoyRelease:
        coin, law = self.mechanism.coin, self.mechanism.decoys
        if coin is None or law is None:
            return self.ranked
        return DecoyRelease(
            self.population_size,
            self.domain_size,
            coin,
            law,
            self.channel,
            self.linkage,
            self.patterns or self.domain_size,
        )

    @property
    def ranked(self) -> RankedRelease:
        """Population, sample and channel of a plan by rank; other plans are refused."""
        population, size, channel = self.population_size, self.sample_size, self.channel
        if population is None or size is None or channel is None:
            raise ParameterError(
                "this plan has decoys, and no sample of a known size",
                hint="plan with mechanism='paper' or 'shuffle' where a cut by rank is meant",
            )
        return RankedRelease(population, size, channel, self.accounting == SHUFFLE)

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
    def decoys_summary(self) -> DecoysSummary | None:
        """The law of decoys as people read it; None by rank."""
        law = self.mechanism.decoys
        return None if law is None else decoys_summary(law, self.domain_size)

    @property
    def expected_rows(self) -> float | None:
        """How many rows the researcher is expected to get; None if the population is unknown."""
        release = self._release
        if isinstance(release, DecoyRelease):
            return release.expected_rows()
        return float(release.sample_size)

    @property
    def expected_decoys(self) -> float:
        """How many decoys the joint table is expected to have; 0 by rank."""
        release = self._release
        return release.expected_decoys() if isinstance(release, DecoyRelease) else 0.0

    @property
    def expected_pattern_decoys(self) -> float | None:
        """How many decoys are expected in all patterns, absence included; None if not known."""
        if self.patterns is None:
            return None
        return self.patterns / self.domain_size * self.expected_decoys

    @property
    def epsilon_achieved(self) -> float:
        """The ε that the integers really give, rounded up; never above ``epsilon``.

        Where δ is spent it is the promised ε, and what is left over is in δ.
        """
        return self._release.epsilon_achieved(self.epsilon)

    @property
    def delta_achieved(self) -> float:
        """The δ that is really spent at ``epsilon_achieved``; never above ``delta``."""
        return self._release.delta_achieved(self.epsilon, self.delta)

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
        release = self._release
        if self.linkage == "aligned" or not isinstance(release, DecoyRelease):
            return None
        return release.epsilon_membership(self.delta)

    @property
    def rmse(self) -> float:
        """The exact root mean squared ℓ₂ error of the joint table, for the hardest data.

        It is that of the researcher's own estimate; a published copy has ``rmse_published``.
        """
        return math.sqrt(self._release.squared_error(Fraction(0)))

    @property
    def rmse_per_cell(self) -> float:
        """The root of the mean over all cells of the squared error: ``rmse`` divided by √N."""
        return self.rmse / math.sqrt(self.domain_size)

    @property
    def mean_share(self) -> float:
        """The share that a cell has on average, 1/N."""
        return 1 / self.domain_size

    @property
    def uniform_guess_rmse(self) -> float:
        """The error of who names 1/N for every cell, for the hardest data: √(1 − 1/N)."""
        return utility.uniform_guess_rmse(self.domain_size)

    @property
    def mostly_noise(self) -> bool:
        """Whether a cell's error is larger than the share that it has on average."""
        return self.rmse_per_cell > self.mean_share

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is unwise about a plan that can be carried out, in plain words."""
        found = delta_warnings(self.delta, self.population_size)
        if self.population_size is None:
            return tuple(found)
        if self.rmse > self.uniform_guess_rmse:
            found.append(
                "to name the same share for every cell would be nearer to the truth than this"
                " release"
            )
        elif self.mostly_noise:
            found.append(
                f"the error of a cell, {100 * self.rmse_per_cell:.2g} percentage points, is above"
                f" its mean share, {100 * self.mean_share:.2g}%: single cells will mostly be noise,"
                " and only sums of many cells say something"
            )
        return tuple(found)

    def check_useful(self) -> None:
        """Refuse a plan whose estimates may be farther from the truth than a guess."""
        if self.rmse <= self.uniform_guess_rmse:
            return
        raise UselessPlanError(
            f"this release would say less than a guess: its RMSE is {self.rmse:.3g} at worst, and"
            f" that of naming the same share for each of the {self.domain_size:,} cells is never"
            f" above {self.uniform_guess_rmse:.3g}",
            hint="take fewer attributes or categories, a larger epsilon, or several studies with"
            f" fewer attributes each; to go on all the same, {Remedy.ANYWAY}",
        )

    @property
    def rmse_published(self) -> float:
        """The error of what is published, whose counts have noise for ``epsilon_public``."""
        threshold = privacy.publication_threshold(self.epsilon_public)
        return math.sqrt(self._release.squared_error(utility.publication_variance(threshold)))

    @property
    def trusted_party_rmse(self) -> float:
        """What a party trusted with all records would reach by adding Laplace noise to counts."""
        return utility.laplace_rmse(self._population, self.domain_size, self.epsilon)

    @property
    def bytes_per_curator(self) -> int:
        """About how many bytes a curator sends at most: log₂N bits a row, decoys included.

        A curator sends only the part of its own attributes.
        """
        return self._release.bytes_per_curator()

    @property
    def _population(self) -> int:
        return known_population(self.population_size)

    @property
    def paper(self) -> PaperPlan:
        """The paper's way for the same population, cells and ε: its m*, and its bounds there."""
        return paper_plan(self._population, self.domain_size, self.epsilon)

    @property
    def shuffle(self) -> ShufflePlan | None:
        """Shuffling for the same numbers; None if it gains nothing, as with δ = 0."""
        from veiltab.core.planner import shuffled_plan  # noqa: PLC0415 - it imports this module

        return shuffled_plan(self._population, self.domain_size, self.epsilon, self.delta)

    @property
    def trusted(self) -> TrustedParty:
        """A party that is trusted with all records and adds Laplace noise to counts."""
        return TrustedParty(noise="laplace", rmse=self.trusted_party_rmse)

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as ``veiltab plan --json`` prints it.

        What depends on the population is None where that is not known.
        """
        summary = self.decoys_summary
        return {
            "population_size": self.population_size,
            "domain_size": self.domain_size,
            "epsilon": self.epsilon,
            "delta": self.delta,
            "mechanism": self.mechanism_name,
            "linkage": self.linkage,
            "sample_size": self.sample_size,
            "coin_probability": self.coin_probability,
            "coin_threshold": _decimal(self.coin_threshold),
            "decoys": None if summary is None else asdict(summary),
            "patterns": self.patterns,
            "expected_rows": self.expected_rows,
            "gamma": self.gamma,
            "keep_probability": self.keep_probability,
            "keep_threshold": _decimal(self.keep_threshold),
            "accounting": self.accounting,
            "accounting_version": self.accounting_version,
            "epsilon_achieved": self.epsilon_achieved,
            "delta_achieved": self.delta_achieved,
            "epsilon_with_curator": self.epsilon_with_curator,
            "epsilon_if_order_known": self.epsilon_if_order_known,
            "epsilon_public": self.epsilon_public,
            "epsilon_membership": self.epsilon_membership,
            "mean_share": self.mean_share,
            "uniform_guess_rmse": self.uniform_guess_rmse,
            **self._errors(),
            "warnings": list(self.warnings),
        }

    def _errors(self) -> dict[str, Any]:
        if self.population_size is None:
            return dict.fromkeys(ERROR_KEYS)
        shuffle = self.shuffle
        errors = (
            self.rmse,
            self.rmse_per_cell,
            self.rmse_published,
            asdict(self.paper),
            None if shuffle is None else asdict(shuffle),
            asdict(self.trusted),
            self.trusted_party_rmse,
            self.bytes_per_curator,
        )
        return dict(zip(ERROR_KEYS, errors, strict=True))


def delta_warnings(delta: float, population_size: int | None) -> list[str]:
    """Say if δ is above 1/n; where nobody knows n, for how many respondents it is."""
    if delta * (population_size or MANY) <= 1:
        return []
    n = population_size
    when = f", one in {n:,} respondents" if n else f" for more than {int(1 / delta):,} respondents"
    warning = (
        f"δ = {delta:g} is above 1/n{when}: such a promise would allow to show a respondent's"
        " record in the clear; choose a δ far below 1/n"
    )
    return [warning]


def _decimal(threshold: int | None) -> str | None:
    """Write a 64-bit integer as text: JSON readers that use floats for numbers would round it."""
    return None if threshold is None else str(threshold)


def plan(
    *,
    population_size: int,
    domain_size: int,
    epsilon: float | None = None,
    delta: float = 0.0,
    sample_size: int | None = None,
    target_rmse: float | None = None,
    mechanism: MechanismName = "auto",
    epsilon_with_curator: float | None = None,
    epsilon_public: float | None = None,
    linkage: LinkageMode = "aligned",
    curator_cells: Sequence[int] | None = None,
    max_decoys: float | None = None,
    anyway: bool = False,
) -> Plan:
    """Plan a release of a joint table of ``domain_size`` cells about ``population_size`` people.

    Give ``epsilon`` to get the least worst-case error for that promise, or ``target_rmse`` to get
    the smallest ε that reaches it.  ``mechanism="auto"`` takes decoys where they can be
    planned: no other mechanism promises anything against researcher and server together.  A
    ``sample_size`` fixes the sample and leaves those by rank, the paper's way and shuffling.

    ``epsilon_with_curator`` limits ε against a researcher whom a curator helps; left out, the
    server's noise makes the error of decoys a tenth larger, and with ``math.inf`` decoys go
    without it.  ``epsilon_public`` is the promise to readers of published copies; left out, it
    is ε.  In matched linkage ``curator_cells``, the cells of each curator's own table, tell how
    many decoys are needed; ``max_decoys`` lifts the limit on them.

    A plan whose error may be larger than that of naming the same share for every cell is refused
    with a :class:`~veiltab.errors.UselessPlanError`, unless ``anyway``.
    """
    from veiltab.core.planner import Question  # noqa: PLC0415 - it imports this module

    if (epsilon is None) == (target_rmse is None):
        raise ParameterError(
            "give either an epsilon or a target RMSE, and not both",
            hint="epsilon is the privacy you promise, the target RMSE is the error you accept",
        )
    question = Question(
        population_size=population_size,
        domain_size=domain_size,
        delta=plain(delta),
        sample_size=sample_size,
        mechanism=mechanism,
        epsilon_with_curator=_plain_or_none(epsilon_with_curator),
        epsilon_public=_plain_or_none(epsilon_public),
        linkage=linkage,
        curator_cells=_listed(curator_cells),
        max_decoys=max_decoys,
    )
    if epsilon is not None:
        chosen = question.plan_for_epsilon(plain(epsilon))
    else:
        assert target_rmse is not None  # noqa: S101 - tells the type checker what was checked above
        chosen = question.plan_for_rmse(plain(target_rmse))
    if not anyway:
        chosen.check_useful()
    return chosen


def _plain_or_none(number: float | None) -> float | None:
    return None if number is None else plain(number)


def _listed(cells: Sequence[int] | int | None) -> tuple[int, ...] | None:
    """Return the cells of each curator; a single number is that of a single curator."""
    if cells is None:
        return None
    return tuple(cells) if isinstance(cells, Sequence) else (cells,)
