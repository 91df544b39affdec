"""The page on decoys: its theorems by enumeration over fractions, without the program."""

import math
from fractions import Fraction
from itertools import combinations, pairwise, product

import pytest

from tests.support.decoy_laws import (
    Counts,
    Law,
    chance,
    databases,
    geometric,
    moments,
    neighbours,
    no_decoys,
    release_chance,
    sorted_delta,
    two_sided,
    weighted,
)
from tests.support.documents import ROOT, prose, tables

PAGE = ROOT / "docs" / "explanation" / "decoys.md"
THIRD, HALF = Fraction(1, 3), Fraction(1, 2)


def worst_ratio(n: int, cells: int, beta: Fraction, law: Law) -> Fraction:
    """Return the largest ratio over all databases, neighbours and counts up to n + 1."""
    releases = list(product(range(n + 2), repeat=cells))
    laws = {
        people: [release_chance(release, people, beta, law) for release in releases]
        for people in databases(n, cells)
    }
    return max(
        p / r
        for people, first in laws.items()
        for other in neighbours(people)
        for p, r in zip(first, laws[other], strict=True)
        if p
    )


def pure_ratio(beta: Fraction, q: Fraction) -> Fraction:
    """Return the theorem's e^ε."""
    return 1 + beta / (q * (1 - beta))


def test_the_worst_ratio_of_all_databases() -> None:
    """The theorem holds with equality in every row of the page's table."""
    (table,) = [table for table in tables(prose(PAGE)) if "worst ratio" in table.header]
    rows = table.rows
    assert len(rows) == 4
    for n, cells, beta, q, ratio in rows:
        promised = pure_ratio(Fraction(beta), Fraction(q))
        assert promised == Fraction(ratio)
        assert worst_ratio(int(n), int(cells), Fraction(beta), geometric(Fraction(q))) == promised


def test_counts_above_n_have_the_same_ratios() -> None:
    """So that counts up to n + 1 are all that has to be enumerated."""
    beta, law = Fraction(2, 5), geometric(Fraction(3, 4))
    for people in range(1, 5):
        ratios = {
            chance(rows, people, beta, law) / chance(rows, people - 1, beta, law)
            for rows in range(people, people + 8)
        }
        assert ratios == {1 - beta + beta / Fraction(3, 4)}


def test_both_ends_of_the_ratio_sum_to_epsilon() -> None:
    """The range of f is what ε is, and its ends are those of adding a person."""
    beta, q = THIRD, HALF
    f = [chance(z, 1, beta, geometric(q)) / geometric(q)(z) for z in range(6)]
    assert (min(f), max(f)) == (1 - beta, 1 - beta + beta / q) == (Fraction(2, 3), Fraction(4, 3))
    assert max(f) / min(f) == pure_ratio(beta, q) == 2


def test_a_cut_by_rank_breaks_the_promise() -> None:
    """Two respondents, the first of a random order, and then decoys: an infinite ratio."""
    law = geometric(HALF)

    def by_rank(release: Counts, people: Counts) -> Fraction:
        """Return the probability of a release where one respondent in two is drawn."""
        drawn = [tuple(int(c == cell) for c in (0, 1)) for cell in (0, 1)]
        return sum(
            (
                Fraction(people[cell], 2)
                * math.prod(law(y - k) for y, k in zip(release, drawn[cell], strict=True))
                for cell in (0, 1)
            ),
            Fraction(0),
        )

    assert by_rank((0, 1), (2, 0)) == 0
    assert by_rank((0, 1), (1, 1)) == Fraction(1, 8)
    assert release_chance((0, 1), (2, 0), THIRD, law) == Fraction(1, 18)
    assert release_chance((0, 1), (1, 1), THIRD, law) == Fraction(1, 9)


def test_a_cut_of_all_rows_breaks_it_too() -> None:
    """The first row of two respondents and their decoys: 2.59 where a coin has 1.89."""
    law = geometric(HALF)
    pairs = [(i, j, float(law(i) * law(j))) for i, j in product(range(60), repeat=2)]
    taken = sum(p / (2 + i + j) for i, j, p in pairs)
    nobody_in_v = sum(p * j / (2 + i + j) for i, j, p in pairs)
    one_in_v = sum(p * (j + 1) / (2 + i + j) for i, j, p in pairs)
    assert taken == pytest.approx(1 - math.log(2))
    assert (nobody_in_v, one_in_v) == pytest.approx((math.log(2) - 0.5, 0.5))
    assert round(taken, 3) == 0.307
    assert round(one_in_v / nobody_in_v, 2) == round(1 / (2 * math.log(2) - 1), 2) == 2.59
    assert round(1 + taken / (0.5 * (1 - taken)), 2) == round(2 / math.log(2) - 1, 2) == 1.89


def test_telling_the_number_of_decoys_breaks_the_promise() -> None:
    """One respondent and the news that there are no decoys: the row is the respondent's."""

    def without_decoys(release: Counts, people: Counts) -> Fraction:
        """Return the probability of a release and of no decoys in it."""
        return release_chance(release, people, THIRD, no_decoys) * geometric(HALF)(0) ** 2

    assert without_decoys((1, 0), (1, 0)) == Fraction(1, 12)
    assert without_decoys((1, 0), (0, 1)) == 0


@pytest.mark.parametrize("weights", [(1,), (0, 1), (1, 1), (1, 2, 3), (5, 0, 0, 1)])
def test_every_pure_law_is_geometric_plus_something(weights: tuple[int, ...]) -> None:
    """J + G keeps P(z) ≥ qP(z − 1); J is found again from P; the variances add up."""
    q, horizon = HALF, 200
    something = weighted(*weights)
    law = [
        sum(something(j) * geometric(q)(z - j) for j in range(len(weights))) for z in range(horizon)
    ]
    assert all(after >= q * before for before, after in pairwise(law))
    found = [(law[z] - q * (law[z - 1] if z else 0)) / (1 - q) for z in range(len(weights) + 3)]
    assert found == [something(z) for z in range(len(weights) + 3)]
    own_mean = sum(z * something(z) for z in range(len(weights)))
    own_variance = sum(z * z * something(z) for z in range(len(weights))) - own_mean**2
    mean = sum(z * p for z, p in enumerate(law))
    variance = sum(z * z * p for z, p in enumerate(law)) - mean**2
    assert float(variance) == pytest.approx(float(own_variance + q / (1 - q) ** 2))
    assert float(mean) >= float(q / (1 - q)) - 1e-12
    ratios = [
        1 - THIRD + THIRD * before / after
        for before, after in zip([0, *law], law, strict=False)
        if after
    ]
    assert max(ratios) / (1 - THIRD) <= pure_ratio(THIRD, q)


def test_a_law_with_a_bound_or_a_gap_breaks_a_pure_promise() -> None:
    """B + D can be where D cannot."""
    for law in (weighted(1, 2, 1), weighted(1, 0, 1)):
        impossible = [z for z in range(5) if chance(z, 1, THIRD, law) > 0 and law(z) == 0]
        assert impossible


def one_more_row(release: Counts, cell: int, matrix: list[list[Fraction]], law: Law) -> Fraction:
    """Return the probability of a release of the decoys and one more row of a cell."""
    return sum(
        (
            matrix[out][cell] * decoys_only(less(release, out), matrix, law)
            for out in range(len(release))
            if release[out]
        ),
        Fraction(0),
    )


def less(release: Counts, cell: int) -> Counts:
    """Return the counts with one row of a cell less."""
    return tuple(y - (c == cell) for c, y in enumerate(release))


def decoys_only(release: Counts, matrix: list[list[Fraction]], law: Law) -> Fraction:
    """Return the probability that the decoys, sent through the channel, have these counts."""
    total = Fraction(0)
    for before in product(range(sum(release) + 1), repeat=len(release)):
        if sum(before) == sum(release):
            weight = math.prod((law(z) for z in before), start=Fraction(1))
            total += weight * channel_chance(before, release, matrix)
    return total


def channel_chance(before: Counts, after: Counts, matrix: list[list[Fraction]]) -> Fraction:
    """Return the probability that rows with some counts come out with others."""
    law: dict[Counts, Fraction] = {(0,) * len(after): Fraction(1)}
    for cell, rows in enumerate(before):
        for _ in range(rows):
            law = one_step(law, [matrix[out][cell] for out in range(len(after))])
    return law.get(after, Fraction(0))


def one_step(law: dict[Counts, Fraction], column: list[Fraction]) -> dict[Counts, Fraction]:
    """Send one row through the channel, and count it."""
    result: dict[Counts, Fraction] = {}
    for counts, probability in law.items():
        for out, entry in enumerate(column):
            counted = tuple(y + (c == out) for c, y in enumerate(counts))
            result[counted] = result.get(counted, Fraction(0)) + probability * entry
    return result


def channel_matrix(cells: int, gamma: Fraction) -> list[list[Fraction]]:
    """Return the γ-diagonal channel."""
    normalizer = gamma + cells - 1
    return [
        [(gamma if row == column else Fraction(1)) / normalizer for column in range(cells)]
        for row in range(cells)
    ]


@pytest.mark.parametrize(("cells", "rows"), [(2, 6), (3, 4)])
def test_the_channel_for_the_researcher_alone(cells: int, rows: int) -> None:
    """The least upper bound is above every release, and all rows in one cell come near it."""
    beta, q, gamma = THIRD, HALF, Fraction(4)
    law, matrix = geometric(q), channel_matrix(cells, gamma)
    bound = (1 - beta + beta / q) / (1 - beta + beta / (q * gamma))
    assert bound == Fraction(8, 5)
    peaks = []
    for release in product(range(rows + 1), repeat=cells):
        if 1 <= sum(release) <= rows:
            without = decoys_only(release, matrix, law)
            mixed = [
                (1 - beta) * without + beta * one_more_row(release, cell, matrix, law)
                for cell in (0, 1)
            ]
            assert mixed[0] / mixed[1] < bound
            if release[0] == sum(release):
                peaks.append(mixed[0] / mixed[1])
    assert peaks == sorted(peaks)
    assert peaks[-1] > bound - Fraction(2, 100)


def delta_of(beta: Fraction, law: Law, size: int, ratio: Fraction) -> Fraction:
    """Return δ by the double sum, for a law with values below size."""
    pairs = [(chance(z, 1, beta, law), law(z)) for z in range(size + 1)]
    return sum(
        (max(Fraction(0), p * e - ratio * d * r) for p, d in pairs for r, e in pairs), Fraction(0)
    )


def test_delta_is_the_worst_of_all_databases() -> None:
    """The example of the page, over all databases of 2 and 3 respondents in 3 cells."""
    law, ratio = weighted(1, 2, 1), Fraction(2)
    expected = Fraction(5, 32)
    assert delta_of(HALF, law, 3, ratio) == expected
    for n in (2, 3):
        releases = list(product(range(n + 3), repeat=3))
        laws = {
            people: [release_chance(release, people, HALF, law) for release in releases]
            for people in databases(n, 3)
        }
        assert all(sum(chances) == 1 for chances in laws.values())
        worst = max(
            sum(max(Fraction(0), p - ratio * r) for p, r in zip(first, laws[other], strict=True))
            for people, first in laws.items()
            for other in neighbours(people)
        )
        assert worst == expected


@pytest.mark.parametrize("beta", [0.2, 0.5, 1.0])
def test_the_sorted_sum_is_the_double_sum(beta: float) -> None:
    """For laws with gaps and equal weights as well."""
    for weights in [(1, 2, 1), (1, 1, 1, 1), (1, 0, 3), (2, 5, 1, 7)]:
        for ratio in (1.0, 1.3, 2.5):
            double = delta_of(Fraction(beta), weighted(*weights), len(weights), Fraction(ratio))
            fast = sorted_delta(beta, [w / sum(weights) for w in weights], ratio)
            assert fast == pytest.approx(float(double), abs=1e-12)


def test_the_two_sided_law_spends_its_beginning() -> None:
    """δ is P(D = 0), as near as floats can tell, and s = 47 is the first to keep 10⁻⁶."""
    q, ratio = math.exp(-0.25), math.exp(0.5)
    for centre, text in [(46, "1.26·10⁻⁶"), (47, "9.81·10⁻⁷")]:
        law = two_sided(q, centre)
        delta = sorted_delta(1.0, law, ratio * (1 + 1e-12))
        assert delta == pytest.approx(law[0], rel=1e-6)
        assert law[0] == pytest.approx((1 - q) / (1 + q) * q**centre, rel=1e-4)
        mantissa, exponent = f"{delta:.2e}".split("e-0")
        assert text == f"{mantissa}·10⁻{'⁰¹²³⁴⁵⁶⁷⁸⁹'[int(exponent)]}"
        assert text in PAGE.read_text("utf-8")
    _, variance = moments(two_sided(q, 47))
    assert variance < 2 * q / (1 - q) ** 2 < 8 / 0.5**2


def test_the_covariance_of_the_channel() -> None:
    """Every entry, and the trace, by enumeration of all that three rows can become."""
    cells, gamma, before = 3, Fraction(4), (2, 1, 0)
    matrix, rows = channel_matrix(cells, gamma), sum(before)
    p = (gamma - 1) / (gamma + cells - 1)
    b = (1 - p) / cells
    outcomes = [after for after in product(range(rows + 1), repeat=cells) if sum(after) == rows]
    law = {after: channel_chance(before, after, matrix) for after in outcomes}
    assert sum(law.values()) == 1
    estimates = {after: [(y - b * rows) / p for y in after] for after in outcomes}
    mean = [sum(law[a] * estimates[a][c] for a in outcomes) for c in range(cells)]
    assert mean == list(before)
    trace = Fraction(0)
    for c, k in product(range(cells), repeat=2):
        second = sum(law[a] * estimates[a][c] * estimates[a][k] for a in outcomes)
        covariance = second - mean[c] * mean[k]
        diagonal = (p * before[c] + b * rows - p**2 * before[c]) * (c == k)
        assert covariance * p**2 == diagonal - p * b * (before[c] + before[k]) - b**2 * rows
        trace += covariance * (c == k)
    assert trace == rows * (1 - p**2) * (1 - Fraction(1, cells)) / p**2


def test_adding_a_person() -> None:
    """B + D against D, both ways: the ends of the range, whose product is e^ε."""
    law = geometric(HALF)
    with_person = [chance(z, 1, THIRD, law) for z in range(10)]
    without = [law(z) for z in range(10)]
    up = max(p / r for p, r in zip(with_person, without, strict=True))
    down = max(r / p for p, r in zip(with_person, without, strict=True))
    assert (down, up, down * up) == (Fraction(3, 2), Fraction(4, 3), pure_ratio(THIRD, HALF))


ABSENT = 2
PATTERNS = [pattern for pattern in product(range(3), repeat=2) if pattern != (ABSENT, ABSENT)]
"""Two curators of two categories each."""


def pattern_ratio(first: Law, second: Law) -> Fraction | None:
    """Return the worst ratio of moving a person between patterns with these laws of decoys."""
    worst = Fraction(0)
    for i, j in product(range(4), repeat=2):
        before = chance(i, 1, THIRD, first) * second(j)
        after = first(i) * chance(j, 1, THIRD, second)
        if (before > 0) != (after > 0):
            return None
        if before:
            worst = max(worst, before / after, after / before)
    return worst


def test_absence_needs_decoys_too() -> None:
    """28 pairs of patterns: 2 for all of them with these decoys, infinite for 22 without."""
    law, pairs = geometric(HALF), list(combinations(PATTERNS, 2))
    assert len(pairs) == 28
    assert {pattern_ratio(law, law) for _ in pairs} == {2}

    def joint_only(pattern: tuple[int, ...]) -> Law:
        """Return the law if decoys are invented for the joint cells alone."""
        return no_decoys if ABSENT in pattern else law

    ratios = [pattern_ratio(joint_only(u), joint_only(v)) for u, v in pairs]
    assert (ratios.count(None), ratios.count(Fraction(2))) == (22, 6)
    alone = pattern_ratio(joint_only((0, ABSENT)), joint_only((1, ABSENT)))
    assert alone is None


def test_the_number_of_patterns() -> None:
    """Each curator's cells and its absence, less absent from all."""
    assert len(PATTERNS) == 3 * 3 - 1
    assert (6 + 1) * (4 + 1) - 1 == 34


def test_a_published_copy_keeps_its_promise() -> None:
    """Where two counts move by one each, the worst ratio is e^ε_public; and the variance."""
    alpha = HALF  # e^(−ε/2), so that e^ε is 4

    def noise(z: int) -> Fraction:
        """Return the law of the noise."""
        return (1 - alpha) / (1 + alpha) * alpha ** abs(z)

    ratios = {
        noise(i) * noise(j) / (noise(i + 1) * noise(j - 1))
        for i, j in product(range(-6, 7), repeat=2)
    }
    assert max(ratios) == alpha**-2 == 4
    assert min(ratios) == alpha**2
    variance = sum(z * z * noise(z) for z in range(-200, 201))
    assert float(variance) == pytest.approx(float(2 * alpha / (1 - alpha) ** 2))
