"""One invited party that turns on the others: everything that its signature lets it try.

:class:`Intruder` is the party with a study of its own, in which it is the only curator; the attacks
below send good signatures and bad content.
"""

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

from tests.support.hostile import Requests
from tests.support.http_simulator import HttpTerms, http_study
from tests.support.requests import Request, Signer, signer_of
from tests.support.servers import Server
from tests.support.simulator import Stage
from veiltab.core.schema import Attribute
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.party.context import PartyContext
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.verify import sign
from veiltab.wire.bundles import bundle
from veiltab.wire.codec import dump
from veiltab.wire.contract import Contract, CuratorTerms, Linkage, PublicIdentity, Vault
from veiltab.wire.messages import PAD_KEY_BYTES, SEAL_BYTES, Grant, SignedGrant
from veiltab.wire.packing import CHUNK_ROWS
from veiltab.wire.rotation import Revocation
from veiltab.wire.signed import VERSION, signing_input

LATER = 2**40
SHARES = ({"postcode": 256},)
"""What the intruder's own studies are about."""


NAME = "intruder"


def _entropy() -> CipherEntropy:
    return CipherEntropy.from_seed(666, NAME)


def identity() -> PrivateIdentity:
    """Return the intruder's identity, the same in every process."""
    return PrivateIdentity.create(NAME, _entropy())


@dataclass(frozen=True, eq=False)
class Intruder:
    """A registered party, one open and one released study of its own, and somebody to harm."""

    url: str
    signer: Signer
    contract: Contract
    """Of the open study, in which it is the only curator."""
    released: bytes
    """A released study of its own."""
    upload_digest: bytes
    victim: PublicIdentity

    @classmethod
    def join(cls, server: Server, folder: Path, victim: PartyContext) -> "Intruder":
        """Register a party of bad intentions, and let it prepare."""
        me = server.join(NAME, folder / NAME, _entropy())
        # Everybody is in the sample: an upload may have any number of rows.
        alone = HttpTerms(
            title="open", shares=SHARES, named=False, epsilon=0.01, delta=1e-6, sample_size=None
        )
        parties = [me, victim]
        opened = http_study(server, folder, Stage.OPEN, terms=alone, parties=parties)
        ended = replace(alone, title="released")
        done = http_study(server, folder, Stage.RELEASED, terms=ended, parties=parties)
        return cls(
            server.url,
            signer_of(me),
            opened.contract.body,
            done.study,
            done.uploads[0].digest,
            public_identity(victim.identity),
        )

    @property
    def party(self) -> bytes:
        """Its party id."""
        return self.signer.identity.party_id

    @property
    def study(self) -> str:
        """The path of the open study."""
        return f"/v1/studies/{self.contract.study_id.hex()}"

    def proposal(self, *, size: int = 0, alone: bool = False) -> Request:
        """Propose a new study that names the victim as a curator.

        ``size`` is about how many bytes the contract has; alone, it names nobody else.
        """
        mine = self.contract.curators[0]
        other = CuratorTerms(self.victim, (Attribute("of the victim", ("no", "yes")),))
        if size:
            text = "x" * 900
            names = [f"{number:05}{text}" for number in range(max(2, size // 910))]
            mine = replace(mine, attributes=(Attribute("large", names),))
        contract = replace(
            self.contract,
            title=f"urgent: {os.urandom(4).hex()}",
            nonce=os.urandom(16),
            curators=(mine,) if alone else (mine, other),
        )
        return self.signed("POST", "/v1/studies", self.message(contract))

    def vault_proposal(self) -> Request:
        """Propose a vault that names the victim as a curator."""
        other = CuratorTerms(self.victim, (Attribute("of the victim", ("no", "yes")),))
        vault = Vault(
            title=f"urgent: {os.urandom(4).hex()}",
            nonce=os.urandom(16),
            curators=(self.contract.curators[0], other),
            server=self.contract.server,
            linkage=Linkage.by_ids(mode="matched"),
            secret_commitment=os.urandom(32),
        )
        return self.signed("POST", "/v1/vaults", self.message(vault))

    def revocation(self, party: bytes) -> Request:
        """Claim the end of another party, or its own if it is named."""
        body = Revocation(at=0, party=party, reason="because")
        message = sign(body, self.signer.identity.signing).dumps()
        return Request("POST", "/v1/parties/revocations", message)

    def message(self, body: Contract | Vault) -> bytes:
        """Sign a message of the protocol."""
        return sign(body, self.signer.identity.signing).dumps()

    def signed(self, method: str, path: str, body: bytes = b"") -> Request:
        """Sign a request."""
        return self.signer.sign(Request(method, path, body))

    def grant(self, sealed: bytes, researcher: bytes | None = None) -> Request:
        """Grant the victim what is in the released study, with any sealed part."""
        body = Grant(
            attributes=tuple(SHARES[0]),
            curator=self.party,
            expires=LATER,
            grant_id=os.urandom(16),
            pads="stream",
            researcher=researcher or self.victim.party_id,
            sealed_digest=hashlib.sha256(sealed).digest(),
            study=self.released,
            upload_digest=self.upload_digest,
        )
        message = SignedGrant(sign(body, self.signer.identity.signing), sealed).dumps()
        return self.signed("POST", f"/v1/studies/{self.released.hex()}/grants", message)

    def chunks(self, chunks: list[tuple[bytes, bytes]]) -> Request:
        """Send chunks under any digests to the open study."""
        return self.signed("PUT", f"{self.study}/chunks", bundle(chunks))

    def repeated_upload(self, digest: bytes, times: int) -> Request:
        """Name one chunk again and again as the whole table."""
        names = [attribute.name for attribute in self.contract.curators[0].attributes]
        body = {
            "columns": [{"attribute": name, "chunks": [digest.hex()] * times} for name in names],
            "curator": self.party.hex(),
            "kind": "upload",
            "population": times * CHUNK_ROWS,
            "rows": times * CHUNK_ROWS,
            "scope": self.contract.study_id.hex(),
            "tokens": None,
            "upload": os.urandom(16).hex(),
            "version": VERSION,
        }
        return self.signed("POST", f"{self.study}/uploads", self.forged(body))

    def forged(self, body: dict[str, Any]) -> bytes:
        """Sign what no honest program would even write down."""
        key = self.signer.identity.signing
        signature = key.sign(signing_input(body["kind"], dump(body)))
        signatures = [{"key": key.public.hex(), "signature": signature.hex()}]
        return dump({"body": body, "signatures": signatures})

    def heavy_proposal(self, weights: int) -> Request:
        """Propose a study whose promise takes long to account for, and is not kept."""
        body = self.contract.to_json()
        table = [str(2**64 // (2 * weights))] * weights
        table[weights // 2] = str(2**64 - (weights - 1) * (2**64 // (2 * weights)))
        body["mechanism"] = {
            "coin_threshold": str(2**64),
            "decoys": {"law": "table", "weights": table},
            "epsilon_public": 0.25,
            "keep_threshold": None,
            "name": "decoys",
        }
        body |= {"accounting": "decoys-1", "delta": 0.01, "nonce": os.urandom(16).hex()}
        return self.signed("POST", "/v1/studies", self.forged(body))


class InvitedAttack(Requests):
    """An attack by the invited party, one request after the other."""

    def __init__(self, intruder: Intruder) -> None:
        """Take the party."""
        super().__init__(intruder.url)
        self.intruder = intruder
        self._turns = self.turns()

    def request(self) -> Request:
        """Return the next of its requests."""
        return next(self._turns)

    def turns(self) -> Iterator[Request]:
        """Yield requests without end."""
        raise NotImplementedError


class Proposals(InvitedAttack):
    """Proposals of studies and vaults without end that name a victim."""

    def turns(self) -> Iterator[Request]:
        """Yield one proposal after the other."""
        while True:
            yield self.intruder.proposal()
            yield self.intruder.vault_proposal()


class Revocations(InvitedAttack):
    """Claims that the victim's keys are revoked, by somebody who has none of them."""

    def turns(self) -> Iterator[Request]:
        """Yield one claim after the other; they need no signature of a request."""
        while True:
            yield self.intruder.revocation(self.intruder.victim.party_id)
            yield self.intruder.revocation(os.urandom(32))


class ProposeAndAbort(InvitedAttack):
    """Proposals that are aborted at once, so that few are open at a time."""

    def turns(self) -> Iterator[Request]:
        """Yield a proposal, then its abort."""
        while True:
            proposal = self.intruder.proposal()
            yield proposal
            contract = Contract.loads(proposal.body).body
            path = f"/v1/studies/{contract.study_id.hex()}/abort"
            yield self.intruder.signed("POST", path, dump({"reason": "again"}))


class BigContracts(InvitedAttack):
    """Contracts as long as messages may be, which are asked for again and again."""

    def __init__(self, intruder: Intruder, size: int = 14 * 2**20, number: int = 10) -> None:
        """Choose how long they are, and how many there are."""
        self._size, self._number = size, number
        super().__init__(intruder)

    def turns(self) -> Iterator[Request]:
        """Yield some proposals, then questions about them."""
        studies = []
        for _ in range(self._number):
            proposal = self.intruder.proposal(size=self._size)
            studies.append(Contract.loads(proposal.body).body.study_id.hex())
            yield proposal
        while True:
            for study in studies:
                yield self.intruder.signed("GET", f"/v1/studies/{study}")
                yield self.intruder.signed("GET", f"/v1/studies/{study}/contract")
                yield self.intruder.signed("GET", "/v1/studies")


class LongGrants(InvitedAttack):
    """Grants whose sealed part is far longer than any seal."""

    def __init__(self, intruder: Intruder, size: int = 8 * 2**20) -> None:
        """Choose how long the sealed part is."""
        self._sealed = bytes(size)
        super().__init__(intruder)

    def turns(self) -> Iterator[Request]:
        """Yield one grant after the other, each with a new id."""
        while True:
            yield self.intruder.grant(self._sealed)


class ManyGrants(InvitedAttack):
    """Short grants, to the victim and to researchers who do not exist: entries for the log."""

    def turns(self) -> Iterator[Request]:
        """Yield one grant after the other."""
        while True:
            yield self.intruder.grant(bytes(SEAL_BYTES + PAD_KEY_BYTES))
            yield self.intruder.grant(bytes(SEAL_BYTES + PAD_KEY_BYTES), os.urandom(32))


class RepeatedChunk(InvitedAttack):
    """One chunk that an upload names thousands of times."""

    def __init__(self, intruder: Intruder, times: int = 16_000) -> None:
        """Choose how often it is named."""
        self._times = times
        super().__init__(intruder)

    def turns(self) -> Iterator[Request]:
        """Yield the chunk, then uploads."""
        chunk = os.urandom(CHUNK_ROWS)
        digest = hashlib.sha256(chunk).digest()
        yield self.intruder.chunks([(digest, chunk)])
        while True:
            yield self.intruder.repeated_upload(digest, self._times)


class TinyChunks(InvitedAttack):
    """Bundles of as many empty chunks as fit, then the question which chunks there are."""

    def __init__(self, intruder: Intruder, chunks: int = 200_000) -> None:
        """Choose how many are in a bundle."""
        self._chunks = chunks
        super().__init__(intruder)

    def turns(self) -> Iterator[Request]:
        """Yield a bundle, then a question, again and again."""
        for number in count():
            yield self.intruder.chunks(self._tiny(number))
            yield self.intruder.signed("GET", f"{self.intruder.study}/chunks")

    def _tiny(self, number: int) -> list[tuple[bytes, bytes]]:
        start = number * self._chunks
        return [((start + place).to_bytes(32, "big"), b"") for place in range(self._chunks)]


class DiskFiller(InvitedAttack):
    """Chunks of noise without end."""

    def __init__(self, intruder: Intruder, size: int = 2**20, number: int = 7) -> None:
        """Choose the size of a chunk, and how many are sent at once."""
        self._size, self._number = size, number
        super().__init__(intruder)

    def turns(self) -> Iterator[Request]:
        """Yield one bundle after the other."""
        while True:
            chunks = [os.urandom(self._size) for _ in range(self._number)]
            named = [(hashlib.sha256(chunk).digest(), chunk) for chunk in chunks]
            yield self.intruder.chunks(named)


class HeavyContracts(InvitedAttack):
    """Contracts within every limit of length, whose promise takes long to account for."""

    def __init__(self, intruder: Intruder, weights: int = 60_001) -> None:
        """Choose how long the table of weights is."""
        self._weights = weights
        super().__init__(intruder)

    def turns(self) -> Iterator[Request]:
        """Yield one proposal after the other."""
        while True:
            yield self.intruder.heavy_proposal(self._weights)


class LongMessages(InvitedAttack):
    """Messages that take long to read, each refused only after it was read."""

    def __init__(self, intruder: Intruder, size: int = 15 * 2**20) -> None:
        """Choose how long they are."""
        self._body = dump({"body": {"x": ["12345678"] * (size // 11)}, "signatures": []})
        super().__init__(intruder)

    def turns(self) -> Iterator[Request]:
        """Yield the message again and again, signed anew."""
        while True:
            for kind in ("uploads", "grants"):
                yield self.intruder.signed("POST", f"{self.intruder.study}/{kind}", self._body)
            yield self.intruder.signed("POST", "/v1/studies", self._body)


class SignedFlood(InvitedAttack):
    """Small good questions as fast as they are answered."""

    def turns(self) -> Iterator[Request]:
        """Yield questions."""
        released = f"/v1/studies/{self.intruder.released.hex()}"
        while True:
            yield self.intruder.signed("GET", self.intruder.study)
            yield self.intruder.signed("GET", f"{released}/audit")
            yield self.intruder.signed("GET", f"{released}/grants")
            yield self.intruder.signed("GET", "/v1/studies")
