"""A private identity in a file (spec, section 2.1).

A key file is created once, and only one that holds all its keys and newer ones takes its place: a
lost key cannot be made again.
"""

import os
import stat
from pathlib import Path

from veiltab.core.entropy import Entropy
from veiltab.crypto.identity import (
    MAX_KEY_FILE_BYTES,
    PrivateIdentity,
    dump_identity,
    parse_identity,
)
from veiltab.errors import KeyFileError
from veiltab.files.disk import write_whole
from veiltab.files.private import UNSAFE_MODE
from veiltab.protocol.rotating import with_proof


def save_identity(
    identity: PrivateIdentity, path: Path, passphrase: str | None, entropy: Entropy
) -> None:
    """Write a new key file of mode 0600; with a passphrase, locked by it.

    Nobody else can open the file even for an instant, and an existing one is refused.  It is whole
    and on the disk when this returns; if this is interrupted, there is none.
    """
    content = dump_identity(identity, passphrase, entropy)
    try:
        write_whole(path, content, replace=False)
    except FileExistsError as error:
        raise KeyFileError(
            f"{path} exists already",
            hint="choose another path, or move the old key away; it cannot be made again",
        ) from error
    except OSError as error:
        raise KeyFileError(
            f"cannot write the key file {path}: {error.strerror}",
            hint="choose a folder that exists and that you may write to",
        ) from error


def replace_identity(
    identity: PrivateIdentity, path: Path, passphrase: str | None, entropy: Entropy
) -> None:
    """Put an identity with newer keys in the place of the same one with fewer.

    If this is interrupted, the old file is there or the new one, whole.
    """
    before = [pair.signing.public for pair in load_identity(path, passphrase).pairs]
    if [pair.signing.public for pair in identity.pairs[: len(before)]] != before:
        raise KeyFileError(
            f"{path} holds other keys than those that are to be replaced",
            hint="restore the key file from a copy",
        )
    try:
        write_whole(path, dump_identity(identity, passphrase, entropy))
    except OSError as error:
        raise KeyFileError(
            f"cannot write the key file {path}: {error.strerror}",
            hint="check the disk's free space, and try again",
        ) from error


def load_identity(path: Path, passphrase: str | None) -> PrivateIdentity:
    """Read a key file; a passphrase for a file that is not locked is not used.

    Refused are files that others can open, and every byte that differs from what
    :func:`save_identity` would have written.
    """
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            mode = stat.S_IMODE(status.st_mode)
            is_private = not mode & UNSAFE_MODE and status.st_uid in (os.geteuid(), 0)
            content = file.read(MAX_KEY_FILE_BYTES + 1) if is_private else b""
    except OSError as error:
        raise KeyFileError(
            f"cannot read the key file {path}: {error.strerror}",
            hint="check the path, or make a new identity",
        ) from error
    if mode & UNSAFE_MODE:
        raise KeyFileError(
            f"others can open the key file {path} (mode {mode:04o})",
            hint=f"run: chmod 600 {path}; if others may have read it, make a new identity",
        )
    if not is_private:
        raise KeyFileError(
            f"the key file {path} belongs to another user of this computer",
            hint="copy it to a file of your own, of mode 600; if others may have read it, make a"
            " new identity",
        )
    return with_proof(parse_identity(content, passphrase, str(path)))
