"""Whole paths of a table do no more for a record than is written down here.

A record of the joint table has four attributes; a curator encrypts two of them, and estimates are
of three, or of one where rows may have been anywhere.  Every chunk is hashed once.
"""

import pytest

from tests.support.counting import Kernel, Work, check_work
from tests.support.path_runs import (
    count_released,
    count_scattered,
    encrypt,
    perturb,
    planned,
    released,
    scattered,
    shuffle,
)
from veiltab.wire.packing import SPAN_ROWS

SPANS = 1, 2, 4
LIMITS = {
    "encrypting": Work(
        moved=105.3, fresh=26.71, encrypted=2.001, hashed=16.33, encryptions=3, calls=178, steps=719
    ),
    "perturbing": Work(
        moved=174.8,
        slow=0.008,
        fresh=32.51,
        encrypted=2.006,
        hashed=0.8723,
        encryptions=20,  # each chunk has a blinding of its own
        calls=361,
        steps=1773,
    ),
    "estimating": Work(
        moved=144.8,
        gathered=0.5001,
        fresh=27.25,
        encrypted=3.001,
        hashed=0.575,
        encryptions=4,
        calls=314,
        steps=1334,
    ),
    "estimating from positions": Work(
        moved=392.6,  # a fifth of it sees that no row comes twice
        gathered=2.25,
        fresh=148.9,
        encrypted=16.01,
        hashed=6.21,
        encryptions=48,
        calls=1021,
        steps=2336,
    ),
    "taking in and shuffling": Work(
        moved=2178,
        gathered=9,
        sorted=5,
        fresh=775.9,
        encrypted=32,
        encryptions=34,
        calls=749,
        steps=1197,
    ),
}

KERNELS = {
    "encrypting": Kernel(encrypt, SPAN_ROWS, SPANS),
    "perturbing": Kernel(perturb, SPAN_ROWS, SPANS, planned),
    "estimating": Kernel(count_released, SPAN_ROWS, SPANS, released),
    "estimating from positions": Kernel(count_scattered, SPAN_ROWS, SPANS, scattered),
    "taking in and shuffling": Kernel(shuffle, SPAN_ROWS, (1, 2, 3), margin=1.03),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_work_for_a_record(name: str) -> None:
    """However many spans there are, a record costs what the table says."""
    check_work(KERNELS[name], LIMITS[name])
