"""Checking a table against a study: before it is proposed, before it is signed, before a push.

Reading is what a push does, too: :func:`read_table` makes every check that can be made of a table,
before any message leaves, and a check makes no other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path

import polars as pl

from veiltab.core.overlap import OverlapPlan
from veiltab.core.plan import Plan
from veiltab.core.schema import Schema
from veiltab.crypto.entropy import SystemEntropy
from veiltab.data.feeding import Reading, feed, raise_problems
from veiltab.data.offenders import Offenders, Problem
from veiltab.data.profile import ISO_DATES, SAMPLED_ROWS, ColumnProfile, profile_table
from veiltab.data.recode import Recode, Rule
from veiltab.data.recode_file import read_recode_file
from veiltab.data.table_format import TableFormat
from veiltab.data.tables import Table, open_table
from veiltab.errors import InputError, MismatchError, ParameterError, StateError, VeiltabError
from veiltab.files.private import locked, make_private_folder
from veiltab.files.spool import FolderSpool
from veiltab.files.toml import toml_key, toml_string
from veiltab.party.coalitions import Coalition, coalitions
from veiltab.party.costs import Cost, costs
from veiltab.party.home import Home
from veiltab.party.progress import OnProgress, Progress
from veiltab.party.study_file import any_server, read_study_file
from veiltab.protocol.curator.agreement import new_contribution
from veiltab.protocol.curator.table import Duplicates, Intake
from veiltab.protocol.verify import plan_for, planned_sample_size
from veiltab.wire.contract import Contract, Vault
from veiltab.wire.packing import TOKEN_BYTES, chunk_slices, packed_length

LOCK_WAIT = 1.0
"""Seconds that a check waits for another one of the same home."""


@dataclass(frozen=True, slots=True)
class Source:
    """Where a curator's rows come from, and what they mean."""

    table: Table
    ids: tuple[str, ...]
    recode: Recode = field(default_factory=Recode)


def make_source(
    table: object, ids: str | Sequence[str], recode: Recode, query: str | None
) -> Source:
    """Open a table as a curator names it."""
    opened = open_table(table() if callable(table) else table, query)
    return Source(
        opened, _id_columns((ids,) if isinstance(ids, str) else tuple(ids or ()), recode), recode
    )


def _id_columns(named: tuple[str, ...], recode: Recode) -> tuple[str, ...]:
    """Return the columns of ids: they are named once, or twice in the same way."""
    if recode.ids is None:
        return named
    if named and named != recode.ids.columns:
        raise ParameterError(
            f"the ids are {', '.join(map(repr, named))}, and"
            f" {', '.join(map(repr, recode.ids.columns))} in the recode file",
            hint="name them in one place, or in both alike and in the same order",
        )
    return recode.ids.columns


def as_recode(
    recode: Recode | Mapping[str, Rule] | str | PathLike[str] | None,
    schema: Schema,
    duplicates: Duplicates | None,
) -> Recode:
    """Return what a table means to a curator with these attributes; ``duplicates`` goes first."""
    if recode is None:
        rules = Recode()
    elif isinstance(recode, Mapping):
        rules = Recode(recode)
    elif isinstance(recode, Recode):
        rules = recode
    else:
        rules = read_recode_file(Path(recode), schema)
    return rules if duplicates is None else replace(rules, duplicates=duplicates)


@dataclass(frozen=True, slots=True)
class ReportingTable:
    """A table that reports how far it has been read."""

    table: Table
    progress: OnProgress

    @property
    def columns(self) -> Mapping[str, pl.DataType]:
        """The columns of the table."""
        return self.table.columns

    @property
    def format(self) -> TableFormat:
        """How the table is read."""
        return self.table.format

    def batches(self, columns: Sequence[str], rows: int) -> Iterator[pl.DataFrame]:
        """Yield the table's batches, with a report after each."""
        total, done = self.row_count(), 0
        for frame in self.table.batches(columns, rows):
            yield frame
            done += frame.height
            self.progress(Progress("reading rows", done, total))

    def row_count(self) -> int | None:
        """Return how many rows there are, if that is known."""
        return self.table.row_count()


@dataclass(frozen=True, slots=True)
class Preview:
    """What a push would send, what the study costs, and what does not fit; nothing has left.

    ``problems`` are what a push would raise, and ``offenders`` says how many rows have which
    problem; all of them are in ``offenders_file``, if one was asked for.  With problems nothing
    would leave: then ``plan`` and what would be sent are None, and ``respondents`` is how many rows
    the table has.  ``dropped`` rows are left out, because they repeat an id.  With decoys,
    ``rows``, ``chunks`` and ``bytes`` are what is to be expected: the real numbers would tell how
    many respondents take part.  ``id_warnings`` say how the ids of one person could differ between
    tables, as far as neither the study nor the recode file makes them alike.
    """

    title: str
    format: TableFormat
    respondents: int
    dropped: int
    problems: tuple[VeiltabError, ...]
    offenders: Mapping[Problem, int]
    offenders_file: Path | None
    plan: Plan | OverlapPlan | None
    rows: int | None
    chunks: int | None
    bytes: int | None
    coalitions: tuple[Coalition, ...]
    costs: tuple[Cost, ...]
    id_warnings: tuple[str, ...]

    @property
    def fits(self) -> bool:
        """Whether a push would take the table."""
        return not self.problems

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is unwise about the study for a table like this one, in plain words."""
        plan = self.plan
        if plan is None:
            return ()
        if isinstance(plan, OverlapPlan):
            return plan.warnings(self.respondents)
        if plan.population_size is not None:
            return plan.warnings
        best = replace(plan, population_size=self.respondents)  # the fewer, the larger the error
        return tuple(f"with all of your respondents in common, {w}" for w in best.warnings)

    def raise_problems(self) -> None:
        """Raise the error that a push of this table would raise, if there is one."""
        raise_problems(self.problems)


def check(
    home: Home,
    contract: Contract,
    source: Source,
    *,
    dataset: str | None = None,
    offenders_file: Path | None = None,
    progress: OnProgress,
) -> Preview:
    """Read the whole table, and say what a push would do; nothing is sent, signed or charged."""
    check_fresh(contract)
    charged = costs(home.ledgers, contract, dataset)  # a wrong name shows before a table is read
    offenders = Offenders(offenders_file)
    try:
        respondents, dropped, problems = _read(home, contract, source, offenders, progress)
        written = offenders.finish()
    finally:
        offenders.discard()
    rows, chunks, size = (
        (None, None, None) if problems else _what_leaves(contract, home, respondents)
    )
    return Preview(
        title=contract.title,
        format=source.table.format,
        respondents=respondents,
        dropped=dropped,
        problems=problems,
        offenders=dict(offenders.counts),
        offenders_file=written,
        plan=None if problems else _plan(contract, respondents),
        rows=rows,
        chunks=chunks,
        bytes=size,
        coalitions=tuple(coalitions(contract)),
        costs=tuple(charged),
        id_warnings=() if problems else _id_warnings(contract, source),
    )


def check_file(
    home: Home,
    file: Path,
    table: object,
    ids: str | Sequence[str],
    *,
    recode: Recode | Mapping[str, Rule] | str | PathLike[str] | None,
    duplicates: Duplicates | None = None,
    query: str | None,
    dataset: str | None = None,
    offenders_file: Path | None = None,
    progress: OnProgress,
) -> Preview:
    """Check a table against a study file that is not proposed yet; no server is asked."""
    from veiltab.party.vaults.steps import known_vault  # noqa: PLC0415 - it reads tables, too

    draft = read_study_file(file, home.public, known_vault(home), anyway=True)
    if draft.vault is not None:
        raise StateError(
            "the study reads stored tables: nothing is pushed to it",
            hint="your table was checked when it was stored; propose the study",
        )
    pinned = home.server
    contract = draft.provisional(any_server() if pinned is None else pinned.identity)
    schema = contract.schema_of(home.public.party_id)
    source = make_source(table, ids, as_recode(recode, schema, duplicates), query)
    return check(
        home,
        contract,
        source,
        dataset=dataset,
        offenders_file=offenders_file,
        progress=progress,
    )


def _read(
    home: Home, contract: Contract, source: Source, offenders: Offenders, progress: OnProgress
) -> tuple[int, int, tuple[VeiltabError, ...]]:
    """Return how many respondents there are, how many rows are left out, and what is wrong.

    If anything is for which a push would refuse the table, all of its rows are counted.
    """
    # Any secret will do to look at a table, also before every curator has contributed to it.
    secret, scratch = new_contribution(SystemEntropy()), home.path / "check"
    make_private_folder(scratch)
    with (
        locked(scratch / "lock", LOCK_WAIT),
        _intake(contract, home.public.party_id, secret, scratch, source.recode) as intake,
    ):
        reading = _take_in(
            intake, contract, source, scratch=scratch, progress=progress, offenders=offenders
        )
        if reading.problems:
            return reading.rows, 0, reading.problems
        return intake.population, intake.dropped, ()


def check_fresh(contract: Contract) -> None:
    """Refuse a study to which nothing is pushed, because it reads stored tables."""
    if contract.stored is not None:
        raise StateError(
            "the study reads stored tables: nothing is pushed to it",
            hint="answer it, once its rows are drawn: veiltab vault answer"
            f" {contract.study_id.hex()[:16]}",
        )


def read_table(
    agreement: Contract | Vault,
    me: bytes,
    secret: bytes,
    source: Source,
    *,
    scratch: Path,
    progress: OnProgress,
) -> Intake:
    """Read the whole table into an intake, in bounded memory, and refuse one that does not fit."""
    intake = _intake(agreement, me, secret, scratch, source.recode)
    try:
        _take_in(intake, agreement, source, scratch=scratch, progress=progress).check()
    except BaseException:
        intake.__exit__(None, None, None)
        raise
    return intake


def _intake(
    agreement: Contract | Vault, me: bytes, secret: bytes, scratch: Path, recode: Recode
) -> Intake:
    return Intake(
        agreement,
        secret,
        agreement.schema_of(me),
        FolderSpool(scratch),
        curator=me,
        duplicates=recode.duplicates,
    )


def _take_in(
    intake: Intake,
    agreement: Contract | Vault,
    source: Source,
    *,
    scratch: Path,
    progress: OnProgress,
    offenders: Offenders | None = None,
) -> Reading:
    def check_population(respondents: int) -> None:
        if isinstance(agreement, Contract):
            _check_population(agreement, respondents)

    recode = source.recode
    reading = feed(
        intake,
        ReportingTable(source.table, progress),
        agreement.linkage,
        source.ids,
        rules=recode.rules,
        columns=recode.columns,
        dates=None if recode.ids is None else recode.ids.dates,
        offenders=offenders,
        spool=FolderSpool(scratch, "repeated"),
        check_population=check_population,
    )
    if not reading.problems and intake.dropped:
        progress(Progress("dropping repeated rows", intake.dropped))
    return reading


def _id_warnings(contract: Contract, source: Source) -> tuple[str, ...]:
    """Say what in the first rows' ids the study leaves as it is, and others may write otherwise."""
    if not source.ids:
        return ()
    first = next(iter(source.table.batches(source.ids, SAMPLED_ROWS)))
    dates = {} if source.recode.ids is None else source.recode.ids.dates
    columns = [column for column in profile_table(first) if column.name not in dates]
    as_they_are = "compares them as they are: whoever another curator writes otherwise is somebody"
    return tuple(
        f"{words}, and the study {as_they_are} else there; {remedy}"
        for column in columns
        for words, remedy in _id_remedies(column, contract.linkage.normalisation)
    )


def _id_remedies(column: ColumnProfile, rules: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what is odd about ids, with what makes them alike in all tables."""
    for rule, words in column.id_oddities().items():
        if rule not in rules:
            remedy = f'"{rule}" in the normalisation of the study file makes them alike'
            yield words, remedy
    form = column.date_form()
    if form is not None and form != ISO_DATES:
        dates = f"dates = {{{toml_key(column.name)} = {toml_string(form)}}}"
        yield (
            f"the ids in {column.name!r} are dates written {form}",
            f"{dates} under [ids] in the recode file makes them alike",
        )


def _check_population(contract: Contract, respondents: int) -> None:
    """Refuse another number of respondents than was agreed on, before anything is sent."""
    if contract.matched:
        return
    if contract.decoys is not None:
        plan_for(contract, respondents)
    else:
        planned_sample_size(contract, respondents)  # plans no noise, which can take long


def _plan(contract: Contract, respondents: int) -> Plan | OverlapPlan | None:
    """Return the plan for so many respondents.

    Where rows are matched, fewer may be in common, or another number may be stated.  Then there may
    be no plan before the server has matched them, and that is no mistake of this table.
    """
    if contract.overlap is not None:
        return contract.overlap_plan
    try:
        return plan_for(contract, respondents)
    except (InputError, MismatchError):
        return None


def _what_leaves(contract: Contract, home: Home, respondents: int) -> tuple[int, int, int]:
    """Return how many rows, chunks and bytes a push sends, or is expected to send."""
    me = home.public.party_id
    rows = _expected_rows(contract, me, respondents)
    sizes = [attribute.size for attribute in contract.schema_of(me).attributes]
    slices = list(chunk_slices(rows))
    columns = sum(packed_length(size, s.stop - s.start) for size in sizes for s in slices)
    tokens = TOKEN_BYTES * rows if contract.matched else 0
    return rows, len(slices) * (len(sizes) + contract.matched), columns + tokens


def _expected_rows(contract: Contract, me: bytes, respondents: int) -> int:
    """Return how many rows a curator uploads: exactly by rank, else as many as are expected."""
    if contract.overlap is not None:
        counted = contract.overlap_plan
        return round(respondents * counted.coin.probability + counted.expected_decoys)
    if contract.decoys is None:
        return respondents if contract.matched else planned_sample_size(contract, respondents)
    law, coin = contract.decoy_plan.mechanism.decoys, contract.decoy_plan.mechanism.coin
    assert law is not None and coin is not None  # noqa: S101, PT018 - or it has no decoys
    patterns = 1
    for terms in contract.curators:  # in matched linkage, the others may be absent
        absent = contract.matched and terms.party_id != me
        patterns *= terms.schema.domain_size + absent
    return round(respondents * coin.probability + patterns * law.mean)
