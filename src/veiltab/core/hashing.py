"""Hashes under a label (spec, sections 1 and 2): the ids of studies, vaults and parties."""

from hashlib import sha256

from veiltab.errors import ParameterError

SIGNING_PUBLIC_BYTES = 32
"""An Ed25519 public key."""

SEALING_PUBLIC_BYTES = 1216
"""A public key of ML-KEM-768 (1,184 bytes) ‖ one of X25519 (32 bytes)."""

MAX_ROTATIONS = 64
"""How often a party can replace its keys: every signature carries the way from the first one."""


def labelled_hash(label: str, data: bytes) -> bytes:
    """Return H("veiltab/v1/" ‖ label ‖ 0x00 ‖ data), the form of ids (spec 2, 4, 12.1)."""
    return sha256(b"veiltab/v1/" + label.encode("ascii") + b"\x00" + data).digest()


def party_id(signing_public: bytes, sealing_public: bytes) -> bytes:
    """Return the party id, 32 bytes: a hash of both public keys, so that neither can be swapped.

    The name is not part of it: anybody may call a key anything.
    """
    sizes = len(signing_public), len(sealing_public)
    if sizes != (SIGNING_PUBLIC_BYTES, SEALING_PUBLIC_BYTES):
        raise ParameterError(
            f"public keys of {sizes[0]:,} and {sizes[1]:,} bytes are not those of a party",
            hint=f"give {SIGNING_PUBLIC_BYTES} and {SEALING_PUBLIC_BYTES:,} raw bytes, not their"
            " hexadecimal text",
        )
    return labelled_hash("identity", signing_public + sealing_public)
