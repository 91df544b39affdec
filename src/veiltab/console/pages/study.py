"""One study: where it stands, its terms, who could learn what, and what may be done now."""

from collections.abc import Callable
from dataclasses import dataclass

from fastapi import APIRouter, Request
from starlette.responses import Response

from veiltab.console.forms import Form, Typed
from veiltab.console.pages.actions import act, typed_before
from veiltab.console.pages.inbox import EXPLORE, my_step, others
from veiltab.console.pages.ledger import odds, refunded
from veiltab.console.rendering import Failure, render
from veiltab.core.overlap import LEVEL
from veiltab.errors import InputError, VeiltabError
from veiltab.party.alignments import AlignmentStatus
from veiltab.party.coalitions import coalitions
from veiltab.party.grants import notices, party_names
from veiltab.party.home import Home
from veiltab.party.known.known import Acquaintance, Standing, acquaintances, is_verified
from veiltab.party.known.names import readable
from veiltab.party.remote import Status
from veiltab.party.session import Session
from veiltab.party.study import Study
from veiltab.party.terms import (
    budgets,
    called,
    signers,
    study_facts,
    warnings_of,
)
from veiltab.party.witnesses import Audit
from veiltab.wire.audit import AuditEntry
from veiltab.wire.contract import Contract, PublicIdentity
from veiltab.wire.states import IN_ORDER, AuditEvent, State

router = APIRouter()

STEPS = {
    State.PROPOSED: "Proposed",
    State.OPEN: "Signed by all",
    State.UPLOADED: "Tables pushed",
    State.RELEASED: "Released",
}
"""The states that a study goes through, as the line of steps shows them."""

COMPARED = {
    None: "pinned",
    Standing.YOU: "you",
    Standing.VERIFIED: "yes",
    Standing.UNVERIFIED: "no",
    Standing.NEW: "no",
    Standing.BLOCKED: "blocked by you",
    Standing.REVOKED: "keys revoked",
    Standing.CHANGED: "THE KEY HAS CHANGED",
}
"""Whether somebody has compared a party's fingerprint, in words."""


@dataclass(frozen=True, slots=True)
class Step:
    """One point on the line of steps."""

    words: str
    reached: bool
    current: bool


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the audit log: who has done what, and whether we know them."""

    entry: AuditEntry
    who: str
    compared: str
    what: str


@router.get("/studies/{study_id}")
def show(request: Request, study_id: str) -> Response:
    """Show everything about a study."""
    return study_page(request, study_id, None, typed_before(request))


@router.post("/studies/{study_id}/sign")
def sign(request: Request, study_id: str) -> Response:
    """Sign it, and charge it to a data set."""

    def carry_out(form: Form, session: Session) -> str:
        study = session.study(study_id)
        study.sign(form.text("dataset") or None)
        charged = session.home.ledgers.ledger_of(bytes.fromhex(study.id))
        dataset = "your data set" if charged is None else charged.ledger.dataset
        return f"You have signed, and the study is charged to {readable(dataset)}."

    return do(request, study_id, "sign", carry_out)


@router.post("/studies/{study_id}/abort")
def abort(request: Request, study_id: str) -> Response:
    """End it for everybody."""

    def carry_out(form: Form, session: Session) -> str:
        if not form.text("reason"):
            raise InputError("a reason is missing", hint="say in a few words why the study ends")
        session.study(study_id).abort(form.text("reason"))
        return "The study is ended, for everybody in it."

    return do(request, study_id, "abort", carry_out)


@router.post("/studies/{study_id}/refund")
def refund(request: Request, study_id: str) -> Response:
    """Take back what it has cost a data set, if nobody could learn anything."""

    def carry_out(form: Form, session: Session) -> str:
        return refunded(session.study(study_id).refund(form.text("reason")))

    return do(request, study_id, "refund", carry_out)


@router.post("/studies/{study_id}/verify")
def verify(request: Request, study_id: str) -> Response:
    """Remember that somebody has compared the fingerprint of a party of this study."""
    party = Form.of(request).text("party")

    def carry_out(form: Form, session: Session) -> str:
        identity = _named(session.study(study_id), party)
        known = session.home.known
        verified = known.verify(identity, form.text("digits"), name=form.text("name") or None)
        return f"You have compared the fingerprint of {readable(verified.name)}."

    return do(request, study_id, f"verify-{party}", carry_out)


def _named(study: Study, party: str) -> PublicIdentity:
    """Return the party of a study with this id."""
    for one in study.parties():
        if one.identity.party_id.hex() == party:
            return one.identity
    raise InputError("the study names no such party", hint="load the page again")


def do(
    request: Request, study_id: str, name: str, carry_out: Callable[[Form, Session], str]
) -> Response:
    """Carry out a form of the study's page."""

    def work(form: Form) -> str:
        with request.app.state.console.party.session() as session:
            return carry_out(form, session)

    def page(failure: Failure, typed: Typed) -> Response:
        return study_page(request, study_id, failure, typed)

    return act(request, name, work, back=f"/studies/{study_id}", page=page)


def study_page(request: Request, study_id: str, failure: Failure | None, typed: Typed) -> Response:
    """Show the page, with what went wrong and what was typed."""
    state = request.app.state.console
    with state.party.session() as session:
        study = session.study(study_id)
        values = _values(session, study)
    return render(
        request,
        "study.html",
        200 if failure is None else 409,
        failure=failure,
        typed=typed,
        task=state.tasks.get(f"push {study.id}"),
        **values,
    )


def _values(session: Session, study: Study) -> dict[str, object]:
    signed, status, home = study.contract(), study.status(), session.home
    contract = signed.body
    me, mine = session.identity.party_id, my_step(status, home)
    ledger = home.ledgers.ledger_of(contract.study_id)
    log = _audit(study)
    grants = log.grants if isinstance(log, Audit) else ()
    return {
        "study": study,
        "status": status,
        "steps": _steps(_reached(status.state, log)),
        "ended": status.state not in IN_ORDER,
        "mine": mine,
        "mine_is_at": f"/explore/{study.id}" if mine == EXPLORE else "#act",
        "me": me,
        "pushed": any(one.party == me and one.uploaded for one in status.curators),
        "prepared": home.study(contract.study_id).has_prepared,
        "waits_for": others(status, home),
        "signers": signers(signed),
        **terms_values(contract, home),
        "charged_to": ledger,
        "refund": home.ledgers.refund_of(contract.study_id),
        "alignment": _alignment(study, status),
        "in_common": _in_common(study, status),
        "grants": grants,
        "revocable": {
            one.grant.researcher.hex(): one.researcher
            for one in grants
            if one.grant.curator == me and one.state == "good"
        },
        "notices": notices(grants, me),
        "log": log,
        "events": _events(log, session, study) if isinstance(log, Audit) else [],
    }


def terms_values(contract: Contract, home: Home, expected: int | None = None) -> dict[str, object]:
    """Return what a page shows of terms, whether they are signed, proposed or only drafted.

    ``expected`` is about how many respondents there are, if the terms do not state it.
    """
    parties = [(one, called(one)) for one in acquaintances(home, contract)]
    return {
        "contract": contract,
        "odds": odds,
        "facts": study_facts(contract, home, expected),
        "warnings": warnings_of(contract, expected),
        "coalitions": coalitions(contract),
        "parties": parties,
        "compared": COMPARED,
        "strangers": [pair for pair in parties if COMPARED[pair[0].standing] == "no"],
        "refused": list(filter(None, (_refusal(home, one) for one, _ in parties))),
        "budgets": budgets(contract, home),
    }


def _audit(study: Study) -> Audit | Failure:
    """Return the audit log, or the failure to show in its place."""
    try:
        return study.audit()
    except VeiltabError as error:
        return Failure.of(error)


def _alignment(study: Study, status: Status) -> AlignmentStatus | Failure | None:
    """Return whether the curators hold the same respondents, while tables are pushed."""
    if status.state != State.OPEN:
        return None
    try:
        return study.alignment()
    except VeiltabError as error:
        return Failure.of(error)


def _in_common(study: Study, status: Status) -> str | Failure | None:
    """Return the answer of an overlap count that is released; other studies have none."""
    if status.state != State.RELEASED or study.terms.overlap is None:
        return None
    try:
        counted = study.overlap()
    except VeiltabError as error:
        return Failure.of(error)
    low, high = counted.interval()
    return (
        f"About {counted.people:,.0f} people: from {low:,.0f} to {high:,.0f}, which holds the truth"
        f" in {100 * LEVEL:g} of 100 counts."
    )


def _refusal(home: Home, one: Acquaintance) -> Failure | None:
    """Return why nothing would be signed or sent that names this party."""
    if one.standing not in (Standing.BLOCKED, Standing.CHANGED, Standing.REVOKED):
        return None
    try:
        home.known.check([one.identity])
    except VeiltabError as error:
        return Failure.of(error)
    return None


def _events(audit: Audit, session: Session, study: Study) -> list[Event]:
    """Name who has done what; of a grant, to whom it was and of which attributes."""
    contract, home = study.terms, session.home
    names, server = party_names(home, contract), contract.server.party_id
    me = home.public.party_id

    def compared(party: bytes) -> str:
        if party == server:
            return COMPARED[None]
        return "you" if party == me else "yes" if is_verified(home, party) else "no"

    return [
        Event(
            entry=entry,
            who=names.get(entry.actor, entry.actor.hex()[:16]),
            compared=compared(entry.actor),
            what=_what(audit, entry),
        )
        for entry in audit.entries
    ]


def _what(audit: Audit, entry: AuditEntry) -> str:
    one = audit.grant_of(entry)
    if one is None:
        return entry.event
    way = "from" if entry.event == AuditEvent.REVOKED else "to"
    return f"{entry.event}: {', '.join(one.attributes)}, {way} {one.researcher}"


def _reached(state: str, log: Audit | Failure) -> str:
    """Return how far a study is; of one that was ended, how far it was, as its log says."""
    if state in IN_ORDER or not isinstance(log, Audit):
        return state
    before = [entry.state for entry in log.entries if entry.state in IN_ORDER]
    return before[-1] if before else state


def _steps(state: str) -> list[Step]:
    order = list(IN_ORDER)
    at = order.index(state) if state in order else -1
    reached = [name for name in STEPS if order.index(name) <= at]
    # Between two of them, such as while the server joins the tables, the study stands at the first.
    return [Step(words, name in reached, reached[-1:] == [name]) for name, words in STEPS.items()]
