"""Refunds: what a data set was charged for a study that ended before anything could be learnt.

A refund is sound because of what this home has done, and not because of what the server says:

* *nothing-sent*: nothing that depends on a value of the table has left this home, nor, where the
  server matches, on whom it holds; and from now on nothing will.  Whatever anybody else does, they
  cannot learn from what was never sent.
* *never-granted*: an upload may have left, under pads of which nobody was ever given any.  They are
  deleted, and without them the rows are uniformly random to everybody (spec 6).  All curators hold
  the same respondents here, so that nobody else's rows depend on this table either.  Where the
  server matches, they do: tokens tell whom this curator holds, and there is no refund.

The home decides about both.  But a home may have been restored from an old copy, and have forgotten
what it has sent or granted: so the server's signed log and its list of grants must not say
otherwise, and the study must have ended in the log, without a release.

The order survives a crash, and another command of this home at the same time.  First the ledger
refuses the study for ever, while the charge still counts; then it is looked again whether something
was granted or answered meanwhile (who does keeps that first, and looks at the ledger after that);
then the pads are deleted; then the charge stops counting.  A push looks at the ledger under the
lock that a refund holds: one that has waited for it finds the study refused.
"""

from veiltab.errors import BudgetError, NotFoundError, StateError
from veiltab.files.private import locked
from veiltab.party.context import PartyContext
from veiltab.party.evidence import read_whole_log
from veiltab.party.ledgers import StoredLedger
from veiltab.party.sending import LOCK_WAIT
from veiltab.party.study_folder import StudyFolder
from veiltab.party.vaults.answers import answer_folder
from veiltab.protocol import logged as log
from veiltab.protocol.curator.ledger import Basis, Refund
from veiltab.protocol.logged import Logged
from veiltab.protocol.stores import MemoryChunks
from veiltab.remedies import Remedy
from veiltab.wire.audit import AuditEntry
from veiltab.wire.codec import check_typed
from veiltab.wire.contract import Contract
from veiltab.wire.states import AuditEvent, State

_HINT = "what may be refunded, and why, is in the guide to privacy budgets"


def refund(context: PartyContext, study: bytes, reason: str) -> StoredLedger:
    """Take back what a study was charged, if it ended before anything of it could be learnt.

    The charge stays visible, with the refund beside it.  The same call again finishes a refund that
    was interrupted.
    """
    check_typed(reason, "the reason")
    home, folder = context.home, context.home.study(study)
    with home.lock():
        stored = home.ledgers.ledger_of(study)
        signed = folder.contract()
        if stored is None or signed is None:
            raise BudgetError(
                "this study is not charged to any data set of this home",
                hint=Remedy.SEE_CHARGED,
            )
        earlier = stored.ledger.refund_of(study)
        if earlier is not None and earlier.done:
            raise StateError(
                f"this study was refunded already: {earlier.reason}", hint=Remedy.SEE_LEDGER
            )
        with locked(folder.path / "lock", LOCK_WAIT):  # no push of it is under way
            _check_nothing_given(context, signed.body, folder)
            logged = _read_ended_log(context, signed.body, folder)
            if earlier is None:
                made = Refund(
                    study=study,
                    reason=reason,
                    at=context.now,
                    basis=_basis(context, signed.body, folder, logged),
                    log=None if logged is None else logged.seen,
                )
                stored = home.ledgers.save(stored.ledger.begin_refund(made))
            _check_nothing_given(context, signed.body, folder)
            folder.forget_pads()
            return home.ledgers.save(stored.ledger.finish_refund(study))


def _check_nothing_given(context: PartyContext, contract: Contract, folder: StudyFolder) -> None:
    """Refuse a study for which this home has given out pads, or made a grant that may do so."""
    if folder.grants():
        raise _refused("you have given a grant of it")
    if contract.stored is None:
        return
    if answer_folder(context, contract).answer(contract.study_id) is not None:
        raise _refused("you have answered it with new pads")


def _read_ended_log(
    context: PartyContext, contract: Contract, folder: StudyFolder
) -> Logged | None:
    """Return what is logged of a study that ended without a release; ``None`` if it never began."""
    study, me = contract.study_id, context.identity.party_id
    try:
        context.contract(study)
    except NotFoundError:
        if folder.log.read() is not None:
            raise _refused("the server does not know it any more") from None
        return None
    entries, _, logged = read_whole_log(context, contract)
    _check_ended(entries, logged, me)
    if any(grant.body.curator == me for grant in context.server.grants(study)):
        raise _refused("you have given a grant of it, perhaps from another copy of this home")
    return logged


def _check_ended(entries: list[AuditEntry], logged: Logged, me: bytes) -> None:
    if logged.release is not None:
        raise _refused("it was released")
    if any(e.event == AuditEvent.GRANTED and e.actor == me for e in entries):
        raise _refused("its log has a grant by you")
    if entries[-1].state != State.ABORTED:
        raise StateError(
            f"the study is {entries[-1].state}, and can still go on",
            hint=Remedy.ABORT,
        )


def _basis(
    context: PartyContext, contract: Contract, folder: StudyFolder, logged: Logged | None
) -> Basis:
    """Return why the refund is sound; refuse it where anybody may have learnt something."""
    me = context.identity.party_id
    if contract.stored is not None and logged is not None and logged.requests:
        raise _refused("rows of stored tables were drawn for it, which tells whom all hold")
    prepared = folder.prepared(contract.schema_of(me), MemoryChunks())
    uploaded = None if logged is None else logged.uploads.get(me)
    if prepared is None:
        if uploaded is not None:
            raise _refused("its log has an upload by you that this home does not have")
        return "nothing-sent"
    if contract.matched:
        raise _refused("you have pushed a table, whose tokens tell whom you hold")
    if logged is not None and uploaded is not None:
        log.check_upload(logged, prepared.message)
    return "never-granted"


def _refused(why: str) -> StateError:
    return StateError(f"this study cannot be refunded: {why}", hint=_HINT)
