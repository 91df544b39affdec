"""What real runs show depends on the patterns of the rows and on nothing else.

Whether a row is a respondent's or a decoy's, and who else is in the tables, changes no byte that
server and researcher get.  So the enumeration of histograms is one of the whole protocol.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import combinations_with_replacement, permutations, product
from math import prod

import numpy as np
import pytest

from tests.support.chosen_runs import ChosenStudy, Decoy, Person, Row, Run
from tests.support.enumeration import Database, GeometricLaw, by_coin
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Geometric, LinkageMode
from veiltab.wire.contract import PadMode
from veiltab.wire.mechanism import DecoyTerms

COIN, RATIO = Fraction(1, 4), Fraction(1, 2)
TERMS = DecoyTerms(
    coin_threshold=int(COIN * DRAW_RANGE),
    decoys=Geometric(int(RATIO * DRAW_RANGE)),
    epsilon_public=1.0,
    keep_threshold=None,
)
ROWS = 2
"""Views of at most so many rows have all their runs gone through, so their chances are exact."""

RowKinds = tuple[int, ...]
"""What is seen of each row, in the order of the tokens."""

Laws = dict[Database, dict[RowKinds, Fraction]]
Choices = Iterator[tuple[tuple[Row, ...], Fraction]]


@cache
def study(
    sizes: tuple[int, ...], linkage: LinkageMode, pads: PadMode = "stream", gamma: int | None = None
) -> ChosenStudy:
    """Return a study whose curators have so many cells each."""
    threshold = None
    if gamma is not None:
        cells = prod(sizes)
        threshold = DRAW_RANGE - cells * (DRAW_RANGE // (gamma + cells - 1) + 1)
    terms = replace(TERMS, keep_threshold=threshold)
    return ChosenStudy(sizes, linkage, terms, epsilon=1.0, pads=pads)


@cache
def run(chosen: ChosenStudy, database: Database, rows: tuple[Row, ...]) -> Run:
    """Go through a study once."""
    return chosen.run(database, rows)


def choices(chosen: ChosenStudy, database: Database) -> Choices:
    """Yield all that can happen with at most ``ROWS`` rows: who takes part, decoys, orders."""
    law = GeometricLaw(RATIO)
    for places, chance in by_coin(len(database), COIN):
        for count in range(ROWS - len(places) + 1):
            for decoys in combinations_with_replacement(range(chosen.patterns), count):
                numbers = [decoys.count(pattern) for pattern in range(chosen.patterns)]
                weight = chance * prod(map(law.probability, numbers))
                rows: list[Row] = [*map(Person, places), *map(Decoy, decoys)]
                orders = set(permutations(rows))
                for order in orders:
                    yield order, weight / len(orders)


def decoys_last(chosen: ChosenStudy, database: Database) -> Choices:
    """Yield the same with all decoys behind the respondents, as if their tokens were larger."""
    for rows, weight in choices(chosen, database):
        yield tuple(sorted(rows, key=lambda row: isinstance(row, Decoy))), weight


def one_by_rank(chosen: ChosenStudy, database: Database) -> Choices:
    """Yield what happens if exactly one respondent takes part, whoever it is."""
    for rows, weight in choices(chosen, database):
        if sum(isinstance(row, Person) for row in rows) == 1:
            yield rows, weight / (len(database) * COIN * (1 - COIN) ** (len(database) - 1))


def only_whole_decoys(chosen: ChosenStudy, database: Database) -> Choices:
    """Yield what happens if absence has no decoys."""
    whole = [p for p in range(chosen.patterns) if None not in chosen.digits(p)]
    for rows, weight in choices(chosen, database):
        if all(isinstance(row, Person) or row.pattern in whole for row in rows):
            yield rows, weight / (1 - RATIO) ** (chosen.patterns - len(whole))


def laws(
    chosen: ChosenStudy,
    persons: int,
    choose: Callable[[ChosenStudy, Database], Choices],
    see: Callable[[Run], RowKinds],
) -> Laws:
    """Return the exact chances of the views of at most ``ROWS`` rows, of every database."""
    result = {}
    for database in product(range(chosen.patterns), repeat=persons):
        law: dict[RowKinds, Fraction] = {}
        for rows, chance in choose(chosen, database):
            view = see(run(chosen, database, rows))
            law[view] = law.get(view, Fraction(0)) + chance
        result[database] = law
    return result


def worst(laws: Laws) -> Fraction | None:
    """Return the worst ratio between databases that differ in one person; None if infinite."""
    ratios = [Fraction(0)]
    for first, second in permutations(laws, 2):
        if sum(a != b for a, b in zip(first, second, strict=True)) == 1:
            for view, chance in laws[first].items():
                if view not in laws[second]:
                    return None
                ratios.append(chance / laws[second][view])
    return max(ratios)


TINY: list[tuple[int, tuple[int, ...], LinkageMode]] = [
    (2, (2,), "aligned"),
    (2, (2,), "matched"),
    (1, (2, 1), "matched"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("persons", "sizes", "linkage"), TINY)
def test_all_runs_of_tiny_studies_meet_the_promise_with_equality(
    persons: int, sizes: tuple[int, ...], linkage: LinkageMode
) -> None:
    """Every database, coin, decoy and order through all roles, and every opened row in order.

    e^ε is 1 + β/(q(1 − β)) = 5/3, for server and researcher together.  The same runs break it if
    decoys have an order of their own, if the cut is by rank, or if absence has no decoys.
    """
    chosen, promise = study(sizes, linkage), Fraction(5, 3)
    assert worst(laws(chosen, persons, choices, Run.together)) == promise
    in_order = worst(laws(chosen, persons, decoys_last, Run.together))
    assert in_order is not None
    assert in_order > promise
    assert worst(laws(chosen, persons, one_by_rank, Run.together)) is None
    if sizes == (2, 1):
        assert worst(laws(chosen, persons, only_whole_decoys, Run.together)) is None


@pytest.mark.slow
@pytest.mark.parametrize(("persons", "sizes", "linkage"), TINY)
def test_a_decoy_changes_no_byte_that_a_respondent_would_not(
    persons: int, sizes: tuple[int, ...], linkage: LinkageMode
) -> None:
    """Whatever is uploaded, released and granted follows from the rows' patterns, byte by byte."""
    chosen = study(sizes, linkage)
    seen: dict[RowKinds, set[tuple[bytes, ...]]] = {}
    databases = list(product(range(chosen.patterns), repeat=persons))
    for database in databases:
        for rows, _ in choices(chosen, database):
            patterns = chosen.patterns_of(database, rows)
            seen.setdefault(patterns, set()).add(run(chosen, database, rows).all_bytes())
    assert {len(same) for same in seen.values()} == {1}
    assert len({view for same in seen.values() for view in same}) == len(seen)


def random_run(
    chosen: ChosenStudy, source: np.random.Generator
) -> tuple[Database, tuple[Row, ...], tuple[Row, ...], Database]:
    """Return a random run, and another with the same patterns of rows, but other respondents."""
    persons = int(source.integers(3, 9))
    database = source.integers(chosen.patterns, size=persons).tolist()
    taking = source.permutation(persons)[: source.integers(persons)]
    decoys = source.integers(chosen.patterns, size=source.integers(9))
    rows: list[Row] = [*map(Person, taking.tolist()), *map(Decoy, decoys.tolist())]
    rows = [rows[place] for place in source.permutation(len(rows))]
    # In the other run, the decoys' rows are respondents', as far as there are any, and back.
    others = source.integers(chosen.patterns, size=persons).tolist()
    places = iter(source.permutation(persons).tolist())
    swapped: list[Row] = []
    for row, pattern in zip(rows, chosen.patterns_of(tuple(database), rows), strict=True):
        place = next(places, None) if isinstance(row, Decoy) else None
        if place is None:
            swapped.append(Decoy(pattern))
        else:
            others[place] = pattern
            swapped.append(Person(place))
    return tuple(database), tuple(rows), tuple(swapped), tuple(others)


@pytest.mark.parametrize("pads", ["stream", "one-time"])
@pytest.mark.parametrize(
    ("sizes", "linkage"),
    [((2, 3), "aligned"), ((2, 3), "matched"), ((2, 1, 2), "matched"), ((5,), "aligned")],
)
def test_a_view_is_the_sum_of_its_rows(
    sizes: tuple[int, ...], linkage: LinkageMode, pads: PadMode
) -> None:
    """Of random studies: a row for everybody who takes part and for each decoy, and no other."""
    chosen = study(sizes, linkage, pads)
    source = np.random.default_rng(7)
    for _ in range(8):
        database, rows, swapped, others = random_run(chosen, source)
        made = chosen.run(database, rows)
        patterns = chosen.patterns_of(database, rows)
        assert made.together() == patterns
        whole = [chosen.digits(p) for p in patterns if None not in chosen.digits(p)]
        every = list(product(*map(range, sizes)))
        assert Counter(every[cell] for cell in made.researcher()) == Counter(whole)
        if linkage == "matched":
            assert len(set(made.matches())) == len(whole)
            assert all(len(set(tokens)) == 1 for tokens in made.matches())
        assert chosen.run(others, swapped).all_bytes() == made.all_bytes()


def test_no_message_of_matched_rows_says_how_many_a_curator_holds() -> None:
    """Nobody's number of respondents is in an upload, an alignment or the release."""
    chosen = study((2, 3), "matched")
    made = chosen.run((0, 1, 2, 3), [Person(0), Decoy(1)])
    assert {upload.body.population for upload in made.uploads} == {None}
    assert {(each.body.population, each.body.digest) for each in made.alignments} == {(None, None)}
    assert made.release.body.population is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "linkage"), [((3,), "aligned"), ((2, 2), "aligned"), ((2, 2), "matched")]
)
def test_the_server_alone_learns_nothing_of_the_values(
    sizes: tuple[int, ...], linkage: LinkageMode
) -> None:
    """Over all one-time pads, every database with the same holders gives the same uploads.

    So it is whoever takes part and whatever the decoys are, hence for any law of them.
    """
    chosen = study(sizes, linkage, "one-time")
    holders: dict[tuple[bool, ...], list[int]] = {}
    for pattern in range(chosen.patterns):
        held = tuple(cell is not None for cell in chosen.digits(pattern))
        holders.setdefault(held, []).append(pattern)
    choices: list[list[Row]] = [[Person(0), Decoy(0)], [Decoy(chosen.patterns - 1), Person(0)]]
    for patterns in holders.values():
        for rows in choices:
            views = [
                Counter(
                    chosen.run((pattern,), rows, pads).server_bytes()
                    for pads in chosen.all_pads((pattern,), rows)
                )
                for pattern in patterns
            ]
            assert all(view == views[0] for view in views)
            assert len(views[0]) == views[0].total()


def test_the_noise_knows_nothing_of_the_rows() -> None:
    """The channel adds the same noise to other rows, as far as there are as many of them."""
    chosen = study((2, 3), "aligned", "stream", 7)
    plain = study((2, 3), "aligned")
    source, noises = np.random.default_rng(8), set()
    for _ in range(6):
        database = tuple(source.integers(6, size=4).tolist())
        rows: list[Row] = [Person(1), *map(Decoy, source.integers(6, size=9).tolist())]
        released = np.array(chosen.run(database, rows).researcher())
        exact = np.array(plain.run(database, rows).researcher())
        parts = [(released // 3 - exact // 3) % 2, (released - exact) % 3]
        noises.add(tuple((3 * parts[0] + parts[1]).tolist()))
    assert len(noises) == 1
    assert set(*noises) > {0}
