"""What each party, and each group of parties that work together, could learn from a study.

A curator reads this before it signs.
"""

from dataclasses import dataclass
from typing import Literal

from veiltab.party.proposal import plan_of
from veiltab.protocol.verify import publication_epsilon
from veiltab.wire.contract import Contract

Who = Literal[
    "server",
    "curator",
    "researcher",
    "researcher and server",
    "researcher and curator",
    "server and curator",
    "readers of published copies",
    "membership",
]

HARDLY = (
    "replacing one respondent's record changes the chance of what they see by a factor of e^ε at"
    " most{delta}, for anybody who cannot break the ciphers"
)
IDS = ", but of people whose ids the curator guesses, whether the others hold them"
STORED = "; it knows a person again in every study on these stored tables"
WHOM = "; and both learn which of those who take part all curators hold"


@dataclass(frozen=True, slots=True)
class Coalition:
    """What somebody could learn of values: ε is 0 if nothing, and None where nothing bounds it."""

    who: Who
    epsilon: float | None
    delta: float
    words: str

    @property
    def numbers(self) -> str:
        """The promise in symbols."""
        if self.epsilon is None:
            return "no bound"
        delta = f", δ = {self.delta:g}" if self.delta else ""
        return f"ε = {self.epsilon:.4g}{delta}" if self.epsilon else "no values"


def coalitions(contract: Contract) -> list[Coalition]:
    """Return what each coalition would learn from a study with this contract."""
    if contract.overlap is not None:
        return _overlap(contract)
    epsilon, delta = contract.epsilon, contract.delta
    hardly = HARDLY.format(delta=", plus δ" if delta else "")
    found = [
        Coalition("researcher", epsilon, delta, f"a researcher alone: {hardly}"),
        _with_server(contract),
        _with_curator(contract),
        _server_and_curator(contract),
        _readers(contract),
    ]
    membership = _membership(contract)
    return found if membership is None else [*found, membership]


def _overlap(contract: Contract) -> list[Coalition]:
    """Of an overlap count, what is protected is who holds whom: there are no values."""
    changes = (
        "whether, and with whom, one person is held changes the chance of what they see by a factor"
        " of e^ε at most"
    )
    return [
        Coalition(
            "server",
            contract.epsilon,
            0.0,
            f"the server, also if it reads the answer, sees equal tokens among decoys: {changes},"
            " if no curator tells it the study's secret and none leaves decoys out",
        ),
        Coalition(
            "curator",
            contract.epsilon,
            0.0,
            "a curator, or several, know who takes part and all decoys, and read one number with"
            f" the server's noise: {changes}, also if their own tables have one person",
        ),
        Coalition(
            "server and curator",
            None,
            0.0,
            "the server together with a curator learns, of people whose ids the curator guesses,"
            " whether the others hold them",
        ),
    ]


def _with_server(contract: Contract) -> Coalition:
    if contract.decoys is None:
        return Coalition(
            "researcher and server",
            None,
            0.0,
            "the server together with a researcher reads the sampled records without any noise",
        )
    return Coalition(
        "researcher and server",
        contract.epsilon,
        contract.delta,
        "the server together with a researcher, also if it adds no noise or the wrong noise:"
        " the same as a researcher alone, if no curator tells them the study's secret and none"
        " leaves decoys out",
    )


def _with_curator(contract: Contract) -> Coalition:
    plan = plan_of(contract)
    who: Who = "researcher and curator"
    whom = WHOM if contract.matched and contract.decoys is not None else ""
    if plan is None:
        return Coalition(
            who,
            None,
            0.0,
            "a curator who helps the researcher knows who was sampled: the server's noise alone"
            " protects the other curators' records, and how much depends on how many respondents"
            " there are",
        )
    if plan.epsilon_with_curator is None:
        return Coalition(
            who,
            None,
            0.0,
            "a curator who helps the researcher reads the other curators' values of everybody who"
            f" takes part: the server adds no noise{whom}",
        )
    knows = "who was sampled" if contract.decoys is None else "who takes part and all decoys"
    return Coalition(
        who,
        plan.epsilon_with_curator,
        0.0,
        f"a curator who helps the researcher knows {knows}: the server's noise alone protects the"
        f" other curators' records{whom}",
    )


def _server_and_curator(contract: Contract) -> Coalition:
    return Coalition(
        "server and curator",
        0.0,
        0.0,
        "the server together with a curator learns nothing about the other curators' values"
        f"{IDS if contract.matched else ''}{'' if contract.stored is None else STORED}",
    )


def _readers(contract: Contract) -> Coalition:
    """Everybody who only reads what a researcher publishes, also curators who know all decoys."""
    return Coalition(
        "readers of published copies",
        publication_epsilon(contract),
        0.0,
        "whoever only reads what a researcher publishes, also the server and the curators: every"
        " published copy has noise of its own",
    )


def _membership(contract: Contract) -> Coalition | None:
    """Whether a person is in the tables at all, where the curators need not hold the same."""
    if contract.decoys is None or not contract.matched:
        return None
    epsilon = contract.decoy_plan.epsilon_membership
    return Coalition(
        "membership",
        epsilon,
        contract.delta,
        "whether a person is in any of the tables at all, to a researcher alone or together with"
        " the server",
    )
