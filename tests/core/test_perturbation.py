"""The sampler: exact at every boundary, bit for bit the plain reference, and well distributed."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.scripted import ScriptedEntropy
from tests.support.statistics import assert_fits
from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.perturbation import CHUNK_RECORDS, draw_noise
from veiltab.crypto.entropy import CipherEntropy

DOMAIN_SIZES = [1, 2, 3, 24, 256, 257, 70_000, 2**48]


def channel_keeping(domain_size: int, share: float) -> GammaDiagonal:
    """Return a channel that keeps about the given share of the records."""
    width = max(1, int(DRAW_RANGE * (1 - share)) // domain_size)
    return GammaDiagonal.from_threshold(domain_size, DRAW_RANGE - domain_size * width)


def reference_noise(channel: GammaDiagonal, count: int, script: bytes) -> Iterator[int]:
    """Perturb record by record in plain Python integers, straight from the definition."""
    bits = 16 if channel.domain_size <= 256 else 32
    position = 0
    for start in range(0, count, CHUNK_RECORDS):
        chunk = min(CHUNK_RECORDS, count - start)
        more = position + chunk * bits // 8
        for record in range(chunk):
            at = position + record * bits // 8
            lowest = int.from_bytes(script[at : at + bits // 8], "little") << (64 - bits)
            highest = lowest + (1 << (64 - bits)) - 1
            if noise_of(channel, lowest) == noise_of(channel, highest):
                yield noise_of(channel, lowest)
            else:
                rest = int.from_bytes(script[more : more + 8], "little") >> bits
                more += 8
                yield noise_of(channel, lowest + rest)
        position = more


def noise_of(channel: GammaDiagonal, draw: int) -> int:
    """Return the noise of one 64-bit draw: r < t keeps, else the cell (r − t) div M."""
    if draw < channel.keep_threshold:
        return 0
    return (draw - channel.keep_threshold) // channel.noise_width


def script_for(channel: GammaDiagonal, draws: list[int]) -> bytes:
    """Write the entropy that makes the sampler see exactly these 64-bit draws."""
    bits = 16 if channel.domain_size <= 256 else 32
    first = b"".join((draw >> (64 - bits)).to_bytes(bits // 8, "little") for draw in draws)
    rest = b""
    for draw in draws:
        lowest = draw >> (64 - bits) << (64 - bits)
        if noise_of(channel, lowest) != noise_of(channel, lowest + (1 << (64 - bits)) - 1):
            rest += (draw << bits & (DRAW_RANGE - 1)).to_bytes(8, "little")
    return first + rest


@pytest.mark.parametrize("share", [1e-6, 0.1, 0.5, 0.999])
@pytest.mark.parametrize("cells", DOMAIN_SIZES)
def test_every_boundary_of_the_draw_is_exact(cells: int, share: float) -> None:
    """Each cell's first and last draw, and those beside them, get the right noise."""
    channel = channel_keeping(cells, share)
    threshold, width = channel.keep_threshold, channel.noise_width
    edges = {0, threshold - 1, threshold, DRAW_RANGE - 1}
    for cell in {0, 1, cells // 2, cells - 1}:
        edges |= {threshold + cell * width + step for step in (-1, 0, width - 1, width)}
    draws = sorted(edge for edge in edges if 0 <= edge < DRAW_RANGE)
    entropy = ScriptedEntropy(script_for(channel, draws))
    noise = draw_noise(channel, len(draws), entropy)
    assert noise.tolist() == [noise_of(channel, draw) for draw in draws]
    assert noise[-1] == cells - 1


def test_each_cell_has_exactly_its_share_of_the_draws() -> None:
    """Counting draws by their boundaries: t + M of 2⁶⁴ leave a record, M make each other cell."""
    channel = channel_keeping(24, 0.5)
    threshold, width = channel.keep_threshold, channel.noise_width
    assert threshold + 24 * width == DRAW_RANGE
    stay = channel.probability(released=0, cell=0)
    change = channel.probability(released=1, cell=0)
    assert stay * DRAW_RANGE == threshold + width
    assert change * DRAW_RANGE == width


@pytest.mark.parametrize("count", [0, 1, 7, CHUNK_RECORDS, CHUNK_RECORDS + 1, 3 * CHUNK_RECORDS])
@pytest.mark.parametrize("cells", [2, 24, 256, 257, 70_000])
def test_bit_exact_against_the_plain_reference(cells: int, count: int) -> None:
    """Given the same bytes the array kernel and the plain loop agree on every record."""
    channel = channel_keeping(cells, 0.3)
    raw = np.empty(count * 12 + 64, dtype=np.uint8)
    CipherEntropy.from_seed(cells, "bit exact").fill(raw)
    script = raw.tobytes()
    noise = draw_noise(channel, count, ScriptedEntropy(script))
    assert noise.tolist() == list(reference_noise(channel, count, script))


@settings(max_examples=200)
@given(
    cells=st.integers(1, 5000),
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
        expected = [float(channel.probability(released=r, cell=cell)) for r in range(cells)]
        assert_fits(np.bincount(released, minlength=cells), np.array(expected))


def test_perturbing_leaves_its_input_alone() -> None:
    """A caller's array is never overwritten."""
    cells = np.arange(24)
    channel_keeping(24, 0.1).perturb(cells, CipherEntropy.from_seed(1, "input"))
    assert cells.tolist() == list(range(24))


def test_few_bytes_are_drawn_per_record() -> None:
    """With few cells a record costs two bytes of entropy, and the rest only rarely."""
    channel = channel_keeping(24, 0.5)
    count = 10 * CHUNK_RECORDS
    raw = np.empty(count * 4, dtype=np.uint8)
    CipherEntropy.from_seed(2, "bytes").fill(raw)
    entropy = ScriptedEntropy(raw.tobytes())
    draw_noise(channel, count, entropy)
    assert 2 * count < entropy.used < 2.02 * count
