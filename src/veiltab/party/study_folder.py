"""What a party keeps of one study: the contract, its secrets, and what it has sent and seen."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from veiltab.core.schema import Schema
from veiltab.crypto.derivation import DERIVED_BYTES, SECRET_BYTES
from veiltab.errors import AuditError, HomeError, MismatchError, StateError
from veiltab.files.chunks import FolderChunks
from veiltab.files.disk import disk_errors, remove_folder
from veiltab.files.private import damaged, make_private_folder, parse_file, write_private
from veiltab.protocol.curator.upload import OneTimePads, Pads, Prepared, StreamPads
from veiltab.protocol.logged import Logged
from veiltab.protocol.stores import ChunkStore, check_column_names
from veiltab.wire.codec import (
    MAX_INTEGER,
    Codec,
    Part,
    exact_fields,
    hexadecimal,
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
from veiltab.wire.contract import DIGEST, PARTY_ID, Contract
from veiltab.wire.messages import (
    CHUNKS,
    Alignment,
    GrantRevocation,
    Publication,
    Repad,
    SignedGrant,
    Upload,
    check_chunks,
)
from veiltab.wire.signed import Message, Signed

if TYPE_CHECKING:
    from veiltab.core.released import ReleasedCounts
    from veiltab.inference.provenance import Provenance


T = TypeVar("T")


def _read_signed(value: object, path: str) -> Signed[Upload]:
    return Signed.from_json(Upload, exact_fields(value, ("body", "signatures"), path))


_SIGNED_UPLOAD: Codec[Signed[Upload]] = Codec(_read_signed, lambda signed, _: signed.to_json())


@message
class _PreparedFile(Message):
    """The upload with one of two: the key of each attribute, or the digests of its pads.

    The upload's own id and number of rows are those of the pads, so they stand here once.
    """

    kind: ClassVar[str] = "home-prepared"

    digests: tuple[tuple[bytes, ...], ...] | None = wired(optional(items(CHUNKS)))
    keys: tuple[bytes, ...] | None = wired(optional(items(hexadecimal(DERIVED_BYTES))))
    upload: Signed[Upload] = wired(_SIGNED_UPLOAD)

    def check(self) -> None:
        """Refuse anything but one kind of pads, for every column and every row."""
        check_pads(self.keys, self.digests, self.upload.body)

    def __repr__(self) -> str:
        """Show which upload it is, and nothing of its pads."""
        return f"_PreparedFile(upload={self.upload.body.upload_id.hex()!r})"


def check_pads(
    keys: tuple[bytes, ...] | None,
    digests: tuple[tuple[bytes, ...], ...] | None,
    body: Upload | Repad,
) -> None:
    """Refuse anything but one kind of pads, for every column and every row of a message."""
    pads = keys if digests is None else digests
    if pads is None or (keys is not None and digests is not None):
        raise malformed("keys, digests", "exactly one of the two must be null")
    if len(pads) != len(body.columns):
        raise malformed("pads", f"must be of {len(body.columns):,} columns")
    for position, chunks in enumerate(digests or ()):
        check_chunks(chunks, body.rows, f"digests[{position}]")


def pad_fields(
    prepared: Prepared[Upload] | Prepared[Repad],
) -> tuple[tuple[bytes, ...] | None, tuple[tuple[bytes, ...], ...] | None]:
    """Return the keys of stream pads, or the digests of one-time pads, and ``None`` for others."""
    pads, body = prepared.pads, prepared.message.body
    if isinstance(pads, StreamPads) and pads.upload_id == body.upload_id:
        return pads.keys, None
    if isinstance(pads, OneTimePads) and (pads.upload_id, pads.rows) == (body.upload_id, body.rows):
        return None, pads.digests
    raise MismatchError(
        "these pads are not the pads of this upload",
        hint="keep the upload and its pads as they were prepared together",
    )


def read_pads(
    keys: tuple[bytes, ...] | None,
    digests: tuple[tuple[bytes, ...], ...] | None,
    body: Upload | Repad,
    schema: Schema,
    private: ChunkStore,
) -> Pads:
    """Return the pads of a message, as :func:`pad_fields` wrote them."""
    check_column_names(body.columns, schema)
    if keys is not None:
        return StreamPads(body.upload_id, schema.attributes, keys)
    return OneTimePads(body.upload_id, schema.attributes, body.rows, digests or (), private)


def dump_prepared(prepared: Prepared[Upload]) -> bytes:
    """Write an upload and its pads; the bytes are as secret as the records."""
    keys, digests = pad_fields(prepared)
    return _PreparedFile(digests=digests, keys=keys, upload=prepared.message).canonical()


def parse_prepared(data: bytes, schema: Schema, private: ChunkStore) -> Prepared[Upload]:
    """Read what :func:`dump_prepared` wrote; ``private`` holds the one-time pads, if any.

    ``schema`` is the curator's part of the contract.  Errors may quote a secret: whoever shows
    them must not show those (see :func:`veiltab.files.private.parse_file`).
    """
    file = _PreparedFile.from_json(load(data))
    pads = read_pads(file.keys, file.digests, file.upload.body, schema, private)
    return Prepared(file.upload, pads)


@message
class _SecretFile(Message):
    """The secret that the curators of a study share."""

    kind: ClassVar[str] = "home-secret"

    secret: bytes = wired(hexadecimal(SECRET_BYTES))
    study: bytes = wired(DIGEST)

    def __repr__(self) -> str:
        """Show whose secret it is, and nothing of it."""
        return f"{type(self).__name__}(study={self.study.hex()!r})"


@message
class _ContributionFile(_SecretFile):
    """This curator's own contribution to the secret."""

    kind: ClassVar[str] = "home-contribution"


@message
class _TableFile(Message):
    """The keyed digest of the one table that may be pushed to a study."""

    kind: ClassVar[str] = "home-table"

    digest: bytes = wired(DIGEST)
    study: bytes = wired(DIGEST)


@part
class _LoggedMessage(Part):
    """The upload of a curator, its new pads, or a grant of it, in a log."""

    curator: bytes = wired(PARTY_ID)
    digest: bytes = wired(DIGEST)


@part
class _LoggedRevocation(Part):
    """The revocation of a grant in a log, and when it came."""

    at: int = wired(integer(0, MAX_INTEGER))
    digest: bytes = wired(DIGEST)


@message
class _LogFile(Message):
    """How far an audit log was seen, and the digests in it of what binds everybody."""

    kind: ClassVar[str] = "home-audit"

    contract: bytes | None = wired(optional(DIGEST))
    grants: tuple[_LoggedMessage, ...] = wired(items(nested(_LoggedMessage)))
    hash: bytes = wired(DIGEST)
    length: int = wired(integer(0, MAX_INTEGER))
    release: bytes | None = wired(optional(DIGEST))
    requests: tuple[bytes, ...] = wired(items(DIGEST))
    revoked: tuple[_LoggedRevocation, ...] = wired(items(nested(_LoggedRevocation)))
    signers: tuple[bytes, ...] = wired(items(PARTY_ID))
    uploads: tuple[_LoggedMessage, ...] = wired(items(nested(_LoggedMessage)))


@dataclass(frozen=True, slots=True)
class PinnedLog:
    """What a home remembers of one audit log, in a file of its own; it only grows."""

    path: Path
    scope: bytes

    def read(self) -> Logged | None:
        """Return what was seen of the log."""
        file = parse_file(self.path, lambda data: _LogFile.from_json(load(data)))
        if file is None:
            return None
        return Logged(
            seen=(file.length, file.hash),
            contract=file.contract,
            signers=frozenset(file.signers),
            uploads={upload.curator: upload.digest for upload in file.uploads},
            requests=frozenset(file.requests),
            release=file.release,
            grants={grant.digest: grant.curator for grant in file.grants},
            revoked={revocation.digest: revocation.at for revocation in file.revoked},
        )

    def save(self, logged: Logged) -> None:
        """Remember what was seen; a log never gets shorter, and what was seen never changes."""
        before = self.read()
        if before == logged:
            return
        length, last = logged.seen
        if before is not None and length <= before.seen[0]:
            raise AuditError(
                f"the audit log of {self.scope.hex()} has {length:,} entries where"
                f" {before.seen[0]:,} were seen before, or not the same ones",
                hint="the server has taken something back; show it to the other curators",
            )
        file = _LogFile(
            contract=logged.contract,
            grants=tuple(_LoggedMessage(who, d) for d, who in sorted(logged.grants.items())),
            hash=last,
            length=length,
            release=logged.release,
            requests=tuple(sorted(logged.requests)),
            revoked=tuple(_LoggedRevocation(at, d) for d, at in sorted(logged.revoked.items())),
            signers=tuple(sorted(logged.signers)),
            uploads=tuple(_LoggedMessage(*pair) for pair in sorted(logged.uploads.items())),
        )
        make_private_folder(self.path.parent)
        write_private(self.path, file.canonical())


@dataclass(frozen=True, slots=True)
class StudyFolder:
    """The folder of one study; it is made when something is first kept in it."""

    path: Path
    study_id: bytes

    @property
    def outgoing(self) -> Path:
        """The folder of chunks for the server."""
        return self._folder("outgoing")

    @property
    def private(self) -> Path:
        """The folder of one-time pads, which nobody else may ever read."""
        return self._folder("private")

    def contract(self) -> Signed[Contract] | None:
        """Return the contract with the signatures known so far."""
        signed = parse_file(self._file("contract"), Contract.loads)
        if signed is not None and signed.body.study_id != self.study_id:
            raise damaged(self._file("contract"))
        return signed

    def save_contract(self, signed: Signed[Contract]) -> None:
        """Keep the contract of this study."""
        self._check_own(signed.body.study_id)
        self._write("contract", signed.dumps())

    def title(self) -> str | None:
        """Return the contract's title, or nothing if there is no readable contract."""
        try:
            signed = self.contract()
        except HomeError:  # one damaged study must not hide the others
            return None
        return None if signed is None else signed.body.title

    def secret(self) -> bytes | None:
        """Return the study's secret, once it is put together."""
        return self._read_secret("secret", _SecretFile)

    def save_secret(self, secret: bytes) -> None:
        """Keep the study's secret; another one than before is refused."""
        self._save_secret("secret", _SecretFile(secret=secret, study=self.study_id), self.secret())

    def contribution(self) -> bytes | None:
        """Return what this curator contributes to the study's secret."""
        return self._read_secret("contribution", _ContributionFile)

    def save_contribution(self, contribution: bytes) -> None:
        """Keep this curator's contribution; another one than before is refused."""
        file = _ContributionFile(secret=contribution, study=self.study_id)
        self._save_secret("contribution", file, self.contribution())

    def pinned_table(self) -> bytes | None:
        """Return the keyed digest of the one table that may be pushed to this study."""
        path = self._file("table")
        pinned = parse_file(path, lambda data: _TableFile.from_json(load(data)))
        if pinned is not None and pinned.study != self.study_id:
            raise damaged(path)
        return None if pinned is None else pinned.digest

    def pin_table(self, digest: bytes) -> None:
        """Keep the keyed digest of the table that is about to be prepared; nothing has left yet."""
        self._write("table", _TableFile(digest=digest, study=self.study_id).canonical())

    def check_table(self, digest: bytes) -> None:
        """Refuse another table than the one of which something may have left already.

        With the same decoys, the difference between two tables would show who has changed.
        """
        if self.pinned_table() != digest:
            raise StateError(
                "this is not the table that was pushed to this study before",
                hint="push the same table again, or propose a new study: a table that has changed"
                " needs one",
            )

    def alignment(self) -> Signed[Alignment] | None:
        """Return the alignment that this home has signed last."""
        path = self._file("alignment")
        signed = parse_file(path, Alignment.loads)
        if signed is not None and signed.body.study != self.study_id:
            raise damaged(path)
        return signed

    def save_alignment(self, signed: Signed[Alignment]) -> None:
        """Keep an alignment before it is sent: in one attempt, a home signs one."""
        self._check_own(signed.body.study)
        self._write("alignment", signed.dumps())

    def prepared(self, schema: Schema, private: ChunkStore) -> Prepared[Upload] | None:
        """Return the upload that was prepared, with its pads.

        ``schema`` is the curator's own part of the contract, and ``private`` the store in
        :attr:`private`.
        """
        path = self._file("prepared")
        prepared = parse_file(path, lambda data: parse_prepared(data, schema, private))
        if prepared is not None and prepared.message.body.scope != self.study_id:
            raise damaged(path)
        return prepared

    @property
    def has_prepared(self) -> bool:
        """Whether an upload was prepared: a push that was broken off goes on with it."""
        return self._file("prepared").exists()

    def save_prepared(self, prepared: Prepared[Upload]) -> None:
        """Keep the upload with its pads: without them nobody can ever be granted anything."""
        self._check_own(prepared.message.body.scope)
        self._write("prepared", dump_prepared(prepared))

    def forget_pads(self) -> None:
        """Delete the pads of what was prepared, and the rest of it, for good.

        From then on nobody can decrypt what was sent, however much else they learn.
        """
        with disk_errors("deleting pads"):
            self._file("prepared").unlink(missing_ok=True)
        for name in ("private", "outgoing"):  # waits for the disk, which has the first name too
            FolderChunks(self.path / name).clear()

    def forget(self) -> None:
        """Delete the whole folder: of a study that nobody else knows of, or ever will."""
        with disk_errors("deleting a study that was never proposed"):
            remove_folder(self.path)

    def forget_if_unused(self, only: str = "contribution.json") -> None:
        """Delete what a proposal has left that was interrupted before its contract was kept.

        That is this file and no other.  Nothing refers to it: neither a contract, nor a charge, nor
        anybody else.
        """
        names = {entry.name for entry in self.path.iterdir()} if self.path.is_dir() else set()
        if names == {only}:
            self.forget()

    @property
    def log(self) -> PinnedLog:
        """What was seen of the study's audit log."""
        return PinnedLog(self._file("audit"), self.study_id)

    def publication(self) -> Signed[Publication] | None:
        """Return the message that names the published copy."""
        path = self._file("publication")
        signed = parse_file(path, Publication.loads)
        if signed is not None and signed.body.study != self.study_id:
            raise damaged(path)
        return signed

    def save_publication(self, signed: Signed[Publication]) -> None:
        """Keep the message that names the published copy, before the copy itself."""
        self._check_own(signed.body.study)
        self._write("publication", signed.dumps())

    def published(self) -> "tuple[ReleasedCounts, Provenance] | None":
        """Return the published copy, and where it comes from."""
        from veiltab.estimates import storing  # noqa: PLC0415 - few commands need estimates

        path = self._file("published")
        kept = parse_file(path, lambda data: storing.loads(data, path.name))
        if kept is not None and kept[1].study != self.study_id.hex():
            raise damaged(path)
        return kept

    def save_published(self, copy: "ReleasedCounts", origin: "Provenance") -> None:
        """Keep the published copy; there is one, and it is never drawn again."""
        from veiltab.estimates import storing  # noqa: PLC0415 - as above

        if self.published() is not None:
            raise HomeError(
                f"{self._file('published')} holds the published copy of this study already",
                hint="use that copy; its noise is drawn once",
            )
        self._write("published", storing.dumps(copy, origin))

    def grants(self) -> list[SignedGrant]:
        """Return the grants that this curator has made here, sealed parts included."""
        grants = self._read_all("grants", SignedGrant.loads)
        self._check_all((grant.body.study for grant in grants), "grants")
        return grants

    def save_grant(self, grant: SignedGrant) -> None:
        """Keep a grant, before it is sent anywhere."""
        self._check_own(grant.body.study)
        self._write_one("grants", grant.body.grant_id, grant.dumps())

    def revocations(self) -> list[Signed[GrantRevocation]]:
        """Return the revocations of grants that this curator has signed here."""
        revocations = self._read_all("revocations", GrantRevocation.loads)
        self._check_all((signed.body.study for signed in revocations), "revocations")
        return revocations

    def save_revocation(self, signed: Signed[GrantRevocation]) -> None:
        """Keep the revocation of a grant, before it is sent."""
        self._check_own(signed.body.study)
        self._write_one("revocations", signed.body.grant_id, signed.dumps())

    def _read_all(self, name: str, loads: Callable[[bytes], T]) -> list[T]:
        """Read all files of a folder, which need not be there."""
        folder = self.path / name
        paths = sorted(folder.glob("[!.]*.json")) if folder.is_dir() else []
        parsed = [parse_file(path, loads) for path in paths]
        return [one for one in parsed if one is not None]

    def _check_all(self, studies: Iterable[bytes], name: str) -> None:
        if any(study != self.study_id for study in studies):
            raise damaged(self.path / name)

    def _write_one(self, folder: str, grant_id: bytes, data: bytes) -> None:
        write_private(self._folder(folder) / f"{grant_id.hex()}.json", data)

    def _read_secret(self, name: str, kind: type[_SecretFile]) -> bytes | None:
        path = self._file(name)
        file = parse_file(path, lambda data: kind.from_json(load(data)))
        if file is not None and file.study != self.study_id:
            raise damaged(path)
        return None if file is None else file.secret

    def _save_secret(self, name: str, file: _SecretFile, saved: bytes | None) -> None:
        if saved is not None and saved != file.secret:
            raise HomeError(
                f"{self._file(name)} holds another secret of this study already",
                hint="a study has one secret, and each curator one part in it; the first one stays",
            )
        self._write(name, file.canonical())

    def _file(self, name: str) -> Path:
        return self.path / f"{name}.json"

    def _folder(self, name: str) -> Path:
        make_private_folder(self.path / name)
        return self.path / name

    def _write(self, name: str, data: bytes) -> None:
        make_private_folder(self.path)
        write_private(self._file(name), data)

    def _check_own(self, study_id: bytes) -> None:
        if study_id != self.study_id:
            raise MismatchError(
                f"this belongs to study {study_id.hex()}, not to {self.study_id.hex()}",
                hint="save it in the folder of the study that it belongs to",
            )
