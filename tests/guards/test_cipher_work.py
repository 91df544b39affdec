"""How many bytes of keystream, and how many blocks, records and messages take: exactly.

The counts are of fixed keys, so nothing here is left to chance.
"""

from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.ciphers.modes import CTR
from numpy.typing import NDArray

from tests.support.counting import count
from tests.support.entropy import CountingEntropy
from tests.support.kernel_runs import SPAN
from veiltab.core.noise import NoiseSource
from veiltab.core.plan import plan
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.linkage import tokens
from veiltab.crypto.pads import StreamPad

KEY = bytes(range(32))
BLOCK = 16
BATCH_ROWS = 1 << 14
ROWS = 3 * SPAN

# Bytes of keystream for a row, by the number of categories; and of a word, and the rows of a word.
KEYSTREAM = {2: (1, 2, 2), 6: (1, 2, 2), 16: (1, 2, 2), 17: (2, 2, 1), 100: (2, 2, 1)} | {
    256: (2, 2, 1), 257: (4, 4, 1), 1000: (4, 4, 1), 65_535: (4, 4, 1),
}  # fmt: skip
# Bytes of a record's word, by the number of cells.
NOISE = {2: 1, 24: 1, 100: 2, 256: 1, 257: 2, 768: 4, 10**6: 8, 1 << 20: 4}
# AES calls for each batch of messages, and blocks of a message, by its bytes.
MESSAGES = {0: 1, 8: 1, 16: 1, 17: 2, 40: 3, 64: 4}


def keystream_words(width: int, rows_of_word: int) -> NDArray[np.unsignedinteger]:
    """Return the words that the rows' elements come from."""
    stream = Cipher(AES256(KEY), CTR(bytes(BLOCK))).encryptor()
    data = stream.update(bytes(ROWS * width // rows_of_word))
    return np.frombuffer(data, dtype=f"<u{width}")


def refused_words(size: int) -> int:
    """Return how many of them stand for nothing, and take a block of their own."""
    _, width, rows = KEYSTREAM[size]
    outcomes = size**rows
    limit = (1 << 8 * width) // outcomes * outcomes
    return int(np.count_nonzero(keystream_words(width, rows) > limit - 1))


def check_blocks(found: float, least: int) -> None:
    """Expect a block for each refused word; of those few, one in a hundred is refused again."""
    assert found % BLOCK == 0
    assert least <= found / BLOCK <= least + least // 100 + 2


@pytest.mark.parametrize("size", KEYSTREAM)
def test_pads_of_consecutive_rows(size: int) -> None:
    """Each row takes a byte, two or four, and each refused word 16 more."""
    work = count(lambda: StreamPad(KEY, size).rows(0, ROWS))
    check_blocks(work.encrypted - KEYSTREAM[size][0] * ROWS, refused_words(size))


@pytest.mark.parametrize("size", [2, 256])
def test_pads_from_any_row_on(size: int) -> None:
    """Where the first row is not the first of a block, that block is all that comes on top."""
    work = count(lambda: StreamPad(KEY, size).rows(5, SPAN))
    assert 0 <= work.encrypted - KEYSTREAM[size][0] * SPAN < BLOCK


@pytest.mark.parametrize("size", KEYSTREAM)
def test_pads_of_rows_anywhere(size: int) -> None:
    """Each row takes one block, and a refused word another one."""
    rows = 20_000
    positions = np.arange(rows, dtype=np.int64) * 7919 % ROWS
    work = count(lambda: StreamPad(KEY, size).at(positions))
    assert BLOCK * rows <= work.encrypted <= 1.002 * BLOCK * rows


@pytest.mark.parametrize("cells", NOISE)
def test_noise(cells: int) -> None:
    """A record takes its word; of 128 at most one is kept anyway, for two bytes; a group eight."""
    people, rows = 45_222, 4 * SPAN
    chosen = plan(
        population_size=people, domain_size=cells, epsilon=1.0, sample_size=people, anyway=True
    )
    entropy = CountingEntropy(CipherEntropy(KEY))
    source = NoiseSource(chosen.ranked.channel, rows, entropy)
    for _ in range(4):
        source.draw(np.empty(SPAN, dtype=source.dtype))
    assert 0 <= entropy.used - NOISE[cells] * rows <= (8 / 4096 + 2 / 128) * rows


@pytest.mark.parametrize("length", MESSAGES)
def test_tokens(length: int) -> None:
    """A message takes its blocks, in as many calls for a whole batch as one message has blocks."""
    few, many = (count(token_maker(length, batches)) for batches in (1, 3))
    more = many - few
    assert more.encrypted == 2 * BATCH_ROWS * BLOCK * MESSAGES[length]
    assert more.encryptions == 2 * MESSAGES[length]
    assert few.encrypted == BLOCK * (BATCH_ROWS * MESSAGES[length] + 1)  # one for the subkeys


def token_maker(length: int, batches: int) -> Callable[[], object]:
    """Return what makes the tokens of messages of one length."""
    rows = batches * BATCH_ROWS
    data, offsets = np.zeros(rows * length, dtype=np.uint8), np.arange(rows + 1) * length
    return lambda: tokens(KEY, data, offsets)
