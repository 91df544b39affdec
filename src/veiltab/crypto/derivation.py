"""Keys from secrets (spec, sections 1, 4.2, 5 and 6.1): HKDF-SHA256 under fixed labels."""

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from veiltab.core.hashing import labelled_hash
from veiltab.errors import ParameterError

SECRET_BYTES = 32
SCOPE_BYTES = 32
UPLOAD_ID_BYTES = 16
DERIVED_BYTES = 32


def derive_key(secret: bytes, scope: bytes, info: bytes) -> bytes:
    """Return the spec's KDF(secret, scope, info), 32 bytes."""
    salt = exact_bytes(scope, SCOPE_BYTES, "a study or vault id")
    derive = HKDF(algorithm=SHA256(), length=DERIVED_BYTES, salt=salt, info=info)
    return derive.derive(exact_bytes(secret, SECRET_BYTES, "a secret"))


def secret_commitment(secret: bytes) -> bytes:
    """Return what the contract says of the study secret (spec, section 4).

    Every curator who receives the secret checks it, so that all hold the same one.
    """
    exact_bytes(secret, SECRET_BYTES, "a study secret")
    return labelled_hash("secret", secret)


def token_key(secret: bytes, scope: bytes) -> bytes:
    """Return the key of the linkage tokens, which all curators of the scope share (section 5)."""
    return derive_key(secret, scope, b"veiltab/v1/token")


def alignment_key(secret: bytes, study: bytes) -> bytes:
    """Return the key of the alignment digest, which the curators publish (section 5.1)."""
    return derive_key(secret, study, b"veiltab/v1/alignment")


def pad_key(upload_secret: bytes, scope: bytes, upload_id: bytes, attribute_index: int) -> bytes:
    """Return the stream pad key of one attribute of one upload (section 6.1).

    The upload id makes the key new for every preparation: a pad is never used for two plaintexts.
    ``attribute_index`` counts from 0 in the curator's own list.
    """
    exact_bytes(upload_id, UPLOAD_ID_BYTES, "an upload id")
    if not 0 <= attribute_index < 1 << 32:
        raise ParameterError(
            f"there is no attribute number {attribute_index}",
            hint="attributes count from 0 in the curator's list",
        )
    label = b"veiltab/v1/pad\x00" + upload_id + attribute_index.to_bytes(4, "big")
    return derive_key(upload_secret, scope, label)


def exact_bytes(value: bytes, count: int, what: str) -> bytes:
    """Return ``value`` if it has ``count`` bytes, and refuse it otherwise, without showing it.

    A key derivation takes secrets of any length; an empty one would go unnoticed there.
    """
    if len(value) != count:
        raise ParameterError(
            f"{what} has {len(value)} bytes, not {count}",
            hint="give its raw bytes, not their hexadecimal text",
        )
    return bytes(value)
