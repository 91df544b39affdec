"""Hashes under a label (spec, sections 1 and 2): the ids of studies, vaults and parties."""

from hashlib import sha256

from veiltab.errors import ParameterError

PUBLIC_KEY_BYTES = 32


def labelled_hash(label: str, data: bytes) -> bytes:
    """Return H("veiltab/v1/" ‖ label ‖ 0x00 ‖ data), the form of ids (spec 2, 4, 12.1)."""
    return sha256(b"veiltab/v1/" + label.encode("ascii") + b"\x00" + data).digest()


def party_id(signing_public: bytes, sealing_public: bytes) -> bytes:
    """Return the party id, 32 bytes: a hash of both public keys, so that neither can be swapped.

    The name is not part of it: anybody may call a key anything.
    """
    if len(signing_public) != PUBLIC_KEY_BYTES or len(sealing_public) != PUBLIC_KEY_BYTES:
        raise ParameterError(
            f"public keys of {len(signing_public)} and {len(sealing_public)} bytes are no party",
            hint=f"give the {PUBLIC_KEY_BYTES} raw bytes of each, not their hexadecimal text",
        )
    return labelled_hash("identity", signing_public + sealing_public)
