"""Many proposals at little cost, such as one party makes to plague another."""

from veiltab.core.schema import Attribute
from veiltab.party.context import PartyContext
from veiltab.protocol.curator.agreement import public_identity, unsigned
from veiltab.protocol.verify import cosign
from veiltab.wire.contract import Contract, CuratorTerms, Linkage
from veiltab.wire.mechanism import PaperTerms
from veiltab.wire.signed import Signed


def proposal(
    proposer: PartyContext,
    *others: PartyContext,
    number: int = 0,
    title: str = "a study",
    attributes: tuple[Attribute, ...] = (Attribute("smoker", ("no", "yes")),),
    researchers: tuple[PartyContext, ...] | None = None,
) -> Signed[Contract]:
    """Return a contract that its proposer alone has signed; the number makes it a new one."""
    named = [
        CuratorTerms(public_identity(other.identity), (Attribute(f"held {place}", ("no", "yes")),))
        for place, other in enumerate(others)
    ]
    contract = Contract(
        title=title,
        nonce=number.to_bytes(16),
        curators=(CuratorTerms(public_identity(proposer.identity), attributes), *named),
        server=proposer.server.pinned,
        linkage=Linkage.by_ids(),
        secret_commitment=bytes(32),
        researchers=None
        if researchers is None
        else tuple(public_identity(each.identity) for each in researchers),
        epsilon=1.0,
        delta=0.0,
        accounting="pure-1",
        mechanism=PaperTerms(None),
        population=None,
        pads="stream",
        stored=None,
    )
    return cosign(unsigned(contract), proposer.identity.signing)
