"""Memory that is held at a time: so many bytes for a record of one span, however many spans.

What whole parties hold is in ``tests/protocol/test_bounded_memory.py``; here stand the numbers.
"""

from collections.abc import Callable

import pytest

from tests.support import kernel_runs as kernels
from tests.support import path_runs as paths
from tests.support.counting import peak

SPAN = kernels.SPAN
FEW, MANY = 8 * SPAN, 12 * SPAN
MARGIN = 1.05
GROWTH = 1 / 64
"""Bytes that a further record may add besides what is returned: a digest for each chunk."""

PEAKS: dict[str, tuple[Callable[[int], object], float, float]] = {
    # What is returned of a record, and what else is held for a record of one span.
    "pads, k = 6": (kernels.pad(6), 1, 2.07),
    "pads, k = 100": (kernels.pad(100), 1, 2.11),
    "pads, k = 300": (kernels.pad(300), 2, 4.17),
    "one-time pads, k = 6": (kernels.one_time(6), 1, 14),
    "noise, 24 cells": (kernels.noise(24), 0, 2.45),
    "noise, 768 cells": (kernels.noise(768), 0, 3.1),
    "adding, k = 6": (kernels.adding(6), 0, 1.01),
    "packing, k = 6": (kernels.packing_of(6), 0, 1.3),
    "unpacking, k = 6": (kernels.unpacking_of(6), 0, 0.61),
    "encrypting": (paths.encrypt, 0, 9.1),
    "perturbing": (paths.perturb, 0, 10.9),
    "estimating": (paths.count_released, 0, 14.0),
    # A bit for each row of the table, in an array that doubles as it grows.
    "estimating from positions": (paths.count_scattered, 0.5, 24),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", PEAKS)
def test_what_is_held_at_a_time(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half as many spans again take no more, and one span no more than the table says."""
    monkeypatch.setenv("VEILTAB_THREADS", "1")  # several hold more
    run, returned, held = PEAKS[name]
    for rows in (SPAN, FEW, MANY):
        run(rows)  # whatever is made once in a process
    few, many = peak(lambda: run(FEW)), peak(lambda: run(MANY))
    assert many - few <= (returned + GROWTH) * (MANY - FEW)
    assert few - returned * FEW <= MARGIN * held * SPAN
