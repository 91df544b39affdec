"""What a researcher does over the network: check everything, fetch, decrypt, estimate."""

from collections.abc import Iterable, Sequence
from os import PathLike
from pathlib import Path

from veiltab.errors import InputError, MessageError, MismatchError, NotGrantedError
from veiltab.estimates import Estimate, Provenance
from veiltab.files.private import check_private_file
from veiltab.party.context import PartyContext
from veiltab.party.evidence import fetch_release
from veiltab.party.grants import attributes_left, list_grants
from veiltab.party.publishing import StudyPublisher, published_part
from veiltab.party.remote import ReleasedChunks, reading_order, released_sizes
from veiltab.protocol.researcher import Access, count_records, granted_attributes, open_access
from veiltab.wire.codec import MAX_MESSAGE_BYTES
from veiltab.wire.contract import Contract
from veiltab.wire.messages import SignedGrant
from veiltab.wire.signed import Signed


def estimate_study(
    context: PartyContext,
    signed: Signed[Contract],
    attributes: Sequence[str] | None = None,
    grants: Sequence[SignedGrant] = (),
    *,
    partial: bool = False,
) -> Estimate:
    """Estimate the joint distribution of attributes that were granted, all of them by default.

    ``grants`` are those that curators have handed over directly, as one-time pads must be.  What
    expired or revoked grants covered is an error, or with ``partial`` left out.  The verified plan,
    the study's title and who took part travel with the estimate; the promises follow from the plan.
    """
    seen = list_grants(context, signed.body)
    left = attributes_left(signed.body, seen, attributes, partial=partial)
    ended = [one.grant for one in seen if one.state != "good"]
    access = open_study(context, signed, [one for one in grants if one.body not in ended])
    study, wanted = access.contract.study_id, granted_attributes(access, left)
    order = reading_order(access.contract, access.release, wanted)
    sizes = released_sizes(access.contract, access.release)
    with ReleasedChunks(context.server, study, order, sizes) as chunks:
        released = count_records(access, chunks, wanted)
    terms = access.contract
    origin = Provenance(
        study.hex(),
        terms.title,
        perturbed_by=terms.server.name,
        researcher=context.home.public.name,
        holders={
            attribute.name: curator.identity.name
            for curator in terms.curators
            for attribute in curator.attributes
        },
        linkage=terms.linkage.mode,
        pads=terms.pads,
    )
    publisher = StudyPublisher(context, access)
    return Estimate.from_counts(released, provenance=origin, publisher=publisher)


def publish_study(
    context: PartyContext,
    signed: Signed[Contract],
    attributes: Sequence[str] | None = None,
    grants: Sequence[SignedGrant] = (),
) -> Estimate:
    """Return the copy that may be passed on; the first call draws its noise, for all attributes.

    Later calls return the same copy or some attributes of it, and need no grant any more.
    """
    published = published_part(context, signed.body.study_id, attributes)
    if published is not None:
        return published
    estimate = estimate_study(context, signed, attributes, grants)
    if attributes is None:
        _check_all_grant(signed.body, estimate.schema.names)
    estimate.design()  # refuses a release with almost nobody in it, before it is published
    return estimate.publish()


def _check_all_grant(contract: Contract, granted: Sequence[str]) -> None:
    """Refuse to publish whatever happens to be granted while a curator's grant is still missing.

    There is one copy for ever, so a table that was published too early could not be mended.
    """
    missing = [
        repr(terms.identity.name)
        for terms in contract.curators
        if not any(attribute.name in granted for attribute in terms.attributes)
    ]
    if missing:
        raise NotGrantedError(
            f"no attribute has been granted yet by: {', '.join(missing)}",
            hint="wait for the grants, because there is one published copy for ever; or name the"
            f" attributes to publish without: {', '.join(map(repr, granted))}",
        )


def open_study(
    context: PartyContext, signed: Signed[Contract], given: Sequence[SignedGrant] = ()
) -> Access:
    """Verify contract, release and grants, and unseal the pads."""
    study = signed.body.study_id
    if any(grant.body.study != study for grant in given):
        raise MismatchError(
            "a grant file belongs to another study", hint="give only grant files of this study"
        )
    whole = [grant for grant in context.server.grants(study) if grant.sealed is not None]
    chosen = _largest([*given, *whole], context.identity.party_id, context.now)
    release, _ = fetch_release(context, signed.body)
    return open_access(context.identity, signed, release, chosen, now=context.now)


def as_grant(given: SignedGrant | str | PathLike[str]) -> SignedGrant:
    """Read a grant file that a curator has handed over; a grant is returned as it is.

    One with one-time pads must be readable by its owner alone: whoever copies it, and breaks the
    seal some day, has the pads.
    """
    if isinstance(given, SignedGrant):
        return given
    path = Path(given)
    try:
        with path.open("rb") as file:
            grant = SignedGrant.loads(file.read(MAX_MESSAGE_BYTES + 1))
            if grant.body.pads == "one-time":
                check_private_file(file.fileno(), path)
            return grant
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint="check the path") from error
    except MessageError as error:
        raise InputError(
            f"{path} is not a grant", hint="ask the curator for the file that `veiltab grant` wrote"
        ) from error


def _largest(grants: Iterable[SignedGrant], me: bytes, now: int) -> list[SignedGrant]:
    """Choose the largest valid grant of each curator.

    Curators repeat in every new grant what they granted before, so one is enough.
    """
    best: dict[bytes, SignedGrant] = {}
    for grant in grants:
        body = grant.body
        if body.researcher != me or body.expires <= now:
            continue
        other = best.get(body.curator)
        if other is None or _size(grant) > _size(other):
            best[body.curator] = grant
    return list(best.values())


def _size(grant: SignedGrant) -> tuple[int, int]:
    return len(grant.body.attributes), grant.body.expires
