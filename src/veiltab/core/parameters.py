"""Checks the ranges of the numbers that describe a release, each in one place."""

import math
from collections.abc import Sequence
from numbers import Integral, Real

from veiltab.errors import InfeasiblePlanError, ParameterError

MAX_EPSILON = 50
MAX_POPULATION_SIZE = 2**53
MAX_DOMAIN_SIZE = 2**48
"""A cell then fits easily into an int64, and 64-bit noise still has 16 bits per cell."""

MAX_DECOYS = 10**6
"""The most decoys that a plan expects, unless more respondents take part or it is asked for."""

MOST_DECOYS = 10**9
"""The most decoys that any plan may expect, whoever asks: nobody could upload more."""

MAX_PATTERNS = 10**7
"""The most patterns of cells and absence that get decoys of their own."""

MAX_RUNS = 10**7
SMALLEST_DELTA = 1e-30
LARGEST_DELTA = 0.01
"""With a larger δ the promise could fail one person in a hundred altogether."""


def check_epsilon(epsilon: float, name: str = "epsilon") -> None:
    """Refuse an ε that promises nothing (too large) or cannot be promised (zero, NaN)."""
    if not is_number(epsilon) or not 0 < epsilon <= MAX_EPSILON:
        raise ParameterError(
            f"{name} must be a number above 0 and at most {MAX_EPSILON}, not {epsilon!r}",
            hint="common choices lie between 0.1 (strong privacy) and 1 (moderate privacy)",
        )


def check_delta(delta: float) -> None:
    """Refuse a δ that is not a small probability."""
    if not is_number(delta) or not (delta == 0 or SMALLEST_DELTA <= delta <= LARGEST_DELTA):
        raise ParameterError(
            f"delta must be 0, or a number from {SMALLEST_DELTA:g} to {LARGEST_DELTA:g},"
            f" not {delta!r}",
            hint="take 0 for the strictest promise, or far less than one in the population,"
            " such as 1e-6",
        )


def check_population_size(population_size: int) -> None:
    """Refuse a population that is empty or not a whole number."""
    if not is_integer(population_size) or not 1 <= population_size <= MAX_POPULATION_SIZE:
        raise ParameterError(
            f"the population must be a whole number from 1 to 2^53, not {population_size!r}",
            hint="it is the number of respondents that all curators hold in common",
        )


def check_sample_size(sample_size: int, population_size: int) -> None:
    """Refuse a sample that is empty or larger than the population."""
    if not is_integer(sample_size) or not 1 <= sample_size <= population_size:
        raise ParameterError(
            f"the sample size must be a whole number from 1 to the population, {population_size},"
            f" not {sample_size!r}",
            hint="leave it out to get the best one",
        )


def check_domain_size(domain_size: int) -> None:
    """Refuse a single cell, and more cells than the arithmetic can handle."""
    if not is_integer(domain_size) or not 2 <= domain_size <= MAX_DOMAIN_SIZE:  # noqa: PLR2004
        raise ParameterError(
            f"the number of cells must be a whole number from 2 to 2^48, not {domain_size!r}",
            hint="it is the product of the numbers of categories of all attributes",
        )


def check_linkage(linkage: str) -> None:
    """Refuse a way to link that does not exist."""
    if linkage not in ("aligned", "matched"):
        raise ParameterError(
            f"the linkage is 'aligned' or 'matched', not {linkage!r}",
            hint="aligned: all curators hold the same respondents; matched: the server finds"
            " those whom all hold",
        )


def check_curator_cells(curator_cells: Sequence[int], domain_size: int) -> None:
    """Refuse curators' cells that do not make up the joint table."""
    whole = all(is_integer(cells) and cells >= 1 for cells in curator_cells)
    if not whole or not curator_cells or math.prod(curator_cells) != domain_size:
        raise ParameterError(
            f"the curators' cells are {', '.join(map(str, curator_cells)) or 'not given'}, and"
            f" the joint table has {domain_size}",
            hint="give the number of cells of each curator's own table; their product is the"
            " joint table's",
        )


def check_patterns(patterns: int) -> None:
    """Refuse more patterns than curators could invent decoys for."""
    if patterns > MAX_PATTERNS:
        raise InfeasiblePlanError(
            f"decoys would be needed for {patterns:,} patterns of cells and absence",
            hint=f"use fewer cells or fewer curators: at most {MAX_PATTERNS:,} patterns, or the"
            " paper's way",
        )


def check_expected_decoys(expected: float) -> None:
    """Refuse a law with more decoys than anybody could upload."""
    if expected > MOST_DECOYS:
        raise InfeasiblePlanError(
            f"the law of decoys asks for about {expected:.3g} of them",
            hint=f"use fewer cells or a law with fewer decoys: at most {MOST_DECOYS:,}",
        )


def check_max_decoys(max_decoys: float) -> None:
    """Refuse a limit on decoys that is no limit, or that nobody could upload."""
    if not is_number(max_decoys) or not 0 < max_decoys <= MOST_DECOYS:
        raise ParameterError(
            f"the most decoys must be a number above 0 and at most {MOST_DECOYS:,},"
            f" not {max_decoys!r}",
            hint=f"leave it out to allow {MAX_DECOYS:,}, or as many as respondents take part",
        )


def check_epsilon_with_curator(epsilon: float) -> None:
    """Refuse what is neither an ε nor infinite."""
    if epsilon != math.inf:
        check_epsilon(epsilon, "epsilon_with_curator")


def check_target_rmse(target_rmse: float) -> None:
    """Refuse a target that no estimate can reach, or that any guess would reach."""
    if not is_number(target_rmse) or not 0 < target_rmse < 1:
        raise ParameterError(
            f"the target RMSE must be a number above 0 and below 1, not {target_rmse!r}",
            hint="even a guess, the uniform distribution, is never off by 1 or more",
        )


def check_runs(runs: int, *, fewest: int = 1) -> None:
    """Refuse too few simulated releases for a mean, or too many to wait for."""
    if not is_integer(runs) or not fewest <= runs <= MAX_RUNS:
        raise ParameterError(
            f"the number of runs must be a whole number from {fewest} to {MAX_RUNS}, not {runs!r}",
            hint="1000 runs give an error to about one part in a hundred",
        )


def check_seed(seed: int) -> None:
    """Refuse a seed that is not a natural number."""
    if not is_integer(seed) or seed < 0:
        raise ParameterError(
            f"the seed must be a whole number from 0 up, not {seed!r}",
            hint="any such number will do; the same seed gives the same results",
        )


def is_integer(value: object) -> bool:
    """Take the whole numbers of NumPy too, which counting rows gives."""
    return not isinstance(value, bool) and isinstance(value, Integral)


def plain(value: float) -> float:
    """Return a number of NumPy, or a fraction, as Python's own; all else is left to be refused."""
    return float(value) if is_number(value) and type(value) not in {int, float} else value


def is_number(value: object) -> bool:
    """Tell whether this is a finite number; those of NumPy are."""
    return not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
