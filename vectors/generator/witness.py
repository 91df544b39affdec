"""Vectors of witnesses, and of proofs of two logs: section 7.5 of the service's specification."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from vectors.generator.audit import (
    BROKEN,
    LIFE,
    MALFORMED,
    SHORT,
    START,
    STUDY,
    WHOLE,
    Log,
    head,
    written,
)
from vectors.generator.files import Case, Document, bad, case, document, filler
from vectors.generator.requests import OTHER, SENDER, SERVER
from vectors.generator.tampering import Change, drop, put, text
from veiltab.crypto.identity import PrivateIdentity
from veiltab.protocol.witness import leave_witness
from veiltab.wire.audit import AuditHead, Equivocation, Witness, entry_hash
from veiltab.wire.codec import dump
from veiltab.wire.signed import Signed

SIGNATURE = "bad_signature"
FORK = [SHORT[0], *written(LIFE[2:4], (1, entry_hash(SHORT[0])), start=START + 7)]
"""A log of the same length as ``SHORT`` that differs from its second entry on."""

LONGER = [*FORK, *written(LIFE[4:6], (3, entry_hash(FORK[2])), start=START + 900)]


def witness() -> Document:
    """Section 7.5: heads that parties leave, and proofs that a server has signed two logs."""
    cases = [*_witnesses(), *_bad_witnesses(), *_proofs(), *_bad_proofs()]
    return document(
        "Service, section 7.5. A `witness` of the party with the public key `party_key`, with a"
        " head of the `study` by the server with the public key `server_key`; or a `proof` that"
        " this server has signed two logs, which gives the study.",
        cases,
    )


def _witnesses() -> Iterator[Case]:
    for name, log in {"a short log": SHORT, "a whole life": WHOLE}.items():
        expect = {"length": len(log), "hash": entry_hash(log[-1]).hex()}
        yield case(name, expect, **_inputs(leave_witness(head(log), SENDER)))


def _bad_witnesses() -> Iterator[Case]:
    right = leave_witness(head(SHORT), SENDER)
    wrong: dict[str, tuple[str, Signed[Witness]]] = {
        "witness_by_another": (SIGNATURE, leave_witness(head(SHORT), OTHER)),
        "head_by_another": (SIGNATURE, leave_witness(head(SHORT, OTHER.signing), SENDER)),
        "head_by_the_witness": (SIGNATURE, leave_witness(head(SHORT, SENDER.signing), SENDER)),
        "head_of_another_study": (BROKEN, leave_witness(_elsewhere(SHORT), SENDER)),
        "witness_not_signed": (SIGNATURE, _unsigned(right)),
    }
    for name, (code, signed) in wrong.items():
        yield bad(name, code, **_inputs(signed))
    changes: dict[str, Change] = {
        "witness_without_head": drop("body", "head"),
        "witness_kind": put("body", "kind", to="audit-head"),
        "witness_unknown_field": put("body", "comment", to=""),
        "head_with_a_comment": put("body", "head", "comment", to=""),
        "head_length_zero": put("body", "head", "body", "length", to=0),
    }
    for name, change in changes.items():
        spoiled = right.to_json()
        change(spoiled)
        yield bad(name, MALFORMED, **_keys(), witness=text(spoiled))


def _proofs() -> Iterator[Case]:
    proofs = {
        "two heads of the same length": _proof(SHORT, FORK),
        "a head that is not in a longer log": _proof(SHORT, LONGER, LONGER),
        "another start": _proof(written(LIFE[:1], start=START + 1), LONGER, LONGER),
    }
    for name, proof in proofs.items():
        yield case(name, {"study": STUDY.hex()}, **_proving(proof))


def _bad_proofs() -> Iterator[Case]:
    by_another = replace(_proof(SHORT, FORK), first=head(SHORT, OTHER.signing))
    proofs: dict[str, tuple[str, Equivocation]] = {
        "proof_same_head": (BROKEN, _proof(SHORT, SHORT)),
        "proof_same_log": (BROKEN, _proof(WHOLE[:3], WHOLE, WHOLE)),
        "proof_without_entries": (BROKEN, _proof(SHORT, LONGER)),
        "proof_of_too_few_entries": (BROKEN, _proof(SHORT, LONGER, LONGER[:4])),
        "proof_with_other_entries": (BROKEN, _proof(SHORT, LONGER, [*WHOLE[:4], LONGER[4]])),
        "proof_longer_first": (BROKEN, _proof(LONGER, SHORT, SHORT)),
        "proof_head_by_another": (BROKEN, by_another),
        "proof_of_two_studies": (BROKEN, replace(_proof(SHORT, FORK), second=_elsewhere(FORK))),
    }
    for name, (code, proof) in proofs.items():
        yield bad(name, code, **_proving(proof))
    spoiled = _proof(SHORT, FORK).to_json()
    del spoiled["second"]
    yield bad("proof_with_one_head", MALFORMED, **_keys(), proof=text(spoiled))


def _proof(first: Log, second: Log, entries: Log | None = None) -> Equivocation:
    return Equivocation(entries=tuple(entries or ()), first=head(first), second=head(second))


def _elsewhere(log: Log) -> Signed[AuditHead]:
    return head(log, study=filler("audit: another study"))


def _unsigned(signed: Signed[Witness]) -> Signed[Witness]:
    empty = replace(signed.signatures[0], signature=bytes(64))
    return replace(signed, signatures=(empty,))


def _keys(party: PrivateIdentity = SENDER) -> dict[str, Any]:
    return {
        "study": STUDY.hex(),
        "party_key": party.signing.public.hex(),
        "server_key": SERVER.signing.public.hex(),
    }


def _inputs(signed: Signed[Witness]) -> dict[str, Any]:
    return {**_keys(), "witness": signed.dumps().decode()}


def _proving(proof: Equivocation) -> dict[str, Any]:
    return {**_keys(), "proof": dump(proof.to_json()).decode()}
