"""One study as a party sees it: every step that it can take, as a method."""

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from veiltab.core.overlap import OverlapEstimate
from veiltab.errors import NotFoundError, ParameterError, StateError
from veiltab.party.alignments import AlignmentStatus, compare
from veiltab.party.coalitions import Coalition, coalitions
from veiltab.party.context import PartyContext
from veiltab.party.curator import GivenGrant, choose_ledger, grant, sign
from veiltab.party.grants import GrantStatus, list_grants, revoke
from veiltab.party.known.known import Acquaintance, acquaintances
from veiltab.party.ledgers import StoredLedger
from veiltab.party.overlaps import read_overlap
from veiltab.party.progress import OnProgress, Patience, Progress, ignore_progress
from veiltab.party.refunds import refund
from veiltab.party.remote import Status
from veiltab.party.roles import check_curator, check_researcher
from veiltab.party.vaults.answers import answer_study
from veiltab.party.witnesses import Audit, audit
from veiltab.protocol.curator.table import Duplicates
from veiltab.protocol.curator.upload import needs_alignment
from veiltab.wire.contract import Contract, PublicIdentity
from veiltab.wire.messages import SignedGrant
from veiltab.wire.signed import Signed
from veiltab.wire.states import IN_ORDER, State

if TYPE_CHECKING:  # half of the time that a command takes to start, and few read tables or estimate
    from veiltab.data.recode import Recode, Rule
    from veiltab.estimates import Estimate
    from veiltab.party.checking import Preview, Source

DAYS = 30
"""How long a grant is valid by default."""


class Study:
    """A study that names this party.  :meth:`Session.study` and ``propose`` make these.

    A curator calls :meth:`sign`, :meth:`check`, :meth:`push` and :meth:`grant`, in this order; a
    researcher calls :meth:`estimate` and :meth:`publish`; :meth:`grants` is for both.  Each step
    fetches the contract once, verifies it, and checks that the server's audit log continues what
    was seen before.
    """

    def __init__(self, context: PartyContext, study_id: bytes) -> None:
        """Name the study; nothing is fetched yet."""
        self._context = context
        self._id = study_id
        self._signed: Signed[Contract] | None = None

    def __repr__(self) -> str:
        """Show the title, if it is known, and the start of the id."""
        title = self._context.home.study(self._id).title()
        return f"<Study {self.id[:16]}{f' {title!r}' if title else ''}>"

    @property
    def id(self) -> str:
        """The study's id, in hexadecimal digits: a hash of its contract."""
        return self._id.hex()

    @property
    def title(self) -> str:
        """The title in the contract."""
        return self.terms.title

    @property
    def terms(self) -> Contract:
        """What the curators have agreed on, as it was last fetched."""
        return self.contract().body

    def contract(self) -> Signed[Contract]:
        """Return the contract with the signatures on it, as it was last fetched."""
        return self._fetch() if self._signed is None else self._signed

    def coalitions(self) -> list[Coalition]:
        """Return what each party, and each group that works together, could learn."""
        return coalitions(self.terms)

    def parties(self) -> list[Acquaintance]:
        """Return everybody whom the contract names, and whether their fingerprint was compared."""
        return acquaintances(self._context.home, self.terms)

    def status(self) -> Status:
        """Ask where the study stands, and who has done what."""
        return self._context.server.status(self._id)

    def alignment(self) -> AlignmentStatus | None:
        """Say whether the curators hold the same respondents and decoys, as far as they have said.

        For curators, while tables are pushed; ``None`` where nothing is compared.
        """
        contract = self.terms
        me, curators = self._context.identity.party_id, {t.party_id for t in contract.curators}
        if me not in curators or contract.stored is not None or not needs_alignment(contract):
            return None
        return compare(contract, self._context.server.alignments(self._id))

    def sign(self, dataset: str | None = None) -> Status:
        """Sign the study, and charge it to a data set of this home.

        ``dataset`` may be left out where the home has one ledger only.
        """
        with self._context.home.lock():
            # Fetched anew, however long ago the terms were read: what was seen of the study by now
            # must still be there.  The id binds the terms, so they cannot have changed.
            signed = self._fetch_as_curator("sign it")
            return sign(self._context, signed, choose_ledger(self._context.home, dataset))

    def abort(self, reason: str) -> Status:
        """End the study before its release, for everybody in it; to refund it is a second step."""
        try:
            return self._context.server.abort(self._id, reason)
        except NotFoundError:  # the server tells nobody but curators that there is such a study
            self._fetch_as_curator("end it")
            raise

    def refund(self, reason: str) -> StoredLedger:
        """Take back what this home was charged for a study that ended without a release.

        The pads of what was pushed are deleted, and this home refuses the study for ever.  The
        charge stays visible in the ledger, with the refund and its reason beside it.
        """
        return refund(self._context, self._id, reason)

    def check(
        self,
        table: object,
        ids: str | Sequence[str] = (),
        *,
        recode: "Recode | Mapping[str, Rule] | str | PathLike[str] | None" = None,
        duplicates: Duplicates | None = None,
        query: str | None = None,
        dataset: str | None = None,
        offenders: str | PathLike[str] | None = None,
        progress: OnProgress = ignore_progress,
    ) -> "Preview":
        """Read a table as :meth:`push` would: what would leave, what it costs, what does not fit.

        Nothing is sent, signed or charged; it works before and after signing.  ``dataset`` shows
        the cost to one data set alone, and ``offenders`` is a new file for every row that does not
        fit.
        """
        from veiltab.party.checking import check, make_source  # noqa: PLC0415 - as above

        signed = self._fetch_as_curator("push a table to it")
        rules = self._recode(signed, recode, duplicates)
        return check(
            self._context.home,
            signed.body,
            make_source(table, ids, rules, query),
            dataset=dataset,
            offenders_file=None if offenders is None else Path(offenders),
            progress=progress,
        )

    def push(
        self,
        table: object = None,
        ids: str | Sequence[str] = (),
        *,
        recode: "Recode | Mapping[str, Rule] | str | PathLike[str] | None" = None,
        duplicates: Duplicates | None = None,
        query: str | None = None,
        wait: bool = True,
        timeout: float | None = None,
        progress: OnProgress = ignore_progress,
    ) -> Status:
        """Sample, encrypt and send a table; after an interruption, the same call resumes.

        ``table`` is whatever :func:`veiltab.open_table` takes, or a function that returns it.
        ``ids`` are the columns that tell respondents apart, unless ``recode`` names them, and
        ``duplicates`` says which row counts of those with the same id, if ``recode`` does not.
        Without a table, what was prepared before is sent; with one, it must be the same table,
        unless nothing was sent yet.  Where
        curators compare digests first, this waits until the others push too, for ``timeout``
        seconds at most; with ``wait=False`` it returns, and must be called again.
        """
        from veiltab.party.checking import make_source  # noqa: PLC0415 - as above
        from veiltab.party.push import push  # noqa: PLC0415 - as above

        signed = self._fetch_as_curator("push a table to it")

        def source() -> "Source":
            return make_source(table, ids, self._recode(signed, recode, duplicates), query)

        patience = Patience(timeout) if wait else None
        given = None if table is None else source
        return push(self._context, signed, given, progress, patience)

    def answer(self, *, progress: OnProgress = ignore_progress) -> Status:
        """Answer a study on a vault with new pads for the drawn rows; the table is not needed.

        There is one answer: the same call again sends the same bytes, where that is needed.
        """
        return answer_study(self._context, self._fetch_as_curator("answer it"), progress)

    def wait(
        self,
        state: str = State.RELEASED,
        timeout: float | None = None,
        *,
        progress: OnProgress = ignore_progress,
    ) -> Status:
        """Wait until the study is in this state or further; ``None`` waits as long as it takes."""
        if state not in IN_ORDER:
            raise ParameterError(
                f"no study ever becomes {state!r}", hint=f"wait for one of: {', '.join(IN_ORDER)}"
            )
        patience, reported = Patience(timeout), None
        while True:
            status = self.status()
            if is_reached(status, state):
                return status
            waiting_for = waits_for(status)
            if patience.over:
                raise StateError(
                    f"the study is {status.state} after {timeout:g} seconds, not {state}",
                    hint=_missing(status) or "give it more time: a longer timeout, or none",
                )
            if status != reported:
                reported = status
                progress(Progress("waiting", waiting_for=waiting_for, state=status.state))
            patience.wait()

    def grant(
        self,
        researcher: str | PathLike[str] | PublicIdentity,
        attributes: str | Sequence[str] | None = None,
        *,
        days: int = DAYS,
        file: str | PathLike[str] | None = None,
    ) -> GivenGrant:
        """Let a researcher decrypt some of this curator's attributes, all of them by default.

        ``researcher`` is the file of its public identity, or its name in the contract.  With
        one-time pads the grant goes to a new ``file``, which is handed over directly.
        """
        to = researcher if isinstance(researcher, PublicIdentity) else str(researcher)
        path = None if file is None else Path(file)
        signed = self._fetch_as_curator("grant it to researchers")
        return grant(self._context, signed, to, _as_names(attributes), days=days, file=path)

    def grants(self) -> list[GrantStatus]:
        """Return who can read what until when, the grants that end first before the others.

        A curator sees all grants of the study, also those of other curators, and a researcher those
        given to it; expired and revoked ones too.
        """
        return list_grants(self._context, self._fetch().body)

    def revoke(self, researcher: str | PathLike[str] | PublicIdentity) -> list[GrantStatus]:
        """Take back all that this curator has granted to a researcher, and return those grants.

        From now on the server serves nothing by them.  What the researcher has downloaded before,
        and what it has published, stays.  :meth:`grant` lets it read again.
        """
        who = researcher if isinstance(researcher, PublicIdentity) else str(researcher)
        return revoke(self._context, self._fetch_as_curator("revoke grants").body, who)

    def estimate(
        self,
        attributes: str | Sequence[str] | None = None,
        *,
        grants: Iterable[SignedGrant | str | PathLike[str]] = (),
        partial: bool = False,
    ) -> "Estimate":
        """Verify, fetch, decrypt and estimate, as a researcher whom the curators have authorised.

        ``grants`` are files that curators have handed over directly; the others come from the
        server.  Attributes whose grants have expired or were revoked are an error, or are left out
        with ``partial``.
        """
        from veiltab.party.researcher import as_grant, estimate_study  # noqa: PLC0415 - see above

        given = [as_grant(grant) for grant in grants]
        signed, names = self._fetch_as_researcher(), _as_names(attributes)
        return estimate_study(self._context, signed, names, given, partial=partial)

    def overlap(self) -> OverlapEstimate:
        """Return how many people the curators have in common, as one of them.

        The study must be an overlap count, to which every curator has pushed its ids.
        """
        return read_overlap(self._context, self._fetch_as_curator("read its number").body)

    def publish(
        self,
        attributes: str | Sequence[str] | None = None,
        *,
        grants: Iterable[SignedGrant | str | PathLike[str]] = (),
    ) -> "Estimate":
        """Return the copy of an estimate that may be passed on, with noise drawn once and for all.

        The first call publishes the table of these attributes, all that are granted by default,
        and the audit log names it.  Later calls return the same copy, or a part of it.
        """
        from veiltab.party.researcher import as_grant, publish_study  # noqa: PLC0415 - see above

        given = [as_grant(grant) for grant in grants]
        signed = self._fetch_as_researcher()
        return publish_study(self._context, signed, _as_names(attributes), given)

    def audit(
        self,
        compare: Sequence[str | PathLike[str]] = (),
        *,
        proof: str | PathLike[str] | None = None,
    ) -> Audit:
        """Verify the audit log, and compare it with what the server has shown to others.

        Contract and release must be those of the log.  ``compare`` are files that other parties
        have written with :meth:`Audit.save_head`; what they have left at the server is compared
        too.  A server that has signed two different logs is an error, and ``proof`` is a new file
        for the evidence.
        """
        return audit(self._context, self._id, compare, proof)

    def _fetch(self) -> Signed[Contract]:
        self._signed = self._context.contract(self._id)
        return self._signed

    def _fetch_as_curator(self, doing: str) -> Signed[Contract]:
        signed = self._fetch()
        check_curator(signed.body, self._context.home.public, doing)
        return signed

    def _fetch_as_researcher(self) -> Signed[Contract]:
        signed = self._fetch()
        check_researcher(signed.body, self._context.home.public)
        return signed

    def _recode(
        self,
        signed: Signed[Contract],
        recode: "Recode | Mapping[str, Rule] | str | PathLike[str] | None",
        duplicates: Duplicates | None,
    ) -> "Recode":
        from veiltab.party.checking import as_recode  # noqa: PLC0415 - as above

        schema = signed.body.schema_of(self._context.identity.party_id)
        return as_recode(recode, schema, duplicates)


def is_reached(status: Status, wanted: str) -> bool:
    """Tell whether the study is as far as wanted; one that was ended never gets there."""
    if status.state == wanted:
        return True
    if status.state not in IN_ORDER:
        raise StateError(
            f"the study is {status.state} and will not be {wanted}:"
            f" {status.reason or 'no reason given'}",
            hint="ask the curator who ended it; propose a new study if need be",
        )
    return wanted in IN_ORDER and IN_ORDER.index(status.state) >= IN_ORDER.index(wanted)


def waits_for(status: Status) -> tuple[str, ...]:
    """Return the names of the curators who have to act next."""
    if status.state == State.PROPOSED:
        return tuple(curator.name for curator in status.curators if not curator.signed)
    if status.state in (State.OPEN, State.SAMPLED):
        return tuple(curator.name for curator in status.curators if not curator.uploaded)
    return ()


def _as_names(names: str | Sequence[str] | None) -> Sequence[str] | None:
    """Return names as a sequence: one name by itself stands for a list of it alone."""
    return [names] if isinstance(names, str) else names


def _missing(status: Status) -> str:
    names = ", ".join(waits_for(status))
    done = "signed" if status.state == State.PROPOSED else "pushed"
    return f"not {done} yet by: {names}" if names else ""
