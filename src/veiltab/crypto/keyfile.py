"""Key files (spec, section 2.1): a private identity on disk, in the clear or under a passphrase.

A key file is created once and never overwritten: a lost key cannot be made again.  Errors name the
file and the field, never a value: they end up in logs.
"""

import base64
import contextlib
import json
import os
import re
import stat
from pathlib import Path

import rfc8785
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from veiltab.core.entropy import Entropy, random_bytes
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.sealing import KEY_BYTES, SealingKey
from veiltab.crypto.signing import SEED_BYTES, SigningKey
from veiltab.errors import KeyFileError, ParameterError

SCRYPT_COST = 1 << 17
"""scrypt's N, fixed by the spec: about 0.4 s and 128 MiB for each guess.  Tests lower it."""

VERSION = 1
PLAIN = "identity"
LOCKED = "locked-identity"
NONCE_BYTES = 12
SALT_BYTES = 16
LARGEST_FILE = 1 << 14
"""No identity takes more bytes: a name has at most 1,000 characters."""

_FIELDS = {
    PLAIN: {"kind", "name", "sealing_key", "signing_key", "version"},
    LOCKED: {"kind", "name", "nonce", "salt", "sealed", "version"},
}
_UNSAFE_MODE = stat.S_IRWXG | stat.S_IRWXO


def save_identity(
    identity: PrivateIdentity, path: Path, passphrase: str | None, entropy: Entropy
) -> None:
    """Write a new key file of mode 0600; with a passphrase, locked by it.

    The file is created with that mode, so nobody else can open it even for an instant, and
    an existing one is refused.  It is on the disk when this returns.
    """
    fields: dict[str, str | int] = {"name": identity.name, "version": VERSION}
    if passphrase is None:
        fields["kind"] = PLAIN
        fields["sealing_key"] = identity.sealing.secret_bytes().hex()
        fields["signing_key"] = identity.signing.secret_bytes().hex()
    else:
        fields["kind"] = LOCKED
        fields.update(_lock(identity, passphrase, entropy))
    _write_new(path, rfc8785.dumps(fields))


def load_identity(path: Path, passphrase: str | None) -> PrivateIdentity:
    """Read a key file; a passphrase for a file that is not locked is not used.

    Refused are files that others can open, and every byte that differs from what
    :func:`save_identity` would have written.
    """
    fields = _parse(_read(path), path)
    if fields["kind"] == LOCKED:
        secrets = _unlock(fields, passphrase, path)
    else:
        secrets = _hex(fields, "signing_key", SEED_BYTES, path)
        secrets += _hex(fields, "sealing_key", KEY_BYTES, path)
    signing, sealing = SigningKey(secrets[:SEED_BYTES]), SealingKey(secrets[SEED_BYTES:])
    try:
        return PrivateIdentity(_text(fields, "name", path), signing, sealing)
    except ParameterError as error:
        raise _malformed(path, "its name is not usable") from error


def _lock(identity: PrivateIdentity, passphrase: str, entropy: Entropy) -> dict[str, str]:
    """Encrypt both keys; the salt is fresh, so a key meets one nonce only."""
    salt, nonce = random_bytes(SALT_BYTES, entropy), random_bytes(NONCE_BYTES, entropy)
    secrets = identity.signing.secret_bytes() + identity.sealing.secret_bytes()
    cipher = AESGCM(_stretch(passphrase, salt))
    sealed = cipher.encrypt(nonce, secrets, _associated(identity.name))
    return {
        "nonce": nonce.hex(),
        "salt": salt.hex(),
        "sealed": base64.b64encode(sealed).decode(),
    }


def _unlock(fields: dict[str, object], passphrase: str | None, path: Path) -> bytes:
    """Decrypt signing_key ‖ sealing_key."""
    salt = _hex(fields, "salt", SALT_BYTES, path)
    nonce = _hex(fields, "nonce", NONCE_BYTES, path)
    sealed = _base64(fields, "sealed", SEED_BYTES + KEY_BYTES + 16, path)
    associated = _associated(_text(fields, "name", path))
    if passphrase is None:
        raise KeyFileError(
            f"the key file {path} is locked", hint="give the passphrase that it was made with"
        )
    try:
        return AESGCM(_stretch(passphrase, salt)).decrypt(nonce, sealed, associated)
    except InvalidTag as error:
        raise KeyFileError(
            f"the key file {path} does not unlock",
            hint="check the passphrase; if it is right the file was changed: restore a copy",
        ) from error


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


def _write_new(path: Path, content: bytes) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError as error:
        raise KeyFileError(
            f"{path} exists already",
            hint="choose another path, or move the old key away; it cannot be made again",
        ) from error
    except OSError as error:
        raise _cannot_write(path, error) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(descriptor, 0o600)  # whatever the umask took away
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        _sync_directory(path.parent)
    except OSError as error:
        path.unlink(missing_ok=True)  # it is ours: O_EXCL created it
        raise _cannot_write(path, error) from error


def _sync_directory(folder: Path) -> None:
    """Make the new name last, not only the new bytes."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read(path: Path) -> bytes:
    """Return the bytes of a file that its owner alone can open."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            content = b"" if mode & _UNSAFE_MODE else file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise KeyFileError(
            f"cannot read the key file {path}: {error.strerror}",
            hint="check the path, or make a new identity",
        ) from error
    if mode & _UNSAFE_MODE:
        raise KeyFileError(
            f"others can open the key file {path} (mode {mode:04o})",
            hint=f"run: chmod 600 {path}; if others may have read it, make a new identity",
        )
    return content


def _parse(content: bytes, path: Path) -> dict[str, object]:
    """Return the fields of a canonical message of a known kind and version (section 1.1)."""
    fields = _canonical_object(content)
    if fields is None:
        raise _malformed(path, "it is not canonical JSON")
    kind, version = fields.get("kind"), fields.get("version")
    if not isinstance(kind, str) or kind not in _FIELDS:
        raise _malformed(path, "it is of another kind")
    if type(version) is not int or version != VERSION:  # True == 1 in Python
        raise KeyFileError(
            f"the key file {path} is of another version", hint="use a newer veiltab to read it"
        )
    if set(fields) != _FIELDS[kind]:
        raise _malformed(path, "fields are missing or unknown")
    return fields


def _canonical_object(content: bytes) -> dict[str, object] | None:
    """Parse without letting an exception escape: those of ``json`` hold the whole text."""
    if len(content) <= LARGEST_FILE:
        with contextlib.suppress(ValueError, RecursionError):
            parsed = json.loads(content.decode())
            if isinstance(parsed, dict) and rfc8785.dumps(parsed) == content:
                return parsed
    return None


def _text(fields: dict[str, object], name: str, path: Path) -> str:
    value = fields[name]
    if not isinstance(value, str):
        raise _malformed(path, f"its {name} is not text")
    return value


def _hex(fields: dict[str, object], name: str, count: int, path: Path) -> bytes:
    value = _text(fields, name, path)
    if not re.fullmatch(f"[0-9a-f]{{{2 * count}}}", value):
        raise _malformed(path, f"its {name} is not {2 * count} lowercase hexadecimal digits")
    return bytes.fromhex(value)


def _base64(fields: dict[str, object], name: str, count: int, path: Path) -> bytes:
    """Decode base64 in its one spelling: no other alphabet, no stray bits at the end."""
    value = _text(fields, name, path)
    decoded = b""
    with contextlib.suppress(ValueError):
        decoded = base64.b64decode(value, validate=True)
    if len(decoded) != count or base64.b64encode(decoded).decode() != value:
        raise _malformed(path, f"its {name} is not the base64 of {count} bytes")
    return decoded


def _malformed(path: Path, why: str) -> KeyFileError:
    return KeyFileError(
        f"{path} is not a key file of veiltab: {why}",
        hint="check the path; a key file must not be edited, so restore a copy",
    )


def _cannot_write(path: Path, error: OSError) -> KeyFileError:
    return KeyFileError(
        f"cannot write the key file {path}: {error.strerror}",
        hint="choose a folder that exists and that you may write to",
    )
