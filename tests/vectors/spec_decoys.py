"""The study secret and the decoys (sections 4.2 and 5.2): written from the specification alone.

Plain integers, one decoy after the other.
"""

import hmac
from collections.abc import Iterator, Sequence
from math import prod
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.cmac import CMAC

from tests.vectors.spec_bytes import canonical

BLOCK_PATTERNS = 65_536

Decoy = tuple[int, bytes]
"""A pattern and a token."""


def kdf(material: bytes, salt: bytes, info: bytes) -> bytes:
    """HKDF-SHA256 with 32 bytes of output (RFC 5869)."""
    extracted = hmac.digest(salt, material, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")


def study_secret(contributions: Sequence[bytes], study: bytes) -> bytes:
    """Put the secret of a study together from what the curators contribute, in their order."""
    return kdf(b"".join(contributions), study, b"veiltab/v1/study-secret")


def keystream(key: bytes) -> Iterator[bytes]:
    """Yield the blocks of AES-256-CTR from counter 0 on."""
    stream = Cipher(AES256(key), CTR(bytes(16))).encryptor()
    while True:
        many = stream.update(bytes(16 * 64))
        yield from (many[start : start + 16] for start in range(0, len(many), 16))


def words(key: bytes) -> Iterator[int]:
    """Yield the 64-bit words of a keystream, little-endian."""
    for block in keystream(key):
        yield int.from_bytes(block[:8], "little")
        yield int.from_bytes(block[8:], "little")


def numbers(law: dict[str, Any], patterns: int, key: bytes) -> list[int]:
    """Draw how many decoys each pattern gets, block by block."""
    draws, found = words(key), []
    for start in range(0, patterns, BLOCK_PATTERNS):
        count = min(BLOCK_PATTERNS, patterns - start)
        found += _by_table(law, count, draws) if law["law"] == "table" else []
        found += _geometric(law, count, draws) if law["law"] == "geometric" else []
    return found


def _by_table(law: dict[str, Any], count: int, draws: Iterator[int]) -> list[int]:
    weights = [int(weight) for weight in law["weights"]]
    sums = [sum(weights[: place + 1]) for place in range(len(weights))]
    found = []
    for _ in range(count):
        word = next(draws)
        found.append(sum(each <= word for each in sums))
    return found


def _geometric(law: dict[str, Any], count: int, draws: Iterator[int]) -> list[int]:
    """Throw rounds of coins: whoever wins gets one more, and throws again in the next round."""
    threshold, found = int(law["threshold"]), [0] * count
    throwing = list(range(count))
    while throwing:
        throwing = [pattern for pattern in throwing if next(draws) < threshold]
        for pattern in throwing:
            found[pattern] += 1
    return found


def tokens(threshold: int, key: bytes) -> Iterator[bytes]:
    """Yield tokens whose first half is below the coin's threshold."""
    bits = (threshold - 1).bit_length()
    for block in keystream(key):
        high = int.from_bytes(block[:8], "big") >> (64 - bits)
        if high < threshold:
            yield high.to_bytes(8, "big") + block[8:]


def pattern_count(cells: Sequence[int], *, matched: bool) -> int:
    """Return how many patterns there are."""
    return prod(size + 1 for size in cells) - 1 if matched else prod(cells)


def digits(pattern: int, cells: Sequence[int], *, matched: bool) -> list[int]:
    """Return each curator's cell in a pattern; where it is absent, the number of its cells."""
    found = []
    for size in reversed(cells):
        pattern, digit = divmod(pattern, size + matched)
        found.append(digit)
    return found[::-1]


def decoys(
    secret: bytes, study: bytes, mechanism: dict[str, Any], patterns: int, table: int = 0
) -> list[Decoy]:
    """Invent all decoys of a study, in the order of the patterns."""
    number = b"\0" + table.to_bytes(4, "big")
    drawn = numbers(
        mechanism["decoys"], patterns, kdf(secret, study, b"veiltab/v1/decoys" + number)
    )
    key = kdf(secret, study, b"veiltab/v1/decoy-tokens" + number)
    source = tokens(int(mechanism["coin_threshold"]), key)
    return [(pattern, next(source)) for pattern, count in enumerate(drawn) for _ in range(count)]


def respondent_token(secret: bytes, study: bytes, message: bytes) -> bytes:
    """Return a respondent's token (section 5)."""
    mac = CMAC(AES256(kdf(secret, study, b"veiltab/v1/token")))
    mac.update(message)
    return mac.finalize()


def takes_part(token: bytes, mechanism: dict[str, Any]) -> bool:
    """Tell whether a respondent takes part: by the value of its token, and nothing else."""
    return int.from_bytes(token[:8], "big") < int(mechanism["coin_threshold"])


def alignment_digest(secret: bytes, study: bytes, tokens: Sequence[bytes]) -> bytes:
    """Return the digest of a curator's respondents (section 5.1)."""
    data = len(tokens).to_bytes(8, "big") + b"".join(sorted(tokens))
    return hmac.digest(kdf(secret, study, b"veiltab/v1/alignment"), data, "sha256")


def decoy_digest(
    secret: bytes, study: bytes, mechanism: dict[str, Any], invented: Sequence[Decoy]
) -> bytes:
    """Return what curators compare before they upload."""
    parts = [canonical(mechanism).encode(), len(invented).to_bytes(8, "big")]
    parts += [pattern.to_bytes(8, "big") + token for pattern, token in invented]
    return hmac.digest(kdf(secret, study, b"veiltab/v1/decoy-digest"), b"".join(parts), "sha256")
