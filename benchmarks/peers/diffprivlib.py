"""diffprivlib: noisy histograms of an array, and its mechanisms one record at a time.

Its histogram is NumPy's with noise on the counts. NumPy has two ways, and both are measured: equal
bins over a range, as documented, and given edges, where it sorts blocks with vector instructions if
the processor has them, and is fastest on 16-bit integers.
"""

import math
from functools import partial
from itertools import combinations

import numpy as np
import numpy.typing as npt
from diffprivlib.mechanisms import Binary, ExponentialCategorical, Geometric
from diffprivlib.tools import histogram

from benchmarks.peers.workload import (
    CELLS,
    EPSILON,
    SHARES,
    Check,
    Work,
    check_histogram,
    check_kept,
    measure,
    print_report,
)

Codes = npt.NDArray[np.int16]
Histogram = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]
RESPONSES = 20_000
ROWS = 100_000_000
ROWS_IN_EQUAL_BINS = 30_000_000


def histograms(codes: Codes) -> list[Work]:
    """Measure the histogram both ways."""
    edges = np.arange(CELLS + 1, dtype=np.int16)
    # Single precision is the input that is fastest with equal bins.
    numbers = codes[:ROWS_IN_EQUAL_BINS].astype(np.float32)

    def close(output: Histogram, rows: Codes) -> Check:
        truth = np.bincount(rows, minlength=CELLS)
        return check_histogram(int(np.abs(output[0] - truth).max()))

    return [
        measure(
            "histogram",
            "histogram, 24 equal bins, float32 array",
            ROWS_IN_EQUAL_BINS,
            lambda: histogram(numbers, epsilon=EPSILON, bins=CELLS, range=(0, CELLS)),
            partial(close, rows=codes[:ROWS_IN_EQUAL_BINS]),
        ),
        measure(
            "histogram",
            "histogram, given edges, int16 array",
            ROWS,
            lambda: histogram(codes, epsilon=EPSILON, bins=edges, range=(0, CELLS)),
            partial(close, rows=codes),
        ),
    ]


def randomise(codes: Codes) -> Work:
    """Measure k-ary randomised response: an exponential mechanism in which all others are alike."""
    labels = [str(cell) for cell in range(CELLS)]
    alike = [[first, second, 1] for first, second in combinations(labels, 2)]
    mechanism = ExponentialCategorical(epsilon=EPSILON, utility_list=alike)
    values = [labels[code] for code in codes[:RESPONSES].tolist()]

    def kept(output: list[str]) -> Check:
        same = sum(report == value for report, value in zip(output, values, strict=True))
        return check_kept(same, RESPONSES)

    name = "ExponentialCategorical, one call per record"
    return measure(
        "randomise", name, RESPONSES, lambda: [mechanism.randomise(v) for v in values], kept
    )


def other_mechanisms(codes: Codes) -> list[Work]:
    """Measure randomised response of one bit, and geometric noise on one number."""
    binary = Binary(epsilon=EPSILON, value0="0", value1="1")
    geometric = Geometric(epsilon=EPSILON)
    bits = [str(code % 2) for code in codes[:RESPONSES].tolist()]
    numbers = codes[:RESPONSES].tolist()

    def kept_bits(output: list[str]) -> Check:
        same = sum(report == bit for report, bit in zip(output, bits, strict=True))
        return check_kept(same, RESPONSES, math.exp(EPSILON) / (math.exp(EPSILON) + 1))

    def unchanged(output: list[int]) -> Check:
        same = sum(noisy == number for noisy, number in zip(output, numbers, strict=True))
        # Discrete Laplace noise is 0 with this chance.
        zero = (1 - math.exp(-EPSILON)) / (1 + math.exp(-EPSILON))
        return check_kept(same, RESPONSES, zero, "share of numbers unchanged")

    return [
        measure(
            "other",
            "Binary (k = 2), one call per record",
            RESPONSES,
            lambda: [binary.randomise(bit) for bit in bits],
            kept_bits,
        ),
        measure(
            "other",
            "Geometric noise, one call per number",
            RESPONSES,
            lambda: [geometric.randomise(number) for number in numbers],
            unchanged,
        ),
    ]


def main() -> None:
    """Measure the histograms and the mechanisms."""
    # Drawn once and repeated, for 100 million draws would take longer than the measurement.
    codes = np.random.default_rng(1).choice(CELLS, ROWS // 10, p=SHARES).astype(np.int16)
    codes = np.tile(codes, 10)
    print_report("diffprivlib", [*histograms(codes), randomise(codes), *other_mechanisms(codes)])


if __name__ == "__main__":
    main()
