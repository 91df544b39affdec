"""Mechanisms with decoys for tests, and the plain reference that all curators must agree with."""

from dataclasses import replace
from typing import Any

import numpy as np

from tests.vectors import spec_decoys
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Geometric, Law, LinkageMode, WeightTable
from veiltab.crypto.linkage import token_order
from veiltab.protocol.curator.table import Tokens
from veiltab.protocol.in_process import Terms
from veiltab.wire.contract import Contract
from veiltab.wire.mechanism import DecoyTerms

THIRD = DRAW_RANGE // 3
HALF = Geometric(DRAW_RANGE // 2)
EPSILON = 0.7
"""A little above ln 2, which a coin of a third and geometric decoys with ratio a half promise."""


def decoy_terms(
    coin: int = THIRD, law: Law = HALF, keep: float | None = None, cells: int = 1
) -> DecoyTerms:
    """Return a mechanism; ``keep`` is about the chance that the server keeps one of N cells."""
    threshold = None
    if keep is not None:
        threshold = DRAW_RANGE - cells * int((1 - keep) * DRAW_RANGE / cells)
    return DecoyTerms(coin, law, EPSILON, threshold)


def terms(linkage: LinkageMode = "aligned", **changes: Any) -> Terms:
    """Return the terms of a small study with decoys and without a channel."""
    plain = Terms(epsilon=EPSILON, linkage=linkage, mechanism=decoy_terms())
    return replace(plain, **changes)


def two_sided(centre: int, ratio: float = 0.5) -> WeightTable:
    """Return a table of weights that falls off geometrically around a centre."""
    shape = [ratio ** abs(z - centre) for z in range(2 * centre + 1)]
    weights = [int(DRAW_RANGE * each / sum(shape)) for each in shape]
    weights[centre] += DRAW_RANGE - sum(weights)
    return WeightTable(tuple(weights))


def reference_decoys(contract: Contract, secret: bytes) -> list[spec_decoys.Decoy]:
    """Invent the decoys of a study as the specification says, one by one."""
    cells = [each.schema.domain_size for each in contract.curators]
    patterns = spec_decoys.pattern_count(cells, matched=contract.matched)
    mechanism = contract.to_json()["mechanism"]
    return spec_decoys.decoys(secret, contract.study_id, mechanism, patterns)


def expected_sample(
    contract: Contract, secret: bytes, place: int, tokens: Tokens, codes: list[Any]
) -> dict[bytes, list[int]]:
    """Return the rows that a curator uploads, by their tokens: in ascending order of these.

    Whoever's token is below the coin takes part, and a decoy if the curator is in its pattern.
    """
    assert contract.decoys is not None
    coin = contract.decoys.coin_threshold
    rows = {
        token.tobytes(): [int(column[row]) for column in codes]
        for row, token in enumerate(tokens)
        if int.from_bytes(token[:8].tobytes(), "big") < coin
    }
    sizes = [each.schema.domain_size for each in contract.curators]
    schema = contract.curators[place].schema
    for pattern, token in reference_decoys(contract, secret):
        cell = spec_decoys.digits(pattern, sizes, matched=contract.matched)[place]
        if cell < sizes[place]:
            rows[token] = [int(code[0]) for code in schema.codes(np.array([cell]))]
    ordered = np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, 16)
    keys = list(rows)
    return {keys[row]: rows[keys[row]] for row in token_order(ordered)}
