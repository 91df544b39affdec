"""Whole studies among parties in one process: the real roles, without a network or a disk.

:func:`rehearse` goes through a study with tables as curators have them; :func:`simulate` draws what
a release of a known table would give.  Nothing in a rehearsal is done differently from what parties
on different machines do, except that a message or a chunk is handed over instead of sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import get_args

import numpy as np
import polars as pl

from veiltab.core.entropy import Entropy
from veiltab.core.parameters import check_delta, check_epsilon
from veiltab.core.plan import plan
from veiltab.core.resampling import draw_releases
from veiltab.core.schema import Attribute, Codes, CountTable, Schema
from veiltab.core.uncertainty import ReleaseDesign
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.identity import PrivateIdentity
from veiltab.crypto.linkage import IdMessages
from veiltab.data.encoding import encode_table
from veiltab.data.ids import id_messages
from veiltab.data.profile import (
    MOST_CATEGORIES,
    ColumnProfile,
    ProposedAttribute,
    Use,
    profile_table,
    propose_attribute,
)
from veiltab.data.recode import Bins, Rule
from veiltab.data.tables import BATCH_ROWS, Table, open_table
from veiltab.errors import ParameterError, SchemaError
from veiltab.estimates import Estimate, Provenance
from veiltab.protocol.curator.agreement import (
    new_secret,
    public_identity,
    receive_secret,
    share_secret,
    sign_contract,
    sign_vault,
    unsigned,
)
from veiltab.protocol.curator.grant import grant
from veiltab.protocol.curator.ledger import Ledger
from veiltab.protocol.curator.stored import StoredTable
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.curator.upload import (
    CuratorContext,
    Prepared,
    align,
    prepare_sample,
    prepare_table,
)
from veiltab.protocol.parallel import ordered_map
from veiltab.protocol.researcher import Access, count_records, open_access
from veiltab.protocol.server.context import ServerContext
from veiltab.protocol.server.study import ServerStudy
from veiltab.protocol.sorting import MemorySpool
from veiltab.protocol.stores import MemoryChunks
from veiltab.wire.contract import (
    Agreement,
    Contract,
    CuratorTerms,
    Linkage,
    PadMode,
    Sampler,
    Sampling,
    Stored,
    Vault,
    accounting_for,
)
from veiltab.wire.messages import Release, Repad, SignedGrant, Upload
from veiltab.wire.signed import Signed

NO_LIMIT = 1e9
"""A rehearsal spends nobody's privacy."""

LABEL = "rehearsal"
"""Sets the randomness of a seeded rehearsal apart from that of other seeded runs."""

LATER = 2**40
"""An expiry, in seconds, that no rehearsal lives to see."""


@dataclass(frozen=True, slots=True, eq=False)
class Holding:
    """What one curator brings: its attributes, its rows, and whose rows they are."""

    attributes: tuple[Attribute, ...]
    codes: Sequence[Codes]
    ids: IdMessages

    @property
    def partitions(self) -> int:
        """Into how many parts it is sorted."""
        return 1

    def fill(self, intake: Intake) -> None:
        """Add all rows."""
        intake.add(self.ids, self.codes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What the parties agree on, besides who they are."""

    epsilon: float
    delta: float = 0.0
    sample_size: int | None = None
    sampler: Sampler = "curators"
    pads: PadMode = "stream"
    population: int | None = None


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
        release = self.study.release()
        self.study.forget_unreleased()
        return release


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
        secret, commitment, nonce = new_secret(self.entropy)
        outcome = self._open(self._contract(terms, commitment, nonce))
        intakes = self._intakes(outcome.contract.body, secret)
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
                linkage=self.linkage,
                secret_commitment=commitment,
            )
        )
        for identity in self.curators:
            signed = sign_vault(signed, identity)
        tables = MemoryChunks()
        intakes = self._intakes(signed.body, secret)
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
        return Contract(
            title="rehearsal",
            nonce=nonce,
            curators=self._curator_terms(),
            server=public_identity(self.server),
            linkage=self.linkage,
            secret_commitment=commitment,
            researchers=None,
            epsilon=terms.epsilon,
            delta=terms.delta,
            accounting=accounting_for(terms.delta),
            sampling=Sampling(by=terms.sampler, size=terms.sample_size),
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

    def _intakes(self, agreement: Agreement, secret: bytes) -> list[Intake]:
        """Pass the secret from the first curator to the others, and take in everybody's table."""
        first, *others = self.curators
        secrets = [secret]
        for identity in others:
            message = share_secret(agreement, first, secret, identity.party_id)
            secrets.append(receive_secret(agreement, identity, message))
        # On machines of their own they would not wait for each other either; but threads for small
        # tables, again in every run of a simulation, would take longer than they save.
        large = any(holding.partitions > 1 for holding in self.holdings)
        parties = zip(secrets, self.holdings, strict=True)
        threads = None if large else 1
        return list(ordered_map(lambda party: take_in(agreement, *party), parties, threads))

    def _prepare(self, outcome: Outcome, intakes: Sequence[Intake]) -> list[Prepared[Upload]]:
        signed = outcome.contract
        parties = list(zip(outcome.contexts, intakes, strict=True))
        if signed.body.sampling.by == "server":
            return [
                prepare_table(context, signed, intake, MemorySpool()) for context, intake in parties
            ]
        aligned = [align(signed.body, context.identity, intake) for context, intake in parties]
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


def take_in(agreement: Agreement, secret: bytes, holding: Holding) -> Intake:
    """Take in a whole holding in memory."""
    schema, parts = Schema(holding.attributes), holding.partitions
    intake = Intake(agreement, secret, schema, MemorySpool(), partitions=parts)
    holding.fill(intake)
    intake.close()
    return intake


def rehearse(
    tables: Sequence[object],
    on: str | Sequence[str],
    *,
    epsilon: float,
    delta: float = 0.0,
    sample_size: int | None = None,
    sampler: Sampler = "curators",
    pads: PadMode = "stream",
    recode: Mapping[str, Rule] | None = None,
    seed: int | None = None,
) -> Estimate:
    """Go through a whole study in this process, a curator for each table, and estimate.

    ``tables`` are whatever :func:`veiltab.open_table` takes; they are read into memory.  The
    columns in ``on`` tell respondents apart; every other column becomes an attribute, whose
    categories are its values, unless ``recode`` has :class:`~veiltab.Bins` or a
    :class:`~veiltab.ValueMap` for it.  Where the curators sample, all tables must hold the same
    respondents; with ``sampler="server"`` they may differ.

    Nothing is charged or promised to anybody: with a ``seed`` the result can be repeated, and
    keeps nothing secret.
    """
    ids = (on,) if isinstance(on, str) else tuple(on)
    if not _is_list(tables) or not tables or not ids:
        raise ParameterError(
            "a rehearsal needs a list of at least one table, and a column that tells respondents"
            " apart",
            hint='as in: veiltab.rehearse([hospital, taxes], on="person", epsilon=1.0)',
        )
    _check_seed(seed)
    _check_choice("sampler", sampler, get_args(Sampler))
    _check_choice("pads", pads, get_args(PadMode))
    check_epsilon(epsilon)
    check_delta(delta)
    rules = recode or {}
    for column, rule in rules.items():
        if not isinstance(rule, Rule):
            raise ParameterError(
                f"the rule for {column!r} is a {type(rule).__name__}",
                hint="use veiltab.Bins([40, 60]), or veiltab.ValueMap({'Y': 'yes'})",
            )
    holdings = [_as_holding(open_table(table), ids, rules) for table in tables]
    _check_rules(holdings, rules)
    entropy = CipherEntropy.from_system() if seed is None else CipherEntropy.from_seed(seed, LABEL)
    parties = Rehearsal(holdings, entropy, linkage=Linkage.by_ids(len(ids)))
    terms = Terms(epsilon=epsilon, delta=delta, sample_size=sample_size, sampler=sampler, pads=pads)
    outcome = parties.run(terms)
    released = count_records(parties.access(outcome), outcome.released)
    origin = Provenance(outcome.contract.body.study_id.hex(), "Rehearsal", "a server in rehearsal")
    return Estimate.from_counts(released, provenance=origin)


def simulate(
    table: CountTable,
    *,
    epsilon: float,
    delta: float = 0.0,
    sample_size: int | None = None,
    seed: int | None = None,
) -> Estimate:
    """Draw one release of a table of counts from its exact law, and estimate the table from it.

    This takes no longer for a million respondents than for ten.
    """
    _check_seed(seed)
    chosen = plan(
        population_size=table.population_size,
        domain_size=table.schema.domain_size,
        epsilon=epsilon,
        delta=delta,
        sample_size=sample_size,
    )
    design = ReleaseDesign(chosen.channel, table.population_size, chosen.sample_size)
    counts = draw_releases(table.counts, design, 1, np.random.default_rng(seed))[0]
    return Estimate(table.schema, counts, chosen, provenance=Provenance(title="Simulation"))


def _is_list(tables: object) -> bool:
    """Tell a list of tables from one table: a frame, or the name of a file."""
    return isinstance(tables, Sequence) and not isinstance(tables, str)


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ParameterError(
            f"{name} is {value!r}", hint=f"choose from {', '.join(map(repr, choices))}"
        )


def _check_seed(seed: int | None) -> None:
    if seed is not None and seed < 0:
        raise ParameterError(
            f"a seed cannot be negative, and {seed} is", hint="use any whole number from 0 on"
        )


def _as_holding(table: Table, ids: Sequence[str], recode: Mapping[str, Rule]) -> Holding:
    """Read a table into memory, and make an attribute of every column that is no id."""
    batches = list(table.batches([*ids, *table.columns], BATCH_ROWS))
    if not batches or len(table.columns) <= len(ids):
        raise SchemaError(
            "a table has no rows, or no column besides the ids",
            hint="give every curator at least one column with values",
        )
    frame = pl.concat(batches)
    attributes, rules = [], dict[str, Rule]()
    for profile in profile_table(frame.drop(ids)):
        rule = recode.get(profile.name)
        if rule is None:
            proposed = _propose(profile)
            attribute, rule = proposed.attribute, proposed.rule
        else:
            attribute = _recoded(profile, rule)
        attributes.append(attribute)
        if rule is not None:
            rules[attribute.name] = rule
    codes = encode_table(frame, Schema(attributes), rules)
    return Holding(tuple(attributes), codes, id_messages(frame, ids, ()))


def _propose(profile: ColumnProfile) -> ProposedAttribute:
    # The ids are named, so that a short column in which all values differ is none of them.
    usable = profile.use in (Use.ATTRIBUTE, Use.CONSTANT, Use.ID)
    if not usable or len(profile.values) > MOST_CATEGORIES:
        raise SchemaError(
            f"the column {profile.name!r} {profile.use.value}",
            hint="leave it out, name it in `on`, or put it in intervals, as in"
            f" recode={{{profile.name!r}: veiltab.Bins([40, 60])}}",
        )
    return propose_attribute(profile, profile.name)


def _recoded(profile: ColumnProfile, rule: Rule) -> Attribute:
    if isinstance(rule, Bins):
        return rule.attribute(profile.name)
    missing = [rule.entries[None]] if None in rule.entries else []
    values = [rule.entries.get(value, value) for value in profile.values]
    return Attribute(profile.name, dict.fromkeys([*values, *missing]))


def _check_rules(holdings: Sequence[Holding], recode: Mapping[str, Rule]) -> None:
    names = {attribute.name for holding in holdings for attribute in holding.attributes}
    unknown = [name for name in recode if name not in names]
    if unknown:
        raise SchemaError(
            f"no table has a column {', '.join(map(repr, unknown))} to recode",
            hint=f"the columns are {', '.join(map(repr, sorted(names)))}",
        )
