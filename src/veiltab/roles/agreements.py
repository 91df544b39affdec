"""Contracts and vaults, as every party reads them: who must have signed, and for whom."""

from typing import TypeVar

from veiltab.core.plan import Plan, plan
from veiltab.errors import MismatchError, NotGrantedError
from veiltab.roles.signatures import verify
from veiltab.wire.agreement import Agreement
from veiltab.wire.contract import Accounting, Contract
from veiltab.wire.signed import Signed

AgreementType = TypeVar("AgreementType", bound=Agreement)


def verify_agreement(signed: Signed[AgreementType]) -> AgreementType:
    """Return a contract or vault that every curator has signed (spec 4, 12.1)."""
    return verify(signed, [terms.identity.signing_key for terms in signed.body.curators])


def plan_for(contract: Contract, population_size: int) -> Plan:
    """Return the plan for the study, once the number of respondents is known (spec 4.1)."""
    if contract.population not in (None, population_size):
        raise MismatchError(
            f"the contract is about {contract.population} respondents, not {population_size}",
            hint="check that every curator uses the table that was agreed on",
        )
    size = contract.sampling.size
    if size is None and contract.delta > 0:
        size = population_size  # shuffling gains most from everybody, and all parties must agree
    if size is not None and size > population_size:
        raise MismatchError(
            f"the contract asks for a sample of {size}, and there are {population_size}"
            " respondents in common",
            hint="propose a study with a smaller sample",
        )
    return plan(
        population_size=population_size,
        domain_size=contract.schema.domain_size,
        epsilon=contract.epsilon,
        delta=contract.delta,
        sample_size=size,
    )


def accounting_id(chosen: Plan) -> Accounting:
    """Return how messages name the plan's accounting, with its version (spec 4.1)."""
    return "pure-1" if chosen.accounting == "pure" else "shuffle-1"


def check_researcher(contract: Contract, party_id: bytes) -> None:
    """Refuse a researcher whom the contract does not name, if it names any (spec 4)."""
    named = contract.researchers
    if named is not None and party_id not in {researcher.party_id for researcher in named}:
        raise NotGrantedError(
            f"{party_id.hex()} is no researcher of {contract.title!r}",
            hint="only the researchers named in the contract can be granted access",
        )
