"""multi-freq-ldpy: k-ary randomised response (GRR), and the estimate from its reports.

It ships no client for many records at once. Its client is compiled by Numba, so besides calling it
once per record, which is how it is documented, a compiled loop around it is measured too: the
fastest that its code can be made to go.
"""

import numba
import numpy as np
import numpy.typing as npt
from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Aggregator_MI, GRR_Client

from benchmarks.peers.workload import (
    CELLS,
    EPSILON,
    SHARES,
    Check,
    check_estimate,
    check_kept,
    measure,
    print_report,
)

Codes = npt.NDArray[np.int64]
ONE_BY_ONE = 500_000
IN_A_LOOP = 2_000_000
REPORTS = 2_000_000


def compiled_loop(codes: Codes, cells: int, epsilon: float) -> Codes:
    """Call the client for every record, without returning to Python in between."""
    reports = np.empty_like(codes)
    for index in range(len(codes)):
        reports[index] = GRR_Client(codes[index], cells, epsilon)
    return reports


def main() -> None:
    """Measure the client both ways, then the estimate."""
    codes = np.random.default_rng(1).choice(CELLS, IN_A_LOOP, p=SHARES)
    values = codes[:ONE_BY_ONE].tolist()
    loop = numba.njit(compiled_loop)
    # The aggregator walks over its reports in Python, which is faster over a list than an array.
    reports = loop(codes[:REPORTS], CELLS, EPSILON).tolist()

    def kept(output: list[int] | Codes) -> Check:
        same = np.asarray(output) == codes[: len(output)]
        return check_kept(int(same.sum()), len(output))

    def close(estimate: npt.NDArray[np.float64]) -> Check:
        return check_estimate(float(np.abs(estimate - SHARES).max()), REPORTS)

    works = [
        measure(
            "randomise",
            "GRR_Client, one call per record",
            ONE_BY_ONE,
            lambda: [GRR_Client(value, CELLS, EPSILON) for value in values],
            kept,
        ),
        measure(
            "other",
            "GRR_Client, in a compiled loop of ours",
            IN_A_LOOP,
            lambda: loop(codes, CELLS, EPSILON),
            kept,
        ),
        measure(
            "estimate",
            "GRR_Aggregator_MI, a list of reports",
            REPORTS,
            lambda: GRR_Aggregator_MI(reports, CELLS, EPSILON),
            close,
        ),
    ]
    print_report("multi-freq-ldpy", works)


if __name__ == "__main__":
    main()
