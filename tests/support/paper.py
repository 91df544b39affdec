"""The paper's experiments, run once for all tests that look at their results."""

from functools import cache

from veiltab.paper import figures
from veiltab.paper.experiment import Result, run_experiment

RUNS = 200


@cache
def paper_results() -> tuple[tuple[Result, ...], tuple[Result, ...]]:
    """Return real results for figures 1 to 4 and for figure 5."""
    by_size = [run_experiment(s, RUNS, seed=1) for s in figures.sample_size_settings()]
    by_cells = [run_experiment(s, RUNS, seed=1) for s in figures.cardinality_settings()]
    return tuple(by_size), tuple(by_cells)
