"""A study's terms in words: what a curator reads before it signs, in commands and on pages."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from veiltab.core.overlap import OverlapPlan
from veiltab.core.plan import Plan, delta_warnings
from veiltab.party.costs import Cost, costs
from veiltab.party.home import Home
from veiltab.party.known.known import Acquaintance
from veiltab.party.known.names import readable
from veiltab.party.proposal import plan_of
from veiltab.protocol.verify import verify_some
from veiltab.wire.contract import Contract, Linkage
from veiltab.wire.mechanism import DECOYS_1, OVERLAP_1, PURE_1, SHUFFLE_1, PaperTerms
from veiltab.wire.signed import Signed

TWO_SIDED = 1.96
EXAMPLE_POPULATIONS = (1_000, 10_000, 100_000)
"""For how many respondents the error is shown where the contract does not say how many."""

LINKAGES = {
    "aligned": "all curators hold the same ones",
    "matched": "those whom all curators hold, matched by the server",
}
PADS = {
    "stream": "under a key for each attribute",
    "one-time": "under one-time pads, which curators hand to researchers directly",
}
PROMISES = {
    DECOYS_1: "a coin and decoys, and computed exactly",
    PURE_1: "the server's noise and a secret sample: the paper's Theorem 1",
    SHUFFLE_1: "the server's noise, a secret sample and a secret order",
    OVERLAP_1: "a coin and decoys towards the server, and by its noise towards curators",
}
RULES = {
    "nfc": "in one Unicode form (nfc)",
    "trim": "without spaces at their ends (trim)",
    "lowercase": "in small letters (lowercase)",
}


def signers(signed: Signed[Any]) -> set[bytes]:
    """Return who has signed, by first signing key, after a look at every signature."""
    verify_some(signed, [terms.identity.signing_key for terms in signed.body.curators])
    return {signature.root for signature in signed.signatures}


def warnings_of(contract: Contract, expected: int | None = None) -> list[str]:
    """Return what is unwise about a study, for about this many respondents if it states none."""
    plan = plan_of(contract, expected)
    if plan is None:
        return delta_warnings(contract.delta, contract.population or expected)
    return list(plan.warnings)


def budgets(contract: Contract, home: Home) -> list[dict[str, Any]]:
    """Return, for each data set of this home, what is left without the study and with it."""
    return [cost_json(cost) for cost in costs(home.ledgers, contract)]


def cost_json(cost: Cost) -> dict[str, Any]:
    """Return what a study takes of a data set's budget, as JSON values."""
    return {"dataset": cost.dataset, "charged": cost.charged, "fits": cost.fits} | asdict(cost)


def cost_lines(costs: Iterable[Cost]) -> dict[str, str]:
    """Say what a study takes of each data set, or of the one that it is charged to already."""
    every = list(costs)
    lines = [_cost_line(cost) for cost in [cost for cost in every if cost.charged] or every]
    return {"your budget": "\n".join(lines)} if lines else {}


def _cost_line(cost: Cost) -> str:
    if cost.refusal is not None:
        return f"{cost.dataset}: {cost.refusal}"
    left = f"ε = {cost.epsilon_before:g} of {cost.epsilon_limit:g}"
    after = f"{cost.epsilon_after:g}"
    if cost.delta_limit:
        left += f" and δ = {cost.delta_before:g} of {cost.delta_limit:g}"
        after += f" and {cost.delta_after:g}"
    charged = "; it is charged already" if cost.charged else ""
    return f"{cost.dataset}: {left} left before this study, {after} after{charged}"


def study_facts(contract: Contract, home: Home, expected: int | None = None) -> dict[str, str]:
    """Say what is asked and promised, how the promise is kept, and how large the error will be."""
    if contract.overlap is not None:
        return _overlap_facts(contract)
    stated = contract.population
    people = "a number that is not stated" if stated is None else f"{stated:,}"
    facts = {
        "promise": _promise(contract),
        "table": f"{contract.schema.domain_size:,} cells",
        "respondents": f"{people}; {LINKAGES[contract.linkage.mode]}",
        "rows match by": linkage_words(contract.linkage),
        "encrypted": PADS[contract.pads],
    }
    if contract.stored is not None:
        vault = contract.stored.vault
        title = home.vault(vault).title() or "a vault that this home does not know"
        facts["reads"] = f"stored tables: {title} ({vault.hex()[:16]})"
    return facts | _plan_facts(contract, plan_of(contract, expected))


def _overlap_facts(contract: Contract) -> dict[str, str]:
    plan = contract.overlap_plan
    return {
        "question": "how many people do all curators have in common?  No values are sent.",
        "promise": _promise(contract),
        "people match by": linkage_words(contract.linkage),
        **overlap_facts(plan, EXAMPLE_POPULATIONS),
    }


def overlap_facts(plan: OverlapPlan, people: Sequence[int]) -> dict[str, str]:
    """Say what is done to the ids, and how far off the answer will be for some numbers of people.

    The error is half the width of an interval that holds the truth in 95 of 100 counts.
    """
    errors = [f"{number:,} ± {TWO_SIDED * plan.standard_error(number):,.0f}" for number in people]
    chance = 100 * float(plan.coin.probability)
    return {
        "mechanism": f"each person takes part with a chance of {chance:.3g}%, among"
        f" about {round(plan.expected_decoys):,} decoys of each curator",
        "answer": f"people in common ± 95%: {', '.join(errors)}",
    }


def _promise(contract: Contract) -> str:
    """Say the promise, how it is computed, and what contracts and ledgers call that."""
    delta = f", δ = {contract.delta:g}" if contract.delta else ""
    by = PROMISES[contract.accounting]
    return f"ε = {contract.epsilon:g}{delta}, kept by {by} ({contract.accounting})"


def _plan_facts(contract: Contract, plan: Plan | None) -> dict[str, str]:
    """Say what is done to the records, and how far off the estimates will be."""
    if contract.decoys is None:
        return _paper_facts(contract, plan)
    assert plan is not None  # noqa: S101 - decoys have a plan, or there is no contract
    facts = {
        "mechanism": f"decoys, invented records that only the curators can tell:"
        f" {_taking_part(plan)}",
        "expected": _expected(plan),
        "noise": _noise(plan),
        "error": _error(plan),
    }
    return {name: text for name, text in facts.items() if text}


def _taking_part(plan: Plan) -> str:
    chance = plan.coin_probability or 0
    if chance == 1:
        return "every respondent takes part"
    return f"each respondent takes part with a chance of {100 * chance:.3g}%"


def _expected(plan: Plan) -> str:
    decoys = f"about {round(plan.expected_decoys):,} decoys"
    if plan.linkage == "matched" and plan.expected_pattern_decoys is not None:
        decoys += f" in the joined table ({round(plan.expected_pattern_decoys):,} in all)"
    if plan.expected_rows is None:
        return decoys
    return f"about {round(plan.expected_rows):,} rows, with {decoys}"


def _noise(plan: Plan) -> str:
    if plan.keep_probability is None:
        return "none by the server"
    return (
        f"the server keeps a row with a chance of {100 * plan.keep_probability:.3g}%, and replaces"
        f" it by a random cell otherwise (γ = {plan.gamma:.6g})"
    )


def _error(plan: Plan) -> str:
    """Say the error; if nobody has said how many respondents there are, for a few numbers."""
    if plan.population_size is not None:
        return (
            f"RMSE {plan.rmse:.4g} at worst, {plan.rmse_published:.4g} in published copies;\n"
            f"{100 * plan.rmse_per_cell:.2g} percentage points a cell, whose mean"
            f" share is {100 * plan.mean_share:.3g}%"
        )
    errors = [
        f"{replace(plan, population_size=number).rmse:.2g} with {number:,} respondents"
        for number in EXAMPLE_POPULATIONS
    ]
    return f"RMSE at worst {', '.join(errors)}"


def _paper_facts(contract: Contract, plan: Plan | None) -> dict[str, str]:
    terms = contract.mechanism
    size = terms.sample_size if isinstance(terms, PaperTerms) else None
    sample = "the best size" if size is None else f"{size:,}"
    way = "shuffle" if contract.delta else "paper"
    facts = {"mechanism": f"{way}: a secret sample ({sample}), and noise by the server"}
    if plan is not None:
        facts["expected"] = f"{plan.sample_size:,} rows"
        facts["noise"] = _noise(plan)
        facts["error"] = _error(plan)
    return facts


def linkage_words(linkage: Linkage) -> str:
    """Say how rows belong together."""
    if linkage.by == "rows":
        return "their order: first row with first row"
    columns = linkage.columns or 1
    rules = ", ".join(RULES[rule] for rule in linkage.normalisation)
    ids = f"ids of {columns:,} column{'s' * (columns != 1)}"
    return f"{ids}, compared {rules}" if rules else ids


def called(one: Acquaintance) -> str:
    """Return what a party calls itself and, if that is another name, what you call it."""
    name = readable(one.identity.name)
    other = one.known_as is not None and one.known_as != one.identity.name
    return f"{name} (to you: {readable(one.known_as or '')})" if other else name
