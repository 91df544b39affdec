"""The mechanism of a study as its contract states it, and how its promise is computed (spec 4)."""

import re
from typing import Any, ClassVar, Final, Literal, TypeAlias

from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import MAX_WEIGHTS, Coin, Geometric, Law, Mechanism, WeightTable
from veiltab.core.overlap import OverlapPlan
from veiltab.core.parameters import check_delta, check_epsilon
from veiltab.core.plan import Plan
from veiltab.errors import ParameterError
from veiltab.wire.codec import (
    Codec,
    Part,
    choice,
    describe,
    exact_fields,
    input_errors_at,
    integer,
    items,
    join,
    malformed,
    number,
    optional,
    part,
    wired,
)

Accounting = Literal["pure-1", "shuffle-1", "decoys-1", "overlap-1"]

MAX_ROWS = 2**48
"""Rows of an upload (spec 8)."""

EPSILON = number(check_epsilon)
DELTA = number(check_delta)
PURE_1: Final = "pure-1"
"""A promise by Theorem 1 alone, for δ = 0."""

SHUFFLE_1: Final = "shuffle-1"
"""A promise by the privacy blanket, which counts on δ and on the secret order."""

DECOYS_1: Final = "decoys-1"
"""A promise by a coin for each respondent and decoys, exact, with or without δ."""

OVERLAP_1: Final = "overlap-1"
"""The promise of an overlap count: a coin and decoys for the server, noise for the curators."""

ACCOUNTING: Codec[Accounting] = choice(PURE_1, SHUFFLE_1, DECOYS_1, OVERLAP_1)
"""How a promise is computed: the name that plans have for it, and its version."""

SAMPLE_SIZE = integer(1, MAX_ROWS)
_DECIMAL = re.compile("0|[1-9][0-9]{0,19}")


def decimal(least: int, most: int) -> Codec[int]:
    """Return the codec of whole numbers as decimal text: JSON's are exact only below 2⁵³."""

    def read(value: object, path: str) -> int:
        if isinstance(value, str) and _DECIMAL.fullmatch(value):
            return check(int(value), path)
        raise malformed(path, f"must be a number of 1 to 20 digits as text, not {describe(value)}")

    def check(value: object, path: str) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise malformed(path, f"must be a whole number from {least} to {most}")

    return Codec(read, lambda value, path: str(check(value, path)))


THRESHOLD = decimal(1, DRAW_RANGE - 1)
"""The codec of a channel's threshold."""

_COIN = decimal(1, DRAW_RANGE)
_WEIGHTS = items(decimal(0, DRAW_RANGE), least=1, most=MAX_WEIGHTS)


def _read_law(value: object, path: str) -> Law:
    law = value.get("law") if isinstance(value, dict) else None
    kind = choice("geometric", "table").read(law, join(path, "law"))
    field = "threshold" if kind == "geometric" else "weights"
    members = exact_fields(value, ("law", field), path)
    with input_errors_at(path):
        if kind == "geometric":
            return Geometric(THRESHOLD.read(members[field], join(path, field)))
        return WeightTable(_WEIGHTS.read(members[field], join(path, field)))


def _write_law(law: Law, path: str) -> dict[str, Any]:
    if isinstance(law, Geometric):
        threshold = THRESHOLD.write(law.threshold, join(path, "threshold"))
        return {"law": "geometric", "threshold": threshold}
    return {"law": "table", "weights": _WEIGHTS.write(law.weights, join(path, "weights"))}


def accounting_id(name: str, version: int) -> Accounting:
    """Return how messages write the accounting of a plan and its version (spec 4.1)."""
    return ACCOUNTING.read(f"{name}-{version}", "accounting")


def accounting_name(accounting: Accounting) -> str:
    """Return the name that plans have for the accounting that a message states."""
    return accounting.partition("-")[0]


@part
class PaperTerms(Part):
    """The paper's mechanism: a sample by rank, and noise as the plan for n respondents says.

    No sample size stands for the best one (spec 4).
    """

    name: ClassVar[str] = "paper"

    sample_size: int | None = wired(optional(SAMPLE_SIZE))

    def accounting(self, delta: float) -> Accounting:
        """Return the accounting that a contract with this δ states."""
        return PURE_1 if delta == 0 else SHUFFLE_1


@part
class DecoyTerms(Part):
    """Decoys: a coin for each respondent, invented records, and noise by the server or none.

    These numbers fix the promise, whoever and however many the respondents are (spec 4.3).
    """

    name: ClassVar[str] = "decoys"

    coin_threshold: int = wired(_COIN)
    decoys: Law = wired(Codec(_read_law, _write_law))
    epsilon_public: float = wired(EPSILON)
    keep_threshold: int | None = wired(optional(THRESHOLD))

    @classmethod
    def from_plan(cls, plan: Plan) -> "DecoyTerms":
        """Return the numbers of a plan with decoys that a contract states."""
        coin, law = plan.mechanism.coin, plan.mechanism.decoys
        if coin is None or law is None:
            raise ParameterError("the plan has no decoys", hint="plan with the mechanism 'decoys'")
        return cls(coin.threshold, law, plan.epsilon_public, plan.keep_threshold)

    @property
    def mechanism(self) -> Mechanism:
        """The same as data for the mathematics."""
        return Mechanism(Coin(self.coin_threshold), self.decoys, self.keep_threshold)

    def accounting(self, delta: float) -> Accounting:  # noqa: ARG002 - as of the other terms
        """Return the accounting that a contract with this δ states."""
        return DECOYS_1


@part
class OverlapTerms(Part):
    """An overlap count: a coin for each person, decoys, and noise on the one number (spec 13)."""

    name: ClassVar[str] = "overlap"

    coin_threshold: int = wired(_COIN)
    decoys: Law = wired(Codec(_read_law, _write_law))
    noise_threshold: int = wired(THRESHOLD)

    @classmethod
    def from_plan(cls, plan: OverlapPlan) -> "OverlapTerms":
        """Return the numbers of a plan that a contract states."""
        return cls(plan.coin.threshold, plan.decoys, plan.noise.threshold)

    def plan(self, epsilon: float, curators: int) -> OverlapPlan:
        """Return the plan, which cannot be put together if it breaks its promise."""
        if not isinstance(self.decoys, Geometric):
            raise ParameterError(
                "an overlap count has geometric decoys",
                hint="a law with a largest number keeps no promise without delta",
            )
        coin, noise = Coin(self.coin_threshold), Geometric(self.noise_threshold)
        return OverlapPlan(epsilon, curators, coin, self.decoys, noise)

    @property
    def mechanism(self) -> Mechanism:
        """What is done to the records, as data for the mathematics."""
        return Mechanism(Coin(self.coin_threshold), self.decoys, None)

    def accounting(self, delta: float) -> Accounting:  # noqa: ARG002 - as of the other terms
        """Return the accounting that a contract with this δ states."""
        return OVERLAP_1


MechanismTerms: TypeAlias = PaperTerms | DecoyTerms | OverlapTerms

CoinTerms: TypeAlias = DecoyTerms | OverlapTerms
"""The terms that have a coin for each respondent, and decoys."""

_TERMS: dict[str, type[MechanismTerms]] = {
    terms.name: terms for terms in (PaperTerms, DecoyTerms, OverlapTerms)
}


def _read_mechanism(value: object, path: str) -> MechanismTerms:
    if not isinstance(value, dict):
        raise malformed(path, f"must be an object, not {describe(value)}")
    name = choice("paper", "decoys", "overlap").read(value.get("name"), join(path, "name"))
    others = {key: item for key, item in value.items() if key != "name"}
    return _TERMS[name].from_json(others, path)


def _write_mechanism(terms: MechanismTerms, path: str) -> dict[str, Any]:
    return {"name": terms.name, **terms.to_json(path)}


MECHANISM = Codec(_read_mechanism, _write_mechanism)
"""The codec of any mechanism."""
