"""The server matches and draws range by range: who is found, in which order, and what is left."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.entropy import CountingEntropy, ScriptedEntropy
from tests.support.exhaustive import random_keys, ranks, words
from tests.support.simulator import attribute
from veiltab.core.schema import Codes
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import MismatchError, UnavailableError
from veiltab.files.spool import FolderSpool
from veiltab.protocol.server import match
from veiltab.protocol.server.context import memory_scratch
from veiltab.protocol.server.match import ROW, UploadedTable, partition_count, shuffled
from veiltab.protocol.sorting import MemorySpool, Spool
from veiltab.protocol.stores import MemoryChunks, write_rows, write_tokens
from veiltab.wire.messages import ColumnChunks, Upload
from veiltab.wire.packing import CHUNK_ROWS

Tokens = NDArray[np.uint8]
ATTRIBUTES = (attribute("small", 3), attribute("large", 300))


def random_tokens(count: int, seed: int = 0) -> Tokens:
    """Return different tokens in no order."""
    return np.random.default_rng(seed).integers(256, size=(count, 16), dtype=np.uint8)


def table_of(tokens: Tokens) -> UploadedTable:
    """Upload a table whose codes can be told from its tokens."""
    store, rows = MemoryChunks(), len(tokens)
    codes: list[Codes] = [tokens[:, 8] % 3, tokens[:, 9].astype(np.uint16) + 44]
    columns = []
    for definition, column in zip(ATTRIBUTES, codes, strict=True):
        digests = tuple(write_rows(column, definition, store))
        columns.append(ColumnChunks(attribute=definition.name, chunks=digests))
    upload = Upload(
        columns=tuple(columns),
        curator=bytes(32),
        population=None,
        rows=rows,
        scope=bytes(32),
        tokens=write_tokens(tokens, store),
        upload_id=bytes(16),
    )
    return UploadedTable(upload, ATTRIBUTES, store)


class Scratch:
    """Scratch space that remembers its spools."""

    def __init__(self, make: Callable[[str], Spool] = memory_scratch) -> None:
        """Make spools in this way."""
        self._make = make
        self.spools: dict[str, Spool] = {}

    def __call__(self, name: str) -> Spool:
        """Return the spool of a name."""
        return self.spools.setdefault(name, self._make(name))

    def is_empty(self) -> bool:
        """Say whether anything is left."""
        return not any(spool.read(part) for spool in self.spools.values() for part in range(5_000))


@pytest.fixture(params=[1 << 22, 1_000, 100])
def parts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Split tables into one part, some, or about as many as they have rows."""
    monkeypatch.setattr(match, "PART_BYTES", request.param)


def draw_all(tables: Sequence[UploadedTable], scratch: Scratch | None = None) -> list[list[int]]:
    """Match, shuffle, and return the rows of every common respondent; codes are checked."""
    entropy = CipherEntropy.from_seed(2, "drawing")
    with shuffled(tables, entropy, scratch or Scratch()) as common:
        chunks = list(common.sample(common.population)) if common.population else []
    for chunk in chunks:
        seen = [table.codes(rows) for table, rows in zip(tables, chunk, strict=True)]
        for codes in zip(*seen, strict=True):
            assert all(np.array_equal(codes[0], other) for other in codes)
    return [
        list(row) for chunk in chunks for row in zip(*(t[ROW].tolist() for t in chunk), strict=True)
    ]


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("curators", [1, 2, 5])
def test_the_common_respondents_are_what_dictionaries_find(curators: int) -> None:
    """However many curators and parts there are; each table is in an order of its own."""
    tokens = random_tokens(400)
    order = np.random.default_rng(curators)
    held = [tokens[order.permutation(400)[: 400 - 20 * i]] for i in range(curators)]
    drawn = draw_all([table_of(tokens) for tokens in held])
    rows = [{token.tobytes(): row for row, token in enumerate(tokens)} for tokens in held]
    common = set.intersection(*map(set, rows))
    assert sorted(drawn) == sorted([table[token] for table in rows] for token in common)
    assert drawn != sorted(drawn)


@pytest.mark.slow
def test_the_number_of_parts_and_the_disk_make_no_difference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same key gives the same rows in the same order, wherever they are sorted."""
    tokens = random_tokens(70_000)
    tables = [table_of(tokens), table_of(tokens[::-1][:69_000].copy())]
    expected = draw_all(tables)
    assert len(expected) == 69_000
    for size in (1 << 22, 1 << 17):
        monkeypatch.setattr(match, "PART_BYTES", size)
        assert draw_all(tables, Scratch(lambda name: FolderSpool(tmp_path / "s", name))) == expected
        assert not (tmp_path / "s").exists()


def test_the_number_of_parts_grows_with_the_table() -> None:
    """So that a part has the same size; a hundred million rows are some hundreds of files."""
    assert partition_count(1) == partition_count(match.PART_BYTES) == 1
    assert partition_count(match.PART_BYTES + 1) == 2
    assert 100 < partition_count(100_000_000 * 30) < 1_000
    assert partition_count(2**60) == 1 << 16


def test_every_ordered_sample_is_as_likely() -> None:
    """All orders of the keys: each ordered pair of four comes from two of the 24."""
    tables = [table_of(random_tokens(4)), table_of(random_tokens(4)[::-1].copy())]
    seen: Counter[tuple[int, ...]] = Counter()
    for order in permutations(range(4)):
        entropy = ScriptedEntropy(random_keys(ranks(order)))
        with shuffled(tables, entropy, memory_scratch) as common:
            (chunk,) = common.sample(2)
        assert entropy.used == 4 * 16
        assert (chunk[0][ROW] + chunk[1][ROW]).tolist() == [3, 3]
        seen[tuple(chunk[0][ROW].tolist())] += 1
    assert dict(seen) == dict.fromkeys(permutations(range(4), 2), 2)


def rows_drawn(keys: Sequence[int], further: Sequence[int], size: int) -> tuple[int, ...]:
    """Return which respondents, in the order of their tokens, the server draws with these draws."""
    tokens = np.zeros((len(keys), 16), dtype=np.uint8)
    tokens[:, 15] = np.arange(len(keys))
    entropy = ScriptedEntropy(random_keys(keys) + words(further, 8))
    with shuffled([table_of(tokens)], entropy, memory_scratch) as common:
        (chunk,) = common.sample(size)
    assert entropy.used == 16 * len(keys) + 8 * len(further)
    return tuple(chunk[0][ROW].tolist())


@pytest.mark.parametrize("size", [1, 2, 3])
def test_equal_keys_leave_no_order_to_the_sorting(size: int) -> None:
    """All three equal: a further draw for each decides, and every ordered sample is as likely."""
    seen = Counter(rows_drawn([5, 5, 5], ranks(order), size) for order in permutations(range(3)))
    samples = list(permutations(range(3), size))
    assert dict(seen) == dict.fromkeys(samples, 6 // len(samples))


def test_only_equal_keys_are_drawn_further() -> None:
    """Two pairs among five; and where the further draws are equal, they are drawn again."""
    keys = [7, 2, 7, 2, 4]
    assert rows_drawn(keys, [1, 0, 3, 2], 5) == (3, 1, 4, 2, 0)
    assert rows_drawn(keys, [0, 1, 2, 3], 5) == (1, 3, 4, 0, 2)
    assert rows_drawn(keys, [9, 1, 0, 0, 1, 0, 1, 0], 5) == (3, 1, 4, 2, 0)
    assert rows_drawn(keys, [9, 1, 9, 1], 5) == (3, 1, 4, 2, 0)  # equal, but in different pairs
    assert rows_drawn(keys, [1, 0, 0, 1], 1) == (3,)


def test_no_more_is_drawn_than_a_key_for_each_common_respondent() -> None:
    """Respondents whom not all hold get none: what they would draw depends on nobody's upload."""
    tokens = random_tokens(50)
    entropy = CountingEntropy(CipherEntropy.from_seed(1, "drawing"))
    with shuffled([table_of(tokens), table_of(tokens[10:])], entropy, memory_scratch) as common:
        assert len(list(common.sample(5))) == 1
    assert (common.population, entropy.used) == (40, 640)


@pytest.mark.usefixtures("parts")
def test_tables_of_one_row() -> None:
    """The same respondent, and another one."""
    one, other = random_tokens(1), random_tokens(1, seed=1)
    assert draw_all([table_of(one), table_of(one), table_of(one)]) == [[0, 0, 0]]
    assert draw_all([table_of(one), table_of(other)]) == []


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("place", [0, 1])
def test_a_token_twice_is_refused_in_a_range_of_its_own(place: int) -> None:
    """Also where no other curator has a row near it; and nothing is left behind."""
    low, high = random_tokens(40), random_tokens(40, seed=1)
    low[:, 0], high[:, 0] = 0, 255
    tables = [table_of(low), table_of(low)]
    tables[place] = table_of(np.concatenate([low, high, high[:1]]))
    scratch = Scratch()
    with pytest.raises(MismatchError, match="same token twice"):
        draw_all(tables, scratch)
    assert scratch.is_empty()


@pytest.mark.slow
def test_crowded_tokens_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens that begin alike would all be matched in memory at once."""
    monkeypatch.setattr(match, "PART_BYTES", 1 << 12)
    tokens = random_tokens(CHUNK_ROWS + 4_000)
    scratch = Scratch()
    assert len(draw_all([table_of(tokens)])) == len(tokens)
    tokens[:, :4] = 9
    with pytest.raises(MismatchError, match="not spread as tokens are"):
        draw_all([table_of(random_tokens(10)), table_of(tokens)], scratch)
    assert scratch.is_empty()


@pytest.mark.usefixtures("parts")
def test_scratch_space_is_empty_afterwards() -> None:
    """Before the sample is read the tables' parts are gone, and after an error everything is."""
    tables = [table_of(random_tokens(50)), table_of(random_tokens(50))]
    scratch = Scratch()
    with shuffled(tables, CipherEntropy.from_seed(2, "drawing"), scratch) as common:
        sample = scratch.spools.pop("sample")
        assert scratch.is_empty()
        assert len(scratch.spools) == 2
        scratch.spools["sample"] = sample
        assert not scratch.is_empty()
        next(common.sample(20))
    assert scratch.is_empty()
    with (
        pytest.raises(RuntimeError),
        shuffled(tables, CipherEntropy.from_seed(2, "drawing"), scratch),
    ):
        raise RuntimeError("while the sample is read")
    assert scratch.is_empty()


class Forgetful(MemorySpool):
    """Scratch space that has lost one of its parts."""

    def read(self, partition: int) -> bytes:
        """Return a part, except the first one that holds anything."""
        first = min(self._partitions, default=-1)
        return b"" if partition == first else super().read(partition)


@pytest.mark.usefixtures("parts")
@pytest.mark.parametrize("name", ["table-0", "table-1", "sample"])
def test_lost_rows_are_noticed(name: str) -> None:
    """A smaller table would be a wrong one: the release is tried again instead."""
    tables = [table_of(random_tokens(50)), table_of(random_tokens(50))]
    scratch = Scratch(lambda spool: Forgetful() if spool == name else MemorySpool())
    with pytest.raises(UnavailableError, match="lost rows"):
        draw_all(tables, scratch)


def test_what_is_not_in_the_sample_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parts after the last row of a small sample stay where they are."""
    monkeypatch.setattr(match, "PART_BYTES", 1 << 10)

    class Watched(MemorySpool):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[int] = []

        def read(self, partition: int) -> bytes:
            self.seen.append(partition)
            return super().read(partition)

    spools = {name: Watched() for name in ("table-0", "sample")}
    tables = [table_of(random_tokens(5_000))]
    with shuffled(tables, CipherEntropy.from_seed(2, "d"), spools.__getitem__) as common:
        (chunk,) = common.sample(100)
    assert chunk[0].size == 100
    assert len(spools["table-0"].seen) > 100
    assert len(spools["sample"].seen) < 30  # some are read ahead
