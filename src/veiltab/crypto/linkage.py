"""Linkage tokens (spec, section 5): keyed names of respondents, and the secret order they give.

All curators of a scope share the token key, so a respondent has the same token with each of them,
and the server, who has no key, cannot test whether a guessed id is there.
"""

import hmac
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from numpy.typing import NDArray

from veiltab.crypto.checks import exact_bytes
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
    found = np.empty((offsets.size - 1, TOKEN_BYTES), dtype=np.uint8)
    for start in range(0, offsets.size - 1, BATCH_ROWS):
        batch = found[start : start + BATCH_ROWS].reshape(-1).view(_BLOCK)
        cipher.fill(batch, data, offsets[start : start + BATCH_ROWS + 1])
    return found


def token_order(tokens: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the rows in ascending order of their tokens, which compare as byte strings.

    The first eight bytes decide unless two tokens share them, which for different tokens happens
    about once in 2^64/n² times; then the other eight decide, and then the row.
    """
    high, low = _halves(tokens)
    order = np.argsort(high).astype(np.int64, copy=False)
    in_order = high[order]
    if (in_order[1:] == in_order[:-1]).any():
        order = np.lexsort((low, high)).astype(np.int64, copy=False)
    return order


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
    """Say of each token, of many in order, whether it occurs more than once.

    Equal tokens mean equal messages, which section 5 forbids within one curator.
    """
    high, low = _halves(ordered)
    same = (high[1:] == high[:-1]) & (low[1:] == low[:-1])
    repeated = np.zeros(high.size, dtype=np.bool_)
    repeated[1:] |= same
    repeated[:-1] |= same
    return repeated


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

    def fill(
        self, found: NDArray[np.void], data: NDArray[np.uint8], bounds: NDArray[np.int64]
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
            found[rows] = encrypted
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


def _halves(tokens: NDArray[np.uint8]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return the tokens as two numbers each, which compare as the bytes do."""
    if tokens.ndim != 2 or tokens.shape[1] != TOKEN_BYTES or tokens.dtype != np.uint8:  # noqa: PLR2004
        raise ParameterError(
            f"tokens are an array of {tokens.dtype} of shape {tokens.shape}",
            hint="give n rows of 16 bytes",
        )
    words = np.ascontiguousarray(tokens).view(">u8")
    return words[:, 0].astype(np.uint64), words[:, 1].astype(np.uint64)


def _check_messages(data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> None:
    """Refuse offsets that would read outside the data: the windows into it are not checked."""
    fits = data.ndim == offsets.ndim == 1 and data.dtype == np.uint8 and offsets.dtype == np.int64
    if not fits or not offsets.size or offsets[0] < 0 or offsets[-1] > data.size:
        raise ParameterError(
            "the messages' offsets do not fit their bytes",
            hint="give n + 1 offsets, from 0 to the number of bytes, for n messages",
        )
    if (np.diff(offsets) < 0).any():
        raise ParameterError(
            "the messages' offsets are not in ascending order",
            hint="message i ends where message i + 1 begins",
        )
