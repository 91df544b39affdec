"""Matching respondents by their tokens (spec 9)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from veiltab.errors import MismatchError


def match_tokens(tables: Sequence[NDArray[np.uint8]]) -> NDArray[np.int64]:
    """Return the row of each common respondent in each table: one row per respondent.

    All tokens are sorted together; a respondent whom all curators hold is a run of as many equal
    tokens as there are curators.
    """
    sizes = [len(table) for table in tables]
    owners = np.repeat(np.arange(len(tables), dtype=np.uint16), sizes)
    # The copy in the machine's byte order is the only one that stays: memory limits the tables.
    words = np.concatenate(tables).view(">u8").astype(np.uint64)
    order = np.lexsort((owners, words[:, 1], words[:, 0]))
    words, owners = words[order], owners[order]
    new_token = np.append(True, (words[1:] != words[:-1]).any(axis=1))
    if (~new_token[1:] & (owners[1:] == owners[:-1])).any():
        raise MismatchError(
            "an upload has the same token twice",
            hint="a curator uploads each respondent once; ask it to check its ids",
        )
    starts = np.flatnonzero(new_token)
    lengths = np.diff(np.append(starts, len(owners)))
    common = starts[lengths == len(tables)]
    matched = order[common[:, np.newaxis] + np.arange(len(tables))]
    first_rows = np.cumsum([0, *sizes[:-1]])
    rows: NDArray[np.int64] = matched - first_rows  # each run is in the order of the tables
    return rows
