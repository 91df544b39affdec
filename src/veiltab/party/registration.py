"""Registering with a server: by the file that its operator mails, or by its URL and a code.

Nothing secret is sent before the server that answers is known to be the right one: the one that
the file names, that the home trusts if it trusts one, and whose fingerprint somebody has compared.
"""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path

from veiltab.crypto.identity import PrivateIdentity, fingerprint
from veiltab.errors import InputError, InvitationError, MismatchError, VeiltabError
from veiltab.files.disk import FILE_MODE, check_new, write_output
from veiltab.party.connection import Reach, Retry
from veiltab.party.home import Home, PinnedServer
from veiltab.party.known.fingerprints import check_digits, check_same_server, same_digits
from veiltab.party.remote import RemoteServer
from veiltab.wire.contract import PublicIdentity
from veiltab.wire.invitations import Invitation, looks_like_code, read_code

LARGEST = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Registration:
    """A home that is about to register with the server that has answered.

    ``code`` is that of the operator's file, if there is one.
    """

    home: Home
    url: str
    server: PublicIdentity
    code: str | None = field(default=None, repr=False)
    ca_file: Path | None = None
    replace: bool = False
    retry: Retry | None = None

    def check_fingerprint(self, expected: str) -> None:
        """Refuse a server whose fingerprint is not the one that its operator has told."""
        if not same_digits(self.server.party_id, expected):
            shown = fingerprint(self.server.party_id)
            raise MismatchError(
                f"the server that answers has the fingerprint {shown}, not {expected}",
                hint="check the URL and the fingerprint with the operator; nothing was sent",
            )

    def finish(self, identity: PrivateIdentity, code: str) -> PinnedServer:
        """Show the code to the server, whose fingerprint was compared, and remember the server."""
        symbols = read_code(code)
        certificates = None if self.ca_file is None else _read_certificates(self.ca_file)
        reach = Reach(ca_file=self.ca_file)
        with RemoteServer(self.url, self.server, identity, reach=reach, retry=self.retry) as remote:
            remote.register(symbols)
        if self.replace:
            self.home.forget_server()
        pinned = self.home.pin_server(self.url, self.server)
        self.home.keep_authority(certificates)
        return pinned


def meet(
    home: Home,
    place: str | PathLike[str],
    *,
    ca_file: Path | None = None,
    replace: bool = False,
    retry: Retry | None = None,
) -> Registration:
    """Ask a server who it is, at a URL or where the operator's file says; tell it nothing.

    Any other server is refused than the one that the file names, and than the one that the home
    trusts, unless that is to be replaced.
    """
    invitation = None if "://" in str(place) else read_invitation(Path(place))
    url = str(place) if invitation is None else invitation.url
    server = RemoteServer.discover(url, reach=Reach(ca_file=ca_file), retry=retry)
    if invitation is not None:
        _check_invited(invitation, server)
    trusted = home.server
    if trusted is not None and not replace:
        check_same_server(url, server, trusted.identity)
    code = None if invitation is None else invitation.code
    return Registration(
        home=home, url=url, server=server, code=code, ca_file=ca_file, replace=replace, retry=retry
    )


def _check_invited(invitation: Invitation, server: PublicIdentity) -> None:
    """Refuse a server that is not the one which the invitation is for."""
    if not same_digits(server.party_id, invitation.fingerprint):
        raise MismatchError(
            f"the invitation is for the server with the fingerprint {invitation.fingerprint}, and"
            f" {invitation.url} shows {fingerprint(server.party_id)}",
            hint="nothing was sent: somebody may have changed the file, or stand between you and"
            " the server; ask its operator by telephone",
        )


def _read_certificates(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint="check the path") from error


def write_invitation(path: Path, invitation: Invitation) -> None:
    """Write an invitation to a new file that its owner alone can read."""
    check_new(path)
    text = json.dumps(invitation.to_json(), ensure_ascii=False, indent=2)
    write_output(path, f"{text}\n".encode(), FILE_MODE)


def read_invitation(path: Path, clock: Callable[[], float] = time.time) -> Invitation:
    """Read an invitation that has not expired; errors never repeat what may be a code."""
    if looks_like_code(str(path)) and not path.exists():
        raise InputError(
            "this is a code, and on the command line others on this computer can read it",
            hint="give the server's URL, or the file of the invitation: the code is asked for; have"
            " the operator make a new one if others use this computer",
        )
    invitation = _parse(path)
    if invitation.expires <= clock():
        day = datetime.fromtimestamp(invitation.expires, UTC).strftime("%Y-%m-%d")
        raise InvitationError(
            f"the invitation for {invitation.name!r} expired on {day}",
            hint=f"ask the operator of {invitation.server!r} ({invitation.url}) for a new one",
        )
    return invitation


def _parse(path: Path) -> Invitation:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST)
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}",
            hint="give the file that the server's operator sent you, or a URL with https://",
        ) from error
    try:
        invitation = Invitation.from_json(json.loads(data))
        check_digits(invitation.fingerprint)
    except (ValueError, RecursionError, VeiltabError):  # their messages could quote the code
        pass
    else:
        return invitation
    raise InputError(
        f"{path} is not an invitation, or is damaged",
        hint="save the file as the server's operator sent it, or ask them for a new one",
    )
