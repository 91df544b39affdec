"""What proposals of studies and of vaults share: whom they may name, and what is kept of them."""

from veiltab.errors import QuotaError, UnknownPartyError
from veiltab.server.context import ServiceContext
from veiltab.server.db.lists import INBOX, LISTED
from veiltab.server.db.records import CURATOR, RESEARCHER, STUDY, Records, StudyRecord
from veiltab.server.parsed import PARSED
from veiltab.server.quotas import SECONDS_A_DAY, check_usage
from veiltab.wire.contract import Agreement, Contract, Vault
from veiltab.wire.signed import Signed
from veiltab.wire.states import State


def add_agreement(
    context: ServiceContext,
    records: Records,
    agreement: Agreement,
    proposer: bytes,
    *,
    kind: str = STUDY,
    vault: bytes | None = None,
) -> None:
    """Keep a new contract or vault without its signatures, which are added as a step of their own.

    It is in the inbox of everybody whom it names but its proposer.
    """
    _check_reach(records, agreement, proposer)
    now, contract = context.now, agreement if isinstance(agreement, Contract) else None
    records.add_study(
        StudyRecord(
            study=agreement.scope,
            title=agreement.title,
            contract=PARSED.keep(Signed(agreement, ())),
            state=str(State.PROPOSED),
            noise_key=None,
            reason=None,
            created=now,
            updated=now,
            kind=kind,
            vault=vault,
            proposer=proposer,
            any_researcher=contract is None or contract.researchers is None,
        )
    )
    for position, (path, party) in enumerate(agreement.parties()):
        if path != "server":
            records.add_member(
                agreement.scope,
                party.party_id,
                CURATOR if path.startswith("curators") else RESEARCHER,
                place=LISTED if party.party_id == proposer else INBOX,
                name=party.name,
                position=position,
                now=now,
            )
    _check_proposals(context, records, proposer)
    check_usage(context, records, proposer)


def note_signatures(records: Records, signed: Signed[Contract] | Signed[Vault]) -> None:
    """Write down who has signed, so that nobody need read the contract to know it."""
    keys = {signature.root for signature in signed.signatures}
    parties = [
        terms.party_id for terms in signed.body.curators if terms.identity.signing_key in keys
    ]
    records.save_signed(signed.body.scope, parties)


def _check_reach(records: Records, agreement: Agreement, sender: bytes) -> None:
    """Refuse a proposal to parties that are unknown, or that have blocked the sender.

    The answer is the same, so that nobody is told who has blocked them.
    """
    named = {party.party_id: party.name for path, party in agreement.parties() if path != "server"}
    named.pop(sender, None)
    missing = records.out_of_reach(list(named), sender)
    if missing:
        names = ", ".join(repr(named[party]) for party in named if party in missing)
        raise UnknownPartyError(
            f"{names} cannot be reached here",
            hint="ask them to register with this server, and whether they want to take part",
        )


def _check_proposals(context: ServiceContext, records: Records, party: bytes) -> None:
    """Refuse the proposal that was just added if its proposer has too many."""
    limits = context.settings
    records.lock_party(party)
    if records.open_proposals(party) > limits.open_proposals:
        raise QuotaError(
            f"{limits.open_proposals} of your proposals wait for signatures already",
            hint="abort those that nobody will sign, or wait until they are signed",
        )
    if records.proposals_since(party, context.now - SECONDS_A_DAY) > limits.daily_proposals:
        raise QuotaError(
            f"you have proposed {limits.daily_proposals} times within a day",
            hint="go on tomorrow; ask the operator if you really need more",
        )
