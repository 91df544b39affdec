"""The groups Z_k in which pads and noise are added, one for each attribute."""

import numpy as np
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy, random_words
from veiltab.core.schema import Codes


def add(left: Codes, right: Codes, size: int) -> Codes:
    """Add two columns in Z_size; the result has the first column's type."""
    total = left.astype(np.uint32) + right
    return (total % np.uint32(size)).astype(left.dtype)


def subtract(left: Codes, right: Codes, size: int) -> Codes:
    """Take the second column from the first in Z_size.

    The paper writes decryption with ⊕ as well; only subtraction undoes an addition once a group
    has an element that is not its own inverse, as in Z_3.
    """
    total = left.astype(np.uint32) + (np.uint32(size) - right)
    return (total % np.uint32(size)).astype(left.dtype)


def draw_uniform(size: int, count: int, entropy: Entropy) -> NDArray[np.uint16]:
    """Draw ``count`` elements of Z_size, exactly uniform, by rejection of 32-bit words."""
    limit = np.uint32((2**32 // size) * size - 1)  # the largest word that may be used
    found = np.empty(count, dtype=np.uint16)
    filled = 0
    while filled < count:
        words = random_words(count - filled, 32, entropy)
        accepted = words[words <= limit] % np.uint32(size)
        found[filled : filled + accepted.size] = accepted
        filled += accepted.size
    return found
