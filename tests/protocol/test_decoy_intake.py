"""Taking in a table where there are decoys: who takes part, what is hidden, and every digest."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.chunks import read_column, read_tokens
from tests.support.decoys import THIRD, decoy_terms, expected_sample, terms
from tests.support.simulator import (
    LocalStudy,
    Simulator,
    attribute,
    holding,
    messages_of,
    tokens_of,
)
from veiltab.core import group
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Geometric, LinkageMode
from veiltab.core.schema import Schema
from veiltab.crypto.derivation import alignment_key
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.linkage import IdMessages, alignment_digest, token_order
from veiltab.errors import LinkageError, StateError
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.curator.upload import (
    CuratorContext,
    Prepared,
    align,
    prepare_sample,
    prepare_table,
)
from veiltab.protocol.in_process import Holding, Terms
from veiltab.protocol.sorting import MemorySpool
from veiltab.protocol.stores import MemoryChunks
from veiltab.wire.messages import Upload

SIZES = {"small": 3, "large": 300}
SCHEMA = Schema(attribute(name, size) for name, size in SIZES.items())
LINKAGES: tuple[LinkageMode, ...] = ("aligned", "matched")
linkages = pytest.mark.parametrize("linkage", LINKAGES)


def open_study(linkage: LinkageMode = "aligned", **changes: Any) -> LocalStudy:
    """Open a study of two curators, of whom the first has a table as below."""
    shares = (SIZES, {"other": 2})
    return Simulator(shares=shares, population=9).study(terms(linkage, **changes))


def table(rows: int) -> Holding:
    """Return a table with known codes."""
    return holding(SIZES, range(rows))


def take_in(staged: LocalStudy, own: Holding, cuts: list[int], partitions: int) -> Intake:
    """Take a table in, cut into batches."""
    me, spool = staged.contract.curators[0].party_id, MemorySpool()
    intake = Intake(
        staged.contract, staged.secret, SCHEMA, spool, curator=me, partitions=partitions
    )
    for start, stop in itertools.pairwise([0, *sorted(cuts), len(own.ids)]):
        part = IdMessages(own.ids.data, own.ids.offsets[start : stop + 1])
        intake.add(part, [column[start:stop] for column in own.codes])
    intake.close()
    return intake


def prepare(staged: LocalStudy, intake: Intake) -> tuple[Prepared[Upload], MemoryChunks]:
    """Prepare the first curator's upload; the other one holds the same respondents."""
    chunks = MemoryChunks()
    first, second = staged.rehearsal.curators
    entropy = CipherEntropy.from_seed(1, "intake")
    context = CuratorContext(first, entropy, chunks, MemoryChunks())
    signed = staged.outcome.contract
    aligned = [align(signed.body, who, intake) for who in (first, second)]
    if signed.body.matched:
        return prepare_table(context, signed, intake, MemorySpool(), aligned), chunks
    return prepare_sample(context, signed, intake, aligned), chunks


def decrypted(prepared: Prepared[Upload], chunks: MemoryChunks) -> list[list[int]]:
    """Return the codes of each uploaded row."""
    body = prepared.message.body
    columns = []
    for index, (column, each) in enumerate(zip(body.columns, SCHEMA.attributes, strict=True)):
        codes = read_column(column.chunks, each, body.rows, chunks)
        pad = prepared.pads.span(index, slice(0, body.rows))
        columns.append(group.subtract(codes, pad, each.size).tolist())
    return [list(row) for row in zip(*columns, strict=True)]


@linkages
@pytest.mark.parametrize("coin", [1, 2**40, THIRD, DRAW_RANGE * 9 // 10])
@pytest.mark.parametrize("rows", [1, 50])
def test_the_upload_is_who_takes_part_and_the_decoys(
    linkage: LinkageMode, coin: int, rows: int
) -> None:
    """In token order where aligned; in an order of its own, with tokens, where matched."""
    staged = open_study(linkage, mechanism=decoy_terms(coin), epsilon=10.0)
    own = table(rows)
    intake = take_in(staged, own, [rows // 3], 5)
    prepared, chunks = prepare(staged, intake)
    body = prepared.message.body
    tokens = tokens_of(staged.contract, staged.secret, own.ids)
    expected = expected_sample(staged.contract, staged.secret, 0, tokens, list(own.codes))
    assert body.rows == intake.sample_rows == len(expected)
    rows_sent = decrypted(prepared, chunks)
    if linkage == "aligned":
        assert (body.tokens, body.population) == (None, rows)
        assert rows_sent == list(expected.values())
        return
    assert body.population is None
    sent = [token.tobytes() for token in read_tokens(body.tokens or (), body.rows, chunks)]
    assert dict(zip(sent, rows_sent, strict=True)) == expected
    assert sent != sorted(sent)


@st.composite
def intakes(draw: st.DrawFn) -> tuple[int, list[int], int, int]:
    """Draw a number of rows, where batches are cut, partitions, and a coin."""
    rows = draw(st.integers(1, 60))
    cuts = draw(st.lists(st.integers(0, rows), max_size=4))
    coin = draw(st.sampled_from([2**20, 2**33, THIRD, DRAW_RANGE * 9 // 10]))
    return rows, cuts, draw(st.integers(2, 40)), coin


@linkages
@given(drawn=intakes())
@settings(max_examples=20, deadline=None)
def test_batches_and_partitions_make_no_difference(
    linkage: LinkageMode, drawn: tuple[int, list[int], int, int]
) -> None:
    """One partition and one batch against any others: the same message, chunks and digests."""
    rows, cuts, partitions, coin = drawn
    staged = open_study(linkage, mechanism=decoy_terms(coin), epsilon=10.0)
    own = table(rows)
    plain, cut = take_in(staged, own, [], 1), take_in(staged, own, cuts, partitions)
    (one, one_chunks), (two, two_chunks) = prepare(staged, plain), prepare(staged, cut)
    assert two.message == one.message
    assert two_chunks._chunks == one_chunks._chunks
    for name in ("alignment_digest", "decoy_digest", "table_digest", "sample_rows", "population"):
        assert getattr(plain, name) == getattr(cut, name)


def test_the_cut_is_by_value() -> None:
    """Who takes part depends on nobody else: with fewer respondents, the same ones remain."""
    staged = open_study()
    few, many = table(20), table(60)
    samples = []
    for own in (few, many):
        tokens = tokens_of(staged.contract, staged.secret, own.ids)
        intake = take_in(staged, own, [], 1)
        sent = {token.tobytes() for part, _ in intake.rows() for token in part}
        samples.append(sent & {token.tobytes() for token in tokens[:20]})
    assert samples[0] == samples[1]
    assert 0 < len(samples[0]) < 20


def test_no_digest_of_respondents_has_decoys_in_it() -> None:
    """The alignment is of all respondents, whether they take part or not, and of nobody else."""
    staged, own = open_study(), table(40)
    intake = take_in(staged, own, [3, 20], 16)
    tokens = tokens_of(staged.contract, staged.secret, own.ids)
    key = alignment_key(staged.secret, staged.contract.scope)
    assert intake.alignment_digest == alignment_digest(key, 40, [tokens[token_order(tokens)]])
    assert intake.population == 40
    assert intake.sample_rows != 40


def test_the_table_digest_is_of_ids_and_codes() -> None:
    """Any other id or code changes it; the order of the rows does not, nor how often it is read."""
    staged, own = open_study(), table(30)
    plain = take_in(staged, own, [], 4).table_digest
    order = np.arange(30)[::-1]
    turned = Holding(own.attributes, [column[order] for column in own.codes], messages_of(order))
    assert take_in(staged, turned, [7], 4).table_digest == plain
    seen = {plain}
    for place, column in itertools.product((0, 29), (0, 1)):
        codes = [each.copy() for each in own.codes]
        codes[column][place] = (codes[column][place] + 1) % own.attributes[column].size
        seen.add(take_in(staged, Holding(own.attributes, codes, own.ids), [], 4).table_digest)
    others = messages_of([*range(29), 99])
    seen.add(take_in(staged, Holding(own.attributes, own.codes, others), [], 4).table_digest)
    swapped = [own.codes[0], own.codes[1].copy()]
    swapped[1][[0, 1]] = 1, 2
    seen.add(take_in(staged, Holding(own.attributes, swapped, own.ids), [], 4).table_digest)
    assert len(seen) == 7


def test_who_comes_twice_is_found_whether_taking_part_or_not() -> None:
    """And no decoy is ever named as a row."""
    mechanism = decoy_terms(1, Geometric(DRAW_RANGE // 2))
    staged = open_study(mechanism=mechanism, epsilon=10.0)
    me, spool = staged.contract.curators[0].party_id, MemorySpool()
    intake = Intake(staged.contract, staged.secret, SCHEMA, spool, curator=me)
    for _ in range(2):
        intake.add(table(3).ids, table(3).codes)
    with pytest.raises(LinkageError, match=r"6 rows share an id .* rows 1, 2, 3, 4, 5$"):
        intake.close()
    assert not spool._partitions


def test_a_table_whose_decoys_are_not_complete_is_not_used() -> None:
    """A disk that is full while decoys are added: some would be taken for respondents."""

    class Full(MemorySpool):
        room = 35

        def append(self, partition: int, data: memoryview) -> None:
            self.room -= 1
            if not self.room:
                raise OSError(28, "no room")
            super().append(partition, data)

    staged, own = open_study(), table(30)
    me, spool = staged.contract.curators[0].party_id, Full()
    intake = Intake(staged.contract, staged.secret, SCHEMA, spool, curator=me, partitions=32)
    intake.add(own.ids, own.codes)
    with pytest.raises(OSError, match="no room"):
        intake.close()
    spool.room = 10**6
    with pytest.raises(StateError):
        intake.close()
    with pytest.raises(StateError):
        intake.add(own.ids, own.codes)
    with pytest.raises(StateError, match="not complete"):
        next(intake.rows())


def test_a_study_without_decoys_has_none_of_this() -> None:
    """By rank, the sample is cut when it is prepared."""
    staged = Simulator().study(Terms(epsilon=1.0, sample_size=20))
    intake = staged.intakes[0]
    assert intake.decoy_digest is None
    assert intake.sample_rows is None
    assert len(intake.table_digest) == 32


@pytest.mark.parametrize("coin", [2**48, 2**60, THIRD, DRAW_RANGE * 9 // 10])
def test_no_part_becomes_long(coin: int) -> None:
    """However rare it is to take part, decoys are spread over half of the parts at least."""
    mechanism = decoy_terms(coin, Geometric(DRAW_RANGE * 19 // 20))
    staged = open_study(mechanism=mechanism, epsilon=10.0)
    intake = take_in(staged, table(16_000), [], 32)
    assert isinstance(intake._spool, MemorySpool)
    assert intake.sample_rows is not None
    width = 16 + 8 + 1 + 2
    sizes = [len(intake._spool.read(number)) // width for number in range(32)]
    decoys = sum(sizes) - 16_000
    assert decoys > 16_000
    assert max(sizes) < 1.25 * max((16_000 + decoys) / 16, 1000)
