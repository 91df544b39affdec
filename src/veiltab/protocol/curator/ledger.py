"""A curator's ledger: what every signed study may cost, and the limit on their sum."""

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from veiltab.core.parameters import check_delta, check_epsilon
from veiltab.errors import BudgetError, ParameterError, StateError
from veiltab.protocol.audit_log import Seen
from veiltab.remedies import Remedy
from veiltab.wire.mechanism import OVERLAP_1, PURE_1


@dataclass(frozen=True, slots=True)
class Entry:
    """One signed study, and the privacy that it promises."""

    study: bytes
    epsilon: float
    delta: float
    accounting: str = PURE_1


Basis = Literal["nothing-sent", "never-granted"]
"""Why a study may be refunded: nothing of the table left, or nobody can ever decrypt what did."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refund:
    """A charge that is taken back, because the study ended before anything could be learnt.

    ``log`` is the length and last hash of the study's audit log as it was then; ``None`` if the
    study never reached its server.  As long as it is not ``done``, the charge still counts.
    """

    study: bytes
    reason: str
    at: int
    basis: Basis
    log: Seen | None
    done: bool = False


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
    refunds: tuple[Refund, ...] = ()

    def __post_init__(self) -> None:
        """Refuse limits that limit nothing, such as NaN, which nothing exceeds."""
        largest = self.epsilon_limit if self.largest_epsilon is None else self.largest_epsilon
        if not 0 < self.epsilon_limit < float("inf") or not 0 <= self.delta_limit < 1:
            raise ParameterError(
                f"a budget cannot have the limits ε = {self.epsilon_limit:g} and"
                f" δ = {self.delta_limit:g}",
                hint="give an ε above 0 that is finite, and a δ from 0 to below 1",
            )
        if not largest > 0:
            raise ParameterError(
                f"the largest epsilon of one study cannot be {largest}",
                hint="give a number above 0",
            )

    @property
    def epsilon_spent(self) -> Fraction:
        """The sum of all promises so far, without those that were refunded."""
        return sum((_exact(entry.epsilon) for entry in self._counted()), Fraction(0))

    @property
    def delta_spent(self) -> Fraction:
        """The sum of all δ so far, without those that were refunded."""
        return sum((_exact(entry.delta) for entry in self._counted()), Fraction(0))

    def _counted(self) -> list[Entry]:
        refunded = {refund.study for refund in self.refunds if refund.done}
        return [entry for entry in self.entries if entry.study not in refunded]

    def entry_of(self, study: bytes) -> Entry | None:
        """Return what a study was charged, also if that was refunded."""
        return next((entry for entry in self.entries if entry.study == study), None)

    def refund_of(self, study: bytes) -> Refund | None:
        """Return the refund of a study, also one that is not done yet."""
        return next((refund for refund in self.refunds if refund.study == study), None)

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
        """Return a ledger with the study on it; a study that was on it costs nothing more.

        A study that was refunded can never be charged again, and so never run.
        """
        check_epsilon(epsilon)
        check_delta(delta)
        self.check_not_refunded(study)
        if self.entry_of(study) is not None:
            return self
        # An overlap count has no values, and asks how many people there are.
        counted = accounting == OVERLAP_1
        self._check_policy(epsilon, self.smallest_population if counted else population_size)
        if not self.supports(epsilon, delta):
            raise self._exceeded(epsilon, delta)
        entry = Entry(study, epsilon, delta, accounting)
        return replace(self, entries=(*self.entries, entry))

    def check_not_refunded(self, study: bytes) -> None:
        """Refuse a study whose charge is taken back, or is about to be: for ever."""
        if self.refund_of(study) is not None:
            raise StateError(
                f"this study was refunded to {self.dataset!r}: nothing may leave for it any more",
                hint="propose a new study",
            )

    def begin_refund(self, refund: Refund) -> "Ledger":
        """Return a ledger that refuses the study from now on; its charge counts until the end."""
        self.check_not_refunded(refund.study)
        if self.entry_of(refund.study) is None:
            raise BudgetError(
                f"this study is not charged to {self.dataset!r}",
                hint=Remedy.SEE_CHARGED,
            )
        return replace(self, refunds=(*self.refunds, replace(refund, done=False)))

    def finish_refund(self, study: bytes) -> "Ledger":
        """Return a ledger in which the charge of the study does not count any more."""
        return replace(
            self,
            refunds=tuple(
                replace(refund, done=True) if refund.study == study else refund
                for refund in self.refunds
            ),
        )

    def _exceeded(self, epsilon: float, delta: float) -> BudgetError:
        left = float(_exact(self.epsilon_limit) - self.epsilon_spent)
        delta_left = float(_exact(self.delta_limit) - self.delta_spent)
        hint = (
            "agree on a smaller epsilon or delta; what was released cannot be won back, but studies"
            f" that ended before can be refunded {Remedy.REFUND}"
        )
        if delta and not self.delta_limit:
            hint = (
                "the ledger allows no delta, as every new one: agree on a study without, or set how"
                f" much of it all studies may take {Remedy.ALLOW_DELTA}"
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
