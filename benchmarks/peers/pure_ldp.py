"""pure-ldp: k-ary randomised response (direct encoding), and the estimate from its reports.

Client and server take one record per call; ``aggregate_all`` is its own loop over a list.
"""

import numpy as np
import numpy.typing as npt
from pure_ldp.frequency_oracles.direct_encoding import DEClient, DEServer

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

RECORDS = 1_000_000


def main() -> None:
    """Measure the client, then the server."""
    # Its values are 1 to d as shipped, and its reports 0 to d - 1.
    values = (np.random.default_rng(1).choice(CELLS, RECORDS, p=SHARES) + 1).tolist()
    client = DEClient(epsilon=EPSILON, d=CELLS)
    reports = [client.privatise(value) for value in values]

    def estimate() -> npt.NDArray[np.float64]:
        server = DEServer(epsilon=EPSILON, d=CELLS)
        server.aggregate_all(reports)
        counts: npt.NDArray[np.float64] = server.estimate_all(range(1, CELLS + 1))
        return counts / RECORDS

    def kept(output: list[int]) -> Check:
        same = sum(report + 1 == value for report, value in zip(output, values, strict=True))
        return check_kept(same, RECORDS)

    def close(shares: npt.NDArray[np.float64]) -> Check:
        return check_estimate(float(np.abs(shares - SHARES).max()), RECORDS)

    works = [
        measure(
            "randomise",
            "DEClient.privatise, one call per record",
            RECORDS,
            lambda: [client.privatise(value) for value in values],
            kept,
        ),
        measure(
            "estimate",
            "DEServer.aggregate_all and estimate_all",
            RECORDS,
            estimate,
            close,
        ),
    ]
    print_report("pure-ldp", works)


if __name__ == "__main__":
    main()
