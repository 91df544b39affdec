"""Who may do what in a study, said before anything is read, asked or charged."""

from typing import TYPE_CHECKING

from veiltab.errors import RoleError
from veiltab.remedies import Remedy

if TYPE_CHECKING:  # commands import this before they know whether it is needed
    from veiltab.wire.contract import Contract, PublicIdentity


def check_curator(contract: "Contract", me: "PublicIdentity", doing: str) -> None:
    """Refuse to do for anybody else what only the curators of a study do."""
    curators = [terms.identity for terms in contract.curators]
    if me.party_id not in {curator.party_id for curator in curators}:
        raise RoleError(
            f"only the curators of {contract.title!r} {doing}, and you are not one of them:"
            f" {_names(curators)}",
            hint=f"{_own_part(contract, me)}; if you are a curator, {Remedy.THAT_HOME}",
        )


def check_researcher(contract: "Contract", me: "PublicIdentity") -> None:
    """Refuse an estimate by somebody whom the contract does not let be a researcher."""
    researchers = contract.researchers
    if researchers is None or me.party_id in {one.party_id for one in researchers}:
        return
    raise RoleError(
        f"only the researchers of {contract.title!r} estimate it, and you are not one of them:"
        f" {_names(researchers) or 'it has none'}",
        hint=f"{_own_part(contract, me)}; if you are a researcher, {Remedy.THAT_HOME}",
    )


def _own_part(contract: "Contract", me: "PublicIdentity") -> str:
    if me.party_id in {terms.party_id for terms in contract.curators}:
        return "as a curator you sign, push and grant, and the researchers whom you grant estimate"
    return "as a researcher you wait for the curators to sign, push and grant, and then estimate"


def _names(parties: "list[PublicIdentity] | tuple[PublicIdentity, ...]") -> str:
    return ", ".join(repr(party.name) for party in parties)
