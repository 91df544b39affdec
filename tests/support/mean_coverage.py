"""Measures how often the intervals of means, variances, quantiles and weighted shares hold.

The settings were fixed before any result was seen: every mechanism, both ways to link, published
copies, and data that are kind to none of them.  A setting's table has an age in bins, an illness, a
region of which one is rare, and a weight in bins: 120 cells.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.coin_design import CoinDesign
from veiltab.core.designs import release_design
from veiltab.core.intervals import Interval
from veiltab.core.plan import Plan, plan
from veiltab.core.publication import PublicationNoise
from veiltab.core.resampling import apportion
from veiltab.core.schema import Attribute, CountTable, Schema
from veiltab.core.uncertainty import Population, ReleaseDesign, critical_value
from veiltab.estimates import Estimate
from veiltab.inference.atoms import Atoms, count_atoms, divide
from veiltab.inference.bounded import BoundedMean, BoundedRatio
from veiltab.inference.means import MeansApart, VarianceWithin, overall_variance
from veiltab.inference.quantities import CLEARLY
from veiltab.inference.weighting import WeightedTable

Counts = NDArray[np.int64]
Array = NDArray[np.float64]

SCHEMA = Schema(
    [
        Attribute("age", ["0 to <18", "18 to <35", "35 to <50", "50 to <65", "65 to <80"]),
        Attribute("ill", ["no", "yes"]),
        Attribute("region", ["north", "south", "islands"]),
        Attribute("weight", ["0.5 to <1", "1 to <1.5", "1.5 to <2", "2 to <4"]),
    ]
)
EDGES = np.array([0.0, 18.0, 35.0, 50.0, 65.0, 80.0])
AGES = (EDGES[1:] + EDGES[:-1]) / 2
WEIGHTS = np.array([0.75, 1.25, 1.75, 3.0])
ILL, SOUTH, ISLANDS = "ill = 'yes'", "region = 'south'", "region = 'islands'"
LEVEL, NEARLY_ALWAYS = 0.95, 0.95
LINEAR = np.random.default_rng(5).normal(size=SCHEMA.sizes)
"""Weights of a linear statistic, drawn once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanSetting:
    """A distribution, a plan, and whether a copy is published."""

    name: str
    truth: Array
    plan: Plan
    published: bool = False

    @property
    def table(self) -> CountTable:
        """The respondents: whole people with nearly this distribution."""
        size = self.plan.population_size
        assert size is not None
        return CountTable(SCHEMA, apportion(self.truth, size))

    @property
    def publication(self) -> PublicationNoise | None:
        """The noise of the published copy, if there is one."""
        if not self.published:
            return None
        return PublicationNoise.for_epsilon(self.plan.epsilon_public, self.plan.domain_size)

    def releases(self, runs: int, seed: int, population: Population) -> Counts:
        """Draw releases: about the same respondents, or each about others."""
        generator = np.random.default_rng([seed, len(population), *self.name.encode()])
        design = release_design(self.plan, population=population, publication=self.publication)
        if population == "super":
            return design.redraw(self.truth, runs, generator)
        return design.draw(self.table.counts, runs, generator)

    def design(self, counts: Counts, population: Population) -> ReleaseDesign:
        """Return the design of these releases; unknown populations are estimated from each."""
        design = release_design(self.plan, population=population, publication=self.publication)
        if not isinstance(design, CoinDesign) or design.known:
            return design
        people = np.array([[design.people(rows)[0]] for rows in counts.sum(axis=1).tolist()])
        return replace(design, population_size=people)

    def distribution(self, population: Population) -> Array:
        """Return whom the numbers describe."""
        return self.truth if population == "super" else self.table.distribution


def _shaped(ages: list[float], ill: list[float], regions: list[float], drift: float) -> Array:
    """Return a distribution in which illness and weight depend on age and region.

    ``ill`` is the share of the ill at each age; with ``drift`` 0 nothing depends on the region.
    """
    age, sick, region = np.array(ages), np.array(ill), np.array(regions)
    tilt = np.exp(drift * np.outer(np.linspace(-1, 1, 5), np.linspace(-1, 1, 3)))
    joint = age[:, None] * region * tilt
    joint = joint / joint.sum()
    both = np.stack([joint * (1 - sick[:, None]), joint * sick[:, None]], axis=1)
    light = np.array([0.4, 0.3, 0.2, 0.1])
    share = np.linspace(0, 1, 5)[:, None, None, None]
    cells = both[..., None] * ((1 - share) * light + share * light[::-1])
    shares: Array = (cells / cells.sum()).reshape(-1)
    return shares


def settings() -> list[MeanSetting]:
    """Return twelve settings that were fixed in advance."""
    free, delta = math.inf, 1e-6
    plain = _shaped([20, 25, 20, 20, 15], [0.1, 0.1, 0.2, 0.3, 0.5], [50, 45, 5], 0.3)
    peaked = _shaped([96, 1, 1, 1, 1], [0.05, 0.5, 0.5, 0.5, 0.5], [60, 35, 5], 0.0)
    confounded = _shaped([20, 20, 20, 20, 20], [0.05, 0.1, 0.2, 0.4, 0.8], [45, 45, 10], 2.0)
    empty = _shaped([0, 60, 0, 40, 0], [0.0, 0.2, 0.0, 0.6, 0.0], [70, 30, 0.5], 0.0)
    ends = _shaped([50, 0, 0, 0, 50], [0.02, 0.1, 0.1, 0.1, 0.3], [50, 48, 2], 0.0)
    rows: list[tuple[str, Array, int, dict[str, Any]]] = [
        ("plain, decoys, no channel", plain, 20_000, {"epsilon_with_curator": free}),
        ("peaked, decoys, δ", peaked, 5_000, {"delta": delta, "epsilon_with_curator": free}),
        ("confounded, decoys, channel", confounded, 50_000, {"epsilon": 1.0}),
        ("empty bins, matched", empty, 5_000, {"epsilon": 1.0, "linkage": "matched"}),
        ("both ends, matched, δ", ends, 20_000, {"delta": delta, "linkage": "matched"}),
        ("plain, published", plain, 10_000, {"published": True}),
        ("peaked, published, δ", peaked, 20_000, {"delta": delta, "published": True}),
        ("plain, paper", plain, 45_000, {"epsilon": 1.0, "mechanism": "paper"}),
        ("peaked, paper", peaked, 200_000, {"mechanism": "paper"}),
        ("confounded, shuffle", confounded, 20_000, {"delta": delta, "mechanism": "shuffle"}),
        ("ends, paper, published", ends, 99_999, {"mechanism": "paper", "published": True}),
        ("1,000 people, decoys", confounded, 1_000, {"epsilon": 2.0, "epsilon_with_curator": free}),
    ]
    return [_setting(*row) for row in rows]


def _setting(name: str, truth: Array, size: int, options: dict[str, Any]) -> MeanSetting:
    published = options.pop("published", False)
    chosen = plan(
        population_size=size,
        domain_size=SCHEMA.domain_size,
        epsilon=options.pop("epsilon", 0.5),
        mechanism=options.pop("mechanism", "decoys"),
        **options,
    )
    return MeanSetting(name=name, truth=truth, plan=chosen, published=published)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The intervals of a quantity in many releases, and the truth.

    ``clear`` says whether nearly all of them come without a warning about the denominator.
    """

    quantity: str
    interval: Interval
    truth: float
    clear: bool = True

    @property
    def estimable(self) -> float:
        """In which share of the releases there is an interval."""
        return float(self.interval.bounded.mean())

    @property
    def coverage(self) -> float:
        """How many of the intervals hold the truth."""
        return float(self.interval.covers(self.truth)[self.interval.bounded].mean())

    @property
    def missed(self) -> float:
        """In which share of all releases an interval is given that misses the truth."""
        return self.estimable * (1 - self.coverage)


def measure(setting: MeanSetting, runs: int, seed: int) -> Iterator[Measured]:
    """Yield all quantities at a setting."""
    for population in ("finite", "super"):
        counts = setting.releases(runs, seed, population)
        design = setting.design(counts, population)
        truth = setting.distribution(population)
        found = (
            _finite(counts, design, truth)
            if population == "finite"
            else _super(counts, design, truth)
        )
        yield from found


def _atoms(counts: Counts, design: ReleaseDesign, rows: list[Array]) -> tuple[Atoms, Array]:
    labels, columns = divide(np.stack([row.reshape(-1).astype(np.float64) for row in rows]))
    return Atoms.of(*count_atoms(counts, labels, columns.shape[1]), design), columns


def _spread(numbers: Array, name: str) -> Array:
    axis = SCHEMA.names.index(name)
    shape = [-1 if i == axis else 1 for i in range(4)]
    return np.broadcast_to(numbers.reshape(shape), SCHEMA.sizes).astype(np.float64)


UNITS = _spread((AGES - AGES[0]) / np.ptp(AGES), "age")
SICK = _spread(np.array([0.0, 1.0]), "ill")
IN_SOUTH, ON_ISLANDS = (_spread(np.array(r, dtype=float), "region") for r in ([0, 1, 0], [0, 0, 1]))
WEIGHT = _spread(WEIGHTS / 4, "weight")


def _mean(truth: Array, units: Array, among: Array) -> float:
    return float(truth @ (units * among).reshape(-1) / (truth @ among.reshape(-1)))


def _ratio(counts: Counts, design: ReleaseDesign, units: Array, among: Array) -> BoundedRatio:
    atoms, (part, whole) = _atoms(counts, design, [units * among, among])
    return BoundedRatio(atoms, part, whole)


def _finite(counts: Counts, design: ReleaseDesign, truth: Array) -> Iterator[Measured]:
    """Yield what describes the respondents."""
    critical = critical_value(LEVEL)
    yield linear_measured(counts, design, truth, critical)
    everybody = np.ones(SCHEMA.sizes)
    atoms, [units] = _atoms(counts, design, [UNITS])
    average = BoundedMean(atoms, units)
    true = _mean(truth, UNITS, everybody)
    yield Measured(quantity="mean", interval=average.interval(critical), truth=true)
    spread = _mean(truth, (UNITS - true) ** 2, everybody) * 4
    found = overall_variance(average).interval(critical)
    yield Measured(quantity="variance", interval=found, truth=spread)
    for name, among in (("ill", SICK), ("islands", ON_ISLANDS)):
        ratio = _ratio(counts, design, UNITS, among)
        true = _mean(truth, UNITS, among)
        found = ratio.interval(critical)
        clear = _clear(ratio)
        yield Measured(quantity=f"mean, {name}", interval=found, truth=true, clear=clear)
        spread = min(_mean(truth, (UNITS - true) ** 2, among) * 4, 1.0)
        found = VarianceWithin.of(ratio).interval(critical)
        yield Measured(quantity=f"variance, {name}", interval=found, truth=spread, clear=clear)
    for q in (0.1, 0.5, 0.9):
        yield _quantile(counts, design, truth, q, None)
    yield _quantile(counts, design, truth, 0.5, SICK)


def linear_measured(
    counts: Counts, design: ReleaseDesign, truth: Array, critical: float
) -> Measured:
    """Return the intervals of a linear statistic with weights of its own in each cell."""
    atoms, [weights] = _atoms(counts, design, [LINEAR])
    value = (atoms.shares * weights).sum(axis=-1)
    error = np.sqrt(atoms.covariance(design.total, weights[np.newaxis])[..., 0, 0])
    shape = atoms.shape(weights)
    below = critical if shape is None else shape.deviation(critical)
    above = critical if shape is None else -shape.deviation(-critical)
    interval = Interval(value - below * error, value + above * error, error > 0)
    return Measured(quantity="linear", interval=interval, truth=float(truth @ LINEAR.reshape(-1)))


def true_quantile(truth: Array, q: float, among: Array) -> float:
    """Return the quantile of the true table, people being spread evenly within bins."""
    ages = (truth.reshape(SCHEMA.sizes) * among).sum(axis=(1, 2, 3))
    cumulated = np.concatenate([[0], np.cumsum(ages / ages.sum())])
    bin_ = int(np.argmax(cumulated[1:] >= q - 1e-12))
    part = (q - cumulated[bin_]) / (cumulated[bin_ + 1] - cumulated[bin_])
    return float(EDGES[bin_] + part * (EDGES[bin_ + 1] - EDGES[bin_]))


def _quantile(
    counts: Counts, design: ReleaseDesign, truth: Array, q: float, among: Array | None
) -> Measured:
    """Return the interval of F at the true quantile.

    The interval of the quantile holds the truth exactly if this one holds q.
    """
    value = true_quantile(truth, q, np.ones(SCHEMA.sizes) if among is None else among)
    below = _spread(np.clip((value - EDGES[:-1]) / np.diff(EDGES), 0, 1), "age")
    name = f"{q:g} quantile" if among is None else f"{q:g} quantile, ill"
    if among is None:
        atoms, [weights] = _atoms(counts, design, [below])
        interval = BoundedMean(atoms, weights).interval(critical_value(LEVEL))
        return Measured(quantity=name, interval=interval, truth=q)
    ratio = _ratio(counts, design, below, among)
    interval = ratio.interval(critical_value(LEVEL))
    return Measured(quantity=name, interval=interval, truth=q, clear=_clear(ratio))


def _clear(*ratios: BoundedRatio) -> bool:
    """Tell whether hardly any of these releases is given with a warning about a denominator."""
    clear = [ratio.clear(critical_value(LEVEL), CLEARLY) for ratio in ratios]
    return bool(np.logical_and.reduce(clear).mean() > NEARLY_ALWAYS)


def _super(counts: Counts, design: ReleaseDesign, truth: Array) -> Iterator[Measured]:
    """Yield what describes a larger population."""
    critical = critical_value(LEVEL)
    for name, group, versus in (
        ("ill", SICK, 1 - SICK),
        ("islands", ON_ISLANDS, IN_SOUTH),
    ):
        rows = [UNITS * group, group, UNITS * versus, versus]
        atoms, (part, whole, other, rest) = _atoms(counts, design, rows)
        apart = MeansApart(BoundedRatio(atoms, part, whole), BoundedRatio(atoms, other, rest))
        interval = apart.interval(critical)
        true = _mean(truth, UNITS, group) - _mean(truth, UNITS, versus)
        yield Measured(
            quantity=f"mean difference, {name}",
            interval=interval,
            truth=true,
            clear=_clear(apart.first, apart.second),
        )
    for name, units, among in (
        ("weighted share", SICK, np.ones(SCHEMA.sizes)),
        ("weighted mean", UNITS, np.ones(SCHEMA.sizes)),
        ("weighted share, islands", SICK, ON_ISLANDS),
    ):
        ratio = _ratio(counts, design, units, among * WEIGHT)
        true = _mean(truth, units, among * WEIGHT)
        interval = ratio.interval(critical)
        yield Measured(quantity=name, interval=interval, truth=true, clear=_clear(ratio))
    yield from outer_measured(counts, design, truth)


def outer_measured(counts: Counts, design: ReleaseDesign, truth: Array) -> Iterator[Measured]:
    """Yield the outer interval of the weighted share, with the worst weights within the bins."""
    low, high = (_spread(np.array(w) / 4, "weight") for w in ([0.5, 1, 1.5, 2], [1, 1.5, 2, 4]))
    atoms, (units, least, most, middle) = _atoms(counts, design, [SICK, low, high, WEIGHT])
    table = WeightedTable(atoms, units, np.ones_like(units), middle, least, most)
    ratios = table.extremes()
    ends = [[ratio.interval(critical_value(LEVEL)) for ratio in side] for side in ratios]
    below = np.min([interval.low for interval in ends[0]], axis=0)
    above = np.max([interval.high for interval in ends[1]], axis=0)
    bounded = ends[0][0].bounded
    for name, worst in (
        ("least weighted share", np.where(SICK > 0, low, high)),
        ("largest weighted share", np.where(SICK > 0, high, low)),
    ):
        yield Measured(
            quantity=name, interval=Interval(below, above, bounded), truth=_mean(truth, SICK, worst)
        )


def functional_measured(setting: MeanSetting, runs: int, seed: int) -> Measured:
    """Return the intervals of a smooth statistic, the logarithm of a ratio of two risks."""
    counts = setting.releases(runs, seed, "super")
    names = ["ill", "region"]

    def statistic(shares: Array) -> float:
        risks = shares[1] / shares.sum(axis=0)
        return float(np.log(risks[1] / risks[0]))

    ends = []
    for release in counts:
        released = Estimate(SCHEMA, release, setting.plan, setting.publication)
        answer = released.marginal(names).functional(statistic)
        ends.append((answer.low, answer.high) if answer.estimable else (-np.inf, np.inf))
    low, high = np.array(ends, dtype=np.float64).T
    true = statistic(setting.truth.reshape(SCHEMA.sizes).sum(axis=(0, 3)))
    return Measured(
        quantity="functional", interval=Interval(low, high, np.isfinite(low)), truth=true
    )
