"""Keys from secrets (spec, sections 1, 4.2, 5 and 6.1): HKDF-SHA256 under fixed labels."""

from collections.abc import Sequence

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
    return _hkdf(exact_bytes(secret, SECRET_BYTES, "a secret"), scope, info)


def secret_commitment(secret: bytes) -> bytes:
    """Return what the contract says of the proposer's contribution (spec, section 4).

    Whoever receives it checks it.  A vault has one secret, to which it commits in the same way.
    """
    exact_bytes(secret, SECRET_BYTES, "a secret")
    return labelled_hash("secret", secret)


def study_secret(contributions: Sequence[bytes], study: bytes) -> bytes:
    """Return the secret to which every curator contributes, in the contract's order (section 4.2).

    One contribution that is random is enough, whoever's generator is bad.
    """
    for contribution in contributions:
        exact_bytes(contribution, SECRET_BYTES, "a contribution to the study secret")
    return _hkdf(b"".join(contributions), study, b"veiltab/v1/study-secret")


def token_key(secret: bytes, scope: bytes) -> bytes:
    """Return the key of the linkage tokens, which all curators of the scope share (section 5)."""
    return derive_key(secret, scope, b"veiltab/v1/token")


def alignment_key(secret: bytes, study: bytes) -> bytes:
    """Return the key of the alignment digest, which the curators publish (section 5.1)."""
    return derive_key(secret, study, b"veiltab/v1/alignment")


def table_digest_key(secret: bytes, scope: bytes) -> bytes:
    """Return the key of the digest by which a curator tells its own table from a changed one."""
    return derive_key(secret, scope, b"veiltab/v1/table-digest")


def decoy_number_key(secret: bytes, study: bytes, table: int = 0) -> bytes:
    """Return the key from which all curators draw how many decoys there are (section 5.2)."""
    return derive_key(secret, study, _numbered(b"veiltab/v1/decoys", table))


def decoy_token_key(secret: bytes, study: bytes, table: int = 0) -> bytes:
    """Return the key from which all curators draw the decoys' tokens (section 5.2)."""
    return derive_key(secret, study, _numbered(b"veiltab/v1/decoy-tokens", table))


def decoy_digest_key(secret: bytes, study: bytes) -> bytes:
    """Return the key of the digest of all decoys, which the curators publish (section 5.2)."""
    return derive_key(secret, study, b"veiltab/v1/decoy-digest")


def pad_key(upload_secret: bytes, scope: bytes, upload_id: bytes, attribute_index: int) -> bytes:
    """Return the stream pad key of one attribute of one upload (section 6.1).

    The upload id makes the key new for every preparation: a pad is never used for two plaintexts.
    ``attribute_index`` counts from 0 in the curator's own list.
    """
    exact_bytes(upload_id, UPLOAD_ID_BYTES, "an upload id")
    label = _numbered(b"veiltab/v1/pad", attribute_index, upload_id)
    return derive_key(upload_secret, scope, label)


def _numbered(label: bytes, number: int, before: bytes = b"") -> bytes:
    """Return a label with a zero byte and a number, and other bytes between them."""
    if not 0 <= number < 1 << 32:
        raise ParameterError(
            f"there is no attribute or table number {number}",
            hint="attributes of a curator and tables of a study count from 0",
        )
    return label + b"\x00" + before + number.to_bytes(4, "big")


def _hkdf(material: bytes, scope: bytes, info: bytes) -> bytes:
    salt = exact_bytes(scope, SCOPE_BYTES, "a study or vault id")
    return HKDF(algorithm=SHA256(), length=DERIVED_BYTES, salt=salt, info=info).derive(material)


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
