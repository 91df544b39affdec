"""Fingerprints as people type them: thirty digits, with spaces, hyphens or dots between them."""

import re

from veiltab.crypto.identity import fingerprint
from veiltab.errors import MismatchError, ParameterError, ServerChangedError
from veiltab.wire.contract import PublicIdentity

_FINGERPRINT = re.compile("[0-9]{30}")


def check_digits(expected: str) -> None:
    """Refuse what cannot be a fingerprint, before anybody is asked."""
    if not _FINGERPRINT.fullmatch(_digits(expected)):
        raise ParameterError(
            f"{expected!r} is not a fingerprint",
            hint="it has thirty digits, such as 12345 67890 12345 67890 12345 67890; ask the party"
            " whose it is",
        )


def same_digits(party_id: bytes, digits: str) -> bool:
    """Tell whether thirty digits, however they are grouped, are a party's fingerprint."""
    check_digits(digits)
    return _digits(digits) == _digits(fingerprint(party_id))


def _digits(typed: str) -> str:
    return re.sub(r"[\s.-]", "", typed)


def check_same_fingerprint(identity: PublicIdentity, digits: str) -> None:
    """Refuse a party whose fingerprint is not the one that somebody was told."""
    if not same_digits(identity.party_id, digits):
        raise MismatchError(
            f"{identity.name!r} has the fingerprint {fingerprint(identity.party_id)}, not {digits}",
            hint="if nobody has mistyped it, this is not the party that you have asked; nothing was"
            " changed",
        )


def check_same_server(url: str, shown: PublicIdentity, trusted: PublicIdentity) -> None:
    """Refuse a server that answers with another identity than the one that is pinned."""
    if shown.party_id != trusted.party_id:
        raise ServerChangedError(
            f"THE SERVER HAS CHANGED: {url} is not the server that this home trusts."
            f"  It shows the fingerprint {fingerprint(shown.party_id)}, and {trusted.name!r},"
            f" which is known here, has {fingerprint(trusted.party_id)}",
            hint="nothing was sent: somebody may stand between you and the server; ask its operator"
            " by telephone, and forget the old server only if they confirm the new fingerprint",
        )
