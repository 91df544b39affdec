"""One test identity, saving and loading it, and a look for secrets in every error."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.sealing import SealingKey
from veiltab.crypto.signing import SigningKey
from veiltab.errors import KeyFileError
from veiltab.party.keyfile import load_identity, save_identity

NAME = "Klinik Süd"
PASSPHRASE = "fünf kleine Wörter"  # noqa: S105 - a test's own
IDENTITY = PrivateIdentity(NAME, SigningKey(b"\xa1" * 32), SealingKey(b"\xb2" * 96))
SECRETS = ("a1" * 8, "b2" * 8, repr(b"\xa1" * 8), PASSPHRASE, PASSPHRASE.encode().hex())


def save(path: Path, passphrase: str | None = None) -> None:
    """Save the test identity with entropy of the operating system."""
    save_identity(IDENTITY, path, passphrase, SystemEntropy())


def write(path: Path, content: bytes) -> None:
    """Write a file as somebody with an editor would, with the right mode."""
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(content)


def refusal(path: Path, passphrase: str | None = None) -> KeyFileError:
    """Return the error of loading, after looking for secrets in it and in its whole chain."""
    with pytest.raises(KeyFileError) as caught:
        load_identity(path, passphrase)
    assert_silent(caught.value)
    return caught.value


def assert_silent(error: BaseException) -> None:
    """Fail if an error, or one behind it, holds or shows a secret."""
    chain = list(_chain(error))
    shown = " ".join(f"{link} {link!r} {link.args} {vars(link)}" for link in chain)
    assert not [secret for secret in SECRETS if secret in shown]
    assert not [link for link in chain if isinstance(link, json.JSONDecodeError | UnicodeError)]


def assert_same(identity: PrivateIdentity) -> None:
    """Fail if the test identity did not come back whole."""
    assert identity.name == NAME
    assert identity.party_id == IDENTITY.party_id
    assert identity.signing.secret_bytes() == IDENTITY.signing.secret_bytes()
    assert identity.sealing.secret_bytes() == IDENTITY.sealing.secret_bytes()


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
