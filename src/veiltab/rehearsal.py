"""Trying a study out: a whole one in this process, or one simulated release of known counts.

:func:`rehearse` goes through a study with tables as curators have them; :func:`simulate` draws what
a release of a known table would give.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import get_args

import numpy as np
import polars as pl

from veiltab.core.designs import release_design
from veiltab.core.mechanism import LinkageMode
from veiltab.core.parameters import check_delta, check_epsilon, check_seed
from veiltab.core.plan import MechanismName, Plan, plan
from veiltab.core.schema import Attribute, CountTable, Schema
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.linkage import KEY_BYTES, tokens
from veiltab.data.encoding import Encoder
from veiltab.data.ids import id_messages
from veiltab.data.mapping import Mapper, UnknownValues
from veiltab.data.profile import (
    MOST_CATEGORIES,
    ColumnProfile,
    ProposedAttribute,
    Use,
    profile_table,
    propose_attribute,
)
from veiltab.data.recode import Bins, Recode, Rule
from veiltab.data.tables import BATCH_ROWS, Table, open_table
from veiltab.errors import CountsError, ParameterError, SchemaError
from veiltab.estimates import Estimate, Provenance
from veiltab.estimates.publishing import seeded_publisher
from veiltab.protocol.in_process import Holding, Rehearsal, Terms
from veiltab.protocol.researcher import count_records
from veiltab.wire.contract import Linkage, PadMode
from veiltab.wire.mechanism import DecoyTerms

LABEL = "rehearsal"
"""Sets the randomness of a seeded rehearsal apart from that of other seeded runs."""


def rehearse(
    tables: Sequence[object],
    on: str | Sequence[str],
    *,
    epsilon: float,
    delta: float = 0.0,
    mechanism: MechanismName = "auto",
    sample_size: int | None = None,
    epsilon_with_curator: float | None = None,
    epsilon_public: float | None = None,
    linkage: LinkageMode = "aligned",
    pads: PadMode = "stream",
    recode: Recode | Mapping[str, Rule] | None = None,
    seed: int | None = None,
    anyway: bool = False,
) -> Estimate:
    """Go through a whole study in this process, a curator for each table, and estimate.

    ``tables`` are whatever :func:`veiltab.open_table` takes; they are read into memory.  The
    columns in ``on`` tell respondents apart; every other column becomes an attribute, whose
    categories are its values, unless ``recode`` has :class:`~veiltab.Bins` or a
    :class:`~veiltab.ValueMap` for it.  They are in the order of the alphabet, numbers and intervals
    in that of their size; or in that of a column that has one (an enum, an ordered categorical of
    pandas), or of a map of them all.  With ``linkage="aligned"`` all tables must hold the same
    respondents; with ``linkage="matched"`` they may differ.

    The mechanism is chosen as :func:`veiltab.plan` does, for as many respondents as the smallest
    table has; the promise of decoys does not depend on that number.  A ``sample_size`` stands for
    the paper's way.  As there, what would say less than a guess is refused, unless ``anyway``.

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
    _check_choice("linkage", linkage, get_args(LinkageMode))
    _check_choice("pads", pads, get_args(PadMode))
    _check_choice("mechanism", mechanism, get_args(MechanismName))
    check_epsilon(epsilon)
    check_delta(delta)
    if not isinstance(recode, Recode | Mapping | None):
        raise ParameterError(
            f"recode is of type {type(recode).__name__}",
            hint="give rules by column, as in recode={'age': veiltab.Bins([40, 60])}, or a"
            " veiltab.Recode",
        )
    rules = recode.rules if isinstance(recode, Recode) else recode or {}
    for column, rule in rules.items():
        if not isinstance(rule, Rule):
            raise ParameterError(
                f"the rule for {column!r} is a {type(rule).__name__}",
                hint="use veiltab.Bins([40, 60]), or veiltab.ValueMap({'Y': 'yes'})",
            )
    whole = recode if isinstance(recode, Recode) else Recode(rules)
    holdings = [_as_holding(open_table(table), ids, whole) for table in tables]
    _check_rules(holdings, rules)
    entropy = (
        CipherEntropy.from_system() if seed is None else CipherEntropy.from_seed(int(seed), LABEL)
    )
    parties = Rehearsal(holdings, entropy, linkage=Linkage.by_ids(len(ids)))
    cells = tuple(Schema(table.attributes).domain_size for table in holdings)
    chosen = plan(
        population_size=min(_respondents(table) for table in holdings),
        domain_size=prod(cells),
        epsilon=epsilon,
        delta=delta,
        sample_size=sample_size,
        mechanism=mechanism,
        epsilon_with_curator=epsilon_with_curator,
        epsilon_public=epsilon_public,
        linkage=linkage,
        curator_cells=cells,
        anyway=anyway,
    )
    outcome = parties.run(_terms(chosen, sample_size, mechanism, pads))
    released = count_records(parties.access(outcome), outcome.released)
    origin = Provenance(outcome.contract.body.study_id.hex(), "Rehearsal", "a server in rehearsal")
    return Estimate.from_counts(released, provenance=origin, publisher=seeded_publisher(seed))


def _terms(chosen: Plan, sample_size: int | None, mechanism: MechanismName, pads: PadMode) -> Terms:
    """Return what the curators agree on: with decoys all numbers of the plan, else its promise.

    The paper's own mechanism spends no δ.
    """
    decoys = None if chosen.mechanism.decoys is None else DecoyTerms.from_plan(chosen)
    return Terms(
        epsilon=chosen.epsilon,
        delta=0.0 if mechanism == "paper" else chosen.delta,
        sample_size=sample_size,
        linkage=chosen.linkage,
        pads=pads,
        mechanism=decoys,
    )


def simulate(
    table: CountTable,
    *,
    epsilon: float,
    delta: float = 0.0,
    mechanism: MechanismName = "auto",
    linkage: LinkageMode = "aligned",
    epsilon_with_curator: float | None = None,
    epsilon_public: float | None = None,
    sample_size: int | None = None,
    seed: int | None = None,
    anyway: bool = False,
) -> Estimate:
    """Draw one release of a table of counts from its law, and estimate the table from it.

    The options are those of :func:`veiltab.plan`, ``anyway`` included; with
    ``linkage="matched"`` the respondents of the table are those whom all curators hold, and the
    estimate does not know how many they are.
    This takes no longer for a million respondents than for ten.
    """
    if not isinstance(table, CountTable):
        raise ParameterError(
            f"an object of type {type(table).__name__} is not a table of counts",
            hint="use veiltab.read_counts(path), veiltab.adult_table(24), or"
            " veiltab.CountTable(schema, counts); veiltab.rehearse takes tables of records",
        )
    _check_seed(seed)
    if (table.counts < 0).any():
        raise CountsError(
            f"the table has a count of {int(table.counts.min()):,}",
            hint="give how many respondents are in each cell; unbiased estimates are no counts",
        )
    chosen = plan(
        population_size=table.population_size,
        domain_size=table.schema.domain_size,
        epsilon=epsilon,
        delta=delta,
        sample_size=sample_size,
        mechanism=mechanism,
        linkage=linkage,
        epsilon_with_curator=epsilon_with_curator,
        epsilon_public=epsilon_public,
        anyway=anyway,
    )
    counts = release_design(chosen).draw(table.counts, 1, np.random.default_rng(seed))[0]
    return Estimate(
        table.schema,
        counts,
        chosen,
        provenance=Provenance(title="Simulation", linkage=linkage),
        publisher=seeded_publisher(seed),
    )


def _is_list(tables: object) -> bool:
    """Tell a list of tables from one table: a frame, or the name of a file."""
    return isinstance(tables, Sequence) and not isinstance(tables, str)


def _check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    if value not in choices:
        raise ParameterError(
            f"{name} is {value!r}", hint=f"choose from {', '.join(map(repr, choices))}"
        )


def _check_seed(seed: int | None) -> None:
    if seed is not None:
        check_seed(seed)


def _as_holding(table: Table, ids: Sequence[str], recode: Recode) -> Holding:
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
        rule = recode.rules.get(profile.name)
        if rule is None:
            proposed = _propose(profile)
            attribute, rule = proposed.attribute, proposed.rule
        else:
            attribute = _recoded(profile, rule)
        attributes.append(attribute)
        if rule is not None:
            rules[attribute.name] = rule
    encoder = Encoder(Schema(attributes), rules, marks=table.format.marks)
    codes = encoder.encode(frame) or []
    encoder.finish()
    dates = None if recode.ids is None else recode.ids.dates
    messages = id_messages(frame, ids, (), dates=dates)
    return Holding(tuple(attributes), codes, messages, recode.duplicates)


def _respondents(holding: Holding) -> int:
    """Count the different ids; any key makes different tokens of them."""
    if holding.duplicates == "refuse":
        return len(holding.ids)
    keys = tokens(bytes(KEY_BYTES), holding.ids.data, holding.ids.offsets)
    return len(np.unique(keys, axis=0))


def _propose(profile: ColumnProfile) -> ProposedAttribute:
    # The ids are named, so that a short column in which all values differ is none of them.
    usable = profile.use in (Use.ATTRIBUTE, Use.CONSTANT, Use.ID, Use.TEXT)
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
    texts = pl.Series(profile.values, dtype=pl.String)
    targets = dict.fromkeys([*rule.entries.values(), *filter(None, [rule.otherwise])])
    own = texts.to_list()
    if targets:
        attribute = Attribute(profile.name, targets)
        mapper, listed = Mapper(attribute, rule), pl.repeat(value=True, n=len(texts), eager=True)
        try:
            mapper.codes(texts)
        except UnknownValues as values:
            listed = ~values.unknown
        codes = mapper.codes(texts.filter(listed))
        for place, code in zip(listed.arg_true(), codes, strict=True):
            own[place] = attribute.categories[code]
    missing = [rule.entries[None]] if None in rule.entries else []
    found = dict.fromkeys([*own, *missing])
    if set(found) <= set(targets):  # a map that names all categories says their order, too
        found = {category: None for category in targets if category in found}
    return Attribute(profile.name, found)


def _check_rules(holdings: Sequence[Holding], recode: Mapping[str, Rule]) -> None:
    names = {attribute.name for holding in holdings for attribute in holding.attributes}
    unknown = [name for name in recode if name not in names]
    if unknown:
        raise SchemaError(
            f"no table has a column {', '.join(map(repr, unknown))} to recode",
            hint=f"the columns are {', '.join(map(repr, sorted(names)))}",
        )
