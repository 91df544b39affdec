"""What is asked at the held-out settings of all releases at once.

Intervals of shares, ratios and measures of association are computed for arrays of releases.  Tests
compare these intervals with those that users get, release by release.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tests.support import association_settings as association
from tests.support import coverage
from tests.support.heldout import HeldOut, Shares, Truth
from tests.support.heldout_measures import (
    INTERVALS,
    LEVEL,
    PAIRS,
    QUANTILES,
    TESTS,
    Measured,
    fewer_draws,
    last,
    rejects,
    true_shares,
    weights_of,
)
from veiltab.core.coin_design import CoinDesign
from veiltab.core.intervals import Interval
from veiltab.core.ratios import share_of_both
from veiltab.core.resampling import apportion
from veiltab.core.schema import CountTable
from veiltab.core.uncertainty import Population, ReleaseDesign, critical_value
from veiltab.inference.atoms import Atoms, count_atoms, divide
from veiltab.inference.bounded import BoundedRatio
from veiltab.inference.comparison import Ends, changed, divided
from veiltab.inference.conditions import read_condition
from veiltab.inference.events import estimate_events, part_and_rest
from veiltab.inference.mantel_haenszel import standardised_trend
from veiltab.inference.means import MeansApart
from veiltab.inference.quantiles import Cumulative
from veiltab.inference.quantities import CLEARLY, clearness
from veiltab.inference.strata import CLEARLY as CLEAR_STRATUM
from veiltab.inference.strata import Strata, scored
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


def measure_change(name: str, setting: HeldOut, runs: int, seed: int) -> Measured:
    """Measure the change of a conditional share or mean between two releases, or a ratio."""
    ends, doubts = [], []
    for place, kind in enumerate(("associated", "independent")):
        counts = setting.releases(runs, seed + place, "super", cast("Truth", kind))
        value, interval, clear = _share_or_mean(name, setting, counts)
        ends.append((np.clip(value, 0, 1), interval.low, interval.high, interval.bounded))
        doubts.append(~clear | (value != np.clip(value, 0, 1)))
    made = divided if name == "ratio of shares" else changed
    first, second = (cast("Ends", three[:3]) for three in ends)
    _, low, high = made(first, second)
    bounded = ends[0][3] & ends[1][3] & ((low > 0) | np.isfinite(high))
    [what] = [pair for pair in PAIRS if pair.name == name]
    unit = setting.sizes[0] - 1 if name == "change of a mean" else 1
    truth, doubted = what.truth(setting) / unit, doubts[0] | doubts[1]
    if name == "ratio of shares":
        doubted |= ~(first[0] > CLEARLY * (first[0] - first[1]))
    measured = _measured(setting, name, ((low <= truth) & (truth <= high))[bounded], bounded)
    return replace(measured, doubted=float(doubted[bounded].mean()) if bounded.any() else 0.0)


def _share_or_mean(
    name: str, setting: HeldOut, counts: NDArray[np.int64]
) -> tuple[Shares, Interval, NDArray[np.bool_]]:
    """Return a share or a mean between 0 and 1 in a group: values, intervals, if it is clear.

    A mean of two scores is the share of the second.
    """
    critical = critical_value(0.95)
    condition, outcome = (
        read_condition(last(setting, each), setting.schema).mask for each in ("x", "y")
    )
    if name == "change of a mean":
        condition, outcome = outcome, condition
        units = np.indices(setting.sizes)[0].reshape(-1) / (setting.sizes[0] - 1)
        if setting.sizes[0] > 2:
            rows = np.stack([units * condition, condition]).astype(np.float64)
            atoms, (part, whole) = _atoms(setting, counts, rows, "super")
            ratio = BoundedRatio(atoms, part, whole)
            return ratio.value, ratio.interval(critical), ratio.clear(critical, CLEARLY)
    events = estimate_events(
        counts, _design(setting, counts, "super"), [outcome & condition, condition]
    )
    share = share_of_both(events.ratio(part_and_rest, critical))
    part, whole = np.moveaxis(events.shares, -1, 0)
    value = np.divide(part, whole, where=whole > 0, out=np.zeros(len(counts)))
    return value, share, clearness(events, 1, critical)[1]


def measure_means_apart(name: str, setting: HeldOut, runs: int, seed: int) -> Measured:
    """Measure the difference of the mean of x between the last category of y and the others."""
    counts = setting.releases(runs, seed, "super")
    group = read_condition(last(setting, "y"), setting.schema).mask
    units = np.indices(setting.sizes)[0].reshape(-1) / (setting.sizes[0] - 1)
    rows = np.stack([units * group, group, units * ~group, ~group]).astype(np.float64)
    atoms, (part, whole, other, rest) = _atoms(setting, counts, rows, "super")
    apart = MeansApart(BoundedRatio(atoms, part, whole), BoundedRatio(atoms, other, rest))
    interval = apart.interval(critical_value(0.95))
    [what] = [each for each in INTERVALS if each.name == name]
    truth = np.array(what.truth(setting.truth(), setting)) / (setting.sizes[0] - 1)
    measured = _measured(setting, name, interval.covers(truth)[interval.bounded], interval.bounded)
    clear = [ratio.clear(critical_value(0.95), CLEARLY) for ratio in (apart.first, apart.second)]
    doubted = ~np.logical_and(*clear)[interval.bounded]
    return replace(measured, doubted=float(doubted.mean()) if doubted.size else 0.0)


def measure_means_by_group(name: str, setting: HeldOut, runs: int, seed: int) -> Measured:
    """Measure the mean of x within each group."""
    counts = setting.releases(runs, seed, "finite")
    [what] = [each for each in INTERVALS if each.name == name]
    truths = np.array(what.truth(true_shares(setting, "finite"), setting)) / (setting.sizes[0] - 1)
    codes = np.indices(setting.sizes).reshape(3, -1)
    hits, given, clear = [], [], []
    for group, truth in enumerate(truths):
        mask = (codes[2] == group).astype(np.float64)
        rows = np.stack([codes[0] / (setting.sizes[0] - 1) * mask, mask])
        atoms, (part, whole) = _atoms(setting, counts, rows, "finite")
        ratio = BoundedRatio(atoms, part, whole)
        interval = ratio.interval(critical_value(0.95))
        hits.append(interval.covers(np.full(runs, truth))[interval.bounded])
        clear.append(ratio.clear(critical_value(0.95), CLEARLY)[interval.bounded])
        given.append(interval.bounded)
    measured = _measured(setting, name, np.concatenate(hits), np.concatenate(given))
    doubted = float(1 - np.concatenate(clear).mean()) if any(map(len, clear)) else 0.0
    return replace(measured, doubted=doubted, runs=runs)


def measure_weighted_mean(name: str, setting: HeldOut, runs: int, seed: int) -> Measured:
    """Measure the mean of y with survey weights by x; each answer says that these are in bins."""
    counts = setting.releases(runs, seed, "super")
    [what] = [each for each in INTERVALS if each.name == name]
    codes, largest = np.indices(setting.sizes).reshape(3, -1), setting.sizes[1] - 1
    weights = weights_of(setting)[codes[0]] / weights_of(setting).max()
    atoms, (part, whole) = _atoms(
        setting, counts, np.stack([codes[1] / largest * weights, weights]), "super"
    )
    interval = BoundedRatio(atoms, part, whole).interval(critical_value(0.95))
    truth = np.array(what.truth(setting.truth(), setting)) / largest
    measured = _measured(setting, name, interval.covers(truth)[interval.bounded], interval.bounded)
    return replace(measured, doubted=1.0)


def measure_trend(name: str, setting: HeldOut, runs: int, seed: int) -> Measured:
    """Measure the trend test within groups.

    Where it takes the larger p-value, releases that the normal one does not reject need no draws.
    """
    counts = setting.releases(runs, seed, "super", "independent within")
    [what] = [each for each in TESTS if each.name == name]
    rows, columns, groups = setting.sizes
    by_group = counts.reshape(runs, -1, groups).sum(axis=1)
    design = _design(setting, counts, "super")
    shares = design.marginal(groups).estimate(by_group)
    errors = np.sqrt(np.maximum(design.total.of_sets(np.clip(shares, 0, 1), 1 / groups), 0))
    unclear = (shares < CLEAR_STRATUM * errors).any(axis=1)
    decided = np.zeros(runs, dtype=np.bool_)
    if unclear.any():
        single = coverage.one_of(design, 0)
        strata = Strata(single, setting.sizes, np.arange(counts.shape[1]))
        numbers = scored(*(np.linspace(-1, 1, size) for size in (rows, columns)))
        deviates = standardised_trend(strata, numbers, counts)
        decided = unclear & (2 * ndtr(-np.abs(deviates)) > LEVEL)
    rejected = np.zeros(runs, dtype=np.bool_)
    with fewer_draws():
        for place in np.flatnonzero(~decided).tolist():
            rejected[place] = rejects(what, setting, counts[place])[0]
    measured = _measured(setting, name, rejected, np.ones(runs))
    return replace(measured, doubted=float(unclear.mean()))


def measure_quantile(name: str, setting: HeldOut, runs: int, seed: int) -> Measured:
    """Measure on which side of the interval of a quantile of x the true one lies."""
    counts = setting.releases(runs, seed, "finite")
    categories = np.indices(setting.sizes)[0].reshape(1, -1).astype(np.float64)
    atoms, _ = _atoms(setting, counts, categories, "finite")
    function = Cumulative(atoms, np.ones(setting.sizes[0]), setting.sizes[0])
    [what] = [each for each in INTERVALS if each.name == name]
    [truth] = what.truth(true_shares(setting, "finite"), setting)
    parts = np.clip(truth - np.arange(setting.sizes[0]), 0, 1)
    parts = np.broadcast_to(parts, (runs, parts.size))
    side = function.side(parts, QUANTILES[name], critical_value(0.95))
    return _measured(setting, name, side == 0, np.ones(runs))


def _atoms(
    setting: HeldOut, counts: NDArray[np.int64], gradients: Shares, population: Population
) -> tuple[Atoms, Shares]:
    """Return the atoms of linear statistics in many releases, and the statistics' weights."""
    atoms, columns = divide(gradients)
    summed, sizes = count_atoms(counts, atoms, columns.shape[1])
    return Atoms.of(summed, sizes, _design(setting, counts, population)), columns


def _measured(
    setting: HeldOut, name: str, hits: NDArray[np.bool_], given: NDArray[Any]
) -> Measured:
    return Measured(
        setting=setting.name,
        name=name,
        rate=float(hits.mean()) if hits.size else None,
        given=float(given.mean()),
        doubted=0.0,
        runs=given.size,
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


EACH_AT_ONCE = {
    **dict.fromkeys(ASSOCIATIONS, measure_association),
    "difference of means": measure_means_apart,
    "median": measure_quantile,
    "quantile": measure_quantile,
    "mean by group": measure_means_by_group,
    "weighted mean": measure_weighted_mean,
    "trend within groups": measure_trend,
    "change of a share": measure_change,
    "change of a mean": measure_change,
    "ratio of shares": measure_change,
}
"""What is asked of many releases at once, one name at a time."""
