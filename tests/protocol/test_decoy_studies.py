"""Whole studies with decoys: what the researcher decrypts is what the specification gives.

Who takes part, the decoys and the server's draws are all made a second time by the tests.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from itertools import product
from math import comb, factorial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.chunks import read_positions, read_tokens
from tests.support.decoys import HALF, THIRD, decoy_terms, expected_sample, terms, two_sided
from tests.support.laws import assert_fits
from tests.support.simulator import Simulator, holding, holding_of, sanitized
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.entropy import random_bytes
from veiltab.core.mechanism import Geometric, LinkageMode
from veiltab.core.noise import draw_noise
from veiltab.crypto.entropy import CipherEntropy
from veiltab.protocol.in_process import Outcome, Rehearsal, Terms
from veiltab.protocol.researcher import Access
from veiltab.wire.contract import PadMode
from veiltab.wire.mechanism import DecoyTerms
from veiltab.wire.packing import BLINDING_BYTES

Row = tuple[int, ...]

SHARES: dict[int, tuple[Mapping[str, int], ...]] = {
    1: ({"one": 1, "two": 2, "three": 3, "five": 5},),
    2: ({"three": 3, "one": 1}, {"five": 5, "two": 2}),
    3: ({"five": 5}, {"one": 1}, {"two": 2, "three": 3}),
    5: ({"two": 2}, {"one": 1}, {"three": 3}, {"five": 5}, {"four": 4}),
}
"""Uneven tables: a curator may have one cell only, or all attributes but one."""

LINKAGES: tuple[LinkageMode, ...] = ("aligned", "matched")
PADS: tuple[PadMode, ...] = ("stream", "one-time")


def parties(
    shares: Sequence[Mapping[str, int]], linkage: LinkageMode, population: int
) -> Simulator:
    """Return curators with the same respondents, or, where matched, with some of their own too."""
    source = np.random.default_rng(population)
    holdings = []
    for number, sizes in enumerate(shares):
        extra = 3 * number if linkage == "matched" else 0
        own = np.arange(extra) - 1000 * (number + 1)
        ids = source.permutation(np.concatenate([np.arange(population), own]))
        holdings.append(holding(sizes, ids, seed=number))
    return Simulator(holdings=holdings, seed=population)


def run(rehearsal: Simulator, agreed: Terms) -> tuple[Outcome, Access, list[Row]]:
    """Go through a study, and return what the researcher decrypts, row by row."""
    outcome = rehearsal.run(agreed)
    access = rehearsal.access(outcome)
    if not access.release.rows:
        return outcome, access, []
    columns = sanitized(access, outcome.released).values()
    return outcome, access, list(zip(*(column.tolist() for column in columns), strict=True))


def uploads_of(rehearsal: Simulator, outcome: Outcome) -> list[dict[bytes, list[int]]]:
    """Return the rows that each curator must have uploaded, by token."""
    contract = outcome.contract.body
    held = zip(rehearsal.tokens, rehearsal.holdings, strict=True)
    return [
        expected_sample(contract, rehearsal.secret, place, tokens, list(table.codes))
        for place, (tokens, table) in enumerate(held)
    ]


def joined(uploads: Sequence[dict[bytes, list[int]]]) -> dict[bytes, Row]:
    """Put rows with the same token side by side, if all curators have one, in token order."""
    common = [token for token in uploads[0] if all(token in other for other in uploads[1:])]
    return {token: tuple(code for own in uploads for code in own[token]) for token in common}


def noise_of(access: Access, rows: int, server: CipherEntropy) -> list[Row]:
    """Draw the server's noise again, as codes; without a channel there is none."""
    schema = access.contract.schema
    if access.plan.channel is None:
        return [(0,) * len(schema.names)] * rows
    cells = draw_noise(access.plan.channel, rows, server).astype(np.int64)
    return list(zip(*(codes.tolist() for codes in schema.codes(cells)), strict=True))


def added(access: Access, rows: Sequence[Row], noise: Sequence[Row]) -> list[Row]:
    """Add noise in the group of the cells."""
    sizes = access.contract.schema.sizes
    return [
        tuple((x + e) % size for x, e, size in zip(row, error, sizes, strict=True))
        for row, error in zip(rows, noise, strict=True)
    ]


@pytest.mark.parametrize("curators", SHARES)
@pytest.mark.parametrize("mode", PADS)
@pytest.mark.parametrize("keep", [None, 0.5])
def test_aligned(curators: int, mode: PadMode, keep: float | None) -> None:
    """Row by row, in the order of the tokens: respondents, decoys and noise."""
    rehearsal = parties(SHARES[curators], "aligned", 60)
    cells = 120 if curators == 5 else 30
    agreed = terms(mechanism=decoy_terms(keep=keep, cells=cells), pads=mode)
    outcome, access, rows = run(rehearsal, agreed)
    plain = list(joined(uploads_of(rehearsal, outcome)).values())
    noise = noise_of(access, len(plain), CipherEntropy.from_seed(60, "server"))
    assert rows == added(access, plain, noise)
    assert (access.release.population, access.plan.population_size) == (60, 60)
    assert (keep is None) == (not any(map(any, noise)))


@pytest.mark.parametrize("curators", SHARES)
@pytest.mark.parametrize("mode", PADS)
@pytest.mark.parametrize("keep", [None, 0.5])
def test_matched(curators: int, mode: PadMode, keep: float | None) -> None:
    """All rows that all curators have, in the server's own random order; noise is added to them."""
    rehearsal = parties(SHARES[curators], "matched", 60)
    cells = 120 if curators == 5 else 30
    agreed = terms("matched", mechanism=decoy_terms(keep=keep, cells=cells), pads=mode)
    outcome, access, rows = run(rehearsal, agreed)
    plain = joined(uploads_of(rehearsal, outcome))
    server = CipherEntropy.from_seed(60, "server")
    order = sorted((random_bytes(16, server), token) for token in sorted(plain))
    random_bytes(BLINDING_BYTES * curators, server)  # of the positions, a chunk for each curator
    noise = noise_of(access, len(plain), server)
    assert rows == added(access, [plain[token] for _, token in order], noise)
    assert (access.release.population, access.plan.population_size) == (None, None)
    assert [token for _, token in order] != sorted(plain)


def test_positions_lead_to_the_same_token_everywhere() -> None:
    """And some rows of each upload are in no release: those whom others do not hold."""
    rehearsal = parties(SHARES[3], "matched", 60)
    staged = rehearsal.study(terms("matched"))
    uploads = staged.prepare()
    for place, made in enumerate(uploads):
        staged.outcome.study.upload(made.message)
        body, kept = made.message.body, staged.outcome.received
        sent = read_tokens(body.tokens or (), body.rows, kept)
        assert {token.tobytes() for token in sent} == set(
            expected_sample(
                staged.contract,
                staged.secret,
                place,
                staged.tokens[place],
                list(rehearsal.holdings[place].codes),
            )
        )
    release = staged.outcome.study.release().body
    found = []
    for made, released in zip(uploads, release.uploads, strict=True):
        body, kept = made.message.body, staged.outcome.received
        positions = read_positions(released.positions or (), release.rows, staged.outcome.released)
        assert len(set(positions.tolist())) == release.rows < body.rows
        found.append(read_tokens(body.tokens or (), body.rows, kept)[positions].tolist())
    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("linkage", LINKAGES)
@pytest.mark.parametrize("mode", PADS)
def test_a_release_without_a_row(linkage: LinkageMode, mode: PadMode) -> None:
    """Nobody takes part and no decoy is invented: everything goes on as always."""
    nobody = DecoyTerms(1, Geometric(2), 0.7, None)
    rehearsal = parties(SHARES[2], linkage, 20)
    outcome, access, rows = run(rehearsal, terms(linkage, mechanism=nobody, pads=mode))
    assert rows == []
    assert [made.message.body.rows for made in outcome.prepared] == [0, 0]
    assert all(column.chunks == () for column in access.release.columns)


def test_a_law_with_delta() -> None:
    """A table of weights: every respondent takes part, and no cell is without decoys for long."""
    rehearsal = parties(SHARES[2], "aligned", 60)
    law = two_sided(25)
    mechanism = decoy_terms(DRAW_RANGE, law)
    agreed = terms(mechanism=mechanism, epsilon=2.0, delta=1e-3)
    outcome, access, rows = run(rehearsal, agreed)
    assert rows == list(joined(uploads_of(rehearsal, outcome)).values())
    assert abs(len(rows) - 60 - 30 * 25) < 6 * (30 * float(law.variance)) ** 0.5
    assert access.plan.accounting == "decoys"


@st.composite
def small_studies(draw: st.DrawFn) -> dict[str, Any]:
    """Draw curators with populations that differ, any mechanism, linkage and pads."""
    sizes = draw(
        st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=2), min_size=1, max_size=3)
    )
    shares = [{f"{k}.{i}": size for i, size in enumerate(own)} for k, own in enumerate(sizes)]
    shares[-1]["more"] = 2
    linkage: LinkageMode = draw(st.sampled_from(LINKAGES))
    everybody = st.lists(st.integers(0, 30), min_size=1, max_size=20, unique=True)
    same = draw(everybody)
    holders = [same if linkage == "aligned" else draw(everybody) for _ in shares]
    threshold = draw(st.integers(DRAW_RANGE // 20, DRAW_RANGE * 3 // 4))
    coin = draw(st.sampled_from([1, THIRD, DRAW_RANGE * 9 // 10]))
    return {
        "shares": shares,
        "holders": holders,
        "linkage": linkage,
        "mechanism": decoy_terms(coin, Geometric(threshold)),
        "pads": draw(st.sampled_from(PADS)),
    }


@given(small_studies())
@settings(max_examples=40, deadline=None)
def test_any_study(drawn: dict[str, Any]) -> None:
    """Whatever the curators hold, exactly the common rows come out, and nothing else."""
    pairs = zip(drawn["shares"], drawn["holders"], strict=True)
    holdings = [holding(sizes, ids, seed=place) for place, (sizes, ids) in enumerate(pairs)]
    rehearsal = Simulator(holdings=holdings)
    agreed = terms(drawn["linkage"], mechanism=drawn["mechanism"], pads=drawn["pads"], epsilon=9.0)
    outcome, _, rows = run(rehearsal, agreed)
    plain = list(joined(uploads_of(rehearsal, outcome)).values())
    assert sorted(rows) == sorted(plain)
    if drawn["linkage"] == "aligned":
        assert rows == plain


def geometric(number: int) -> Fraction:
    """Return the chance of so many decoys with a ratio of a half."""
    return HALF.probability(number)


def sequence_law(database: Sequence[int], longest: int) -> dict[Row, Fraction]:
    """Return the chance of each sequence of cells 0 and 1 up to a length, in random order."""
    ones = sum(database)
    coins = (len(database) - ones, ones)
    law = {}
    for counts in product(range(longest + 1), repeat=2):
        if sum(counts) > longest:
            continue
        chance = Fraction(1)
        for number, people in zip(counts, coins, strict=True):
            chance *= sum(
                comb(people, taking)
                * Fraction(1, 3) ** taking
                * Fraction(2, 3) ** (people - taking)
                * geometric(number - taking)
                for taking in range(min(people, number) + 1)
            )
        orders = factorial(sum(counts)) // (factorial(counts[0]) * factorial(counts[1]))
        for sequence in product(range(2), repeat=sum(counts)):
            if sum(sequence) == counts[1]:
                law[sequence] = chance / orders
    return law


@pytest.mark.slow
@pytest.mark.parametrize("linkage", LINKAGES)
def test_the_law_of_what_is_released(linkage: LinkageMode) -> None:
    """Sequences of cells, in order, through the whole protocol; 1e-9 false alarms in chi-square."""
    database, runs = [0, 0, 1], 400
    rehearsal = Rehearsal([holding_of({"a": 2}, database)], CipherEntropy.from_seed(1, "law"))
    law = sequence_law(database, 2)
    seen: Counter[Row] = Counter()
    for _ in range(runs):
        outcome = rehearsal.run(terms(linkage))
        access = rehearsal.access(outcome)
        rows: Row = ()
        if access.release.rows:
            rows = tuple(sanitized(access, outcome.released)["a"].tolist())
        seen[rows] += 1
    counts = [seen[sequence] for sequence in law]
    chances = [float(chance) for chance in law.values()]
    assert_fits(np.array([*counts, runs - sum(counts)]), np.array([*chances, 1 - sum(chances)]))


@pytest.mark.slow
def test_the_law_of_what_the_server_sees() -> None:
    """Joined rows and rows of one curator alone are independent, each with decoys of its own.

    One person is with both curators, one with the first alone; 1e-9 false alarms in chi-square.
    """
    runs = 400
    first, second = holding({"a": 2}, [1, 2]), holding({"b": 1}, [1])
    rehearsal = Rehearsal([first, second], CipherEntropy.from_seed(1, "law"))
    two = [sum(geometric(i) * geometric(n - i) for i in range(n + 1)) for n in range(3)]
    coin = (Fraction(2, 3), Fraction(1, 3))
    held = [coin[0] * two[n] + (coin[1] * two[n - 1] if n else 0) for n in range(2)]
    alone = [geometric(0)]
    seen: Counter[Row] = Counter()
    for _ in range(runs):
        outcome = rehearsal.run(terms("matched"))
        common = outcome.study.release().body.rows
        own = [made.message.body.rows - common for made in outcome.prepared]
        seen[min(common, 2), min(own[0], 2), min(own[1], 1)] += 1
    laws = [[*each, 1 - sum(each)] for each in (held, held, alone)]
    numbers = list(product(range(3), range(3), range(2)))
    chances = [float(laws[0][i] * laws[1][j] * laws[2][k]) for i, j, k in numbers]
    assert_fits(np.array([seen[each] for each in numbers]), np.array(chances))
