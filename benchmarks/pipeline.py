"""The whole private pipeline, against pooling the tables: read, join, group, count, with polars.

Private means: two curators read their files, make tokens, sort, sample, encrypt and sign; the
server checks, joins, perturbs and signs; the researcher checks, decrypts, counts and estimates.
All of it in one process, without a network or a disk between the parties.
"""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.timing import Ratio, compared, median_of
from veiltab.core.plan import plan
from veiltab.core.released import ReleasedCounts
from veiltab.core.schema import Attribute
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.linkage import IdMessages
from veiltab.data.feeding import feed
from veiltab.data.tables import open_table
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.in_process import Holding, Rehearsal, Terms
from veiltab.protocol.researcher import count_records
from veiltab.protocol.sorting import PARTITIONS
from veiltab.wire.contract import Linkage

FOLDER = Path("build/bench")
EPSILON = 1.0
CATEGORIES = {
    "sex": ("female", "male"),
    "education": ("low", "middle", "high"),
    "smoker": ("no", "yes"),
    "income": ("below 20", "20 to 60", "above 60"),
}
SIDES = (("sex", "education"), ("smoker", "income"))
CELLS = 36
IDS = {
    "ids of 16 bytes": pl.col("number").cast(pl.String).str.zfill(20).str.slice(4),
    "ids of text": pl.format("patient-{}@ward.example", pl.col("number")),
}


def pipeline_ratios(sizes: Sequence[int] = (1_000_000, 10_000_000)) -> list[Ratio]:
    """Compare both for every size, kind of id, and sample."""
    return [
        _compare(rows, kind, whole=whole)
        for rows in sizes
        for kind in IDS
        for whole in (True, False)
    ]


class FileHolding(Holding):
    """What a curator holds in a file."""

    def __init__(self, names: Sequence[str], path: Path) -> None:
        """Name the attributes and the file."""
        attributes = tuple(Attribute(name, CATEGORIES[name]) for name in names)
        nothing = IdMessages(np.empty(0, dtype=np.uint8), np.zeros(1, dtype=np.int64))
        super().__init__(attributes, (), nothing)
        object.__setattr__(self, "path", path)

    path: Path

    @property
    def partitions(self) -> int:
        """As many as in production."""
        return PARTITIONS

    def fill(self, intake: Intake) -> None:
        """Read the file."""
        feed(intake, open_table(str(self.path)), Linkage.by_ids(), ["id"]).check()


def private(paths: Sequence[Path], sample_size: int) -> ReleasedCounts:
    """Estimate the joint table without anybody's seeing a record."""
    holdings = [FileHolding(names, path) for names, path in zip(SIDES, paths, strict=True)]
    rehearsal = Rehearsal(holdings, CipherEntropy.from_system())
    outcome = rehearsal.run(Terms(epsilon=EPSILON, sample_size=sample_size))
    return count_records(rehearsal.access(outcome), outcome.released)


def plain(paths: Sequence[Path]) -> pl.DataFrame:
    """Count the joint table as parties would who may pool their records."""
    left, right = (pl.scan_parquet(path) for path in paths)
    joint = left.join(right, on="id").group_by(*CATEGORIES).len()
    return joint.collect(engine="streaming")  # the faster of polars' two engines here


def _compare(rows: int, kind: str, *, whole: bool) -> Ratio:
    paths = write_tables(rows, kind)
    best = plan(population_size=rows, domain_size=CELLS, epsilon=EPSILON, mechanism="paper")
    size = rows if whole else best.ranked.sample_size
    works: dict[str, Callable[[], object]] = {
        "private": partial(private, paths, size),
        "plain": partial(plain, paths),
    }
    seconds = median_of(works)
    goal = {True: 1 / 1.5, False: 1.0}[whole] if rows >= 10**7 and "16" in kind else None
    name = f"whole pipeline, n = {rows:,}, m = {'n' if whole else f'm° = {size:,}'}, {kind}"
    pooled = "pooled, polars", seconds["plain"]
    return compared(name, seconds["private"], pooled, least=goal, records=rows)


def write_tables(rows: int, kind: str) -> list[Path]:
    """Write the two tables, the second in another order; once."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    stem = kind.replace(" ", "-")
    paths = [FOLDER / f"{stem}-{rows}-{side}.parquet" for side in ("left", "right")]
    if all(path.exists() for path in paths):
        return paths
    generator = np.random.default_rng(rows)
    numbers = generator.permutation(2 * rows)[:rows] + 10**12
    ids = pl.DataFrame({"number": numbers}).select(id=IDS[kind])["id"]
    for path, names in zip(paths, SIDES, strict=True):
        columns = {
            name: pl.Series(CATEGORIES[name]).gather(generator.integers(0, len(texts), rows))
            for name in names
            for texts in (CATEGORIES[name],)
        }
        table = pl.DataFrame({"id": ids, **columns})
        half = path.with_suffix(".part")
        table.write_parquet(half)
        half.replace(path)
        ids = ids.gather(generator.permutation(rows))
    return paths
