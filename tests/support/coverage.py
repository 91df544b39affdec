"""Measures how often intervals hold the truth, and how much less error other estimators have.

The settings of the paper's way are the paper's: 45,222 respondents, 24 cells, four distributions,
three ε, each with the planner's sample.  Those with decoys were chosen for what could go wrong.
All cells have the names of the Adult table's, whatever the distribution.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core import estimators
from veiltab.core.coin_design import CoinDesign
from veiltab.core.designs import release_design
from veiltab.core.intervals import (
    Interval,
    people_interval,
    share_band,
    share_interval,
    sup_t,
)
from veiltab.core.plan import Plan, plan
from veiltab.core.publication import PublicationNoise
from veiltab.core.ratios import share_of_both
from veiltab.core.resampling import apportion
from veiltab.core.schema import CountTable
from veiltab.core.uncertainty import Population, ReleaseDesign, VarianceComponents, critical_value
from veiltab.data.counts import adult_table
from veiltab.inference.conditions import Mask, read_condition
from veiltab.inference.events import (
    Events,
    doubled,
    estimate_events,
    part_and_rest,
    products,
    risks_apart,
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
BY_RANK, WITH_DECOYS = Wishes(), Wishes(mechanism="decoys")
OUTCOME, GROUP = "salary = '>50K'", "gender = 'male'"
MOST_INTERVALS = 120_000
"""How many intervals of cells are computed: not all releases of large tables."""

MOST_OF_MANY = 14_400
"""The same where each release is about another number of people, which takes longer."""

BANDS = 5
FEW_BANDS = 2
"""How many releases of a setting get a critical value of their own; they hardly differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Coverage:
    """How often the intervals for a quantity hold the truth, of all releases.

    ``estimable`` is how often something is excluded at all, and ``one_sided`` how often only one
    end of the interval says something.
    """

    distribution: str
    epsilon: float
    quantity: str
    coverage: float
    estimable: float
    one_sided: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Gain:
    """The RMSE of each estimator at a setting, and what is left of the unbiased one's."""

    distribution: str
    epsilon: float
    sample_size: int | None
    unbiased: float
    clipped: float
    projected: float
    most_likely: float

    @property
    def clipped_ratio(self) -> float:
        """The clipped estimate's error as a share of the unbiased one's."""
        return self.clipped / self.unbiased

    @property
    def projected_ratio(self) -> float:
        """The projected estimate's error as a share of the unbiased one's."""
        return self.projected / self.unbiased

    @property
    def most_likely_ratio(self) -> float:
        """The most likely estimate's error as a share of the unbiased one's."""
        return self.most_likely / self.unbiased


def paper_settings(wishes: Wishes = BY_RANK) -> list[Setting]:
    """Return the twelve settings, by rank or with another mechanism."""
    schema = adult_table(CELLS).schema
    return [
        setting
        for name in DISTRIBUTIONS
        for setting in settings_for(
            name, CountTable(schema, distribution_table(name, CELLS).counts), EPSILONS, [wishes]
        )
    ]


def estimator_gains(runs: int, seed: int, settings: Iterable[Setting] | None = None) -> list[Gain]:
    """Return what each estimator's error is at the twelve settings, on the same releases."""
    gains = []
    for setting in paper_settings() if settings is None else settings:
        counts, design = releases(setting, runs, seed), release_design(setting.plan)
        errors = {
            name: _rmse(estimator(counts, design), setting.table.distribution)
            for name, estimator in (
                ("unbiased", estimators.unbiased),
                ("clipped", lambda c, d: np.clip(estimators.unbiased(c, d), 0, 1)),
                ("projected", estimators.projected),
                ("most_likely", estimators.most_likely),
            )
        }
        gains.append(
            Gain(
                distribution=setting.distribution,
                epsilon=setting.plan.epsilon,
                sample_size=setting.plan.sample_size,
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
        counts, design = releases(setting, runs, seed), release_design(setting.plan)
        rows += [
            Coverage(
                distribution=setting.distribution,
                epsilon=setting.plan.epsilon,
                quantity=quantity,
                coverage=covered,
                estimable=estimable,
                one_sided=one_sided,
            )
            for quantity, covered, estimable, one_sided in summaries(
                setting.table, design, counts, level
            )
        ]
    return rows


def summaries(
    table: CountTable, design: ReleaseDesign, counts: Release, level: float
) -> Iterator[tuple[str, float, float, float]]:
    """Yield each quantity's coverage, and how often its intervals have an end, and only one."""
    for quantity, interval, truth in intervals(table, design, counts, level):
        covered, bounded = interval.covers(truth), interval.bounded
        if quantity == "band":  # a band holds only if it holds in every cell
            covered = np.logical_and.reduce(covered, axis=-1, keepdims=True)
        one_sided = bounded & np.isinf(interval.high)
        yield quantity, float(covered.mean()), float(bounded.mean()), float(one_sided.mean())


def releases(setting: Setting, runs: int, seed: int) -> Release:
    """Return simulated releases at a setting."""
    return simulate_counts(setting.table, setting.plan, runs, seed, setting.label)


def _rmse(estimates: NDArray[np.float64], truth: NDArray[np.float64]) -> float:
    return float(np.sqrt(((estimates - truth) ** 2).sum(axis=-1).mean()))


Measured = tuple[str, Interval, NDArray[np.float64]]


def intervals(
    table: CountTable,
    design: ReleaseDesign,
    counts: Release,
    level: float,
    conditions: tuple[str, str] = (OUTCOME, GROUP),
) -> Iterator[Measured]:
    """Yield each quantity's intervals of all releases at once, and the truth."""
    critical = critical_value(level)
    truth, cells = table.distribution, design.estimate(counts)
    most = MOST_OF_MANY if design.many else MOST_INTERVALS
    few = max(1, min(counts.shape[0], most // truth.size))
    yield "cells", share_interval(cells[:few], 1, first_of(design, few), critical), truth
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
    yield from event_intervals(table, design, counts, critical, conditions)
    likely = estimators.project(cells)
    generator = np.random.default_rng(0)
    bands = BANDS if design.normal else FEW_BANDS
    for position in range(min(bands, counts.shape[0])):
        plugged = VarianceComponents(likely[position], one_of(design, position))
        yield "band", share_band(cells, 1, design, sup_t(plugged, level, generator)), truth


def event_intervals(
    table: CountTable,
    design: ReleaseDesign,
    counts: Release,
    critical: float,
    conditions: tuple[str, str] = (OUTCOME, GROUP),
) -> Iterator[Measured]:
    """Yield what is made of two conditions: differences, a conditional share, two ratios."""
    outcome, group = (read_condition(text, table.schema).mask for text in conditions)
    pair = [outcome & group, outcome & ~group]
    events, truth = _both(table, design, counts, pair)
    gradient = np.array([1.0, -1.0])
    yield "difference", events.difference(gradient, critical), gradient @ truth
    events, truth = _both(table, design, counts, [outcome & group, group])
    share = share_of_both(events.ratio(part_and_rest, critical))
    yield "conditional share", share, truth[0] / truth[1]
    risks = [outcome & group, group, outcome & ~group, ~group]
    events, truth = _both(table, design, counts, risks)
    apart = doubled(share_of_both(events.ratio(risks_apart, critical)))
    yield "risk difference", apart, truth[0] / truth[1] - truth[2] / truth[3]
    yield "risk ratio", events.ratio(products, critical), _ratio(truth)
    odds = [outcome & group, ~outcome & group, outcome & ~group, ~outcome & ~group]
    events, truth = _both(table, design, counts, odds)
    yield "odds ratio", events.ratio(products, critical), _ratio(truth)


def _ratio(factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return x₀x₃/(x₁x₂), which may be infinite."""
    with np.errstate(divide="ignore"):
        return np.asarray(factors[0] * factors[3] / (factors[1] * factors[2]))


def _both(
    table: CountTable, design: ReleaseDesign, counts: Release, masks: list[Mask]
) -> tuple[Events, NDArray[np.float64]]:
    truth = np.array([table.distribution[mask].sum() for mask in masks])
    return estimate_events(counts, design, masks), truth


def people_coverage(setting: "DecoySetting", counts: Release, level: float) -> float:
    """Return how often the interval of the number of people in common holds the truth.

    It depends on the number of rows alone.
    """
    design = setting.design(counts)
    rows, places, times = np.unique(counts.sum(axis=1), return_index=True, return_counts=True)
    held = 0
    for number, place, often in zip(rows.tolist(), places.tolist(), times.tolist(), strict=True):
        single = one_of(design, place)
        assert isinstance(single, CoinDesign)
        people = np.array([single.people(number)[0]])
        interval = people_interval(
            people, np.array([float(design.cells)]), single, critical_value(level)
        )
        held += often * bool(interval.covers(setting.table.population_size)[0])
    return held / len(counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoySetting:
    """Data, a plan with decoys, and whether a copy with noise of its own is published."""

    name: str
    table: CountTable
    plan: Plan
    published: bool = False

    def design(self, counts: Release, population: Population = "finite") -> CoinDesign:
        """Return the design of these releases; unknown populations are estimated from each."""
        cells = self.plan.domain_size
        noise = None
        if self.published:
            noise = PublicationNoise.for_epsilon(self.plan.epsilon_public, cells)
        design = release_design(self.plan, population=population, publication=noise)
        assert isinstance(design, CoinDesign)
        if design.known or not counts.size:
            return design
        people = np.array([[design.people(rows)[0]] for rows in counts.sum(axis=1).tolist()])
        return replace(design, population_size=people)

    def releases(self, runs: int, seed: int) -> Release:
        """Return simulated releases."""
        generator = np.random.default_rng([seed, *self.name.encode()])
        nothing = np.empty((0, self.plan.domain_size), dtype=np.int64)
        return self.design(nothing).draw(self.table.counts, runs, generator)


def first_of(design: ReleaseDesign, releases: int) -> ReleaseDesign:
    """Return the design of the first releases only."""
    if not isinstance(design, CoinDesign) or not design.many:
        return design
    return replace(design, population_size=design.population_size[:releases])


def one_of(design: ReleaseDesign, position: int) -> ReleaseDesign:
    """Return the design of one of many releases."""
    if not isinstance(design, CoinDesign) or not design.many:
        return design
    return replace(design, population_size=float(design.population_size[position, 0]))


def decoy_settings() -> list[DecoySetting]:
    """Return twelve settings: each mechanism, both ways to link, and hard data."""
    free, delta = math.inf, 1e-6
    adult, large = adult_table(CELLS), adult_table(768)
    small, tiny = (_scaled(adult, size) for size in (2_000, 5_000))
    peaky, sparse = (CountTable(adult.schema, shape) for shape in (_peaky(), _sparse()))
    rows: list[tuple[str, CountTable, dict[str, Any]]] = [
        ("adult, pure, no channel", adult, {"epsilon_with_curator": free}),
        ("adult, pure, ε = 0.1, channel", adult, {"epsilon": 0.1}),
        ("adult, δ, strong channel", adult, {"delta": delta, "epsilon_with_curator": 3.0}),
        ("768 cells, pure", large, {"epsilon_with_curator": free}),
        ("sparse, pure", sparse, {"epsilon_with_curator": free}),
        ("peaked, everybody takes part", peaky, {"delta": delta, "epsilon_with_curator": free}),
        ("adult, matched", adult, {"linkage": "matched"}),
        ("2,000 people, matched", small, {"epsilon": 1.0, "linkage": "matched"}),
        ("sparse, matched, δ", sparse, {"delta": delta, "linkage": "matched"}),
        ("adult, published", adult, {"published": True}),
        ("5,000 people, published, δ", tiny, {"delta": delta, "published": True}),
        ("peaked, published, matched", peaky, {"linkage": "matched", "published": True}),
    ]
    return [_decoy_setting(name, table, **options) for name, table, options in rows]


def _decoy_setting(
    name: str,
    table: CountTable,
    *,
    published: bool = False,
    epsilon: float = 0.5,
    **options: Any,
) -> DecoySetting:
    chosen = plan(
        population_size=table.population_size,
        domain_size=table.schema.domain_size,
        epsilon=epsilon,
        mechanism="decoys",
        **options,
    )
    return DecoySetting(name=name, table=table, plan=chosen, published=published)


def _scaled(table: CountTable, population: int) -> CountTable:
    return CountTable(table.schema, apportion(table.distribution, population))


def _peaky() -> NDArray[np.int64]:
    return distribution_table("peaky", CELLS).counts


def _sparse() -> NDArray[np.int64]:
    """Return a table in which nobody is in eighteen of 24 cells."""
    weights = np.zeros(CELLS)
    weights[[0, 1, 4, 9, 14, 15]] = [30, 20, 10, 5, 2, 1]
    return apportion(weights, 45_222)
