"""The messages of a study after its contract, in the order in which they are sent.

The sealed secret (spec 4.2), the alignment of respondents (5.1), the upload (8), new pads for
stored tables (12.2), the release (10), the grant (11) and its revocation (11.2).
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from veiltab.core.channel import GammaDiagonal
from veiltab.core.overlap import FEWEST_CURATORS, MOST_CURATORS
from veiltab.core.parameters import MAX_DOMAIN_SIZE, check_sample_size
from veiltab.wire.codec import (
    BASE64,
    MAX_INTEGER,
    TEXT,
    Part,
    dump,
    exact_fields,
    hexadecimal,
    input_errors_at,
    integer,
    items,
    load,
    malformed,
    message,
    nested,
    optional,
    part,
    wired,
)
from veiltab.wire.contract import (
    DIGEST,
    MAX_CURATORS,
    PADS,
    PARTY_ID,
    POPULATION,
    ROWS,
    PadMode,
)
from veiltab.wire.mechanism import (
    ACCOUNTING,
    DECOYS_1,
    DELTA,
    EPSILON,
    SAMPLE_SIZE,
    THRESHOLD,
    Accounting,
)
from veiltab.wire.packing import chunk_count
from veiltab.wire.signed import Message, Signed, SignedMessage

UPLOAD_ID = hexadecimal(16)
GRANT_ID = hexadecimal(16)
RELEASE_NONCE_BYTES = 16
MAX_MATCHED_ROWS = 2**33
"""The most rows of a table that the server matches: each is another person, or a decoy."""

CHUNKS = items(DIGEST)
"""The digests of a column's chunks, in order (spec 7)."""

_SEALED = optional(BASE64)

SEAL_BYTES = 1_136
"""What a seal adds to what is sealed (spec 3)."""

SEALED_SECRET_BYTES = SEAL_BYTES + 32
"""A curator's contribution to a secret, sealed (spec 4.2)."""

PAD_KEY_BYTES = 32
"""The key of an attribute's pad in a grant (spec 11)."""

MAX_ATTEMPTS = 100
"""How often the curators of a study may align, if a table was wrong; each attempt is logged."""

_EMPTY = hashlib.sha256(b"").digest()
"""The digest of the chunks of an attribute with one category: nothing need be said of it."""


@part
class ColumnChunks(Part):
    """An attribute and the digests of its column's chunks."""

    attribute: str = wired(TEXT)
    chunks: tuple[bytes, ...] = wired(CHUNKS)


COLUMNS = items(nested(ColumnChunks), least=1)
_COLUMNS_OR_NONE = items(nested(ColumnChunks))


@message
class Secret(SignedMessage):
    """The secret of a scope, sealed by one curator to another."""

    kind: ClassVar[str] = "secret"

    sender: bytes = wired(PARTY_ID, key="from")
    receiver: bytes = wired(PARTY_ID, key="to")
    scope: bytes = wired(DIGEST)
    sealed: bytes = wired(BASE64)


@message
class Alignment(SignedMessage):
    """What curators compare before they upload: keyed digests of their respondents and decoys.

    Where the server matches, nobody is told how many respondents a curator holds: then there is
    only the digest of the decoys.  A curator signs one alignment for each ``attempt``; to replace
    one is to begin the next attempt, in which all of them align again.
    """

    kind: ClassVar[str] = "alignment"

    attempt: int = wired(integer(1, MAX_ATTEMPTS))
    curator: bytes = wired(PARTY_ID)
    decoys: bytes | None = wired(optional(DIGEST))
    digest: bytes | None = wired(optional(DIGEST))
    population: int | None = wired(optional(POPULATION))
    study: bytes = wired(DIGEST)

    def check(self) -> None:
        """Refuse a number without a digest or the reverse, and a message that says nothing."""
        if (self.digest is None) != (self.population is None):
            missing = "digest" if self.digest is None else "population"
            raise malformed(missing, "must not be null: a digest and a population go together")
        if self.digest is None and self.decoys is None:
            raise malformed("decoys", "must not be null if the digest is")


@message
class Upload(SignedMessage):
    """A curator's columns; with ``population`` if rows are aligned, else with ``tokens``.

    To an overlap count a curator uploads tokens alone.
    """

    kind: ClassVar[str] = "upload"

    columns: tuple[ColumnChunks, ...] = wired(_COLUMNS_OR_NONE)
    curator: bytes = wired(PARTY_ID)
    population: int | None = wired(optional(POPULATION))
    rows: int = wired(ROWS)
    scope: bytes = wired(DIGEST)
    tokens: tuple[bytes, ...] | None = wired(optional(CHUNKS))
    upload_id: bytes = wired(UPLOAD_ID, key="upload")

    def check(self) -> None:
        """Refuse another number of chunks than the rows need, and a mixture of the two forms."""
        check_columns(self.columns, self.rows)
        if self.tokens is None and not self.columns:
            raise malformed("columns", "must not be empty without tokens")
        if (self.population is None) == (self.tokens is None):
            raise malformed("population, tokens", "exactly one of the two must be null")
        if self.tokens is not None:
            if self.rows > MAX_MATCHED_ROWS:
                raise malformed("rows", f"at most {MAX_MATCHED_ROWS:,} rows can be matched")
            check_chunks(self.tokens, self.rows, "tokens")
            check_different(self.tokens, "tokens")


@message
class RepadRequest(SignedMessage):
    """The server asks a curator for new pads at these positions of its stored table."""

    kind: ClassVar[str] = "repad-request"

    curator: bytes = wired(PARTY_ID)
    population: int = wired(POPULATION)
    positions: tuple[bytes, ...] = wired(CHUNKS)
    sample_size: int = wired(SAMPLE_SIZE)
    study: bytes = wired(DIGEST)
    upload_digest: bytes = wired(DIGEST, key="upload")

    def check(self) -> None:
        """Refuse a sample larger than the population, and another number of positions."""
        with input_errors_at("sample_size"):
            check_sample_size(self.sample_size, self.population)
        check_chunks(self.positions, self.sample_size, "positions")
        check_different(self.positions, "positions")


@message
class Repad(SignedMessage):
    """The curator answers with the differences between new and old pads."""

    kind: ClassVar[str] = "repad"

    columns: tuple[ColumnChunks, ...] = wired(COLUMNS)
    curator: bytes = wired(PARTY_ID)
    request_digest: bytes = wired(DIGEST, key="request")
    rows: int = wired(SAMPLE_SIZE)
    study: bytes = wired(DIGEST)
    upload_id: bytes = wired(UPLOAD_ID, key="upload")

    def check(self) -> None:
        """Refuse another number of chunks than the rows need."""
        check_columns(self.columns, self.rows)


@part
class ReleasedUpload(Part):
    """Which upload of a curator the release comes from, and which of its rows (spec 10)."""

    curator: bytes = wired(PARTY_ID)
    digest: bytes = wired(DIGEST)
    positions: tuple[bytes, ...] | None = wired(optional(CHUNKS))


@message
class Release(SignedMessage):
    """All columns of the joint table, and what the researcher must check.

    With decoys there may be no noise, and more rows than respondents; and where the server has
    matched them, their number is not known.  Everybody in the study sees the digest of a release in
    the log: the nonce keeps those who may not see the release from testing guesses of it.
    """

    kind: ClassVar[str] = "release"

    accounting: Accounting = wired(ACCOUNTING)
    cells: int = wired(integer(2, MAX_DOMAIN_SIZE))
    columns: tuple[ColumnChunks, ...] = wired(COLUMNS)
    delta: float = wired(DELTA)
    epsilon: float = wired(EPSILON)
    keep_threshold: int | None = wired(optional(THRESHOLD))
    nonce: bytes = wired(hexadecimal(RELEASE_NONCE_BYTES))
    population: int | None = wired(optional(POPULATION))
    rows: int = wired(ROWS)
    study: bytes = wired(DIGEST)
    uploads: tuple[ReleasedUpload, ...] = wired(
        items(nested(ReleasedUpload), least=1, most=MAX_CURATORS)
    )

    def check(self) -> None:
        """Refuse lengths, curators or a threshold that cannot be; the promise is not checked."""
        if self.accounting != DECOYS_1:
            self._check_by_rank()
        if self.keep_threshold is not None:
            with input_errors_at("keep_threshold"):
                GammaDiagonal.from_threshold(self.cells, self.keep_threshold)
        check_columns(self.columns, self.rows)
        self._check_uploads()

    def _check_by_rank(self) -> None:
        """Refuse what only a release with decoys can lack, and a sample that cannot be."""
        for field in ("keep_threshold", "population"):
            if getattr(self, field) is None:
                raise malformed(field, "must not be null in a release without decoys")
        with input_errors_at("rows"):
            check_sample_size(self.rows, self.population or 0)

    def _check_uploads(self) -> None:
        if len({upload.curator for upload in self.uploads}) != len(self.uploads):
            raise malformed("uploads", "a curator comes twice")
        if len({upload.positions is None for upload in self.uploads}) != 1:
            raise malformed("uploads", "some have positions and some have not")
        for position, upload in enumerate(self.uploads):
            if upload.positions is not None:
                path = f"uploads[{position}].positions"
                check_chunks(upload.positions, self.rows, path)
                check_different(upload.positions, path)


@message
class Overlap(SignedMessage):
    """The release of an overlap count: one number, with the server's noise on it (spec 13).

    ``uploads`` are the digests of the uploads that it comes from, in the order of the curators.
    """

    kind: ClassVar[str] = "overlap"

    number: int = wired(integer(-2 * MAX_MATCHED_ROWS, 2 * MAX_MATCHED_ROWS))
    study: bytes = wired(DIGEST)
    uploads: tuple[bytes, ...] = wired(items(DIGEST, least=FEWEST_CURATORS, most=MOST_CURATORS))


@message
class Publication(SignedMessage):
    """A researcher names the one copy of its counts that others may read, by its digest."""

    kind: ClassVar[str] = "publication"

    attributes: tuple[str, ...] = wired(items(TEXT, least=1))
    counts: bytes = wired(DIGEST)
    epsilon: float = wired(EPSILON)
    release: bytes = wired(DIGEST)
    researcher: bytes = wired(PARTY_ID)
    study: bytes = wired(DIGEST)

    def check(self) -> None:
        """Refuse an attribute that comes twice."""
        if len(set(self.attributes)) != len(self.attributes):
            raise malformed("attributes", "an attribute comes twice")


@message
class Grant(Message):
    """What a curator signs: who may decrypt which attributes, until when."""

    kind: ClassVar[str] = "grant"

    attributes: tuple[str, ...] = wired(items(TEXT, least=1))
    curator: bytes = wired(PARTY_ID)
    expires: int = wired(integer(0, MAX_INTEGER))
    grant_id: bytes = wired(GRANT_ID, key="grant")
    pads: PadMode = wired(PADS)
    researcher: bytes = wired(PARTY_ID)
    sealed_digest: bytes = wired(DIGEST)
    study: bytes = wired(DIGEST)
    upload_digest: bytes = wired(DIGEST, key="upload")

    def check(self) -> None:
        """Refuse an attribute that comes twice."""
        if len(set(self.attributes)) != len(self.attributes):
            raise malformed("attributes", "an attribute comes twice")


@dataclass(frozen=True, slots=True)
class SignedGrant:
    """A grant with its signature and its sealed part, or without that for the server."""

    kind: ClassVar[str] = Grant.kind

    signed: Signed[Grant]
    sealed: bytes | None

    def __post_init__(self) -> None:
        """Refuse what could not be sent."""
        _SEALED.write(self.sealed, "sealed")

    @property
    def body(self) -> Grant:
        """What the curator signed."""
        return self.signed.body

    def header(self) -> "SignedGrant":
        """Return the message without its sealed part: all that the server may have (spec 11)."""
        return SignedGrant(self.signed, None)

    def to_json(self) -> dict[str, Any]:
        """Return the message as JSON values."""
        return {"sealed": _SEALED.write(self.sealed, "sealed"), **self.signed.to_json()}

    def dumps(self) -> bytes:
        """Write the message."""
        return dump(self.to_json())

    @classmethod
    def loads(cls, data: bytes) -> "SignedGrant":
        """Read a grant; neither its signature nor the digest of its sealed part is verified."""
        members = exact_fields(load(data), ("body", "sealed", "signatures"), "")
        return cls(Signed.from_json(Grant, members), _SEALED.read(members["sealed"], "sealed"))


@message
class GrantRevocation(SignedMessage):
    """A curator takes a grant of its own back: from now on the server serves nothing by it.

    Every field is one of the grant's, so whoever has the grant knows the digest of its revocation,
    and can look for it in the log.
    """

    kind: ClassVar[str] = "grant-revocation"

    curator: bytes = wired(PARTY_ID)
    grant_id: bytes = wired(GRANT_ID, key="grant")
    researcher: bytes = wired(PARTY_ID)
    study: bytes = wired(DIGEST)

    @classmethod
    def of(cls, grant: Grant) -> "GrantRevocation":
        """Return the revocation of a grant."""
        return cls(
            curator=grant.curator,
            grant_id=grant.grant_id,
            researcher=grant.researcher,
            study=grant.study,
        )


def check_columns(columns: Sequence[ColumnChunks], rows: int) -> None:
    """Refuse an attribute or chunk that comes twice, and columns of other lengths than ``rows``."""
    seen: set[str] = set()
    for position, column in enumerate(columns):
        if column.attribute in seen:
            raise malformed(f"columns[{position}].attribute", "comes twice")
        seen.add(column.attribute)
        path = f"columns[{position}].chunks"
        check_chunks(column.chunks, rows, path)
        check_different([chunk for chunk in column.chunks if chunk != _EMPTY], path)


def check_chunks(chunks: Sequence[bytes], rows: int, path: str) -> None:
    """Refuse another number of chunks than ``rows`` rows have (spec 7)."""
    expected = chunk_count(rows)
    if len(chunks) != expected:
        raise malformed(path, f"{rows:,} rows have {expected:,} chunks, not {len(chunks):,}")


def check_different(chunks: Sequence[bytes], path: str) -> None:
    """Refuse a chunk that comes twice.

    Ciphertext never does; somebody who names one chunk thousands of times makes a large release
    from a small upload.  Of tokens and positions, respondents would come twice.
    """
    if len(set(chunks)) != len(chunks):
        raise malformed(path, "a chunk comes twice")
