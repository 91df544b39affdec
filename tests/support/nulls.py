"""Tables without the dependence that a test looks for, and how often the test raises an alarm.

The settings were written down before any of them was measured.  They are unkind: what is tested
depends strongly on the group, some categories are nearly empty, groups are of very uneven size, and
in two of them there is more noise than signal.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from veiltab.core.channel import DRAW_RANGE
from veiltab.core.designs import release_design
from veiltab.core.plan import Plan, plan
from veiltab.core.publication import PublicationNoise
from veiltab.core.resampling import Statistic, apportion, resample
from veiltab.core.uncertainty import Population, ReleaseDesign

Shares = NDArray[np.float64]
FREE = {"epsilon_with_curator": math.inf}


@dataclass(frozen=True, eq=False)
class Setting:
    """A distribution over (row, column, group), and the plan of its releases."""

    truth: Shares
    plan: Plan
    published: bool = False

    def design(self, population: Population, rows: int | None = None) -> ReleaseDesign:
        """Return the design of a release, whose number of rows may be known."""
        cells = self.plan.domain_size
        noise = PublicationNoise.for_epsilon(0.5, cells) if self.published else None
        return release_design(
            self.plan,
            cells=self.truth.size,
            population=population,
            publication=noise,
            rows=rows,
        )

    def releases(
        self, runs: int, population: Population, generator: np.random.Generator
    ) -> NDArray[np.int64]:
        """Draw releases: of the same respondents, or of others of the larger population."""
        design = self.design(population)
        if population == "super":
            return design.redraw(self.truth.ravel(), runs, generator)
        people = apportion(self.truth.ravel(), self.plan.population_size or 1)
        return design.draw(people, runs, generator)


def grouped(rows: Any, columns: Any, groups: Any) -> Shares:  # noqa: ANN401 - nested lists
    """Return a table that is independent within each group, with these margins there."""
    parts = zip(rows, columns, groups, strict=True)
    return np.stack([size * np.outer(row, column) for row, column, size in parts], axis=-1)


def moving_peaks() -> Shares:
    """Return nine tenths in one row and one column of each of six groups, but in which differs."""
    peak = (np.eye(3) * 0.85 + 0.05).tolist()
    rows = [peak[g % 3] for g in range(6)]
    columns = [peak[(g + g // 3) % 3] for g in range(6)]
    return grouped(rows, columns, [1 / 6] * 6)


def rank_plan(people: int, cells: int, sample: int, gamma: float, epsilon: float = 1.0) -> Plan:
    """Return a plan by rank with about this amplification γ."""
    threshold = int((gamma - 1) / (gamma - 1 + cells) * DRAW_RANGE)
    return Plan.by_rank(
        population_size=people,
        domain_size=cells,
        epsilon=epsilon,
        sample_size=sample,
        keep_threshold=threshold + (DRAW_RANGE - threshold) % cells,
    )


def _plan(people: int, cells: int, epsilon: float, mechanism: str, **options: Any) -> Plan:
    return plan(
        population_size=people,
        domain_size=cells,
        epsilon=epsilon,
        mechanism=mechanism,  # type: ignore[arg-type]
        **options,
    )


def nulls() -> dict[str, Callable[[], Setting]]:
    """Return settings by name, to be built when they are used."""
    peaks = moving_peaks()
    uneven = grouped(
        [[0.8, 0.15, 0.05], [0.1, 0.8, 0.1], [0.05, 0.15, 0.8], [0.8, 0.1, 0.1], [0.1, 0.1, 0.8]],
        [[0.85, 0.15], [0.3, 0.7], [0.1, 0.9], [0.5, 0.5], [0.9, 0.1]],
        [0.6, 0.3, 0.07, 0.025, 0.005],
    )
    sparse = grouped(
        [[0.7, 0.28, 0.015, 0.005], [0.01, 0.04, 0.35, 0.6]],
        [[0.6, 0.38, 0.015, 0.005], [0.005, 0.015, 0.38, 0.6]],
        [0.55, 0.45],
    )
    small = grouped(
        [[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]],
        [[0.85, 0.15], [0.5, 0.5], [0.1, 0.9]],
        [0.5, 0.3, 0.2],
    )
    pair = grouped([[0.7, 0.2, 0.1]], [[0.8, 0.2]], [1.0])
    square = grouped([[0.9, 0.05, 0.03, 0.02]], [[0.6, 0.25, 0.1, 0.05]], [1.0])
    return {
        "3 x 3 in 6, rank, little": lambda: Setting(peaks, rank_plan(20_000, 54, 1_000, 8.0)),
        "3 x 3 in 6, rank": lambda: Setting(peaks, rank_plan(20_000, 54, 2_000, 15.0)),
        "2 x 2 in 3, paper": lambda: Setting(small, _plan(45_222, 12, 0.5, "paper")),
        "4 x 4 in 2, shuffle": lambda: Setting(
            sparse, _plan(20_000, 32, 0.5, "shuffle", delta=1e-6)
        ),
        "3 x 3 in 6, decoys": lambda: Setting(peaks, _plan(20_000, 54, 0.5, "decoys", **FREE)),
        "3 x 3 in 6, decoys, δ, channel": lambda: Setting(
            peaks, _plan(20_000, 54, 0.5, "decoys", delta=1e-6)
        ),
        "3 x 3 in 6, matched": lambda: Setting(
            peaks, _plan(5_000, 54, 1.0, "decoys", linkage="matched")
        ),
        "3 x 3 in 6, published": lambda: Setting(
            peaks, _plan(20_000, 54, 0.5, "decoys", **FREE), published=True
        ),
        "3 x 2 in 5 uneven, paper": lambda: Setting(uneven, _plan(45_222, 30, 1.0, "paper")),
        "3 x 2 in 5 uneven, decoys": lambda: Setting(
            uneven, _plan(5_000, 30, 0.2, "decoys", **FREE)
        ),
        "4 x 4 in 2, decoys": lambda: Setting(sparse, _plan(5_000, 32, 0.5, "decoys", **FREE)),
        "3 x 2, ε = 0.1": lambda: Setting(pair, _plan(45_222, 12, 0.1, "paper")),
        "3 x 2, ε = 1": lambda: Setting(pair, _plan(45_222, 12, 1.0, "paper")),
        "4 x 4, ε = 0.5": lambda: Setting(square, _plan(45_222, 32, 0.5, "paper")),
        "3 x 2, channel, published": lambda: Setting(
            pair, _plan(45_222, 12, 0.5, "decoys", epsilon_with_curator=2.0), published=True
        ),
        "4 x 4, decoys, everybody": lambda: Setting(
            square, _plan(45_222, 32, 0.5, "decoys", delta=1e-6, **FREE)
        ),
    }


def fourfold(exposed: Any, risks: Any, strata: Any, odds_ratio: float) -> Shares:  # noqa: ANN401 - numbers per stratum
    """Return tables of exposure and outcome with an odds ratio in common.

    ``risks`` are those of the outcome without exposure.
    """
    share, risk, size = map(np.asarray, (exposed, risks, strata))
    odds = odds_ratio * risk / (1 - risk)
    raised = odds / (1 + odds)
    cells = [share * raised, share * (1 - raised), (1 - share) * risk, (1 - share) * (1 - risk)]
    return np.stack([size * cell for cell in cells]).reshape(2, 2, -1)


def strata_settings() -> dict[str, Callable[[float], Setting]]:
    """Return settings with a common odds ratio, by name."""
    steep = ([0.9, 0.5, 0.1], [0.15, 0.5, 0.8], [0.5, 0.3, 0.2])
    uneven = [0.5, 0.25, 0.15, 0.06, 0.03, 0.01]
    six = ([0.2, 0.5, 0.7, 0.3, 0.5, 0.8], [0.1, 0.3, 0.5, 0.7, 0.2, 0.4], uneven)
    rare = (six[0], [0.02, 0.03, 0.05, 0.02, 0.02, 0.04], uneven)
    four = ([0.3, 0.6, 0.5, 0.1], [0.1, 0.2, 0.4, 0.6], [0.4, 0.3, 0.2, 0.1])
    noisy = ([0.3, 0.6, 0.5, 0.1], [0.3, 0.2, 0.4, 0.6], [0.4, 0.3, 0.2, 0.1])
    twelve = (np.linspace(0.2, 0.8, 12), np.linspace(0.005, 0.03, 12), np.full(12, 1 / 12))
    plans: dict[str, tuple[Any, Callable[[], Plan], bool]] = {
        "3, paper": (steep, lambda: _plan(45_222, 24, 0.5, "paper"), False),
        "6 uneven, paper": (six, lambda: _plan(45_222, 24, 1.0, "paper"), False),
        "6 uneven, rare, decoys": (rare, lambda: _plan(5_000, 48, 0.5, "decoys", **FREE), False),
        "4, matched": (four, lambda: _plan(5_000, 32, 1.0, "decoys", linkage="matched"), False),
        "4, shuffle": (four, lambda: _plan(20_000, 32, 0.5, "shuffle", delta=1e-6), False),
        "4, published": (four, lambda: _plan(10_000, 32, 0.5, "decoys", **FREE), True),
        "4, rank, little": (noisy, lambda: rank_plan(20_000, 48, 1_000, 8.0), False),
        "12 rare, decoys": (twelve, lambda: _plan(10_000, 48, 0.5, "decoys", **FREE), False),
    }
    return {name: partial(_stratified, *parts) for name, parts in plans.items()}


def _stratified(
    shape: Any,  # noqa: ANN401 - as above
    make: Callable[[], Plan],
    published: bool,  # noqa: FBT001 - as above
    odds_ratio: float,
) -> Setting:
    exposed, risks, strata = shape
    return Setting(fourfold(exposed, risks, strata, odds_ratio), make(), published=published)


def p_value(
    observed: float,
    truth: Shares,
    design: ReleaseDesign,
    statistic: Statistic,
    generator: np.random.Generator,
) -> float:
    """Return a p-value from few draws, enough to compare it with 5%."""
    drawn = resample(truth, design, statistic, generator, 199)
    return (1 + int(np.count_nonzero(drawn >= observed * (1 - 1e-12)))) / 200
