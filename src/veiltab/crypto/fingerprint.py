"""What people compare of a party (spec, section 2); the server can compute it without any key."""

from veiltab.crypto.derivation import exact_bytes

PARTY_ID_BYTES = 32
_DIGITS = 30
_GROUP = 5


def fingerprint(party_id: bytes) -> str:
    """Return what people compare by telephone: thirty digits of the party id, in groups of five."""
    head = exact_bytes(party_id, PARTY_ID_BYTES, "a party id")[:16]
    digits = f"{int.from_bytes(head, 'big') % 10**_DIGITS:0{_DIGITS}}"
    return " ".join(digits[start : start + _GROUP] for start in range(0, _DIGITS, _GROUP))
