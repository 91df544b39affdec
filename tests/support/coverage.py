"""Measures how often intervals hold the truth, and how much less error other estimators have.

The settings are the paper's: 45,222 respondents, 24 cells, four distributions, three ε, each with
the planner's sample.  All cells have the names of the Adult table's, whatever the distribution.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veiltab.core import estimators
from veiltab.core.designs import release_design
from veiltab.core.intervals import Interval, share_band, share_interval, sup_t
from veiltab.core.schema import CountTable
from veiltab.core.uncertainty import ReleaseDesign, VarianceComponents, critical_value
from veiltab.data.counts import adult_table
from veiltab.inference.conditions import Mask, read_condition
from veiltab.inference.quantities import (
    Events,
    conditional_interval,
    estimate_events,
    ratio_interval,
)
from veiltab.paper.experiment import (
    DISTRIBUTIONS,
    Release,
    Setting,
    Wishes,
    distribution_table,
    settings_for,
    simulate_counts,
)

EPSILONS = (0.1, 0.5, 1.0)
CELLS = 24
OUTCOME, GROUP = "salary = '>50K'", "gender = 'male'"
BANDS = 5
"""How many releases of a setting get a critical value of their own; they hardly differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How often the intervals for a quantity hold the truth, and how often there are any."""

    distribution: str
    epsilon: float
    sample_size: int
    quantity: str
    coverage: float | None
    estimable: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The RMSE of each estimator at a setting, and what is left of the unbiased one's."""

    distribution: str
    epsilon: float
    sample_size: int
    unbiased: float
    projected: float
    most_likely: float

    @property
    def projected_ratio(self) -> float:
        """The projected estimate's error as a share of the unbiased one's."""
        return self.projected / self.unbiased

    @property
    def most_likely_ratio(self) -> float:
        """The most likely estimate's error as a share of the unbiased one's."""
        return self.most_likely / self.unbiased


def paper_settings() -> list[Setting]:
    """Return the twelve settings."""
    schema = adult_table(CELLS).schema
    return [
        setting
        for name in DISTRIBUTIONS
        for setting in settings_for(
            name, CountTable(schema, distribution_table(name, CELLS).counts), EPSILONS, [Wishes()]
        )
    ]


def estimator_gains(runs: int, seed: int) -> list[Gain]:
    """Return what each estimator's error is at the twelve settings, on the same releases."""
    gains = []
    for setting in paper_settings():
        counts, design = releases(setting, runs, seed), release_design(setting.plan)
        errors = {
            name: _rmse(estimator(counts, design), setting.table.distribution)
            for name, estimator in (
                ("unbiased", estimators.unbiased),
                ("projected", estimators.projected),
                ("most_likely", estimators.most_likely),
            )
        }
        gains.append(
            Gain(
                distribution=setting.distribution,
                epsilon=setting.plan.epsilon,
                sample_size=setting.plan.ranked.sample_size,
                **errors,
            )
        )
    return gains


def interval_coverage(
    runs: int, seed: int, level: float = 0.95, settings: Iterable[Setting] | None = None
) -> list[Coverage]:
    """Return the coverage of all kinds of intervals at the twelve settings."""
    rows = []
    for setting in paper_settings() if settings is None else settings:
        counts = releases(setting, runs, seed)
        for quantity, interval, truth in intervals(setting, counts, level):
            covered, bounded = interval.covers(truth), interval.bounded
            if quantity == "band":  # a band holds only if it holds in every cell
                covered = np.logical_and.reduce(covered, axis=-1, keepdims=True)
                bounded = bounded[:, :1]
            rows.append(
                Coverage(
                    distribution=setting.distribution,
                    epsilon=setting.plan.epsilon,
                    sample_size=setting.plan.ranked.sample_size,
                    quantity=quantity,
                    coverage=float(covered[bounded].mean()) if bounded.any() else None,
                    estimable=float(bounded.mean()),
                )
            )
    return rows


def releases(setting: Setting, runs: int, seed: int) -> Release:
    """Return simulated releases at a setting."""
    return simulate_counts(setting.table, setting.plan, runs, seed, setting.label)


def _rmse(estimates: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    return float(np.sqrt(((estimates - truth) ** 2).sum(axis=-1).mean()))


Measured = tuple[str, Interval, NDArray[np.float64]]


def intervals(setting: Setting, counts: Release, level: float) -> Iterator[Measured]:
    """Yield each quantity's intervals of all releases at once, and the truth."""
    table, design = setting.table, release_design(setting.plan)
    critical = critical_value(level)
    truth, cells = table.distribution, design.estimate(counts)
    yield "cells", share_interval(cells, 1, design, critical), truth
    names = table.schema.names
    for name in names:
        shape = (counts.shape[0], *table.schema.sizes)
        others = tuple(axis for axis, other in enumerate(names, start=1) if other != name)
        part = design.marginal(table.schema.subset([name]).domain_size)
        shares = part.estimate(counts.reshape(shape).sum(axis=others))
        yield (
            f"marginal {name}",
            share_interval(shares, 1, part, critical),
            table.marginal([name]).distribution,
        )
    yield from _event_intervals(table, design, counts, critical)
    likely = estimators.project(cells)
    generator = np.random.default_rng(0)
    for position in range(min(BANDS, counts.shape[0])):
        plugged = VarianceComponents(likely[position], design)
        wide = sup_t(plugged, level, generator)
        yield "band", share_band(cells, 1, design, wide), truth


def _event_intervals(
    table: CountTable, design: ReleaseDesign, counts: Release, critical: float
) -> Iterator[Measured]:
    """Yield what is made of two conditions: a difference, a conditional share, two ratios."""
    outcome, group = (read_condition(text, table.schema).mask for text in (OUTCOME, GROUP))
    pair = [outcome & group, outcome & ~group]
    events, truth = _both(table, design, counts, pair)
    gradient = np.array([1.0, -1.0])
    value, true = events.shares @ gradient, gradient @ truth
    below, above = events.margins(gradient, critical)
    yield "difference", Interval(value - below, value + above, below >= 0), true
    events, truth = _both(table, design, counts, [outcome & group, group])
    share = conditional_interval(events, critical)
    yield "conditional share", share, truth[0] / truth[1]
    for name, factors in (
        ("risk ratio", [outcome & group, group, outcome & ~group, ~group]),
        ("odds ratio", [outcome & group, ~outcome & group, outcome & ~group, ~outcome & ~group]),
    ):
        events, truth = _both(table, design, counts, factors)
        ratio = truth[0] * truth[3] / (truth[1] * truth[2])
        yield name, ratio_interval(events, critical), ratio


def _both(
    table: CountTable, design: ReleaseDesign, counts: Release, masks: list[Mask]
) -> tuple[Events, NDArray[np.float64]]:
    truth = np.array([table.distribution[mask].sum() for mask in masks])
    return estimate_events(counts, design, masks), truth
