"""Vectors of the plan and the noise: sections 4.1 and 9 of the specification."""

import math

from vectors.generator.files import Case, Document, bad, case, document
from veiltab.core.plan import plan

PLANS: list[tuple[int, int | None, int, float]] = [
    (45_222, None, 24, 0.5),
    (45_222, None, 24, 0.1),
    (45_222, None, 768, 1),
    (45_222, 45_222, 24, 0.5),
    (45_222, 1, 24, 0.5),
    (1_000, None, 6, 3),
    (100, 40, 12, 0.3),
    (2, 1, 2, 1e-6),
    (1, None, 2, 50),
    (9_007_199_254_740_991, None, 281_474_976_710_656, 2),
    (10**9, 10**6, 65_535, 0.7),
]

TABLES: dict[str, tuple[list[int], int]] = {
    "two cells": ([2], 2**62),
    "twelve cells": ([2, 3, 2], 10**18),
    "24 cells": ([2, 1, 3, 4], 384_307_168_202_282_325),
    "the smallest width": ([3, 5], 1),
    "many cells": ([257, 1000, 7], 2**40 + 1),
    "the most cells": ([2**16 - 1, 2**16 - 1, 2**16 - 1], 65_535),
}
"""The sizes of the attributes, and M."""


def threshold() -> Document:
    """Section 4.1: the sample size and the threshold."""
    cases = []
    for population, size, cells, epsilon in PLANS:
        found = plan(
            anyway=True,
            population_size=population,
            domain_size=cells,
            epsilon=epsilon,
            sample_size=size,
            mechanism="paper",
        )
        expect = {"sample_size": found.sample_size, "keep_threshold": str(found.keep_threshold)}
        name = f"n = {population}, m = {size or 'best'}, N = {cells}, epsilon = {epsilon}"
        cases.append(case(name, expect, **_inputs(population, size, cells, epsilon)))
    cases += [
        bad("too_little_epsilon", "infeasible_plan", **_inputs(100, 100, 2**48, 1e-9)),
        bad("no_epsilon", "invalid_parameter", **_inputs(100, None, 6, 0)),
        bad("sample_size", "invalid_parameter", **_inputs(100, 101, 6, 1)),
        bad("one_cell", "invalid_parameter", **_inputs(100, None, 1, 1)),
    ]
    return document(
        "Section 4.1. The plan for `population` n, `cells` N, epsilon and `size`, the contract's"
        " sampling.size. The threshold is decimal text.",
        cases,
    )


def noise() -> Document:
    """Section 9: how probable a noise cell is, and its parts."""
    cases: list[Case] = []
    for name, (sizes, width) in TABLES.items():
        cells = math.prod(sizes)
        keep = 2**64 - cells * width
        for cell in sorted({0, 1, cells // 3, cells // 2, cells - 2, cells - 1}):
            weight = keep + width if cell == 0 else width
            expect = {"weight": str(weight), "parts": _parts(cell, sizes)}
            inputs = {"keep_threshold": str(keep), "sizes": sizes, "cell": cell}
            cases.append(case(f"{name}, cell {cell}", expect, **inputs))
    uneven = {"keep_threshold": str(2**64 - 12 * 10**18 - 1), "sizes": [2, 3, 2], "cell": 0}
    cases.append(bad("uneven_threshold", "invalid_parameter", **uneven))
    return document(
        "Section 9. The probability of a noise cell, times 2^64 (`weight`), and the cell's part in"
        " each attribute. N is the product of `sizes`. Threshold and weight are decimal text.",
        cases,
    )


def _inputs(population: int, size: int | None, cells: int, epsilon: float) -> Case:
    return {"population": population, "size": size, "cells": cells, "epsilon": epsilon}


def _parts(cell: int, sizes: list[int]) -> list[int]:
    parts: list[int] = []
    for size in reversed(sizes):
        cell, part = divmod(cell, size)
        parts.append(part)
    return parts[::-1]
