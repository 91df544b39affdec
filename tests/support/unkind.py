"""Ten settings that are unkind to ratios: rare outcomes, rare groups, empty cells, few people.

They were written down before any of them was tried.  Each table has a group (a) in three
categories and an outcome (b) in two; the group in question is a1, and the outcome is b1.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.coverage import DecoySetting, Measured, event_intervals
from tests.support.estimates import shaped_table
from veiltab.core.designs import release_design
from veiltab.core.plan import MechanismName, Plan, plan
from veiltab.core.schema import CountTable
from veiltab.core.uncertainty import Population, ReleaseDesign, critical_value
from veiltab.paper.experiment import Release

OUTCOME, GROUP = "b = 'b1'", "a = 'a1'"
DELTA = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Unkind:
    """Data and a plan, by whatever mechanism."""

    name: str
    table: CountTable
    plan: Plan
    published: bool = False

    def design(self, counts: Release, population: Population) -> ReleaseDesign:
        """Return the design of these releases."""
        if self.plan.mechanism.decoys is None:
            return release_design(self.plan, population=population)
        setting = DecoySetting(
            name=self.name, table=self.table, plan=self.plan, published=self.published
        )
        return setting.design(counts, population)

    def releases(self, runs: int, seed: int, population: Population) -> Release:
        """Draw releases: about the same people, or about others of a larger population."""
        generator = np.random.default_rng([seed, *self.name.encode()])
        design = self.design(np.empty((0, self.plan.domain_size), dtype=np.int64), population)
        if population == "super":
            return design.redraw(self.table.distribution, runs, generator)
        return design.draw(self.table.counts, runs, generator)

    def measure(self, runs: int, seed: int, population: Population) -> Iterator[Measured]:
        """Yield the intervals of everything that is made of two conditions."""
        counts = self.releases(runs, seed, population)
        design = self.design(counts, population)
        critical = critical_value(0.95)
        yield from event_intervals(self.table, design, counts, critical, (OUTCOME, GROUP))


def unkind_settings() -> list[Unkind]:
    """Return the ten settings."""
    free = math.inf
    rows: list[tuple[str, CountTable, dict[str, Any]]] = [
        ("rare outcome, by rank", _table(45_222, 0.3, 0.01, 0.003), {"mechanism": "paper"}),
        ("rare group, pure", _table(20_000, 0.005, 0.2, 0.1), {"epsilon": 0.5}),
        ("ratio 0, δ", _table(10_000, 0.2, 0.0, 0.15), {"epsilon": 0.5, "delta": DELTA}),
        ("ratio 0, by rank", _table(45_222, 0.2, 0.0, 0.15), {"mechanism": "paper"}),
        ("ratio ∞, pure", _table(10_000, 0.2, 0.1, 0.0), {"epsilon": 0.5}),
        (
            "rare outcome, published",
            _table(5_000, 0.4, 0.02, 0.01),
            {"epsilon": 0.5, "published": True},
        ),
        ("few people, matched", _table(600, 0.15, 0.1, 0.05), {"linkage": "matched"}),
        (
            "rare group, shuffle",
            _table(45_222, 0.01, 0.3, 0.1),
            {"mechanism": "shuffle", "epsilon": 0.5, "delta": DELTA},
        ),
        (
            "everybody takes part, rare outcome",
            _table(3_000, 0.3, 0.01, 0.01),
            {"delta": DELTA, "epsilon_with_curator": free},
        ),
        (
            "hardly any noise, few people",
            _table(400, 0.25, 0.02, 0.02),
            {"epsilon": 5.0, "epsilon_with_curator": free},
        ),
    ]
    return [_setting(name, table, **options) for name, table, options in rows]


def _table(people: int, group: float, risk: float, other: float) -> CountTable:
    """Return a table with this share of the group, and the risks in and outside it."""
    shares = np.array([0.6 * (1 - group), group, 0.4 * (1 - group)])
    risks = np.array([other, risk, other])
    return shaped_table((3, 2), np.stack([shares * (1 - risks), shares * risks], axis=1), people)


def _setting(
    name: str,
    table: CountTable,
    *,
    published: bool = False,
    epsilon: float = 1.0,
    mechanism: MechanismName = "decoys",
    **options: Any,
) -> Unkind:
    chosen = plan(
        population_size=table.population_size,
        domain_size=table.schema.domain_size,
        epsilon=epsilon,
        mechanism=mechanism,
        **options,
    )
    return Unkind(name=name, table=table, plan=chosen, published=published)
