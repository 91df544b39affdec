"""Two releases from one stored table: why neither positions nor its pads may be handed out."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.chunks import read_column, read_positions
from tests.support.laws import assert_fits, channel_matrix, neighbours
from tests.support.simulator import Simulator, holding
from veiltab.core import privacy
from veiltab.core.schema import Codes
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.pads import StreamPad
from veiltab.protocol.in_process import Deposit, Terms
from veiltab.wire.contract import PadMode

Law = dict[tuple[int, ...], Fraction]
LawOf = Callable[[tuple[int, ...]], Law]
Matrix = list[list[Fraction]]

FIRST, SECOND = Fraction(3), Fraction(5, 2)
"""γ of the two studies, each of which samples one respondent."""

cases = pytest.mark.parametrize(("n", "cells"), [(2, 2), (2, 3), (3, 2), (3, 3)])


def worst_ratio(n: int, cells: int, law_of: LawOf) -> Fraction:
    """Return the largest ratio of any view's probability between neighbours."""
    laws = {database: law_of(database) for database in product(range(cells), repeat=n)}
    assert {sum(law.values()) for law in laws.values()} == {1}
    return max(
        laws[database][view] / laws[other][view]
        for database in laws
        for other in neighbours(database, cells)
        for view in laws[database]
    )


def matrices(cells: int) -> tuple[Matrix, Matrix]:
    """Return both studies' channels."""
    return channel_matrix(cells, FIRST), channel_matrix(cells, SECOND)


def add(law: Law, view: tuple[int, ...], chance: Fraction) -> None:
    """Add to the probability of a view."""
    law[view] = law.get(view, Fraction(0)) + chance


def sanitized_only(database: tuple[int, ...], cells: int) -> Law:
    """Return the law of both sanitized records, each of a respondent drawn afresh."""
    law: Law = {}
    first, second = matrices(cells)
    rows = range(len(database))
    for one, two, x, y in product(rows, rows, range(cells), range(cells)):
        chance = first[x][database[one]] * second[y][database[two]]
        add(law, (x, y), chance / len(database) ** 2)
    return law


def with_positions(database: tuple[int, ...], cells: int) -> Law:
    """Return the law if each release also said which stored row it was; the order is secret."""
    law: Law = {}
    first, second = matrices(cells)
    orders = list(permutations(range(len(database))))
    rows = range(len(database))
    for order, one, two in product(orders, rows, rows):
        for x, y in product(range(cells), repeat=2):
            chance = first[x][database[one]] * second[y][database[two]]
            view = (order[one], x, order[two], y)
            add(law, view, chance / (len(orders) * len(database) ** 2))
    return law


def with_stored_pads(database: tuple[int, ...], cells: int) -> Law:
    """Return the law if each release were granted with the stored row's own pad."""
    law: Law = {}
    first, second = matrices(cells)
    every = list(product(range(cells), repeat=len(database)))
    rows = range(len(database))
    for pads, one, two in product(every, rows, rows):
        for x, y in product(range(cells), repeat=2):
            chance = first[x][database[one]] * second[y][database[two]]
            view = (pads[one], x, pads[two], y)
            add(law, view, chance / (len(every) * len(database) ** 2))
    return law


@cases
def test_two_releases_compose(n: int, cells: int) -> None:
    """With a fresh sample and fresh pads each, the worst ratio is the product of the two."""
    worst = worst_ratio(n, cells, lambda database: sanitized_only(database, cells))
    single = [privacy.likelihood_ratio(n, 1, gamma) for gamma in (FIRST, SECOND)]
    assert worst == single[0] * single[1]


@cases
def test_positions_would_link_the_releases(n: int, cells: int) -> None:
    """A position that recurs is one respondent seen twice: 1 + (m/n)(γ₁γ₂ − 1)."""
    worst = worst_ratio(n, cells, lambda database: with_positions(database, cells))
    single = [privacy.likelihood_ratio(n, 1, gamma) for gamma in (FIRST, SECOND)]
    assert worst == privacy.likelihood_ratio(n, 1, FIRST * SECOND)
    assert worst > single[0] * single[1]


@pytest.mark.parametrize("n", [2, 3])
def test_stored_pads_would_link_the_releases(n: int) -> None:
    """A pad that recurs in Z_3 makes one respondent likelier: the product is exceeded."""
    worst = worst_ratio(n, 3, lambda database: with_stored_pads(database, 3))
    single = [privacy.likelihood_ratio(n, 1, gamma) for gamma in (FIRST, SECOND)]
    assert worst > single[0] * single[1]
    assert worst < privacy.likelihood_ratio(n, 1, FIRST * SECOND)


SIZES = {"three": 3, "seven": 7, "many": 40}
ROWS = 30_000


@dataclass(frozen=True, eq=False)
class Drawn:
    """A study on stored tables: its rows, its new pads and what the server was sent."""

    positions: NDArray[np.int64]
    pads: list[Codes]
    differences: list[Codes]


def draw(rehearsal: Simulator, deposit: Deposit, mode: PadMode) -> Drawn:
    """Go through a study that samples everybody, and keep what is forgotten afterwards."""
    terms = Terms(epsilon=1.0, sample_size=ROWS, linkage="matched", pads=mode)
    outcome = rehearsal._open(rehearsal.stored_contract(terms, deposit))
    (table,), (desk,) = deposit.stored, outcome.contexts
    requests = outcome.study.draw_from(deposit.vault, [table.upload], deposit.tables)
    request = requests[desk.identity.party_id]
    positions = read_positions(request.body.positions, ROWS, outcome.received)
    answer = table.repad(desk, outcome.contract, request, outcome.received)
    attributes = rehearsal.holdings[0].attributes
    differences = [
        read_column(column.chunks, attribute, ROWS, outcome.received)
        for attribute, column in zip(attributes, answer.message.body.columns, strict=True)
    ]
    pads = [answer.pads.span(i, slice(0, ROWS)) for i, _ in enumerate(attributes)]
    outcome.study.repad(answer.message)
    assert all(upload.positions is None for upload in outcome.study.release().body.uploads)
    return Drawn(positions, pads, differences)


def assert_unrelated(left: Codes, right: Codes, size: int) -> None:
    """Fail unless the difference of two columns is uniform; 1e-9 false alarms in chi-square."""
    difference = (left.astype(np.int64) - right) % size
    assert_fits(np.bincount(difference, minlength=size), np.full(size, 1 / size))


@pytest.mark.parametrize("mode", ["stream", "one-time"])
def test_pads_of_two_studies_have_nothing_in_common(mode: PadMode) -> None:
    """Not with each other, nor with the table's, whether by respondent or by row of the release."""
    rehearsal = Simulator(
        holdings=[holding(SIZES, range(ROWS))], entropy=CipherEntropy.from_seed(7, mode)
    )
    deposit = rehearsal.deposit()
    one, two = draw(rehearsal, deposit, mode), draw(rehearsal, deposit, mode)
    assert one.positions.tolist() != two.positions.tolist()
    assert sorted(one.positions) == sorted(two.positions) == list(range(ROWS))
    back = np.argsort(one.positions)[two.positions]  # where in the first study each row was
    for i, size in enumerate(SIZES.values()):
        stored = StreamPad(deposit.stored[0]._pads.keys[i], size).at(one.positions)
        assert_unrelated(one.pads[i], two.pads[i], size)
        assert_unrelated(one.pads[i][back], two.pads[i], size)
        assert_unrelated(one.pads[i], stored, size)
        assert_unrelated(one.differences[i], np.zeros(ROWS, dtype=np.uint8), size)
        changed = (one.pads[i].astype(np.int64) - stored) % size
        assert changed.tolist() == one.differences[i].tolist()


def test_a_release_from_stored_tables_says_nothing_of_the_table() -> None:
    """No position, no digest of the stored upload, no chunk of it: only the study's own repad."""
    rehearsal = Simulator()
    deposit = rehearsal.deposit()
    terms = Terms(epsilon=1.0, sample_size=10, linkage="matched")
    outcome = rehearsal.run_stored(terms, deposit)
    release = outcome.study.release()
    assert [upload.positions for upload in release.body.uploads] == [None, None]
    assert [upload.digest for upload in release.body.uploads] == [
        prepared.message.digest for prepared in outcome.prepared
    ]
    seen = release.dumps() + b"".join(grant.dumps() for grant in rehearsal.grants(outcome))
    for table in deposit.stored:
        assert table.upload.digest.hex().encode() not in seen
        assert table.upload.body.upload_id.hex().encode() not in seen
    assert not set(outcome.released._chunks) & set(deposit.tables._chunks)
