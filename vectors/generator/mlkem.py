"""ML-KEM-768 encapsulation with a given message (FIPS 203, algorithms 14 and 17).

``cryptography`` draws the message itself, and vectors must be the same in every run.  This is
written from the standard for them alone: it is slow, and its time depends on what it computes.
"""

import hashlib

_Q = 3329
_N = 256
_K = 3
_ETA = 2
_DU, _DV = 10, 4
_ZETAS = [pow(17, int(f"{i:07b}"[::-1], 2), _Q) for i in range(128)]
_GAMMAS = [pow(17, 2 * int(f"{i:07b}"[::-1], 2) + 1, _Q) for i in range(128)]

MESSAGE_BYTES = 32
PUBLIC_BYTES = 1184

Poly = list[int]


def encapsulate(public: bytes, message: bytes) -> tuple[bytes, bytes]:
    """Return the shared secret and the ciphertext (algorithm 17)."""
    secret_and_coins = hashlib.sha3_512(message + hashlib.sha3_256(public).digest()).digest()
    return secret_and_coins[:32], _encrypt(public, message, secret_and_coins[32:])


def _encrypt(public: bytes, message: bytes, coins: bytes) -> bytes:
    """K-PKE.Encrypt (algorithm 14)."""
    t_hat = [_decode(public[384 * i :][:384], 12) for i in range(_K)]
    seed = public[384 * _K :]
    noise = [_noise(coins, counter) for counter in range(2 * _K + 1)]
    y_hat = [_ntt(poly) for poly in noise[:_K]]
    u = [
        _sum(_inverse(_dot([_uniform(seed, i, j) for j in range(_K)], y_hat)), noise[_K + i])
        for i in range(_K)
    ]
    bits = [bit * ((_Q + 1) // 2) for bit in _decode(message, 1)]
    v = _sum(_sum(_inverse(_dot(t_hat, y_hat)), noise[2 * _K]), bits)
    return b"".join(_encode(_compress(p, _DU), _DU) for p in u) + _encode(_compress(v, _DV), _DV)


def _uniform(seed: bytes, row: int, column: int) -> Poly:
    """Return entry (row, column) of the transposed matrix, by rejection (algorithm 7)."""
    stream = hashlib.shake_128(seed + bytes([row, column])).digest(3 * 1024)
    found: Poly = []
    for place in range(0, len(stream), 3):
        a, b, c = stream[place : place + 3]
        found += [d for d in (a + 256 * (b % 16), b // 16 + 16 * c) if d < _Q]
    return found[:_N]


def _noise(coins: bytes, counter: int) -> Poly:
    """Sample a centred binomial polynomial (algorithm 8)."""
    stream = hashlib.shake_256(coins + bytes([counter])).digest(64 * _ETA)
    bits = _decode(stream, 1)
    quads = [bits[4 * i : 4 * i + 4] for i in range(_N)]
    return [(a + b - c - d) % _Q for a, b, c, d in quads]


def _ntt(poly: Poly) -> Poly:
    """Algorithm 9."""
    values, index, length = list(poly), 1, 128
    while length >= 2:  # noqa: PLR2004 - as in the standard
        for start in range(0, _N, 2 * length):
            zeta = _ZETAS[index]
            index += 1
            for j in range(start, start + length):
                t = zeta * values[j + length] % _Q
                values[j + length], values[j] = (values[j] - t) % _Q, (values[j] + t) % _Q
        length //= 2
    return values


def _inverse(poly: Poly) -> Poly:
    """Algorithm 10."""
    values, index, length = list(poly), 127, 2
    while length <= 128:  # noqa: PLR2004 - as in the standard
        for start in range(0, _N, 2 * length):
            zeta = _ZETAS[index]
            index -= 1
            for j in range(start, start + length):
                t = values[j]
                values[j] = (t + values[j + length]) % _Q
                values[j + length] = zeta * (values[j + length] - t) % _Q
        length *= 2
    return [value * 3303 % _Q for value in values]


def _dot(left: list[Poly], right: list[Poly]) -> Poly:
    """Return the sum of products in the transformed domain (algorithms 11 and 12)."""
    total = [0] * _N
    for f, g in zip(left, right, strict=True):
        for i, gamma in enumerate(_GAMMAS):
            a, b, c, d = f[2 * i], f[2 * i + 1], g[2 * i], g[2 * i + 1]
            total[2 * i] = (total[2 * i] + a * c + b * d * gamma) % _Q
            total[2 * i + 1] = (total[2 * i + 1] + a * d + b * c) % _Q
    return total


def _sum(left: Poly, right: Poly) -> Poly:
    return [(a + b) % _Q for a, b in zip(left, right, strict=True)]


def _compress(poly: Poly, bits: int) -> Poly:
    return [((value << bits) + _Q // 2) // _Q % (1 << bits) for value in poly]


def _encode(poly: Poly, bits: int) -> bytes:
    number = sum(value << bits * place for place, value in enumerate(poly))
    return number.to_bytes(bits * _N // 8, "little")


def _decode(data: bytes, bits: int) -> Poly:
    number = int.from_bytes(data, "little")
    return [number >> bits * i & ((1 << bits) - 1) for i in range(8 * len(data) // bits)]
