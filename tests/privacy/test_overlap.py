"""The promise of an overlap count, enumerated exactly, and what breaks it.

The server sees of each set of curators how many tokens just these have sent: people by coin, and
decoys.  A curator knows coins and decoys, and sees one number.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest

from tests.support.enumeration import GeometricLaw, Model, by_rank, check, neighbours
from tests.support.overlaps import counters, decoy_numbers, overlap_terms
from tests.support.simulator import Stage
from veiltab.core.mechanism import Geometric
from veiltab.core.privacy import count_threshold

COIN, RATIO = Fraction(1, 4), Fraction(1, 2)
PROMISE = 1 + COIN / (RATIO * (1 - COIN))


def server_view(curators: int, truncation: int) -> Model:
    """Return what the server sees: a kind of row for each pattern of presence, none for absence."""
    patterns = (1 << curators) - 1
    return Model(
        coin=COIN,
        decoys=GeometricLaw(RATIO),
        records=(*range(patterns), None),
        invented=(*range(patterns), None),
        truncation=truncation,
    )


@pytest.mark.parametrize(("curators", "persons", "truncation"), [(2, 1, 4), (2, 3, 3), (3, 1, 2)])
def test_the_server_learns_epsilon_and_the_bound_is_attained(
    curators: int, persons: int, truncation: int
) -> None:
    """For every change of who holds one person: moved, added or removed."""
    model = server_view(curators, truncation)
    absent = (1 << curators) - 1
    assert check(model, neighbours(persons, range(absent))).worst == PROMISE
    assert check(model, neighbours(persons, range(absent + 1))).worst == PROMISE


BROKEN = {
    "no decoys of those who are alone": {"invented": (0, None, None, None)},
    "no decoys of those in common": {"invented": (None, 1, 2, None)},
    "a cut by rank": {"sampling": by_rank(1)},
    "everybody takes part": {"coin": Fraction(1)},
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_enumeration_finds_what_breaks_the_promise(name: str) -> None:
    """Decoys left out for any pattern, a fixed number of rows, or no coin: infinitely bad."""
    model = replace(server_view(2, 3), **BROKEN[name])  # type: ignore[arg-type]
    assert check(model, neighbours(2, range(4))).breaks(PROMISE)


def test_real_uploads_show_the_server_nothing_but_those_numbers() -> None:
    """How many tokens just these curators have sent is people by coin, and the drawn decoys."""
    tables = (range(40), range(20, 60), range(30, 90, 3))
    parties = counters(*tables, seed=5)
    study = parties.study(overlap_terms(), Stage.UPLOADED)
    received, contract = study.outcome.received, study.contract
    assert contract.overlap is not None
    sent = []
    for prepared in study.prepared:
        data = b"".join(received.get(digest) for digest in prepared.message.body.tokens or ())
        sent.append({data[i : i + 16] for i in range(0, len(data), 16)})
    people = [
        {
            bytes(token)
            for token in tokens
            if int.from_bytes(bytes(token)[:8], "big") < contract.overlap.coin_threshold
        }
        for tokens in study.tokens
    ]
    decoys = decoy_numbers(contract, study.secret)
    patterns = [pattern for pattern in product((0, 1), repeat=3) if pattern != (1, 1, 1)]
    for pattern, number in zip(patterns, decoys, strict=True):
        assert _exactly(sent, pattern) == _exactly(people, pattern) + number


def _exactly(tables: list[set[bytes]], pattern: tuple[int, ...]) -> int:
    """Count the tokens that the curators with a 0 have, and no others."""
    held = [table for table, absent in zip(tables, pattern, strict=True) if not absent]
    others = [table for table, absent in zip(tables, pattern, strict=True) if absent]
    return len(set.intersection(*held).difference(*others))


def number_law(people: int, ratio: Fraction | None, most: int = 30) -> dict[int, Fraction]:
    """Return the law of what a curator makes of the number: coins and decoys are known to it."""
    if ratio is None:
        return {people: Fraction(1)}
    whole = (1 - ratio) / (1 + ratio)
    return {people + z: whole * ratio ** abs(z) for z in range(-most, most + 1)}


@pytest.mark.parametrize("epsilon", [0.1, 1.0])
def test_a_curator_with_one_person_learns_epsilon(epsilon: float) -> None:
    """Whether the others hold this person, whose coin it knows, is J = 0 or 1 under the noise."""
    ratio = Geometric(count_threshold(epsilon)).ratio
    absent, present = number_law(0, ratio), number_law(1, ratio)
    common = absent.keys() & present.keys()
    worst = max(max(absent[x] / present[x], present[x] / absent[x]) for x in common)
    assert worst == 1 / ratio
    assert float(worst) <= 2.718281828459045**epsilon


def test_without_the_servers_noise_it_would_know() -> None:
    """The two laws have nothing in common."""
    assert not number_law(0, None).keys() & number_law(1, None).keys()


def test_noise_drawn_anew_would_cost_epsilon_again() -> None:
    """Two numbers with noise of their own: the worst ratio is squared, so it is drawn once."""
    ratio = Geometric(count_threshold(0.1)).ratio
    absent, present = number_law(0, ratio), number_law(1, ratio)
    worst = max(
        absent[x] * absent[y] / (present[x] * present[y])
        for x, y in product(absent.keys() & present.keys(), repeat=2)
    )
    assert worst == 1 / ratio**2


def test_a_number_less_the_decoys_must_not_be_told_to_the_server() -> None:
    """The server has J + D.  Told D as well, it would have J, and no ε: so the estimate has μ.

    With one person in common, J = 1 is impossible if the person is not.
    """
    told = replace(server_view(2, 3), told=lambda decoys: (decoys[0],))
    assert check(told, neighbours(1, range(4))).worst is None
