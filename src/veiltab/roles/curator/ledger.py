"""A curator's ledger: what every signed study may cost, and the limit that no sum exceeds."""

from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction

from veiltab.core.parameters import check_epsilon
from veiltab.errors import BudgetError, ParameterError


@dataclass(frozen=True, slots=True)
class Entry:
    """One signed study, and the privacy that it promises."""

    study: bytes
    epsilon: float
    delta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The privacy budget of one data set; a new ledger comes out of every charge.

    Promises add up (basic composition), exactly: as fractions, and each rounded up, so that no
    sum of floats ever slips below the limit.
    """

    dataset: str
    epsilon_limit: float
    delta_limit: float = 0.0
    largest_epsilon: float | None = None
    smallest_population: int = 1
    entries: tuple[Entry, ...] = ()

    def __post_init__(self) -> None:
        """Refuse limits that limit nothing, and entries beyond them."""
        if not 0 < self.epsilon_limit < float("inf") or not 0 <= self.delta_limit < 1:
            raise ParameterError(
                f"a budget of epsilon {self.epsilon_limit}, delta {self.delta_limit} is no limit",
                hint="epsilon must be above 0 and finite, delta from 0 to below 1",
            )

    @property
    def epsilon_spent(self) -> Fraction:
        """The sum of all promises so far."""
        return sum((_above(entry.epsilon) for entry in self.entries), Fraction(0))

    @property
    def delta_spent(self) -> Fraction:
        """The sum of all δ so far."""
        return sum((_above(entry.delta) for entry in self.entries), Fraction(0))

    def supports(self, epsilon: float, delta: float) -> bool:
        """Tell whether another promise of this size stays within the limit."""
        fits = self.epsilon_spent + _above(epsilon) <= _below(self.epsilon_limit)
        return fits and self.delta_spent + _above(delta) <= _below(self.delta_limit)

    def charge(
        self, study: bytes, epsilon: float, delta: float, population_size: int | None
    ) -> "Ledger":
        """Return the ledger with the study on it; a study already there costs nothing more."""
        check_epsilon(epsilon)
        if any(entry.study == study for entry in self.entries):
            return self
        self._check_policy(epsilon, population_size)
        if not self.supports(epsilon, delta):
            left = float(_below(self.epsilon_limit) - self.epsilon_spent)
            raise BudgetError(
                f"a study of epsilon {epsilon:g} exceeds what is left of {self.dataset!r}:"
                f" {left:.6g} of {self.epsilon_limit:g}",
                hint="agree on a smaller epsilon; a budget that is spent cannot be won back",
            )
        return replace(self, entries=(*self.entries, Entry(study, epsilon, delta)))

    def _check_policy(self, epsilon: float, population_size: int | None) -> None:
        if self.largest_epsilon is not None and epsilon > self.largest_epsilon:
            raise BudgetError(
                f"epsilon {epsilon:g} is above {self.largest_epsilon:g}, the most that the policy"
                f" of {self.dataset!r} allows for one study",
                hint="agree on a smaller epsilon, or change the policy first",
            )
        if population_size is not None and population_size < self.smallest_population:
            raise BudgetError(
                f"a population of {population_size} is below {self.smallest_population}, the"
                f" least that the policy of {self.dataset!r} allows",
                hint="study more respondents, or change the policy first",
            )


def _above(value: float) -> Fraction:
    """Read a cost as the larger of its decimal text and its binary value."""
    return Fraction(max(Decimal(repr(float(value))), Decimal(value)))


def _below(value: float) -> Fraction:
    """Read a limit as the smaller of its decimal text and its binary value."""
    return Fraction(min(Decimal(repr(float(value))), Decimal(value)))
