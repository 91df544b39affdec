"""One simulator of studies for all tests: any parties, any stage, in one process.

    simulator = Simulator()                              # two curators, 40 respondents
    study = simulator.study(stage=Stage.RELEASED)        # the roles alone
    study = simulator.study(Terms(epsilon=2.0, linkage="matched"))   # open, no upload yet
    stored = simulator.draw()                            # rows drawn from stored tables
    study = simulator.on_server(context)                 # through the server's steps, no network

All randomness comes from ``seed``.  :mod:`tests.support.http_simulator` takes the same parties
through a server that answers over HTTP.
"""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from tests.support.chunks import TeeChunks
from veiltab.core.entropy import Entropy
from veiltab.core.schema import Attribute, Codes
from veiltab.crypto.derivation import token_key
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.linkage import IdMessages
from veiltab.crypto.linkage import tokens as make_tokens
from veiltab.data.ids import id_messages
from veiltab.protocol.curator.agreement import new_secret, public_identity
from veiltab.protocol.curator.table import Intake, Tokens
from veiltab.protocol.curator.upload import CuratorContext, Prepared
from veiltab.protocol.in_process import Deposit, Holding, Outcome, Rehearsal, Terms
from veiltab.protocol.researcher import Access, decrypt
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.stores import ChunkStore, MemoryChunks
from veiltab.protocol.verify import sign
from veiltab.server import steps
from veiltab.server.context import ServiceContext
from veiltab.server.http.auth import Sender
from veiltab.server.worker import release_study
from veiltab.wire.bundles import bundle
from veiltab.wire.contract import Agreement, Contract, Stored
from veiltab.wire.messages import Repad, RepadRequest, SignedGrant, Upload
from veiltab.wire.signed import Signed

POPULATION = 40
"""How many respondents a simulator has by default."""

SHARES: tuple[Mapping[str, int], ...] = (
    {"smoker": 2, "age": 3},
    {"income": 4, "region": 5},
    {"diet": 3},
    {"housing": 2},
    {"sport": 2},
)
"""The attributes of up to five curators, each with its number of categories."""

PAIR = SHARES[:2]
"""Those of the two curators of most tests."""

TERMS = Terms(epsilon=1.0, sample_size=20)
STORED_TERMS = replace(TERMS, linkage="matched")


def attribute(name: str, size: int) -> Attribute:
    """Return an attribute with plain numbers as categories."""
    return Attribute(name, map(str, range(size)))


def messages_of(ids: Sequence[int] | NDArray[np.int64]) -> IdMessages:
    """Return the id messages of respondents who are known by a number."""
    return id_messages(pl.DataFrame({"id": ids}), ["id"], ())


def holding(
    sizes: Mapping[str, int], ids: Sequence[int] | NDArray[np.int64], seed: int = 0
) -> Holding:
    """Return a curator's table with random codes: attribute names and sizes, one row per id."""
    source = np.random.default_rng(seed)
    attributes = tuple(attribute(name, size) for name, size in sizes.items())
    codes: list[Codes] = [
        source.integers(a.size, size=len(ids)).astype(a.dtype) for a in attributes
    ]
    return Holding(attributes, codes, messages_of(ids))


def holding_of(sizes: Mapping[str, int], *codes: Sequence[int]) -> Holding:
    """Return a curator's table with these codes, about the respondents 0, 1, 2, …."""
    attributes = tuple(attribute(name, size) for name, size in sizes.items())
    columns: list[Codes] = [
        np.array(c).astype(a.dtype) for a, c in zip(attributes, codes, strict=True)
    ]
    return Holding(attributes, columns, messages_of(range(len(codes[0]))))


def holdings_of(
    shares: Sequence[Mapping[str, int]], population: int, seed: int = 1
) -> list[Holding]:
    """Return tables about the same respondents, in an order that changes from one to the next."""
    ids = np.random.default_rng(seed).permutation(population)
    return [
        holding(sizes, ids if number % 2 == 0 else ids[::-1].copy(), seed + number)
        for number, sizes in enumerate(shares)
    ]


def tokens_of(agreement: Agreement, secret: bytes, ids: IdMessages) -> Tokens:
    """Return the token of each respondent, in the order of the table."""
    return make_tokens(token_key(secret, agreement.scope), ids.data, ids.offsets)


class Stage(IntEnum):
    """How far a study has gone; each stage includes those before it."""

    PROPOSED = 1
    """The first curator has proposed and signed, and has sealed the secret to the others."""
    OPEN = 2
    """All have signed."""
    PREPARED = 3
    """All have aligned, where they must, and have encrypted; no upload is sent."""
    ONE_UPLOADED = 4
    """The first curator's upload is complete."""
    UPLOADED = 5
    """All are; a server with a worker may have released the study already."""
    RELEASED = 6
    GRANTED = 7
    """Every curator has granted all its attributes to the researcher."""


class StagedStudy(ABC):
    """A study that goes from stage to stage; a subclass has a method for each, such as _open."""

    stage: int = 0

    @abstractmethod
    def upload(self, place: int) -> None:
        """Send what a curator has prepared."""

    @abstractmethod
    def _curators(self) -> int:
        """Return how many curators there are."""

    def go_to(self, stage: Stage) -> Self:
        """Go on up to a stage, and return this study."""
        while self.stage < stage:
            self.stage += 1
            getattr(self, f"_{Stage(self.stage).name.lower()}")()
        return self

    def _one_uploaded(self) -> None:
        self.upload(0)

    def _uploaded(self) -> None:
        for place in range(1, self._curators()):
            self.upload(place)


class Simulator(Rehearsal):
    """The parties of studies, who remember their secret, their tokens, and the chunks they sent.

    ``holdings`` replaces the tables that ``curators`` or ``shares`` would give.
    """

    secret = b""
    tokens: list[Tokens]
    sent: list[TeeChunks]

    def __init__(
        self,
        *,
        population: int = POPULATION,
        curators: int = 2,
        shares: Sequence[Mapping[str, int]] | None = None,
        seed: int = 1,
        holdings: Sequence[Holding] | None = None,
        entropy: Entropy | None = None,
        server_entropy: Entropy | None = None,
    ) -> None:
        """Give every party an identity, and every curator a table."""
        if holdings is None:
            holdings = holdings_of(shares or SHARES[:curators], population, seed)
        if entropy is None:
            entropy = CipherEntropy.from_seed(seed, "curators")
            server_entropy = server_entropy or CipherEntropy.from_seed(seed, "server")
        super().__init__(holdings, entropy, server_entropy)

    def propose(self, terms: Terms = TERMS, **changes: Any) -> tuple[Contract, bytes]:
        """Return a new contract, with some fields changed, and its secret."""
        contribution, commitment, nonce = new_secret(self.entropy)
        contract = replace(self._contract(terms, commitment, nonce), **changes)
        if contract.secret_commitment != commitment:  # a vault's, whose secret is another
            return contract, b""
        return contract, self._exchange(contract, contribution)[0]

    def sign(self, contract: Contract) -> Signed[Contract]:
        """Return a contract that every curator has signed."""
        return self._open(contract).contract

    def study(
        self, terms: Terms = TERMS, stage: Stage = Stage.OPEN, **changes: Any
    ) -> "LocalStudy":
        """Take a study to a stage; ``changes`` replace fields of the contract."""
        contract, secret = self.propose(terms, **changes)
        return LocalStudy(self, contract, secret).go_to(stage)

    def on_server(
        self, context: ServiceContext, terms: Terms = TERMS, stage: Stage = Stage.UPLOADED
    ) -> "ServerSideStudy":
        """Take a study to a stage through the server's own steps, without a network."""
        self.register(context)
        return ServerSideStudy(self, context, self.study(terms)).go_to(stage)

    def register(self, context: ServiceContext) -> None:
        """Make everybody known to a server: proposals may name nobody else."""
        with context.database.transaction() as records:
            for party in (*self.curators, self.researcher):
                records.add_party(public_identity(party), context.now)

    def stored_contract(self, terms: Terms, deposit: Deposit) -> Contract:
        """Return a contract that reads a deposit."""
        vault = deposit.vault.body
        uploads = tuple(table.upload.digest for table in deposit.stored)
        contract, _ = self.propose(
            terms,
            secret_commitment=vault.secret_commitment,
            stored=Stored(vault.vault_id, uploads),
        )
        return contract

    def draw(
        self, deposit: Deposit | None = None, contract: Contract | None = None
    ) -> "StoredStudy":
        """Open a study on stored tables, which are new unless given, and draw its rows."""
        deposit = deposit or self.deposit()
        outcome = self._open(contract or self.stored_contract(STORED_TERMS, deposit))
        uploads = [table.upload for table in deposit.stored]
        requests = outcome.study.draw_from(deposit.vault, uploads, deposit.tables)
        return StoredStudy(self, deposit, outcome, list(requests.values()))

    def _intakes(self, agreement: Agreement, secrets: Sequence[bytes]) -> list[Intake]:
        self.secret = secrets[0]
        self.tokens = [tokens_of(agreement, self.secret, table.ids) for table in self.holdings]
        return super()._intakes(agreement, secrets)

    def _contexts(self, outgoing: MemoryChunks) -> list[CuratorContext]:
        self.sent = [TeeChunks(outgoing) for _ in self.curators]
        contexts = zip(super()._contexts(outgoing), self.sent, strict=True)
        return [replace(context, outgoing=sent) for context, sent in contexts]


class LocalStudy(StagedStudy):
    """A study of the roles alone: messages and chunks are handed over within this process."""

    outcome: Outcome
    intakes: list[Intake]
    tokens: list[Tokens]

    def __init__(self, rehearsal: Rehearsal, contract: Contract, secret: bytes) -> None:
        """Start from a contract that nobody has signed."""
        self.rehearsal, self.contract, self.secret = rehearsal, contract, secret
        self.prepared: list[Prepared[Upload]] = []
        self.grants: list[SignedGrant] = []

    def prepare(self) -> list[Prepared[Upload]]:
        """Let every curator prepare a new upload; the chunks are received, no message is sent."""
        return self.rehearsal._prepare(self.outcome, self.intakes)

    def finish(self) -> Outcome:
        """Go on up to the release, and return everything that was made on the way."""
        return self.go_to(Stage.RELEASED).outcome

    def upload(self, place: int) -> None:
        """Hand a curator's upload to the server."""
        self.outcome.study.upload(self.prepared[place].message)
        self.outcome.prepared.append(self.prepared[place])

    def _curators(self) -> int:
        return len(self.rehearsal.curators)

    def _proposed(self) -> None:
        pass

    def _open(self) -> None:
        self.outcome = self.rehearsal._open(self.contract)
        ids = [table.ids for table in self.rehearsal.holdings]
        self.tokens = [tokens_of(self.contract, self.secret, messages) for messages in ids]
        secrets = [self.secret] * self._curators()
        self.intakes = self.rehearsal._intakes(self.contract, secrets)

    def _prepared(self) -> None:
        self.prepared = self.prepare()

    def _released(self) -> None:
        self.outcome.study.release()

    def _granted(self) -> None:
        self.grants = self.rehearsal.grants(self.outcome)


@dataclass(eq=False)
class ServerSideStudy(StagedStudy):
    """A study in a server's records and folders, whose steps are called directly."""

    rehearsal: Simulator
    context: ServiceContext
    local: LocalStudy
    prepared: list[Prepared[Upload]] = field(default_factory=list)

    @property
    def study(self) -> bytes:
        """The study's id."""
        return self.local.contract.study_id

    def sender(self, place: int, body: bytes) -> Sender:
        """Return a request of a curator."""
        digest = hashlib.sha256(body).digest()
        return Sender(public_identity(self.rehearsal.curators[place]), [body], digest)

    def send_chunks(self, place: int) -> None:
        """Send all chunks of one curator."""
        body = bundle(list(self.rehearsal.sent[place]._chunks.items()))
        steps.put_chunks(self.context, self.sender(place, body), self.study)

    def upload(self, place: int) -> None:
        """Send the chunks of one curator, and the upload that refers to them."""
        self.send_chunks(place)
        body = self.prepared[place].message.dumps()
        steps.upload(self.context, self.sender(place, body), self.study)

    def _curators(self) -> int:
        return len(self.rehearsal.curators)

    def _proposed(self) -> None:
        steps.propose(self.context, self.sender(0, self.local.outcome.contract.dumps()))

    def _open(self) -> None:
        for place in range(1, self._curators()):
            body = self.local.outcome.contract.dumps()
            steps.sign(self.context, self.sender(place, body), self.study)

    def _prepared(self) -> None:
        self.prepared = self.local.prepare()

    def _released(self) -> None:
        assert release_study(self.context, self.study) == "released"


@dataclass(eq=False)
class StoredStudy:
    """A deposit, and a study on it whose rows are drawn."""

    rehearsal: Simulator
    deposit: Deposit
    outcome: Outcome
    requests: list[Signed[RepadRequest]]

    @property
    def study(self) -> ServerStudy:
        """The server's side."""
        return self.outcome.study

    def answer(self, place: int, /, **changes: Any) -> Prepared[Repad]:
        """Let a curator answer its request, with some fields changed by the server."""
        request, context = self.requests[place], self.outcome.contexts[place]
        if changes:
            body = replace(request.body, **changes)
            request = sign(body, self.rehearsal.server.signing)
        return self.deposit.stored[place].repad(
            context, self.outcome.contract, request, self.outcome.received
        )


def sanitized(access: Access, chunks: ChunkStore) -> dict[str, Codes]:
    """Return everything that a researcher can decrypt, whole columns by name."""
    names = [name for name in access.contract.schema.names if name in access.pads]
    pieces = list(decrypt(access, chunks, names))
    columns = zip(names, zip(*pieces, strict=True), strict=True)
    return {name: np.concatenate(parts) for name, parts in columns}


def regrant(grant: SignedGrant, signer: PrivateIdentity, **changes: Any) -> SignedGrant:
    """Return a grant with some fields of its body changed, signed anew; its seal stays."""
    return SignedGrant(sign(replace(grant.body, **changes), signer.signing), grant.sealed)


def reseal(grant: SignedGrant, signer: PrivateIdentity, sealed: bytes) -> SignedGrant:
    """Return a grant with another sealed part, for which the curator has signed."""
    digest = hashlib.sha256(sealed).digest()
    return SignedGrant(sign(replace(grant.body, sealed_digest=digest), signer.signing), sealed)
