"""The sampler: its exact law, bit for bit the plain reference, and the order of its entropy.

The first b bits of a draw are cells, then "kept", then undecided (see the module).  The layout is
the server's own business; that every cell gets exactly its share of the 2⁶⁴ draws is not.
"""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests.support.scripted import ScriptedEntropy
from tests.support.statistics import assert_fits
from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.perturbation import SPAN_RECORDS, Noise, NoiseSource, draw_noise, first_bits
from veiltab.crypto.entropy import CipherEntropy

SPAN = 262_144
WIDTHS: list[tuple[int, int]] = [
    (cells, max(1, int(DRAW_RANGE * replaced) // cells))
    for cells in [1, 2, 3, 24, 255, 256, 257, 1000, 70_000, 2**31, 2**32 + 1, 2**33, 2**48]
    for replaced in (1e-15, 0.001, 0.5, 0.9, 0.999_999)
]
"""Numbers of cells N and of draws M for each of them, with more and more noise."""

WIDTHS += [(cells, (DRAW_RANGE - 1) // cells) for cells in (1, 2, 24, 255, 257, 2**48)]
WIDTHS += [(cells, 1) for cells in (1, 2, 24, 256, 257, 2**40)]
WIDTHS += [(1, 2**63), (2, 2**62), (24, 100 << 48), (256, 255 << 48), (300, 9 << 32)]
"""The least that can be kept; the most; and what the first bits decide alone."""

WIDTHS += [(257, 2**32), (257, 2**32 - 1), (256, 2**48 + 1), (2**32, 2**31), (2**33, 2**30)]


def channel_of(cells: int, width: int) -> GammaDiagonal:
    """Return the channel with so many draws for each cell."""
    return GammaDiagonal.from_threshold(cells, DRAW_RANGE - cells * width)


def channel_keeping(cells: int, share: float) -> GammaDiagonal:
    """Return a channel that keeps about the given share of the records."""
    return channel_of(cells, max(1, int(DRAW_RANGE * (1 - share)) // cells))


class Layout:
    """What first words stand for, in plain integers: the module's description, written down."""

    def __init__(self, channel: GammaDiagonal) -> None:
        """Split t and M into whole first words and the rest."""
        self.bits = 16 if channel.domain_size <= 256 else 32
        self.rest = 64 - self.bits
        self._width, self._width_rest = divmod(channel.noise_width, 1 << self.rest)
        kept, self._kept_rest = divmod(channel.keep_threshold, 1 << self.rest)
        self.for_cells = channel.domain_size * self._width
        self.decided = self.for_cells + kept

    @property
    def undecided(self) -> int:
        """How many of the 2⁶⁴ draws the first bits do not decide."""
        return (1 << 64) - (self.decided << self.rest)

    def noise(self, word: int, rest: int) -> int:
        """Return the noise of a first word and the other bits."""
        if word < self.for_cells:
            return word // self._width
        if word < self.decided:
            return 0
        draw = ((word - self.decided) << self.rest) + rest
        return 0 if draw < self._kept_rest else (draw - self._kept_rest) // self._width_rest


def reference_noise(channel: GammaDiagonal, count: int, script: bytes) -> Iterator[int]:
    """Perturb record by record: a span's first bits, then 8 bytes for each undecided record."""
    layout = Layout(channel)
    position, step = 0, layout.bits // 8
    for start in range(0, count, SPAN):
        span = min(SPAN, count - start)
        more = position + span * step
        for at in range(position, more, step):
            word, rest = int.from_bytes(script[at : at + step], "little"), 0
            if word >= layout.decided:
                rest = int.from_bytes(script[more : more + 8], "little") >> layout.bits
                more += 8
            yield layout.noise(word, rest)
        position = more


def noise_of(channel: GammaDiagonal, words: list[int], rests: list[int]) -> list[int]:
    """Let the kernel see these first words, and these other bits for those undecided."""
    layout = Layout(channel)
    script = b"".join(word.to_bytes(layout.bits // 8, "little") for word in words)
    used = [rest for word, rest in zip(words, rests, strict=True) if word >= layout.decided]
    script += b"".join((rest << layout.bits).to_bytes(8, "little") for rest in used)
    entropy = ScriptedEntropy(script)
    found: list[int] = draw_noise(channel, len(words), entropy).tolist()
    assert entropy.used == len(script)
    return found


def firsts(channel: GammaDiagonal, targets: list[int], *, undecided: bool) -> list[int]:
    """Find by bisection the first word, or the first undecided draw, of each target or more."""
    layout = Layout(channel)
    end = layout.undecided if undecided else layout.for_cells
    low, high = [0] * len(targets), [end] * len(targets)
    while any(a < b for a, b in zip(low, high, strict=True)):
        middle = [min((a + b) // 2, end - 1) for a, b in zip(low, high, strict=True)]
        words = [layout.decided + (m >> layout.rest) for m in middle] if undecided else middle
        rests = [m & ((1 << layout.rest) - 1) if undecided else 0 for m in middle]
        found = noise_of(channel, words, rests)
        for i, (noise, target) in enumerate(zip(found, targets, strict=True)):
            if low[i] < high[i]:
                low[i], high[i] = (
                    (low[i], middle[i]) if noise >= target else (middle[i] + 1, high[i])
                )
    return low


@pytest.mark.parametrize(("cells", "width"), WIDTHS)
def test_every_cell_has_exactly_its_share_of_the_draws(cells: int, width: int) -> None:
    """Of 2⁶⁴ draws, (N − b)·M give noise b or more: for all b, or many where there are too many.

    Within the words for cells, and within the undecided draws, noise never falls, so that the
    first of each is found by bisection; the words between them all keep.
    """
    channel = channel_of(cells, width)
    layout = Layout(channel)
    targets = list(range(1, cells)) if cells <= 1000 else _some_targets(cells)
    starts = zip(
        firsts(channel, targets, undecided=False),
        firsts(channel, targets, undecided=True),
        targets,
        strict=True,
    )
    for word, draw, target in starts:
        draws = ((layout.for_cells - word) << layout.rest) + layout.undecided - draw
        assert draws == (cells - target) * width
    keeping = {layout.for_cells, (layout.for_cells + layout.decided) // 2, layout.decided - 1}
    words = [word for word in keeping if layout.for_cells <= word < layout.decided]
    assert noise_of(channel, words, [0] * len(words)) == [0] * len(words)
    if cells > 1:
        change = channel.probability(released=1, cell=0)
        stay = channel.probability(released=0, cell=0)
        assert change * DRAW_RANGE == width
        assert stay * DRAW_RANGE == DRAW_RANGE - (cells - 1) * width


@pytest.mark.parametrize(("cells", "width"), [case for case in WIDTHS if case[0] <= 256])
def test_every_first_word_of_16_bits(cells: int, width: int) -> None:
    """All 65,536 at once, each undecided one with its lowest, highest and some other bits."""
    channel = channel_of(cells, width)
    layout, words = Layout(channel), list(range(1 << 16))
    for rest in (0, 2**48 - 1, 0x5A5A_5A5A_5A5A):
        found = noise_of(channel, words, [rest] * len(words))
        assert found == [layout.noise(word, rest) for word in words]
    assert (1 << 16) - layout.decided <= cells


@pytest.mark.parametrize(("cells", "width"), WIDTHS)
def test_the_ends_of_every_region_are_exact(cells: int, width: int) -> None:
    """First and last words of cells, of keeping and of the undecided, against the reference."""
    channel = channel_of(cells, width)
    layout = Layout(channel)
    rest = (1 << layout.rest) - 1
    ends = {0, layout.for_cells, layout.decided, 1 << layout.bits}
    ends |= {cell * (width >> layout.rest) for cell in (1, cells // 2, cells - 1)}
    near = {end + step for end in ends for step in (-1, 0, 1)}
    words = sorted(word for word in near if 0 <= word < 1 << layout.bits)
    for bits_left in (0, 1, rest // 3, rest):
        found = noise_of(channel, words, [bits_left] * len(words))
        assert found == [layout.noise(word, bits_left) for word in words]
        assert max(found) < cells


@pytest.mark.parametrize(
    ("cells", "count"),
    [(cells, count) for cells in (2, 24, 256, 257, 70_000) for count in (0, 1, 7, 3001)]
    + [(24, SPAN - 1), (24, SPAN), (257, SPAN), (256, SPAN + 1), (70_000, 2 * SPAN + 33)],
)
def test_bit_exact_against_the_plain_reference(cells: int, count: int) -> None:
    """Given the same bytes, kernel and plain loop agree on every record, over several spans."""
    channel = channel_keeping(cells, 0.3)
    raw = np.empty(count * 5 + 64, dtype=np.uint8)
    CipherEntropy.from_seed(cells, "bit exact").fill(raw)
    noise = draw_noise(channel, count, ScriptedEntropy(raw.tobytes()))
    assert noise.tolist() == list(reference_noise(channel, count, raw.tobytes()))
    assert noise.dtype == np.min_scalar_type(cells - 1)


@settings(max_examples=200, deadline=None)
@given(
    cells=st.integers(1, 5000) | st.integers(1, 2**48),
    share=st.floats(0.001, 0.999),
    script=st.binary(min_size=64, max_size=64),
)
def test_bit_exact_on_arbitrary_entropy(cells: int, share: float, script: bytes) -> None:
    """Whatever the bytes and the channel, kernel and reference agree."""
    channel = channel_keeping(cells, share)
    noise = draw_noise(channel, 5, ScriptedEntropy(script))
    assert noise.tolist() == list(reference_noise(channel, 5, script))


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


@pytest.mark.parametrize("cells", [24, 1000, 2**40])
def test_the_same_entropy_gives_the_same_noise(cells: int) -> None:
    """However the bytes come, and whether the spans are asked for at once or one by one."""
    channel, count = channel_keeping(cells, 0.4), SPAN + 999
    whole = draw_noise(channel, count, Pieces(1 << 30))
    for piece in (997, 65_536):
        assert (draw_noise(channel, count, Pieces(piece)) == whole).all()
    source, entropy = NoiseSource(channel), Pieces(4096)
    spans: list[Noise] = [np.empty(size, dtype=source.dtype) for size in (SPAN, 999)]
    for span in spans:
        source.draw(entropy, out=span)
    drawn = np.concatenate(spans)
    assert drawn.max() == cells or cells > 2**32, "kept records are not told apart from cell N"
    assert (drawn % cells == whole).all()


def test_perturbing_leaves_its_input_alone() -> None:
    """A caller's array is never overwritten."""
    cells = np.arange(24)
    channel_keeping(24, 0.1).perturb(cells, CipherEntropy.from_seed(1, "input"))
    assert cells.tolist() == list(range(24))


def test_few_bytes_are_drawn_per_record() -> None:
    """With few cells a record costs two bytes of entropy, and the rest only rarely."""
    assert SPAN_RECORDS == SPAN
    assert [first_bits(cells) for cells in (1, 256, 257)] == [16, 16, 32]
    channel, count = channel_keeping(24, 0.5), 3 * SPAN
    raw = np.empty(count * 4, dtype=np.uint8)
    CipherEntropy.from_seed(2, "bytes").fill(raw)
    entropy = ScriptedEntropy(raw.tobytes())
    draw_noise(channel, count, entropy)
    assert 2 * count < entropy.used < 2.02 * count


def _some_targets(cells: int) -> list[int]:
    near = {1, 2, 255, 256, 257, 2**16, 2**32 - 1, 2**32, cells // 2, cells - 2, cells - 1}
    spread = {cells * part // 97 for part in range(1, 97)}
    return sorted(target for target in near | spread if 1 <= target < cells)
