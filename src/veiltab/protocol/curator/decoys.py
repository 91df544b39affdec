"""Decoys: the records that all curators of a study invent alike (spec 5.2).

They follow from the study secret.  Whoever does not have it cannot tell them from respondents.
However many there are, memory holds one span of them, and their number in each pattern.
"""

import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy, random_words
from veiltab.core.mechanism import DRAW_BLOCK, draw_numbers
from veiltab.core.schema import Codes, Schema
from veiltab.crypto.derivation import decoy_digest_key, decoy_number_key, decoy_token_key
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.linkage import TOKEN_BYTES
from veiltab.wire.codec import dump
from veiltab.wire.contract import Contract
from veiltab.wire.mechanism import MECHANISM, CoinTerms

SPAN_DECOYS = 1 << 18
"""Decoys that are made at a time."""

Tokens: TypeAlias = NDArray[np.uint8]
Numbers: TypeAlias = NDArray[np.int64]

_RECORD = np.dtype([("pattern", ">u8"), ("token", f"V{TOKEN_BYTES}")])
_WORD_BITS = 64
_SPARE_BLOCKS = 64
"""Blocks that are drawn beyond the expected number, so that one draw is nearly always enough."""


@dataclass(frozen=True, slots=True)
class Patterns:
    """The patterns that get decoys: a cell of each curator, or its absence where rows are matched.

    They are numbered in mixed radix, the first curator counting most.  Absence is a curator's last
    digit, and the last number, absence from all, is no pattern.
    """

    cells: tuple[int, ...]
    matched: bool

    @classmethod
    def of(cls, contract: Contract) -> "Patterns":
        """Return the patterns of a study."""
        cells = tuple(terms.schema.domain_size for terms in contract.curators)
        return cls(cells, contract.matched)

    @property
    def count(self) -> int:
        """How many patterns there are."""
        return prod(size + self.matched for size in self.cells) - self.matched

    def own_cells(self, patterns: Numbers, curator: int) -> Numbers:
        """Return a curator's digit of each pattern: its own cell, or their number for absence."""
        radices = [size + self.matched for size in self.cells]
        digits: Numbers = patterns // prod(radices[curator + 1 :])
        if curator:  # NumPy divides by one number fast, and finds remainders slowly
            digits -= digits // radices[curator] * radices[curator]
        return digits


class Decoys:
    """The decoys of a study: the same for every holder of its secret.

    ``table`` numbers the tables of a study; so far there is one.
    """

    def __init__(
        self, patterns: Patterns, terms: CoinTerms, secret: bytes, study: bytes, table: int = 0
    ) -> None:
        """Draw how many decoys each pattern gets."""
        self.patterns = patterns
        entropy = CipherEntropy(decoy_number_key(secret, study, table))
        self._numbers = draw_numbers(terms.decoys, patterns.count, entropy)
        self.count = int(self._numbers.sum())
        self._terms = terms
        self._token_key = decoy_token_key(secret, study, table)
        self._digest_key = decoy_digest_key(secret, study)
        self.digest = b""

    def spans(self) -> Iterator[tuple[Numbers, Tokens]]:
        """Yield the decoys' patterns and tokens, in the order of the patterns, span by span.

        After the last span, ``digest`` is the keyed digest of the mechanism and of all decoys.
        """
        tokens = TokensBelow(self._terms.coin_threshold, CipherEntropy(self._token_key))
        mechanism = dump(MECHANISM.write(self._terms, "mechanism"))
        digest = hmac.new(self._digest_key, mechanism, "sha256")
        digest.update(self.count.to_bytes(8, "big"))
        for start in range(0, self._numbers.size, DRAW_BLOCK):
            for patterns in _expanded(self._numbers[start : start + DRAW_BLOCK], start):
                records = np.empty(patterns.size, dtype=_RECORD)
                records["pattern"] = patterns
                drawn = tokens.draw(patterns.size)
                records["token"] = drawn.view(f"V{TOKEN_BYTES}").reshape(-1)
                digest.update(records.view(np.uint8).data)
                yield patterns, drawn
        self.digest = digest.digest()


class TokensBelow:
    """Tokens whose first 64 bits are below a coin's threshold, uniform, by rejection (spec 5.2)."""

    def __init__(self, threshold: int, entropy: Entropy) -> None:
        """Take blocks of 16 bytes from a keystream, in order."""
        self._most = np.uint64(threshold - 1)
        self._threshold, self._bits = threshold, (threshold - 1).bit_length()
        self._entropy = entropy
        self._waiting: Tokens = np.empty((0, TOKEN_BYTES), dtype=np.uint8)

    def draw(self, count: int) -> Tokens:
        """Return the next tokens, a row of 16 bytes each; what was drawn beyond them waits."""
        parts, held = [self._waiting], len(self._waiting)
        while held < count:
            parts.append(self._accepted(count - held))
            held += len(parts[-1])
        tokens = np.concatenate(parts)
        self._waiting = tokens[count:].copy()
        return tokens[:count]

    def _accepted(self, wanted: int) -> Tokens:
        """Draw about as many blocks as are needed, and keep those that give a token."""
        blocks = (wanted << self._bits) // self._threshold + _SPARE_BLOCKS
        raw = random_words(TOKEN_BYTES * blocks, 8, self._entropy)
        pairs = raw.view(">u8").reshape(-1, 2)
        high = pairs[:, 0].astype(np.uint64)
        if self._bits:
            high >>= np.uint64(_WORD_BITS - self._bits)
        else:
            high[:] = 0
        taken = high <= self._most
        tokens = np.empty((int(np.count_nonzero(taken)), 2), dtype=">u8")
        tokens[:, 0], tokens[:, 1] = high[taken], pairs[taken, 1]
        return tokens.view(np.uint8)


def own_rows(
    patterns: Patterns, schema: Schema, curator: int, numbers: Numbers, tokens: Tokens
) -> tuple[Tokens, Sequence[Codes]]:
    """Return the tokens of the decoys that a curator holds, and the codes of its attributes."""
    cells = patterns.own_cells(numbers, curator)
    if patterns.matched:
        present = cells < patterns.cells[curator]
        cells, tokens = cells[present], tokens[present]
    return tokens, schema.codes(cells)


def _expanded(numbers: Numbers, first: int) -> Iterator[Numbers]:
    """Yield each pattern as often as it has decoys; the numbers are those from ``first`` on."""
    patterns = np.arange(first, first + numbers.size)
    stops = np.cumsum(numbers)
    for start in range(0, int(stops[-1]), SPAN_DECOYS):
        inside = np.minimum(stops, start + SPAN_DECOYS) - np.maximum(stops - numbers, start)
        yield np.repeat(patterns, np.maximum(inside, 0))
