"""Twenty settings to judge every interval and every test on, written down before any was tried.

Each has three attributes: x and y, and g, which may confound them.  Within a group, y depends on x
by a log-linear association with one strength for all groups, so that odds ratios have a common
value.  The settings go through every mechanism, and include confounding, rare and empty cells, many
cells, uneven margins and few people.  Nothing in the package was tuned on them, but for what failed
there and was changed: the page on them names it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from veiltab.core.coin_design import CoinDesign
from veiltab.core.designs import release_design
from veiltab.core.plan import Plan, plan
from veiltab.core.publication import PublicationNoise
from veiltab.core.resampling import apportion
from veiltab.core.schema import Attribute, Schema
from veiltab.core.uncertainty import Population, ReleaseDesign
from veiltab.estimates import Estimate

Shares = NDArray[np.float64]
Truth = Literal["associated", "independent", "independent within"]
"""The setting's own table, one whose x and y are independent, or independent within each group."""

SMALL_DELTA = 1e-6


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """A setting: the groups' sizes, x and the base of y within each, the association, the plan.

    ``x`` and ``y`` have a row of weights for each group, or one row for all.
    """

    name: str
    people: int
    groups: Sequence[float]
    x: Sequence[Sequence[float]]
    y: Sequence[Sequence[float]]
    strength: float
    options: dict[str, Any] = field(default_factory=dict)
    published: bool = False

    @property
    def sizes(self) -> tuple[int, int, int]:
        """How many categories x, y and g have."""
        return len(self.x[0]), len(self.y[0]), len(self.groups)

    @cached_property
    def schema(self) -> Schema:
        """The attributes; categories of x and y are numbers, in order."""
        rows, columns, groups = self.sizes
        return Schema(
            [
                Attribute("x", [str(i) for i in range(rows)]),
                Attribute("y", [str(j) for j in range(columns)]),
                Attribute("g", [f"group {k}" for k in range(groups)]),
            ]
        )

    def truth(self, kind: Truth = "associated") -> Shares:
        """Return the distribution that respondents are drawn from, an axis per attribute."""
        rows, columns, groups = self.sizes
        share = np.asarray(self.groups, dtype=np.float64)
        x, y = (np.asarray(weights, dtype=np.float64) for weights in (self.x, self.y))
        x, y = (np.broadcast_to(w, (groups, w.shape[1])) for w in (x, y))
        scores = [np.linspace(-1, 1, size) for size in (rows, columns)]
        strength = self.strength if kind == "associated" else 0.0
        joint = x[:, :, np.newaxis] * y[:, np.newaxis, :]
        joint = joint * np.exp(strength * np.outer(*scores))
        joint *= (share / joint.sum(axis=(1, 2)))[:, np.newaxis, np.newaxis]
        table: Shares = np.moveaxis(joint / joint.sum(), 0, -1)
        if kind == "independent":
            parts = table.sum(axis=(1, 2)), table.sum(axis=(0, 2)), table.sum(axis=(0, 1))
            table = np.einsum("i,j,k->ijk", *parts)
        return table

    @cached_property
    def plan(self) -> Plan:
        """The plan of the release, by the planner unless sample and noise are given."""
        rows, columns, groups = self.sizes
        cells = rows * columns * groups
        options = dict(self.options)
        if "gamma" in options:
            gamma = options.pop("gamma")
            keep = (gamma - 1) / (gamma + cells - 1)
            threshold = 2**64 - cells * round((1 - keep) * 2**64 / cells)
            return Plan.by_rank(
                population_size=self.people,
                domain_size=cells,
                epsilon=options["epsilon"],
                sample_size=options["sample_size"],
                keep_threshold=threshold,
            )
        return plan(population_size=self.people, domain_size=cells, **options)

    def design(self, population: Population) -> ReleaseDesign:
        """Return the design that releases are drawn by; the number of people is the true one."""
        design = release_design(self.plan, population=population, publication=self._noise)
        if isinstance(design, CoinDesign):
            return replace(design, population_size=self.people)
        return design

    def releases(
        self, runs: int, seed: int, population: Population, kind: Truth = "associated"
    ) -> NDArray[np.int64]:
        """Draw releases: of the same respondents each time, or of new ones ("super")."""
        generator = np.random.default_rng([seed, *self.name.encode(), *kind.encode()])
        flat, design = self.truth(kind).reshape(-1), self.design(population)
        if population == "super":
            return design.redraw(flat, runs, generator)
        return design.draw(apportion(flat, self.people), runs, generator)

    @cached_property
    def _noise(self) -> PublicationNoise | None:
        if not self.published:
            return None
        return PublicationNoise.for_epsilon(self.plan.epsilon_public, self.plan.domain_size)

    def estimate(self, counts: NDArray[np.int64]) -> Estimate:
        """Return what a researcher gets from one release."""
        return Estimate(self.schema, counts, self.plan, self._noise)


def _peaks(size: int, high: float, groups: int) -> list[list[float]]:
    """Return margins with one large category, another one in each group: strong confounding."""
    low = (1 - high) / (size - 1)
    return [[high if i == group % size else low for i in range(size)] for group in range(groups)]


FREE = math.inf
"""The server adds no noise."""

HELD_OUT: tuple[HeldOut, ...] = (
    HeldOut(
        name="clinic",
        people=5_000,
        groups=[0.7, 0.3],
        x=[[0.8, 0.2], [0.5, 0.5]],
        y=[[0.7, 0.3], [0.4, 0.6]],
        strength=0.4,
        options={"epsilon": 1.0},
    ),
    HeldOut(
        name="rare outcome",
        people=50_000,
        groups=[0.5, 0.3, 0.2],
        x=[[0.5, 0.3, 0.2], [0.3, 0.4, 0.3], [0.2, 0.3, 0.5]],
        y=[[0.98, 0.02], [0.97, 0.03], [0.95, 0.05]],
        strength=0.5,
        options={"epsilon": 0.5, "epsilon_with_curator": FREE},
    ),
    HeldOut(
        name="confounded, decoys",
        people=20_000,
        groups=[1 / 6] * 6,
        x=_peaks(3, 0.9, 6),
        y=_peaks(3, 0.9, 6),
        strength=0.3,
        options={"epsilon": 1.0},
    ),
    HeldOut(
        name="confounded, paper",
        people=20_000,
        groups=[1 / 6] * 6,
        x=_peaks(3, 0.8, 6),
        y=_peaks(3, 0.8, 6),
        strength=0.3,
        options={"epsilon": 1.0, "mechanism": "paper"},
    ),
    HeldOut(
        name="confounded, 1,000 records",
        people=20_000,
        groups=[1 / 6] * 6,
        x=_peaks(3, 0.9, 6),
        y=_peaks(3, 0.9, 6),
        strength=0.3,
        options={"epsilon": 0.31, "sample_size": 1_000, "gamma": 8},
    ),
    HeldOut(
        name="confounded, 2,000 records",
        people=20_000,
        groups=[1 / 6] * 6,
        x=_peaks(3, 0.9, 6),
        y=_peaks(3, 0.9, 6),
        strength=0.3,
        options={"epsilon": 0.9, "sample_size": 2_000, "gamma": 15},
    ),
    HeldOut(
        name="matched registers",
        people=30_000,
        groups=[0.4, 0.3, 0.2, 0.1],
        x=[[0.6, 0.3, 0.1], [0.4, 0.3, 0.3], [0.2, 0.3, 0.5], [0.1, 0.2, 0.7]],
        y=[[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.5, 0.5]],
        strength=0.3,
        options={"epsilon": 1.0, "linkage": "matched"},
    ),
    HeldOut(
        name="matched, few people",
        people=4_000,
        groups=[0.6, 0.4],
        x=[[0.7, 0.3], [0.4, 0.6]],
        y=[[0.5, 0.3, 0.2], [0.3, 0.4, 0.3]],
        strength=0.4,
        options={"epsilon": 2.0, "linkage": "matched"},
    ),
    HeldOut(
        name="small δ",
        people=20_000,
        groups=[0.5, 0.3, 0.2],
        x=[[0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4], [0.7, 0.1, 0.1, 0.1]],
        y=[[0.6, 0.3, 0.1], [0.3, 0.4, 0.3], [0.1, 0.3, 0.6]],
        strength=0.2,
        options={"epsilon": 0.5, "delta": SMALL_DELTA},
    ),
    HeldOut(
        name="published",
        people=40_000,
        groups=[0.6, 0.4],
        x=[[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]],
        y=[[0.5, 0.4, 0.1], [0.2, 0.3, 0.5]],
        strength=0.2,
        options={"epsilon": 1.0},
        published=True,
    ),
    HeldOut(
        name="published, matched, small δ",
        people=30_000,
        groups=[0.4, 0.3, 0.2, 0.1],
        x=[[0.8, 0.2], [0.6, 0.4], [0.4, 0.6], [0.2, 0.8]],
        y=[[0.9, 0.1], [0.7, 0.3], [0.5, 0.5], [0.3, 0.7]],
        strength=0.15,
        options={"epsilon": 0.5, "delta": SMALL_DELTA, "linkage": "matched"},
        published=True,
    ),
    HeldOut(
        name="shuffled",
        people=45_000,
        groups=[0.5, 0.25, 0.25],
        x=[[0.8, 0.15, 0.05], [0.3, 0.4, 0.3], [0.05, 0.15, 0.8]],
        y=[[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.1, 0.2, 0.7]],
        strength=0.3,
        options={"epsilon": 1.0, "delta": SMALL_DELTA, "mechanism": "shuffle"},
    ),
    HeldOut(
        name="paper, many people",
        people=200_000,
        groups=[0.5, 0.3, 0.2],
        x=[[0.7, 0.3], [0.5, 0.5], [0.3, 0.7]],
        y=[[0.8, 0.2], [0.6, 0.4], [0.4, 0.6]],
        strength=0.4,
        options={"epsilon": 1.0, "mechanism": "paper"},
    ),
    HeldOut(
        name="many cells",
        people=100_000,
        groups=[0.4, 0.3, 0.2, 0.1],
        x=[[8, 7, 6, 5, 4, 3, 2, 1], [1, 2, 3, 4, 5, 6, 7, 8], [1] * 8, [9, 1, 1, 1, 1, 1, 1, 9]],
        y=[[6, 5, 4, 3, 2, 1], [1, 2, 3, 4, 5, 6], [1] * 6, [5, 1, 1, 1, 1, 5]],
        strength=0.3,
        options={"epsilon": 1.0},
    ),
    HeldOut(
        name="empty cells",
        people=30_000,
        groups=[0.7, 0.3],
        x=[[0.5, 0.3, 0.2, 0.0], [0.0, 0.2, 0.3, 0.5]],
        y=[[0.6, 0.4, 0.0, 0.0], [0.0, 0.0, 0.4, 0.6]],
        strength=0.3,
        options={"epsilon": 1.0},
    ),
    HeldOut(
        name="association in rare cells",
        people=50_000,
        groups=[0.5, 0.5],
        x=[[0.94, 0.02, 0.02, 0.02]],
        y=[[0.94, 0.02, 0.02, 0.02]],
        strength=1.5,
        options={"epsilon": 1.0, "epsilon_with_curator": FREE},
    ),
    HeldOut(
        name="strong and ordered",
        people=20_000,
        groups=[0.5, 0.5],
        x=[[0.2] * 5, [0.3, 0.25, 0.2, 0.15, 0.1]],
        y=[[0.2] * 5, [0.1, 0.15, 0.2, 0.25, 0.3]],
        strength=3.0,
        options={"epsilon": 1.0, "delta": SMALL_DELTA},
    ),
    HeldOut(
        name="strong channel",
        people=45_000,
        groups=[0.8, 0.2],
        x=[[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]],
        y=[[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]],
        strength=0.3,
        options={"epsilon": 1.0, "epsilon_with_curator": 3.0},
    ),
    HeldOut(
        name="a thousand people",
        people=1_000,
        groups=[0.5, 0.5],
        x=[[0.6, 0.4], [0.4, 0.6]],
        y=[[0.6, 0.4], [0.4, 0.6]],
        strength=0.5,
        options={"epsilon": 2.0},
    ),
    HeldOut(
        name="a million people",
        people=1_000_000,
        groups=[0.3, 0.25, 0.2, 0.15, 0.1],
        x=[[0.5, 0.3, 0.2], [0.4, 0.3, 0.3], [0.3, 0.4, 0.3], [0.3, 0.3, 0.4], [0.1, 0.2, 0.7]],
        y=[[4, 3, 2, 1], [3, 3, 2, 2], [2, 3, 3, 2], [2, 2, 3, 3], [1, 1, 2, 6]],
        strength=0.1,
        options={"epsilon": 0.3},
    ),
)
