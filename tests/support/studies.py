"""Studies for the tests of the roles: small holdings, and rehearsals that remember more."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy
from veiltab.core.schema import Attribute, Codes
from veiltab.crypto.derivation import token_key
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.linkage import IdMessages
from veiltab.crypto.linkage import tokens as make_tokens
from veiltab.data.ids import id_messages
from veiltab.protocol.curator.agreement import new_secret
from veiltab.protocol.curator.table import Intake, Tokens
from veiltab.protocol.curator.upload import CuratorContext, Prepared
from veiltab.protocol.researcher.access import Access
from veiltab.protocol.researcher.decrypt import decrypt
from veiltab.protocol.stores import ChunkStore, MemoryChunks
from veiltab.protocol.verify import sign
from veiltab.rehearsal import Deposit, Holding, Outcome, Rehearsal, Terms
from veiltab.wire.contract import Agreement, Contract, Stored, Vault
from veiltab.wire.messages import SignedGrant, Upload
from veiltab.wire.signed import Signed

POPULATION = 40
"""Respondents of the ordinary two-curator study."""

PAIR: tuple[Mapping[str, int], ...] = ({"smoker": 2, "age": 3}, {"income": 4, "region": 5})
"""Who holds which attributes of how many categories, in most tests."""


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


def tokens_of(agreement: Agreement, secret: bytes, ids: IdMessages) -> Tokens:
    """Return the token of each respondent, in the order of the table."""
    return make_tokens(token_key(secret, agreement.scope), ids.data, ids.offsets)


class TeeChunks(MemoryChunks):
    """Keeps every chunk, and passes it on to another store as well."""

    def __init__(self, onward: ChunkStore) -> None:
        """Start empty in front of another store."""
        super().__init__()
        self._onward = onward

    def put(self, chunk: bytes) -> bytes:
        """Keep a chunk twice and return its digest."""
        self._onward.put(chunk)
        return super().put(chunk)


class CountingEntropy:
    """Another source of randomness, and how many bytes were drawn from it."""

    def __init__(self, source: Entropy) -> None:
        """Start counting."""
        self._source = source
        self.used = 0

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out`` with the next bytes of the source."""
        self._source.fill(out)
        self.used += out.size


class Recorded(Rehearsal):
    """A rehearsal that remembers its secret, tokens, and the chunks that curators sent."""

    secret = b""
    tokens: list[Tokens]
    sent: list[TeeChunks]

    def _intakes(self, agreement: Agreement, secret: bytes) -> list[Intake]:
        self.secret = secret
        self.tokens = [tokens_of(agreement, secret, each.ids) for each in self.holdings]
        return super()._intakes(agreement, secret)

    def _desks(self, outgoing: MemoryChunks) -> list[CuratorContext]:
        self.sent = [TeeChunks(outgoing) for _ in self.curators]
        desks = zip(super()._desks(outgoing), self.sent, strict=True)
        return [replace(desk, outgoing=sent) for desk, sent in desks]


def pair(population: int = POPULATION, seed: int = 1) -> Recorded:
    """Return the ordinary parties: two curators with the same respondents in other orders."""
    ids = np.random.default_rng(seed).permutation(population)
    holdings = [holding(PAIR[0], ids, seed), holding(PAIR[1], ids[::-1].copy(), seed + 1)]
    return Recorded(
        holdings,
        CipherEntropy.from_seed(seed, "curators"),
        CipherEntropy.from_seed(seed, "server"),
    )


@dataclass(eq=False)
class Staged:
    """A study that is open, with everything that curators need to upload, and no upload yet."""

    outcome: Outcome
    secret: bytes
    intakes: list[Intake]
    tokens: list[Tokens]

    @property
    def contract(self) -> Contract:
        """The contract that all have signed."""
        return self.outcome.contract.body


def proposal(rehearsal: Rehearsal, terms: Terms, **changes: Any) -> tuple[Contract, bytes]:
    """Return a new contract, with some fields changed, and its secret."""
    secret, commitment, nonce = new_secret(rehearsal.entropy)
    contract = rehearsal._contract(terms, commitment, nonce)
    return replace(contract, **changes), secret


def stage(rehearsal: Rehearsal, terms: Terms, **changes: Any) -> Staged:
    """Open a study, and take in everybody's table."""
    contract, secret = proposal(rehearsal, terms, **changes)
    outcome = rehearsal._open(contract)
    tokens = [tokens_of(contract, secret, each.ids) for each in rehearsal.holdings]
    return Staged(outcome, secret, rehearsal._intakes(contract, secret), tokens)


def prepare(rehearsal: Rehearsal, staged: Staged) -> list[Prepared[Upload]]:
    """Let every curator prepare its upload; the chunks are received, the messages not sent."""
    return rehearsal._prepare(staged.outcome, staged.intakes)


def finish(rehearsal: Rehearsal, staged: Staged) -> Outcome:
    """Prepare, upload and release."""
    for prepared in prepare(rehearsal, staged):
        staged.outcome.study.upload(prepared.message)
        staged.outcome.prepared.append(prepared)
    staged.outcome.release()
    return staged.outcome


def stored_contract(rehearsal: Rehearsal, terms: Terms, deposit: Deposit) -> Contract:
    """Return a contract that reads a deposit."""
    vault: Vault = deposit.vault.body
    uploads = tuple(table.upload.digest for table in deposit.stored)
    contract, _ = proposal(
        rehearsal,
        terms,
        secret_commitment=vault.secret_commitment,
        stored=Stored(vault.vault_id, uploads),
    )
    return contract


def sanitized(access: Access, chunks: ChunkStore) -> dict[str, Codes]:
    """Return everything that a researcher can decrypt, whole columns by name."""
    names = [name for name in access.contract.schema.names if name in access.pads]
    pieces = list(decrypt(access, chunks, names))
    columns = zip(names, zip(*pieces, strict=True), strict=True)
    return {name: np.concatenate(parts) for name, parts in columns}


def signed_by_all(rehearsal: Rehearsal, contract: Contract) -> Signed[Contract]:
    """Return a contract that every curator has signed."""
    return rehearsal._open(contract).contract


def regrant(grant: SignedGrant, signer: PrivateIdentity, **changes: Any) -> SignedGrant:
    """Return a grant with some fields of its body changed, signed anew; its seal stays."""
    return SignedGrant(sign(replace(grant.body, **changes), signer.signing), grant.sealed)


def reseal(grant: SignedGrant, signer: PrivateIdentity, sealed: bytes) -> SignedGrant:
    """Return a grant with another sealed part, for which the curator has signed."""
    digest = hashlib.sha256(sealed).digest()
    return SignedGrant(sign(replace(grant.body, sealed_digest=digest), signer.signing), sealed)
