"""Who can read what of a study, until when; and how a curator takes that back.

What a server says of grants counts only if a curator has signed it and the log has it: it can
neither make up a grant or a revocation, nor hide one that it has logged.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from veiltab.crypto.identity import fingerprint
from veiltab.errors import AuditError, InputError, NotFoundError, NotGrantedError
from veiltab.files.disk import is_file
from veiltab.party.context import PartyContext
from veiltab.party.evidence import read_log
from veiltab.party.home import Home, read_identity
from veiltab.party.times import SECONDS_A_DAY, in_days, moment
from veiltab.protocol.curator.grant import revoke as make_revocation
from veiltab.protocol.logged import Logged, check_grant
from veiltab.protocol.verify import may_see_release, verify, verify_revocation
from veiltab.remedies import Remedy
from veiltab.wire.contract import Contract, PublicIdentity
from veiltab.wire.messages import Grant, GrantRevocation, SignedGrant
from veiltab.wire.signed import digest

NOTICE_DAYS = 7
"""So many days before a grant ends, its curator and its researcher are warned."""

CANNOT_UNDO = (
    "What was downloaded, estimated or published before stays with whoever has it; the server"
    " serves nothing more"
)
"""What every revocation comes with."""

Standing = Literal["good", "expired", "revoked"]


@dataclass(frozen=True, slots=True)
class GrantStatus:
    """A grant as it stands: who has let whom read what, until when."""

    title: str
    """The title of the study."""
    grant: Grant
    curator: str
    """The name of the curator who gave it."""
    researcher: str
    """The name of whoever may read, or its fingerprint where no name is known."""
    revoked: int | None
    """When the curator took it back, in seconds since 1970, if it has."""
    now: int

    @property
    def id(self) -> str:
        """What tells this grant from others, in hexadecimal digits."""
        return self.grant.grant_id.hex()

    @property
    def attributes(self) -> tuple[str, ...]:
        """The attributes that the researcher can decrypt."""
        return self.grant.attributes

    @property
    def expires(self) -> int:
        """Until when the server serves it, in seconds since 1970, unless it was revoked."""
        return self.grant.expires

    @property
    def state(self) -> Standing:
        """``good``, ``expired`` or ``revoked``."""
        if self.revoked is not None:
            return "revoked"
        return "good" if self.expires > self.now else "expired"

    @property
    def ended(self) -> str:
        """Say how and when it ended."""
        return f"{self.state} {moment(self.expires if self.revoked is None else self.revoked)}"


def list_grants(context: PartyContext, contract: Contract) -> list[GrantStatus]:
    """Return to a curator all grants of the study, and to a researcher its own, by their end."""
    logged = read_log(context, contract)
    grants = _seen_grants(context, contract, logged)
    return _statuses(context, contract, logged, grants)


def own_grants(context: PartyContext, contract: Contract, logged: Logged) -> list[SignedGrant]:
    """Return the grants that this curator has given, from this home or from another one.

    One that was made and never sent is among them.
    """
    me, study = context.identity.party_id, contract.study_id
    kept = {grant.signed.digest: grant for grant in context.home.study(study).grants()}
    elsewhere = [d for d, curator in logged.grants.items() if curator == me and d not in kept]
    fetched = [_header(context, contract, logged, one) for one in elsewhere]
    return [*kept.values(), *fetched]


def is_revoked(context: PartyContext, logged: Logged, grant: Grant) -> bool:
    """Tell a curator whether it has revoked its own grant, also if the server hides that."""
    revocation = GrantRevocation.of(grant)
    here = context.home.study(grant.study).revocations()
    return digest(revocation) in logged.revoked or revocation in (one.body for one in here)


def revoke(
    context: PartyContext, contract: Contract, researcher: str | PublicIdentity
) -> list[GrantStatus]:
    """Take back all grants of this curator to a researcher, and return them as they stand then.

    Once more, it changes nothing.  A server that takes a revocation without writing it into the log
    is refused: what is not in the log may be denied later.
    """
    logged, folder = read_log(context, contract), context.home.study(contract.study_id)
    given = own_grants(context, contract, logged)
    to = _find_researcher(context, contract, given, researcher)
    grants = [grant for grant in given if grant.body.researcher == to]
    for grant in grants:
        if digest(GrantRevocation.of(grant.body)) not in logged.revoked:
            revocation = make_revocation(context.identity, grant.body)
            folder.save_revocation(revocation)
            context.server.send_revocation(contract.study_id, revocation)
    logged = read_log(context, contract)
    for grant in grants:
        if digest(GrantRevocation.of(grant.body)) not in logged.revoked:
            raise AuditError(
                "the server has taken the revocation, and not written it into the audit log",
                hint="do not rely on it: the server may go on serving; ask its operator, and show"
                " the log to the other curators",
            )
    return _statuses(context, contract, logged, grants)


def attributes_left(
    contract: Contract,
    grants: Sequence[GrantStatus],
    wanted: Sequence[str] | None,
    *,
    partial: bool,
) -> Sequence[str] | None:
    """Return the attributes to estimate: those wanted, or all that are granted (``None``).

    What a grant once covered, and none covers any more, is an error, or with ``partial`` left out.
    Where the release is served with a grant of every curator, nothing can be estimated without one.
    """
    ended = {
        one: missing
        for one, names in ended_attributes(grants).items()
        if (missing := [name for name in names if wanted is None or name in wanted])
    }
    good = {name: None for one in grants if one.state == "good" for name in one.attributes}
    given = {one.grant.curator for one in grants if one.state == "good"}
    closed = any(
        one.grant.curator not in given and not may_see_release(contract, one.grant.curator)
        for one in ended_attributes(grants)
    )
    left = [] if closed else [name for name in wanted or good if name in good]
    if ended and not (partial and left):
        raise _ended(ended, left, closed=closed)
    gone = {name for names in ended.values() for name in names}
    return wanted if wanted is None else [name for name in wanted if name not in gone]


def ended_attributes(grants: Iterable[GrantStatus]) -> dict[GrantStatus, list[str]]:
    """Return what ended grants covered and no good one covers, by the last grant of each."""
    seen = list(grants)
    good = {name for one in seen if one.state == "good" for name in one.attributes}
    last = {name: one for one in seen for name in one.attributes if name not in good}
    names: dict[GrantStatus, list[str]] = defaultdict(list)
    for name, one in last.items():
        names[one].append(name)
    return names


def _ended(
    ended: Mapping[GrantStatus, list[str]], left: Sequence[str], *, closed: bool
) -> NotGrantedError:
    """Name what is missing, why, whom to ask, and what can be done without."""
    which = "; ".join(
        f"{_quoted(missing)} of {one.curator!r} ({one.ended})" for one, missing in ended.items()
    )
    curators = _quoted(dict.fromkeys(one.curator for one in ended))
    hint = f"ask {curators} for a new one"
    if closed:
        hint += "; nothing of this study can be read without a grant of every curator"
    if left:
        hint += f"; or estimate {_quoted(left)} alone, {Remedy.PARTIAL}"
    return NotGrantedError(f"no grant is good any more for {which}", hint=hint)


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))


def notices(grants: Iterable[GrantStatus], me: bytes) -> list[str]:
    """Say which of a party's own grants end within a week, if no longer one covers the same."""
    last: dict[tuple[bytes, bytes, str], GrantStatus] = {}
    for one in grants:
        body = one.grant
        for name in one.attributes if one.state == "good" else ():
            key = (body.curator, body.researcher, name)
            if key not in last or last[key].expires < one.expires:
                last[key] = one
    names: dict[GrantStatus, list[str]] = defaultdict(list)
    for (curator, researcher, name), one in last.items():
        soon = one.expires - one.now <= NOTICE_DAYS * SECONDS_A_DAY
        if soon and me in (curator, researcher):
            names[one].append(name)
    return [_notice(one, _quoted(soon), me) for one, soon in names.items()]


def _notice(one: GrantStatus, names: str, me: bytes) -> str:
    when = f"ends {in_days(one.expires - one.now)}, on {moment(one.expires)}"
    if one.grant.curator == me:
        return f"your grant of {names} to {one.researcher!r} {when}; grant again if need be"
    return f"the grant of {names} by {one.curator!r} {when}; ask for a new one in time"


def party_names(home: Home, contract: Contract) -> dict[bytes, str]:
    """Return the names in the contract, and of others, such as researchers, those known here."""
    known = {party.party_id: party.name for party in home.known.parties()}
    return known | {identity.party_id: identity.name for _, identity in contract.parties()}


def _seen_grants(context: PartyContext, contract: Contract, logged: Logged) -> list[SignedGrant]:
    """Return the grants that this party may see, each signed by its curator and in the log."""
    me = context.identity.party_id
    if me in {terms.party_id for terms in contract.curators}:
        folder = context.home.study(contract.study_id)
        kept = {grant.signed.digest: grant for grant in folder.grants()}
        return [kept.get(d) or _header(context, contract, logged, d) for d in logged.grants]
    grants = context.server.grants(contract.study_id)
    for grant in grants:
        _check(contract, logged, grant)
    return [grant for grant in grants if grant.body.researcher == me]


def _header(
    context: PartyContext, contract: Contract, logged: Logged, digest_: bytes
) -> SignedGrant:
    try:
        grant = context.server.grant_header(contract.study_id, digest_)
    except NotFoundError as error:
        raise _hidden("a grant", digest_) from error
    _check(contract, logged, grant)
    return grant


def _check(contract: Contract, logged: Logged, grant: SignedGrant) -> None:
    verify(grant.signed, [contract.curator(grant.body.curator).identity.signing_key])
    check_grant(logged, grant)


def _statuses(
    context: PartyContext, contract: Contract, logged: Logged, grants: Iterable[SignedGrant]
) -> list[GrantStatus]:
    names = party_names(context.home, contract)
    statuses = [
        GrantStatus(
            title=contract.title,
            grant=body,
            curator=names[body.curator],
            researcher=names.get(body.researcher, fingerprint(body.researcher)),
            revoked=_revoked(context, contract, logged, body),
            now=context.now,
        )
        for body in (grant.body for grant in grants)
    ]
    return sorted(statuses, key=lambda one: (one.expires, one.grant.grant_id))


def _revoked(context: PartyContext, contract: Contract, logged: Logged, grant: Grant) -> int | None:
    """Return when a grant was revoked, if its curator's signature shows that it was."""
    study, revocation = contract.study_id, digest(GrantRevocation.of(grant))
    at = logged.revoked.get(revocation)
    if at is None:
        return None
    here = {one.digest: one for one in context.home.study(study).revocations()}
    try:
        signed = here.get(revocation) or context.server.revocation(study, revocation)
    except NotFoundError as error:
        raise _hidden("a revocation", revocation) from error
    verify_revocation(contract, signed, grant)
    return at


def _hidden(what: str, of: bytes) -> AuditError:
    return AuditError(
        f"the audit log has {what} with the digest {of.hex()}, and the server does not show it",
        hint="compare logs with the other parties (veiltab audit STUDY), and ask the operator",
    )


def _find_researcher(
    context: PartyContext,
    contract: Contract,
    given: Iterable[SignedGrant],
    researcher: str | PublicIdentity,
) -> bytes:
    """Find whose grants are meant: an identity, its file, its name, or its party id."""
    if isinstance(researcher, str) and is_file(researcher):
        researcher = read_identity(Path(researcher))
    ids = list(dict.fromkeys(grant.body.researcher for grant in given))
    names = party_names(context.home, contract)
    if isinstance(researcher, PublicIdentity):
        text, matches = researcher.name, [one for one in ids if one == researcher.party_id]
    else:
        text = researcher
        matches = [one for one in ids if text in (names.get(one), one.hex(), fingerprint(one))]
    if len(matches) == 1:
        return matches[0]
    listed = ", ".join(f"{names.get(one, 'somebody')!r} ({fingerprint(one)})" for one in ids)
    raise InputError(
        f"you have given no grant of {contract.title!r} to anybody called {text!r}, or to"
        " several of that name",
        hint=f"you have given grants to: {listed}" if listed else "you have given none to anybody",
    )
