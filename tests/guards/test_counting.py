"""The counter counts: each way to make a kernel slower shows in one of its numbers."""

import sys

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from numpy.typing import NDArray

from tests.support.counting import Kernel, Work, check_span, check_work, count, peak, wrapped
from veiltab.core.schema import join_neighbours
from veiltab.crypto import linkage

ROWS = 1000
Bytes = NDArray[np.uint8]


def column() -> Bytes:
    """Return a column that is counted."""
    return wrapped(np.ones(ROWS, dtype=np.uint8))


WORK = {
    "a sum": (lambda: column() + column(), Work(moved=3, fresh=1)),
    "a sum in place": (lambda: column().__iadd__(column()), Work(moved=3)),
    "a conversion": (lambda: column().astype(np.int64), Work(moved=9, fresh=8)),
    "no conversion": (lambda: column().astype(np.uint8, copy=False), Work()),
    "a hidden conversion": (
        lambda: np.add(column(), column(), dtype=np.int64),
        Work(moved=42, fresh=8),
    ),
    "a view": (lambda: column().reshape(-1, 2)[::2].T.view(np.uint8), Work()),
    "a copy": (lambda: column().reshape(-1, 2).T.reshape(-1), Work(moved=2, fresh=1)),
    "a fill": (lambda: column().__setitem__(slice(None), 0), Work(moved=1)),
    "a maximum": (lambda: column().max(), Work(moved=1)),
    "a remainder": (lambda: column() % np.uint8(3), Work(moved=2, slow=1, fresh=1)),
    "floats": (lambda: column() / np.uint8(3), Work(moved=25, slow=1, fresh=8)),
    "places": (lambda: column()[column()], Work(moved=3, gathered=1, fresh=1)),
    "a sort": (lambda: column().sort(), Work(moved=1, sorted=1)),
    "an order": (lambda: column().argsort(), Work(moved=9, slow=1, fresh=8)),
    "bytes": (lambda: column().tobytes(), Work(moved=2, fresh=1)),
    "a list": (lambda: column().tolist(), Work(moved=1, slow=1)),
}


@pytest.mark.parametrize("name", WORK)
def test_what_an_operation_costs(name: str) -> None:
    """Bytes and elements of a record, for each kind of operation."""
    run, expected = WORK[name]
    found = count(run).each(ROWS, 1)
    assert (found - expected).each(1, 1).calls == found.calls
    assert found - Work(calls=found.calls) == expected


def test_records_one_by_one() -> None:
    """A loop over records shows in the calls."""
    assert count(lambda: [value + 1 for value in column()]).steps == 0
    assert count(lambda: [column()[row : row + 1] + 1 for row in range(ROWS)]).calls == ROWS


def test_lines_of_the_package() -> None:
    """Lines of the package count, other lines do not."""
    once = count(lambda: join_neighbours(column(), 3)).steps
    assert once > 3
    assert count(lambda: [join_neighbours(column(), 3) for _ in range(2)]).steps == 2 * once


def test_nothing_is_left_behind() -> None:
    """Afterwards the package has its own NumPy and ciphers again, and nothing traces."""
    before = sys.gettrace()
    count(lambda: None)
    assert vars(linkage)["np"] is np
    assert vars(linkage)["Cipher"] is Cipher
    assert sys.gettrace() is before


def kernel(extra: int) -> Kernel:
    """Return a kernel that goes over its rows once, and so many times more."""
    return Kernel(lambda rows: [wrapped(np.ones(rows)) + 1 for _ in range(1 + extra)], 1000)


LIMIT = Work(moved=16, slow=1, fresh=8)


def test_limits() -> None:
    """Work at the limit passes; more of it, less of it, and work that grows faster do not."""
    check_work(kernel(0), LIMIT)
    with pytest.raises(AssertionError, match="more work than"):
        check_work(kernel(1), LIMIT)
    with pytest.raises(AssertionError, match="write down the new limit"):
        check_work(kernel(0), Work(moved=32, slow=1, fresh=8))
    square = Kernel(lambda rows: [wrapped(np.ones(rows)) + 1 for _ in range(rows // 1000)], 1000)
    with pytest.raises(AssertionError, match="grows faster"):
        check_work(square, LIMIT)


def test_loops_within_a_span() -> None:
    """A loop over few rows at a time is noticed."""
    loop = Kernel(lambda rows: [column() + 1 for _ in range(0, rows, 10)], 10_000)
    with pytest.raises(AssertionError):
        check_span(loop)
    check_span(kernel(0))


def test_peak() -> None:
    """The peak is of what is held at a time."""
    assert 200_000 <= peak(lambda: [bytes(100_000) for _ in "ab"]) <= 250_000
    assert peak(lambda: [len(bytes(100_000)) for _ in "abcd"]) <= 150_000
