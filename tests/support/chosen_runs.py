"""Tiny studies with decoys in which a test chooses who takes part, the decoys, and the order.

The code is the real one of every role.  What is chosen is what the study secret would decide: ids
are dealt out so that their real tokens are below the coin's threshold or not, and the keystreams of
the decoys are written down.  The rows of a run, respondents or decoys, always have the same tokens,
so that runs whose rows have the same patterns can be compared byte for byte.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from tests.support.chunks import read_column, read_positions, read_tokens
from tests.support.entropy import ScriptedEntropy
from tests.support.enumeration import Database
from tests.support.exhaustive import GRANT_ID, UPLOAD_ID, words
from tests.support.simulator import Simulator, holding, messages_of, sanitized, tokens_of
from veiltab.core import group
from veiltab.core.entropy import Entropy
from veiltab.core.mechanism import Law, LinkageMode, WeightTable
from veiltab.core.schema import Codes
from veiltab.crypto.derivation import decoy_number_key, decoy_token_key
from veiltab.crypto.entropy import CipherEntropy
from veiltab.protocol.curator import decoys as invented
from veiltab.protocol.curator import upload as uploading
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
from veiltab.protocol.in_process import LATER, Holding, Terms, take_in
from veiltab.protocol.researcher import Access, open_access
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.sorting import MemorySpool
from veiltab.protocol.stores import MemoryChunks
from veiltab.protocol.verify import SEAL_PURPOSE, seal_context
from veiltab.wire.contract import PadMode
from veiltab.wire.mechanism import DecoyTerms
from veiltab.wire.messages import Alignment, Release, SignedGrant, Upload
from veiltab.wire.signed import Signed

SECRET = b"the secret of all curators here."
POOL = 400
"""Among so many ids there are enough on either side of the threshold."""

Digits = tuple[int | None, ...]
"""For each curator a cell, or None where it does not hold the person."""


@dataclass(frozen=True)
class Person:
    """A row of somebody who takes part, by the place in the database."""

    place: int


@dataclass(frozen=True)
class Decoy:
    """An invented row of a pattern."""

    pattern: int


Row = Person | Decoy
Rows = Sequence[Row]
"""All rows of a run, in the order of their tokens."""


class ChosenStudy:
    """The parties and the contract of a tiny study; every run begins from them.

    ``careless`` curators leave all decoys out and lie about it.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        linkage: LinkageMode,
        mechanism: DecoyTerms,
        *,
        epsilon: float,
        delta: float = 0.0,
        pads: PadMode = "stream",
        careless: Sequence[int] = (),
    ) -> None:
        """Sign one contract; each curator has one attribute of the given size."""
        self.sizes, self.matched, self.careless = tuple(sizes), linkage == "matched", careless
        self.mechanism = mechanism
        holdings = [holding({f"a{place}": size}, [0]) for place, size in enumerate(sizes)]
        self.parties = Simulator(holdings=holdings, entropy=CipherEntropy.from_seed(1, "chosen"))
        terms = Terms(epsilon=epsilon, delta=delta, linkage=linkage, pads=pads, mechanism=mechanism)
        contract, _ = self.parties.propose(terms)
        self.signed = self.parties.sign(contract)
        self.attributes = [table.attributes[0] for table in holdings]
        self._pool = self._tokens()

    @property
    def patterns(self) -> int:
        """How many patterns get decoys."""
        return prod(size + self.matched for size in self.sizes) - self.matched

    def digits(self, pattern: int) -> Digits:
        """Return what a pattern says of each curator; absence is its last digit."""
        digits: list[int | None] = []
        for size in reversed(self.sizes):
            pattern, digit = divmod(pattern, size + self.matched)
            digits.insert(0, digit if digit < size else None)
        return tuple(digits)

    def pattern(self, digits: Digits) -> int:
        """Return the number of a pattern."""
        every = product(*([*range(size), None][: size + self.matched] for size in self.sizes))
        return list(every).index(digits)

    def all_pads(self, database: Database, rows: Rows) -> Iterator[Entropy]:
        """Yield entropy for every choice of one-time pads in a run; all else stays the same."""
        held = [self.digits(p) for p in self.patterns_of(database, rows)]
        counts = [
            sum(digits[place] is not None for digits in held) for place in range(len(self.sizes))
        ]
        columns = [
            product(range(size), repeat=count)
            for size, count in zip(self.sizes, counts, strict=True)
        ]
        order_key = bytes(32) if self.matched else b""
        for pads in product(*columns):
            uploads = [order_key + UPLOAD_ID + words(column, 4) for column in pads]
            yield ScriptedEntropy(b"".join(uploads) + GRANT_ID * len(pads))

    def patterns_of(self, database: Database, rows: Rows) -> tuple[int, ...]:
        """Return the pattern of each row."""
        return tuple(row.pattern if isinstance(row, Decoy) else database[row.place] for row in rows)

    def run(self, database: Database, rows: Rows, entropy: Entropy | None = None) -> "Run":
        """Go through the whole study; ``entropy`` is the curators', the same in each run if None.

        Persons without a row do not take part.
        """
        received, released = MemoryChunks(), MemoryChunks()
        source = entropy or CipherEntropy.from_seed(2, "curators")
        contexts = [
            CuratorContext(identity, source, received, MemoryChunks())
            for identity in self.parties.curators
        ]
        intakes = self._take_in(database, rows)
        parties = list(zip(contexts, intakes, strict=True))
        alignments = [align(self.signed.body, c.identity, intake) for c, intake in parties]
        prepared = [self._prepare(*party, alignments) for party in parties]
        noise = CipherEntropy.from_seed(2, "server")
        server = ServerContext(self.parties.server.signing, noise, received, released)
        study = ServerStudy(server, self.signed.body)
        study.sign(self.signed)
        for each in prepared:
            study.upload(each.message)
        release = study.release()
        to = public_identity(self.parties.researcher)
        grants = [
            grant(context, self.signed.body, each, to, expires=LATER)
            for context, each in zip(contexts, prepared, strict=True)
        ]
        uploads = [each.message for each in prepared]
        return Run(self, alignments, uploads, release, grants, received, released)

    def _take_in(self, database: Database, rows: Rows) -> list[Intake]:
        """Let every curator read its table, and invent the chosen decoys."""
        ids, intakes = self._ids(database, rows), []
        for place, identity in enumerate(self.parties.curators):
            table = self._holding(place, database, ids)
            with self._inventing([] if place in self.careless else rows):
                intakes.append(take_in(self.signed.body, SECRET, table, identity.party_id))
        return intakes

    def _prepare(
        self, context: CuratorContext, intake: Intake, alignments: Sequence[Signed[Alignment]]
    ) -> Prepared[Upload]:
        with _unchecked() if self.careless else nullcontext():
            if self.matched:
                return prepare_table(context, self.signed, intake, MemorySpool(), alignments)
            return prepare_sample(context, self.signed, intake, alignments)

    def _holding(self, place: int, database: Database, ids: Sequence[int]) -> Holding:
        """Return a curator's table: whom it holds, and somebody who never takes part."""
        held = [
            (number, cell)
            for number, pattern in zip(ids, database, strict=False)
            for cell in [self.digits(pattern)[place]]
            if cell is not None
        ]
        if self.matched:  # an empty table is refused
            held.append((ids[-1], 0))
        attribute = self.attributes[place]
        codes: list[Codes] = [np.array([cell for _, cell in held]).astype(attribute.dtype)]
        return Holding((attribute,), codes, messages_of([number for number, _ in held]))

    def _ids(self, database: Database, rows: Rows) -> list[int]:
        """Return everybody's id, and one more, of somebody who is in no database."""
        below, above = self._pool
        others = iter(above)
        by_place = {
            row.place: below[slot] for slot, row in enumerate(rows) if isinstance(row, Person)
        }
        return [by_place.get(place, next(others)) for place in range(len(database))] + [
            next(others)
        ]

    def _tokens(self) -> tuple[list[int], list[int]]:
        """Return the ids whose tokens are below the threshold, in token order, and the others."""
        tokens = tokens_of(self.signed.body, SECRET, messages_of(range(POOL)))
        self._bytes = [token.tobytes() for token in tokens]
        ascending = sorted(range(POOL), key=self._bytes.__getitem__)
        border = self.mechanism.coin_threshold
        high = [int.from_bytes(token[:8], "big") for token in self._bytes]
        below = [number for number in ascending if high[number] < border]
        return below, [number for number in ascending if high[number] >= border]

    @contextmanager
    def _inventing(self, rows: Rows) -> Iterator[None]:
        """Write down the keystreams from which a curator draws its decoys."""
        study = self.signed.body.study_id
        slots = sorted(
            (row.pattern, slot) for slot, row in enumerate(rows) if isinstance(row, Decoy)
        )
        numbers = [0] * self.patterns
        for pattern, _ in slots:
            numbers[pattern] += 1
        scripts = {
            decoy_number_key(SECRET, study): number_script(self.mechanism.decoys, numbers),
            decoy_token_key(SECRET, study): b"".join(
                self._block(self._bytes[self._pool[0][slot]]) for _, slot in slots
            ),
        }
        with mock.patch.object(invented, "CipherEntropy", lambda key: Endless(scripts[key])):
            yield

    def _block(self, token: bytes) -> bytes:
        """Return the block of the keystream that becomes this token."""
        spare = 64 - (self.mechanism.coin_threshold - 1).bit_length()
        return (int.from_bytes(token[:8], "big") << spare).to_bytes(8, "big") + token[8:]


def number_script(law: Law, numbers: Sequence[int]) -> bytes:
    """Return the words from which these numbers of decoys are drawn."""
    if isinstance(law, WeightTable):
        words = [sum(law.weights[:number]) for number in numbers]
    else:
        words, left = [], list(numbers)
        while left:
            words += [0 if number else 2**64 - 1 for number in left]
            left = [number - 1 for number in left if number]
    return b"".join(word.to_bytes(8, "little") for word in words)


class Endless(ScriptedEntropy):
    """A script, and then zeros: tokens are drawn from more blocks than are needed."""

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out`` with the next bytes of the script, or with zeros."""
        part = np.frombuffer(self._script[self.used : self.used + out.size], np.uint8)
        out[:] = 0
        out[: part.size] = part
        self.used += out.size


@contextmanager
def _unchecked() -> Iterator[None]:
    """Leave the comparison of decoys out, as if a curator had lied about its own."""
    with (
        mock.patch.object(uploading, "check_alignment"),
        mock.patch.object(uploading, "_check_aligned"),
    ):
        yield


@dataclass(frozen=True, eq=False)
class Run:
    """What was made in a run, as server and researcher have it."""

    study: ChosenStudy
    alignments: list[Signed[Alignment]]
    uploads: list[Signed[Upload]]
    release: Signed[Release]
    grants: list[SignedGrant]
    received: MemoryChunks
    released: MemoryChunks

    @cached_property
    def access(self) -> Access:
        """What the researcher has unsealed: the pads of every row of every upload."""
        researcher = self.study.parties.researcher
        return open_access(researcher, self.study.signed, self.release, self.grants, now=0)

    def researcher(self) -> tuple[int, ...]:
        """Return the joint cells that the researcher decrypts, in the order of the release."""
        if not self.release.body.rows:
            return ()
        columns = sanitized(self.access, self.released)
        schema = self.access.contract.schema
        return tuple(schema.cells([columns[name] for name in schema.names]).tolist())

    def together(self) -> tuple[int, ...]:
        """Return the pattern of every row of the opened uploads, in the order of their tokens.

        Where no tokens are sent, the rows are in that order already.
        """
        rows: dict[bytes, list[int | None]] = {}
        for place, upload in enumerate(self.uploads):
            for token, cell in zip(self._names(upload.body), self._opened(place), strict=True):
                rows.setdefault(token, [None] * len(self.uploads))[place] = cell
        return tuple(self.study.pattern(tuple(rows[token])) for token in sorted(rows))

    def matches(self) -> list[tuple[bytes, ...]]:
        """Return the tokens of the rows that the server has put together, by the positions."""
        columns = []
        for upload, named in zip(self.uploads, self.release.body.uploads, strict=True):
            names = self._names(upload.body)
            assert named.positions is not None
            count = self.release.body.rows
            places = read_positions(named.positions, count, self.released) if count else ()
            columns.append([names[place] for place in places])
        return list(zip(*columns, strict=True))

    def researcher_bytes(self) -> tuple[bytes, ...]:
        """Return all bytes that the researcher gets: messages, chunks, and pads."""
        body = self.release.body
        digests = [digest for column in body.columns for digest in column.chunks]
        digests += [digest for upload in body.uploads for digest in upload.positions or ()]
        chunks = [self.released.get(digest) for digest in digests]
        return (self.release.dumps(), *chunks, *(self._material(each) for each in self.grants))

    def all_bytes(self) -> tuple[bytes, ...]:
        """Return all bytes that server and researcher get."""
        return (*self.server_bytes(), *self.researcher_bytes())

    def server_bytes(self) -> tuple[bytes, ...]:
        """Return all bytes of the uploads: messages, columns, tokens."""
        parts = []
        for upload in self.uploads:
            digests = [digest for column in upload.body.columns for digest in column.chunks]
            digests += upload.body.tokens or ()
            parts += [upload.dumps(), *(self.received.get(digest) for digest in digests)]
        return tuple(parts)

    def _names(self, upload: Upload) -> list[bytes]:
        """Return the tokens of an upload's rows, or their places where there are none."""
        if upload.tokens is None:
            return [place.to_bytes(8, "big") for place in range(upload.rows)]
        if not upload.rows:
            return []
        return [token.tobytes() for token in read_tokens(upload.tokens, upload.rows, self.received)]

    def _opened(self, place: int) -> list[int]:
        """Subtract the pads of a whole upload."""
        upload, attribute = self.uploads[place].body, self.study.attributes[place]
        if not upload.rows:
            return []
        column = read_column(upload.columns[0].chunks, attribute, upload.rows, self.received)
        pads = self.access.pads[attribute.name].rows(slice(0, upload.rows))
        opened: list[int] = group.subtract(column, pads, attribute.size).tolist()
        return opened

    def _material(self, whole: SignedGrant) -> bytes:
        body = whole.body
        context = seal_context(body.study, body.curator, body.researcher, body.grant_id)
        assert whole.sealed is not None
        opened = self.study.parties.researcher.sealing.open(whole.sealed, SEAL_PURPOSE, context)
        return bytes(opened)
