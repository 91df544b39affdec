"""What a researcher does over the network: check everything, fetch, decrypt, estimate."""

from collections.abc import Iterable, Sequence

from veiltab.errors import MismatchError
from veiltab.estimates import Estimate, Provenance
from veiltab.party.remote import ReleasedChunks, reading_order, released_sizes
from veiltab.party.session import Session
from veiltab.protocol.researcher.access import Access, open_access
from veiltab.protocol.researcher.decrypt import count_records, granted_attributes
from veiltab.wire.messages import SignedGrant


def open_study(session: Session, study: bytes, files: Iterable[SignedGrant] = ()) -> Access:
    """Verify contract, release and grants, and unseal the pads.

    ``files`` are grants that curators have handed over directly, as one-time pads must be.
    """
    given = list(files)
    foreign = [grant for grant in given if grant.body.study != study]
    if foreign:
        raise MismatchError(
            "a grant file is of another study", hint="give the grant files of this study alone"
        )
    contract = session.contract(study)
    whole = [grant for grant in session.server.grants(study) if grant.sealed is not None]
    chosen = _largest([*given, *whole], session.identity.party_id, session.now)
    release = session.server.release(study)
    return open_access(session.identity, contract, release, chosen, now=session.now)


def estimate_study(
    session: Session,
    study: bytes,
    attributes: Sequence[str] | None = None,
    files: Iterable[SignedGrant] = (),
) -> Estimate:
    """Estimate the joint distribution of attributes that were granted, all of them by default.

    The verified plan, the study's title and who took part travel with the estimate; the promises
    follow from the plan.
    """
    access = open_study(session, study, files)
    wanted = granted_attributes(access, attributes)
    order = reading_order(access.contract, access.release, wanted)
    sizes = released_sizes(access.contract, access.release)
    with ReleasedChunks(session.server, study, order, sizes) as chunks:
        released = count_records(access, chunks, wanted)
    terms = access.contract
    origin = Provenance(
        study.hex(),
        terms.title,
        perturbed_by=terms.server.name,
        researcher=session.home.public.name,
        holders={
            attribute.name: curator.identity.name
            for curator in terms.curators
            for attribute in curator.attributes
        },
        sampled_by=terms.sampling.by,
        pads=terms.pads,
    )
    return Estimate.from_counts(released, provenance=origin)


def _largest(grants: Iterable[SignedGrant], me: bytes, now: int) -> list[SignedGrant]:
    """Choose one grant of each curator: of those that are good now, the one with most in it.

    Curators put what they granted before into every new grant, so one is enough.
    """
    best: dict[bytes, SignedGrant] = {}
    for grant in grants:
        body = grant.body
        if body.researcher != me or body.expires <= now:
            continue
        known = best.get(body.curator)
        if known is None or _size(grant) > _size(known):
            best[body.curator] = grant
    return list(best.values())


def _size(grant: SignedGrant) -> tuple[int, int]:
    return len(grant.body.attributes), grant.body.expires
