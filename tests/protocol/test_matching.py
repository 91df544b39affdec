"""Matching respondents, and curators who do not hold the same ones."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.simulator import Simulator, holding, sanitized
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import AlignmentError, LinkageError, MismatchError
from veiltab.protocol.in_process import Terms
from veiltab.protocol.server.match import match_tokens
from veiltab.protocol.stores import write_tokens
from veiltab.protocol.verify import sign

TOKENS = st.tuples(st.integers(0, 3), st.sampled_from([0, 7, 8, 15])).map(
    lambda drawn: bytes(drawn[1]) + bytes([drawn[0]]) + bytes(15 - drawn[1])
)
"""Few different tokens, alike in one half or the other."""

TABLES = st.lists(st.lists(TOKENS, min_size=1, max_size=12, unique=True), min_size=1, max_size=4)


def as_rows(tokens: list[bytes]) -> NDArray[np.uint8]:
    """Return tokens as an array of 16 bytes each."""
    return np.frombuffer(b"".join(tokens), dtype=np.uint8).reshape(-1, 16)


def matched_by_dictionary(tables: list[list[bytes]]) -> list[list[int]]:
    """Match with dictionaries: obvious, slow and independent; in ascending order of tokens."""
    rows = [{token: row for row, token in enumerate(table)} for table in tables]
    common = set.intersection(*map(set, rows))
    return [[table[token] for table in rows] for token in sorted(common)]


@given(TABLES)
def test_matching_is_what_dictionaries_find(tables: list[list[bytes]]) -> None:
    """Any number of curators, any overlap, none included."""
    rows = match_tokens([as_rows(table) for table in tables])
    assert rows.shape == (len(matched_by_dictionary(tables)), len(tables))
    assert rows.tolist() == matched_by_dictionary(tables)


@pytest.mark.slow
@given(TABLES, st.data())
def test_a_token_twice_in_one_table_is_refused(
    tables: list[list[bytes]], data: st.DataObject
) -> None:
    """Wherever it stands, and whether others hold it or not."""
    table = data.draw(st.sampled_from(tables))
    table.insert(data.draw(st.integers(0, len(table))), data.draw(st.sampled_from(list(table))))
    with pytest.raises(MismatchError, match="same token twice"):
        match_tokens([as_rows(table) for table in tables])


def spread(rows: int, seed: int) -> NDArray[np.uint8]:
    """Return different tokens as they are, all over their range."""
    return np.random.default_rng(seed).integers(0, 256, (rows, 16)).astype(np.uint8)


@pytest.mark.slow
@pytest.mark.parametrize("curators", [2, 3])
def test_large_tables_are_matched_by_ranges(curators: int) -> None:
    """More rows than a range has: the same as a dictionary, whatever the number of threads."""
    everybody = spread(300_000, 1)
    generator = np.random.default_rng(2)
    tables = [
        everybody[np.sort(generator.permutation(len(everybody))[:200_000])[::-1]]
        for _ in range(curators)
    ]
    one, two = (match_tokens(tables, threads=threads) for threads in (1, 2))
    assert one.tolist() == two.tolist()
    common = set.intersection(*({row.tobytes() for row in table} for table in tables))
    matched = [table[rows] for table, rows in zip(tables, one.T, strict=True)]
    assert len(one) == len(common)
    assert all((tokens == matched[0]).all() for tokens in matched)
    ordered = [row.tobytes() for row in matched[0]]
    assert ordered == sorted(common)


@pytest.mark.slow
@pytest.mark.parametrize("alike", [1, 7, 15])
@pytest.mark.parametrize("curators", [1, 2, 3])
def test_large_tables_with_tokens_that_begin_alike(curators: int, alike: int) -> None:
    """Some have the first bits of another one, in their own table and in others', and no more."""
    generator = np.random.default_rng(alike)
    everybody = spread(100_000, 5)
    for copy in range(1, 4):
        others = everybody[copy * 1000 : copy * 1000 + 900]
        others[:, :alike], others[:, 15] = everybody[:900, :alike], everybody[:900, 15] + copy
    tables = [everybody[generator.permutation(len(everybody))[:90_000]] for _ in range(curators)]
    matched = match_tokens(tables, threads=2)
    rows = [{row.tobytes(): number for number, row in enumerate(table)} for table in tables]
    common = sorted(set.intersection(*map(set, rows)))
    assert len(common) > 50_000
    assert matched.tolist() == [[table[token] for table in rows] for token in common]


def test_tables_that_only_begin_alike_have_nobody_in_common() -> None:
    """Equal first halves of all tokens are not equal tokens."""
    ours, theirs = spread(100_000, 6), spread(100_000, 7)
    theirs[:, :12] = ours[:, :12]
    assert match_tokens([ours, theirs]).shape == (0, 2)


def test_a_token_twice_in_a_large_table_is_refused() -> None:
    """In whichever range it falls, and also if nobody else has it."""
    tables = [spread(150_000, 3), spread(150_000, 4)]
    tables[1][149_999] = tables[1][17]
    with pytest.raises(MismatchError, match="same token twice"):
        match_tokens(tables, threads=2)


def curators(*ids: list[int]) -> Simulator:
    """Return curators who hold these respondents, one attribute each."""
    holdings = [holding({f"a{i}": 3}, own, seed=i) for i, own in enumerate(ids)]
    return Simulator(
        holdings=holdings,
        entropy=CipherEntropy.from_seed(4, "curators"),
        server_entropy=CipherEntropy.from_seed(4, "server"),
    )


@pytest.mark.parametrize(
    ("first", "second"), [(range(1234), range(1230)), (range(500), range(1, 501))]
)
def test_curators_who_sample_stop_before_they_upload(first: range, second: range) -> None:
    """With both counts in the message, also if it is not the counts that differ."""
    rehearsal = curators(list(first), list(second))
    staged = rehearsal.study(Terms(epsilon=1.0))
    with pytest.raises(AlignmentError) as caught:
        staged.prepare()
    assert f"curator 1: {len(first):,} respondents" in caught.value.message
    assert f"curator 2: {len(second):,}" in caught.value.message
    assert "matched linkage" in caught.value.hint
    assert not staged.outcome.study.uploads
    assert not len(staged.outcome.received)


@pytest.mark.parametrize("way", ["fresh", "stored"])
def test_the_server_takes_the_respondents_that_all_hold(way: str) -> None:
    """N is the size of the intersection; all of it sampled, it is estimated with hardly noise."""
    ids = [list(range(60)), list(range(20, 90)), list(range(10, 50))]
    rehearsal = curators(*ids)
    terms = Terms(epsilon=40.0, sample_size=30, linkage="matched")
    outcome = (
        rehearsal.run(terms) if way == "fresh" else rehearsal.run_stored(terms, rehearsal.deposit())
    )
    access = rehearsal.access(outcome)
    release = outcome.study.release().body
    assert (release.population, release.rows) == (30, 30)
    assert access.plan.population_size == 30
    columns = sanitized(access, outcome.released)
    records = sorted(zip(*(columns[f"a{i}"].tolist() for i in range(3)), strict=True))
    plain = [
        dict(zip(own, each.codes[0].tolist(), strict=True))
        for own, each in zip(ids, rehearsal.holdings, strict=True)
    ]
    assert records == sorted(tuple(column[i] for column in plain) for i in range(20, 50))


@pytest.mark.parametrize("way", ["fresh", "stored"])
def test_curators_with_nobody_in_common(way: str) -> None:
    """There is nothing to estimate, and the study does not go on."""
    rehearsal = curators([1, 2, 3], [3, 4], [4, 5, 1])
    deposit = rehearsal.deposit()
    terms = Terms(epsilon=1.0, linkage="matched")
    run = rehearsal.run if way == "fresh" else partial(rehearsal.run_stored, deposit=deposit)
    with pytest.raises(AlignmentError, match="no respondent in common"):
        run(terms)


def test_a_sample_larger_than_the_intersection() -> None:
    """Fewer respondents than the contract wants to sample: no release."""
    rehearsal = curators(list(range(10)), list(range(5, 15)))
    with pytest.raises(MismatchError, match="a sample of 6, and there are 5 respondents"):
        rehearsal.run(Terms(epsilon=1.0, sample_size=6, linkage="matched"))


def test_an_upload_with_a_repeated_token_does_not_join() -> None:
    """A curator's own check refuses it first; the server does not rely on that."""
    rehearsal = curators([1, 2, 3], [1, 2, 3])
    staged = rehearsal.study(Terms(epsilon=1.0, linkage="matched"))
    first, second = staged.prepare()
    staged.outcome.study.upload(first.message)
    repeated = write_tokens(staged.tokens[1][[0, 1, 1]], staged.outcome.received)
    changed = replace(second.message.body, tokens=repeated)
    staged.outcome.study.upload(sign(changed, rehearsal.curators[1].signing))
    with pytest.raises(MismatchError, match="same token twice"):
        staged.outcome.study.release()
    with pytest.raises(LinkageError):
        curators([1, 2, 2], [1, 2, 3]).run(Terms(epsilon=1.0, linkage="matched"))
