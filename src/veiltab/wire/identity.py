"""Public identities: how parties are named in messages (spec 2)."""

from veiltab.wire.fields import TEXT, Part, hexadecimal, part, wired
from veiltab.wire.signed import KEY_BYTES, labelled_hash

PARTY_ID = hexadecimal(32)
"""The codec of a party id."""


@part
class PublicIdentity(Part):
    """A party's name and its two public keys; the name is for people and proves nothing."""

    name: str = wired(TEXT)
    signing_key: bytes = wired(hexadecimal(KEY_BYTES))
    sealing_key: bytes = wired(hexadecimal(KEY_BYTES))

    @property
    def party_id(self) -> bytes:
        """The hash of both keys, by which messages refer to the party (spec 2)."""
        return labelled_hash("identity", self.signing_key + self.sealing_key)
