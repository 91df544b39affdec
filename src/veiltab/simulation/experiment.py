"""An experiment: many simulated releases at one setting, and what theory says of them."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from veiltab.core import utility
from veiltab.core.parameters import check_runs
from veiltab.core.plan import Plan, plan
from veiltab.core.schema import CountTable
from veiltab.simulation.engines import ENGINES

BATCH_NUMBERS = 1 << 22
"""How many released counts are held at once: 32 MiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where an experiment is run: known data, and a plan for releasing them."""

    distribution: str
    table: CountTable
    plan: Plan

    @property
    def label(self) -> str:
        """A name for the setting alone, so that its randomness does not depend on others."""
        where = f"{self.distribution}/{self.plan.domain_size}/{self.plan.population_size}"
        return f"{where}/{self.plan.epsilon!r}/{self.plan.sample_size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One experiment's outcome, under the names that ``veiltab simulate --json`` prints."""

    distribution: str
    cells: int
    epsilon: float
    sample_size: int
    gamma: float
    runs: int
    mean_l2: float
    rmse: float
    rmse_standard_error: float | None
    exact_rmse: float
    error_bound: float
    tightened_bound: float


def settings_for(
    distribution: str,
    table: CountTable,
    epsilons: Iterable[float],
    sample_sizes: Iterable[int | None],
) -> list[Setting]:
    """Return a setting for each pair; a sample size of None stands for the best one."""
    sizes = list(sample_sizes)
    return [
        Setting(
            distribution=distribution,
            table=table,
            plan=plan(
                population_size=table.population_size,
                domain_size=table.schema.domain_size,
                epsilon=epsilon,
                sample_size=size,
            ),
        )
        for epsilon in epsilons
        for size in sizes
    ]


def run_experiment(setting: Setting, runs: int, seed: int, engine: str = "counts") -> Result:
    """Simulate ``runs`` releases and measure how far the estimates are from the truth."""
    check_runs(runs)
    errors = _squared_errors(setting, runs, seed, engine)
    rmse = math.sqrt(errors.mean())
    table, chosen = setting.table, setting.plan
    return Result(
        distribution=setting.distribution,
        cells=chosen.domain_size,
        epsilon=chosen.epsilon,
        sample_size=chosen.sample_size,
        gamma=chosen.gamma,
        runs=runs,
        mean_l2=float(np.sqrt(errors).mean()),
        rmse=rmse,
        rmse_standard_error=_standard_error(errors, rmse),
        exact_rmse=utility.exact_rmse(
            table.population_size,
            chosen.sample_size,
            chosen.domain_size,
            chosen.gamma,
            table.sum_of_squares,
        ),
        error_bound=utility.error_bound(chosen.sample_size, chosen.domain_size, chosen.gamma),
        tightened_bound=utility.tightened_bound(
            chosen.sample_size, chosen.domain_size, chosen.gamma
        ),
    )


def _standard_error(errors: NDArray[np.float64], rmse: float) -> float | None:
    """Return the Monte Carlo error of the RMSE (delta method); one run has none to show."""
    if errors.size == 1 or rmse == 0:
        return None
    return float(errors.std(ddof=1) / math.sqrt(errors.size) / (2 * rmse))


def _squared_errors(setting: Setting, runs: int, seed: int, engine: str) -> NDArray[np.float64]:
    """Return ‖T̂ − T‖² of each run, in batches so that memory stays bounded."""
    truth, channel = setting.table.distribution, setting.plan.channel
    batch = max(1, BATCH_NUMBERS // setting.plan.domain_size)
    errors = np.empty(runs)
    for number, start in enumerate(range(0, runs, batch)):
        size = min(batch, runs - start)
        label = f"{setting.label}/{number}"
        released = ENGINES[engine](setting.table, setting.plan, size, seed, label)
        estimates = channel.estimate(released)
        errors[start : start + size] = ((estimates - truth) ** 2).sum(axis=1)
    return errors
