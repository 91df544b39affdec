"""Where an estimate comes from, and what its respondents were promised."""

from dataclasses import dataclass

from veiltab.core.plan import Plan


@dataclass(frozen=True, slots=True)
class Promise:
    """What somebody can learn about one respondent at most: ε and δ of differential privacy."""

    against: str
    epsilon: float
    delta: float

    def __str__(self) -> str:
        """Say the numbers, without a δ of zero."""
        delta = f", δ = {self.delta:g}" if self.delta else ""
        return f"ε = {self.epsilon:.4g}{delta} against {self.against}"


@dataclass(frozen=True, slots=True)
class Provenance:
    """The study behind an estimate, as far as it is known; all of it travels with the numbers.

    ``study`` is the study's id in hexadecimal.  Without ``promises`` those of the plan are given.
    """

    study: str | None = None
    title: str | None = None
    perturbed_by: str | None = None
    promises: tuple[Promise, ...] = ()


def promises_of(plan: Plan) -> tuple[Promise, ...]:
    """Return what a plan promises against whom."""
    return (
        Promise("whoever sees the release", plan.epsilon_achieved, plan.delta_achieved),
        Promise(
            "somebody who also knows who was sampled, in which order",
            plan.epsilon_if_order_known,
            0.0,
        ),
    )
