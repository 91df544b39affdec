"""Decoys as all curators invent them, against a plain reference that the specification gives."""

import hmac
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.decoys import HALF, THIRD, decoy_terms, reference_decoys, terms, two_sided
from tests.support.simulator import POPULATION, Simulator
from tests.vectors import spec_decoys
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Geometric, Law, LinkageMode, WeightTable
from veiltab.crypto.entropy import CipherEntropy
from veiltab.protocol.curator import decoys as module
from veiltab.protocol.curator.decoys import Decoys, Patterns, TokensBelow, own_rows
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.sorting import MemorySpool
from veiltab.wire.contract import Contract
from veiltab.wire.mechanism import DecoyTerms

KEY = bytes(range(32))
COINS = (1, 2, 3, 2**32 - 1, 2**63, 2**63 + 1, DRAW_RANGE - 1, DRAW_RANGE)


def invent(contract: Contract, secret: bytes) -> tuple[list[spec_decoys.Decoy], bytes]:
    """Return all decoys of a study, and their digest."""
    assert contract.decoys is not None
    made = Decoys(Patterns.of(contract), contract.decoys, secret, contract.study_id)
    pairs = [
        (int(pattern), token.tobytes())
        for patterns, tokens in made.spans()
        for pattern, token in zip(patterns, tokens, strict=True)
    ]
    assert made.count == len(pairs)
    return pairs, made.digest


LAWS = st.one_of(
    st.builds(Geometric, st.integers(2**20, DRAW_RANGE * 9 // 10)),
    st.builds(two_sided, st.integers(8, 20)),
)


@st.composite
def studies(draw: st.DrawFn) -> tuple[list[dict[str, int]], str, DecoyTerms]:
    """Draw the attributes of each curator, the linkage, and a mechanism."""
    sizes = draw(
        st.lists(st.lists(st.integers(1, 4), min_size=1, max_size=2), min_size=1, max_size=4)
    )
    shares = [{f"{k}.{i}": size for i, size in enumerate(own)} for k, own in enumerate(sizes)]
    shares[0]["more"] = 2  # one cell is no table
    law: Law = draw(LAWS)
    coin = draw(st.sampled_from([1, THIRD, 2**63 + 1, DRAW_RANGE * 9 // 10]))
    return shares, draw(st.sampled_from(["aligned", "matched"])), decoy_terms(coin, law)


@given(studies())
@settings(max_examples=60, deadline=None)
def test_decoys_are_those_of_the_specification(
    drawn: tuple[list[dict[str, int]], str, DecoyTerms],
) -> None:
    """Patterns, tokens, order and digest, bit for bit, for any curators, laws and coins."""
    shares, linkage, mechanism = drawn
    agreed = terms(linkage, mechanism=mechanism, epsilon=50.0, delta=0.01)  # type: ignore[arg-type]
    contract, secret = Simulator(shares=shares, population=3).propose(agreed)
    invented, digest = invent(contract, secret)
    expected = reference_decoys(contract, secret)
    assert invented == expected
    stated = contract.to_json()["mechanism"]
    assert digest == spec_decoys.decoy_digest(secret, contract.study_id, stated, expected)


@pytest.mark.parametrize("coin", COINS)
def test_tokens_are_below_the_coin(coin: int) -> None:
    """The blocks whose first half is too large are skipped, however many are drawn at a time."""
    expected = spec_decoys.tokens(coin, KEY)
    source = TokensBelow(coin, CipherEntropy(KEY))
    for count in (1, 5, 0, 100, 700):
        drawn = source.draw(count)
        assert drawn.shape == (count, 16)
        assert [token.tobytes() for token in drawn] == [next(expected) for _ in range(count)]
        assert all(int.from_bytes(token[:8].tobytes(), "big") < coin for token in drawn)


@pytest.mark.parametrize("matched", [False, True])
def test_patterns_are_mixed_radix_without_absence_from_all(*, matched: bool) -> None:
    """Every pattern once; a curator's absence is its last digit."""
    cells = (3, 1, 2)
    patterns = Patterns(cells, matched)
    assert patterns.count == (4 * 2 * 3 - 1 if matched else 6)
    numbers = np.arange(patterns.count)
    parts = [patterns.own_cells(numbers, curator).tolist() for curator in range(3)]
    expected = [spec_decoys.digits(n, cells, matched=matched) for n in range(patterns.count)]
    assert list(map(list, zip(*parts, strict=True))) == expected
    assert list(cells) not in expected
    assert len({tuple(each) for each in expected}) == patterns.count


def test_a_curator_holds_the_decoys_in_whose_pattern_it_is() -> None:
    """Its codes are those of its own cell; in an aligned study it is in all patterns."""
    rehearsal = Simulator(shares=({"a": 2, "b": 3}, {"c": 2}))
    for linkage, held in (("aligned", 12), ("matched", 18)):
        contract, _ = rehearsal.propose(terms(linkage))  # type: ignore[arg-type]
        patterns = Patterns.of(contract)
        numbers = np.arange(patterns.count)
        tokens = np.zeros((patterns.count, 16), dtype=np.uint8)
        tokens[:, 0] = numbers
        own, codes = own_rows(patterns, contract.curators[0].schema, 0, numbers, tokens)
        assert len(own) == held
        cells = numbers[own[:, 0]] // (2 + patterns.matched)
        assert codes[0].tolist() == (cells // 3).tolist()
        assert codes[1].tolist() == (cells % 3).tolist()


def test_the_digest_is_of_everything_that_must_be_the_same() -> None:
    """Another secret, study, coin, law or number of cells gives another digest."""
    contract, secret = Simulator().propose(terms())
    changed = (
        replace(contract, title="another study"),
        replace(contract, mechanism=decoy_terms(THIRD - 1)),
        replace(contract, mechanism=decoy_terms(law=Geometric(HALF.threshold + 1))),
        replace(contract, mechanism=decoy_terms(keep=0.5, cells=contract.schema.domain_size)),
        replace(contract, linkage=replace(contract.linkage, mode="matched")),
    )
    digests = {invent(each, secret)[1] for each in (contract, *changed)}
    digests.add(invent(contract, bytes(32))[1])
    assert len(digests) == 7


def test_the_digest_is_keyed() -> None:
    """Whoever guesses the list of decoys, but has no secret, cannot confirm it."""
    contract, secret = Simulator().propose(terms())
    invented, digest = invent(contract, secret)
    stated = contract.to_json()["mechanism"]
    other = spec_decoys.decoy_digest(bytes(32), contract.study_id, stated, invented)
    assert not hmac.compare_digest(digest, other)


def test_without_decoys_there_is_a_digest_too() -> None:
    """A law that gives none: the digest is of the mechanism and the number 0."""
    nobody = WeightTable((DRAW_RANGE,))
    agreed = terms(mechanism=decoy_terms(2**40, nobody), epsilon=50.0, delta=0.01)
    contract, secret = Simulator().propose(agreed)
    invented, digest = invent(contract, secret)
    assert invented == []
    stated = contract.to_json()["mechanism"]
    assert digest == spec_decoys.decoy_digest(secret, contract.study_id, stated, [])


def test_spans_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoys of one pattern may lie in several spans, and a span may end anywhere."""
    agreed = terms(mechanism=decoy_terms(law=Geometric(DRAW_RANGE * 9 // 10)), epsilon=1.0)
    contract, secret = Simulator().propose(agreed)
    whole = invent(contract, secret)
    for size in (1, 7, 64):
        monkeypatch.setattr(module, "SPAN_DECOYS", size)
        assert invent(contract, secret) == whole


def test_many_decoys_take_little_memory() -> None:
    """Two million decoys of a million patterns: memory for the numbers, and for one span."""
    shares = ({"a": 1000}, {"b": 1000})
    law = Geometric(DRAW_RANGE * 2 // 3)
    contract, secret = Simulator(shares=shares, population=3).propose(
        terms(mechanism=decoy_terms(law=law))
    )
    assert contract.decoys is not None
    tracemalloc.start()
    made = Decoys(Patterns.of(contract), contract.decoys, secret, contract.study_id)
    seen = sum(len(tokens) for _, tokens in made.spans())
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert seen == made.count
    assert abs(seen - 2_000_000) < 6 * (6 * 10**6) ** 0.5  # six standard deviations
    assert peak < 8 * 10**6 + 60 * 2**20


@pytest.mark.parametrize("linkage", ["aligned", "matched"])
@pytest.mark.parametrize("less", [1, 2**32 - 1, 2**32])
def test_a_coin_that_almost_everybody_wins(linkage: LinkageMode, less: int) -> None:
    """With a large ε: the table is still sorted in ranges of tokens that all begin below 2⁶⁴."""
    parties, mechanism = Simulator(), decoy_terms(coin=DRAW_RANGE - less)
    contract, secret = parties.propose(terms(linkage, epsilon=50.0, mechanism=mechanism))
    table, curator = parties.holdings[0], contract.curators[0]
    with Intake(
        contract, secret, curator.schema, MemorySpool(), curator=curator.party_id
    ) as intake:
        table.fill(intake)
        intake.close()
        assert (intake.sample_rows or 0) >= POPULATION
