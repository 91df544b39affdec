"""From a curator's table to an encrypted upload: tokens, order, pads (spec 5, 6, 8).

The pads of an upload are what its curator must keep to grant access, and must show nobody else.
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, Protocol, TypeVar

from veiltab.core import group
from veiltab.core.entropy import Entropy, random_bytes
from veiltab.core.mechanism import LinkageMode
from veiltab.core.schema import Attribute, Codes, Schema
from veiltab.crypto.derivation import SECRET_BYTES, UPLOAD_ID_BYTES, pad_key
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.linkage import KEY_BYTES
from veiltab.crypto.pads import StreamPad, one_time_pad
from veiltab.errors import AlignmentError, MismatchError
from veiltab.protocol.curator.table import Intake, Rows
from veiltab.protocol.sorting import Spool
from veiltab.protocol.stores import ChunkStore, Digests, read_rows, write_rows, write_tokens
from veiltab.protocol.verify import (
    check_population,
    planned_sample_size,
    sign,
    verify,
    verify_agreement,
)
from veiltab.remedies import Remedy
from veiltab.wire.contract import Contract, Vault
from veiltab.wire.messages import Alignment, ColumnChunks, Repad, Upload
from veiltab.wire.packing import chunk_slices, span_slices
from veiltab.wire.signed import Signed

ROWS_BYTES = 8
AgreementType = TypeVar("AgreementType", Contract, Vault)
Message = TypeVar("Message", Upload, Repad)


@dataclass(frozen=True, slots=True, eq=False)
class CuratorContext:
    """What every step of a curator needs: its identity, randomness and stores.

    ``outgoing`` holds chunks for the server; ``private`` holds one-time pads, and nobody else may
    ever read it.
    """

    identity: PrivateIdentity
    entropy: Entropy = field(repr=False)
    outgoing: ChunkStore = field(repr=False)
    private: ChunkStore = field(repr=False)


class Pads(Protocol):
    """The pads of an upload, by the number of the attribute in the curator's list."""

    @property
    def upload_id(self) -> bytes:
        """The fresh id of the preparation that these pads were drawn for."""

    def span(self, attribute: int, where: slice) -> Codes:
        """Return the pads of some rows of one attribute, from the start of a chunk on."""

    def material(self, attributes: Sequence[int]) -> bytes:
        """Return what a grant of these attributes hands to a researcher (spec 11)."""


@dataclass(frozen=True)
class StreamPads:
    """Pads from a key per attribute (spec 6.1)."""

    upload_id: bytes
    attributes: tuple[Attribute, ...]
    keys: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def fresh(cls, attributes: Sequence[Attribute], scope: bytes, entropy: Entropy) -> "StreamPads":
        """Draw a new upload id and secret; nothing else is ever encrypted under them."""
        upload_id = random_bytes(UPLOAD_ID_BYTES, entropy)
        secret = random_bytes(SECRET_BYTES, entropy)
        keys = tuple(pad_key(secret, scope, upload_id, i) for i in range(len(attributes)))
        return cls(upload_id, tuple(attributes), keys)

    def span(self, attribute: int, where: slice) -> Codes:
        """Compute the pads of some rows."""
        return self.streams[attribute].rows(where.start, where.stop - where.start)

    @cached_property
    def streams(self) -> tuple[StreamPad, ...]:
        """The pads of every attribute, which threads may share."""
        sized = zip(self.keys, self.attributes, strict=True)
        return tuple(StreamPad(key, attribute.size) for key, attribute in sized)

    def material(self, attributes: Sequence[int]) -> bytes:
        """Return the attributes' keys."""
        return b"".join(self.keys[attribute] for attribute in attributes)


@dataclass(frozen=True, slots=True)
class OneTimePads:
    """Pads drawn one by one from the operating system, and kept in a private store."""

    upload_id: bytes
    attributes: tuple[Attribute, ...]
    rows: int
    digests: tuple[Digests, ...]
    store: ChunkStore = field(repr=False)

    @classmethod
    def fresh(
        cls, attributes: Sequence[Attribute], rows: int, entropy: Entropy, store: ChunkStore
    ) -> "OneTimePads":
        """Draw new pads for every row; ``store`` is the curator's own, and private."""
        upload_id = random_bytes(UPLOAD_ID_BYTES, entropy)

        def draw(attribute: Attribute) -> Digests:
            digests: list[bytes] = []
            for where in chunk_slices(rows):
                pad = one_time_pad(attribute.size, where.stop - where.start, entropy)
                digests += write_rows(pad, attribute, store)
            return tuple(digests)

        digests = tuple(draw(attribute) for attribute in attributes)
        return cls(upload_id, tuple(attributes), rows, digests, store)

    def span(self, attribute: int, where: slice) -> Codes:
        """Read the pads of some rows."""
        return read_rows(self.digests[attribute], self.attributes[attribute], where, self.store)

    def material(self, attributes: Sequence[int]) -> bytes:
        """Return the number of rows and the packed pads of all of them."""
        packed = [self.store.get(digest) for a in attributes for digest in self.digests[a]]
        return self.rows.to_bytes(ROWS_BYTES, "big") + b"".join(packed)


def fresh_pads(context: CuratorContext, mode: str, schema: Schema, scope: bytes, rows: int) -> Pads:
    """Draw new pads of the contract's mode for one preparation."""
    if mode == "one-time":
        return OneTimePads.fresh(schema.attributes, rows, context.entropy, context.private)
    return StreamPads.fresh(schema.attributes, scope, context.entropy)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared(Generic[Message]):
    """An upload, or new pads for stored rows, with the pads, which stay with the curator."""

    message: Signed[Message]
    pads: Pads


def needs_alignment(contract: Contract) -> bool:
    """Tell whether the curators compare digests before they upload: of respondents, or decoys."""
    return not contract.matched or contract.coin_terms is not None


def align(
    contract: Contract, identity: PrivateIdentity, intake: Intake, attempt: int = 1
) -> Signed[Alignment]:
    """Publish keyed digests of what all curators must hold alike (spec 5.1).

    Where the respondents are aligned, they are said to be so many, and these; where there are
    decoys, they are said to be these.  Where the server matches, nobody is told whom, or how many,
    a curator holds.  In one attempt a curator signs one alignment only.
    """
    _check_scope(contract, intake)
    aligned = not contract.matched
    return sign(
        Alignment(
            attempt=attempt,
            curator=identity.party_id,
            decoys=intake.decoy_digest,
            digest=intake.alignment_digest if aligned else None,
            population=intake.population if aligned else None,
            study=contract.study_id,
        ),
        identity.signing,
    )


def check_alignment(contract: Contract, alignments: Sequence[Signed[Alignment]]) -> int | None:
    """Return n if all curators hold the same respondents and decoys; stop otherwise.

    All alignments must be of one attempt: a curator signs one in each, so that no server can show
    different ones to different curators.  Where the server matches, n is nobody's to know, and
    None.
    """
    held = verify_alignments(contract, alignments)
    senders = {body.curator for _, body in held}
    missing = [repr(t.identity.name) for t in contract.curators if t.party_id not in senders]
    if missing:
        raise AlignmentError(
            f"{', '.join(missing)} has not said what it holds",
            hint="wait for the alignment of every curator",
        )
    check_same(held)
    population = held[0][1].population
    if population is not None:
        check_population(contract, population)
    return population


Held = Sequence[tuple[str, Alignment]]
"""What curators hold, by their names, in the contract's order."""


def verify_alignments(
    contract: Contract, alignments: Sequence[Signed[Alignment]]
) -> list[tuple[str, Alignment]]:
    """Return what the curators who have aligned say, in the contract's order.

    A wrong signature, another study's alignment and one of another form are refused.
    """
    by_curator = {contract.curator(s.body.curator).party_id: s for s in alignments}
    held = []
    for terms in contract.curators:
        signed, name = by_curator.get(terms.party_id), terms.identity.name
        if signed is not None:
            held.append((name, verify(signed, [terms.identity.signing_key])))
            _check_alignment_form(contract, name, signed.body)
    return held


def check_same(held: Held) -> None:
    """Refuse alignments of different attempts, respondents or decoys."""
    _check_same_attempt(held)
    _check_same_respondents(held)
    _check_same_decoys(held)


def _check_same_attempt(held: Held) -> None:
    newest = max(body.attempt for _, body in held)
    behind = [repr(name) for name, body in held if body.attempt < newest]
    if behind:
        raise AlignmentError(
            f"a curator has corrected its table, and {', '.join(behind)} has not aligned again",
            hint=Remedy.PUSH_AGAIN,
        )


def _check_alignment_form(contract: Contract, name: str, alignment: Alignment) -> None:
    """Refuse another study's alignment, and one that says more or less than the contract asks."""
    if alignment.study != contract.study_id:
        raise MismatchError(
            f"the alignment of {name!r} is of another study",
            hint="ask it for the alignment of this study",
        )
    stated = (alignment.digest is not None, alignment.decoys is not None)
    if stated != (not contract.matched, contract.coin_terms is not None):
        raise MismatchError(
            f"the alignment of {name!r} is not of the form that the contract asks for",
            hint="ask it to align with a program that knows the contract's linkage and mechanism",
        )


def _check_same_respondents(held: Held) -> None:
    if len({(body.population, body.digest) for _, body in held}) > 1:
        first, *others = [f"{name}: {body.population:,}" for name, body in held]
        counts = ", ".join([f"{first} respondents", *others])
        raise AlignmentError(
            f"not aligned: the curators do not hold the same respondents. {counts}"
            f"{_whose_ids_differ(held)}",
            hint="compare the tables' ids, sources and dates; whoever has the wrong one pushes the"
            " right one, as long as nothing was uploaded. A study with matched linkage takes the"
            " respondents that all curators hold",
        )


def _whose_ids_differ(held: Held) -> str:
    """Say who holds which ids where the numbers do not tell it."""
    groups: dict[bytes | None, list[str]] = {}
    for name, body in held:
        groups.setdefault(body.digest, []).append(name)
    if len(groups) == len({body.population for _, body in held}):
        return ""
    return f"; whose ids differ: {' | '.join(' and '.join(names) for names in groups.values())}"


def _check_same_decoys(held: Held) -> None:
    groups: dict[bytes | None, list[str]] = {}
    for name, body in held:
        groups.setdefault(body.decoys, []).append(repr(name))
    if len(groups) > 1:
        differing = "; ".join(" and ".join(names) for names in groups.values())
        raise AlignmentError(
            f"not aligned: the curators have not invented the same decoys: {differing} differ",
            hint="the program or the study secret of a curator differs; upload nothing: without the"
            " same decoys everywhere the promise is broken",
        )


def prepare_sample(
    context: CuratorContext,
    signed: Signed[Contract],
    intake: Intake,
    alignments: Sequence[Signed[Alignment]],
) -> Prepared[Upload]:
    """Sample and encrypt, where all curators hold the same respondents (the paper's F_A).

    The order of the tokens is the same secret random order for every curator; the rows are never
    sorted by anything else.  The sample is the first m, or, with decoys, whoever's token is below
    the coin's threshold, and the decoys.
    """
    contract = verify_agreement(signed)
    _check_linkage(contract, "aligned")
    population = check_alignment(contract, alignments)
    _check_intake(context, contract, intake)
    _check_aligned(intake, alignments)
    rows = intake.sample_rows
    if rows is None:
        rows = planned_sample_size(contract, intake.population)
    return _prepare(context, contract, intake, intake.rows(rows), rows=rows, population=population)


def prepare_table(
    context: CuratorContext,
    signed: Signed[AgreementType],
    intake: Intake,
    spool: Spool,
    alignments: Sequence[Signed[Alignment]] = (),
) -> Prepared[Upload]:
    """Encrypt the rows in a fresh secret random order, with their tokens, for the server to match.

    The rows are the whole table, or, with decoys, whoever takes part, and the decoys that the
    curator holds.  The order is that of AES-256-CMAC of the tokens under a key that is drawn here
    and forgotten.  ``spool`` is scratch space for sorting, and must not be the one of the intake.
    """
    agreement = verify_agreement(signed)
    if isinstance(agreement, Contract):
        _check_linkage(agreement, "matched")
        if agreement.coin_terms is not None:
            check_alignment(agreement, alignments)
    _check_intake(context, agreement, intake)
    rows = intake.sample_rows
    if rows is None:
        rows = intake.population
    else:
        _check_aligned(intake, alignments)
    with closing(intake.shuffled(random_bytes(KEY_BYTES, context.entropy), spool)) as shuffled:
        return _prepare(context, agreement, intake, shuffled, rows=rows)


def _prepare(
    context: CuratorContext,
    agreement: Contract | Vault,
    intake: Intake,
    spans: Iterator[Rows],
    *,
    rows: int,
    population: int | None = None,
) -> Prepared[Upload]:
    """Encrypt the rows in the given order under fresh pads, and sign what was made."""
    schema = intake.schema
    # A stored table serves many studies, so its pads can only come from a key.
    mode = agreement.pads if isinstance(agreement, Contract) else "stream"
    pads = fresh_pads(context, mode, schema, agreement.scope, rows)
    columns, tokens = _encrypt(
        schema, spans, rows, pads, context.outgoing, whole=population is None
    )
    upload = Upload(
        columns=columns,
        curator=context.identity.party_id,
        population=population,
        rows=rows,
        scope=agreement.scope,
        tokens=tokens,
        upload_id=pads.upload_id,
    )
    return Prepared(sign(upload, context.identity.signing), pads)


def _encrypt(
    schema: Schema,
    spans: Iterator[Rows],
    rows: int,
    pads: Pads,
    store: ChunkStore,
    *,
    whole: bool,
) -> tuple[tuple[ColumnChunks, ...], Digests | None]:
    """Add the pads to the rows, span by span; of a whole table, the tokens are sent too."""
    columns: list[list[bytes]] = [[] for _ in schema.attributes]
    sent: list[bytes] = []
    for where, (tokens, codes) in zip(span_slices(rows), spans, strict=True):
        for index, attribute in enumerate(schema.attributes):
            pad = pads.span(index, where)
            encrypted = group.add(codes[index], pad, attribute.size, out=pad)
            columns[index] += write_rows(encrypted, attribute, store)
        if whole:
            sent += write_tokens(tokens, store)
    named = zip(schema.names, columns, strict=True)
    made = tuple(ColumnChunks(attribute=name, chunks=tuple(digests)) for name, digests in named)
    return made, tuple(sent) if whole else None


def _check_scope(agreement: Contract | Vault, intake: Intake) -> None:
    """Refuse tokens of another scope: they would match nobody's."""
    if intake.scope != agreement.scope:
        raise MismatchError(
            "the table was read for another study or vault",
            hint="read it again for this one: every study and vault has its own tokens and order",
        )


def _check_intake(context: CuratorContext, agreement: Contract | Vault, intake: Intake) -> None:
    """Refuse a table that was read for another scope, or for another curator."""
    _check_scope(agreement, intake)
    if intake.curator != context.identity.party_id:
        raise MismatchError(
            "the table was read for another curator",
            hint="read it again as your own: every curator writes its own part of a decoy",
        )


def _check_aligned(intake: Intake, alignments: Sequence[Signed[Alignment]]) -> None:
    """Refuse a table that was not the aligned one.

    Every message counts: of two with one sender, :func:`check_alignment` has looked at the last.
    """
    for body in (signed.body for signed in alignments):
        if body.digest not in (None, intake.alignment_digest):
            raise MismatchError(
                f"the alignment was of {body.population:,} respondents, and not of the table's"
                f" {intake.population:,}",
                hint="prepare the same table that was aligned",
            )
        if body.decoys != intake.decoy_digest:
            raise MismatchError(
                "the alignment was of other decoys than the table has now",
                hint="align again, with the secret of this study",
            )


def _check_linkage(contract: Contract, mode: LinkageMode) -> None:
    if contract.linkage.mode != mode or contract.stored is not None:
        stored = " from stored tables" if contract.stored else ""
        raise MismatchError(
            f"by the contract, the respondents are {contract.linkage.mode}{stored}",
            hint="prepare the data as the contract says",
        )
