"""A party connected to its server: proposing studies and finding them."""

from collections.abc import Sequence
from contextlib import suppress
from os import PathLike
from pathlib import Path

from veiltab.core.overlap import PEOPLE
from veiltab.crypto.identity import PrivateIdentity
from veiltab.errors import StateError
from veiltab.party.connection import ClosedAtEnd, Reach, Retry
from veiltab.party.context import PartyContext, check_registered
from veiltab.party.curator import choose_ledger, intended, propose
from veiltab.party.grants import GrantStatus
from veiltab.party.home import Home
from veiltab.party.known.known import BlockedParty
from veiltab.party.overlaps import draft_overlap, id_linkage, plan_count
from veiltab.party.proposal import StudyDraft, VaultDraft
from veiltab.party.remote import RemoteServer, StudySummary
from veiltab.party.study import Study
from veiltab.party.study_file import read_study_file
from veiltab.party.vaults.remote import VaultSummary
from veiltab.party.vaults.steps import known_vault, propose_vault
from veiltab.party.vaults.vault import Vault
from veiltab.party.vaults.vault_file import read_vault_file
from veiltab.protocol.curator.agreement import charge
from veiltab.wire.contract import Contract, PublicIdentity
from veiltab.wire.signed import Signed
from veiltab.wire.states import State


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

    def grants(self) -> list[GrantStatus]:
        """Return who can read what until when, in all studies that are released and not archived.

        See :meth:`Study.grants`.
        """
        lines = [*self.studies(), *self.studies(inbox=True)]
        grants: list[GrantStatus] = []
        for line in lines:
            if line.state == State.RELEASED:
                with suppress(StateError):  # it is archived, and nobody can read it any more
                    grants += Study(self._context, line.study).grants()
        return grants

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
        """Find a study by its title or the beginning of it, or by the first digits of its id."""
        return Study(self._context, self._context.find_study(name))

    def preview(self, draft: StudyDraft, dataset: str | None = None) -> Signed[Contract]:
        """Return the contract that :meth:`propose` would sign and charge; nothing is sent.

        Before a study is proposed nobody has signed it, and its id is not known yet.  What the data
        set's budget or policy does not allow is refused.
        """
        signed = self.intended(draft)
        charge(signed.body, choose_ledger(self.home, dataset))
        return signed

    def intended(self, draft: StudyDraft) -> Signed[Contract]:
        """Return the same contract, whatever the budgets allow."""
        return intended(self._context, draft)

    def propose(
        self,
        draft: StudyDraft | str | PathLike[str],
        dataset: str | None = None,
        *,
        anyway: bool = False,
    ) -> Study:
        """Propose the study that a study file describes, sign it, and charge it to a data set.

        The same file again takes up a proposal that was interrupted, and costs nothing more.  A
        study that would say less than a guess is refused, unless ``anyway``.
        """
        if not isinstance(draft, StudyDraft):
            vaults = known_vault(self.home)
            draft = read_study_file(Path(draft), self.identity, vaults, anyway=anyway)
        with self.home.lock():
            contract = propose(self._context, draft, choose_ledger(self.home, dataset))
        return Study(self._context, contract.study_id)

    def propose_overlap(
        self,
        title: str,
        curators: Sequence[str | PathLike[str] | PublicIdentity],
        epsilon: float,
        *,
        people: int = PEOPLE,
        columns: int = 1,
        normalisation: Sequence[str] = (),
        dataset: str | None = None,
    ) -> Study:
        """Ask how many people you and other curators have in common, and charge ε to a data set.

        ``curators`` are the others: public identities, their files, or names of known parties.
        ``people`` is about how many you expect in common; the error is least for so many, and no
        promise depends on it.  Ids have so many ``columns``, made alike by ``normalisation``.
        """
        others = [self.home.known.identify(party) for party in curators]
        plan = plan_count(self.identity, others, epsilon, people)
        linkage = id_linkage(columns, normalisation)
        return self.propose(draft_overlap(title, self.identity, others, plan, linkage), dataset)

    def vaults(self, *, inbox: bool = False) -> list[VaultSummary]:
        """List the vaults that you have looked at, or with ``inbox`` those you have not."""
        return self._context.server.vaults.all_vaults(inbox=inbox)

    def vault(self, name: str) -> Vault:
        """Find a vault by its title or the beginning of it, or by the first digits of its id.

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
    server = RemoteServer(
        pinned.url, pinned.identity, identity, retry=retry, reach=reach, meet=home.meet_server
    )
    return PartyContext(home, identity, server)
