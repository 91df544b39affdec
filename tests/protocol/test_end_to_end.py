"""From tables to sanitized records, bit for bit: decrypt(perturb(encrypt(x))) = x[order] + noise.

The server's entropy is known here, so its draws are made a second time by the test.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.chunks import read_positions, read_tokens
from tests.support.simulator import Simulator, holding, sanitized
from veiltab.core.entropy import random_bytes
from veiltab.core.noise import draw_noise
from veiltab.core.plan import Plan
from veiltab.core.schema import Codes, CountTable
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.linkage import token_order
from veiltab.errors import ParameterError
from veiltab.protocol.in_process import Outcome, Terms
from veiltab.protocol.researcher import Access, count_records
from veiltab.wire.contract import PadMode
from veiltab.wire.messages import Upload
from veiltab.wire.packing import BLINDING_BYTES, CHUNK_ROWS, chunk_count

Way = Literal["aligned", "fresh", "stored"]

SHARES: dict[int, tuple[Mapping[str, int], ...]] = {
    1: ({"one": 1, "two": 2, "three": 3, "seven": 7, "byte": 256, "wide": 1000},),
    2: ({"wide": 1000, "one": 1, "three": 3}, {"byte": 256, "two": 2, "seven": 7}),
    3: ({"seven": 7}, {"one": 1, "wide": 1000, "byte": 256}, {"two": 2, "three": 3}),
    5: ({"two": 2}, {"one": 1}, {"byte": 256, "three": 3}, {"wide": 1000}, {"seven": 7}),
}
"""The same attributes, from 1 to 1000 categories, divided among more and more curators."""

WAYS: tuple[Way, ...] = ("aligned", "fresh", "stored")
PADS: tuple[PadMode, ...] = ("stream", "one-time")
ways = pytest.mark.parametrize("way", WAYS)
pads = pytest.mark.parametrize("mode", PADS)


def parties(shares: Sequence[Mapping[str, int]], way: Way, population: int) -> Simulator:
    """Return curators who hold the same respondents, each in an order of its own.

    Where the server matches, each curator holds some respondents besides whom nobody else has.
    """
    source = np.random.default_rng(population)
    holdings = []
    for number, sizes in enumerate(shares):
        extra = number if way != "aligned" else 0
        own = np.arange(extra) - 1000 * (number + 1)
        ids = source.permutation(np.concatenate([np.arange(population), own]))
        holdings.append(holding(sizes, ids, seed=number))
    return Simulator(
        holdings=holdings,
        entropy=CipherEntropy.from_seed(population, "curators"),
        server_entropy=CipherEntropy.from_seed(population, "server"),
    )


def run(rehearsal: Simulator, way: Way, mode: PadMode, sample_size: int | None) -> Outcome:
    """Go through a study in one of the three ways; ε is large, so that most records are kept."""
    terms = Terms(
        epsilon=18.0,
        sample_size=sample_size,
        linkage="aligned" if way == "aligned" else "matched",
        pads=mode,
    )
    if way == "stored":
        return rehearsal.run_stored(terms, rehearsal.deposit())
    return rehearsal.run(terms)


def expected(
    rehearsal: Simulator, way: Way, population: int, plan: Plan
) -> dict[str, NDArray[np.int64]]:
    """Compute what the researcher must find, from the plain tables and the server's entropy."""
    server = CipherEntropy.from_seed(population, "server")
    orders = sampled_rows(rehearsal, way, plan, server)
    schema_sizes = {a.name: a.size for h in rehearsal.holdings for a in h.attributes}
    noise = redraw_noise(plan, server, tuple(schema_sizes.values()))
    plain = [
        codes[order].astype(np.int64)
        for order, each in zip(orders, rehearsal.holdings, strict=True)
        for codes in each.codes
    ]
    columns = zip(schema_sizes.items(), plain, noise, strict=True)
    return {name: (x + error) % size for (name, size), x, error in columns}


def sampled_rows(
    rehearsal: Simulator, way: Way, plan: Plan, server: CipherEntropy
) -> list[NDArray[np.int64]]:
    """Return the rows of each curator's table in the order of the release."""
    if way == "aligned":
        return [token_order(found)[: plan.sample_size] for found in rehearsal.tokens]
    rows = [{t.tobytes(): row for row, t in enumerate(found)} for found in rehearsal.tokens]
    common = sorted(set.intersection(*map(set, rows)))
    assert len(common) == plan.population_size
    keyed = sorted((random_bytes(16, server), token) for token in common)
    chunks = len(rows) * chunk_count(plan.ranked.sample_size)
    random_bytes(BLINDING_BYTES * chunks, server)  # of each curator's positions
    chosen = [token for _, token in keyed[: plan.sample_size]]
    return [np.array([own[token] for token in chosen]) for own in rows]


def redraw_noise(
    plan: Plan, server: CipherEntropy, sizes: Sequence[int]
) -> list[NDArray[np.int64]]:
    """Draw the server's noise again, and take it apart without the schema."""
    cells = draw_noise(plan.ranked.channel, plan.ranked.sample_size, server).astype(np.int64)
    codes = []
    for size in reversed(sizes):  # mixed radix, the first attribute most significant
        cells, code = np.divmod(cells, size)
        codes.append(code)
    return codes[::-1]


def check(rehearsal: Simulator, outcome: Outcome, way: Way, population: int) -> Access:
    """Compare every column that the researcher decrypts with what it must be."""
    access = rehearsal.access(outcome)
    assert access.plan.population_size == population
    found = sanitized(access, outcome.released)
    wanted = expected(rehearsal, way, population, access.plan)
    assert list(found) == list(wanted)
    for name, codes in wanted.items():
        np.testing.assert_array_equal(found[name], codes, err_msg=name)
    return access


@ways
@pads
@pytest.mark.parametrize("curators", SHARES)
def test_every_attribute_of_every_curator(curators: int, mode: PadMode, way: Way) -> None:
    """All sizes of attributes, 1 to 5 curators, both pads, all ways: exactly x[order] + noise."""
    rehearsal = parties(SHARES[curators], way, 90)
    outcome = run(rehearsal, way, mode, 60)
    access = check(rehearsal, outcome, way, 90)
    assert 0.2 < access.plan.ranked.keep_probability < 0.999999


@ways
@pads
@pytest.mark.parametrize(("population", "sample_size"), [(1, 1), (1, None), (9, 1), (9, 9), (2, 2)])
def test_the_ends_of_the_range(
    population: int, sample_size: int | None, mode: PadMode, way: Way
) -> None:
    """One respondent, one sampled, all sampled."""
    rehearsal = parties(({"a": 3}, {"b": 2, "c": 5}), way, population)
    outcome = run(rehearsal, way, mode, sample_size)
    access = check(rehearsal, outcome, way, population)
    assert access.plan.sample_size == (sample_size or 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "mode"),
    [
        ("aligned", "stream"),
        ("aligned", "one-time"),
        ("fresh", "stream"),
        ("fresh", "one-time"),
        ("stored", "stream"),
        ("stored", "one-time"),
    ],
)
def test_samples_of_several_chunks(way: Way, mode: PadMode) -> None:
    """More than 65,536 rows are sampled, so pads, noise, columns and positions all continue."""
    population, sample_size = CHUNK_ROWS + 5000, CHUNK_ROWS + 1003
    rehearsal = parties(({"a": 3, "b": 300}, {"c": 17}), way, population)
    outcome = run(rehearsal, way, mode, sample_size)
    check(rehearsal, outcome, way, population)
    columns = outcome.study.release().body.columns
    assert [len(column.chunks) for column in columns] == [2, 2, 2]


@ways
def test_uploads_arrive_in_any_order(way: Way) -> None:
    """The columns stand in the contract's order, whichever curator was the fastest."""
    rehearsal = parties(SHARES[3], way, 50)
    terms = Terms(
        epsilon=18.0, sample_size=40, linkage="aligned" if way == "aligned" else "matched"
    )
    if way == "stored":
        deposit = rehearsal.deposit()
        outcome = rehearsal._open(rehearsal.stored_contract(terms, deposit))
        uploads = [table.upload for table in deposit.stored]
        requests = outcome.study.draw_from(deposit.vault, uploads, deposit.tables)
        for desk, table in zip(outcome.contexts, deposit.stored, strict=True):
            request = requests[desk.identity.party_id]
            outcome.prepared.append(table.repad(desk, outcome.contract, request, outcome.received))
    else:
        staged = rehearsal.study(terms)
        outcome = staged.outcome
        outcome.prepared += staged.prepare()
    for prepared in reversed(outcome.prepared):
        message = prepared.message
        if isinstance(message.body, Upload):
            outcome.study.upload(message)
        else:
            outcome.study.repad(message)
    outcome.release()
    check(rehearsal, outcome, way, 50)


def test_released_positions_are_rows_of_the_uploads() -> None:
    """Where the server matches afresh, the positions lead to the same respondent everywhere."""
    rehearsal = parties(SHARES[3], "fresh", 50)
    outcome = run(rehearsal, "fresh", "stream", 20)
    found = []
    release = outcome.study.release().body
    for sent, prepared, upload in zip(
        rehearsal.sent, outcome.prepared, release.uploads, strict=True
    ):
        body = prepared.message.body
        assert isinstance(body, Upload)
        tokens = read_tokens(body.tokens or (), body.rows, sent)
        positions = read_positions(upload.positions or (), 20, outcome.released)
        found.append([row.tobytes() for row in tokens[positions]])
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == 20
    assert found[0] != sorted(found[0])


@ways
def test_pads_hide_every_column(way: Way) -> None:
    """What is released is not what the researcher decrypts, nor the plain records."""
    rehearsal = parties(({"a": 7}, {"b": 256}), way, 400)
    outcome = run(rehearsal, way, "stream", 400)
    access = rehearsal.access(outcome)
    found = sanitized(access, outcome.released)
    nothing = {name: _NoPads() for name in access.pads}
    encrypted = sanitized(_with_pads(access, nothing), outcome.released)
    for name, size in (("a", 7), ("b", 256)):
        same = float((found[name] == encrypted[name]).mean())
        assert same == pytest.approx(1 / size, abs=6 * (1 / size / 400) ** 0.5)


class _NoPads:
    """PadMode that are all zero: what somebody without a grant can try."""

    def rows(self, where: slice) -> Codes:
        return np.zeros(where.stop - where.start, dtype=np.uint8)

    def at(self, positions: NDArray[np.int64]) -> Codes:
        return np.zeros(positions.size, dtype=np.uint8)


def _with_pads(access: Access, nothing: Mapping[str, _NoPads]) -> Access:
    return Access(access.contract, access.signed, access.plan, nothing)


@ways
@pads
def test_partial_estimates_are_marginals_of_the_joint_counts(mode: PadMode, way: Way) -> None:
    """Any attributes, in any order, from any curators: the counts are the joint table's sums."""
    rehearsal = parties(({"a": 2, "b": 3}, {"c": 1, "d": 7}), way, 300)
    outcome = run(rehearsal, way, mode, 200)
    access = rehearsal.access(outcome)
    joint = count_records(access, outcome.released)
    assert joint.counts.sum() == 200
    table = CountTable(joint.schema, joint.counts)
    for length in (1, 2, 3, 4):
        for names in combinations(("d", "b", "c", "a"), length):
            part = count_records(access, outcome.released, names)
            marginal = table.marginal(names)
            assert part.schema == marginal.schema
            assert part.counts.tolist() == marginal.counts.tolist()
            keep = access.plan.ranked.keep_probability
            shares = marginal.counts / 200
            formula = (shares - (1 - keep) / part.schema.domain_size) / keep
            np.testing.assert_allclose(part.unbiased, formula, rtol=1e-9, atol=1e-12)
            assert part.uncertainty().cells().total.shape == part.counts.shape


def test_a_table_that_is_too_large_is_estimated_in_parts() -> None:
    """10,752,000 joint cells are more than are estimated at once; any part of them is fine."""
    rehearsal = parties(SHARES[2], "aligned", 90)
    outcome = run(rehearsal, "aligned", "stream", 60)
    access = rehearsal.access(outcome)
    with pytest.raises(ParameterError, match="10,752,000 joint cells"):
        count_records(access, outcome.released)
    part = count_records(access, outcome.released, ["two", "wide", "seven"])
    assert part.counts.size == 14_000
    assert part.counts.sum() == 60
