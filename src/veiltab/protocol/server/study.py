"""A study on the server: every message that it takes, and every step that it makes, once each."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self, TypeVar

from veiltab.errors import AlignmentError, InputError, MismatchError, NotGrantedError, StateError
from veiltab.protocol.keys import root_key
from veiltab.protocol.server.accept import check_repad, check_stored, check_upload
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.overlap import count_overlap
from veiltab.protocol.server.release import (
    Drawn,
    Joined,
    draw_rows,
    join_fresh,
    join_sampled,
    join_stored,
    perturb_and_sign,
    repad_requests,
)
from veiltab.protocol.server.transitions import Event, advance, expect
from veiltab.protocol.stores import ChunkStore
from veiltab.protocol.verify import (
    add_missing,
    may_see_release,
    verify_agreement,
    verify_grant,
    verify_publication,
    verify_revocation,
    verify_some,
)
from veiltab.wire.contract import Contract, Vault
from veiltab.wire.messages import (
    Grant,
    GrantRevocation,
    Overlap,
    Publication,
    Release,
    Repad,
    RepadRequest,
    SignedGrant,
    Upload,
)
from veiltab.wire.signed import Signed
from veiltab.wire.states import State

Body = TypeVar("Body", Upload, Repad)


class ServerStudy:
    """The server's side of one study, and the only place that changes the study's state.

    A message that is sent again changes nothing; a different one in its place is refused.  The
    sample is drawn once and perturbed once; after that the same release is returned for ever, and
    before that nothing of it is served.

    No step deletes a chunk.  Whoever keeps the study's state calls :meth:`forget_unreleased` once
    the end of the study is kept: until then, a release that breaks off needs them.
    """

    def __init__(self, context: ServerContext, contract: Contract) -> None:
        """Take a proposed contract for this very server, which nobody need have signed yet."""
        if contract.server.signing_key != root_key(context.key):
            raise MismatchError(
                "the contract names another server", hint="propose the study with this server's key"
            )
        self._context = context
        self._contract = Signed(contract, ())
        self._state = State.PROPOSED
        self.uploads: dict[bytes, Signed[Upload]] = {}
        self.requests: dict[bytes, Signed[RepadRequest]] = {}
        self._repads: dict[bytes, Signed[Repad]] = {}
        self._grants: dict[bytes, SignedGrant] = {}
        self._revoked: set[tuple[bytes, bytes]] = set()  # by curator and id of the grant
        self._publications: dict[bytes, Signed[Publication]] = {}
        self._drawn: Drawn | None = None
        self._joined: Joined | None = None
        self._release: Signed[Release] | None = None
        self._overlap: Signed[Overlap] | None = None

    @classmethod
    def resume(
        cls,
        context: ServerContext,
        contract: Signed[Contract],
        state: State,
        uploads: Iterable[Signed[Upload]] = (),
        *,
        release: Signed[Release] | None = None,
        overlap: Signed[Overlap] | None = None,
        grants: Iterable[SignedGrant] = (),
        revocations: Iterable[Signed[GrantRevocation]] = (),
        publications: Iterable[Signed[Publication]] = (),
        requests: Iterable[Signed[RepadRequest]] = (),
        repads: Iterable[Signed[Repad]] = (),
        drawn: Drawn | None = None,
    ) -> Self:
        """Continue a study from its kept state; every message given here was checked before.

        Of a study on stored tables, ``drawn`` is needed for its release alone.

        Joining and perturbing are repeatable.  With the same bytes from ``context.entropy`` as
        before, a release that was interrupted comes out the same.
        """
        study = cls(context, contract.body)
        study._contract, study._state = contract, state
        study.uploads = {upload.body.curator: upload for upload in uploads}
        study._release, study._overlap = release, overlap
        study._grants = {grant.body.grant_id: grant for grant in grants}
        study._revoked = {(one.body.curator, one.body.grant_id) for one in revocations}
        study._publications = {signed.body.researcher: signed for signed in publications}
        study.requests = {request.body.curator: request for request in requests}
        study._repads = {repad.body.curator: repad for repad in repads}
        study._drawn = drawn
        return study

    @property
    def contract(self) -> Signed[Contract]:
        """The contract with the signatures so far."""
        return self._contract

    @property
    def drawn(self) -> Drawn | None:
        """The rows that were drawn of stored tables, as far as they are known here."""
        return self._drawn

    @property
    def state(self) -> State:
        """Where the study stands; only the steps below change it."""
        return self._state

    def sign(self, signed: Signed[Contract]) -> None:
        """Take signatures; the study opens when every curator has signed.

        The first one of a curator stays, also if it has other keys by now.
        """
        if signed.body != self.contract.body:
            raise MismatchError(
                "the signature is on another contract", hint="sign the contract of this study"
            )
        keys = [terms.identity.signing_key for terms in signed.body.curators]
        verify_some(signed, keys)
        self._contract = add_missing(self._contract, signed)
        if self.state is State.PROPOSED and len(self.contract.signatures) == len(keys):
            self._advance(Event.ALL_SIGNED)

    def upload(self, signed: Signed[Upload]) -> None:
        """Check a curator's upload, whose chunks have been received, and take it."""
        if not self.has_upload(signed):
            check_upload(self.contract.body, signed, self._context.received)
            self.take_upload(signed)

    def has_upload(self, signed: Signed[Upload]) -> bool:
        """Tell whether this very upload was taken before; refuse one that cannot be taken now."""
        if _is_repeated(self.uploads, signed):
            return True
        expect(self.state, State.OPEN)
        if self.contract.body.stored is not None:
            raise MismatchError(
                "the study reads stored tables and takes no uploads",
                hint="the contract names the uploads that it reads",
            )
        return False

    def take_upload(self, signed: Signed[Upload]) -> None:
        """Take an upload that :func:`check_upload` has accepted."""
        if self.has_upload(signed):
            return
        self.uploads[signed.body.curator] = signed
        if len(self.uploads) == len(self.contract.body.curators):
            self._advance(Event.ALL_UPLOADED)

    def draw_from(
        self, vault: Signed[Vault], uploads: Sequence[Signed[Upload]], tables: ChunkStore
    ) -> dict[bytes, Signed[RepadRequest]]:
        """Draw rows of stored tables, once; return the request for each curator.

        The positions that a request refers to are among the received chunks.
        """
        if not self.requests:
            expect(self.state, State.OPEN)
            contract, context = self.contract.body, self._context
            check_stored(contract, verify_agreement(vault), uploads, tables)
            self._drawn = draw_rows(context, contract, uploads, tables, context.received)
            self.requests = repad_requests(context, contract, self._drawn, uploads)
            self._advance(Event.ROWS_DRAWN)
        return self.requests

    def repad(self, signed: Signed[Repad]) -> None:
        """Check a curator's new pads, whose chunks have been received, and take them."""
        if not self.has_repad(signed):
            contract, curator = self.contract.body, signed.body.curator
            contract.curator(curator)
            check_repad(contract, self.requests[curator], signed, self._context.received)
            self.take_repad(signed)

    def has_repad(self, signed: Signed[Repad]) -> bool:
        """Tell whether these very pads were taken before; refuse pads that cannot be taken now."""
        if _is_repeated(self._repads, signed):
            return True
        expect(self.state, State.SAMPLED)
        return False

    def take_repad(self, signed: Signed[Repad]) -> None:
        """Take new pads that :func:`check_repad` has accepted; the last ones join the rows."""
        if self.has_repad(signed):
            return
        self._repads[signed.body.curator] = signed
        if len(self._repads) == len(self.contract.body.curators):
            self._advance(Event.ALL_REPADDED)

    def release(self) -> Signed[Release]:
        """Join the rows and perturb them, once, and return the same release ever after.

        Rows that cannot be joined abort the study.
        """
        if self.contract.body.overlap is not None:
            raise MismatchError(
                "an overlap count releases one number, and no rows",
                hint="its curators are told the number, and nobody is granted anything",
            )
        if self._release is None:
            with self._aborting():
                self._release = self._perturb()
            self._advance(Event.PERTURBED)
        return self._release

    def count(self) -> Signed[Overlap]:
        """Count the people in common, once, and return the same number ever after."""
        if self._overlap is None:
            expect(self.state, State.UPLOADED)
            with self._aborting():
                self._overlap = count_overlap(
                    self._context, self.contract.body, self._ordered_uploads()
                )
            self._advance(Event.ROWS_JOINED)
            self._advance(Event.PERTURBED)
        return self._overlap

    def finish(self) -> Signed[Release] | Signed[Overlap]:
        """Release what the contract asks for: rows, or one number."""
        return self.release() if self.contract.body.overlap is None else self.count()

    @contextmanager
    def _aborting(self) -> Iterator[None]:
        """Abort the study if its uploads do not belong together.

        It would fail again.  With other uploads in their place, a curator could find out about one
        person after the other whether the others hold them.
        """
        try:
            yield
        except (AlignmentError, InputError, MismatchError):
            self.abort()
            raise

    def accept_grant(self, grant: SignedGrant, now: int) -> None:
        """Keep a grant, so that its researcher may fetch the columns that it covers."""
        verify_grant(self.contract.body, self._released().body, grant, now)
        if (grant.sealed is None) != (grant.body.pads == "one-time"):
            raise MismatchError(
                "a one-time-pad grant must not pass through the server; any other must be whole",
                hint="send a one-time-pad grant to the researcher, and its header to the server",
            )
        if self._is_revoked(grant.body):
            raise StateError(
                "this grant was revoked, and is never good again",
                hint="to let the researcher read again, give a new grant",
            )
        earlier = self._grants.setdefault(grant.body.grant_id, grant)
        if earlier.body != grant.body:
            raise MismatchError("another grant has this id", hint="draw a fresh id for each grant")

    def accept_revocation(self, signed: Signed[GrantRevocation]) -> None:
        """Serve nothing more by a grant that its own curator takes back.

        The grant need not be here: one that comes later is refused.
        """
        expect(self.state, State.RELEASED)
        earlier = self._grants.get(signed.body.grant_id)
        grant = None if earlier is None else earlier.body
        body = verify_revocation(self.contract.body, signed, grant)
        self._revoked.add((body.curator, body.grant_id))

    def accept_publication(self, signed: Signed[Publication], now: int) -> None:
        """Keep which copy of its counts a researcher publishes: one, and the same ever after."""
        body = verify_publication(self.contract.body, self._released(), signed)
        earlier = self._publications.get(body.researcher)
        if earlier is not None and earlier != signed:
            raise StateError(
                "this researcher has published another copy of this study before",
                hint="use that copy: what several copies tell would add up",
            )
        if earlier is None:
            self._check_published(body, now)
            self._publications[body.researcher] = signed

    def check_researcher(self, researcher: bytes, now: int) -> None:
        """Refuse a researcher who holds no unexpired grant: the release message is not for them."""
        release = self._released().body
        for grant in self._good_grants(researcher, now):
            verify_grant(self.contract.body, release, grant, now)
            self._check_all_granted(researcher, now)
            return
        raise NotGrantedError(
            "no grant of yours is good now", hint="ask the curators for a grant, or for a new one"
        )

    def check_granted(self, researcher: bytes, digests: Iterable[bytes], now: int) -> None:
        """Refuse unless unexpired grants of the researcher cover every one of these chunks."""
        release = self._released().body
        missing, used = set(digests), []
        for grant in self._grants_to(researcher):
            covered = missing & _covered(release, grant)
            if covered:
                used.append(grant)
                missing -= covered
        if missing:
            raise NotGrantedError(
                "no grant of yours covers this part of the release",
                hint="ask the curator who holds the attribute for a grant",
            )
        for grant in used:
            verify_grant(self.contract.body, release, grant, now)
        self._check_all_granted(researcher, now)

    def _check_all_granted(self, researcher: bytes, now: int) -> None:
        """Where curators may not see the release, refuse whom not all of them have granted access.

        The number of rows and a curator's own positions tell whom all hold.  A single curator could
        otherwise read both by a grant to itself under another name.
        """
        contract = self.contract.body
        given = {grant.body.curator for grant in self._good_grants(researcher, now)}
        missing = [
            terms.identity.name
            for terms in contract.curators
            if terms.party_id not in given and not may_see_release(contract, terms.party_id)
        ]
        if missing:
            raise NotGrantedError(
                "this release is served only to those who hold a grant from every curator; you have"
                f" none that is good now from: {', '.join(missing)}",
                hint="ask for a grant of at least one attribute",
            )

    def _check_published(self, body: Publication, now: int) -> None:
        """Refuse attributes that no unexpired grant lets the researcher read."""
        self.check_researcher(body.researcher, now)
        grants = self._good_grants(body.researcher, now)
        granted = {name for grant in grants for name in grant.body.attributes}
        missing = [name for name in body.attributes if name not in granted]
        if missing:
            raise NotGrantedError(
                f"no grant of yours covers {', '.join(map(repr, missing))}",
                hint="publish attributes that you were granted",
            )

    def abort(self) -> None:
        """End the study before its release."""
        self._advance(Event.ABORTED)

    def forget_unreleased(self) -> None:
        """Delete the chunks of an ended study that are no part of a release.

        These are all that were received and, after an abort, those that were perturbed as well.
        """
        expect(self.state, State.RELEASED, State.ABORTED)
        self._context.received.clear()
        if self.state is State.ABORTED:
            self._context.released.clear()

    def _advance(self, event: Event) -> None:
        self._state = advance(self._state, event)

    def _perturb(self) -> Signed[Release]:
        if self.state is State.UPLOADED:
            self._joined = self._join()
            self._advance(Event.ROWS_JOINED)
        elif self.state is State.JOINED and self._drawn is not None:
            self._joined = join_stored(self.contract.body, self._drawn, self._repads)
        joined, context = self._joined, self._context
        if joined is None:
            raise StateError(
                f"the study is {self.state}, and nothing is joined",
                hint="wait for every curator's upload",
            )
        return perturb_and_sign(
            self.contract.body,
            joined.plan,
            lambda where: joined.rows(where, context.received),
            joined.uploads,
            context.key,
            row_count=joined.row_count,
            entropy=context.entropy,
            released=context.released,
        )

    def _join(self) -> Joined:
        contract, uploads = self.contract.body, self._ordered_uploads()
        if contract.matched:
            return join_fresh(self._context, contract, uploads)
        return join_sampled(contract, uploads)

    def _ordered_uploads(self) -> list[Signed[Upload]]:
        return [self.uploads[terms.party_id] for terms in self.contract.body.curators]

    def _released(self) -> Signed[Release]:
        expect(self.state, State.RELEASED)
        return self.release()

    def _grants_to(self, researcher: bytes) -> list[SignedGrant]:
        """Return a researcher's grants that were not revoked, the one that lasts longest first."""
        grants = [
            grant
            for grant in self._grants.values()
            if grant.body.researcher == researcher and not self._is_revoked(grant.body)
        ]
        return sorted(grants, key=lambda grant: grant.body.expires, reverse=True)

    def _is_revoked(self, grant: Grant) -> bool:
        return (grant.curator, grant.grant_id) in self._revoked

    def _good_grants(self, researcher: bytes, now: int) -> list[SignedGrant]:
        """Return those of a researcher's grants that have not expired."""
        return [grant for grant in self._grants_to(researcher) if grant.body.expires > now]


def _is_repeated(earlier: Mapping[bytes, Signed[Body]], signed: Signed[Body]) -> bool:
    """Tell whether this very message was taken before; refuse another in its place."""
    before = earlier.get(signed.body.curator)
    if before is not None and before != signed:
        raise StateError(
            f"this curator has sent another {signed.body.kind} already",
            hint="it cannot be replaced; abort the study and propose a new one",
        )
    return before is not None


def _covered(release: Release, grant: SignedGrant) -> set[bytes]:
    """Return the digests of the columns, and positions, that a grant covers."""
    columns = [c.chunks for c in release.columns if c.attribute in grant.body.attributes]
    columns += [u.positions or () for u in release.uploads if u.curator == grant.body.curator]
    return {digest for chunks in columns for digest in chunks}
