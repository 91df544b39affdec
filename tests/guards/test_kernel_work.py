"""The kernels that go over records do no more for a record than is written down here.

``Work`` says what is counted.  A kernel that does more fails, whatever the machine; one that does
less fails as well, so that its new limit is written down.  Bytes of packed codes against the
entropy are in ``tests/wire/test_packing.py``.
"""

import pytest

from tests.support.counting import Kernel, Work, check_span, check_work
from tests.support.kernel_runs import (
    SPAN,
    adding,
    counting,
    mixing,
    noise,
    one_time,
    packing_of,
    pad,
    positions,
    scattered,
    subtracting,
    unmixing,
    unpacking_of,
)
from veiltab.wire.packing import CHUNK_ROWS

SCATTERED_ROWS, BLOCK_RECORDS = 1 << 13, 1 << 16
"""Rows that are to be worked on at once where they lie anywhere, and where they are counted."""

LIMITS = {
    "pads, k = 6": Work(
        moved=10.14, fresh=1.068, encrypted=1.002, encryptions=2, calls=26, steps=60
    ),
    "pads, k = 16": Work(moved=9, fresh=1, encrypted=1, encryptions=1, calls=4, steps=24),
    "pads, k = 100": Work(
        moved=9.42, fresh=1.198, encrypted=2.009, encryptions=2, calls=22, steps=59
    ),
    "pads, k = 300": Work(moved=18.31, fresh=2.156, encrypted=4, encryptions=1, calls=10, steps=30),
    "pads anywhere, k = 6": Work(
        moved=206, gathered=2, fresh=87.01, encrypted=16, encryptions=2, calls=31, steps=62
    ),
    "pads anywhere, k = 300": Work(
        moved=152, gathered=1, fresh=73, encrypted=16, encryptions=1, calls=13, steps=33
    ),
    "one-time pads, k = 6": Work(
        moved=31, gathered=1, slow=1, fresh=16, encrypted=4, encryptions=16, calls=5, steps=66
    ),
    "noise, 24 cells": Work(
        moved=5.713,
        gathered=0.009,
        sorted=0.009,
        slow=0.023,
        fresh=0.195,
        encrypted=1.011,
        encryptions=3,
        calls=12,
        steps=56,
    ),
    "noise, 768 cells": Work(
        moved=20.01, fresh=2.004, encrypted=4.002, encryptions=9, calls=30, steps=142
    ),
    "adding, k = 6": Work(moved=8, fresh=1, calls=12, steps=30),
    "adding, k = 200": Work(moved=25, fresh=4, calls=13, steps=31),
    "adding, k = 300": Work(moved=16, fresh=2, calls=12, steps=30),
    "subtracting, k = 6": Work(moved=8, fresh=1, calls=12, steps=30),
    "mixing, 4 x 6": Work(moved=7, fresh=1),
    "mixing, 4 x 6 x 32": Work(moved=29, fresh=2),
    "unmixing, 4 x 6": Work(moved=10, fresh=4),
    "unmixing, 4 x 6 x 32": Work(moved=43, fresh=15),
    "counting, 6 cells": Work(moved=19.63, gathered=0.25, fresh=4.158, calls=8, steps=24),
    "counting, 24 cells": Work(moved=16.28, gathered=0.5, fresh=5.07, calls=5, steps=14),
    "counting, 768 cells": Work(moved=18, gathered=1, fresh=8),
    "packing, k = 2": Work(moved=5.375, fresh=1.25, calls=5, steps=19),
    "packing, k = 6": Work(moved=36.18, fresh=6.652, calls=28, steps=79),
    "packing, k = 300": Work(moved=72.77, fresh=14.33, calls=35, steps=119),
    "unpacking, k = 2": Work(moved=2.125, fresh=1, calls=3, steps=27),
    "unpacking, k = 6": Work(moved=34.34, fresh=6.602, calls=29, steps=91),
    "unpacking, k = 300": Work(moved=73.74, fresh=13.33, calls=35, steps=121),
    "positions": Work(moved=80, fresh=30, calls=7, steps=16),
}

KERNELS = {
    "pads, k = 6": Kernel(pad(6), SPAN),
    "pads, k = 16": Kernel(pad(16), SPAN),
    "pads, k = 100": Kernel(pad(100), SPAN),
    "pads, k = 300": Kernel(pad(300), SPAN),
    "pads anywhere, k = 6": Kernel(scattered(6), SCATTERED_ROWS),
    "pads anywhere, k = 300": Kernel(scattered(300), SCATTERED_ROWS),
    "one-time pads, k = 6": Kernel(one_time(6), SPAN),
    "noise, 24 cells": Kernel(noise(24), SPAN, (4, 8, 16), margin=1.2),
    "noise, 768 cells": Kernel(noise(768), SPAN, (4, 8, 16)),
    "adding, k = 6": Kernel(adding(6), SPAN),
    "adding, k = 200": Kernel(adding(200), SPAN),
    "adding, k = 300": Kernel(adding(300), SPAN),
    "subtracting, k = 6": Kernel(subtracting(6), SPAN),
    "mixing, 4 x 6": Kernel(mixing(4, 6), SPAN),
    "mixing, 4 x 6 x 32": Kernel(mixing(4, 6, 32), SPAN),
    "unmixing, 4 x 6": Kernel(unmixing(4, 6), SPAN),
    "unmixing, 4 x 6 x 32": Kernel(unmixing(4, 6, 32), SPAN),
    "counting, 6 cells": Kernel(counting(6), BLOCK_RECORDS),
    "counting, 24 cells": Kernel(counting(24), BLOCK_RECORDS),
    "counting, 768 cells": Kernel(counting(768), SPAN),
    "packing, k = 2": Kernel(packing_of(2), CHUNK_ROWS),
    "packing, k = 6": Kernel(packing_of(6), CHUNK_ROWS),
    "packing, k = 300": Kernel(packing_of(300), CHUNK_ROWS),
    "unpacking, k = 2": Kernel(unpacking_of(2), CHUNK_ROWS),
    "unpacking, k = 6": Kernel(unpacking_of(6), CHUNK_ROWS),
    "unpacking, k = 300": Kernel(unpacking_of(300), CHUNK_ROWS),
    "positions": Kernel(positions, CHUNK_ROWS),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_work_for_a_record(name: str) -> None:
    """However many spans there are, a record costs what the table says."""
    check_work(KERNELS[name], LIMITS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_rows_of_a_span_are_worked_on_at_once(name: str) -> None:
    """Half a span takes as many calls and lines of Python as a whole one."""
    check_span(KERNELS[name])
