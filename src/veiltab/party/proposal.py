"""A study as its proposer describes it, before it becomes a contract."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from veiltab.core.plan import Plan, plan
from veiltab.errors import InputError
from veiltab.protocol.verify import plan_for
from veiltab.wire.contract import (
    NONCE_BYTES,
    Contract,
    CuratorTerms,
    Linkage,
    PadMode,
    PublicIdentity,
    Stored,
    Vault,
)
from veiltab.wire.mechanism import DecoyTerms, MechanismTerms


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyDraft:
    """A study that can be proposed.

    ``expected_population`` is about how many respondents there are.  It decides which numbers are
    planned for decoys, and stays with the proposer: no promise depends on it.  A study that reads
    stored tables has the curators and the linkage of their ``vault``.
    """

    title: str
    epsilon: float
    delta: float
    population: int | None
    mechanism: MechanismTerms
    pads: PadMode
    linkage: Linkage
    curators: tuple[CuratorTerms, ...]
    researchers: tuple[PublicIdentity, ...] | None
    expected_population: int | None = None
    vault: Vault | None = None

    def identities(self) -> list[PublicIdentity]:
        """Return everybody who is to take part, except for the server."""
        return [*(terms.identity for terms in self.curators), *(self.researchers or ())]

    def contract(
        self,
        *,
        server: PublicIdentity,
        secret_commitment: bytes,
        nonce: bytes,
        uploads: Sequence[bytes] = (),
    ) -> Contract:
        """Return the contract of a new study; δ decides how its promise is computed.

        ``uploads`` are the digests of the stored tables, if it reads any.
        """
        stored = None if self.vault is None else Stored(self.vault.vault_id, tuple(uploads))
        return Contract(
            title=self.title,
            nonce=nonce,
            curators=self.curators,
            researchers=self.researchers,
            server=server,
            epsilon=self.epsilon,
            delta=self.delta,
            accounting=self.mechanism.accounting(self.delta),
            mechanism=self.mechanism,
            population=self.population,
            pads=self.pads,
            linkage=self.linkage,
            secret_commitment=secret_commitment,
            stored=stored,
        )

    def provisional(self, server: PublicIdentity) -> Contract:
        """Return the contract as it is going to be, for looking at: its id will be another one."""
        uploads = [] if self.vault is None else [bytes(32)] * len(self.curators)
        nothing = bytes(NONCE_BYTES)
        return self.contract(
            server=server, secret_commitment=bytes(32), nonce=nothing, uploads=uploads
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class VaultDraft:
    """A vault that can be proposed."""

    title: str
    linkage: Linkage
    curators: tuple[CuratorTerms, ...]

    def vault(self, *, server: PublicIdentity, secret_commitment: bytes, nonce: bytes) -> Vault:
        """Return the terms of a new vault."""
        return Vault(
            title=self.title,
            nonce=nonce,
            curators=self.curators,
            server=server,
            linkage=self.linkage,
            secret_commitment=secret_commitment,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoyWishes:
    """What a proposer asks of decoys; the planner chooses their numbers.

    Without ``epsilon_with_curator`` the server's noise adds a tenth to the error, and without
    ``epsilon_public`` it is ε.
    """

    epsilon: float
    delta: float
    population: int
    epsilon_with_curator: float | None = None
    epsilon_public: float | None = None


def plan_decoys(
    wishes: DecoyWishes,
    linkage: Linkage,
    curators: tuple[CuratorTerms, ...],
    *,
    anyway: bool = False,
) -> DecoyTerms:
    """Choose the numbers that the contract of a study with decoys states.

    Numbers that would say less than a guess are refused, unless ``anyway``.
    """
    cells = tuple(terms.schema.domain_size for terms in curators)
    chosen = plan(
        population_size=wishes.population,
        domain_size=math.prod(cells),
        epsilon=wishes.epsilon,
        delta=wishes.delta,
        mechanism="decoys",
        epsilon_with_curator=wishes.epsilon_with_curator,
        epsilon_public=wishes.epsilon_public,
        linkage=linkage.mode,
        curator_cells=cells,
        anyway=anyway,
    )
    return DecoyTerms.from_plan(chosen)


def plan_of(contract: Contract, expected_population: int | None = None) -> Plan | None:
    """Return the plan of a study, for about this many respondents if the contract states none.

    Decoys have a plan however many there are.  The paper's mechanism has none before that is known,
    or if none is possible; nor has an overlap count, which is about no table.
    """
    if contract.overlap is not None:
        return None
    population = contract.population or expected_population
    if contract.decoys is not None:
        return replace(contract.decoy_plan, population_size=population)
    if population is None:
        return None
    try:
        return plan_for(contract, population)
    except InputError:
        return None
