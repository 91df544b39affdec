"""Lengths of keys, secrets and ids: checked where they are used, never guessed."""

from veiltab.errors import ParameterError


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
