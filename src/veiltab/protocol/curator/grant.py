"""Granting: the pads of chosen attributes, sealed to one researcher (spec 11)."""

import hashlib
from collections.abc import Sequence

from veiltab.core.entropy import random_bytes
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.sealing import seal
from veiltab.errors import MismatchError, SchemaError
from veiltab.protocol.curator.upload import CuratorContext, OneTimePads, Prepared
from veiltab.protocol.verify import SEAL_PURPOSE, check_researcher, seal_context, sign
from veiltab.wire.contract import Contract, PublicIdentity
from veiltab.wire.messages import Grant, GrantRevocation, Repad, SignedGrant, Upload
from veiltab.wire.signed import Signed

GRANT_ID_BYTES = 16


def grant(
    context: CuratorContext,
    contract: Contract,
    prepared: Prepared[Upload] | Prepared[Repad],
    researcher: PublicIdentity,
    attributes: Sequence[str] | None = None,
    *,
    expires: int,
    sealing_key: bytes | None = None,
) -> SignedGrant:
    """Let a researcher decrypt these attributes (all by default) until a time in seconds.

    ``sealing_key`` is the researcher's newest, if it is not the first one.

    With one-time pads the result goes to the researcher directly, and the server is given its
    :meth:`~veiltab.wire.messages.SignedGrant.header` alone.
    """
    check_researcher(contract, researcher.party_id)
    _check_belongs(context, contract, prepared)
    schema = contract.schema_of(context.identity.party_id)
    chosen = _in_order(schema.names, attributes)
    grant_id = random_bytes(GRANT_ID_BYTES, context.entropy)
    material = prepared.pads.material([schema.names.index(name) for name in chosen])
    curator = context.identity.party_id
    binding = seal_context(contract.study_id, curator, researcher.party_id, grant_id)
    sealed = seal(material, sealing_key or researcher.sealing_key, SEAL_PURPOSE, binding)
    body = Grant(
        attributes=chosen,
        curator=curator,
        expires=expires,
        grant_id=grant_id,
        pads=contract.pads,
        researcher=researcher.party_id,
        sealed_digest=hashlib.sha256(sealed).digest(),
        study=contract.study_id,
        upload_digest=prepared.message.digest,
    )
    return SignedGrant(sign(body, context.identity.signing), sealed)


def revoke(identity: PrivateIdentity, grant: Grant) -> Signed[GrantRevocation]:
    """Take one's own grant back (spec 11.2)."""
    if grant.curator != identity.party_id:
        raise MismatchError(
            "another curator has given this grant", hint="ask that curator to revoke it"
        )
    return sign(GrantRevocation.of(grant), identity.signing)


def _check_belongs(
    context: CuratorContext, contract: Contract, prepared: Prepared[Upload] | Prepared[Repad]
) -> None:
    """Refuse other pads: above all those of a stored table itself, which nobody may have."""
    body = prepared.message.body
    scope = body.scope if isinstance(body, Upload) else body.study
    one_time = isinstance(prepared.pads, OneTimePads)
    if (
        scope != contract.study_id
        or body.curator != context.identity.party_id
        or one_time != (contract.pads == "one-time")
    ):
        raise MismatchError(
            "these pads belong to another study or curator, or are of another kind",
            hint="grant what was prepared for this study; of a stored table, its new pads",
        )


def _in_order(names: Sequence[str], wanted: Sequence[str] | None) -> tuple[str, ...]:
    """Put the wanted attributes in the contract's order; refuse what the curator does not hold."""
    if wanted is None:
        return tuple(names)
    hint = f"you can grant {', '.join(map(repr, names))}"
    if not wanted:
        raise SchemaError("a grant needs at least one attribute", hint=hint)
    unknown = sorted(set(wanted) - set(names))
    if unknown:
        raise SchemaError(
            f"in this study you have no attribute {', '.join(map(repr, unknown))}", hint=hint
        )
    return tuple(name for name in names if name in wanted)
