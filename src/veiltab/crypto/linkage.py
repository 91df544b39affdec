"""Linkage tokens (spec, section 5): keyed names of respondents, and the secret order they give.

All curators of a scope share the token key, so a respondent has the same token with each of them,
and the server, which has no key, cannot test whether a guessed id is there.
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from veiltab.crypto.derivation import exact_bytes
from veiltab.errors import ParameterError

TOKEN_BYTES = 16
KEY_BYTES = 32
BATCH_ROWS = 1 << 14
"""Messages at a time: their blocks stay in the processor's cache."""

_BLOCK = f"V{TOKEN_BYTES}"
_CONTINUES = TOKEN_BYTES + 1
"""Stands for the number of bytes that are left where the block is not the message's last."""


@dataclass(frozen=True, slots=True, eq=False)
class IdMessages:
    """One byte string per respondent: message i is ``data[offsets[i]:offsets[i + 1]]``."""

    data: NDArray[np.uint8]
    offsets: NDArray[np.int64]

    def __len__(self) -> int:
        """Return how many respondents there are."""
        return self.offsets.size - 1


def tokens(key: bytes, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return the tokens of n messages, an array of shape (n, 16): AES-256-CMAC (SP 800-38B).

    Message i is ``data[offsets[i] : offsets[i + 1]]``.  The blocks of many messages are encrypted
    in one call, first blocks first; one message at a time would take tens of times as long.
    """
    _check_messages(data, offsets)
    cipher = _Cmac(key)
    count = offsets.size - 1
    result = np.empty((count + 1, TOKEN_BYTES), dtype=np.uint8)  # the cipher needs room for one
    single = bool((np.diff(offsets) == TOKEN_BYTES).all())  # as ids of 16 characters are
    for start in range(0, count, BATCH_ROWS):
        stop = min(start + BATCH_ROWS, count)
        bounds = offsets[start : stop + 1]
        if single:
            cipher.fill_single(result[start : stop + 1], data[bounds[0] : bounds[-1]])
        else:
            cipher.fill(result[start:stop].reshape(-1).view(_BLOCK), data, bounds)
    return result[:count]


def token_order(tokens: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the rows in ascending order of their tokens, which compare as byte strings.

    Equal tokens stay in the order of their rows.
    """
    return token_runs(tokens)[0]


def token_words(
    tokens: NDArray[np.uint8], first: int = 0, low_bits: int | None = None
) -> tuple[NDArray[np.uint64], np.uint64]:
    """Return a 64-bit word for each token, in ascending order, and the mask of their numbers.

    A word is the token's first bits and the number of its row, counted from ``first`` on, in
    ``low_bits`` bits or as few as the rows need: NumPy sorts words ten times as fast as it finds
    the order of anything.
    """
    pairs = _pairs(tokens)
    bits = max(len(pairs) - 1, 0).bit_length() if low_bits is None else low_bits
    mask = np.uint64((1 << bits) - 1)
    words = np.arange(first, first + len(pairs), dtype=np.uint64)
    for start in range(0, len(pairs), BATCH_ROWS):
        part = slice(start, start + BATCH_ROWS)
        words[part] |= pairs[part, 0].astype(np.uint64) & ~mask
    words.sort()
    return words, mask


def token_runs(tokens: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return the rows in ascending order of their tokens, and which equal the next one.

    Whole tokens are compared only where the bits in their words are the same.
    """
    pairs = _pairs(tokens)
    words, mask = token_words(tokens)
    tied = np.flatnonzero((words[1:] ^ words[:-1]) <= mask)
    words &= mask
    order = words.view(np.int64)
    same = np.zeros(max(len(pairs) - 1, 0), dtype=np.bool_)
    if tied.size:
        equal = _equal(pairs, order, tied)
        if not equal.all():
            _settle(pairs, order, tied, equal)
            equal = _equal(pairs, order, tied)
        same[tied] = equal
    return order, same


def alignment_digest(key: bytes, count: int, ordered: Iterable[NDArray[np.uint8]]) -> bytes:
    """Return HMAC-SHA256 of u64(n) and all tokens in ascending order (spec, section 5.1).

    Curators compare it before anything is uploaded.  ``key`` is the scope's alignment key;
    ``ordered`` are the n tokens in that order, in arrays of any length.
    """
    exact_bytes(key, KEY_BYTES, "an alignment key")
    digest = hmac.new(key, count.to_bytes(8, "big"), "sha256")
    for part in ordered:
        digest.update(np.ascontiguousarray(part).data)
    return digest.digest()


def repeats(ordered: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Say for each of the ordered tokens whether it occurs more than once.

    Equal tokens mean equal messages, which section 5 forbids within one curator.
    """
    same = follows(ordered)
    same[:-1] |= same[1:]
    return same


def follows(ordered: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Say for each of the ordered tokens whether the one before it is the same."""
    pairs = _pairs(ordered)
    same = np.zeros(len(pairs), dtype=np.bool_)
    same[1:] = (pairs[1:, 0] == pairs[:-1, 0]) & (pairs[1:, 1] == pairs[:-1, 1])
    return same


class _Cmac:
    """AES-256-CMAC of many messages at once (SP 800-38B, section 6.2).

    CMAC chains C ← AES(C ⊕ block) over a message's blocks.  The last block is padded with a one
    bit and zeros if it is not full, and has a subkey added: K1 if it is full, K2 if not.
    """

    def __init__(self, key: bytes) -> None:
        key = exact_bytes(key, KEY_BYTES, "a token key")
        # ECB is the bare block cipher here, as CMAC defines itself by it; nothing is kept in it.
        self._encryptor = Cipher(AES256(key), ECB()).encryptor()  # noqa: S305
        zero = np.zeros((1, 2), dtype=np.uint64)
        subkey = int.from_bytes(self._encrypt(zero).tobytes(), "big")
        full = _double(subkey)
        padded = _double(full)
        masks, tails = [], []
        for left in range(TOKEN_BYTES):
            masks.append(b"\xff" * left + bytes(TOKEN_BYTES - left))
            tails.append((padded ^ 0x80 << 8 * (TOKEN_BYTES - 1 - left)).to_bytes(16, "big"))
        masks += [b"\xff" * TOKEN_BYTES] * 2
        tails += [full.to_bytes(16, "big"), bytes(TOKEN_BYTES)]
        # Row r is for a block with r bytes left: which to keep, and what to add to them.
        self._masks = np.frombuffer(b"".join(masks), dtype=np.uint64).reshape(-1, 2)
        self._tails = np.frombuffer(b"".join(tails), dtype=np.uint64).reshape(-1, 2)

    def fill_single(self, out: NDArray[np.uint8], data: NDArray[np.uint8]) -> None:
        """Write the tokens of messages of one full block each, which need no chain.

        The last row of ``out`` is overwritten with anything.
        """
        blocks = data.view(np.uint64).reshape(-1, 2) ^ self._tails[TOKEN_BYTES]
        self._encryptor.update_into(blocks.data.cast("B"), out.data.cast("B"))

    def fill(
        self, out: NDArray[np.void], data: NDArray[np.uint8], bounds: NDArray[np.int64]
    ) -> None:
        """Write the tokens of the messages between the bounds, one 16-byte entry each."""
        first, last = int(bounds[0]), int(bounds[-1])
        text = np.concatenate([data[first:last], np.zeros(TOKEN_BYTES, dtype=np.uint8)])
        # Every 16 bytes that stand in a row are one entry, so that a block is one index.
        blocks = np.ndarray((text.size - TOKEN_BYTES + 1,), _BLOCK, text, strides=(1,))
        starts, left = bounds[:-1] - first, np.diff(bounds)
        rows = np.arange(starts.size)
        chain = np.zeros((starts.size, 2), dtype=np.uint64)
        while rows.size:
            kind = np.minimum(left, _CONTINUES)
            chain ^= blocks[starts].view(np.uint64).reshape(-1, 2) & self._masks.take(kind, axis=0)
            chain ^= self._tails.take(kind, axis=0)
            encrypted = self._encrypt(chain)
            out[rows] = encrypted
            more = np.flatnonzero(left > TOKEN_BYTES)
            chain = encrypted[more].view(np.uint64).reshape(-1, 2)
            rows, starts, left = rows[more], starts[more] + TOKEN_BYTES, left[more] - TOKEN_BYTES

    def _encrypt(self, blocks: NDArray[np.uint64]) -> NDArray[np.void]:
        """Encrypt each block on its own; the library wants room for almost one more."""
        out = np.empty(blocks.nbytes + TOKEN_BYTES, dtype=np.uint8)
        self._encryptor.update_into(blocks.data.cast("B"), out.data)
        return out[: blocks.nbytes].view(_BLOCK)


def _double(block: int) -> int:
    """Multiply by x in GF(2^128), as SP 800-38B makes its subkeys."""
    return ((block << 1) & ((1 << 128) - 1)) ^ (0x87 if block >> 127 else 0)


def _pairs(tokens: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """Return each token as two big-endian numbers."""
    if tokens.ndim != 2 or tokens.shape[1] != TOKEN_BYTES or tokens.dtype != np.uint8:  # noqa: PLR2004
        raise ParameterError(
            f"tokens are an array of {tokens.dtype} of shape {tokens.shape}",
            hint="give n rows of 16 bytes",
        )
    return np.ascontiguousarray(tokens).view(">u8")


def _equal(
    pairs: NDArray[np.uint64], order: NDArray[np.int64], places: NDArray[np.intp]
) -> NDArray[np.bool_]:
    """Say whether the tokens at these places of the order equal those at the next ones."""
    ours = np.take(pairs, np.take(order, places), axis=0)
    ours ^= np.take(pairs, np.take(order, places + 1), axis=0)
    equal: NDArray[np.bool_] = (ours[:, 0] | ours[:, 1]) == 0
    return equal


def _settle(
    pairs: NDArray[np.uint64],
    order: NDArray[np.int64],
    tied: NDArray[np.intp],
    equal: NDArray[np.bool_],
) -> None:
    """Put runs of different tokens with the same first bits into the order of all their bits."""
    run = np.cumsum(np.diff(tied, prepend=tied[0]) != 1)
    mixed = np.isin(run, run[~equal])
    places = np.unique(np.concatenate([tied[mixed], tied[mixed] + 1]))
    rows = order[places]
    high, low = pairs[rows].astype(np.uint64).T
    order[places] = rows[np.lexsort((low, high))]


def _check_messages(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
    """Refuse offsets that would read outside the data: the windows into it are not checked."""
    fits = data.ndim == offsets.ndim == 1 and data.dtype == np.uint8 and offsets.dtype == np.int64
    if not fits or not offsets.size or offsets[0] < 0 or offsets[-1] > data.size:
        raise ParameterError(
            "the messages' offsets do not fit their bytes",
            hint="give n + 1 offsets, from 0 to the number of bytes, for n messages",
        )
    if (offsets[1:] < offsets[:-1]).any():
        raise ParameterError(
            "the messages' offsets are not in ascending order",
            hint="message i ends where message i + 1 begins",
        )
