"""A party connected to its server: proposing studies and finding them."""

import re
from os import PathLike
from pathlib import Path

from veiltab.crypto.identity import PrivateIdentity, fingerprint
from veiltab.errors import InputError, InvitationError, MismatchError
from veiltab.party.connection import ClosedAtEnd, Reach, Retry
from veiltab.party.context import PartyContext, check_registered
from veiltab.party.curator import choose_ledger, propose
from veiltab.party.fingerprints import same_digits
from veiltab.party.home import Home, PinnedServer
from veiltab.party.known import BlockedParty
from veiltab.party.proposal import StudyDraft, VaultDraft
from veiltab.party.remote import RemoteServer, StudySummary
from veiltab.party.remote_vault import VaultSummary
from veiltab.party.study import Study
from veiltab.party.study_file import read_study_file
from veiltab.party.vault import Vault
from veiltab.party.vault_file import read_vault_file
from veiltab.party.vault_steps import known_vault, propose_vault
from veiltab.wire.contract import PublicIdentity

_INVITATION = re.compile("[0-9a-f]{40}")


class Session(ClosedAtEnd):
    """What :meth:`Home.connect` returns: a context manager that closes its connections."""

    def __init__(self, context: PartyContext) -> None:
        """Work in this context; nothing is sent yet."""
        self._context = context

    def __repr__(self) -> str:
        """Show whose session it is, and with which server."""
        return f"<Session of {self.identity.name!r} with {self.server.name!r}>"

    def close(self) -> None:
        """Close every connection."""
        self._context.server.close()

    @property
    def home(self) -> Home:
        """The home of this party."""
        return self._context.home

    @property
    def identity(self) -> PublicIdentity:
        """What others may know of this party."""
        return self._context.home.public

    @property
    def server(self) -> PublicIdentity:
        """The server that this home has pinned."""
        return self._context.server.pinned

    def studies(self, *, inbox: bool = False) -> list[StudySummary]:
        """List the studies that this party has looked at, or with ``inbox`` those it has not."""
        return self._context.server.studies(inbox=inbox)

    def block(self, party: str | PathLike[str] | PublicIdentity) -> BlockedParty:
        """Have nothing to do with a party: the server refuses its proposals, and so do you.

        ``party`` is a public identity, the path of its file, or the name of a party that is known.
        """
        identity = self.home.known.identify(party)
        blocked = self.home.known.block(identity)
        self._context.server.block(identity.party_id)
        return blocked

    def unblock(self, party: str) -> BlockedParty:
        """Let a party that was blocked, by its name or its party id, be met again."""
        blocked = self.home.known.find_blocked(party)
        self._context.server.unblock(blocked.party)
        self.home.known.unblock(blocked.party)
        return blocked

    def study(self, name: str) -> Study:
        """Find a study by its exact title, or by the first digits of its id."""
        return Study(self._context, self._context.find_study(name))

    def propose(self, draft: StudyDraft | str | PathLike[str], dataset: str | None = None) -> Study:
        """Propose the study that a study file describes, sign it, and charge it to a data set.

        The same file again takes up a proposal that was interrupted, and costs nothing more.
        """
        if not isinstance(draft, StudyDraft):
            draft = read_study_file(Path(draft), self.identity, known_vault(self.home))
        with self.home.lock():
            contract = propose(self._context, draft, choose_ledger(self.home, dataset))
        return Study(self._context, contract.study_id)

    def vaults(self, *, inbox: bool = False) -> list[VaultSummary]:
        """List the vaults that you have looked at, or with ``inbox`` those you have not."""
        return self._context.server.vaults.all_vaults(inbox=inbox)

    def vault(self, name: str) -> Vault:
        """Find a vault by its exact title, or by the first digits of its id.

        The server's titles count only for vaults whose terms are not known here, and those that you
        have not looked at only if nothing else matches.
        """
        listed, home = self._listed_vaults(), self.home
        return Vault(
            self._context, home.find_vault(name, listed, lambda: self._listed_vaults(inbox=True))
        )

    def _listed_vaults(self, *, inbox: bool = False) -> list[tuple[bytes, str]]:
        listed = [(line.vault, line.title) for line in self.vaults(inbox=inbox)]
        return [(v, title) for v, title in listed if self.home.vault(v).title() is None]

    def propose_vault(self, draft: VaultDraft | str | PathLike[str]) -> Vault:
        """Propose the vault that a vault file describes, and sign it; it costs no privacy.

        The same file again takes up a proposal that was interrupted.
        """
        if not isinstance(draft, VaultDraft):
            draft = read_vault_file(Path(draft), self.identity)
        with self.home.lock():
            terms = propose_vault(self._context, draft)
        return Vault(self._context, terms.vault_id)


def connect(home: Home, identity: PrivateIdentity, retry: Retry | None = None) -> Session:
    """Prepare requests to the server that a home has pinned; nothing is sent yet."""
    return Session(open_context(home, identity, retry))


def open_context(home: Home, identity: PrivateIdentity, retry: Retry | None = None) -> PartyContext:
    """Return what every step of a registered party needs."""
    pinned = check_registered(home)
    reach = Reach(ca_file=home.authority)
    server = RemoteServer(pinned.url, pinned.identity, identity, retry=retry, reach=reach)
    return PartyContext(home, identity, server)


def discover(
    url: str, *, ca_file: Path | None = None, retry: Retry | None = None
) -> PublicIdentity:
    """Ask a server who it is; compare its fingerprint with the operator's before you register."""
    return RemoteServer.discover(url, reach=Reach(ca_file=ca_file), retry=retry)


def check_fingerprint(server: PublicIdentity, expected: str) -> None:
    """Refuse a server whose fingerprint is not the one that its operator gave."""
    if not same_digits(server.party_id, expected):
        shown = fingerprint(server.party_id)
        raise MismatchError(
            f"the server that answers has the fingerprint {shown}, not {expected}",
            hint="check the URL and the fingerprint with the operator; nothing was sent",
        )


def register(
    home: Home,
    url: str,
    server: PublicIdentity,
    *,
    identity: PrivateIdentity,
    invitation: str,
    ca_file: Path | None = None,
    replace: bool = False,
    retry: Retry | None = None,
) -> PinnedServer:
    """Register with a server whose fingerprint was compared, and remember it."""
    code = invitation.strip().lower()
    if not _INVITATION.fullmatch(code):  # neither shown nor sent: it may be any other secret
        raise InvitationError(
            "this is not an invitation: a code has forty digits and letters from a to f",
            hint="give the code that the server's operator has sent you, and nothing else",
        )
    if home.server is not None and not replace:
        home.pin_server(url, server)  # refuses any other server than the one before
    certificates = None if ca_file is None else _read_certificates(ca_file)
    reach = Reach(ca_file=ca_file)
    with RemoteServer(url, server, identity, reach=reach, retry=retry) as remote:
        remote.register(code)
    if replace:
        home.forget_server()
    pinned = home.pin_server(url, server)
    home.keep_authority(certificates)
    return pinned


def _read_certificates(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint="check the path") from error
