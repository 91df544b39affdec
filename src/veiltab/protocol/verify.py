"""Signatures, and what every party checks: contracts, releases, grants (spec 1.2, 4, 10, 11).

A check returns what it has checked, or raises; nothing here decrypts.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from veiltab.core.plan import Plan, plan
from veiltab.core.schema import Attribute
from veiltab.crypto import signing
from veiltab.crypto.signing import SigningKey
from veiltab.errors import (
    DigestError,
    ExpiredError,
    InputError,
    MismatchError,
    NotGrantedError,
    PromiseError,
    SignatureError,
)
from veiltab.protocol.stores import Digests, check_column_names
from veiltab.wire.contract import Agreement, Contract, CuratorTerms, Vault
from veiltab.wire.mechanism import PURE_1, PaperTerms, accounting_name
from veiltab.wire.messages import Grant, Release, SignedGrant, Upload
from veiltab.wire.signed import Message, Signature, Signed, signing_input

Body = TypeVar("Body", bound=Message)
AgreementType = TypeVar("AgreementType", bound=Agreement)
SEAL_PURPOSE = "grant"


def sign(body: Body, key: SigningKey) -> Signed[Body]:
    """Sign a message as its only signer."""
    return Signed(body, (_signature(body, key),))


def cosign(signed: Signed[Body], key: SigningKey) -> Signed[Body]:
    """Add a party's signature to a message that several sign."""
    return signed.with_signature(_signature(signed.body, key))


def verify(signed: Signed[Body], signers: Iterable[bytes]) -> Body:
    """Return the body if exactly these keys have signed it, and every signature is right."""
    expected = set(signers)
    verify_some(signed, expected)
    missing = expected - {signature.key for signature in signed.signatures}
    if missing:
        raise SignatureError(
            f"{len(missing)} of {len(expected)} signatures on the {signed.body.kind} are missing",
            hint="wait until everybody who has to sign has signed",
        )
    return signed.body


def verify_some(signed: Signed[Body], allowed: Iterable[bytes]) -> Body:
    """Return the body if every signature on it is right and by one of these keys."""
    keys = set(allowed)
    for signature in signed.signatures:
        if signature.key not in keys:
            raise SignatureError(
                f"the {signed.body.kind} is signed by {signature.key.hex()}, who has no part in it",
                hint="ask for the message as its own parties signed it",
            )
        signing.verify(signature.key, signed.signing_input, signature.signature)
    return signed.body


def _signature(body: Message, key: SigningKey) -> Signature:
    data = signing_input(body.kind, body.canonical())
    return Signature(key=key.public, signature=key.sign(data))


def verify_agreement(signed: Signed[AgreementType]) -> AgreementType:
    """Return a contract or vault that every curator has signed (spec 4, 12.1)."""
    return verify(signed, [terms.identity.signing_key for terms in signed.body.curators])


def plan_for(contract: Contract, population_size: int) -> Plan:
    """Return the plan for the study, once the number of respondents is known (spec 4.1)."""
    return plan(
        population_size=population_size,
        domain_size=contract.schema.domain_size,
        epsilon=contract.epsilon,
        delta=contract.delta,
        sample_size=_stated_size(contract, population_size),
        mechanism="shuffle" if contract.delta else "paper",
    )


def planned_sample_size(contract: Contract, population_size: int) -> int:
    """Return how many respondents are sampled, without planning the noise if that is slow."""
    size = _stated_size(contract, population_size)
    return plan_for(contract, population_size).ranked.sample_size if size is None else size


def _stated_size(contract: Contract, population_size: int) -> int | None:
    """Return the sample size if the contract fixes it; check that it can be drawn."""
    if contract.population not in (None, population_size):
        raise MismatchError(
            f"the contract is about {contract.population} respondents, not {population_size}",
            hint="check that every curator uses the table that was agreed on",
        )
    size = _stated_sample(contract)
    if size is None and contract.delta > 0:
        size = population_size  # shuffling gains most from everybody, and all parties must agree
    if size is not None and size > population_size:
        raise MismatchError(
            f"the contract asks for a sample of {size}, and there are {population_size}"
            " respondents in common",
            hint="propose a study with a smaller sample",
        )
    return size


def _stated_sample(contract: Contract) -> int | None:
    """Return the sample size that the contract states, if it does."""
    return contract.mechanism.sample_size if isinstance(contract.mechanism, PaperTerms) else None


def check_researcher(contract: Contract, party_id: bytes) -> None:
    """Refuse a researcher whom the contract does not name, if it names any (spec 4).

    Neither a curator, who knows the order, nor the server can be one.
    """
    others = [contract.server, *(terms.identity for terms in contract.curators)]
    if party_id in {other.party_id for other in others}:
        raise NotGrantedError(
            "a curator or the server of a study cannot be its researcher",
            hint="grant access to somebody who has no other part in the study",
        )
    named = contract.researchers
    if named is not None and party_id not in {researcher.party_id for researcher in named}:
        raise NotGrantedError(
            f"{party_id.hex()} is not a researcher of {contract.title!r}",
            hint="only the researchers named in the contract can be granted access",
        )


def check_vault(contract: Contract, vault: Vault) -> None:
    """Refuse a study that does not read this vault, or that differs from it in terms (12.1)."""
    if contract.stored is None or contract.stored.vault != vault.vault_id:
        raise MismatchError(
            "the contract does not read this vault",
            hint="use the vault that the contract names",
        )
    shared = ("curators", "linkage", "server", "secret_commitment")
    different = [name for name in shared if getattr(contract, name) != getattr(vault, name)]
    if different:
        raise MismatchError(
            f"the contract and its vault differ in {', '.join(different)}",
            hint="propose the study with exactly the vault's parties and terms",
        )


@dataclass(frozen=True, slots=True)
class Share:
    """The chunks of one curator in a release: its positions, if any, and its columns."""

    positions: Digests | None
    columns: tuple[tuple[Attribute, Digests], ...]


def shares(contract: Contract, release: Release, attributes: Sequence[str]) -> list[Share]:
    """Return what is read for these attributes, curator by curator, in the order of first use.

    Readers take one chunk of every share, positions first, then the next chunk of every share.
    """
    holder = {
        attribute.name: terms.party_id
        for terms in contract.curators
        for attribute in terms.attributes
    }
    columns = {column.attribute: column.chunks for column in release.columns}
    positions = {upload.curator: upload.positions for upload in release.uploads}
    by_name = {attribute.name: attribute for attribute in contract.schema.attributes}
    wanted = [by_name[name] for name in attributes if name in by_name]
    return [
        Share(
            positions[curator],
            tuple((a, columns[a.name]) for a in wanted if holder[a.name] == curator),
        )
        for curator in dict.fromkeys(holder[attribute.name] for attribute in wanted)
    ]


def verify_release(contract: Contract, signed: Signed[Release]) -> tuple[Release, Plan]:
    """Return a release that the contract's server has signed, with the plan that it follows."""
    released = verify(signed, [contract.server.signing_key])
    _check_release(contract, released)
    return released, _checked_plan(contract, released)


def check_own_upload(release: Release, upload: Signed[Upload]) -> None:
    """Refuse a release that was not made from a curator's own upload, before pads are granted."""
    body = upload.body
    digests = [other.digest for other in release.uploads if other.curator == body.curator]
    if digests != [upload.digest] or body.population not in (None, release.population):
        raise MismatchError(
            "the release was not made from the table that you pushed",
            hint="grant nothing; show the release to the other curators and ask the operator",
        )


def _check_release(contract: Contract, release: Release) -> None:
    schema = contract.schema
    curators = tuple(terms.party_id for terms in contract.curators)
    positions = release.uploads[0].positions is not None
    fresh = contract.matched and contract.stored is None
    if (
        release.study != contract.study_id
        or release.cells != schema.domain_size
        or tuple(upload.curator for upload in release.uploads) != curators
        or positions != fresh
    ):
        raise MismatchError(
            "the release does not belong to the contract",
            hint="fetch the release of this study; its curators, cells and form must agree",
        )
    check_column_names(release.columns, schema)


def _checked_plan(contract: Contract, release: Release) -> Plan:
    """Recompute the promise from the release's own numbers (spec 4.1)."""
    if (release.epsilon, release.delta) != (contract.epsilon, contract.delta) or (
        release.accounting not in (PURE_1, contract.accounting)
        or _stated_sample(contract) not in (None, release.rows)
        or contract.population not in (None, release.population)
    ):
        raise PromiseError(
            "the release states other parameters than the contract",
            hint="do not use it; ask the curators and the server what happened",
        )
    try:
        return Plan.by_rank(
            population_size=release.population or 0,
            domain_size=release.cells,
            epsilon=release.epsilon,
            delta=release.delta,
            sample_size=release.rows,
            keep_threshold=release.keep_threshold or 0,
            accounting=accounting_name(release.accounting),
        )
    except InputError as error:
        raise PromiseError(
            f"the release does not keep its promise: {error.message}",
            hint="do not use it; ask the curators and the server what happened",
        ) from error


def seal_context(study: bytes, curator: bytes, researcher: bytes, grant_id: bytes) -> bytes:
    """Return what a grant's sealed part is bound to."""
    return study + curator + researcher + grant_id


def verify_grant(
    contract: Contract, release: Release, grant: SignedGrant, now: int
) -> CuratorTerms:
    """Return the curator who gave the grant, if it is valid now and for this very release."""
    body = grant.body
    if body.study != contract.study_id:
        raise MismatchError(
            "the grant is for another study", hint="ask the curator for a grant of this study"
        )
    terms = contract.curator(body.curator)
    verify(grant.signed, [terms.identity.signing_key])
    check_researcher(contract, body.researcher)
    if now >= body.expires:
        raise ExpiredError(
            f"the grant of {terms.identity.name!r} has expired",
            hint="ask the curator for a new one; the release itself stays the same",
        )
    uploads = {upload.curator: upload.digest for upload in release.uploads}
    if uploads.get(body.curator) != body.upload_digest:
        raise MismatchError(
            f"the grant of {terms.identity.name!r} is for another upload than the released one",
            hint="ask the curator for a grant of the upload that was released",
        )
    _check_terms(contract, terms, body)
    _check_sealed(grant)
    return terms


def _check_terms(contract: Contract, terms: CuratorTerms, body: Grant) -> None:
    names = terms.schema.names
    ordered = tuple(name for name in names if name in body.attributes)
    if body.pads != contract.pads or ordered != body.attributes:
        raise MismatchError(
            f"the grant of {terms.identity.name!r} does not fit the contract",
            hint="its attributes must be the curator's, in order, and its pads the contract's",
        )


def _check_sealed(grant: SignedGrant) -> None:
    """Refuse a sealed part other than the one that the curator signed for, if there is one."""
    sealed = grant.sealed
    if sealed is not None and hashlib.sha256(sealed).digest() != grant.body.sealed_digest:
        raise DigestError(
            "the sealed part of the grant is not the one that was signed",
            hint="ask the curator for the grant again",
        )
