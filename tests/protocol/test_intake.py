"""Taking a table in: any batches and any partitions give what sorting in memory would."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.chunks import read_column, read_tokens
from tests.support.simulator import (
    LocalStudy,
    Simulator,
    attribute,
    holding,
    messages_of,
    tokens_of,
)
from veiltab.core import group
from veiltab.core.mechanism import LinkageMode
from veiltab.core.schema import Codes, Schema
from veiltab.crypto.derivation import alignment_key
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.linkage import IdMessages, alignment_digest
from veiltab.crypto.linkage import tokens as make_tokens
from veiltab.errors import LinkageError, ParameterError, SchemaError, StateError
from veiltab.protocol import sorting
from veiltab.protocol.curator.table import Duplicates, Intake
from veiltab.protocol.curator.upload import (
    CuratorContext,
    Prepared,
    align,
    prepare_sample,
    prepare_table,
)
from veiltab.protocol.in_process import Holding, Terms
from veiltab.protocol.sorting import PARTITIONS, MemorySpool
from veiltab.protocol.stores import MemoryChunks
from veiltab.wire.messages import Upload

SIZES = {"small": 3, "large": 300}
"""Codes of one byte and of two."""

SCHEMA = Schema(attribute(name, size) for name, size in SIZES.items())


def open_study(rows: int, linkage: LinkageMode = "aligned") -> LocalStudy:
    """Open a study of one curator, who holds ``rows`` respondents."""
    rehearsal = Simulator()
    rehearsal.holdings, rehearsal.curators = [table(rows)], rehearsal.curators[:1]
    size = max(1, rows * 2 // 3)
    return rehearsal.study(Terms(epsilon=20.0, sample_size=size, linkage=linkage))


def new_intake(staged: LocalStudy, spool: MemorySpool, partitions: int = PARTITIONS) -> Intake:
    """Start to take in the table of the one curator."""
    contract, me = staged.contract, staged.contract.curators[0].party_id
    return Intake(contract, staged.secret, SCHEMA, spool, curator=me, partitions=partitions)


def table(rows: int) -> Holding:
    """Return a table of so many rows."""
    return holding(SIZES, np.random.default_rng(rows).permutation(rows), seed=rows)


def take_in(staged: LocalStudy, own: Holding, cuts: Sequence[int], partitions: int) -> Intake:
    """Take in a table in batches that end at the cuts."""
    spool = MemorySpool()
    intake = new_intake(staged, spool, partitions)
    bounds = [0, *sorted(cuts), len(own.ids)]
    for start, stop in itertools.pairwise(bounds):
        part = IdMessages(own.ids.data, own.ids.offsets[start : stop + 1])
        intake.add(part, [column[start:stop] for column in own.codes])
    intake.close()
    return intake


def prepare(staged: LocalStudy, intake: Intake) -> tuple[Prepared[Upload], MemoryChunks]:
    """Prepare an upload, always with the same randomness."""
    context = CuratorContext(
        staged.outcome.contexts[0].identity,
        CipherEntropy.from_seed(1, "intake"),
        MemoryChunks(),
        MemoryChunks(),
    )
    signed = staged.outcome.contract
    if signed.body.matched:
        prepared = prepare_table(context, signed, intake, MemorySpool())
    else:
        prepared = prepare_sample(
            context, signed, intake, [align(signed.body, context.identity, intake)]
        )
    assert isinstance(context.outgoing, MemoryChunks)
    return prepared, context.outgoing


def decrypted(prepared: Prepared[Upload], chunks: MemoryChunks) -> list[list[int]]:
    """Take the pads away again, attribute by attribute."""
    body = prepared.message.body
    found = []
    for index, (column, each) in enumerate(zip(body.columns, SCHEMA.attributes, strict=True)):
        sent = read_column(column.chunks, each, body.rows, chunks)
        pad = prepared.pads.span(index, slice(0, body.rows))
        found.append(group.subtract(sent, pad, each.size).tolist())
    return found


@st.composite
def intakes(draw: st.DrawFn) -> tuple[int, list[int], int, int]:
    """Draw a number of rows, batches, partitions, and how many records are held at a time."""
    rows = draw(st.integers(1, 60))
    cuts = draw(st.lists(st.integers(0, rows), max_size=6))
    partitions = draw(st.sampled_from([1, 2, 3, 7, 64, 256]))
    return rows, cuts, partitions, draw(st.sampled_from([1, 2, 5, 1000]))


@pytest.mark.slow
@pytest.mark.parametrize("linkage", ["aligned", "matched"])
@given(drawn=intakes())
@example(drawn=(60, [7, 20, 20], 65_536, 2))  # as many as there can be, which takes a second
@settings(max_examples=25)
def test_batches_and_partitions_make_no_difference(
    linkage: LinkageMode, drawn: tuple[int, list[int], int, int]
) -> None:
    """One partition and one batch against any others: the same message, and the same chunks."""
    rows, cuts, partitions, held = drawn
    staged, own = open_study(rows, linkage), table(rows)
    plain = take_in(staged, own, [], 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sorting, "BUFFER_ROWS", held)
        patch.setattr("veiltab.protocol.curator.table.BUFFER_ROWS", held)
        cut = take_in(staged, own, cuts, partitions)
        (one, one_chunks), (two, two_chunks) = prepare(staged, plain), prepare(staged, cut)
    assert cut.population == rows
    assert cut.alignment_digest == plain.alignment_digest
    assert two.message == one.message
    assert two_chunks._chunks == one_chunks._chunks


@pytest.mark.parametrize("rows", [1, 2, 50])
@pytest.mark.parametrize("linkage", ["aligned", "matched"])
def test_the_rows_are_in_the_order_of_a_plain_sort(rows: int, linkage: LinkageMode) -> None:
    """Against NumPy's own sort of all bytes: by token, or by its CMAC under the order key."""
    staged, own = open_study(rows, linkage), table(rows)
    intake = take_in(staged, own, [rows // 3], 5)
    prepared, chunks = prepare(staged, intake)
    body = prepared.message.body
    tokens = tokens_of(staged.contract, staged.secret, own.ids)
    if linkage == "aligned":
        order = np.lexsort(tokens.T[::-1])[: body.rows]
        assert body.tokens is None
        assert body.population == rows
    else:
        key = np.empty(32, dtype=np.uint8)
        CipherEntropy.from_seed(1, "intake").fill(key)
        keys = make_tokens(key.tobytes(), tokens.reshape(-1), np.arange(0, 16 * rows + 1, 16))
        order = np.lexsort(keys.T[::-1])
        sent = read_tokens(body.tokens or (), body.rows, chunks)
        assert sent.tolist() == tokens[order].tolist()
        assert body.rows == rows
    assert decrypted(prepared, chunks) == [column[order].tolist() for column in own.codes]


def test_the_digest_is_that_of_all_tokens() -> None:
    """Sorted over all partitions (spec 5.1)."""
    staged, own = open_study(40), table(40)
    tokens = sorted(row.tobytes() for row in tokens_of(staged.contract, staged.secret, own.ids))
    ordered = np.frombuffer(b"".join(tokens), dtype=np.uint8).reshape(-1, 16)
    key = alignment_key(staged.secret, staged.contract.study_id)
    expected = alignment_digest(key, 40, [ordered])
    assert take_in(staged, own, [3, 20], 16).alignment_digest == expected


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_spans_are_full_except_for_the_last(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the partitions' sizes are, and up to any limit."""
    staged, own = open_study(50), table(50)
    intake = take_in(staged, own, [], 9)
    monkeypatch.setattr(sorting, "SPAN_ROWS", chunk)
    whole = np.concatenate([tokens for tokens, _ in intake.rows()])
    for limit in (None, 1, 7, 49, 50, 51):
        rows = min(limit or 50, 50)
        found = [len(tokens) for tokens, _ in intake.rows(limit)]
        assert sum(found) == rows
        assert set(found[:-1]) <= {chunk}
        tokens = np.concatenate([tokens for tokens, _ in intake.rows(limit)])
        assert tokens.tolist() == whole[:rows].tolist()


@pytest.mark.parametrize("partitions", [1, 256])
def test_repeated_respondents_are_found_over_all_batches(partitions: int) -> None:
    """With the rows of the whole table in which they stand, counting from 1."""
    staged, spool = open_study(3), MemorySpool()
    intake = new_intake(staged, spool, partitions)
    codes: list[Codes] = [np.zeros(3, dtype=np.uint8), np.zeros(3, dtype=np.uint16)]
    for ids in ([1, 2, 3], [4, 2, 5], [6, 7, 1]):
        intake.add(messages_of(ids), codes)
    with pytest.raises(LinkageError, match=r"4 rows share an id .* rows 1, 2, 5, 9$"):
        intake.close()
    assert not spool._partitions
    with pytest.raises(StateError):
        intake.rows().__next__()


def test_many_repeated_respondents_are_counted_and_a_few_are_shown() -> None:
    """All rows are bad, five are listed."""
    staged = open_study(3)
    intake = new_intake(staged, MemorySpool())
    own = table(20)
    for _ in range(2):
        intake.add(own.ids, own.codes)
    with pytest.raises(LinkageError, match=r"40 rows share .* rows 1, 2, 3, 4, 5$"):
        intake.close()


def test_an_empty_table_is_refused() -> None:
    """Without a batch, and with an empty one."""
    staged = open_study(3)
    intake = new_intake(staged, MemorySpool())
    with pytest.raises(LinkageError, match="no respondents"):
        intake.close()
    intake.add(messages_of(np.arange(0)), [column[:0] for column in table(1).codes])
    with pytest.raises(LinkageError, match="no respondents"):
        intake.close()


def test_a_table_is_complete_before_it_is_used_and_then_stays() -> None:
    """Reading comes after closing, and adding before it."""
    staged, own = open_study(3), table(3)
    intake = new_intake(staged, MemorySpool())
    intake.add(own.ids, own.codes)
    identity = staged.outcome.contexts[0].identity
    for use in (
        lambda: intake.population,
        lambda: intake.alignment_digest,
        lambda: next(intake.rows()),
        lambda: align(staged.contract, identity, intake),
    ):
        with pytest.raises(StateError, match="not complete"):
            use()
    intake.close()
    intake.close()
    assert intake.population == 3
    with pytest.raises(StateError, match="closed already"):
        intake.add(own.ids, own.codes)


def test_nothing_is_left_behind() -> None:
    """After the with statement, also when something went wrong in it, and after shuffling."""
    staged, own = open_study(9), table(9)
    spool, second = MemorySpool(), MemorySpool()
    spool.append(7, memoryview(b"left by a crash"))
    with new_intake(staged, spool) as intake:
        assert not spool._partitions
        intake.add(own.ids, own.codes)
        intake.close()
        assert spool._partitions
        rows = intake.shuffled(bytes(32), second)
        next(rows)
        assert second._partitions
        rows.close()
        assert not second._partitions
    assert not spool._partitions
    with pytest.raises(SchemaError), new_intake(staged, spool) as other:
        _fail_after_adding(other, own)
    assert not spool._partitions


def _fail_after_adding(intake: Intake, own: Holding) -> None:
    intake.add(own.ids, own.codes)
    intake.close()
    raise SchemaError("something is wrong", hint="fix it")


def test_what_goes_wrong_while_preparing_leaves_no_scratch() -> None:
    """A full disk in the middle of an upload."""

    class Full(MemoryChunks):
        def put(self, chunk: bytes) -> bytes:
            raise OSError(28, f"no room for {len(chunk)} bytes")

    staged, spool = open_study(9, "matched"), MemorySpool()
    intake = take_in(staged, table(9), [], 1)
    context = replace(staged.outcome.contexts[0], outgoing=Full())
    with pytest.raises(OSError, match="no room"):
        prepare_table(context, staged.outcome.contract, intake, spool)
    assert not spool._partitions


def test_two_orders_need_two_spools() -> None:
    """The second would destroy the first."""
    staged, own, spool = open_study(3), table(3), MemorySpool()
    intake = new_intake(staged, spool)
    intake.add(own.ids, own.codes)
    intake.close()
    with pytest.raises(ParameterError, match="two orders"):
        next(intake.shuffled(bytes(32), spool))
    assert spool._partitions


@pytest.mark.parametrize("partitions", [0, -1, 65_537])
def test_the_number_of_partitions_has_bounds(partitions: int) -> None:
    """At least one, and no more than a number of 16 bits tells apart."""
    staged = open_study(3)
    with pytest.raises(ParameterError, match="partitions"):
        new_intake(staged, MemorySpool(), partitions)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda codes: codes[:1],
        lambda codes: [*codes, codes[0]],
        lambda codes: [codes[0][:-1], codes[1]],
        lambda codes: [codes[0], np.append(codes[1], codes[1][:1])],
        lambda codes: [codes[0] + np.uint8(1), codes[1]],
        lambda codes: [codes[0].astype(np.float64), codes[1]],
    ],
    ids=["a column less", "one more", "a row less", "a row more", "a code too large", "floats"],
)
def test_codes_must_be_the_attributes(spoil: Any) -> None:  # noqa: ANN401 - a spoiler of lists
    """In the group any number has a place, so a wrong code would become another category."""
    staged, own = open_study(30), table(30)
    intake = new_intake(staged, MemorySpool())
    codes: list[Codes] = spoil(list(own.codes))
    with pytest.raises(SchemaError):
        intake.add(own.ids, codes)
    intake.add(own.ids, own.codes)
    intake.close()
    assert intake.population == 30


def test_parts_of_a_real_table_are_alike() -> None:
    """Ids in order, and of one pattern: the partitions are of about the same size all the same."""
    staged, spool = open_study(3), MemorySpool()
    intake = new_intake(staged, spool, 16)
    rows = 16_000
    zeros: list[Codes] = [np.zeros(rows, dtype=np.uint8), np.zeros(rows, dtype=np.uint16)]
    intake.add(messages_of(np.arange(rows)), zeros)
    intake.close()
    sizes = [len(spool.read(number)) // 27 for number in range(16)]
    assert len(sizes) == 16
    assert sum(sizes) == rows
    assert max(abs(size - 1000) for size in sizes) < 200  # six standard deviations


def repeated_table() -> Holding:
    """Return ten respondents, of whom three come several times, with their codes."""
    ids = [0, 1, 2, 3, 1, 4, 5, 6, 2, 7, 8, 9, 1]
    own = holding(SIZES, np.array(ids), seed=1)
    small = np.arange(len(ids)) % 3
    large = np.arange(len(ids)) + 200
    return replace(own, codes=[small.astype(np.uint8), large.astype(np.uint16)])


def rows_of(intake: Intake) -> list[list[int]]:
    """Return the second code of every row, which names the row of the table, in token order."""
    return sorted([int(code) - 200] for _, codes in intake.rows() for code in codes[1])


@pytest.mark.parametrize("partitions", [1, 7, 256])
@pytest.mark.parametrize(
    ("duplicates", "kept"),
    [
        ("first", [0, 1, 2, 3, 5, 6, 7, 9, 10, 11]),
        ("last", [0, 3, 5, 6, 7, 8, 9, 10, 11, 12]),
    ],
)
def test_one_row_of_each_respondent_is_kept_by_its_place_in_the_table(
    duplicates: Duplicates, kept: list[int], partitions: int
) -> None:
    """Whatever the batches; population and digests are those of the rows that are left."""
    staged, own = open_study(10), repeated_table()
    me, spool = staged.contract.curators[0].party_id, MemorySpool()
    intake = Intake(
        staged.contract,
        staged.secret,
        SCHEMA,
        spool,
        curator=me,
        partitions=partitions,
        duplicates=duplicates,
    )
    for start, stop in itertools.pairwise([0, 4, 5, len(own.ids)]):
        part = IdMessages(own.ids.data, own.ids.offsets[start : stop + 1])
        intake.add(part, [column[start:stop] for column in own.codes])
    intake.close()
    assert (intake.population, intake.dropped) == (10, 3)
    assert rows_of(intake) == [[row] for row in kept]
    alone = replace(
        own,
        ids=messages_of(np.array([0, 1, 2, 3, 1, 4, 5, 6, 2, 7, 8, 9, 1])[kept]),
        codes=[column[kept] for column in own.codes],
    )
    plain = take_in(staged, alone, [], partitions)
    assert plain.dropped == 0
    assert intake.alignment_digest == plain.alignment_digest
    assert intake.table_digest == plain.table_digest
    shuffled = intake.shuffled(bytes(32), MemorySpool())
    assert sum(len(tokens) for tokens, _ in shuffled) == 10


def test_identical_rows_are_one_and_all_others_are_refused() -> None:
    """By their codes: what is no attribute may differ, and a part of an id's rows is not enough."""
    staged, own = open_study(10), repeated_table()
    me = staged.contract.curators[0].party_id

    def closed(codes: Sequence[Codes]) -> Intake:
        intake = Intake(
            staged.contract,
            staged.secret,
            SCHEMA,
            MemorySpool(),
            curator=me,
            duplicates="identical",
        )
        intake.add(own.ids, codes)
        intake.close()
        return intake

    same: list[Codes] = [np.zeros(13, np.uint8), np.zeros(13, np.uint16)]
    intake = closed(same)
    assert (intake.population, intake.dropped) == (10, 3)
    same[1][4] = 1
    message = "3 rows share an id with another row, and differ from it in some attribute, such as"
    with pytest.raises(LinkageError, match=f"{message} rows 2, 5, 13") as caught:
        closed(same)
    assert '"first"' in caught.value.hint
