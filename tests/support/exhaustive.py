"""Tiny studies in which a test makes every random choice, and goes through all of them.

The code is the real one of every role.  What is scripted is entropy: a key gives the order of a
whole table, 32-bit words the one-time pads, 16-byte keys the server's sample and 16-bit words its
noise.  Where rows are aligned, ids are dealt out so that their tokens give the order.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import count, permutations, product
from math import prod
from typing import Literal

import numpy as np

from tests.support.entropy import ScriptedEntropy
from tests.support.simulator import Simulator, holding, messages_of, tokens_of
from veiltab.core.channel import GammaDiagonal
from veiltab.core.entropy import Entropy
from veiltab.core.noise import WordMapping
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.linkage import IdMessages, token_order
from veiltab.crypto.linkage import tokens as cmac
from veiltab.protocol.curator.agreement import public_identity
from veiltab.protocol.curator.grant import grant
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.curator.upload import (
    CuratorContext,
    Prepared,
    align,
    prepare_sample,
    prepare_table,
)
from veiltab.protocol.in_process import LATER, Deposit, Holding, Rehearsal, Terms, take_in
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.sorting import MemorySpool
from veiltab.protocol.stores import MemoryChunks
from veiltab.protocol.verify import SEAL_PURPOSE, plan_for, seal_context
from veiltab.wire.contract import Agreement
from veiltab.wire.messages import RELEASE_NONCE_BYTES, Repad, Upload
from veiltab.wire.packing import BLINDING_BYTES

Database = tuple[int, ...]
Order = tuple[int, ...]
PadValues = tuple[int, ...]
View = tuple[bytes, ...]
Law = dict[View, Fraction]
Way = Literal["aligned", "fresh", "stored"]
AnyPrepared = Prepared[Upload] | Prepared[Repad]

UPLOAD_ID = b"an upload's id.."
GRANT_ID = b"and a grant's id"


def words(values: Sequence[int], size: int) -> bytes:
    """Return the entropy from which these words of ``size`` bytes are read."""
    return b"".join(value.to_bytes(size, "little") for value in values)


def random_keys(values: Sequence[int]) -> bytes:
    """Return the entropy that gives the respondents these keys, in the order of their tokens."""
    return b"".join(value.to_bytes(16, "big") for value in values)


def ranks(order: Order) -> list[int]:
    """Return the sort keys that put the rows in this order."""
    return [order.index(row) for row in range(len(order))]


def ids_for(order: Order, agreement: Agreement, secret: bytes) -> IdMessages:
    """Deal out the ids 0, 1, 2, … so that their tokens put the rows in this order."""
    ascending = token_order(tokens_of(agreement, secret, messages_of(range(len(order)))))
    ids = np.empty(len(order), dtype=np.int64)
    ids[list(order)] = ascending
    return messages_of(ids)


def order_key(order: Order, agreement: Agreement, secret: bytes) -> bytes:
    """Return a key under which the respondents 0, 1, 2, … come in this order."""
    return _find_key(order, tokens_of(agreement, secret, messages_of(range(len(order)))).tobytes())


@cache
def _find_key(order: Order, tokens: bytes) -> bytes:
    data, offsets = np.frombuffer(tokens, np.uint8), np.arange(0, len(tokens) + 1, 16)
    keys = (number.to_bytes(32, "big") for number in count())
    return next(
        key for key in keys if tuple(token_order(cmac(key, data, offsets)).tolist()) == order
    )


def noise_script(channel: GammaDiagonal, noise: Sequence[int]) -> bytes:
    """Return words that stand for these noises, after a draw of "nobody is kept anyway"."""
    short = WordMapping.of(channel)
    nobody = bytes(8 if short.keep_anyway else 0)
    each = [cell * short.width + short.width // 2 for cell in noise]
    return nobody + words(each, short.bits // 8)


class Tiny:
    """The parties and the contract of a tiny study; databases are tuples of joint cells."""

    def __init__(
        self, shares: Sequence[Mapping[str, int]], population: int, sample_size: int, way: Way
    ) -> None:
        """Sign one contract, which all runs share."""
        self.way: Way = way
        self.population, self.sample_size = population, sample_size
        holdings = [holding(sizes, range(population)) for sizes in shares]
        self.rehearsal = Simulator(holdings=holdings, entropy=CipherEntropy.from_seed(1, "tiny"))
        linkage: Literal["aligned", "matched"] = "aligned" if way == "aligned" else "matched"
        self._terms = Terms(epsilon=1.0, sample_size=sample_size, linkage=linkage, pads="one-time")
        contract, self._secret = self.rehearsal.propose(self._terms)
        self._signed = self.rehearsal._open(contract).contract
        self.schema = contract.schema
        self.plan = plan_for(contract, population)
        self._sizes = [[a.size for a in each.attributes] for each in holdings]

    def databases(self) -> list[Database]:
        """Return every database."""
        return list(product(range(self.schema.domain_size), repeat=self.population))

    def law(self, database: Database) -> Law:
        """Return the exact law of all that a researcher with every grant sees."""
        law: Law = {}
        for view, chance in self._runs(database):
            law[view] = law.get(view, Fraction(0)) + chance
        assert sum(law.values()) == 1
        return law

    def pads(self, rows: int) -> list[list[PadValues]]:
        """Return every choice of pads: for each curator, its attributes one after the other."""
        own = [
            list(product(*(range(size) for size in sizes for _ in range(rows))))
            for sizes in self._sizes
        ]
        return [list(choice) for choice in product(*own)]

    def upload(self, database: Database, order: Order, pads: Sequence[PadValues]) -> list[bytes]:
        """Return all chunks that the curators send in a study where they sample."""
        received = MemoryChunks()
        prepared = self._prepare_samples(database, order, pads, received)
        return [chunk for _, each in prepared for chunk in _sent(each, received)]

    def table_upload(self, database: Database, order: Order, pads: PadValues) -> list[bytes]:
        """Return all chunks that the one curator sends for a study where the server matches."""
        received = MemoryChunks()
        _, prepared = self._prepare_table(database, order, pads, received)
        return _sent(prepared, received)

    def _runs(self, database: Database) -> Iterator[tuple[View, Fraction]]:
        """Go through every order, pad, sample and noise, with their exact chances."""
        rows = self.population if self.way == "fresh" else self.sample_size
        every_pad = self.pads(rows)
        orders = list(permutations(range(self.population)))
        draws = [None] if self.way == "aligned" else orders
        even = Fraction(1, len(orders) * len(every_pad) * len(draws))
        for order, draw in product(orders, draws):
            deposit = self._deposit(database, order) if self.way == "stored" else None
            for pads, noise in product(every_pad, self._noises()):
                chance = prod(self._chance(cell) for cell in noise) * even
                # Blindings and the nonce have the same law whatever is blinded: one value does.
                positions = bytes(BLINDING_BYTES * len(self.rehearsal.curators))
                script = random_keys(ranks(draw)) + positions if draw is not None else b""
                script += noise_script(self.plan.ranked.channel, noise)
                script += bytes(BLINDING_BYTES * len(self.schema.names) + RELEASE_NONCE_BYTES)
                yield self._view(database, order, pads, script, deposit), chance

    def _noises(self) -> list[tuple[int, ...]]:
        return list(product(range(self.schema.domain_size), repeat=self.sample_size))

    def _chance(self, noise: int) -> Fraction:
        return self.plan.ranked.channel.probability(released=noise, cell=0)

    def _view(
        self,
        database: Database,
        order: Order,
        pads: Sequence[PadValues],
        server_script: bytes,
        deposit: Deposit | None,
    ) -> View:
        """Go through the whole protocol, and return what the researcher gets."""
        received, released = MemoryChunks(), MemoryChunks()
        entropy = ScriptedEntropy(server_script)
        signed = self._signed
        if deposit is not None:
            contract = self.rehearsal.stored_contract(self._terms, deposit)
            signed = self.rehearsal._open(contract).contract
        study = ServerStudy(
            ServerContext(self.rehearsal.server.signing, entropy, received, released), signed.body
        )
        study.sign(signed)
        prepared: Sequence[tuple[CuratorContext, AnyPrepared]]
        if deposit is not None:
            prepared = self._repad(study, pads, received, deposit)
        else:
            uploads = (
                self._prepare_samples(database, order, pads, received)
                if self.way == "aligned"
                else [self._prepare_table(database, order, pads[0], received)]
            )
            for _, upload in uploads:
                study.upload(upload.message)
            prepared = uploads
        release = study.release().body
        assert entropy.used == len(server_script)
        parts = [chunk for column in release.columns for chunk in column.chunks]
        parts += [chunk for upload in release.uploads for chunk in upload.positions or ()]
        return (
            *(released.get(digest) for digest in parts),
            *(self._granted(desk, study, each) for desk, each in prepared),
        )

    def _prepare_samples(
        self, database: Database, order: Order, pads: Sequence[PadValues], received: MemoryChunks
    ) -> list[tuple[CuratorContext, Prepared[Upload]]]:
        ids = ids_for(order, self._signed.body, self._secret)
        desks = [
            self._desk(number, ScriptedEntropy(_curator_script(own)), received)
            for number, own in enumerate(pads)
        ]
        intakes = [
            take_in(self._signed.body, self._secret, replace(each, ids=ids), who.party_id)
            for each, who in zip(self._holdings(database), self.rehearsal.curators, strict=True)
        ]
        parties = list(zip(desks, intakes, strict=True))
        aligned = [align(self._signed.body, d.identity, intake) for d, intake in parties]
        return [
            (desk, prepare_sample(desk, self._signed, intake, aligned)) for desk, intake in parties
        ]

    def _prepare_table(
        self, database: Database, order: Order, pads: PadValues, received: MemoryChunks
    ) -> tuple[CuratorContext, Prepared[Upload]]:
        """Upload a whole table in this order."""
        script = order_key(order, self._signed.body, self._secret) + _curator_script(pads)
        desk = self._desk(0, ScriptedEntropy(script), received)
        (table, *_), (who, *_) = self._holdings(database), self.rehearsal.curators
        intake = take_in(self._signed.body, self._secret, table, who.party_id)
        return desk, prepare_table(desk, self._signed, intake, MemorySpool())

    def _deposit(self, database: Database, order: Order) -> Deposit:
        """Store the table in this order under fixed keys; its pads never reach the researcher."""
        self.rehearsal.holdings = self._holdings(database)
        fixed = CipherEntropy.from_seed(2, "vault")
        return _Scripted(self.rehearsal, fixed, order).deposit()

    def _repad(
        self,
        study: ServerStudy,
        pads: Sequence[PadValues],
        received: MemoryChunks,
        deposit: Deposit,
    ) -> list[tuple[CuratorContext, Prepared[Repad]]]:
        uploads = [table.upload for table in deposit.stored]
        requests = study.draw_from(deposit.vault, uploads, deposit.tables)
        answers = []
        for number, (own, table) in enumerate(zip(pads, deposit.stored, strict=True)):
            desk = self._desk(number, ScriptedEntropy(_curator_script(own)), received)
            request = requests[desk.identity.party_id]
            answers.append((desk, table.repad(desk, study.contract, request, received)))
            study.repad(answers[-1][1].message)
        return answers

    def _granted(self, desk: CuratorContext, study: ServerStudy, prepared: AnyPrepared) -> bytes:
        """Return the pads that the researcher unseals."""
        researcher, contract = self.rehearsal.researcher, study.contract.body
        whole = grant(desk, contract, prepared, public_identity(researcher), expires=LATER)
        body = whole.body
        context = seal_context(body.study, body.curator, body.researcher, body.grant_id)
        assert whole.sealed is not None
        return researcher.sealing.open(whole.sealed, SEAL_PURPOSE, context)

    def _holdings(self, database: Database) -> list[Holding]:
        """Take a database of joint cells apart into the curators' tables."""
        columns = iter(self.schema.codes(np.array(database)))
        return [
            replace(each, codes=[next(columns) for _ in sizes])
            for each, sizes in zip(self.rehearsal.holdings, self._sizes, strict=True)
        ]

    def _desk(self, number: int, entropy: Entropy, received: MemoryChunks) -> CuratorContext:
        return CuratorContext(self.rehearsal.curators[number], entropy, received, MemoryChunks())


class _Scripted(Rehearsal):
    """The same parties again, whose curators store their tables in this order, with fixed pads."""

    def __init__(self, parties: Rehearsal, entropy: Entropy, order: Order) -> None:
        super().__init__(parties.holdings, entropy)
        self.curators, self.server = parties.curators, parties.server
        self._order, self._script = order, b""

    def _intakes(self, agreement: Agreement, secrets: Sequence[bytes]) -> list[Intake]:
        self._script = order_key(self._order, agreement, secrets[0]) + bytes(16) + bytes(32)
        return super()._intakes(agreement, secrets)

    def _contexts(self, outgoing: MemoryChunks) -> list[CuratorContext]:
        script = ScriptedEntropy(self._script)
        return [replace(desk, entropy=script) for desk in super()._contexts(outgoing)]


def _sent(prepared: Prepared[Upload], received: MemoryChunks) -> list[bytes]:
    """Return the chunks of an upload, columns first, then tokens."""
    body = prepared.message.body
    digests = [digest for column in body.columns for digest in column.chunks]
    return [received.get(digest) for digest in (*digests, *(body.tokens or ()))]


def _curator_script(pads: PadValues) -> bytes:
    return UPLOAD_ID + words(pads, 4) + GRANT_ID
