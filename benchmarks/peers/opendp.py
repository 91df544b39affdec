"""OpenDP: k-ary randomised response, and a noisy histogram in its two ways.

The histogram takes 32-bit integers from a NumPy array: the smallest that OpenDP accepts, and faster
than 64-bit ones or strings. Its other way goes through Polars. A scanned file is the faster source
there, for a frame in memory is serialised first.
"""

import math
import tempfile
from pathlib import Path

import numpy as np
import numpy.typing as npt
import opendp.prelude as dp
import polars as pl

from benchmarks.peers.workload import (
    CELLS,
    EPSILON,
    KEPT,
    SHARES,
    Check,
    Work,
    check_histogram,
    check_kept,
    measure,
    print_report,
)

Codes = npt.NDArray[np.int32]
RESPONSES = 5_000
ROWS = 20_000_000


def spends_epsilon(measurement: dp.Measurement) -> None:
    """Refuse to measure anything but the common ε."""
    if not math.isclose(measurement.map(1), EPSILON):
        raise RuntimeError("the measurement does not spend the common epsilon")


def randomise(codes: Codes) -> Work:
    """Measure randomised response, which OpenDP does one value at a time."""
    respond = dp.m.make_randomized_response(list(range(CELLS)), KEPT, T="i32")
    spends_epsilon(respond)
    values = codes[:RESPONSES].tolist()

    def kept(output: list[int]) -> Check:
        same = sum(report == value for report, value in zip(output, values, strict=True))
        return check_kept(same, RESPONSES)

    name = "make_randomized_response, one call per record"
    return measure("randomise", name, RESPONSES, lambda: [respond(v) for v in values], kept)


def histogram_of_array(codes: Codes) -> Work:
    """Measure a count by categories, with discrete Laplace noise, of a NumPy array."""
    domain = dp.vector_domain(dp.atom_domain(T="i32"))
    count = dp.t.then_count_by_categories(list(range(CELLS)), null_category=False, TOA="i64")
    noise = dp.m.then_laplace(scale=1 / EPSILON)
    release = (domain, dp.symmetric_distance()) >> count >> noise
    spends_epsilon(release)
    truth = np.bincount(codes, minlength=CELLS)

    def close(counts: list[int]) -> Check:
        return check_histogram(int(np.abs(np.asarray(counts) - truth).max()))

    name = "make_count_by_categories >> make_laplace, int32 array"
    return measure("histogram", name, len(codes), lambda: release(codes), close)


def histogram_of_scan(codes: Codes, folder: Path) -> Work:
    """Measure a grouped count through Polars, of an uncompressed Arrow file, its keys public."""
    path = folder / "codes.arrow"
    pl.DataFrame({"cell": codes}).write_ipc(path, compression="uncompressed")
    source = pl.scan_ipc(path)
    keys = dp.polars.Margin(by=[pl.col("cell")], invariant="keys", max_length=len(codes))
    column = dp.series_domain("cell", dp.atom_domain(T="i32"))
    # Made once, as for the array: what a context does for each query takes a second by itself.
    release = dp.m.make_private_lazyframe(
        dp.with_margin(dp.lazyframe_domain([column]), keys),
        dp.symmetric_distance(),
        dp.max_divergence(),
        pl.LazyFrame(schema={"cell": pl.Int32}).group_by("cell").agg(dp.len(signed=True)),
        global_scale=1 / EPSILON,
    )
    spends_epsilon(release)
    truth = np.bincount(codes, minlength=CELLS)

    def close(frame: pl.DataFrame) -> Check:
        counts = np.zeros(CELLS, dtype=np.int64)
        counts[frame["cell"].to_numpy()] = frame["len"].to_numpy()
        return check_histogram(int(np.abs(counts - truth).max()))

    name = "make_private_lazyframe, group_by, scanned Arrow file"
    return measure("histogram", name, len(codes), lambda: release(source).collect(), close)


def main() -> None:
    """Measure randomised response, then both histograms."""
    dp.enable_features("contrib")
    codes = np.random.default_rng(1).choice(CELLS, ROWS, p=SHARES).astype(np.int32)
    works = [randomise(codes), histogram_of_array(codes)]
    with tempfile.TemporaryDirectory() as folder:
        works.append(histogram_of_scan(codes, Path(folder)))
    print_report("opendp", works)


if __name__ == "__main__":
    main()
