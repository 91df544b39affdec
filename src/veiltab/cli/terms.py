"""A study in words: its terms before anybody signs them, and where it stands."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from veiltab.cli.explaining import explain
from veiltab.cli.identity import spell
from veiltab.cli.output import (
    console,
    moment,
    print_facts,
    print_json,
    print_rows,
    print_warnings,
)
from veiltab.wire.states import State

if TYPE_CHECKING:
    from rich.console import Console

    from veiltab.party.alignments import AlignmentStatus
    from veiltab.party.coalitions import Coalition
    from veiltab.party.home import Home
    from veiltab.party.known.known import Acquaintance
    from veiltab.party.remote import CuratorStatus, Status
    from veiltab.wire.contract import Agreement, Contract, PublicIdentity, Vault
    from veiltab.wire.signed import Signed

SHOWN_CATEGORIES = 12

ALIGNING = (State.PROPOSED, State.OPEN)
"""While a study is so, curators align; later, what they hold is not asked for any more."""


def terms_json(signed: "Signed[Contract]", home: "Home") -> dict[str, Any]:
    """Return the terms, the signatures, and what the study costs, as JSON values."""
    from veiltab.party.coalitions import coalitions
    from veiltab.party.known.known import acquaintances
    from veiltab.party.proposal import plan_of
    from veiltab.party.terms import budgets, signers, warnings_of

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
        "warnings": warnings_of(contract),
        "coalitions": [asdict(coalition) for coalition in coalitions(contract)],
        "budgets": budgets(contract, home),
    }


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
    from veiltab.party.terms import cost_lines, study_facts, warnings_of

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
    explain()  # a question follows, or the study's status


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


def print_parties(
    screen: "Console", signed: "Signed[Contract] | Signed[Vault]", home: "Home"
) -> None:
    """Print who takes part, with the fingerprints, and whose were compared."""
    from veiltab.party.known.known import Standing, acquaintances
    from veiltab.party.terms import called, signers

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
    from veiltab.party.known.known import is_verified

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


def _reads_vault(home: "Home", study: bytes) -> bool:
    """Tell whether a study is known to read stored tables, which are not pushed again."""
    signed = home.study(study).contract()
    return signed is not None and signed.body.stored is not None


def _progress(curator: "CuratorStatus", home: "Home", *, stored: bool) -> tuple[str, ...]:
    from veiltab.party.known.known import is_verified
    from veiltab.party.known.names import readable

    me = curator.party == home.public.party_id
    verified = "you" if me else _mark(is_verified(home, curator.party))
    aligned = () if stored else (curator.aligned,)
    marks = (_mark(done) for done in (curator.signed, *aligned, curator.uploaded))
    return (readable(curator.name), verified, *marks)


def _mark(done: bool) -> str:
    return "yes" if done else "no"
