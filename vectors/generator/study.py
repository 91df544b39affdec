"""A whole study, gone through by the real roles, with everything that was sent and kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

from vectors.generator.files import entropy
from vectors.generator.hpke import ephemeral_key, seal
from veiltab.core.entropy import Entropy
from veiltab.core.schema import Attribute, Codes, Schema
from veiltab.crypto.derivation import SECRET_BYTES, pad_key
from veiltab.crypto.identity import PrivateIdentity
from veiltab.data.ids import id_messages, row_messages
from veiltab.protocol.curator.agreement import (
    new_contribution,
    new_secret,
    public_identity,
    study_secret,
    unsigned,
)
from veiltab.protocol.curator.stored import StoredTable
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.curator.upload import (
    CuratorContext,
    Pads,
    Prepared,
    StreamPads,
    align,
    needs_alignment,
    prepare_sample,
    prepare_table,
)
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.sorting import MemorySpool
from veiltab.protocol.stores import MemoryChunks
from veiltab.protocol.verify import cosign, sign
from veiltab.wire.contract import Agreement, Contract, CuratorTerms, Linkage, Stored, Vault
from veiltab.wire.messages import Alignment, Release, Repad, RepadRequest, Secret, Upload
from veiltab.wire.signed import Signed

AgreementType = TypeVar("AgreementType", bound=Agreement)


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """What one curator holds; without ``ids``, rows are matched by their numbers."""

    curator: str
    attributes: tuple[Attribute, ...]
    codes: Sequence[Codes]
    ids: Sequence[Sequence[str]] | None = None


class Everything(MemoryChunks):
    """Chunks that stay, even when the server is told to forget them."""

    def clear(self) -> None:
        """Keep them: a vector shows what a server must not."""


class Recorded:
    """Entropy that remembers the last bytes it gave."""

    def __init__(self, source: Entropy) -> None:
        """Draw from ``source``."""
        self._source = source
        self.last = b""

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out`` with the next bytes of the source."""
        self._source.fill(out)
        self.last = out.tobytes()


class Play:
    """One study from the first key to the release."""

    def __init__(
        self,
        name: str,
        tables: Sequence[Table],
        linkage: Linkage,
        terms: Mapping[str, Any],
        *,
        stored: bool = False,
        named: bool = False,
    ) -> None:
        """Go through the study; with ``named`` the contract names the researcher."""
        self.name, self.tables, self.linkage = name, tables, linkage
        self.curators = [self._party(table.curator) for table in tables]
        self.server, self.researcher = self._party("server"), self._party("researcher")
        first, self.commitment, self._nonce = new_secret(entropy(f"{name}, secret"))
        others = [new_contribution(entropy(f"{name}, {who.name}")) for who in self.curators[1:]]
        self.contributions = [first] if stored else [first, *others]
        self.secret = first
        self.sent, self.released = Everything(), MemoryChunks()
        self.vault: Signed[Vault] | None = None
        self.secrets: list[Signed[Secret]] = []
        self.alignments: list[Signed[Alignment]] = []
        self.requests: list[Signed[RepadRequest]] = []
        self.uploads: list[Prepared[Upload]] = []
        self.repads: list[Prepared[Repad]] = []
        self.upload_secrets: dict[bytes, bytes] = {}
        if stored:
            self._deposit()
        self.contract = self._contract(terms, named=named)
        self.release = self._run()

    @property
    def granted(self) -> Sequence[Prepared[Upload] | Prepared[Repad]]:
        """What the researcher needs the pads of."""
        return self.repads or self.uploads

    def _party(self, who: str) -> PrivateIdentity:
        return PrivateIdentity.create(who, entropy(f"{self.name}, {who}"))

    def _shared(self, title: str, nonce: bytes) -> dict[str, Any]:
        """Return what a contract and a vault have in common."""
        terms = [
            CuratorTerms(public_identity(identity), table.attributes)
            for identity, table in zip(self.curators, self.tables, strict=True)
        ]
        return {
            "title": title,
            "nonce": nonce,
            "curators": tuple(terms),
            "server": public_identity(self.server),
            "linkage": self.linkage,
            "secret_commitment": self.commitment,
        }

    def _contract(self, terms: Mapping[str, Any], *, named: bool) -> Signed[Contract]:
        stored = None
        if self.vault is not None:
            digests = tuple(made.message.digest for made in self.uploads)
            stored = Stored(self.vault.body.vault_id, digests)
        promise: dict[str, Any] = {"delta": 0.0, "accounting": "pure-1"}
        contract = Contract(
            **self._shared("Rauchen & Einkommen: smoking and income", self._nonce),
            researchers=(public_identity(self.researcher),) if named else None,
            stored=stored,
            **promise | dict(terms),
        )
        return self._signed_by_all(contract)

    def _signed_by_all(self, agreement: AgreementType) -> Signed[AgreementType]:
        signed = unsigned(agreement)
        for identity in self.curators:
            signed = cosign(signed, identity.signing)
        return signed

    def _deposit(self) -> None:
        """Store every table under a vault."""
        shared = self._shared("Stored tables", new_secret(entropy(f"{self.name}, vault"))[2])
        self.vault = vault = self._signed_by_all(Vault(**shared))
        for number, intake in enumerate(self._intakes(vault.body)):
            desk, source = self._desk(number, "table")
            self.uploads.append(prepare_table(desk, vault, intake, MemorySpool()))
            self._keep_secret(self.uploads[-1].pads, vault.body, source)

    def _run(self) -> Signed[Release]:
        source = entropy(f"{self.name}, server's draws")
        bench = ServerContext(self.server.signing, source, self.sent, self.released)
        study = ServerStudy(bench, self.contract.body)
        study.sign(self.contract)
        if self.vault is None:
            self._upload(study)
        else:
            self._repad(study, self.vault)
        return study.release()

    def _upload(self, study: ServerStudy) -> None:
        contract = self.contract.body
        intakes = self._intakes(contract)
        if needs_alignment(contract):
            pairs = zip(self.curators, intakes, strict=True)
            self.alignments = [align(contract, who, intake) for who, intake in pairs]
        for number, intake in enumerate(intakes):
            desk, source = self._desk(number, "upload")
            if contract.matched:
                spool = MemorySpool()
                made = prepare_table(desk, self.contract, intake, spool, self.alignments)
            else:
                made = prepare_sample(desk, self.contract, intake, self.alignments)
            self.uploads.append(made)
            self._keep_secret(made.pads, contract, source)
            study.upload(made.message)

    def _repad(self, study: ServerStudy, vault: Signed[Vault]) -> None:
        uploads = [made.message for made in self.uploads]
        requests = study.draw_from(vault, uploads, self.sent)
        self.requests = [requests[who.party_id] for who in self.curators]
        for number, (made, request) in enumerate(zip(self.uploads, self.requests, strict=True)):
            desk, source = self._desk(number, "repad")
            answer = StoredTable(vault.body, made).repad(desk, self.contract, request, self.sent)
            self.repads.append(answer)
            self._keep_secret(answer.pads, self.contract.body, source)
            study.repad(answer.message)

    def _intakes(self, agreement: Agreement) -> list[Intake]:
        """Share the contributions, or the vault's secret, and take in everybody's table."""
        for sender, contribution in zip(self.curators, self.contributions, strict=False):
            self.secrets += [
                self._shared_secret(agreement, sender, receiver, contribution)
                for receiver in self.curators
                if receiver is not sender
            ]
        if isinstance(agreement, Contract):
            ids = [who.party_id for who in self.curators]
            self.secret = study_secret(agreement, dict(zip(ids, self.contributions, strict=True)))
        return [
            take_in(agreement, self.secret, table, who.party_id)
            for table, who in zip(self.tables, self.curators, strict=True)
        ]

    def _shared_secret(
        self,
        agreement: Agreement,
        sender: PrivateIdentity,
        receiver: PrivateIdentity,
        secret: bytes,
    ) -> Signed[Secret]:
        context = agreement.scope + sender.party_id + receiver.party_id
        key = ephemeral_key(f"{self.name}, secret of {sender.name} to {receiver.name}")
        sealed = seal(secret, receiver.sealing.public, "secret", context, ephemeral=key)
        message = Secret(
            sender=sender.party_id,
            receiver=receiver.party_id,
            scope=agreement.scope,
            sealed=sealed,
        )
        return sign(message, sender.signing)

    def _desk(self, number: int, step: str) -> tuple[CuratorContext, Recorded]:
        source = Recorded(entropy(f"{self.name}, {step} {number}"))
        return CuratorContext(self.curators[number], source, self.sent, MemoryChunks()), source

    def _keep_secret(self, pads: Pads, agreement: Agreement, source: Recorded) -> None:
        """Remember the secret of stream pads: what was drawn last."""
        if isinstance(pads, StreamPads):
            secret = source.last[-SECRET_BYTES:]
            if pad_key(secret, agreement.scope, pads.upload_id, 0) != pads.keys[0]:
                raise AssertionError("the upload secret is not what was drawn last")
            self.upload_secrets[pads.upload_id] = secret


def take_in(agreement: Agreement, secret: bytes, table: Table, curator: bytes) -> Intake:
    """Take in a whole table."""
    if table.ids is None:
        messages = row_messages(len(table.codes[0]))
    else:
        columns = list(zip(*table.ids, strict=True))
        frame = pl.DataFrame({str(i): list(texts) for i, texts in enumerate(columns)})
        messages = id_messages(frame, frame.columns, agreement.linkage.normalisation)
    schema, spool = Schema(table.attributes), MemorySpool()
    intake = Intake(agreement, secret, schema, spool, curator=curator, partitions=1)
    intake.add(messages, table.codes)
    intake.close()
    return intake
