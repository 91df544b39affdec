"""Matching respondents by their tokens (spec 9)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veiltab.crypto.linkage import token_runs, token_words
from veiltab.errors import MismatchError
from veiltab.roles.parallel import ordered_map

RANGE_ROWS = 1 << 16
"""Rows of a table that are matched at a time: few enough for the processor's cache."""

Tokens = NDArray[np.uint8]


def match_tokens(tables: Sequence[Tokens], threads: int | None = None) -> NDArray[np.int64]:
    """Return the row of each common respondent in each table: one row per respondent.

    They come in ascending order of their tokens.  Large tables are cut into ranges of tokens,
    which are matched by several threads, as many as there are processors by default.
    """
    ranges = 1 << (max(map(len, tables)) // RANGE_ROWS).bit_length()
    if ranges == 1:
        return _match(tables)
    bounds = np.arange(ranges, dtype=np.uint64) << np.uint64(65 - ranges.bit_length())
    rows = list(ordered_map(lambda table: _cut(table, bounds), tables, threads))

    def match(number: int) -> NDArray[np.int64]:
        own = [each[number] for each in rows]
        parts = [np.take(table, each, axis=0) for table, each in zip(tables, own, strict=True)]
        found = _match(parts)
        for column, each in zip(found.T, own, strict=True):
            column[:] = np.take(each, column)
        return found

    return np.concatenate(list(ordered_map(match, range(ranges), threads)))


def _cut(table: Tokens, bounds: NDArray[np.uint64]) -> list[NDArray[np.int64]]:
    """Return the rows of each range of tokens, given where the ranges begin."""
    words, mask = token_words(table)
    places = np.searchsorted(words, bounds[1:])
    words &= mask
    return np.split(words.view(np.int64), places)


def _match(tables: Sequence[Tokens]) -> NDArray[np.int64]:
    """Sort all tokens together.

    A respondent whom all curators hold is a run of as many equal tokens as there are curators, in
    the order of the curators.
    """
    order, same = token_runs(np.concatenate(tables))
    first_rows = np.cumsum([0, *map(len, tables)])
    equal = np.flatnonzero(same)
    left, right = np.take(order, equal), np.take(order, equal + 1)
    _refuse_repeats(left, right, first_rows)
    if len(tables) == 2:  # noqa: PLR2004 - then every two equal neighbours are a respondent
        return np.stack([left, right - first_rows[1]], axis=1)
    common = np.ones(max(order.size - len(tables) + 1, 0), dtype=np.bool_)
    for step in range(len(tables) - 1):
        common &= same[step : step + common.size]
    starts = np.flatnonzero(common)
    rows = [np.take(order, starts + number) - first for number, first in enumerate(first_rows[:-1])]
    return np.stack(rows, axis=1)


def _refuse_repeats(
    left: NDArray[np.int64], right: NDArray[np.int64], first_rows: NDArray[np.int64]
) -> None:
    """Refuse equal tokens of one curator: neighbours that no table's end lies between."""
    apart = np.zeros(left.size, dtype=np.bool_)
    for border in first_rows[1:-1]:
        apart |= (left < border) & (right >= border)
    if not apart.all():
        raise MismatchError(
            "an upload has the same token twice",
            hint="a curator uploads each respondent once; ask it to check its ids",
        )
