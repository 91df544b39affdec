"""The count engine against a plain NumPy loop over records, on all of the UCI figure."""

import numpy as np

from benchmarks.timing import Ratio, median_seconds
from veiltab.core.schema import CountTable
from veiltab.paper import figures
from veiltab.paper.experiment import (
    ADULT_POPULATION,
    Setting,
    Wishes,
    distribution_table,
    run_experiment,
    settings_for,
)

RUNS = 1000
LEAST_RATIO = 20


def figure_settings() -> list[Setting]:
    """Return the settings of the UCI figure: three ε and 20 sizes, n = 45222, N = 24."""
    sizes = np.geomspace(figures.SMALLEST_SAMPLE, ADULT_POPULATION, 20).round()
    table = distribution_table("adult", figures.CELLS)
    wishes = [Wishes(sample_size=int(size)) for size in sizes]
    return settings_for("adult", table, figures.EPSILONS, wishes)


def plain_experiment(setting: Setting, runs: int, generator: np.random.Generator) -> float:
    """Simulate as one would write it down: sample records, replace some, count, estimate."""
    table: CountTable = setting.table
    cells, m = setting.plan.domain_size, setting.plan.ranked.sample_size
    keep = setting.plan.ranked.keep_probability
    population = np.repeat(np.arange(cells), table.counts)
    truth = table.distribution
    total = 0.0
    for _ in range(runs):
        sampled = generator.choice(population, m, replace=False)
        kept = generator.random(m) < keep
        released = np.where(kept, sampled, generator.integers(cells, size=m))
        shares = np.bincount(released, minlength=cells) / m
        estimate = (shares - (1 - keep) / cells) / keep
        total += float(np.sqrt(((estimate - truth) ** 2).sum()))
    return total / runs


def simulation_ratios() -> list[Ratio]:
    """Time both on the whole figure: 60 points of 1000 runs."""
    settings = figure_settings()
    generator = np.random.default_rng(1)

    def by_counts() -> None:
        for setting in settings:
            run_experiment(setting, RUNS, seed=1)

    def by_records() -> None:
        for setting in settings:
            plain_experiment(setting, RUNS, generator)

    ours = median_seconds(by_counts, 3)
    theirs = median_seconds(by_records, 1)
    row = Ratio(
        name=f"UCI figure, count engine ({len(settings)} points, {RUNS} runs)",
        seconds=ours,
        reference="plain NumPy record loop",
        reference_seconds=theirs,
        goal=f"at least {LEAST_RATIO} times faster",
        met=theirs >= LEAST_RATIO * ours,
    )
    return [row]
