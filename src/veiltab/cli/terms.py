"""A study in words: its terms before anybody signs them, and where it stands."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from veiltab.cli.identity import spell
from veiltab.cli.output import (
    console,
    count,
    moment,
    print_facts,
    print_json,
    print_rows,
    print_warnings,
)
from veiltab.wire.states import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from veiltab.core.overlap import OverlapPlan
    from veiltab.core.plan import Plan
    from veiltab.party.alignments import AlignmentStatus
    from veiltab.party.coalitions import Coalition
    from veiltab.party.costs import Cost
    from veiltab.party.home import Home
    from veiltab.party.known.known import Acquaintance
    from veiltab.party.remote import CuratorStatus, Status
    from veiltab.wire.contract import Agreement, Contract, Linkage, PublicIdentity, Vault
    from veiltab.wire.signed import Signed


SHOWN_CATEGORIES = 12
TWO_SIDED = 1.96
EXAMPLE_POPULATIONS = (1_000, 10_000, 100_000)
"""For how many respondents the error is shown where the contract does not say how many."""

LINKAGES = {
    "aligned": "all curators hold the same ones",
    "matched": "those whom all curators hold, matched by the server",
}
ALIGNING = (State.PROPOSED, State.OPEN)
"""While a study is so, curators align; later, what they hold is not asked for any more."""

ALIGNED = (
    "aligned: has sent a keyed digest of its respondents and decoys, for the others to compare"
)

PADS = {
    "stream": "under a key for each attribute",
    "one-time": "under one-time pads, which curators hand to researchers directly",
}


def signers(signed: "Signed[Any]") -> set[bytes]:
    """Return who has signed, by first signing key, after a look at every signature."""
    from veiltab.protocol.verify import verify_some

    verify_some(signed, [terms.identity.signing_key for terms in signed.body.curators])
    return {signature.root for signature in signed.signatures}


def terms_json(signed: "Signed[Contract]", home: "Home") -> dict[str, Any]:
    """Return the terms, the signatures, and what the study costs, as JSON values."""
    from veiltab.party.coalitions import coalitions
    from veiltab.party.known.known import acquaintances
    from veiltab.party.proposal import plan_of

    contract, keys = signed.body, signers(signed)
    parties = {one.identity.party_id: one for one in acquaintances(home, contract)}
    plan = plan_of(contract)
    return {
        "study": contract.study_id.hex(),
        "title": contract.title,
        "epsilon": contract.epsilon,
        "delta": contract.delta,
        "accounting": contract.accounting,
        "cells": contract.schema.domain_size,
        "population": contract.population,
        "mechanism": contract.to_json()["mechanism"],
        "pads": contract.pads,
        "linkage": contract.linkage.to_json(),
        "stored": contract.to_json()["stored"],
        "server": _party(contract.server),
        "curators": [
            {
                **_party(terms.identity, parties[terms.party_id]),
                "signed": terms.identity.signing_key in keys,
                "attributes": [
                    {"name": attribute.name, "categories": list(attribute.categories)}
                    for attribute in terms.attributes
                ],
            }
            for terms in contract.curators
        ],
        "researchers": None
        if contract.researchers is None
        else [_party(one, parties[one.party_id]) for one in contract.researchers],
        "plan": plan.as_dict() if plan is not None else None,
        "warnings": list(() if plan is None else plan.warnings),
        "coalitions": [asdict(coalition) for coalition in coalitions(contract)],
        "budgets": budgets(contract, home),
    }


def warnings_of(contract: "Contract", expected: int | None = None) -> list[str]:
    """Return what is unwise about a study, for about this many respondents if it states none."""
    from veiltab.party.proposal import plan_of

    plan = plan_of(contract, expected)
    return [] if plan is None else list(plan.warnings)


def _party(identity: "PublicIdentity", known: "Acquaintance | None" = None) -> dict[str, Any]:
    party = identity.party_id.hex()
    about: dict[str, Any] = {"name": identity.name, "party": party, "fingerprint": spell(identity)}
    if known is not None:
        about |= {
            "verified": known.verified,
            "standing": known.standing,
            "known_as": known.known_as,
        }
    return about


def budgets(contract: "Contract", home: "Home") -> list[dict[str, Any]]:
    """Return, for each data set of this home, what is left without the study and with it."""
    from veiltab.party.costs import costs

    return [cost_json(cost) for cost in costs(home.ledgers, contract)]


def cost_json(cost: "Cost") -> dict[str, Any]:
    """Return what a study takes of a data set's budget, as JSON values."""
    return {"dataset": cost.dataset, "charged": cost.charged, "fits": cost.fits} | asdict(cost)


def cost_lines(costs: "Iterable[Cost]") -> dict[str, str]:
    """Say what a study takes of each data set, or of the one that it is charged to already."""
    every = list(costs)
    lines = [_cost_line(cost) for cost in [cost for cost in every if cost.charged] or every]
    return {"your budget": "\n".join(lines)} if lines else {}


def _cost_line(cost: "Cost") -> str:
    if cost.refusal is not None:
        return f"{cost.dataset}: {cost.refusal}"
    left = f"ε = {cost.epsilon_before:g} of {cost.epsilon_limit:g}"
    after = f"{cost.epsilon_after:g}"
    if cost.delta_limit:
        left += f" and δ = {cost.delta_before:g} of {cost.delta_limit:g}"
        after += f" and {cost.delta_after:g}"
    charged = "; it is charged already" if cost.charged else ""
    return f"{cost.dataset}: {left} left before this study, {after} after{charged}"


def print_terms(
    screen: "Console",
    signed: "Signed[Contract]",
    home: "Home",
    dataset: str | None = None,
    expected: int | None = None,
) -> None:
    """Print what a curator should read before signing, for about so many respondents.

    ``dataset`` is the one that is to be charged; by default all are shown.
    """
    from veiltab.party.coalitions import coalitions
    from veiltab.party.costs import costs

    contract = signed.body
    facts = {"study": contract.title}
    if signed.signatures:  # what nobody has signed has no id yet
        facts["id"] = contract.study_id.hex()
    cost = cost_lines(costs(home.ledgers, contract, dataset))
    print_facts(screen, facts | study_facts(contract, home, expected) | cost)
    print_warnings(screen, warnings_of(contract, expected))
    screen.print()
    print_coalitions(screen, coalitions(contract))
    screen.print()
    print_parties(screen, signed, home)
    if contract.overlap is None:
        screen.print()
        print_attributes(screen, contract)


def print_attributes(screen: "Console", agreement: "Agreement") -> None:
    """Print what is held by whom."""
    from veiltab.party.known.names import readable

    rows = [
        (attribute.name, readable(terms.identity.name), _categories(attribute.categories))
        for terms in agreement.curators
        for attribute in terms.attributes
    ]
    print_rows(screen, ("attribute", "held by", "categories"), rows)


def print_coalitions(screen: "Console", coalitions: "Iterable[Coalition]") -> None:
    """Print what each party, and each group of parties, could learn about a respondent."""
    rows = [(coalition.numbers, coalition.words) for coalition in coalitions]
    print_rows(screen, ("could learn", "who, and what it means"), rows, whole="could learn")


def study_facts(contract: "Contract", home: "Home", expected: int | None = None) -> dict[str, str]:
    """Say what is asked and promised, how the promise is kept, and how large the error will be."""
    from veiltab.party.proposal import plan_of

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


def _overlap_facts(contract: "Contract") -> dict[str, str]:
    plan = contract.overlap_plan
    return {
        "question": "how many people do all curators have in common?  No values are sent.",
        "promise": _promise(contract),
        "people match by": linkage_words(contract.linkage),
        **overlap_facts(plan, EXAMPLE_POPULATIONS),
    }


def overlap_facts(plan: "OverlapPlan", people: "Sequence[int]") -> dict[str, str]:
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


def _promise(contract: "Contract") -> str:
    """Say the promise, how it is computed, and what contracts and ledgers call that."""
    from veiltab.wire.mechanism import DECOYS_1, OVERLAP_1, PURE_1, SHUFFLE_1

    delta = f", δ = {contract.delta:g}" if contract.delta else ""
    by = {
        DECOYS_1: "a coin and decoys, and computed exactly",
        PURE_1: "the server's noise and a secret sample: the paper's Theorem 1",
        SHUFFLE_1: "the server's noise, a secret sample and a secret order",
        OVERLAP_1: "a coin and decoys towards the server, and by its noise towards curators",
    }[contract.accounting]
    return f"ε = {contract.epsilon:g}{delta}, kept by {by} ({contract.accounting})"


def _plan_facts(contract: "Contract", plan: "Plan | None") -> dict[str, str]:
    """Say what is done to the records, and how far off the estimates will be."""
    if contract.decoys is None:
        return _paper_facts(contract, plan)
    assert plan is not None  # noqa: S101 - decoys have a plan, or there is no contract
    facts = {
        "mechanism": f"decoys: {_taking_part(plan)}, and the curators invent records that nobody"
        " else can tell from real ones",
        "expected": _expected(plan),
        "noise": _noise(plan),
        "error": _error(plan),
    }
    return {name: text for name, text in facts.items() if text}


def _taking_part(plan: "Plan") -> str:
    chance = plan.coin_probability or 0
    if chance == 1:
        return "every respondent takes part"
    return f"each respondent takes part with a chance of {100 * chance:.3g}%"


def _expected(plan: "Plan") -> str:
    decoys = f"about {round(plan.expected_decoys):,} decoys"
    if plan.linkage == "matched" and plan.expected_pattern_decoys is not None:
        decoys += f" in the joined table ({round(plan.expected_pattern_decoys):,} in all)"
    if plan.expected_rows is None:
        return decoys
    return f"about {round(plan.expected_rows):,} rows, with {decoys}"


def _noise(plan: "Plan") -> str:
    if plan.keep_probability is None:
        return "none by the server"
    return (
        f"the server keeps a row with a chance of {100 * plan.keep_probability:.3g}%, and replaces"
        f" it by a random cell otherwise (γ = {plan.gamma:.6g})"
    )


def _error(plan: "Plan") -> str:
    """Say the error; if nobody has said how many respondents there are, for a few numbers."""
    from dataclasses import replace

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


def _paper_facts(contract: "Contract", plan: "Plan | None") -> dict[str, str]:
    from veiltab.wire.mechanism import PaperTerms

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


def linkage_words(linkage: "Linkage") -> str:
    """Say how rows belong together."""
    if linkage.by == "rows":
        return "their order: first row with first row"
    rules = f", made alike by {', '.join(linkage.normalisation)}" if linkage.normalisation else ""
    return f"ids of {count(linkage.columns or 1, 'column')}{rules}"


def print_parties(
    screen: "Console", signed: "Signed[Contract] | Signed[Vault]", home: "Home"
) -> None:
    """Print who takes part, with the fingerprints, and whose were compared."""
    from veiltab.party.known.known import Standing, acquaintances

    keys = signers(signed)
    parties = acquaintances(home, signed.body)
    rows = []
    for one in sorted(parties, key=lambda one: one.role != "server"):
        signature = _mark(one.identity.signing_key in keys) if one.role == "curator" else ""
        rows.append((one.role, called(one), one.fingerprint, _standing(one), signature))
    if getattr(signed.body, "researchers", ()) is None:
        rows.append(("researcher", "whomever a curator grants access", "", "", ""))
    names = ("part", "name", "fingerprint", "verified", "signed")
    print_rows(screen, names, rows, whole="fingerprint")  # people read it aloud
    for one in parties:
        if one.standing in (Standing.CHANGED, Standing.BLOCKED, Standing.REVOKED):
            screen.print(f"\n{_warning(home, one)}", markup=False, soft_wrap=True)
    missing = [called(o) for o in parties if o.standing in (Standing.NEW, Standing.UNVERIFIED)]
    if missing:
        screen.print(
            f"\nNot verified: {', '.join(missing)}.  Compare the digits with them by telephone.",
            markup=False,
        )


def called(one: "Acquaintance") -> str:
    """Return what a party calls itself and, if that is another name, what you call it."""
    from veiltab.party.known.names import readable

    name = readable(one.identity.name)
    other = one.known_as is not None and one.known_as != one.identity.name
    return f"{name} (to you: {readable(one.known_as or '')})" if other else name


def _standing(one: "Acquaintance") -> str:
    from veiltab.party.known.known import Standing

    if one.standing is None:
        return "pinned"
    words = {Standing.YOU: "you", Standing.VERIFIED: "yes"}
    words |= {Standing.CHANGED: "CHANGED"}
    words |= {other: other.value for other in (Standing.BLOCKED, Standing.REVOKED)}
    return words.get(one.standing, "no")


def _warning(home: "Home", one: "Acquaintance") -> str:
    """Return why a party would be refused."""
    from veiltab.errors import VeiltabError

    try:
        home.known.check([one.identity])
    except VeiltabError as error:
        return error.message
    return ""


def _categories(categories: tuple[str, ...]) -> str:
    shown = ", ".join(categories[:SHOWN_CATEGORIES])
    more = len(categories) - SHOWN_CATEGORIES
    return f"{shown} and {more:,} more" if more > 0 else shown


def print_status(status: "Status", home: "Home", *, as_json: bool) -> None:
    """Print a status."""
    if as_json:
        print_json(status_json(status, home))
    else:
        show_status(console(), status, home)


def status_json(status: "Status", home: "Home") -> dict[str, Any]:
    """Return a status, with whose fingerprint was compared, as JSON values."""
    values = status.to_json()
    for party in [*values["curators"], *(values["researchers"] or ())]:
        party["verified"] = is_verified(home, bytes.fromhex(party["party"]))
    return values


def alignment_json(aligning: "AlignmentStatus | None") -> dict[str, Any] | None:
    """Return whether the curators hold the same, as JSON values."""
    if aligning is None:
        return None
    return {
        "aligned": aligning.aligned,
        "difference": aligning.difference,
        "waiting_for": list(aligning.waiting_for),
        "curators": [
            {
                "name": curator.name,
                "party": curator.party.hex(),
                "attempt": curator.attempt,
                "respondents": curator.respondents,
            }
            for curator in aligning.curators
        ],
    }


def is_verified(home: "Home", party_id: bytes) -> bool:
    """Tell whether a party is this home's own, or its fingerprint was compared."""
    known = home.known.of(party_id)
    return party_id == home.public.party_id or (known is not None and known.verified is not None)


def show_status(
    screen: "Console", status: "Status", home: "Home", aligning: "AlignmentStatus | None" = None
) -> None:
    """Print a status for people."""
    facts = {
        "study": status.title,
        "id": status.study.hex(),
        "state": status.state,
        "since": moment(status.updated),
        "your part": status.role,
    }
    if status.reason is not None:
        facts["reason"] = status.reason
    if aligning is not None and aligning.difference is not None:
        facts["not aligned"] = aligning.difference.removeprefix("not aligned: ")
    if status.granted:
        facts["granted"] = ", ".join(status.granted)
    print_facts(screen, facts)
    screen.print()
    stored = _reads_vault(home, status.study)
    rows = [_progress(curator, home, stored=stored) for curator in status.curators]
    steps = ("signed", "answered") if stored else ("signed", "aligned", "pushed")
    print_rows(screen, ("curator", "verified", *steps), rows)
    if not stored:
        screen.print(f"\n{ALIGNED}", markup=False)


def _reads_vault(home: "Home", study: bytes) -> bool:
    """Tell whether a study is known to read stored tables, which are not pushed again."""
    signed = home.study(study).contract()
    return signed is not None and signed.body.stored is not None


def _progress(curator: "CuratorStatus", home: "Home", *, stored: bool) -> tuple[str, ...]:
    from veiltab.party.known.names import readable

    me = curator.party == home.public.party_id
    verified = "you" if me else _mark(is_verified(home, curator.party))
    aligned = () if stored else (curator.aligned,)
    marks = (_mark(done) for done in (curator.signed, *aligned, curator.uploaded))
    return (readable(curator.name), verified, *marks)


def _mark(done: bool) -> str:
    return "yes" if done else "no"
