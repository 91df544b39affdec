"""Tokens, matching, sorting and sampling do no more for a respondent than is written down here.

What is sorted are words that hold a row's number; finding an order, or comparing whole tokens,
would be slow, and is only done for the few whose first bits are the same.
"""

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.counting import Kernel, Work, check_span, check_work, exhaust, wrapped
from veiltab.crypto.linkage import token_runs, token_words, tokens
from veiltab.protocol.server.match import match_tokens
from veiltab.protocol.sorting import MemorySpool, Sorter, range_starts

KEY = bytes(range(32))
BATCH_ROWS, RANGE_ROWS, BUFFER_ROWS = 1 << 14, 1 << 16, 1 << 18
"""Rows that are to be worked on at once: messages, tokens of a range, records to sort."""

SPLIT = "matching two tables"
"""Tables of a whole range are cut in two, and matched in one piece just below that."""

MOST = 4 * BUFFER_ROWS
Tokens = NDArray[np.uint8]


def made_tokens(seed: int, rows: int = MOST) -> Tokens:
    """Return random tokens."""
    return np.random.default_rng(seed).integers(256, size=(rows, 16), dtype=np.uint8)


TOKENS, OTHERS = made_tokens(1), made_tokens(2)


def message_tokens(*lengths: int) -> Callable[[int], object]:
    """Return what makes the tokens of messages of these lengths, in turn."""

    def run(rows: int) -> object:
        sizes = np.resize(np.array(lengths), rows)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        return tokens(KEY, wrapped(np.zeros(offsets[-1], dtype=np.uint8)), wrapped(offsets))

    return run


def match(rows: int) -> object:
    """Match two tables that have half of their respondents in common."""
    theirs = np.concatenate([TOKENS[: rows // 2], OTHERS[: rows // 2]])
    return match_tokens([wrapped(TOKENS[:rows]), wrapped(theirs)])


def sort(rows: int) -> None:
    """Sort a table with a row number and a code."""
    sorter = Sorter([("row", "<i8"), ("code", "u1")], MemorySpool(), range_starts(16))
    for start in range(0, rows, BUFFER_ROWS):
        part = slice(start, min(start + BUFFER_ROWS, rows))
        numbers = np.arange(part.start, part.stop)
        sorter.add(wrapped(TOKENS[part]), [wrapped(numbers), wrapped(numbers.astype(np.uint8))])
    sorter.flush()
    exhaust(sorter.spans(rows))


LIMITS = {
    "tokens of 16 bytes": Work(moved=76, fresh=42, encrypted=16, encryptions=1, calls=1, steps=7),
    "tokens of 8 bytes": Work(
        moved=478, gathered=4, fresh=163, encrypted=16, encryptions=1, calls=23, steps=24
    ),
    "tokens of 8 and 40 bytes": Work(
        moved=1024, gathered=12, fresh=332, encrypted=32, encryptions=3, calls=55, steps=48
    ),
    "words of tokens": Work(moved=88, sorted=1, fresh=24, calls=4, steps=3),
    "order of tokens": Work(moved=139, sorted=1, fresh=34, calls=4, steps=3),
    SPLIT: Work(moved=583, gathered=2.5, sorted=4, fresh=181, calls=98, steps=102),
    "sorting": Work(moved=540.5, gathered=2, sorted=2, fresh=194.8, calls=135, steps=219),
}

KERNELS = {
    "tokens of 16 bytes": Kernel(message_tokens(16), BATCH_ROWS),
    "tokens of 8 bytes": Kernel(message_tokens(8), BATCH_ROWS),
    "tokens of 8 and 40 bytes": Kernel(message_tokens(8, 40), BATCH_ROWS),
    "words of tokens": Kernel(lambda n: token_words(wrapped(TOKENS[:n])), BATCH_ROWS),
    "order of tokens": Kernel(lambda n: token_runs(wrapped(TOKENS[:n])), BATCH_ROWS),
    SPLIT: Kernel(match, RANGE_ROWS, (2, 4, 8)),
    "sorting": Kernel(sort, BUFFER_ROWS, (1, 2, 3), margin=1.03),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KERNELS)
def test_work_for_a_record(name: str) -> None:
    """However many spans there are, a record costs what the table says."""
    check_work(KERNELS[name], LIMITS[name])


@pytest.mark.parametrize("name", sorted(KERNELS.keys() - {SPLIT}))
def test_rows_of_a_span_are_worked_on_at_once(name: str) -> None:
    """Half a span takes as many calls and lines of Python as a whole one."""
    check_span(KERNELS[name])
