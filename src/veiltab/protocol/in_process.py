"""All roles in one process: the parties of a study, who hand messages and chunks over.

Nothing is done differently from what parties on different machines do, except that nothing is sent
and everything is kept in memory.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

from veiltab.core.entropy import Entropy
from veiltab.core.mechanism import LinkageMode
from veiltab.core.schema import Attribute, Codes, table_schema
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.linkage import IdMessages
from veiltab.protocol.curator.agreement import (
    new_contribution,
    new_secret,
    public_identity,
    receive_secret,
    share_secret,
    sign_contract,
    sign_vault,
    study_secret,
    unsigned,
)
from veiltab.protocol.curator.grant import grant
from veiltab.protocol.curator.ledger import Ledger
from veiltab.protocol.curator.stored import StoredTable
from veiltab.protocol.curator.table import Duplicates, Intake
from veiltab.protocol.curator.upload import (
    CuratorContext,
    Prepared,
    align,
    needs_alignment,
    prepare_sample,
    prepare_table,
)
from veiltab.protocol.parallel import ordered_map
from veiltab.protocol.researcher import Access, open_access
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.sorting import MemorySpool
from veiltab.protocol.stores import MemoryChunks
from veiltab.wire.contract import Agreement, Contract, CuratorTerms, Linkage, PadMode, Stored, Vault
from veiltab.wire.mechanism import MechanismTerms, OverlapTerms, PaperTerms
from veiltab.wire.messages import Release, Repad, SignedGrant, Upload
from veiltab.wire.signed import Signed
from veiltab.wire.states import State

NO_LIMIT = 1e9
"""A rehearsal spends nobody's privacy."""

LATER = 2**40
"""An expiry, in seconds, that no rehearsal lives to see."""


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """What one curator brings: its attributes, its rows, and whose rows they are."""

    attributes: tuple[Attribute, ...]
    codes: Sequence[Codes]
    ids: IdMessages
    duplicates: Duplicates = "refuse"

    @property
    def partitions(self) -> int:
        """Into how many parts it is sorted."""
        return 1

    def fill(self, intake: Intake) -> None:
        """Add all rows."""
        intake.add(self.ids, self.codes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the parties agree on, besides who they are.

    Without a mechanism it is the paper's, with this sample size, or the best one.
    """

    epsilon: float
    delta: float = 0.0
    sample_size: int | None = None
    linkage: LinkageMode = "aligned"
    pads: PadMode = "stream"
    population: int | None = None
    mechanism: MechanismTerms | None = None


@dataclass(eq=False)
class Outcome:
    """A study that was gone through: everything that was made on the way."""

    contract: Signed[Contract]
    study: ServerStudy
    received: MemoryChunks
    released: MemoryChunks
    contexts: list[CuratorContext]
    prepared: list[Prepared[Upload] | Prepared[Repad]] = field(default_factory=list)

    def release(self) -> Signed[Release]:
        """Let the server release the study, and delete the ciphertext that is not perturbed."""
        try:
            return self.study.release()
        finally:
            if self.study.state in (State.RELEASED, State.ABORTED):
                self.study.forget_unreleased()


@dataclass(eq=False)
class Deposit:
    """Tables stored under a vault, to be read by many studies."""

    vault: Signed[Vault]
    secret: bytes
    tables: MemoryChunks
    stored: list[StoredTable]


class Rehearsal:
    """The parties of studies: curators with their holdings, a server, a researcher."""

    def __init__(
        self,
        holdings: Sequence[Holding],
        entropy: Entropy,
        server_entropy: Entropy | None = None,
        linkage: Linkage | None = None,
    ) -> None:
        """Give every party an identity; the server draws from the same source by default."""
        self.linkage = Linkage.by_ids() if linkage is None else linkage
        self.holdings = list(holdings)
        self.entropy = entropy
        self.server_entropy = entropy if server_entropy is None else server_entropy
        self.curators = [
            PrivateIdentity.create(f"curator {number}", entropy)
            for number, _ in enumerate(self.holdings, start=1)
        ]
        self.server = PrivateIdentity.create("server", entropy)
        self.researcher = PrivateIdentity.create("researcher", entropy)

    def run(self, terms: Terms) -> Outcome:
        """Go through a study up to its release, with uploads made for it alone."""
        contribution, commitment, nonce = new_secret(self.entropy)
        outcome = self._open(self._contract(terms, commitment, nonce))
        contract = outcome.contract.body
        intakes = self._intakes(contract, self._exchange(contract, contribution))
        for prepared in self._prepare(outcome, intakes):
            outcome.study.upload(prepared.message)
            outcome.prepared.append(prepared)
        outcome.release()
        return outcome

    def deposit(self) -> Deposit:
        """Store every curator's table under a vault."""
        secret, commitment, nonce = new_secret(self.entropy)
        signed = unsigned(
            Vault(
                title="rehearsal",
                nonce=nonce,
                curators=self._curator_terms(),
                server=public_identity(self.server),
                linkage=replace(self.linkage, mode="matched"),
                secret_commitment=commitment,
            )
        )
        for identity in self.curators:
            signed = sign_vault(signed, identity)
        tables = MemoryChunks()
        intakes = self._intakes(signed.body, self._pass_on(signed.body, secret))
        prepared = [
            prepare_table(context, signed, intake, MemorySpool())
            for context, intake in zip(self._contexts(tables), intakes, strict=True)
        ]
        return Deposit(
            signed, secret, tables, [StoredTable(signed.body, table) for table in prepared]
        )

    def run_stored(self, terms: Terms, deposit: Deposit) -> Outcome:
        """Go through a study up to its release, on tables that were stored before."""
        vault = deposit.vault.body
        contract = replace(
            self._contract(terms, vault.secret_commitment, new_secret(self.entropy)[2]),
            stored=Stored(
                vault=vault.vault_id,
                uploads=tuple(table.upload.digest for table in deposit.stored),
            ),
        )
        outcome = self._open(contract)
        uploads = [table.upload for table in deposit.stored]
        requests = outcome.study.draw_from(deposit.vault, uploads, deposit.tables)
        for context, table in zip(outcome.contexts, deposit.stored, strict=True):
            request = requests[context.identity.party_id]
            answer = table.repad(context, outcome.contract, request, outcome.received)
            outcome.study.repad(answer.message)
            outcome.prepared.append(answer)
        outcome.release()
        return outcome

    def grants(self, outcome: Outcome) -> list[SignedGrant]:
        """Let every curator grant all its attributes to the researcher."""
        to = public_identity(self.researcher)
        return [
            grant(context, outcome.contract.body, prepared, to, expires=LATER)
            for context, prepared in zip(outcome.contexts, outcome.prepared, strict=True)
        ]

    def access(self, outcome: Outcome) -> Access:
        """Let the researcher check and unseal everything."""
        release = outcome.study.release()
        grants = self.grants(outcome)
        return open_access(self.researcher, outcome.contract, release, grants, now=0)

    def _contract(self, terms: Terms, commitment: bytes, nonce: bytes) -> Contract:
        mechanism = terms.mechanism or PaperTerms(terms.sample_size)
        return Contract(
            title="rehearsal",
            nonce=nonce,
            curators=self._curator_terms(),
            server=public_identity(self.server),
            linkage=replace(self.linkage, mode=terms.linkage),
            secret_commitment=commitment,
            researchers=() if isinstance(mechanism, OverlapTerms) else None,
            epsilon=terms.epsilon,
            delta=terms.delta,
            accounting=mechanism.accounting(terms.delta),
            mechanism=mechanism,
            population=terms.population,
            pads=terms.pads,
            stored=None,
        )

    def _open(self, contract: Contract) -> Outcome:
        """Let every curator sign, and open the study on the server."""
        signed = unsigned(contract)
        for identity in self.curators:
            ledger = Ledger(dataset="rehearsal", epsilon_limit=NO_LIMIT, delta_limit=0.5)
            signed, _ = sign_contract(signed, identity, ledger)
        received, released = MemoryChunks(), MemoryChunks()
        context = ServerContext(self.server.signing, self.server_entropy, received, released)
        study = ServerStudy(context, contract)
        study.sign(signed)
        return Outcome(signed, study, received, released, self._contexts(received))

    def _pass_on(self, vault: Vault, secret: bytes) -> list[bytes]:
        """Pass the vault's secret from the first curator to the others."""
        first, *others = self.curators
        messages = [share_secret(vault, first, secret, who.party_id) for who in others]
        received = [receive_secret(vault, *pair) for pair in zip(others, messages, strict=True)]
        return [secret, *received]

    def _exchange(self, contract: Contract, proposers: bytes) -> list[bytes]:
        """Let every curator contribute to the study's secret; return it as each of them has it."""
        drawn = [proposers, *(new_contribution(self.entropy) for _ in self.curators[1:])]
        contributions = {
            who.party_id: {who.party_id: contribution}
            for who, contribution in zip(self.curators, drawn, strict=True)
        }
        for sender, receiver in permutations(self.curators, 2):
            own = contributions[sender.party_id][sender.party_id]
            message = share_secret(contract, sender, own, receiver.party_id)
            received = receive_secret(contract, receiver, message)
            contributions[receiver.party_id][sender.party_id] = received
        return [study_secret(contract, contributions[who.party_id]) for who in self.curators]

    def _intakes(self, agreement: Agreement, secrets: Sequence[bytes]) -> list[Intake]:
        """Take in everybody's table."""
        # On machines of their own they would not wait for each other either; but threads for small
        # tables, again in every run of a simulation, would take longer than they save.
        large = any(holding.partitions > 1 for holding in self.holdings)
        ids = [identity.party_id for identity in self.curators]
        parties = zip(secrets, self.holdings, ids, strict=True)
        threads = None if large else 1
        return list(ordered_map(lambda party: take_in(agreement, *party), parties, threads))

    def _prepare(self, outcome: Outcome, intakes: Sequence[Intake]) -> list[Prepared[Upload]]:
        signed = outcome.contract
        parties = list(zip(outcome.contexts, intakes, strict=True))
        aligned = []
        if needs_alignment(signed.body):
            aligned = [align(signed.body, context.identity, intake) for context, intake in parties]
        if signed.body.matched:
            return [
                prepare_table(context, signed, intake, MemorySpool(), aligned)
                for context, intake in parties
            ]
        return [prepare_sample(context, signed, intake, aligned) for context, intake in parties]

    def _curator_terms(self) -> tuple[CuratorTerms, ...]:
        return tuple(
            CuratorTerms(public_identity(identity), holding.attributes)
            for identity, holding in zip(self.curators, self.holdings, strict=True)
        )

    def _contexts(self, outgoing: MemoryChunks) -> list[CuratorContext]:
        return [
            CuratorContext(identity, self.entropy, outgoing, MemoryChunks())
            for identity in self.curators
        ]


def take_in(agreement: Agreement, secret: bytes, holding: Holding, curator: bytes) -> Intake:
    """Take in a curator's whole holding in memory."""
    schema, parts = table_schema(holding.attributes), holding.partitions
    spool = MemorySpool()
    intake = Intake(
        agreement,
        secret,
        schema,
        spool,
        curator=curator,
        partitions=parts,
        duplicates=holding.duplicates,
    )
    holding.fill(intake)
    intake.close()
    return intake
