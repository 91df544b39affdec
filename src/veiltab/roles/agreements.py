"""Contracts and vaults, as every party reads them: who must have signed, and for whom."""

from typing import TypeVar

from veiltab.core.plan import Plan, plan
from veiltab.errors import MismatchError, NotGrantedError
from veiltab.roles.signatures import verify
from veiltab.wire.contract import ACCOUNTING, Accounting, Agreement, Contract, Vault
from veiltab.wire.signed import Signed

AgreementType = TypeVar("AgreementType", bound=Agreement)


def verify_agreement(signed: Signed[AgreementType]) -> AgreementType:
    """Return a contract or vault that every curator has signed (spec 4, 12.1)."""
    return verify(signed, [terms.identity.signing_key for terms in signed.body.curators])


def planned_sample_size(contract: Contract, population_size: int) -> int:
    """Return how many respondents are sampled, without planning the noise if that is slow."""
    size = _stated_size(contract, population_size)
    return plan_for(contract, population_size).sample_size if size is None else size


def plan_for(contract: Contract, population_size: int) -> Plan:
    """Return the plan for the study, once the number of respondents is known (spec 4.1)."""
    return plan(
        population_size=population_size,
        domain_size=contract.schema.domain_size,
        epsilon=contract.epsilon,
        delta=contract.delta,
        sample_size=_stated_size(contract, population_size),
    )


def _stated_size(contract: Contract, population_size: int) -> int | None:
    """Return the sample size if the contract fixes it; check that it can be drawn."""
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
    return size


def accounting_id(chosen: Plan) -> Accounting:
    """Return how messages name the plan's accounting, with its version (spec 4.1)."""
    return ACCOUNTING.read(f"{chosen.accounting}-{chosen.accounting_version}", "accounting")


def check_researcher(contract: Contract, party_id: bytes) -> None:
    """Refuse a researcher whom the contract does not name, if it names any (spec 4).

    Neither a curator, who knows the order, nor the server can be one.
    """
    others = [contract.server, *(terms.identity for terms in contract.curators)]
    if party_id in {other.party_id for other in others}:
        raise NotGrantedError(
            "a curator or the server of a study cannot be its researcher",
            hint="grant access to somebody who has no other part in the study",
        )
    named = contract.researchers
    if named is not None and party_id not in {researcher.party_id for researcher in named}:
        raise NotGrantedError(
            f"{party_id.hex()} is no researcher of {contract.title!r}",
            hint="only the researchers named in the contract can be granted access",
        )


def check_vault(contract: Contract, vault: Vault) -> None:
    """Refuse a study that does not read this vault, or on other terms than the vault's (12.1)."""
    if contract.stored is None or contract.stored.vault != vault.vault_id:
        raise MismatchError(
            "the contract does not read this vault",
            hint="use the vault that the contract names",
        )
    shared = ("curators", "linkage", "server", "secret_commitment")
    different = [name for name in shared if getattr(contract, name) != getattr(vault, name)]
    if different:
        raise MismatchError(
            f"the contract and its vault differ in {', '.join(different)}",
            hint="propose the study with exactly the vault's parties and terms",
        )
