"""New keys for a home, and the end of its identity: told to the server, and safe from crashes.

The new keys are on the disk before the server hears of them, in a file of their own.  The server
takes the same rotation twice, so whatever was broken off is done again in the same way.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from veiltab.core.entropy import Entropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import HomeError, InputError, MessageError, StateError
from veiltab.files.disk import check_new, write_output
from veiltab.party.connection import Reach, Retry
from veiltab.party.keyfile import load_identity, replace_identity, save_identity
from veiltab.party.remote import RemoteServer
from veiltab.protocol import rotating
from veiltab.protocol.keys import verify_revocation
from veiltab.wire.codec import check_typed
from veiltab.wire.rotation import Revocation
from veiltab.wire.signed import Signed

if TYPE_CHECKING:
    from veiltab.party.home import Home

LARGEST_CERTIFICATE = 1 << 16
CERTIFICATE_MODE = 0o600
"""Whoever has a certificate can end the identity."""


def rotate(
    home: "Home",
    passphrase: str | None,
    entropy: Entropy,
    retry: Retry | None = None,
    clock: Callable[[], float] = time.time,
) -> PrivateIdentity:
    """Put new keys in the place of a home's, here and at its server; the party id stays."""
    home.check_identity()
    with home.lock():
        if home.next_key.exists():
            new = load_identity(home.next_key, passphrase)
        else:
            identity = load_identity(home.key_file, passphrase)
            new = rotating.rotate(identity, entropy, int(clock()))
            save_identity(new, home.next_key, passphrase, entropy)
        _announce(home, new, retry)
        replace_identity(new, home.key_file, passphrase, entropy)
        home.next_key.unlink()
    return new


def _announce(home: "Home", new: PrivateIdentity, retry: Retry | None) -> None:
    """Send the rotation, unless no server knows this party yet."""
    pinned = home.server
    if pinned is None:
        return
    reach = Reach(ca_file=home.authority)
    with RemoteServer(
        pinned.url, pinned.identity, new, retry=retry, reach=reach, meet=home.meet_server
    ) as server:
        try:
            server.rotate()
        except StateError:  # another rotation has this one's place: it will never be taken
            home.next_key.unlink()
            raise


def make_certificate(home: "Home", passphrase: str | None, reason: str) -> Signed[Revocation]:
    """Make what revokes a home's identity; it may be kept for years."""
    check_typed(reason, "the reason")
    return rotating.revoke(home.open(passphrase), int(time.time()), reason)


def write_certificate(certificate: Signed[Revocation], path: Path) -> None:
    """Write a certificate to a new file that its owner alone can read."""
    check_new(path)
    write_output(path, certificate.dumps(), CERTIFICATE_MODE)


def read_certificate(path: Path) -> Signed[Revocation]:
    """Read a certificate; whether it is signed is for the server to verify."""
    try:
        with path.open("rb") as file:
            return Revocation.loads(file.read(LARGEST_CERTIFICATE + 1))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint="check the path") from error
    except MessageError as error:
        raise InputError(
            f"{path} is not a revocation certificate",
            hint="give a file that `veiltab id revoke --out` has written",
        ) from error


def revoke(
    home: "Home",
    certificate: Signed[Revocation],
    *,
    url: str | None = None,
    retry: Retry | None = None,
) -> bytes:
    """Tell a server, by default the home's, that nobody may trust these keys any more.

    With a URL it may be the certificate of any identity: such as one whose home is lost.
    """
    pinned = None if url is not None else home.server
    if url is None and pinned is None:
        raise HomeError(
            f"{home.path} is not registered with a server, so there is nobody to tell",
            hint="name the server's URL, or keep the certificate",
        )
    if url is None:
        verify_revocation(home.public, certificate)
    target = url or (pinned.url if pinned else "")
    return RemoteServer.revoke(
        target,
        certificate,
        reach=Reach(ca_file=home.authority),
        retry=retry,
        meet=home.meet_server if url is None else None,
    )
