"""What the paper says of its figures, what we say of ours, and whether it holds here."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from veiltab.core import utility
from veiltab.core.privacy import gamma_for
from veiltab.data.counts import CARDINALITIES
from veiltab.paper.comparison import (
    DECOYS,
    GAIN_FIGURE,
    GAIN_POPULATIONS,
    GUARDED_DECOYS,
    PURE_DECOYS,
    SHUFFLED,
    TRUSTED,
    Comparison,
    limit,
)
from veiltab.paper.experiment import ADULT_POPULATION, Result, distribution_table
from veiltab.paper.figures import CELLS, EPSILONS, PAPER_SIZES

RUNS = 1000
"""The paper's number of runs a point, for which the tolerances below are made."""

SAME = 0.10
"""Errors that differ by less than this share are called the same, or "near"."""

ABOUT = 0.35
"""A factor that differs from the claimed one by less than this share is "about" that factor."""

EXACTLY = 0.03
STANDARD_ERRORS = 5.0
"""A simulated RMSE agrees with the exact one within 3%, or within five standard errors where few
runs leave more noise than that: over 420 points, less than one false alarm in a thousand."""

SHUFFLE_GAIN, DECOYS_GAIN, GUARDED_GAIN = 20.0, 8.0, 3.0
"""How many times less error shuffling, decoys, and decoys with the paper's own noise must leave at
the paper's settings."""

EPSILON_FIGURE, CELLS_FIGURE = 6, 8
LARGE_GAIN = 35.0
"""How many times less error decoys must leave with the paper's largest table."""

NEAR_LIMIT = 0.98
"""The share of its limit that a gain must reach to show it."""

MARKEDLY = 0.25
"""An error that is lower by more than this share is markedly lower."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A statement about a figure, what was measured, and the verdict."""

    figure: int | None
    claim: str
    measured: str
    holds: bool


def check_claims(by_size: Sequence[Result], by_cells: Sequence[Result]) -> list[Claim]:
    """Check every claim that the paper makes of its five figures, and our exact formula."""
    return [
        _optimum_is_predicted(by_size),
        _bound_is_loose_by_root(by_size),
        _matches_adult(2, "uniform", by_size),
        _matches_adult(3, "linear", by_size),
        _peaky_differs_at_small_samples(by_size),
        _curves_overlap(by_cells),
        _peaky_is_lower(by_cells),
        _paper_size_is_near_best(by_cells),
        _formula_is_exact([*by_size, *by_cells]),
    ]


def check_comparisons(
    comparisons: Sequence[Comparison], simulated: Sequence[Result]
) -> list[Claim]:
    """Check what figures 6 to 9 say of the other ways, which the paper does not have."""
    settings = [c for c in comparisons if c.figure == EPSILON_FIGURE and c.epsilon in EPSILONS]
    return [
        _gain_of(
            SHUFFLED,
            SHUFFLE_GAIN,
            "with a δ of one in a million, shuffling leaves at least twenty times less error",
            settings,
        ),
        _decoys_equal_a_trusted_party(settings),
        _gain_of(
            PURE_DECOYS,
            DECOYS_GAIN,
            "with the same ε and δ = 0, decoys leave at least eight times less error",
            settings,
        ),
        _gain_of(
            GUARDED_DECOYS,
            GUARDED_GAIN,
            "at least three times less if the server adds the paper's own noise, against a curator"
            " who helps the researcher",
            settings,
        ),
        _gain_grows_with_cells(comparisons),
        _gain_tends_to_limit(comparisons),
        _formulas_are_exact(simulated),
    ]


def _gain_of(way: str, least: float, text: str, settings: Sequence[Comparison]) -> Claim:
    gains = [compared.gain(way) for compared in settings]
    return Claim(
        EPSILON_FIGURE,
        f"beyond the paper: {text}",
        f"{min(gains):.1f} to {max(gains):.1f} times less at the paper's settings",
        holds=min(gains) >= least,
    )


def _decoys_equal_a_trusted_party(settings: Sequence[Comparison]) -> Claim:
    ratios = [compared.errors[DECOYS] / compared.errors[TRUSTED] for compared in settings]
    return Claim(
        EPSILON_FIGURE,
        "beyond the paper: with that δ, decoys leave no more error than a trusted party's Laplace"
        " noise",
        f"{min(ratios):.2f} to {max(ratios):.2f} times its error at the paper's settings",
        holds=max(ratios) <= 1,
    )


def _gain_grows_with_cells(comparisons: Sequence[Comparison]) -> Claim:
    cells = max(CARDINALITIES)
    gains = {c.domain_size: c.gain(PURE_DECOYS) for c in comparisons if c.figure == CELLS_FIGURE}
    return Claim(
        CELLS_FIGURE,
        f"beyond the paper: with δ = 0 and {cells} cells, decoys leave at least"
        f" {LARGE_GAIN:.0f} times less error",
        f"{gains[cells]:.1f} times less, and {gains[CELLS]:.1f} times with {CELLS} cells",
        holds=gains[cells] >= LARGE_GAIN,
    )


def _gain_tends_to_limit(comparisons: Sequence[Comparison]) -> Claim:
    """Compare at the paper's tables; in smaller ones the paper's way gains from sampling many."""
    shares: dict[int, list[float]] = {size: [] for size in sorted(GAIN_POPULATIONS)}
    for compared in comparisons:
        if compared.figure == GAIN_FIGURE.number and compared.domain_size in CARDINALITIES:
            share = compared.gain(PURE_DECOYS) / limit(compared.domain_size)
            shares[compared.population_size].append(share)
    measured = ", ".join(
        f"{100 * min(values):.1f} to {100 * max(values):.1f}% for n = {size:,}"
        for size, values in shares.items()
    )
    lowest, highest = min(shares[max(shares)]), max(map(max, shares.values()))
    return Claim(
        GAIN_FIGURE.number,
        "beyond the paper: with δ = 0, the gain of decoys tends to 2√N, and never exceeds it",
        f"from {CELLS} to {max(CARDINALITIES)} cells it is {measured}",
        holds=lowest >= NEAR_LIMIT and highest <= 1,
    )


def _formulas_are_exact(simulated: Sequence[Result]) -> Claim:
    share, beyond = _beyond_chance(simulated)
    return Claim(
        None,
        "beyond the paper: exact formulas give the simulated RMSE of shuffling and decoys too",
        f"they differ by at most {share:.1%}; {beyond} of {len(simulated)} points differ by more"
        " than the simulation's own error",
        holds=not beyond,
    )


def _optimum_is_predicted(results: Sequence[Result]) -> Claim:
    excess = []
    for epsilon in EPSILONS:
        errors = {r.sampled: r.mean_l2 for r in _only(results, "adult", epsilon)}
        excess.append(errors[PAPER_SIZES[epsilon]] / min(errors.values()) - 1)
    return Claim(
        1,
        "the predicted m* is nearly the best sample size found by experiment",
        f"at m* the error is at most {max(excess):.1%} above the least of all sizes",
        holds=max(excess) <= _tolerance(SAME, results),
    )


def _bound_is_loose_by_root(results: Sequence[Result]) -> Claim:
    root = math.sqrt(CELLS)
    factors = [r.bound / r.mean_l2 for r in results if r.distribution == "adult"]
    return Claim(
        1,
        f"the bound of Theorem 2 is loose by a factor of about √N = {root:.1f}",
        f"it is {min(factors):.1f} to {max(factors):.1f} times the simulated error",
        holds=all(abs(f / root - 1) <= _tolerance(ABOUT, results) for f in factors),
    )


def _matches_adult(figure: int, name: str, results: Sequence[Result]) -> Claim:
    gap = max(abs(ratio - 1) for ratio in _ratios_to_adult(results, name).values())
    return Claim(
        figure,
        f"the errors on {name} data are very similar to those on the UCI data",
        f"they differ by at most {gap:.1%}",
        holds=gap <= _tolerance(SAME, results),
    )


def _peaky_differs_at_small_samples(results: Sequence[Result]) -> Claim:
    ratios = _ratios_to_adult(results, "peaky")
    sizes = [r.sampled for r in results]
    small = max(ratios[CELLS, e, min(sizes)] for e in EPSILONS)
    large = max(abs(ratios[CELLS, e, max(sizes)] - 1) for e in EPSILONS)
    return Claim(
        4,
        "peaky data give markedly different (lower) errors at small m only",
        f"at least {1 - small:.0%} lower at m = {min(sizes)}, within {large:.1%} at m = n",
        holds=small < 1 - MARKEDLY and large <= _tolerance(SAME, results),
    )


def _curves_overlap(results: Sequence[Result]) -> Claim:
    ratios = [r for name in ("uniform", "linear") for r in _ratios_to_adult(results, name).values()]
    gap = max(abs(ratio - 1) for ratio in ratios)
    return Claim(
        5,
        "the UCI, uniform and linear curves overlap at every cardinality",
        f"they differ by at most {gap:.1%}",
        holds=gap <= _tolerance(SAME, results),
    )


def _peaky_is_lower(results: Sequence[Result]) -> Claim:
    ratios = _ratios_to_adult(results, "peaky").values()
    return Claim(
        5,
        "the error on peaky data is lower throughout",
        f"it is {1 - max(ratios):.0%} to {1 - min(ratios):.0%} lower than on the UCI data",
        holds=max(ratios) < 1,
    )


def _paper_size_is_near_best(results: Sequence[Result]) -> Claim:
    excess = {r.distribution: 0.0 for r in results}
    for result in results:
        excess[result.distribution] = max(
            excess[result.distribution], result.exact_rmse / _least_error(result) - 1
        )
    listed = ", ".join(f"{name} {share:.1%}" for name, share in excess.items())
    return Claim(
        5,
        "m* is near the best sample size for all data, cardinalities and ε",
        f"its exact error is above the least by at most: {listed}",
        holds=max(excess.values()) <= SAME,
    )


def _formula_is_exact(results: Sequence[Result]) -> Claim:
    share, beyond = _beyond_chance(results)
    return Claim(
        None,
        "beyond the paper: the exact formula gives the simulated RMSE at every point",
        f"they differ by at most {share:.1%}; {beyond} of {len(results)} points differ by more"
        " than the simulation's own error",
        holds=not beyond,
    )


def _beyond_chance(results: Sequence[Result]) -> tuple[float, int]:
    """Return the largest relative difference from the formula, and how many are no chance."""
    share = max(abs(r.rmse / r.exact_rmse - 1) for r in results)
    return share, sum(abs(r.rmse - r.exact_rmse) > _simulation_error(r) for r in results)


def _simulation_error(result: Result) -> float:
    """Return how far a right RMSE may be from the exact one by the chance of the simulation."""
    noise = STANDARD_ERRORS * (result.rmse_standard_error or 0.0)
    return max(noise, EXACTLY * result.exact_rmse)


def _least_error(result: Result) -> float:
    """Return the least exact error that any sample size gives on this result's data."""
    n, cells, epsilon = ADULT_POPULATION, result.cells, result.epsilon
    squares = distribution_table(result.distribution, cells).sum_of_squares
    best = round(utility.best_sample_size(n, cells, epsilon, squares))
    return utility.exact_rmse(n, best, cells, gamma_for(n, best, epsilon), squares)


def _ratios_to_adult(results: Sequence[Result], name: str) -> dict[tuple[int, float, int], float]:
    """Return the named data's error over Adult's, for each cells, ε and sample size."""
    adult = {_place(r): r.mean_l2 for r in results if r.distribution == "adult"}
    return {_place(r): r.mean_l2 / adult[_place(r)] for r in results if r.distribution == name}


def _place(result: Result) -> tuple[int, float, int]:
    return result.cells, result.epsilon, result.sampled


def _only(results: Iterable[Result], name: str, epsilon: float) -> list[Result]:
    return [r for r in results if r.distribution == name and r.epsilon == epsilon]


def _tolerance(share: float, results: Sequence[Result]) -> float:
    """Widen a tolerance where fewer runs than the paper's leave more noise in the means."""
    return share * max(1.0, math.sqrt(RUNS / results[0].runs))
