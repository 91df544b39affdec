"""The privacy audit: what real releases with decoys prove about the promise, from below.

A run of a study plays thousands of games at once.  Every respondent lives in a house of their own,
of which there are two kinds of rows, and the respondent's record is of the one or of the other.
Coins and decoys are independent, so the games are.  The event is fixed in advance by the law: for
the geometric law it is a row of the first kind, and none of the second.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.audits import Audit
from tests.support.chunks import read_column, read_tokens
from tests.support.laws import assert_fits
from tests.support.simulator import Simulator, attribute, messages_of, sanitized
from veiltab.core import group
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.decoys import exact_delta, largest_coin
from veiltab.core.entropy import Entropy
from veiltab.core.mechanism import Coin, Geometric, Law, LinkageMode, WeightTable, draw_numbers
from veiltab.core.privacy import expm1_below
from veiltab.core.publication import PublicationNoise
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import MismatchError
from veiltab.protocol import verify
from veiltab.protocol.curator import decoys as invented
from veiltab.protocol.curator.decoys import Decoys, Patterns
from veiltab.protocol.in_process import Holding, Outcome, Terms
from veiltab.protocol.server import accept
from veiltab.wire.mechanism import DecoyTerms
from veiltab.wire.messages import Upload

EPSILON = 1.0
STREETS, NUMBERS = 64, 128
HOUSES = np.arange(STREETS * NUMBERS)
RUNS = 40
"""With 164,000 games for either record, a right audit proves about 95% of ε."""

LAW = Geometric(2 * DRAW_RANGE // 5)
"""With q = 0.4 the event is about as likely as it can be, so that few games are enough."""

PURE = DecoyTerms(
    coin_threshold=largest_coin(LAW, EPSILON),
    decoys=LAW,
    epsilon_public=EPSILON,
    keep_threshold=None,
)


def two_sided(center: int, ratio: float) -> WeightTable:
    """Return weights that fall off by a ratio on both sides of a centre."""
    steps = np.abs(np.arange(2 * center + 1) - center)
    weights = [int(weight * 2**60) for weight in ratio**steps / (ratio**steps).sum()]
    scaled = [16 * weight for weight in weights]
    scaled[center] += DRAW_RANGE - sum(scaled)
    return WeightTable(tuple(scaled))


TABLE = DecoyTerms(
    coin_threshold=DRAW_RANGE,
    decoys=two_sided(9, 0.65),
    epsilon_public=EPSILON,
    keep_threshold=None,
)
DELTA = 0.009
"""A little more than the table of weights spends."""

Counts = NDArray[np.int64]
"""For each house, how many rows of the first kind there are, and how many of the second."""

Event = Callable[[Counts], NDArray[np.bool_]]


def houses() -> Holding:
    """Return the table of a curator who knows where everybody lives."""
    held = (attribute("street", STREETS), attribute("number", NUMBERS))
    columns = [column.astype(np.uint8) for column in np.divmod(HOUSES, NUMBERS)]
    return Holding(held, columns, messages_of(HOUSES))


def parties(linkage: LinkageMode, seed: str) -> Simulator:
    """Return parties whose respondents of even houses have the first record, others the second.

    Where the curators hold the same respondents, the second one knows a record of 0 or 1.  Where
    the server matches, it holds nobody of the even houses.
    """
    if linkage == "aligned":
        held, ids, codes = attribute("side", 2), HOUSES, HOUSES % 2
    else:
        held, ids, codes = attribute("member", 1), HOUSES[1::2], HOUSES[1::2] * 0
    second = Holding((held,), [codes.astype(np.uint8)], messages_of(ids))
    return Simulator(holdings=[houses(), second], entropy=CipherEntropy.from_seed(1, seed))


def researchers_view(simulator: Simulator, outcome: Outcome) -> Counts:
    """Count the release that the researcher decrypts, by the record of the second curator."""
    street, number, side = sanitized(simulator.access(outcome), outcome.released).values()
    cells = (street.astype(np.int64) * NUMBERS + number) * 2 + side
    return np.bincount(cells, minlength=2 * HOUSES.size).reshape(-1, 2)


def joint_view(simulator: Simulator, outcome: Outcome) -> Counts:
    """Open the first upload with all pads, and count its rows by whether the second has them too.

    That is what server and researcher together can do.
    """
    access = simulator.access(outcome)
    first, second = (prepared.message.body for prepared in outcome.prepared)
    assert isinstance(first, Upload)
    assert isinstance(second, Upload)
    opened = []
    for held, column in zip(houses().attributes, first.columns, strict=True):
        encrypted = read_column(column.chunks, held, first.rows, simulator.sent[0])
        pads = access.pads[held.name].rows(slice(0, first.rows))
        opened.append(group.subtract(encrypted, pads, held.size).astype(np.int64))
    tokens = [
        read_tokens(upload.tokens or (), upload.rows, sent).view("V16").reshape(-1)
        for upload, sent in zip((first, second), simulator.sent, strict=True)
    ]
    cells = (opened[0] * NUMBERS + opened[1]) * 2 + np.isin(tokens[0], tokens[1])
    return np.bincount(cells, minlength=2 * HOUSES.size).reshape(-1, 2)


@cache
def counts(linkage: LinkageMode, terms: DecoyTerms) -> Counts:
    """Run studies under new secrets, and return the counts of all houses of all of them."""
    simulator = parties(linkage, f"audit {linkage}")
    delta = 0.0 if terms is PURE else DELTA
    agreed = Terms(epsilon=EPSILON, delta=delta, linkage=linkage, mechanism=terms)
    view = researchers_view if linkage == "aligned" else joint_view
    return np.concatenate([view(simulator, simulator.run(agreed)) for _ in range(RUNS)])


def audit(seen: Counts, event: Event) -> Audit:
    """Count how often the event happens with either record."""
    happened = event(seen)
    likely, unlikely = happened[::2], happened[1::2]
    return Audit(int(likely.sum()), likely.size, int(unlikely.sum()), unlikely.size)


def first_alone(seen: Counts) -> NDArray[np.bool_]:
    """Tell in which houses there is a row of the first kind, and none of the second."""
    alone: NDArray[np.bool_] = (seen[:, 0] > 0) & (seen[:, 1] == 0)
    return alone


@pytest.mark.slow
@pytest.mark.parametrize("linkage", ["aligned", "matched"])
def test_real_releases_prove_nearly_the_promise_and_no_more(linkage: LinkageMode) -> None:
    """The researcher's view of a changed record, and the joint view of changed holders.

    The bound proves too much with a chance of 1e-6.
    """
    proved = audit(counts(linkage, PURE), first_alone).epsilon()
    assert 0.9 * EPSILON <= proved <= EPSILON


def no_decoys(law: Law, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Invent nobody."""
    return draw_numbers(law, count, entropy) * 0


def none_for_the_absent(law: Law, count: int, entropy: Entropy) -> NDArray[np.int64]:
    """Invent only records that both curators hold: even patterns; the odd ones lack the second."""
    numbers = draw_numbers(law, count, entropy)
    numbers[1::2] = 0
    numbers[2 * HOUSES.size :] = 0  # those whom the first curator does not hold
    return numbers


@pytest.mark.slow
@pytest.mark.parametrize(
    ("linkage", "broken"), [("aligned", no_decoys), ("matched", none_for_the_absent)]
)
def test_the_audit_finds_decoys_that_were_left_out(
    linkage: LinkageMode, broken: Callable[[Law, int, Entropy], NDArray[np.int64]]
) -> None:
    """A single run is enough, if all curators leave them out alike.

    In a table as wide as this, the server misses them as well.
    """
    simulator = parties(linkage, f"left out {linkage}")
    view = researchers_view if linkage == "aligned" else joint_view
    terms = Terms(epsilon=EPSILON, linkage=linkage, mechanism=PURE)
    with mock.patch.object(invented, "draw_numbers", broken):
        if broken is no_decoys:
            with pytest.raises(MismatchError, match="number of rows"):
                simulator.run(terms)
        with (
            mock.patch.object(accept, "plausible_rows", return_value=True),
            mock.patch.object(verify, "plausible_rows", return_value=True),
        ):
            outcome = simulator.run(terms)
            seen = view(simulator, outcome)
    assert audit(seen, first_alone).epsilon() > 4 * EPSILON


def chances(terms: DecoyTerms, size: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the laws of D and of B + D, for the numbers below ``size``."""
    plain = np.array([float(terms.decoys.probability(number)) for number in range(size)])
    coin = terms.coin_threshold / DRAW_RANGE
    return plain, (1 - coin) * plain + coin * np.concatenate([[0.0], plain[:-1]])


@pytest.mark.slow
def test_real_releases_of_a_table_of_weights_prove_nearly_its_delta() -> None:
    """With everybody taking part; the event is wherever P(i)D(j) > e^ε·D(i)P(j)."""
    assert isinstance(TABLE.decoys, WeightTable)
    delta = float(exact_delta(Coin(TABLE.coin_threshold), TABLE.decoys, EPSILON))
    plain, shifted = chances(TABLE, len(TABLE.decoys.weights) + 1)
    likelier = np.outer(shifted, plain) > np.exp(EPSILON) * np.outer(plain, shifted)
    seen = counts("aligned", TABLE)
    proved = audit(seen, lambda pairs: likelier[pairs[:, 0], pairs[:, 1]]).delta(EPSILON)
    assert 0.75 * delta <= proved <= delta <= DELTA


@pytest.mark.slow
@pytest.mark.parametrize(
    ("linkage", "terms", "last", "width"),
    [("aligned", PURE, 6, 1), ("matched", PURE, 6, 1), ("aligned", TABLE, 20, 3)],
)
def test_coins_and_decoys_have_their_law_in_real_releases(
    linkage: LinkageMode, terms: DecoyTerms, last: int, width: int
) -> None:
    """Of a respondent's own kind there are B + D rows, of the other D, and they are independent.

    Chi-square over pairs of numbers, with 1e-9 false alarms; ``width`` numbers count as the same,
    and so do all from the last on.
    """
    laws = [np.pad(law, (0, -law.size % width)) for law in chances(terms, last)[::-1]]
    own, other = (law.reshape(-1, width).sum(axis=1) for law in laws)
    own[-1], other[-1] = 1 - own[:-1].sum(), 1 - other[:-1].sum()
    expected = np.outer(own, other)
    seen = np.minimum(counts(linkage, terms), last - 1) // width
    for record in (0, 1):
        table = np.zeros(expected.shape, dtype=np.int64)
        np.add.at(table, (seen[record::2, record], seen[record::2, 1 - record]), 1)
        assert_fits(table.reshape(-1), expected.reshape(-1))


def left_over(simulator: Simulator, outcome: Outcome, read: Counts) -> Counts:
    """Return what a curator is left with who subtracts all decoys from the counts it has read.

    It also knows who takes part, and looks at nobody else's house.
    """
    contract = outcome.contract.body
    assert contract.decoys is not None
    decoys = Decoys(Patterns.of(contract), contract.decoys, simulator.secret, contract.study_id)
    drawn = decoys.spans()
    patterns = np.concatenate([numbers for numbers, _ in drawn])
    rest = read - np.bincount(patterns, minlength=2 * HOUSES.size).reshape(-1, 2)
    return rest[taking_part(simulator)]


def taking_part(simulator: Simulator) -> NDArray[np.bool_]:
    """Tell who takes part, as a curator can: by the first bits of the tokens."""
    below: NDArray[np.bool_] = simulator.tokens[0].view(">u8")[:, 0] < PURE.coin_threshold
    return below


@pytest.mark.parametrize("public", [0.1, 1.0, 3.0])
def test_published_copies_meet_their_promise_with_equality(public: float) -> None:
    """Exactly: a record that moves between two cells changes no copy's chance by more than e^ε.

    Up to one unit of the threshold, it is not less either.  The noise is the difference of two
    geometric numbers, and has the law that this is counted with (chi-square, 1e-9 false alarms).
    """
    copy = PublicationNoise.for_epsilon(public, 100_000)
    ratio, promise = copy.law.ratio, 1 + expm1_below(public)
    copies = list(product(range(-3, 5), repeat=2))
    chances = [
        [
            noise(ratio, first - record) * noise(ratio, second - 1 + record)
            for first, second in copies
        ]
        for record in (0, 1)
    ]
    assert max(map(Fraction.__truediv__, *chances)) == ratio**-2 <= promise
    assert (ratio - Fraction(1, DRAW_RANGE)) ** -2 > promise
    drawn = copy.add_noise(np.full(copy.cells, 7), CipherEntropy.from_seed(1, "noise")) - 7
    law = np.array([float(noise(ratio, number)) for number in range(-3, 4)])
    table = np.bincount(np.clip(drawn, -4, 4) + 4, minlength=9)
    outer = (1 - law.sum()) / 2
    assert_fits(table, np.array([outer, *law, outer]))


def noise(ratio: Fraction, number: int) -> Fraction:
    """Return the chance of two-sided geometric noise."""
    return (1 - ratio) / (1 + ratio) * ratio ** abs(number)


@pytest.mark.slow
def test_published_copies_prove_nearly_their_promise_to_whoever_knows_the_decoys() -> None:
    """The first curator wants the second one's records.  From exact counts it would read them all.

    The event is the worst for two-sided geometric noise: something left of the first kind, and
    nothing of the second.
    """
    public = 2.0
    simulator, noise = parties("aligned", "published"), CipherEntropy.from_seed(1, "copies")
    terms = Terms(
        epsilon=EPSILON, linkage="aligned", mechanism=replace(PURE, epsilon_public=public)
    )
    publication = PublicationNoise.for_epsilon(public, 2 * HOUSES.size)
    hits = np.zeros((2, 2, 2), dtype=np.int64)
    for _ in range(RUNS):
        outcome = simulator.run(terms)
        exact = researchers_view(simulator, outcome)
        copy = publication.add_noise(exact.reshape(-1), noise).reshape(-1, 2)
        records = HOUSES[taking_part(simulator)] % 2
        for place, read in enumerate((copy, exact)):
            rest = left_over(simulator, outcome, read)
            event = (rest[:, 0] > 0) & (rest[:, 1] <= 0)
            for record in (0, 1):
                games = event[records == record]
                hits[place, record] += int(games.sum()), games.size
    proved, unpublished = (Audit(*first, *second).epsilon() for first, second in hits.tolist())
    assert 0.9 * public <= proved <= public
    assert unpublished > 4 * public
