"""Settings for measures of association, fixed before any of them was measured.

They were chosen for what could go wrong: independence, association in rare cells, V near 1, empty
cells, uneven margins, 2 × 2 up to 10 × 10 cells, few people, every mechanism, published copies.
Releases about a larger population redraw the respondents; those about the respondents do not.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.coin_design import CoinDesign
from veiltab.core.designs import release_design
from veiltab.core.plan import Plan, plan
from veiltab.core.publication import PublicationNoise
from veiltab.core.resampling import apportion
from veiltab.core.uncertainty import Population, ReleaseDesign, critical_value
from veiltab.inference.correlation import estimate_correlation
from veiltab.inference.quantities import CLEARLY
from veiltab.inference.strength import (
    Clarity,
    Strength,
    clear_categories,
    contingency_strength,
    information_strength,
)

Array = NDArray[np.float64]
Counts = NDArray[np.int64]

Estimator = Callable[[Array, ReleaseDesign, Clarity, float], Strength]

DELTA = 1e-6
FREE = math.inf
CRITICAL = critical_value(0.95)


@dataclass(frozen=True, slots=True, kw_only=True)
class AssociationSetting:
    """A table, a mechanism, and whom the estimates describe.

    The pair of attributes is a marginal of a release with ``others`` times as many cells.
    """

    name: str
    shares: Array
    people: int
    epsilon: float
    options: dict[str, Any] = field(default_factory=dict)
    published: bool = False
    population: Population = "super"
    others: int = 1
    scores: tuple[tuple[float, ...], tuple[float, ...]] | None = None

    @property
    def plan(self) -> Plan:
        """The plan, by the planner."""
        return plan(
            population_size=self.people,
            domain_size=self.shares.size * self.others,
            epsilon=self.epsilon,
            **self.options,
        )

    @property
    def truth(self) -> Array:
        """The shares that the intervals are about."""
        if self.population == "super":
            return self.shares
        counts = apportion(self.shares.reshape(-1), self.people)
        return (counts / self.people).reshape(self.shares.shape)

    def releases(self, runs: int, seed: int) -> tuple[Counts, ReleaseDesign]:
        """Draw releases, and return them with their design; unknown populations are estimated."""
        chosen = self.plan
        cells = chosen.domain_size
        noise = PublicationNoise.for_epsilon(chosen.epsilon_public, cells)
        design = release_design(
            chosen,
            cells=self.shares.size,
            population=self.population,
            publication=noise if self.published else None,
        )
        if isinstance(design, CoinDesign):
            design = replace(design, population_size=self.people)
        generator = np.random.default_rng([seed, *self.name.encode()])
        counts = design.redraw(self.shares.reshape(-1), runs, generator)
        if isinstance(design, CoinDesign) and not design.known:
            people = np.array([[design.people(int(rows))[0]] for rows in counts.sum(axis=1)])
            design = replace(design, population_size=people)
        return counts, design


def cramers_v(shares: Array) -> float:
    """Return Cramér's V of a known table."""
    return float(np.sqrt(contingency(shares) / (min(shares.shape) - 1)))


def contingency(shares: Array) -> float:
    """Return Σ (T − rc)²/(rc), without rounding errors at its limits."""
    expected = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    return round(float(((shares - expected) ** 2 / expected).sum()), 12)


def information(shares: Array) -> float:
    """Return the mutual information of a known table, in bits."""
    expected = np.outer(shares.sum(axis=1), shares.sum(axis=0))
    some = shares > 0
    return round(float((shares[some] * np.log2(shares[some] / expected[some])).sum()), 12) + 0.0


def correlation(shares: Array, scores: tuple[Any, Any] | None) -> float:
    """Return Pearson's correlation of a known table; categories count as 0, 1, 2, … by default."""
    first, second = scores or tuple(range(size) for size in shares.shape)
    x = np.asarray(first, dtype=np.float64) - np.asarray(first) @ shares.sum(axis=1)
    y = np.asarray(second, dtype=np.float64) - np.asarray(second) @ shares.sum(axis=0)
    spread = (x**2 @ shares.sum(axis=1)) * (y**2 @ shares.sum(axis=0))
    return float(x @ shares @ y / math.sqrt(spread))


def _independent(rows: list[float], columns: list[float]) -> Array:
    return np.outer(rows, columns)


def _geometric(size: int, ratio: float) -> list[float]:
    weights = ratio ** np.arange(size)
    return list(weights / weights.sum())


def _rare_corner(rows: list[float], columns: list[float], share: float) -> Array:
    """Return independence, but this share of the rarest row is in the rarest column."""
    table = np.outer(rows, columns)
    table[-1] *= 1 - share
    table[-1, -1] += share * rows[-1]
    return table


def _diagonal(rows: list[float], purity: float) -> Array:
    """Return a mixture of the identity and of independence; V equals the purity."""
    table: Array = purity * np.diag(rows) + (1 - purity) * np.outer(rows, rows)
    return table


def _empty_cells(size: int) -> Array:
    """Return a band matrix: a third of the cells hold everybody."""
    distance = np.abs(np.subtract.outer(np.arange(size), np.arange(size)))
    weights = np.where(distance <= 1, 3.0 - 2 * distance, 0.0) * np.arange(1, size + 1)
    table: Array = weights / weights.sum()
    return table


def _moderate() -> Array:
    weights = np.array([[30.0, 8.0, 2.0], [5.0, 25.0, 5.0], [2.0, 8.0, 15.0]])
    table: Array = weights / weights.sum()
    return table


def association_settings() -> list[AssociationSetting]:
    """Return the settings."""
    make = AssociationSetting
    pure = {"mechanism": "decoys", "epsilon_with_curator": FREE}
    channel = {"mechanism": "decoys", "epsilon_with_curator": 2.0}
    delta = {"mechanism": "decoys", "delta": DELTA, "epsilon_with_curator": FREE}
    matched = {"mechanism": "decoys", "linkage": "matched"}
    paper, shuffle = {"mechanism": "paper"}, {"mechanism": "shuffle", "delta": DELTA}
    four, ten = [0.70, 0.20, 0.07, 0.03], _geometric(10, 0.75)
    return [
        make(
            name="2×2 independent, pure",
            shares=_independent([0.9, 0.1], [0.8, 0.2]),
            people=20_000,
            epsilon=0.5,
            options=pure,
        ),
        make(
            name="2×2 rare, matched",
            shares=np.array([[0.96, 0.01], [0.01, 0.02]]),
            people=20_000,
            epsilon=0.5,
            options=matched,
        ),
        make(
            name="3×3 moderate, paper",
            shares=_moderate(),
            people=45_222,
            epsilon=0.5,
            options=paper,
        ),
        make(
            name="3×3 independent, uneven, paper",
            shares=_independent([0.9, 0.07, 0.03], [0.8, 0.15, 0.05]),
            people=45_222,
            epsilon=1.0,
            options=paper,
        ),
        make(
            name="4×4 rare corner, shuffle",
            shares=_rare_corner(four, four, 0.5),
            people=20_000,
            epsilon=1.0,
            options=shuffle,
        ),
        make(
            name="4×4 strong, δ",
            shares=_diagonal(four, 0.95),
            people=10_000,
            epsilon=0.5,
            options=delta,
            others=2,
        ),
        make(
            name="10×10 independent, pure, channel",
            shares=_independent(ten, ten),
            people=50_000,
            epsilon=0.5,
            options=channel,
        ),
        make(
            name="10×10 independent, pure",
            shares=_independent(ten, ten),
            people=50_000,
            epsilon=0.5,
            options=pure,
        ),
        make(
            name="10×10 rare corner, δ",
            shares=_rare_corner(ten, ten, 0.8),
            people=50_000,
            epsilon=0.5,
            options=delta,
        ),
        make(
            name="2×2 near one, 1,000 people, pure",
            shares=_diagonal([0.7, 0.3], 0.98),
            people=1_000,
            epsilon=1.0,
            options=pure,
        ),
        make(
            name="3×4 moderate, 5,000 people, published",
            shares=_rare_corner([0.5, 0.3, 0.2], [0.4, 0.3, 0.2, 0.1], 0.5),
            people=5_000,
            epsilon=1.0,
            options=pure,
            published=True,
        ),
        make(
            name="2×5 weak, 2,000 people, matched, δ",
            shares=_rare_corner([0.8, 0.2], [0.4, 0.3, 0.15, 0.1, 0.05], 0.1),
            people=2_000,
            epsilon=1.0,
            options=matched | {"delta": DELTA},
        ),
        make(
            name="5×5 weak, 10,000 people, shuffle",
            shares=_diagonal(_geometric(5, 0.7), 0.1),
            people=10_000,
            epsilon=1.0,
            options=shuffle,
        ),
        make(
            name="6×6 empty cells, channel",
            shares=_empty_cells(6),
            people=30_000,
            epsilon=0.5,
            options=channel,
        ),
        make(
            name="3×3 rare, published, matched",
            shares=_rare_corner([0.85, 0.1, 0.05], [0.9, 0.07, 0.03], 0.4),
            people=20_000,
            epsilon=0.5,
            options=matched,
            published=True,
        ),
        make(
            name="3×3 moderate, respondents, pure",
            shares=_moderate(),
            people=5_000,
            epsilon=0.5,
            options=pure,
            population="finite",
            others=4,
        ),
        make(
            name="4×4 independent, respondents, δ",
            shares=_independent(four, [0.4, 0.3, 0.2, 0.1]),
            people=5_000,
            epsilon=0.5,
            options=delta,
            population="finite",
        ),
        make(
            name="3×3 extreme scores, pure",
            shares=_rare_corner([0.9, 0.08, 0.02], [0.9, 0.08, 0.02], 0.5),
            people=20_000,
            epsilon=0.5,
            options=pure,
            scores=((0.0, 1.0, 20.0), (0.0, 1.0, 50.0)),
        ),
        make(
            name="2×2 perfect, 500 people, δ",
            shares=np.diag([0.6, 0.4]),
            people=500,
            epsilon=1.0,
            options=delta,
        ),
        make(
            name="4×3 weak, paper, published",
            shares=_rare_corner([0.4, 0.3, 0.2, 0.1], [0.5, 0.3, 0.2], 0.4),
            people=45_222,
            epsilon=1.0,
            options=paper,
            published=True,
        ),
    ]


@dataclass(frozen=True, slots=True)
class Measured:
    """How often the intervals of a measure hold the truth, in percent.

    ``given`` is how often there is one, ``widened`` how often it is given with the reason why it is
    wide, and ``empty`` how many of them have the width zero.
    """

    covers: float
    given: float
    widened: float
    empty: int


def measure(setting: AssociationSetting, runs: int, seed: int) -> dict[str, Measured]:
    """Measure V, mutual information and correlation at a setting, on the same releases."""
    counts, design = setting.releases(runs, seed)
    tables = design.estimate(counts).reshape(-1, *setting.shares.shape)
    truth = setting.truth
    first, second = setting.scores or (range(size) for size in setting.shares.shape)
    scores = np.array(first, dtype=np.float64), np.array(second, dtype=np.float64)
    return {
        "V": measure_strength(tables, design, contingency_strength, contingency(truth)),
        "information": measure_strength(
            tables, design, information_strength, information(truth) * math.log(2)
        ),
        "correlation": measure_correlation(
            tables, design, scores, correlation(truth, setting.scores)
        ),
    }


def measure_strength(
    tables: Array, design: ReleaseDesign, estimate: Estimator, truth: float
) -> Measured:
    """Measure releases with the same clear categories together, as the estimator wants them."""
    rows, columns = clear_categories(tables, design)
    patterns, which = np.unique(np.hstack([rows, columns]), axis=0, return_inverse=True)
    held: list[NDArray[np.bool_]] = []
    widened = empty = 0
    for number, pattern in enumerate(patterns):
        chosen = np.flatnonzero(which.reshape(-1) == number)
        clarity = Clarity(pattern[: rows.shape[1]], pattern[rows.shape[1] :])
        if not clarity.enough:
            continue
        found = estimate(tables[chosen], some_of(design, chosen), clarity, CRITICAL)
        interval = found.interval
        held.append(interval.covers(truth))
        widened += int(found.cautious.sum()) if clarity.all else chosen.size
        empty += int(np.count_nonzero(interval.high <= interval.low))
    releases = tables.shape[0]
    if not held:
        return Measured(math.nan, 0.0, 0.0, 0)
    holds = np.concatenate(held)
    given = holds.size / releases
    return Measured(100 * float(holds.mean()), 100 * given, 100 * widened / releases, empty)


def measure_correlation(
    tables: Array, design: ReleaseDesign, scores: tuple[Array, Array], truth: float
) -> Measured:
    """Measure all releases at once."""
    found = estimate_correlation(tables, design, scores, CRITICAL)
    clear = found.clearness.min(axis=1)
    given, doubtful = clear > CRITICAL, clear < CLEARLY * CRITICAL
    holds = found.interval.covers(truth)
    width = (found.interval.high - found.interval.low)[given]
    return Measured(
        100 * float(holds[given].mean()),
        100 * float(given.mean()),
        100 * float((given & doubtful).mean()),
        int(np.count_nonzero(width <= 0)),
    )


def some_of(design: ReleaseDesign, chosen: NDArray[np.intp]) -> ReleaseDesign:
    """Return the design of some of many releases."""
    if not isinstance(design, CoinDesign) or not design.many:
        return design
    return replace(design, population_size=design.population_size[chosen])
