"""Where an estimate comes from: the study, who took part, and what respondents were promised."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from veiltab.core.mechanism import LinkageMode
from veiltab.core.plan import Plan
from veiltab.core.released import ReleasedCounts
from veiltab.wire.contract import PadMode

OWN_VIEW = "the researcher's own view: not for passing on; publish it to get a copy for others"


@dataclass(frozen=True, slots=True)
class Promise:
    """How much somebody can learn about one respondent at most: ε and δ of differential privacy.

    An ε of None means that there is no limit.
    """

    against: str
    epsilon: float | None
    delta: float

    def __str__(self) -> str:
        """Give both numbers, but no δ of zero."""
        if self.epsilon is None:
            return f"no limit against {self.against}"
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
        return tuple(_promises_of(plan))


def _promises_of(plan: Plan) -> Iterator[Promise]:
    """Yield what a plan promises against each observer, the researcher first."""
    promised = plan.epsilon_achieved, plan.delta_achieved
    if plan.mechanism.decoys is None:
        yield Promise("whoever sees the release", *promised)
        informed = "somebody who also knows who was sampled, in which order"
    else:
        yield Promise("the researcher, alone or together with the server", *promised)
        if plan.linkage == "matched":
            membership = "the same, about whether somebody is in the tables at all"
            yield Promise(membership, plan.epsilon_membership, plan.delta)
        informed = "a researcher whom a curator helps"
    yield Promise(informed, plan.epsilon_with_curator, 0.0)
    yield Promise("whoever only reads published copies", plan.epsilon_public, 0.0)


def status_words(released: ReleasedCounts) -> str:
    """Say whether an estimate may be passed on."""
    noise = released.publication
    if noise is None:
        return OWN_VIEW
    return (
        f"a published copy: it may be passed on, with ε = {noise.epsilon:g} (δ = 0) against"
        " everybody who only reads it"
    )


def mechanism_words(released: ReleasedCounts) -> str:
    """Say in one sentence what was done to the records."""
    plan = released.plan
    coin = plan.coin_probability
    if coin is None:
        sampled = f"{plan.sample_size:,} of {plan.population_size:,} respondents were sampled"
        return f"{sampled}; {_channel_words(plan, 'record')}"
    of = f"each of {plan.population_size:,} respondents" if released.size_known else "everybody"
    took = f"{of} took part with probability {coin:.4g}" if coin < 1 else f"{of} took part"
    decoys = f"about {plan.expected_decoys:,.0f} decoys were mixed in"
    return f"{took}, and {decoys}; {_channel_words(plan, 'row')}"


def _channel_words(plan: Plan, row: str) -> str:
    if plan.keep_probability is None:
        return "the server added no noise"
    return (
        f"each {row} was kept with probability {plan.keep_probability:.4g}, and otherwise replaced"
        " by a random one"
    )
