"""Who a party is (spec, section 2): two keys, an id made of both, and a fingerprint for people.

The id is that of the first pair of keys, and stays when newer pairs take its place.  Section 2.1
writes a private identity as bytes, in the clear or locked by a passphrase.  Errors name the key
file and the field, never a value: they end up in logs.
"""

import base64
import contextlib
import json
import re
from dataclasses import dataclass

import rfc8785
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from veiltab.core import hashing
from veiltab.core.entropy import Entropy, random_bytes
from veiltab.core.schema import check_text
from veiltab.crypto.fingerprint import fingerprint
from veiltab.crypto.sealing import SECRET_BYTES, SealingKey
from veiltab.crypto.signing import SEED_BYTES, SigningKey
from veiltab.errors import KeyFileError, ParameterError, PassphraseError, SchemaError, SealError

__all__ = ["KeyPair", "PrivateIdentity", "dump_identity", "fingerprint", "parse_identity"]

MAX_NAME_LENGTH = 1_000

VERSION = 1
PLAIN = "identity"
LOCKED = "locked-identity"
FIELDS = {
    PLAIN: {"keys", "kind", "name", "version"},
    LOCKED: {"kind", "name", "nonce", "salt", "sealed", "version"},
}
"""The two kinds of key files, and their fields."""

SCRYPT_COST = 1 << 17
"""scrypt's N, fixed by the spec: about 0.4 s and 128 MiB for each guess.  Tests lower it."""

SHORTEST_PASSPHRASE = 8
"""In characters; each guess costs an attacker about 0.4 s."""

NONCE_BYTES = 12
SALT_BYTES = 16
MAX_KEY_FILE_BYTES = 1 << 15
"""No identity takes more bytes: a name has at most 1,000 characters, and there are 65 pairs."""

_TAG_BYTES = 16
_AT_BYTES = 8
_PAIR_BYTES = _AT_BYTES + SEED_BYTES + SECRET_BYTES
_PAIR_FIELDS = {"at", "sealing_key", "signing_key"}
_LATEST = 2**53 - 1


@dataclass(frozen=True, slots=True, eq=False)
class KeyPair:
    """Two private keys, and when they took the place of those before: 0 for the first ones."""

    signing: SigningKey
    sealing: SealingKey
    at: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PrivateIdentity:
    """A party's name and its private keys; printing it shows no secret.

    ``signing`` and ``sealing`` are the newest keys.  ``earlier`` are those that they replaced, the
    first ones first: what was sealed to them can still be opened.
    """

    name: str
    signing: SigningKey
    sealing: SealingKey
    at: int = 0
    earlier: tuple[KeyPair, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a name that no message could carry (spec, section 1.1)."""
        if len(self.earlier) > hashing.MAX_ROTATIONS:
            raise ParameterError(
                f"the keys of {self.name!r} were replaced {hashing.MAX_ROTATIONS} times already",
                hint="make a new identity, and register it",
            )
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
    def pairs(self) -> tuple[KeyPair, ...]:
        """All pairs of keys, the newest last."""
        return (*self.earlier, KeyPair(self.signing, self.sealing, self.at))

    @property
    def party_id(self) -> bytes:
        """The hash of the first public keys, by which messages refer to the party (section 2)."""
        first = self.pairs[0]
        return hashing.party_id(first.signing.public, first.sealing.public)

    def with_new_keys(self, entropy: Entropy, at: int) -> "PrivateIdentity":
        """Draw another pair of keys, which takes the place of the newest at a time in seconds."""
        signing, sealing = SigningKey.create(entropy), SealingKey.create(entropy)
        return PrivateIdentity(self.name, signing, sealing, at, self.pairs)

    def open(self, sealed: bytes, purpose: str, context: bytes) -> bytes:
        """Open what was sealed to this party: to its newest key, or to one before it."""
        first, *later = self.pairs
        for pair in reversed(later):
            with contextlib.suppress(SealError):
                return pair.sealing.open(sealed, purpose, context)
        return first.sealing.open(sealed, purpose, context)

    def __repr__(self) -> str:
        """Show what everybody may know: the name and the fingerprint."""
        return f"PrivateIdentity(name={self.name!r}, fingerprint={fingerprint(self.party_id)!r})"


def dump_identity(identity: PrivateIdentity, passphrase: str | None, entropy: Entropy) -> bytes:
    """Return the content of a key file; with a passphrase, all keys are encrypted under it.

    A passphrase that can be guessed at once is refused.
    """
    fields: dict[str, object] = {"name": identity.name, "version": VERSION}
    if passphrase is None:
        fields["kind"] = PLAIN
        fields["keys"] = [
            {
                "at": pair.at,
                "sealing_key": pair.sealing.secret_bytes().hex(),
                "signing_key": pair.signing.secret_bytes().hex(),
            }
            for pair in identity.pairs
        ]
    else:
        check_passphrase(passphrase)
        fields["kind"] = LOCKED
        fields.update(_lock(identity, passphrase, entropy))
    return rfc8785.dumps(fields)  # type: ignore[arg-type]


def check_passphrase(passphrase: str) -> None:
    """Refuse a passphrase that is short, or the same character again and again."""
    if len(passphrase) < SHORTEST_PASSPHRASE or len(set(passphrase)) == 1:
        raise KeyFileError(
            f"the passphrase has fewer than {SHORTEST_PASSPHRASE} characters, or is one character"
            " repeated",
            hint="take several words that have nothing to do with each other",
        )


def parse_identity(content: bytes, passphrase: str | None, where: str) -> PrivateIdentity:
    """Read the content of a key file; ``where`` is what errors call the file.

    Every byte that differs from what :func:`dump_identity` would have written is refused.  A
    passphrase for a file that is not locked is ignored.
    """
    fields = _KeyFile(content, where)
    pairs = _unlock(fields, passphrase) if fields.kind == LOCKED else fields.pairs()
    times = [pair.at for pair in pairs]
    if times[0] != 0 or times != sorted(times):
        raise fields.malformed("its keys are not in the order of their times")
    *earlier, newest = pairs
    try:
        return PrivateIdentity(
            fields.text("name"), newest.signing, newest.sealing, newest.at, tuple(earlier)
        )
    except ParameterError as error:
        raise fields.malformed("its name is not usable, or it has too many keys") from error


def _lock(identity: PrivateIdentity, passphrase: str, entropy: Entropy) -> dict[str, str]:
    """Encrypt all keys; the salt is fresh, so a key meets one nonce only."""
    salt, nonce = random_bytes(SALT_BYTES, entropy), random_bytes(NONCE_BYTES, entropy)
    secrets = b"".join(
        pair.at.to_bytes(_AT_BYTES, "big")
        + pair.signing.secret_bytes()
        + pair.sealing.secret_bytes()
        for pair in identity.pairs
    )
    cipher = AESGCM(_stretch(passphrase, salt))
    sealed = cipher.encrypt(nonce, secrets, _associated(identity.name))
    return {
        "nonce": nonce.hex(),
        "salt": salt.hex(),
        "sealed": base64.b64encode(sealed).decode(),
    }


def _unlock(fields: "_KeyFile", passphrase: str | None) -> list[KeyPair]:
    """Decrypt u64(at) ‖ signing_key ‖ sealing_key of every pair."""
    salt = fields.hexadecimal("salt", SALT_BYTES)
    nonce = fields.hexadecimal("nonce", NONCE_BYTES)
    sealed = fields.base64("sealed", _PAIR_BYTES, _TAG_BYTES)
    associated = _associated(fields.text("name"))
    if passphrase is None:
        raise KeyFileError(
            f"the key file {fields.where} is locked",
            hint="give the passphrase that it was made with",
        )
    try:
        secrets = AESGCM(_stretch(passphrase, salt)).decrypt(nonce, sealed, associated)
    except InvalidTag as error:
        raise PassphraseError(
            f"the key file {fields.where} does not unlock",
            hint="check the passphrase; if it is right, the file was changed: restore a copy",
        ) from error
    starts = range(0, len(secrets), _PAIR_BYTES)
    return [_pair(secrets[start : start + _PAIR_BYTES]) for start in starts]


def _pair(secrets: bytes) -> KeyPair:
    at, keys = int.from_bytes(secrets[:_AT_BYTES], "big"), secrets[_AT_BYTES:]
    return KeyPair(SigningKey(keys[:SEED_BYTES]), SealingKey(keys[SEED_BYTES:]), at)


def _stretch(passphrase: str, salt: bytes) -> bytes:
    encoded = passphrase.encode(errors="replace")
    if not encoded or encoded.decode() != passphrase:
        raise KeyFileError(
            "the passphrase is empty or is not text",
            hint="give one in UTF-8, or none at all for a key file that is not locked",
        )
    return Scrypt(salt=salt, length=32, n=SCRYPT_COST, r=8, p=1).derive(encoded)


def _associated(name: str) -> bytes:
    return b"veiltab/v1/keyfile\x00" + name.encode()


class _KeyFile:
    """The fields of a canonical message of a known kind and version (spec, section 1.1)."""

    def __init__(self, content: bytes, where: str) -> None:
        self.where = where
        fields = _canonical_object(content)
        if fields is None:
            raise self.malformed("it is not canonical JSON")
        kind, version = fields.get("kind"), fields.get("version")
        if not isinstance(kind, str) or kind not in FIELDS:
            raise self.malformed("it is of another kind")
        if type(version) is not int or version != VERSION:  # True == 1 in Python
            raise KeyFileError(
                f"the key file {where} is of another version", hint="use a newer veiltab to read it"
            )
        if set(fields) != FIELDS[kind]:
            raise self.malformed("fields are missing or unknown")
        self.kind, self._fields = kind, fields

    def text(self, name: str) -> str:
        value = self._fields[name]
        if not isinstance(value, str):
            raise self.malformed(f"its {name} is not text")
        return value

    def hexadecimal(self, name: str, count: int) -> bytes:
        return self._digits(self._fields[name], name, count)

    def pairs(self) -> list[KeyPair]:
        """Read the pairs of a file that is not locked."""
        keys = self._fields["keys"]
        if not isinstance(keys, list) or not keys:
            raise self.malformed("its keys are not a list")
        pairs = []
        for pair in keys:
            if not isinstance(pair, dict) or set(pair) != _PAIR_FIELDS:
                raise self.malformed("fields of its keys are missing or unknown")
            at = pair["at"]
            if type(at) is not int or not 0 <= at <= _LATEST:
                raise self.malformed("the time of a key is not a number of seconds")
            signing = self._digits(pair["signing_key"], "signing_key", SEED_BYTES)
            sealing = self._digits(pair["sealing_key"], "sealing_key", SECRET_BYTES)
            pairs.append(KeyPair(SigningKey(signing), SealingKey(sealing), at))
        return pairs

    def _digits(self, value: object, name: str, count: int) -> bytes:
        if not isinstance(value, str) or not re.fullmatch(f"[0-9a-f]{{{2 * count}}}", value):
            raise self.malformed(f"its {name} is not {2 * count} lowercase hexadecimal digits")
        return bytes.fromhex(value)

    def base64(self, name: str, step: int, extra: int) -> bytes:
        """Decode base64 of some steps and an extra, in its one spelling: no stray bits."""
        value = self.text(name)
        decoded = b""
        with contextlib.suppress(ValueError):
            decoded = base64.b64decode(value, validate=True)
        whole = len(decoded) > extra and (len(decoded) - extra) % step == 0
        if not whole or base64.b64encode(decoded).decode() != value:
            raise self.malformed(f"its {name} is not the base64 of some {step} bytes and {extra}")
        return decoded

    def malformed(self, why: str) -> KeyFileError:
        return KeyFileError(
            f"{self.where} is not a key file of veiltab: {why}",
            hint="check the path; a key file must not be edited, so restore a copy",
        )


def _canonical_object(content: bytes) -> dict[str, object] | None:
    """Parse without letting an exception escape: those of ``json`` hold the whole text."""
    if len(content) <= MAX_KEY_FILE_BYTES:
        with contextlib.suppress(ValueError, RecursionError):
            parsed = json.loads(content.decode())
            if isinstance(parsed, dict) and rfc8785.dumps(parsed) == content:
                return parsed
    return None
