"""A curator's ledger: what every signed study may cost, and the limit on their sum."""

from dataclasses import dataclass, replace
from fractions import Fraction

from veiltab.core.parameters import check_delta, check_epsilon
from veiltab.errors import BudgetError, ParameterError
from veiltab.wire.mechanism import PURE_1


@dataclass(frozen=True, slots=True)
class Entry:
    """One signed study, and the privacy that it promises."""

    study: bytes
    epsilon: float
    delta: float
    accounting: str = PURE_1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The privacy budget of one data set; a new ledger comes out of every charge.

    Promises add up (basic composition), exactly: as the decimals that people wrote, so that ten
    times 0.1 is 1 and not one bit more or less.  Every plan keeps its ε in this reading (spec 4.1).
    """

    dataset: str
    epsilon_limit: float
    delta_limit: float = 0.0
    largest_epsilon: float | None = None
    smallest_population: int = 1
    entries: tuple[Entry, ...] = ()

    def __post_init__(self) -> None:
        """Refuse limits that limit nothing, such as NaN, which nothing exceeds."""
        largest = self.epsilon_limit if self.largest_epsilon is None else self.largest_epsilon
        if not 0 < self.epsilon_limit < float("inf") or not 0 <= self.delta_limit < 1:
            raise ParameterError(
                f"a limit of epsilon {self.epsilon_limit}, delta {self.delta_limit} is unusable",
                hint="epsilon must be above 0 and finite, delta from 0 to below 1",
            )
        if not largest > 0:
            raise ParameterError(
                f"the largest epsilon of one study cannot be {largest}",
                hint="give a number above 0",
            )

    @property
    def epsilon_spent(self) -> Fraction:
        """The sum of all promises so far."""
        return sum((_exact(entry.epsilon) for entry in self.entries), Fraction(0))

    @property
    def delta_spent(self) -> Fraction:
        """The sum of all δ so far."""
        return sum((_exact(entry.delta) for entry in self.entries), Fraction(0))

    def supports(self, epsilon: float, delta: float) -> bool:
        """Tell whether another promise of this size stays within the limit."""
        fits = self.epsilon_spent + _exact(epsilon) <= _exact(self.epsilon_limit)
        return fits and self.delta_spent + _exact(delta) <= _exact(self.delta_limit)

    def charge(
        self,
        study: bytes,
        epsilon: float,
        delta: float,
        population_size: int | None,
        *,
        accounting: str = PURE_1,
    ) -> "Ledger":
        """Return a ledger with the study on it; a study that was on it costs nothing more."""
        check_epsilon(epsilon)
        check_delta(delta)
        if any(entry.study == study for entry in self.entries):
            return self
        self._check_policy(epsilon, population_size)
        if not self.supports(epsilon, delta):
            raise self._exceeded(epsilon, delta)
        entry = Entry(study, epsilon, delta, accounting)
        return replace(self, entries=(*self.entries, entry))

    def _exceeded(self, epsilon: float, delta: float) -> BudgetError:
        left = float(_exact(self.epsilon_limit) - self.epsilon_spent)
        delta_left = float(_exact(self.delta_limit) - self.delta_spent)
        hint = "agree on a smaller epsilon or delta; a budget that is spent cannot be won back"
        if delta and not self.delta_limit:
            hint = (
                "the ledger allows no delta, as every new one: agree on a study without, or set how"
                " much of it all studies may take (veiltab ledger set … --delta 1e-5)"
            )
        return BudgetError(
            f"a study of epsilon {epsilon:g}, delta {delta:g} exceeds what is left of"
            f" {self.dataset!r}: epsilon {left:.6g} of {self.epsilon_limit:g}, delta"
            f" {delta_left:.6g} of {self.delta_limit:g}",
            hint=hint,
        )

    def _check_policy(self, epsilon: float, population_size: int | None) -> None:
        if self.largest_epsilon is not None and epsilon > self.largest_epsilon:
            raise BudgetError(
                f"epsilon {epsilon:g} is above {self.largest_epsilon:g}, the most that the policy"
                f" of {self.dataset!r} allows for one study",
                hint="agree on a smaller epsilon, or change the policy first",
            )
        if (population_size or 1) < self.smallest_population:
            stated = "that is not stated" if population_size is None else f"of {population_size}"
            raise BudgetError(
                f"a population {stated} is below {self.smallest_population}, the"
                f" least that the policy of {self.dataset!r} allows",
                hint="state a larger population in the contract, or change the policy first",
            )


def _exact(value: float) -> Fraction:
    """Read a float as the decimal that it is written as."""
    return Fraction(repr(float(value)))
