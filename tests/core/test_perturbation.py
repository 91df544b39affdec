"""The sampler: its exact law, bit for bit the plain reference, and the order of its entropy.

What words stand for, and which records are kept anyway, is the server's own business (see the
module); that every cell gets exactly its share of the 2⁶⁴ draws is not.
"""

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.entropy import ScriptedEntropy
from tests.support.laws import assert_fits
from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.entropy import Entropy, random_words
from veiltab.core.noise import (
    STRETCH_RECORDS,
    BernoulliTrials,
    Noise,
    NoiseSource,
    WordMapping,
    draw_noise,
)
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import ParameterError

SPAN, STRETCH = 262_144, 1_048_576
WIDTHS: list[tuple[int, int]] = [
    (cells, max(1, int(DRAW_RANGE * replaced) // cells))
    for cells in [1, 2, 3, 24, 255, 256, 257, 1000, 70_000, 2**31, 2**32 + 1, 2**33, 2**48]
    for replaced in (1e-15, 0.001, 0.5, 0.9, 0.999_999)
]
"""Numbers of cells N and of draws M for each of them, with more and more noise."""

WIDTHS += [(cells, (DRAW_RANGE - 1) // cells) for cells in (1, 2, 24, 255, 257, 2**48)]
WIDTHS += [(cells, 1) for cells in (1, 2, 24, 256, 257, 2**40)]
WIDTHS += [(1, 2**63), (2, 2**62), (24, 100 << 48), (256, 255 << 48), (300, 9 << 32)]
"""The least that can be kept; the most; and what short words decide alone."""

WIDTHS += [(257, 2**32), (257, 2**32 - 1), (256, 2**48 + 1), (2**32, 2**31), (2**33, 2**30)]


def channel_of(cells: int, width: int) -> GammaDiagonal:
    """Return the channel with so many draws for each cell."""
    return GammaDiagonal.from_threshold(cells, DRAW_RANGE - cells * width)


def channel_keeping(cells: int, share: float) -> GammaDiagonal:
    """Return a channel that keeps about the given share of the records."""
    return channel_of(cells, max(1, int(DRAW_RANGE * (1 - share)) // cells))


def words_of(channel: GammaDiagonal) -> tuple[int, int, Fraction]:
    """Return b, a and the chance to be kept anyway, as the module describes them."""
    cells, exact = channel.domain_size, channel.noise_width
    for bits in (8, 16, 32, 64):
        width = -(-exact * 2**bits // 2**64)
        keep_anyway = 1 - Fraction(exact * 2**bits, width * 2**64)
        if cells * width <= 2**bits > width and 128 * keep_anyway <= 1:
            return bits, width, keep_anyway
    raise AssertionError("with 64 bits no record is kept anyway")


def reference_noise(channel: GammaDiagonal, count: int, entropy: Entropy) -> Iterator[int]:
    """Perturb record by record: who is kept anyway, and then a word for everybody."""
    bits, width, keep_anyway = words_of(channel)
    for start in range(0, count, STRETCH):
        size = min(STRETCH, count - start)
        kept = (
            set(BernoulliTrials(keep_anyway).places(size, entropy).tolist())
            if keep_anyway
            else set()
        )
        for place, word in enumerate(random_words(size, bits, entropy).tolist()):
            replaced = word < channel.domain_size * width and place not in kept
            yield word // width if replaced else 0


def noise_of_words(channel: GammaDiagonal, words: Sequence[int]) -> list[int]:
    """Let the kernel see these words, and keep nobody anyway."""
    bits, _, keep_anyway = words_of(channel)
    nobody = bytes(8 * -(-len(words) // 4096) if keep_anyway else 0)
    script = nobody + b"".join(word.to_bytes(bits // 8, "little") for word in words)
    entropy = ScriptedEntropy(script)
    found: list[int] = draw_noise(channel, len(words), entropy).tolist()
    assert entropy.used == len(script)
    return found


def first_words(channel: GammaDiagonal, targets: list[int], end: int) -> list[int]:
    """Find by bisection the first word below ``end`` that stands for each target or more."""
    low, high = [0] * len(targets), [end] * len(targets)
    while any(a < b for a, b in zip(low, high, strict=True)):
        middle = [min((a + b) // 2, end - 1) for a, b in zip(low, high, strict=True)]
        found = noise_of_words(channel, middle)
        for i, (noise, target) in enumerate(zip(found, targets, strict=True)):
            if low[i] < high[i]:
                low[i], high[i] = (
                    (low[i], middle[i]) if noise >= target else (middle[i] + 1, high[i])
                )
    return low


@pytest.mark.parametrize(("cells", "width"), WIDTHS)
def test_every_cell_has_exactly_its_share_of_the_draws(cells: int, width: int) -> None:
    """Noise b or more has a chance of (N − b)·M in 2⁶⁴: for all b, or many if there are too many.

    Among the words for cells noise never falls, so that the first of each cell is found by
    bisection; the words after them all keep, and so does everybody who is kept anyway.
    """
    channel = channel_of(cells, width)
    bits, each, keep_anyway = words_of(channel)
    for_cells = cells * each
    targets = list(range(1, cells)) if cells <= 1000 else _some_targets(cells)
    for word, target in zip(first_words(channel, targets, for_cells), targets, strict=True):
        chance = (1 - keep_anyway) * Fraction(for_cells - word, 2**bits)
        assert chance == Fraction((cells - target) * width, 2**64)
    keeping = {for_cells, (for_cells + 2**bits) // 2, 2**bits - 1}
    words = [word for word in keeping if for_cells <= word < 2**bits]
    assert noise_of_words(channel, words) == [0] * len(words)
    if cells > 1:
        change = channel.probability(released=1, cell=0)
        stay = channel.probability(released=0, cell=0)
        assert change * DRAW_RANGE == width
        assert stay * DRAW_RANGE == DRAW_RANGE - (cells - 1) * width


@pytest.mark.parametrize(("cells", "width"), WIDTHS)
def test_every_short_word(cells: int, width: int) -> None:
    """All of 8 or 16 bits at once, and of longer ones those at the ends of every region."""
    channel = channel_of(cells, width)
    bits, each, _ = words_of(channel)
    ends = {cell * each for cell in (0, 1, cells // 2, cells - 1, cells)} | {2**bits}
    near = {end + step for end in ends for step in (-1, 0, 1)}
    words = range(2**bits) if bits <= 16 else sorted(w for w in near if 0 <= w < 2**bits)
    found = noise_of_words(channel, words)
    assert found == [word // each if word < cells * each else 0 for word in words]


@pytest.mark.parametrize(("cells", "width"), WIDTHS)
def test_words_are_short_and_few_are_kept_anyway(cells: int, width: int) -> None:
    """As the description says; and with words of 64 bits nobody is."""
    words = WordMapping.of(channel_of(cells, width))
    assert (words.bits, words.width, words.keep_anyway) == words_of(channel_of(cells, width))
    assert 0 <= words.keep_anyway <= Fraction(1, 128)
    assert words.bits < 64 or not words.keep_anyway


def test_more_noise_than_there_are_records_is_refused() -> None:
    """A release that draws on would repeat nothing, but it has counted wrong."""
    source = NoiseSource(channel_keeping(24, 0.5), 10, CipherEntropy.from_seed(1, "ten"))
    source.draw(np.empty(7, dtype=source.dtype))
    with pytest.raises(ParameterError, match="noise of all records"):
        source.draw(np.empty(4, dtype=source.dtype))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cells", "count"),
    [(cells, count) for cells in (2, 24, 256, 257, 70_000) for count in (0, 1, 7, 3001)]
    + [(3, STRETCH - 1), (24, STRETCH), (256, STRETCH + 1), (70_000, STRETCH + 33)],
)
def test_bit_exact_against_the_plain_reference(cells: int, count: int) -> None:
    """Given the same bytes, kernel and plain loop agree on every record, over several stretches."""
    channel = channel_keeping(cells, 0.3)
    ours, theirs = (CipherEntropy.from_seed(cells, "bit exact") for _ in range(2))
    noise = draw_noise(channel, count, ours)
    assert noise.tolist() == list(reference_noise(channel, count, theirs))
    assert noise.dtype == np.min_scalar_type(cells - 1)
    assert random_words(4, 64, ours).tolist() == random_words(4, 64, theirs).tolist()


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(
    cells=st.integers(1, 5000) | st.integers(1, 2**48),
    share=st.floats(0.001, 0.999),
    count=st.integers(0, 600),
    key=st.binary(min_size=32, max_size=32),
)
def test_bit_exact_on_arbitrary_entropy(cells: int, share: float, count: int, key: bytes) -> None:
    """Whatever the bytes and the channel, kernel and reference agree."""
    channel = channel_keeping(cells, share)
    noise = draw_noise(channel, count, CipherEntropy(key))
    assert noise.tolist() == list(reference_noise(channel, count, CipherEntropy(key)))


@pytest.mark.parametrize(("cells", "share"), [(2, 0.5), (24, 0.5), (24, 0.05), (300, 0.3)])
def test_chi_square_over_every_input_cell(cells: int, share: float) -> None:
    """From each input cell the released cells follow that column of A; 1e-9 false alarms each."""
    channel = channel_keeping(cells, share)
    entropy = CipherEntropy.from_seed(cells, f"chi-square {share}")
    draws = 50 * cells * cells if cells < 100 else 40 * cells
    for cell in range(cells):
        released = channel.perturb(np.full(draws, cell), entropy)
        expected = np.full(cells, float(channel.probability(released=cells, cell=cell)))
        expected[cell] = float(channel.probability(released=cell, cell=cell))
        assert_fits(np.bincount(released, minlength=cells), expected)


@pytest.mark.parametrize("cells", [2**33, 2**48])
def test_more_cells_than_32_bits_are_all_reached(cells: int) -> None:
    """Noise that does not keep is uniform over sixteen equal parts of the cells; 1e-9."""
    channel = channel_keeping(cells, 0.5)
    start = np.zeros(100_000, dtype=np.int64)
    released = channel.perturb(start, CipherEntropy.from_seed(cells, "wide"))
    assert released.dtype == np.int64
    parts = np.bincount(released[released > 0] // (cells // 16), minlength=16)
    assert_fits(parts, np.full(16, 1 / 16))


class Pieces:
    """Entropy that hands out a seed's stream a few bytes at a time."""

    def __init__(self, piece: int) -> None:
        """Fill at most ``piece`` bytes at once."""
        self._piece, self._source = piece, CipherEntropy.from_seed(7, "pieces")

    def fill(self, out: NDArray[np.uint8]) -> None:
        """Overwrite ``out`` with the next bytes of the stream."""
        for start in range(0, out.size, self._piece):
            self._source.fill(out[start : start + self._piece])


@pytest.mark.parametrize("cells", [3, 24, 1000, 2**40])
def test_the_same_entropy_gives_the_same_noise(cells: int) -> None:
    """However the bytes come, and whether the records are asked for at once or in parts.

    Blocks of words never cross the end of what is asked for, so parts are whole blocks.
    """
    channel, count = channel_keeping(cells, 0.4), STRETCH + SPAN + 999
    whole = draw_noise(channel, count, Pieces(1 << 30))
    for piece in (9973, 65_536):
        assert (draw_noise(channel, count, Pieces(piece)) == whole).all()
    source = NoiseSource(channel, count, Pieces(4096))
    sizes = [SPAN] * (count // SPAN) + [count % SPAN]
    parts: list[Noise] = [np.empty(size, dtype=source.dtype) for size in sizes]
    for part in parts:
        source.draw(part)
    drawn = np.concatenate(parts)
    assert drawn.max() == cells or cells > 2**32, "kept records are not told apart from cell N"
    assert (drawn % cells == whole).all()


def test_perturbing_leaves_its_input_alone() -> None:
    """A caller's array is never overwritten."""
    cells = np.arange(24)
    channel_keeping(24, 0.1).perturb(cells, CipherEntropy.from_seed(1, "input"))
    assert cells.tolist() == list(range(24))


@pytest.mark.parametrize(
    ("cells", "share", "least", "most"),
    [(2, 0.5, 1, 1.01), (24, 0.5, 2, 2.02), (256, 0.05, 2, 2.05), (5000, 0.5, 4, 4.01)],
)
def test_few_bytes_are_drawn_per_record(
    cells: int, share: float, least: float, most: float
) -> None:
    """A record costs as many bytes of entropy as its word has, and more only rarely."""
    assert STRETCH_RECORDS == STRETCH
    count = 3 * SPAN
    raw = np.empty(count * 8, dtype=np.uint8)
    CipherEntropy.from_seed(2, "bytes").fill(raw)
    entropy = ScriptedEntropy(raw.tobytes())
    draw_noise(channel_keeping(cells, share), count, entropy)
    assert least * count <= entropy.used < most * count


def _some_targets(cells: int) -> list[int]:
    near = {1, 2, 255, 256, 257, 2**16, 2**32 - 1, 2**32, cells // 2, cells - 2, cells - 1}
    spread = {cells * part // 97 for part in range(1, 97)}
    return sorted(target for target in near | spread if 1 <= target < cells)
