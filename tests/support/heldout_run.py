"""Measures the held-out settings: ``python -m tests.support.heldout_run FILE [NAME ...]``.

Each line of the file is one entry, so that a run can be stopped, and goes on where it was.

The rule, written down before anything was measured by it.  Every question is asked of 2,000
releases of every setting that suits it.  A perfect test at 5% leaves 4% to 6% in one of 25 such
runs by chance alone.  So a test that rejects in less than 4.4% or more than 5.6%, and an interval
that holds in less than 93.5% or more than 96.5%, is asked of 10,000 other releases, and what these
say counts.  Nothing is asked a third time.  Both entries are kept.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.heldout import HELD_OUT, HeldOut
from tests.support.heldout_at_once import (
    ASSOCIATIONS,
    AT_ONCE,
    EACH_AT_ONCE,
    measure_at_once,
)
from tests.support.heldout_measures import (
    INTERVALS,
    PAIRS,
    TESTS,
    Interval,
    Measured,
    PairMeasure,
    Test,
    measure,
    measure_pair,
)
from tests.support.heldout_models import BY_MODELS, MODELS, PREDICTIONS

RUNS, SEED = 2_000, 11
AGAIN = 10_000
CLEAR = {True: (0.044, 0.056), False: (0.935, 0.965)}
"""What is not asked again: how often a test rejects, and how often an interval holds."""

REJECTING = {*(what.name for what in TESTS), "change of the table"}
"""The names of what rejects."""


OUTSIDE = {
    ("mean by group", "confounded, 1,000 records"),
    ("multinomial", "association in rare cells"),
    ("log-linear", "association in rare cells"),
    ("ratio of shares", "association in rare cells"),
    ("raked conditional", "confounded, 1,000 records"),
}
"""Which answers do not hold in 93% to 97% at which settings; the page on them says why."""


Made = Callable[[], Iterable[Measured]]


def jobs(setting: HeldOut, runs: int, seed: int) -> Iterator[tuple[str, Made]]:
    """Yield the name of each measurement at a setting, and how it is made."""
    yield AT_ONCE, lambda: measure_at_once(setting, runs, seed)
    asked: list[Test | Interval | PairMeasure] = [*TESTS, *INTERVALS, *PREDICTIONS, *PAIRS]
    one_by_one = {what.name: what for what in asked}
    suiting = [name for name, what in one_by_one.items() if what.suits(setting)]
    suiting += [name for name, (_, suits) in MODELS.items() if suits(setting)]
    for name in (*ASSOCIATIONS, *suiting):
        if name in TOGETHER:
            made: Made = partial(_one, TOGETHER[name], name, setting, runs, seed)
        elif isinstance(what := one_by_one[name], PairMeasure):
            made = partial(_one, measure_pair, what, setting, runs, seed)
        else:
            made = partial(_one, measure, what, setting, runs, seed)
        yield name, made


TOGETHER = EACH_AT_ONCE | BY_MODELS


def _one(measure: Callable[..., Measured], *asked: Any) -> Iterable[Measured]:
    return [measure(*asked)]


def run(path: Path, names: set[str]) -> None:
    """Measure what is not in the file yet, and what its first answer leaves in doubt again."""
    rows = _rows(path)
    done = {(row["job"], row["setting"]) for row in rows}
    for setting in HELD_OUT:
        for name, made in jobs(setting, RUNS, SEED):
            if (not names or name in names) and (name, setting.name) not in done:
                _write(path, name, made())
    rows = _rows(path)
    settled = {(row["name"], row["setting"]) for row in rows if row["runs"] == AGAIN}
    doubtful = {(row["name"], row["setting"]) for row in rows if in_doubt(row)} - settled
    where = {
        (row["job"], row["setting"]) for row in rows if (row["name"], row["setting"]) in doubtful
    }
    for setting in HELD_OUT:
        for name, made in jobs(setting, AGAIN, SEED + 1):
            if (not names or name in names) and (name, setting.name) in where:
                _write(path, name, (row for row in made() if (row.name, row.setting) in doubtful))


def _rows(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return list(map(json.loads, lines))


def settled(setting: HeldOut) -> Iterator[Measured]:
    """Yield all entries of a setting by the rule."""
    again = dict(jobs(setting, AGAIN, SEED + 1))
    for name, made in jobs(setting, RUNS, SEED):
        rows = {row.name: row for row in made()}
        doubtful = {key for key, row in rows.items() if in_doubt(asdict(row))}
        if doubtful:
            rows |= {row.name: row for row in again[name]() if row.name in doubtful}
        yield from rows.values()


def as_wanted(row: Measured) -> bool:
    """Tell whether intervals hold in 93% to 97%, or a test rejects in 4% to 6%.

    Where answers are missing, or say that they are rough, intervals may hold more often, and tests
    may reject less often.
    """
    if row.rate is None:
        return True
    rejecting = row.name in REJECTING
    low, high = (0.04, 0.06) if rejecting else (0.93, 0.97)
    if row.given < 0.95 or row.doubted > 0.5:
        low, high = (0.0, high) if rejecting else (low, 1.0)
    return low <= row.rate <= high


def in_doubt(row: dict[str, Any]) -> bool:
    """Tell whether chance alone may have made an entry what it is.

    Where answers are missing, or say that they are rough, intervals may hold more often, and tests
    may reject less often.
    """
    if row["rate"] is None:
        return False
    rejecting = row["name"] in REJECTING
    low, high = CLEAR[rejecting]
    if row["given"] < 0.95 or row["doubted"] > 0.5:
        low, high = (0.0, high) if rejecting else (low, 1.0)
    return not low <= row["rate"] <= high


def _write(path: Path, job: str, measured: Iterable[Measured]) -> None:
    """Add entries to the file, so that a run can be stopped after each."""
    with path.open("a", encoding="utf-8") as file:
        for row in measured:
            file.write(json.dumps({"job": job, **asdict(row)}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    run(Path(sys.argv[1]), set(sys.argv[2:]))
