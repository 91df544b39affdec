"""What the operator does with parties and studies, whether the server runs or not."""

from collections.abc import Callable
from dataclasses import dataclass

from veiltab.errors import NotFoundError, ParameterError
from veiltab.server.context import ServiceContext
from veiltab.server.db.operators import OperatorLine, PartyLine
from veiltab.server.housekeeping import end
from veiltab.server.quotas import disk_quota, reserve_bytes
from veiltab.wire.titles import candidates, find

LEAST_DIGITS = 4


@dataclass(frozen=True, slots=True)
class PartyUse:
    """What a party uses of the server."""

    open_proposals: int
    message_bytes: int
    chunk_bytes: int


@dataclass(frozen=True, slots=True)
class Disk:
    """How full the server's disk is, and what is kept free."""

    total: int
    free: int
    reserve: int
    quota: int
    ballast: bool


def find_party(
    context: ServiceContext, text: str, fingerprint: Callable[[bytes], str]
) -> PartyLine:
    """Find a party by its exact name, its fingerprint, or the first digits of its id."""
    with context.database.reading() as records:
        parties = records.party_lines()
    digits = "".join(text.split())
    matching = [
        party
        for party in parties
        if party.name == text
        or "".join(fingerprint(party.party).split()) == digits
        or (len(digits) >= LEAST_DIGITS and party.party.hex().startswith(digits.lower()))
    ]
    if not matching:
        raise NotFoundError(
            f"no party matches {text!r}",
            hint="'veiltab server party list', with the same --data, shows all names and ids",
        )
    if len(matching) > 1:
        raise ParameterError(
            f"{len(matching)} parties match {text!r}"
            f"{candidates({party.party: party.name for party in matching}, most=None)}",
            hint="give the fingerprint, or more digits of the id",
        )
    return matching[0]


def find_study(context: ServiceContext, text: str) -> OperatorLine:
    """Find a study or vault by its title or the beginning of it, or the first digits of its id."""
    with context.database.reading() as records:
        lines = {line.study: line for line in records.study_lines()}
    matches, titles = find(text, {study: line.title for study, line in lines.items()})
    if not matches:
        raise NotFoundError(
            f"no study or vault matches {text!r}",
            hint="'veiltab server study list' shows all of them",
        )
    if len(matches) > 1:
        shown = candidates({study: titles[study] for study in matches}, most=None)
        raise ParameterError(
            f"{len(matches)} studies match {text!r}{shown}",
            hint="give more of the title, or more digits of the id",
        )
    return lines[matches[0]]


def party_use(context: ServiceContext, party: bytes) -> PartyUse:
    """Return what a party uses of its quotas."""
    with context.database.reading() as records:
        return PartyUse(
            records.open_proposals(party), records.message_bytes(party), records.held_bytes(party)
        )


def set_banned(context: ServiceContext, party: bytes, *, banned: bool) -> None:
    """Refuse a party from now on as if it were unknown, or allow it again."""
    with context.database.transaction() as records:
        records.set_banned(party, context.now if banned else None)


def remove_party(context: ServiceContext, party: bytes) -> list[bytes]:
    """Forget a party, and end its proposals that wait for signatures; return these."""
    with context.database.transaction() as records:
        records.remove_party(party)
        lines = records.study_lines(party)
    waiting = [line.study for line in lines if line.proposer == party and line.state == "proposed"]
    for study in waiting:
        end(context, study, "its proposer was removed", unsigned=True)
    return waiting


def disk_of(context: ServiceContext) -> Disk:
    """Measure the disk."""
    folders = context.folders
    return Disk(
        folders.total_bytes(),
        folders.free_bytes(),
        reserve_bytes(context),
        disk_quota(context),
        folders.has_ballast(),
    )
