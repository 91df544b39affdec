"""The secret of a study, to which every curator contributes: drawn, passed on and put together.

A contribution is on this computer's disk before anything refers to it, and is sealed to each of the
other curators.  Whatever is broken off can be done again: what was sent is not sent twice.
"""

from veiltab.crypto.derivation import secret_commitment
from veiltab.errors import HomeError, StateError
from veiltab.party.context import PartyContext
from veiltab.protocol.curator.agreement import (
    new_contribution,
    receive_secret,
    share_secret,
    study_secret,
)
from veiltab.remedies import Remedy
from veiltab.wire.contract import Contract


def share_contribution(context: PartyContext, contract: Contract) -> None:
    """Seal this curator's contribution to each of the others who does not have it yet.

    It is drawn and kept first, unless the home has it already.
    """
    study, me = contract.study_id, context.identity.party_id
    reached = {m.body.receiver for m in context.server.secrets(study) if m.body.sender == me}
    contribution = _keep_contribution(context, study, sent_before=bool(reached))
    for terms in contract.curators:
        if terms.party_id != me and terms.party_id not in reached:
            message = share_secret(
                contract,
                context.identity,
                contribution,
                terms.party_id,
                context.sealing_key(terms.identity),
            )
            context.server.send_secret(study, message)


def _keep_contribution(context: PartyContext, study: bytes, *, sent_before: bool) -> bytes:
    folder = context.home.study(study)
    contribution = folder.contribution()
    if contribution is not None:
        return contribution
    if sent_before:  # another one would not fit what the others have
        raise HomeError(
            "this home has lost its part of the study's secret, which was sent before",
            hint=f"restore the home from a copy, or {Remedy.ABORT_LOST}",
        )
    drawn = new_contribution(context.entropy)
    folder.save_contribution(drawn)
    return drawn


def is_proposer(context: PartyContext, contract: Contract) -> bool:
    """Tell whether the contract commits to this home's contribution."""
    contribution = context.home.study(contract.study_id).contribution()
    return (
        contribution is not None and secret_commitment(contribution) == contract.secret_commitment
    )


def combined_secret(context: PartyContext, contract: Contract) -> bytes:
    """Return the study's secret: from the home, or from what every curator has contributed."""
    folder, me = context.home.study(contract.study_id), context.identity.party_id
    saved = folder.secret()
    if saved is not None:
        return saved
    contribution = folder.contribution()
    contributions = {} if contribution is None else {me: contribution}
    for message in context.server.secrets(contract.study_id):
        if message.body.receiver == me:
            sender = message.body.sender
            contributions[sender] = receive_secret(contract, context.identity, message)
    missing = [t.identity.name for t in contract.curators if t.party_id not in contributions]
    if missing:
        raise StateError(
            f"the study's secret lacks the part of {', '.join(map(repr, missing))}",
            hint="each of them runs `veiltab study sign` again, which sends what is missing",
        )
    secret = study_secret(contract, contributions)
    folder.save_secret(secret)
    return secret
