"""What a plan is compared with: the paper's way, shuffling, a trusted party; and a law in words."""

from dataclasses import dataclass

from veiltab.core import privacy, utility
from veiltab.core.mechanism import Geometric, Law

ROUNDING = 1e-4
"""Weights that differ from a two-sided law by this share, or by one, are that law, rounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperPlan:
    """What the paper's own choice m* would give, for comparison."""

    optimal_sample_size: int
    gamma: float
    error_bound: float
    tightened_bound: float
    rmse: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ShufflePlan:
    """What a shuffled sample would give, for comparison."""

    sample_size: int
    gamma: float
    rmse: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustedParty:
    """What a party trusted with all records would reach, for comparison."""

    noise: str
    rmse: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoysSummary:
    """A law of decoys as people read it; ``expected`` is for the whole joint table.

    A table of weights that is not two-sided geometric has neither ratio nor centre.
    """

    law: str
    ratio: float | None
    centre: int | None
    mean: float
    variance: float
    expected: float


def paper_plan(population_size: int, domain_size: int, epsilon: float) -> PaperPlan:
    """Return the paper's choice for this population, table and ε, and its bounds there."""
    best = utility.paper_sample_size(population_size, domain_size, epsilon)
    gamma = privacy.gamma_for(population_size, best, epsilon)
    return PaperPlan(
        optimal_sample_size=best,
        gamma=gamma,
        error_bound=utility.error_bound(best, domain_size, gamma),
        tightened_bound=utility.tightened_bound(best, domain_size, gamma),
        rmse=utility.worst_case_rmse(population_size, best, domain_size, gamma),
    )


def decoys_summary(law: Law, domain_size: int) -> DecoysSummary:
    """Describe a law; a two-sided one is recognised by its weights."""
    name: str
    ratio: float | None
    centre: int | None
    if isinstance(law, Geometric):
        name, ratio, centre = "geometric", float(law.ratio), 0
    else:
        name, ratio, centre = "table", None, None
        peak = max(law.weights)
        place = law.weights.index(peak)
        steepness = (*law.weights, 0)[place + 1] / peak
        if _is_two_sided(law.weights, place, steepness):
            name, ratio, centre = "two-sided", steepness, place
    mean = float(law.mean)
    return DecoysSummary(
        law=name,
        ratio=ratio,
        centre=centre,
        mean=mean,
        variance=float(law.variance),
        expected=domain_size * mean,
    )


def _is_two_sided(weights: tuple[int, ...], centre: int, ratio: float) -> bool:
    peak = weights[centre]
    return all(
        abs(weight - peak * ratio ** abs(z - centre)) <= max(1.0, ROUNDING * weight)
        for z, weight in enumerate(weights)
    )
