"""Overlap counts for tests: tables of ids alone, and terms with any numbers."""

from collections.abc import Sequence

import numpy as np

from tests.support.simulator import Simulator, messages_of
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Geometric
from veiltab.core.overlap import plan_overlap
from veiltab.core.privacy import count_threshold
from veiltab.crypto.derivation import decoy_number_key
from veiltab.crypto.entropy import CipherEntropy
from veiltab.protocol.curator.decoys import Decoys, Patterns
from veiltab.protocol.in_process import Holding, Terms
from veiltab.wire.contract import Contract
from veiltab.wire.mechanism import OverlapTerms

EPSILON = 1.0
ROUND = OverlapTerms(DRAW_RANGE // 4, Geometric(DRAW_RANGE // 2), count_threshold(EPSILON))
"""β = ¼ and q = ½, which keep e^ε = 5/3, and the noise of ε = 1."""


def overlap_terms(mechanism: OverlapTerms = ROUND, epsilon: float = EPSILON) -> Terms:
    """Return the terms of an overlap count."""
    return Terms(epsilon=epsilon, linkage="matched", mechanism=mechanism)


def planned_terms(people: int, epsilon: float, curators: int = 2) -> Terms:
    """Return terms with the numbers that are best for so many people."""
    plan = plan_overlap(people, epsilon, curators)
    return overlap_terms(OverlapTerms.from_plan(plan), epsilon)


def id_table(ids: Sequence[int]) -> Holding:
    """Return a table of ids without any attribute."""
    return Holding((), [], messages_of(list(ids)))


def counters(*tables: Sequence[int], seed: int = 1) -> Simulator:
    """Return curators with these ids, a server and whoever else a simulator has."""
    return Simulator(holdings=[id_table(ids) for ids in tables], seed=seed)


def decoys_in_common(contract: Contract, secret: bytes) -> int:
    """Count the decoys that all curators hold, as each of them can: pattern 0 is all present."""
    terms = contract.overlap
    assert terms is not None
    decoys = Decoys(Patterns.of(contract), terms, secret, contract.study_id)
    return sum(int(np.count_nonzero(numbers == 0)) for numbers, _ in decoys.spans())


def decoy_numbers(contract: Contract, secret: bytes) -> list[int]:
    """Draw how many decoys each pattern has, one trial after the other, as the specification says.

    Patterns that go on take another word, in turn.
    """
    terms = contract.overlap
    assert terms is not None
    law = terms.decoys
    assert isinstance(law, Geometric)
    words = CipherEntropy(decoy_number_key(secret, contract.study_id, 0))
    numbers = [0] * ((1 << len(contract.curators)) - 1)
    going = list(range(len(numbers)))
    while going:
        block = np.empty(8 * len(going), dtype=np.uint8)
        words.fill(block)
        going = [
            pattern
            for pattern, word in zip(going, block.view("<u8").tolist(), strict=True)
            if word < law.threshold
        ]
        for pattern in going:
            numbers[pattern] += 1
    return numbers
