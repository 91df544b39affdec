"""Keys from secrets: the labels of the specification, written out a second time."""

import hmac
from hashlib import sha256
from itertools import combinations

import pytest

from veiltab.crypto.derivation import (
    alignment_key,
    decoy_digest_key,
    decoy_number_key,
    decoy_token_key,
    derive_key,
    pad_key,
    secret_commitment,
    study_secret,
    table_digest_key,
    token_key,
)
from veiltab.errors import ParameterError

SECRET = bytes(range(32))
SCOPE = bytes(range(32, 64))
UPLOAD = bytes(range(64, 80))


def test_the_kdf_is_hkdf_sha256() -> None:
    """RFC 5869, sections 2.2 and 2.3, for one block of output."""
    assert derive_key(SECRET, SCOPE, b"any info") == _hkdf(SECRET, SCOPE, b"any info")


def test_the_labels_are_those_of_the_specification() -> None:
    """Sections 4, 5, 5.1 and 6.1, byte for byte."""
    assert token_key(SECRET, SCOPE) == _hkdf(SECRET, SCOPE, b"veiltab/v1/token")
    assert alignment_key(SECRET, SCOPE) == _hkdf(SECRET, SCOPE, b"veiltab/v1/alignment")
    info = b"veiltab/v1/pad" + b"\x00" + UPLOAD + b"\x00\x00\x01\x02"
    assert pad_key(SECRET, SCOPE, UPLOAD, 258) == _hkdf(SECRET, SCOPE, info)
    for key, label in ((decoy_number_key, b"decoys"), (decoy_token_key, b"decoy-tokens")):
        info = b"veiltab/v1/" + label + b"\x00" + b"\x00\x00\x01\x02"
        assert key(SECRET, SCOPE, 258) == _hkdf(SECRET, SCOPE, info)
        assert key(SECRET, SCOPE) == key(SECRET, SCOPE, 0)
    assert decoy_digest_key(SECRET, SCOPE) == _hkdf(SECRET, SCOPE, b"veiltab/v1/decoy-digest")
    both = study_secret([SECRET, UPLOAD * 2], SCOPE)
    assert both == _hkdf(SECRET + UPLOAD * 2, SCOPE, b"veiltab/v1/study-secret")
    assert secret_commitment(SECRET) == sha256(b"veiltab/v1/secret" + b"\x00" + SECRET).digest()


def test_every_input_separates_keys() -> None:
    """Another secret, study, upload, attribute or use gives another key; no two of them agree."""
    other = bytes(32)
    keys = [
        token_key(SECRET, SCOPE),
        token_key(other, SCOPE),
        token_key(SECRET, other),
        alignment_key(SECRET, SCOPE),
        pad_key(SECRET, SCOPE, UPLOAD, 0),
        pad_key(SECRET, SCOPE, UPLOAD, 1),
        pad_key(SECRET, SCOPE, bytes(16), 0),
        pad_key(SECRET, other, UPLOAD, 0),
        pad_key(other, SCOPE, UPLOAD, 0),
        secret_commitment(SECRET),
        secret_commitment(other),
        decoy_number_key(SECRET, SCOPE),
        decoy_number_key(SECRET, SCOPE, 1),
        decoy_token_key(SECRET, SCOPE),
        decoy_token_key(SECRET, SCOPE, 1),
        decoy_digest_key(SECRET, SCOPE),
        table_digest_key(SECRET, SCOPE),
        study_secret([SECRET], SCOPE),
        study_secret([SECRET, other], SCOPE),
        study_secret([other, SECRET], SCOPE),
        study_secret([SECRET], other),
    ]
    assert all(len(key) == 32 for key in keys)
    assert all(first != second for first, second in combinations(keys, 2))


def test_wrong_lengths_are_refused_and_not_shown() -> None:
    """An empty secret, or one in hexadecimal, would otherwise give a key all the same."""
    hexadecimal = SECRET.hex().encode()
    for secret, scope, upload in [
        (b"", SCOPE, UPLOAD),
        (hexadecimal, SCOPE, UPLOAD),
        (SECRET, b"", UPLOAD),
        (SECRET, SCOPE[:-1], UPLOAD),
        (SECRET, SCOPE, UPLOAD[:-1]),
    ]:
        with pytest.raises(ParameterError) as caught:
            pad_key(secret, scope, upload, 0)
        assert SECRET.hex() not in f"{caught.value} {caught.value.hint}"
    with pytest.raises(ParameterError):
        secret_commitment(hexadecimal)
    for contributions in ([b""], [SECRET, b""], [SECRET, SECRET[:-1]], [hexadecimal]):
        with pytest.raises(ParameterError):
            study_secret(contributions, SCOPE)


def test_attribute_numbers_fit_in_four_bytes() -> None:
    """Outside of them there is no such attribute."""
    assert pad_key(SECRET, SCOPE, UPLOAD, 2**32 - 1)
    for index in (-1, 2**32):
        with pytest.raises(ParameterError):
            pad_key(SECRET, SCOPE, UPLOAD, index)


def _hkdf(secret: bytes, salt: bytes, info: bytes) -> bytes:
    extracted = hmac.digest(salt, secret, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")
