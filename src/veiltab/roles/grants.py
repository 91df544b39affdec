"""What curators, server and researchers all check of a grant (spec 11)."""

import hashlib

from veiltab.errors import DigestError, ExpiredError, MismatchError
from veiltab.roles.agreements import check_researcher
from veiltab.roles.signatures import verify
from veiltab.wire.contract import Contract, CuratorTerms
from veiltab.wire.messages import Grant, Release, SignedGrant

SEAL_PURPOSE = "grant"


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
    """Refuse a sealed part that is not the one which the curator signed for, if there is one."""
    sealed = grant.sealed
    if sealed is not None and hashlib.sha256(sealed).digest() != grant.body.sealed_digest:
        raise DigestError(
            "the sealed part of the grant is not the one that was signed",
            hint="ask the curator for the grant again",
        )
