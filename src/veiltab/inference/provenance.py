"""Where an estimate comes from: the study, who took part, and what respondents were promised."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from veiltab.core.mechanism import LinkageMode
from veiltab.core.plan import Plan
from veiltab.wire.contract import PadMode


@dataclass(frozen=True, slots=True)
class Promise:
    """How much somebody can learn about one respondent at most: ε and δ of differential privacy."""

    against: str
    epsilon: float
    delta: float

    def __str__(self) -> str:
        """Give both numbers, but no δ of zero."""
        delta = f", δ = {self.delta:g}" if self.delta else ""
        return f"ε = {self.epsilon:.4g}{delta} against {self.against}"


@dataclass(frozen=True, slots=True)
class Provenance:
    """The study behind an estimate, as far as it is known; it travels with the numbers.

    ``study`` is the study's id in hexadecimal.  ``promises`` replace those of the plan.
    ``holders`` gives the curator of each attribute; ``linkage`` and ``pads`` are as in the
    contract.
    """

    study: str | None = None
    title: str | None = None
    perturbed_by: str | None = None
    promises: tuple[Promise, ...] = ()
    researcher: str | None = None
    holders: Mapping[str, str] = field(default_factory=dict)
    linkage: LinkageMode | None = None
    pads: PadMode | None = None

    def promises_under(self, plan: Plan) -> tuple[Promise, ...]:
        """Return the promises that were stated, or else those that follow from the plan."""
        if self.promises:
            return self.promises
        promises = [Promise("whoever sees the release", plan.epsilon_achieved, plan.delta_achieved)]
        if plan.epsilon_if_order_known is not None:
            promises.append(
                Promise(
                    "somebody who also knows who was sampled, in which order",
                    plan.epsilon_if_order_known,
                    0.0,
                )
            )
        return tuple(promises)
