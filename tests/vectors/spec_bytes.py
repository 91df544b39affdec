"""Bytes, as ``docs/spec/protocol-v1.md`` fixes them: written from that document alone.

Nothing here comes from the package; plain integers, the standard library and ``cryptography``.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cache
from typing import Any, NoReturn

from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.mlkem import MLKEM768PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import ECB
from cryptography.hazmat.primitives.hpke import (
    AEAD,
    KDF,
    KEM,
    MLKEM768X25519PrivateKey,
    Suite,
)

CHUNK_ROWS = 65_536
MAX_MESSAGE = 67_108_864
MAX_WHOLE = 2**53 - 1


class RefusedError(Exception):
    """Something must not be used."""


def require(fact: bool, what: str) -> None:  # noqa: FBT001 - reads as a sentence
    """Refuse what does not hold."""
    if not fact:
        raise RefusedError(what)


# Section 1: canonical JSON, as RFC 8785 has it


def canonical(value: object) -> str:
    """Write a value in its one form."""
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case int():
            require(abs(value) <= MAX_WHOLE, "a whole number is too large")
            return str(value)
        case float():
            return _number(value)
        case str():
            return json.dumps(value, ensure_ascii=False)
        case list():
            return f"[{','.join(map(canonical, value))}]"
        case dict():
            keys = sorted(value, key=lambda key: key.encode("utf-16-be"))
            return f"{{{','.join(f'{canonical(k)}:{canonical(value[k])}' for k in keys)}}}"
    raise RefusedError("this is no JSON")


def _number(value: float) -> str:
    """Write a number as ECMAScript does: the shortest digits that read the same."""
    if value == 0:
        return "0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int)
    shown, size = "".join(map(str, digits)), len(digits)
    point = size + exponent
    if size <= point <= 21:
        text = shown + "0" * (point - size)
    elif 0 < point <= 21:
        text = f"{shown[:point]}.{shown[point:]}"
    elif -6 < point <= 0:
        text = f"0.{'0' * -point}{shown}"
    else:
        rest = f".{shown[1:]}" if size > 1 else ""
        text = f"{shown[0]}{rest}e{'+' if point > 0 else '-'}{abs(point - 1)}"
    return "-" * sign + text


def parse(data: bytes) -> dict[str, Any]:
    """Read a message, in its canonical form alone."""
    require(len(data) <= MAX_MESSAGE, "the message is too long")
    try:
        value = json.loads(data.decode(), parse_constant=_no_constant)
        again = canonical(value).encode()
    except (ValueError, RecursionError) as error:
        raise RefusedError("the message is not JSON") from error
    require(again == data, "the message is not canonical")
    require(isinstance(value, dict), "the message is no object")
    found: dict[str, Any] = value
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(name)


# Sections 1.2 and 2: digests, ids and signatures


def digest(body: object) -> bytes:
    """Return the digest of a signed message."""
    return hashlib.sha256(canonical(body).encode()).digest()


def labelled(label: str, data: bytes) -> bytes:
    """Return the hash under a label."""
    return hashlib.sha256(b"veiltab/v1/" + label.encode() + b"\0" + data).digest()


def party_id(identity: dict[str, Any]) -> str:
    """Return the id of a party, as messages write it."""
    keys = bytes.fromhex(identity["signing_key"] + identity["sealing_key"])
    return labelled("identity", keys).hex()


def fingerprint(party: str) -> str:
    """Return what people compare."""
    digits = f"{int(party[:32], 16) % 10**30:030}"
    return " ".join(digits[start : start + 5] for start in range(0, 30, 5))


def verify(key: bytes, kind: str, body: bytes, signature: bytes) -> None:
    """Refuse a signature that is not the key's on this body."""
    signed = b"veiltab/v1/sign/" + kind.encode() + b"\0" + body
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, signed)
    except (InvalidSignature, ValueError) as error:
        raise RefusedError("a signature is wrong") from error


# Section 3: sealing


def sealing_public(secret: bytes) -> bytes:
    """Return the public key of a seed and a scalar."""
    lattice, curve = _sealing_keys(secret)
    return lattice.public_key().public_bytes_raw() + curve.public_key().public_bytes_raw()


def _sealing_keys(secret: bytes) -> tuple[MLKEM768PrivateKey, X25519PrivateKey]:
    seed, scalar = secret[:64], secret[64:]
    return MLKEM768PrivateKey.from_seed_bytes(seed), X25519PrivateKey.from_private_bytes(scalar)


def unseal(private_key: bytes, sealed: bytes, purpose: str, context: bytes) -> bytes:
    """Open what was sealed to a key."""
    suite = Suite(KEM.MLKEM768_X25519, KDF.HKDF_SHA256, AEAD.AES_256_GCM)
    key = MLKEM768X25519PrivateKey(*_sealing_keys(private_key))
    info = b"veiltab/v1/seal/" + purpose.encode() + b"\0" + context
    try:
        return suite.decrypt(sealed, key, info=info)
    except (InvalidTag, ValueError) as error:
        raise RefusedError("a seal does not open") from error


# Section 6: stream pads


def stream_pads(key: bytes, size: int, rows: Iterable[int]) -> list[int]:
    """Return the pads of rows of the upload, whichever they are."""
    if size == 1:
        return [0 for _ in rows]
    encryptor = Cipher(AES256(key), ECB()).encryptor()  # noqa: S305 - the specification's blocks

    @cache
    def block(spare: int, number: int) -> bytes:
        return encryptor.update(spare.to_bytes(8, "big") + number.to_bytes(8, "big"))

    return [_element(block, size, row) for row in rows]


def _element(block: Callable[[int, int], bytes], size: int, row: int) -> int:
    """Return one element: from its own word, or from the first good one of the word's spares."""
    width = 2 if size <= 256 else 4
    paired = size <= 16
    outcomes = size * size if paired else size
    each = (1 << 8 * width) // outcomes
    number = row // 2 if paired else row
    place = number * width
    word = int.from_bytes(block(0, place // 16)[place % 16 :][:width], "little")
    spare = 0
    while word >= outcomes * each:
        spare += 1
        word = int.from_bytes(block(spare, number)[:width], "little")
    if not paired:
        return word // each
    return word // each // size if row % 2 else word // each % size


# Section 7: columns


@cache
def _digits_per_word(base: int) -> int:
    return max(count for count in range(65) if base**count <= 2**64)


@cache
def _planes(size: int) -> tuple[int, int, int]:
    """Return s and the bases of both planes."""

    def cost(base: int) -> Fraction:
        return Fraction(0) if base == 1 else Fraction(64, _digits_per_word(base))

    splits = [(s, 2**s, -(-size // 2**s)) for s in range(17) if 2**s <= size]
    return min(splits, key=lambda split: (cost(split[1]) + cost(split[2]), split[0]))


def _plane_length(base: int, count: int) -> int:
    if base == 1:
        return 0
    words, rest = divmod(count, _digits_per_word(base))
    largest: int = base**rest - 1
    return 8 * words + (largest.bit_length() + 7) // 8


def packed_length(size: int, count: int) -> int:
    """Return the bytes of a chunk."""
    _, low, high = _planes(size)
    return _plane_length(low, count) + _plane_length(high, count)


def unpack(data: bytes, size: int, count: int) -> list[int]:
    """Read the codes of a chunk."""
    s, low, high = _planes(size)
    require(len(data) == packed_length(size, count), "a chunk has another length")
    border = _plane_length(low, count)
    lower, upper = _digits(data[:border], low, count), _digits(data[border:], high, count)
    codes = [(h << s) + d for d, h in zip(lower, upper, strict=True)]
    require(all(code < size for code in codes), "a code is too large")
    return codes


def _digits(data: bytes, base: int, count: int) -> list[int]:
    if base == 1:
        return [0] * count
    per_word = _digits_per_word(base)
    digits: list[int] = []
    for start in range(0, len(data), 8):
        word = int.from_bytes(data[start : start + 8], "little")
        for _ in range(min(per_word, count - len(digits))):
            word, digit = divmod(word, base)
            digits.append(digit)
        require(word == 0, "a word is too large")
    return digits


def unpack_positions(data: bytes, count: int) -> list[int]:
    """Read the row numbers of a chunk."""
    require(len(data) == 6 * count, "a chunk of positions has another length")
    return [int.from_bytes(data[i : i + 6], "little") for i in range(0, len(data), 6)]


def chunk_sizes(rows: int) -> Sequence[int]:
    """Return how many rows each chunk of a column has."""
    whole, rest = divmod(rows, CHUNK_ROWS)
    return [CHUNK_ROWS] * whole + [rest] * (rest > 0)
