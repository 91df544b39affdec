"""Who a party is (spec, section 2): two keys, an id made of both, and a fingerprint for people."""

from dataclasses import dataclass
from hashlib import sha256

from veiltab.core.entropy import Entropy
from veiltab.core.schema import check_text
from veiltab.crypto import sealing, signing
from veiltab.crypto.derivation import exact_bytes
from veiltab.crypto.sealing import SealingKey
from veiltab.crypto.signing import SigningKey
from veiltab.errors import ParameterError, SchemaError

PARTY_ID_BYTES = 32
MAX_NAME_LENGTH = 1_000
_FINGERPRINT_DIGITS = 30
_GROUP_DIGITS = 5


def party_id(signing_public: bytes, sealing_public: bytes) -> bytes:
    """Return the party id, 32 bytes: a hash of both public keys, so that neither can be swapped.

    The name is not part of it: anybody may call a key anything.
    """
    signing_public = exact_bytes(signing_public, signing.PUBLIC_BYTES, "a public signing key")
    sealing_public = exact_bytes(sealing_public, sealing.KEY_BYTES, "a public sealing key")
    return sha256(b"veiltab/v1/identity\x00" + signing_public + sealing_public).digest()


def fingerprint(party_id: bytes) -> str:
    """Return what people compare by telephone: thirty digits of the party id, in groups of five."""
    head = exact_bytes(party_id, PARTY_ID_BYTES, "a party id")[:16]
    number = int.from_bytes(head, "big") % 10**_FINGERPRINT_DIGITS
    digits = f"{number:0{_FINGERPRINT_DIGITS}}"
    starts = range(0, _FINGERPRINT_DIGITS, _GROUP_DIGITS)
    return " ".join(digits[start : start + _GROUP_DIGITS] for start in starts)


@dataclass(frozen=True, slots=True, eq=False)
class PrivateIdentity:
    """A party's name and its two private keys; printing it shows no secret."""

    name: str
    signing: SigningKey
    sealing: SealingKey

    def __post_init__(self) -> None:
        """Refuse a name that no message could carry (spec, section 1.1)."""
        try:
            check_text(self.name, "the party's name")
        except SchemaError as error:
            raise ParameterError(error.message, hint=error.hint) from error
        if len(self.name) > MAX_NAME_LENGTH:
            raise ParameterError(
                f"the party's name has {len(self.name):,} characters",
                hint=f"use at most {MAX_NAME_LENGTH:,}",
            )

    @classmethod
    def create(cls, name: str, entropy: Entropy) -> "PrivateIdentity":
        """Draw both keys of a new party."""
        return cls(name, SigningKey.create(entropy), SealingKey.create(entropy))

    @property
    def party_id(self) -> bytes:
        """The party id, 32 bytes."""
        return party_id(self.signing.public, self.sealing.public)

    def __repr__(self) -> str:
        """Show what everybody may know: the name and the fingerprint."""
        return f"PrivateIdentity(name={self.name!r}, fingerprint={fingerprint(self.party_id)!r})"
