"""From a curator's table to an encrypted upload: tokens, order, pads (spec 5, 6, 8)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from veiltab.core import group
from veiltab.core.sampling import draw_sample
from veiltab.core.schema import Attribute, Codes, Schema, check_range
from veiltab.crypto.derivation import alignment_key, token_key
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.linkage import alignment_digest, find_duplicates, token_order, tokens
from veiltab.errors import AlignmentError, LinkageError, MismatchError, SchemaError
from veiltab.roles.agreements import planned_sample_size, verify_agreement
from veiltab.roles.chunks import ChunkStore
from veiltab.roles.columns import write_column, write_tokens
from veiltab.roles.curator.desk import Desk
from veiltab.roles.curator.pads import Pads, fresh_pads
from veiltab.roles.signatures import sign, verify
from veiltab.wire.agreement import Agreement
from veiltab.wire.alignment import Alignment
from veiltab.wire.contract import Contract
from veiltab.wire.repad import Repad
from veiltab.wire.signed import Signed
from veiltab.wire.upload import ColumnChunks, Upload
from veiltab.wire.vault import Vault

Tokens = NDArray[np.uint8]
AgreementType = TypeVar("AgreementType", Contract, Vault)


Message = TypeVar("Message", Upload, Repad)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared(Generic[Message]):
    """An upload, or new pads for stored rows, with the pads, which stay with the curator."""

    message: Signed[Message]
    pads: Pads


def make_tokens(
    agreement: Agreement, secret: bytes, data: NDArray[np.uint8], offsets: NDArray[np.int64]
) -> Tokens:
    """Return the token of each respondent's message (spec 5); repeated respondents are refused."""
    found = tokens(token_key(secret, agreement.scope), data, offsets)
    repeated = find_duplicates(found)
    if repeated.size:
        rows = ", ".join(str(row + 1) for row in repeated[:5])
        raise LinkageError(
            f"{repeated.size} rows share an id with another row, such as rows {rows}",
            hint="each respondent must occur once in a table",
        )
    return found


def align(
    contract: Contract, identity: PrivateIdentity, secret: bytes, found: Tokens
) -> Signed[Alignment]:
    """Publish how many respondents there are, and a keyed digest of who they are (spec 5.1)."""
    key = alignment_key(secret, contract.study_id)
    return sign(
        Alignment(
            curator=identity.party_id,
            digest=alignment_digest(key, found),
            population=len(found),
            study=contract.study_id,
        ),
        identity.signing,
    )


def check_alignment(contract: Contract, alignments: Sequence[Signed[Alignment]]) -> int:
    """Return n if all curators hold the same respondents; stop with the counts otherwise."""
    by_curator = {contract.curator(s.body.curator).party_id: s for s in alignments}
    held = []
    for terms in contract.curators:
        signed = by_curator.get(terms.party_id)
        if signed is None:
            raise AlignmentError(
                f"{terms.identity.name!r} has not said which respondents it holds",
                hint="wait for the alignment of every curator",
            )
        body = verify(signed, [terms.identity.signing_key])
        if body.study != contract.study_id:
            raise MismatchError(
                f"the alignment of {terms.identity.name!r} is of another study",
                hint="ask it for the alignment of this study",
            )
        held.append((terms.identity.name, body.population, body.digest))
    if len({(count, digest) for _, count, digest in held}) > 1:
        counts = ", ".join(f"{name!r} holds {count:,}" for name, count, _ in held)
        raise AlignmentError(
            f"the curators do not hold the same respondents: {counts}",
            hint="compare the tables' sources and dates; or agree on a study where the server"
            " samples, which takes the respondents that all curators hold",
        )
    return held[0][1]


def prepare_sample(
    desk: Desk,
    signed: Signed[Contract],
    found: Tokens,
    codes: Sequence[Codes],
    alignments: Sequence[Signed[Alignment]],
    *,
    secret: bytes,
) -> Prepared[Upload]:
    """Sample and encrypt, where the curators sample (the paper's F_A).

    The order of the tokens is the same secret random order for every curator; the rows are never
    sorted by anything else.
    """
    contract = verify_agreement(signed)
    _check_sampler(contract, "curators")
    population = check_alignment(contract, alignments)
    own = alignment_digest(alignment_key(secret, contract.study_id), found)
    if own not in {signed.body.digest for signed in alignments}:  # which are all the same
        raise MismatchError(
            f"the alignment was of {population:,} respondents, and not of the table's"
            f" {len(found):,}",
            hint="prepare the same table that was aligned",
        )
    order = token_order(found)[: planned_sample_size(contract, population)]
    return _prepare(desk, contract, codes, order, rows=population, population=population)


def prepare_table(
    desk: Desk, signed: Signed[AgreementType], found: Tokens, codes: Sequence[Codes]
) -> Prepared[Upload]:
    """Encrypt a whole table in a fresh secret random order, where the server samples."""
    agreement = verify_agreement(signed)
    if isinstance(agreement, Contract):
        _check_sampler(agreement, "server")
    order = draw_sample(len(found), len(found), desk.entropy)
    return _prepare(desk, agreement, codes, order, rows=len(found), tokens=found[order])


def _prepare(
    desk: Desk,
    agreement: Contract | Vault,
    codes: Sequence[Codes],
    order: NDArray[np.int64],
    *,
    rows: int,
    population: int | None = None,
    tokens: Tokens | None = None,
) -> Prepared[Upload]:
    """Encrypt the rows in the given order under fresh pads, and sign what was made."""
    schema = agreement.schema_of(desk.identity.party_id)
    _check_codes(schema, codes, rows)
    # A stored table serves many studies, so its pads can only come from a key.
    mode = agreement.pads if isinstance(agreement, Contract) else "stream"
    pads = fresh_pads(desk, mode, schema, agreement.scope, order.size)
    upload = Upload(
        columns=_encrypt(schema, codes, order, pads, desk.outgoing),
        curator=desk.identity.party_id,
        population=population,
        rows=order.size,
        scope=agreement.scope,
        tokens=None if tokens is None else write_tokens(tokens, desk.outgoing),
        upload_id=pads.upload_id,
    )
    return Prepared(sign(upload, desk.identity.signing), pads)


def _encrypt(
    schema: Schema,
    codes: Sequence[Codes],
    order: NDArray[np.int64],
    pads: Pads,
    store: ChunkStore,
) -> tuple[ColumnChunks, ...]:
    """Add the pads to the rows in the given order, chunk by chunk."""

    def column(index: int, attribute: Attribute, plain: Codes) -> ColumnChunks:
        def encrypted(number: int, where: slice) -> Codes:
            pad = pads.chunk(index, number, where)
            return group.add(plain[order[where]], pad, attribute.size)

        digests = write_column(attribute, order.size, encrypted, store)
        return ColumnChunks(attribute=attribute.name, chunks=digests)

    pairs = zip(schema.attributes, codes, strict=True)
    return tuple(column(index, attribute, plain) for index, (attribute, plain) in enumerate(pairs))


def _check_codes(schema: Schema, codes: Sequence[Codes], rows: int) -> None:
    """Refuse columns that are not one code per respondent: the group would take any number."""
    lengths = [len(column) for column in codes]
    if lengths != [rows] * len(schema.attributes):
        raise SchemaError(
            f"the table has columns of {lengths} codes for {rows:,} respondents",
            hint=f"give one code per respondent for each of {', '.join(map(repr, schema.names))}",
        )
    for attribute, column in zip(schema.attributes, codes, strict=True):
        check_range(column, attribute.size, f"codes of {attribute.name!r}")


def _check_sampler(contract: Contract, sampler: str) -> None:
    if contract.sampling.by != sampler or contract.stored is not None:
        raise MismatchError(
            f"the contract has the {contract.sampling.by} sample"
            f"{' from stored tables' if contract.stored else ''}",
            hint="prepare the data in the way that the contract says",
        )
