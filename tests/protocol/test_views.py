"""What each party sees, by exhaustion: nothing for the server, Theorem 1 for the researcher."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from itertools import permutations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.exhaustive import Tiny, Way
from tests.support.laws import assert_fits, neighbours
from tests.support.simulator import Simulator, attribute, messages_of
from veiltab.core import privacy
from veiltab.core.mechanism import LinkageMode
from veiltab.core.schema import Codes
from veiltab.crypto.entropy import CipherEntropy
from veiltab.protocol.in_process import Holding, Terms
from veiltab.protocol.stores import read_chunk
from veiltab.wire.contract import PadMode
from veiltab.wire.messages import Upload
from veiltab.wire.packing import chunk_slices


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shares", "population", "sample_size"),
    [
        (({"a": 3},), 2, 2),
        (({"a": 2, "b": 3},), 2, 1),
        (({"a": 2},), 3, 2),
        (({"a": 2}, {"b": 3}), 2, 1),
    ],
)
def test_a_sample_tells_the_server_nothing(
    shares: Sequence[Mapping[str, int]], population: int, sample_size: int
) -> None:
    """Over all one-time pads every database gives the same uploads, each the same often.

    So it is for every order, hence also for any law of the order: the view is independent.
    """
    tiny = Tiny(shares, population, sample_size, "aligned")
    for order in permutations(range(population)):
        views = [
            Counter(tuple(tiny.upload(database, order, pads)) for pads in tiny.pads(sample_size))
            for database in tiny.databases()
        ]
        assert all(view == views[0] for view in views)
        assert views[0].total() == tiny.schema.domain_size**sample_size


def test_a_whole_table_tells_the_server_nothing() -> None:
    """With tokens, too: ciphertext and tokens together are the same for every database."""
    tiny = Tiny(({"a": 3},), 2, 1, "fresh")
    views = [
        Counter(
            tuple(tiny.table_upload(database, order, pads))
            for order in permutations(range(2))
            for (pads,) in tiny.pads(2)
        )
        for database in tiny.databases()
    ]
    assert all(view == views[0] for view in views)
    assert views[0].total() == 2 * 9
    assert len(views[0]) == 2 * 9  # two orders of the tokens, nine columns


SIZES = {"pair": 2, "three": 3, "seven": 7, "sixteen": 16, "many": 200, "wide": 300}
ROWS = 70_000


def _constant(size: int) -> NDArray[np.int64]:
    return np.full(ROWS, size - 1)


def _periodic(size: int) -> NDArray[np.int64]:
    return np.arange(ROWS) % size


@pytest.mark.parametrize("mode", ["stream", "one-time"])
@pytest.mark.parametrize("make", [_constant, _periodic])
def test_a_large_upload_looks_random(
    mode: PadMode, make: Callable[[int], NDArray[np.int64]]
) -> None:
    """Ciphertexts of constant and of periodic data are uniform, alone and in pairs of rows."""
    attributes = tuple(attribute(name, size) for name, size in SIZES.items())
    codes: list[Codes] = [make(a.size).astype(a.dtype) for a in attributes]
    rehearsal = Simulator(
        holdings=[Holding(attributes, codes, messages_of(range(ROWS)))],
        entropy=CipherEntropy.from_seed(5, f"upload {mode} {make.__name__}"),
    )
    terms = Terms(epsilon=1.0, sample_size=ROWS, linkage="aligned", pads=mode)
    upload = rehearsal.run(terms).prepared[0].message.body
    assert isinstance(upload, Upload)
    for a, column in zip(attributes, upload.columns, strict=True):
        encrypted = np.concatenate(
            [
                read_chunk(column.chunks, a, number, where, rehearsal.sent[0])
                for number, where in enumerate(chunk_slices(ROWS))
            ]
        ).astype(np.int64)
        assert_fits(np.bincount(encrypted, minlength=a.size), np.full(a.size, 1 / a.size))
        if a.size <= 16:
            pairs = encrypted[::2] * a.size + encrypted[1::2]
            cells = a.size**2
            assert_fits(np.bincount(pairs, minlength=cells), np.full(cells, 1 / cells))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "shares", "population", "sample_size"),
    [
        ("aligned", ({"a": 2},), 2, 1),
        ("aligned", ({"a": 2},), 2, 2),
        pytest.param("aligned", ({"a": 2},), 3, 2, marks=pytest.mark.soak),
        ("aligned", ({"a": 2}, {"b": 2}), 2, 1),
        ("fresh", ({"a": 2},), 2, 1),
        ("stored", ({"a": 2},), 2, 1),
    ],
)
def test_the_researchers_view_obeys_theorem_1_with_equality(
    way: Way, shares: Sequence[Mapping[str, int]], population: int, sample_size: int
) -> None:
    """Every order, pad, sample and noise through all roles: the worst ratio is the theorem's.

    The view is every released chunk, positions too, and all pads that are granted.
    """
    tiny = Tiny(shares, population, sample_size, way)
    laws = {database: tiny.law(database) for database in tiny.databases()}
    assert len({frozenset(law) for law in laws.values()}) == 1
    worst = max(
        laws[database][view] / laws[other][view]
        for database in laws
        for other in neighbours(database, tiny.schema.domain_size)
        for view in laws[database]
    )
    gamma = tiny.plan.ranked.channel.gamma
    assert worst == privacy.likelihood_ratio(population, sample_size, gamma)
    assert gamma > 1 + Fraction(1, 2)


@pytest.mark.parametrize("linkage", ["aligned", "matched"])
def test_no_message_lets_a_researcher_test_guesses(linkage: LinkageMode) -> None:
    """The release names the upload by a hash over the ciphertext before the noise.

    Whoever knew the rest of that message could try records until the hash fits.  The upload id,
    which is random, stays away from the researcher, and so do the chunks' own digests.
    """
    rehearsal = Simulator()
    outcome = rehearsal.run(Terms(epsilon=1.0, sample_size=4, linkage=linkage))
    seen = b"".join(each.dumps() for each in rehearsal.grants(outcome))
    seen += outcome.contract.dumps() + outcome.study.release().dumps()
    for prepared in outcome.prepared:
        body = prepared.message.body
        assert isinstance(body, Upload)
        hidden = [body.upload_id, *(d for column in body.columns for d in column.chunks)]
        hidden += body.tokens or ()
        assert prepared.message.digest.hex().encode() in seen
        assert not [secret for secret in hidden if secret.hex().encode() in seen]
