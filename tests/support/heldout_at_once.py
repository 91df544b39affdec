"""What is asked at the held-out settings of all releases at once.

Intervals of shares, ratios and measures of association are computed for arrays of releases.  Tests
compare these intervals with those that users get, release by release.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from tests.support import association_settings as association
from tests.support import coverage
from tests.support.heldout import HeldOut
from tests.support.heldout_measures import Measured, last
from veiltab.core.coin_design import CoinDesign
from veiltab.core.resampling import apportion
from veiltab.core.schema import CountTable
from veiltab.core.uncertainty import Population, ReleaseDesign
from veiltab.inference.strength import contingency_strength, information_strength

GENERALISING = frozenset(("risk difference", "risk ratio", "odds ratio"))
"""What describes a larger population by default, of what is measured for all releases at once."""

AT_ONCE = "shares"
ASSOCIATIONS = ("Cramér's V", "mutual information", "correlation")


def measure_at_once(setting: HeldOut, runs: int, seed: int) -> Iterator[Measured]:
    """Measure shares and what is made of them, for all releases at once.

    Tests compare these intervals with those that users get, release by release.
    """
    table = CountTable(setting.schema, apportion(setting.truth().reshape(-1), setting.people))
    conditions = last(setting, "y"), last(setting, "x")
    for population in get_args(Population):
        counts = setting.releases(runs, seed, population)
        design = _design(setting, counts, population)
        for name, interval, truth in coverage.intervals(table, design, counts, 0.95, conditions):
            if (name in GENERALISING) != (population == "super"):
                continue
            covered, bounded = interval.covers(truth), interval.bounded
            if name == "band":  # it holds only if it holds in every cell
                covered, bounded = np.asarray(covered.all(axis=-1)), bounded[..., 0]
            yield Measured(
                setting=setting.name,
                name=name,
                rate=float(covered.mean()),
                given=float(bounded.mean()),
                doubted=0.0,
                runs=runs,
            )


def _design(setting: HeldOut, counts: NDArray[np.int64], population: Population) -> ReleaseDesign:
    """Return the design of many releases; where n is not known, it is estimated from each."""
    design = setting.design(population)
    if not isinstance(design, CoinDesign) or design.known:
        return design
    people = np.array([[design.people(rows)[0]] for rows in counts.sum(axis=1).tolist()])
    return replace(design, population_size=people)


def measure_association(name: str, setting: HeldOut, runs: int, seed: int) -> Measured:
    """Measure Cramér's V, mutual information or the correlation of x and y."""
    counts = setting.releases(runs, seed, "super")
    sizes = setting.sizes[:2]
    pair = counts.reshape(runs, *setting.sizes).sum(axis=3).reshape(runs, -1)
    design = _design(setting, counts, "super").marginal(math.prod(sizes))
    tables = design.estimate(pair).reshape(runs, *sizes)
    truth = setting.truth().sum(axis=2)
    if name == "correlation":
        scores = np.arange(float(sizes[0])), np.arange(float(sizes[1]))
        found = association.measure_correlation(
            tables, design, scores, association.correlation(truth, None)
        )
    elif name == "mutual information":
        nats = association.information(truth) * math.log(2)
        found = association.measure_strength(tables, design, information_strength, nats)
    else:
        squared = association.contingency(truth)
        found = association.measure_strength(tables, design, contingency_strength, squared)
    return Measured(
        setting=setting.name,
        name=name,
        rate=found.covers / 100 if found.given else None,
        given=found.given / 100,
        doubted=found.widened / 100,
        runs=runs,
    )
