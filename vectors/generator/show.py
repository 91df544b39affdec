"""Writing a study down: every message and chunk, and what the researcher must find in them."""

import hashlib
from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from vectors.generator.basics import private_keys
from vectors.generator.files import Case, Document, case, document, filler
from vectors.generator.hpke import ephemeral_key, seal
from vectors.generator.study import Play, Table
from veiltab.core import group
from veiltab.core.plan import Plan
from veiltab.core.schema import Attribute, Codes
from veiltab.crypto.identity import PrivateIdentity
from veiltab.protocol.curator.upload import Prepared
from veiltab.protocol.researcher import count_records, decrypt, open_access, publication
from veiltab.protocol.stores import ChunkStore, read_chunk, read_position_chunk, unpack_released
from veiltab.protocol.verify import sign
from veiltab.wire.messages import ColumnChunks, Grant, Repad, SignedGrant, Upload
from veiltab.wire.packing import chunk_slices

NOW = 1_800_000_000
EXPIRES = 1_900_000_000


def make_grant(
    play: Play,
    curator: PrivateIdentity,
    made: Prepared[Upload] | Prepared[Repad],
    attributes: Sequence[str],
) -> SignedGrant:
    """Grant attributes as a curator does, but with an ephemeral key that is always the same."""
    contract, to = play.contract.body, play.researcher
    label = f"{play.name}, {curator.name} grants {', '.join(attributes)}"
    grant_id = filler(f"grant id: {label}", 16)
    names = contract.schema_of(curator.party_id).names
    material = made.pads.material([names.index(name) for name in attributes])
    context = contract.study_id + curator.party_id + to.party_id + grant_id
    sealed = seal(material, to.sealing.public, "grant", context, ephemeral=ephemeral_key(label))
    body = Grant(
        attributes=tuple(attributes),
        curator=curator.party_id,
        expires=EXPIRES,
        grant_id=grant_id,
        pads=contract.pads,
        researcher=to.party_id,
        sealed_digest=hashlib.sha256(sealed).digest(),
        study=contract.study_id,
        upload_digest=made.message.digest,
    )
    return SignedGrant(sign(body, curator.signing), sealed)


def study_document(
    play: Play, about: str, wanted: Sequence[Sequence[Attribute]], *, long: bool = False
) -> Document:
    """Write everything down, with a case for each set of attributes that is granted."""
    parties = [*play.curators, play.server, play.researcher]
    cases = [_case(play, [attribute.name for attribute in chosen], long) for chosen in wanted]
    return document(
        f"A whole study; README.md says what is what. {about}",
        cases,
        parties=[{"name": party.name, **private_keys(party)} for party in parties],
        contributions=[contribution.hex() for contribution in play.contributions],
        secret=play.secret.hex(),
        tables=None if long else [_show_table(table) for table in play.tables],
        vault=None if play.vault is None else play.vault.dumps().decode(),
        contract=play.contract.dumps().decode(),
        secrets=[message.dumps().decode() for message in play.secrets],
        alignments=[message.dumps().decode() for message in play.alignments],
        uploads=[_show_prepared(play, made) for made in play.uploads],
        requests=[
            {
                "message": request.dumps().decode(),
                "chunks": _chunks(request.body.positions, play.sent),
            }
            for request in play.requests
        ],
        repads=[_show_prepared(play, made) for made in play.repads],
        release={
            "message": play.release.dumps().decode(),
            "chunks": _release_chunks(play),
        },
        noise=None if long else _noise(play),
        publication=_publication(play, wanted[0]),
    )


def _publication(play: Play, attributes: Sequence[Attribute]) -> str | None:
    """Let the researcher publish, where there are decoys; the copy itself is not shown."""
    if play.contract.body.decoys is None:
        return None
    names = [attribute.name for attribute in attributes]
    access = open_access(
        play.researcher, play.contract, play.release, _grants(play, names), now=NOW
    )
    digest = filler(f"{play.name}, published counts")
    return publication(access, play.researcher, names, digest).dumps().decode()


def _grants(play: Play, attributes: Sequence[str]) -> list[SignedGrant]:
    """Let every curator grant those of the attributes that it has."""
    grants = []
    for table, curator, made in zip(play.tables, play.curators, play.granted, strict=True):
        own = [each.name for each in table.attributes if each.name in attributes]
        if own:
            grants.append(make_grant(play, curator, made, own))
    return grants


def _case(play: Play, attributes: list[str], long: bool) -> Case:  # noqa: FBT001
    """Let the researcher check, decrypt and estimate with grants of these attributes."""
    grants = _grants(play, attributes)
    access = open_access(play.researcher, play.contract, play.release, grants, now=NOW)
    columns = [np.concatenate(parts) for parts in zip(*decrypt(access, play.released), strict=True)]
    found = count_records(access, play.released)
    exact = _estimate(found.plan, found.counts.tolist())
    names = found.schema.names
    codes = dict(zip(names, columns, strict=True))
    shown: Case = {"codes": {name: column.tolist() for name, column in codes.items()}}
    if long:
        packed = {name: column.astype(np.uint8).tobytes() for name, column in codes.items()}
        shown = {"codes_sha256": {k: hashlib.sha256(v).hexdigest() for k, v in packed.items()}}
    expect = {
        **shown,
        "counts": found.counts.tolist(),
        "estimate": [float(share) for share in exact],
        "estimate_exact": [f"{share.numerator}/{share.denominator}" for share in exact],
    }
    texts = [grant.dumps().decode() for grant in grants]
    return case(", ".join(names), expect, attributes=list(names), grants=texts, now=NOW)


def _estimate(plan: Plan, counts: list[int]) -> list[Fraction]:
    """Estimate shares, or with decoys the number of respondents in each cell (section 11)."""
    rows, cells = sum(counts), len(counts)
    keep = Fraction(1) if plan.channel is None else plan.channel.keep_probability
    kept = [(count - (1 - keep) * Fraction(rows, cells)) / keep for count in counts]
    coin, law = plan.mechanism.coin, plan.mechanism.decoys
    if coin is None or law is None:
        return [number / rows for number in kept]
    decoys = law.mean * Fraction(plan.domain_size, cells)
    return [(number - decoys) / coin.probability for number in kept]


def _show_table(table: Table) -> Case:
    named = {a.name: c.tolist() for a, c in zip(table.attributes, table.codes, strict=True)}
    ids = None if table.ids is None else [list(texts) for texts in table.ids]
    return {"ids": ids, "codes": named}


def _show_prepared(play: Play, made: Prepared[Upload] | Prepared[Repad]) -> Case:
    """Show an upload or repad: its chunks, and the upload secret or the pads themselves."""
    body = made.message.body
    digests = list(_digests(body.columns))
    if isinstance(body, Upload):
        digests += body.tokens or ()
    secret = play.upload_secrets.get(body.upload_id)
    indices = range(len(body.columns))
    return {
        "message": made.message.dumps().decode(),
        "chunks": _chunks(digests, play.sent),
        "upload_secret": None if secret is None else secret.hex(),
        "one_time_pads": made.pads.material(indices).hex() if secret is None else None,
    }


def _digests(columns: Sequence[ColumnChunks]) -> Iterable[bytes]:
    return (digest for column in columns for digest in column.chunks)


def _chunks(digests: Iterable[bytes], store: ChunkStore) -> list[str]:
    """Return each chunk once, in the order in which the message refers to them."""
    return [store.get(digest).hex() for digest in dict.fromkeys(digests)]


def _release_chunks(play: Play) -> list[str]:
    release = play.release.body
    positions = [digest for upload in release.uploads for digest in upload.positions or ()]
    return _chunks([*_digests(release.columns), *positions], play.released)


def _noise(play: Play) -> list[int]:
    """Return the noise cell of each released row: what the release has more than was joined."""
    contract, release = play.contract.body, play.release.body
    rows = release.rows
    columns = {column.attribute: column.chunks for column in release.columns}
    parts: list[Codes] = []
    for number, table in enumerate(play.tables):
        upload, positions = play.uploads[number].message.body, np.arange(rows)
        if play.requests:
            positions = _positions(play.requests[number].body.positions, rows, play.sent)
        elif (released := release.uploads[number].positions) is not None:
            positions = _positions(released, rows, play.released)
        for index, attribute in enumerate(table.attributes):
            chunks = upload.columns[index].chunks
            joined = _column(chunks, attribute, upload.rows, play.sent)[positions]
            if play.repads:
                changes = play.repads[number].message.body.columns[index].chunks
                change = _column(changes, attribute, rows, play.sent)
                joined = group.add(joined, change, attribute.size)
            out = _released(columns[attribute.name], attribute, rows, play.released)
            parts.append(group.subtract(out, joined, attribute.size))
    cells: list[int] = contract.schema.cells(parts).tolist()
    return cells


def _column(digests: Sequence[bytes], attribute: Attribute, rows: int, store: ChunkStore) -> Codes:
    places = enumerate(chunk_slices(rows))
    return np.concatenate([read_chunk(digests, attribute, *place, store) for place in places])


def _released(
    digests: Sequence[bytes], attribute: Attribute, rows: int, store: ChunkStore
) -> Codes:
    return unpack_released([store.get(digest) for digest in digests], attribute, rows)


def _positions(digests: Sequence[bytes], rows: int, store: ChunkStore) -> NDArray[np.int64]:
    places = enumerate(chunk_slices(rows))
    return np.concatenate([read_position_chunk(digests, *place, store) for place in places])
