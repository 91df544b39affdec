"""What a curator keeps of one vault: its terms, its secret, its table's pads, and every answer.

It must outlive every study on the vault: without the keys nobody can draw new pads, and without the
answers a study could be answered twice.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from veiltab.core.schema import Schema
from veiltab.crypto.derivation import DERIVED_BYTES
from veiltab.errors import HomeError, StateError
from veiltab.files.chunks import FolderChunks
from veiltab.files.private import damaged, make_private_folder, parse_file, write_private
from veiltab.party.study_folder import StudyFolder, check_pads, pad_fields, read_pads
from veiltab.protocol.curator.upload import Prepared
from veiltab.wire.codec import (
    Codec,
    exact_fields,
    hexadecimal,
    items,
    load,
    message,
    optional,
    wired,
)
from veiltab.wire.contract import Vault
from veiltab.wire.messages import CHUNKS, Repad, RepadRequest
from veiltab.wire.signed import Message, Signed


def _read_signed(value: object, path: str) -> Signed[Repad]:
    return Signed.from_json(Repad, exact_fields(value, ("body", "signatures"), path))


_SIGNED_REPAD: Codec[Signed[Repad]] = Codec(_read_signed, lambda signed, _: signed.to_json())


@message
class _AnswerFile(Message):
    """An answer with one of two: the key of each attribute, or the digests of its new pads."""

    kind: ClassVar[str] = "home-answer"

    digests: tuple[tuple[bytes, ...], ...] | None = wired(optional(items(CHUNKS)))
    keys: tuple[bytes, ...] | None = wired(optional(items(hexadecimal(DERIVED_BYTES))))
    repad: Signed[Repad] = wired(_SIGNED_REPAD)

    def check(self) -> None:
        """Refuse anything but one kind of pads, for every column and every row."""
        check_pads(self.keys, self.digests, self.repad.body)

    def __repr__(self) -> str:
        """Show which study it is for, and nothing of its pads."""
        return f"_AnswerFile(study={self.repad.body.study.hex()!r})"


@dataclass(frozen=True, slots=True)
class AnswerFolder:
    """The folder of a vault's one answer to a study."""

    path: Path
    study_id: bytes
    schema: Schema

    @property
    def incoming(self) -> FolderChunks:
        """The rows that the server asks about; they can be fetched again."""
        return FolderChunks(self.path / "incoming", durable=False)

    @property
    def outgoing(self) -> FolderChunks:
        """The chunks for the server."""
        return FolderChunks(self.path / "outgoing")

    @property
    def private(self) -> FolderChunks:
        """New one-time pads, which nobody else may ever read."""
        return FolderChunks(self.path / "private")

    @property
    def lock(self) -> Path:
        """The file that one process at a time holds to answer this study."""
        make_private_folder(self.path)
        return self.path / "lock"

    def answer(self, study: bytes) -> Prepared[Repad] | None:
        """Return the answer that was given, or is about to be sent."""
        path = self.path / "answer.json"
        answer = parse_file(path, self._parse)
        if answer is not None and (answer.message.body.study, study) != (self.study_id,) * 2:
            raise damaged(path)
        return answer

    def save_answer(self, answer: Prepared[Repad]) -> None:
        """Keep the answer before any of it is sent; there is one, and it is never changed."""
        earlier = self.answer(self.study_id)
        if earlier is not None or answer.message.body.study != self.study_id:
            raise HomeError(
                f"{self.path} holds the answer to study {self.study_id.hex()[:16]} already, or it"
                " is for another one",
                hint="a study is answered once; send the answer that is kept",
            )
        keys, digests = pad_fields(answer)
        file = _AnswerFile(digests=digests, keys=keys, repad=answer.message)
        make_private_folder(self.path)
        write_private(self.path / "answer.json", file.canonical())

    def request(self) -> Signed[RepadRequest] | None:
        """Return the request that was answered, or is being answered."""
        path = self.path / "request.json"
        request = parse_file(path, RepadRequest.loads)
        if request is not None and request.body.study != self.study_id:
            raise damaged(path)
        return request

    def save_request(self, request: Signed[RepadRequest]) -> None:
        """Keep the request before it is answered."""
        make_private_folder(self.path)
        write_private(self.path / "request.json", request.dumps())

    def clear(self) -> None:
        """Forget the chunks of an answer that was broken off before it was kept."""
        self.outgoing.clear()
        self.private.clear()

    def _parse(self, data: bytes) -> Prepared[Repad]:
        file = _AnswerFile.from_json(load(data))
        pads = read_pads(file.keys, file.digests, file.repad.body, self.schema, self.private)
        return Prepared(file.repad, pads)


@dataclass(frozen=True, slots=True)
class VaultFolder(StudyFolder):
    """The folder of one vault: as that of a study, whose id is the vault's.

    It has terms in place of a contract, and an answer for each study on the vault.
    """

    def terms(self) -> Signed[Vault] | None:
        """Return the vault with the signatures known so far."""
        path = self._file("terms")
        signed = parse_file(path, Vault.loads)
        if signed is not None and signed.body.vault_id != self.study_id:
            raise damaged(path)
        return signed

    def save_terms(self, signed: Signed[Vault]) -> None:
        """Keep the terms of this vault."""
        self._check_own(signed.body.vault_id)
        self._write("terms", signed.dumps())

    def title(self) -> str | None:
        """Return the vault's title, or nothing if there are no readable terms."""
        try:
            signed = self.terms()
        except HomeError:  # one damaged vault must not hide the others
            return None
        return None if signed is None else signed.body.title

    def check_table(self, digest: bytes) -> None:
        """Refuse another table than the one of which something may have left already."""
        try:
            # No super() here: a class with slots is made twice, and super() would find the first.
            StudyFolder.check_table(self, digest)
        except StateError:
            raise StateError(
                "this is not the table that was pushed to this vault before",
                hint="push the same table again; for a table that has changed, propose a new vault"
                " and close this one",
            ) from None

    def answer_folder(self, study: bytes, schema: Schema) -> AnswerFolder:
        """Return the folder of the answer to a study; ``schema`` is the curator's own part."""
        return AnswerFolder(self.path / "answers" / study.hex(), study, schema)
