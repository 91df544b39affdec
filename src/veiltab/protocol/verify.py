"""Signatures, and what every party checks: contracts, releases, grants (spec 1.2, 4, 10, 11).

A check returns what it has checked, or raises; nothing here decrypts.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from veiltab.core.overlap import OverlapEstimate
from veiltab.core.plan import Plan, plan
from veiltab.core.plausible import plausible_rows
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
from veiltab.protocol.keys import verify_chain
from veiltab.protocol.stores import Digests, check_column_names
from veiltab.wire.contract import Agreement, Contract, CuratorTerms, Vault
from veiltab.wire.mechanism import PURE_1, PaperTerms, accounting_name
from veiltab.wire.messages import (
    Grant,
    GrantRevocation,
    Overlap,
    Publication,
    Release,
    SignedGrant,
    Upload,
)
from veiltab.wire.signed import Message, Signature, Signed, signing_input

Body = TypeVar("Body", bound=Message)
AgreementType = TypeVar("AgreementType", bound=Agreement)
SEAL_PURPOSE = "grant"


def sign(body: Body, key: SigningKey) -> Signed[Body]:
    """Sign a message as its only signer."""
    return Signed(body, (_signature(body, key),))


def renew(signed: Signed[Body], key: SigningKey) -> Signed[Body]:
    """Return a message of one's own under one's newest key: a server takes none under an old one.

    Its digest stays.  So what was prepared before the keys were changed can still be sent.
    """
    (signature,) = signed.signatures
    return signed if signature.key == key.public else sign(signed.body, key)


def cosign(signed: Signed[Body], key: SigningKey) -> Signed[Body]:
    """Add a party's signature to a message that several sign."""
    return signed.with_signature(_signature(signed.body, key))


def add_missing(signed: Signed[Body], other: Signed[Body]) -> Signed[Body]:
    """Add the signatures of parties that have not signed yet."""
    there = {signature.root for signature in signed.signatures}
    for signature in other.signatures:
        if signature.root not in there:
            signed = signed.with_signature(signature)
    return signed


def verify(signed: Signed[Body], signers: Iterable[bytes]) -> Body:
    """Return the body if exactly the parties of these first keys have signed it, and all right."""
    expected = set(signers)
    verify_some(signed, expected)
    missing = expected - {signature.root for signature in signed.signatures}
    if missing:
        raise SignatureError(
            f"the {signed.body.kind} lacks {len(missing)} of {len(expected)} signatures",
            hint="wait until everybody who has to sign has signed",
        )
    return signed.body


def verify_some(signed: Signed[Body], allowed: Iterable[bytes]) -> Body:
    """Return the body if every signature is right, and by a party of one of these first keys.

    A newer key comes with the rotations that lead to it.  Whether it is the newest one of its party
    is for the server to say, when the message is sent.
    """
    keys = set(allowed)
    for signature in signed.signatures:
        if signature.root not in keys:
            raise SignatureError(
                f"the {signed.body.kind} is signed by {signature.key.hex()}, who has no part in it",
                hint="ask for the message as its own parties signed it",
            )
        verify_chain(signature.rotations)
        signing.verify(signature.key, signed.signing_input, signature.signature)
    return signed.body


def _signature(body: Message, key: SigningKey) -> Signature:
    data = signing_input(body.kind, body.canonical())
    return Signature(key=key.public, signature=key.sign(data), rotations=key.proof)


def verify_agreement(signed: Signed[AgreementType]) -> AgreementType:
    """Return a contract or vault that every curator has signed (spec 4, 12.1)."""
    return verify(signed, [terms.identity.signing_key for terms in signed.body.curators])


def plan_for(contract: Contract, population_size: int | None) -> Plan:
    """Return the plan for the study, once the number of respondents is known (spec 4.1).

    With decoys the contract alone has all its numbers, and where rows are matched, nobody knows how
    many respondents there are: then it is None.
    """
    if contract.overlap is not None:
        raise MismatchError(
            "an overlap count tells one number, and has no plan of a table",
            hint="its numbers are in the contract",
        )
    if contract.decoys is not None:
        known = None if contract.matched else _known_population(contract, population_size)
        return replace(contract.decoy_plan, population_size=known)
    known = _known_population(contract, population_size)
    return plan(
        population_size=known,
        domain_size=contract.schema.domain_size,
        epsilon=contract.epsilon,
        delta=contract.delta,
        sample_size=_stated_size(contract, known),
        mechanism="shuffle" if contract.delta else "paper",
        anyway=True,  # what was signed is carried out
    )


def planned_sample_size(contract: Contract, population_size: int) -> int:
    """Return how many respondents are sampled by rank, without planning the noise if it is slow."""
    check_population(contract, population_size)
    size = _stated_size(contract, population_size)
    return plan_for(contract, population_size).ranked.sample_size if size is None else size


def check_population(contract: Contract, population_size: int) -> None:
    """Refuse another number of respondents than the contract states, if it states one."""
    if contract.population not in (None, population_size):
        raise MismatchError(
            f"the contract states {contract.population:,} respondents, not {population_size:,}",
            hint="check that every curator uses the table that was agreed on",
        )


def _known_population(contract: Contract, population_size: int | None) -> int:
    if population_size is None:
        raise MismatchError(
            "the number of respondents is not known, and the plan depends on it",
            hint="only where rows are matched, and there are decoys, can it stay unknown",
        )
    check_population(contract, population_size)
    return population_size


def _stated_size(contract: Contract, population_size: int) -> int | None:
    """Return the sample size if the contract fixes it; check that it can be drawn."""
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
    """Return a release of rows that the contract's server has signed, with its plan."""
    released = verify(signed, [contract.server.signing_key])
    _check_release(contract, released)
    return released, _checked_plan(contract, released)


def verify_overlap(contract: Contract, signed: Signed[Overlap]) -> OverlapEstimate:
    """Return what the number says that the contract's server has signed (spec 13)."""
    told = verify(signed, [contract.server.signing_key])
    if told.study != contract.study_id or len(told.uploads) != len(contract.curators):
        raise MismatchError(
            "the number is not of this overlap count", hint="fetch the number of this study"
        )
    return OverlapEstimate(told.number, contract.overlap_plan)


def check_own_upload(release: Release, upload: Signed[Upload]) -> None:
    """Refuse a release that was not made from a curator's own upload, before pads are granted."""
    body = upload.body
    digests = [other.digest for other in release.uploads if other.curator == body.curator]
    if digests != [upload.digest] or body.population not in (None, release.population):
        raise MismatchError(
            "the release was not made from the table that you pushed",
            hint="grant nothing; show the release to the other curators and ask the operator",
        )
    if body.tokens is not None:
        check_claimed_population(release.population, body.rows)


def check_claimed_population(population: int | None, table_rows: int) -> None:
    """Refuse more respondents in common than a curator's own table has rows.

    The more respondents a server claims, the less noise keeps the promise by its own numbers.
    """
    if population is not None and population > table_rows:
        raise PromiseError(
            f"the server claims {population:,} respondents in common, and your table has"
            f" {table_rows:,} rows: with so large a number it would add too little noise",
            hint="give out nothing; show the release to the other curators and ask the operator",
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
    """Recompute the promise: from the release's own numbers by rank, else from the contract's."""
    decoys = contract.decoys
    if decoys is None:
        accountings = {PURE_1, contract.accounting}
        same = _stated_sample(contract) in (None, release.rows)
        known = contract.population in (None, release.population)
    else:
        accountings = {contract.accounting}
        same = release.keep_threshold == decoys.keep_threshold
        known = (release.population is None) == contract.matched
    same &= (release.epsilon, release.delta) == (contract.epsilon, contract.delta)
    if not same or not known or release.accounting not in accountings:
        raise PromiseError(
            "the release states other parameters than the contract",
            hint="do not use it; ask the curators and the server what happened",
        )
    return _ranked_plan(release) if decoys is None else _decoy_plan(contract, release)


def _ranked_plan(release: Release) -> Plan:
    """Return the plan that a release by rank follows; it cannot be built if it breaks its promise.

    Every such release has a population and a threshold; 0 stands for neither.
    """
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


def _decoy_plan(contract: Contract, release: Release) -> Plan:
    """Return the contract's plan, and refuse a number of rows that it would hardly ever give."""
    if release.population is not None and contract.population not in (None, release.population):
        raise PromiseError(
            "the release is about another number of respondents than the contract",
            hint="do not use it; ask the curators and the server what happened",
        )
    chosen = plan_for(contract, release.population)
    cells, population = chosen.domain_size, chosen.population_size
    if not plausible_rows(release.rows, chosen.mechanism, cells, population):
        raise PromiseError(
            f"a release of {release.rows:,} rows is not what the contract's decoys give",
            hint="do not use it; a curator has left rows or decoys out, or the server has",
        )
    return chosen


def may_see_release(contract: Contract, party_id: bytes) -> bool:
    """Tell whether a party may see the release and the number of its rows, if it is let in at all.

    A curator knows the decoys.  Where the server matches, the number of rows would tell it how many
    respondents it has in common with the others.  The number of an overlap count has noise of its
    own, and is for the curators.
    """
    curators = {terms.party_id for terms in contract.curators}
    return party_id not in curators or not contract.matched or contract.decoys is None


def publication_epsilon(contract: Contract) -> float:
    """Return the ε for all who only read published copies."""
    decoys = contract.decoys
    return contract.epsilon if decoys is None else decoys.epsilon_public


def verify_publication(
    contract: Contract, release: Signed[Release], signed: Signed[Publication]
) -> Publication:
    """Return what a researcher says of the copy that it publishes, if it is about this release.

    The signing key is that of the researcher whom the contract names.  If it names none, the
    message has its own key, and whoever keeps it knows from whom it came.
    """
    body = signed.body
    check_researcher(contract, body.researcher)
    keys = [r.signing_key for r in contract.researchers or () if r.party_id == body.researcher]
    verify(signed, keys or [signature.root for signature in signed.signatures])
    if body.study != contract.study_id or body.release != release.digest:
        raise MismatchError(
            "the publication is of another study or another release",
            hint="publish the counts of this study's release",
        )
    unknown = sorted(set(body.attributes) - set(contract.schema.names))
    if unknown:
        raise MismatchError(
            f"the study has no attribute {', '.join(map(repr, unknown))}",
            hint="a publication names attributes of the contract",
        )
    if body.epsilon != publication_epsilon(contract):
        raise PromiseError(
            f"the published copy has the noise of epsilon {body.epsilon:g}, and the contract"
            f" promises {publication_epsilon(contract):g} to whoever reads it",
            hint="publish a copy with the contract's noise",
        )
    return body


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


def verify_revocation(
    contract: Contract, signed: Signed[GrantRevocation], grant: Grant | None = None
) -> GrantRevocation:
    """Return the revocation of a grant, if the curator who gave the grant has signed it.

    ``grant`` is the one that it must be of.
    """
    body = signed.body
    if body.study != contract.study_id or (grant is not None and body != GrantRevocation.of(grant)):
        raise MismatchError(
            "the revocation is of another study or another grant",
            hint="a curator revokes its own grants, in the study that they are of",
        )
    verify(signed, [contract.curator(body.curator).identity.signing_key])
    return body


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
