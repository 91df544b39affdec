"""How far the estimate is from the truth: the paper's bounds, and the exact error.

Errors are ℓ₂ distances between the estimated and the true joint distribution.  Functions take γ
as a float or as a Fraction and answer in kind, so that the formulas themselves, and not a copy of
them, are checked by exact enumeration.  Derivations: ``docs/explanation/mathematics.md``.
"""

import math
from fractions import Fraction
from typing import TypeVar

from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import LinkageMode

Number = TypeVar("Number", float, Fraction)


def error_bound(sample_size: int, domain_size: int, gamma: float) -> float:
    """Return the paper's bound (c√N + 1)/√m on the expected error (Theorem 2)."""
    condition_number = 1 + domain_size / (gamma - 1)
    return (condition_number * math.sqrt(domain_size) + 1) / math.sqrt(sample_size)


def tightened_bound(sample_size: int, domain_size: int, gamma: float) -> float:
    """Return (c + 1)/√m, Theorem 2 less its loose factor √N.

    The paper only conjectures it; ``docs/explanation/mathematics.md`` proves it for all data.
    """
    condition_number = 1 + domain_size / (gamma - 1)
    return (condition_number + 1) / math.sqrt(sample_size)


def paper_sample_size(population_size: int, domain_size: int, epsilon: float) -> int:
    """Return m* = nη(1 + √N)/N^(3/2), the paper's optimum, within 1..n (Corollary)."""
    root = math.sqrt(domain_size)
    best = population_size * math.expm1(epsilon) * (1 + root) / root**3
    return round(min(max(best, 1), population_size))


def best_sample_size(
    population_size: int, domain_size: int, epsilon: float, sum_of_squares: float
) -> float:
    """Return the sample size that minimises the exact error on data with the given ‖T‖².

    It is a real number from 1 to n: nη·√((1 − ‖T‖²)/(N(N − 1)) · n/(n − 1)).
    """
    if population_size == 1:
        return 1.0
    spread = (1 - sum_of_squares) / (domain_size * (domain_size - 1))
    correction = population_size / (population_size - 1)
    best = population_size * math.expm1(epsilon) * math.sqrt(spread * correction)
    return min(max(best, 1.0), population_size)


def minimax_sample_size(population_size: int, domain_size: int, epsilon: float) -> float:
    """Return m° = (nη/N)·√(n/(n − 1)), which minimises the exact worst-case error.

    It is a real number from 1 to n; at 1 < m° < n the channel has γ ≈ N + 1 and keeps half the
    records.
    """
    return best_sample_size(population_size, domain_size, epsilon, 1 / domain_size)


def perturbation_error(sample_size: int, domain_size: int, gamma: Number) -> Number:
    """Return (N − 1)(2γ + N − 2)/(m(γ − 1)²), the perturbation's share of the squared error.

    It is the same whatever the data.
    """
    spread = (domain_size - 1) * (2 * gamma + domain_size - 2)
    return spread / (sample_size * (gamma - 1) ** 2)


def sampling_error(population_size: int, sample_size: int, sum_of_squares: Number) -> Number:
    """Return (1 − ‖T‖²)(n − m)/(m(n − 1)), the sampling's share of the squared error."""
    if sample_size == population_size:  # also n = 1, where the formula would divide by zero
        return 0 * sum_of_squares
    unsampled = population_size - sample_size
    return (1 - sum_of_squares) * unsampled / (sample_size * (population_size - 1))


def mean_squared_error(
    population_size: int,
    sample_size: int,
    domain_size: int,
    gamma: Number,
    sum_of_squares: Number,
) -> Number:
    """Return E‖T̂ − T‖² exactly; the data enter through ‖T‖² (``sum_of_squares``) alone."""
    return perturbation_error(sample_size, domain_size, gamma) + sampling_error(
        population_size, sample_size, sum_of_squares
    )


def exact_rmse(
    population_size: int,
    sample_size: int,
    domain_size: int,
    gamma: Number,
    sum_of_squares: Number,
) -> float:
    """Return the root of the exact mean squared error, √E‖T̂ − T‖²."""
    return math.sqrt(
        mean_squared_error(population_size, sample_size, domain_size, gamma, sum_of_squares)
    )


def worst_case_rmse(
    population_size: int, sample_size: int, domain_size: int, gamma: float
) -> float:
    """Return the exact error for the hardest data, the uniform ones: ‖T‖² = 1/N."""
    return exact_rmse(population_size, sample_size, domain_size, gamma, 1 / domain_size)


def gamma_reaching(
    population_size: int, sample_size: int, domain_size: int, target_rmse: float
) -> float:
    """Return the γ with this worst-case error; infinity if the sample alone has a larger one."""
    own = sampling_error(population_size, sample_size, 1 / domain_size)
    room, spread = sample_size * (target_rmse**2 - own), domain_size - 1
    if room <= 0:
        return math.inf
    # With x = γ − 1, the perturbation's share is room: room·x² = (N − 1)(2x + N).
    return 1 + (spread + math.sqrt(spread**2 + room * spread * domain_size)) / room


def decoys_squared_error(
    population_size: int,
    domain_size: int,
    *,
    odds_against: Number,
    mean: Number,
    variance: Number,
    gamma: Number | None,
    linkage: LinkageMode,
    sum_of_squares: Number,
    published: Number | int = 0,
) -> Number:
    """Return E‖T̂ − T‖² with decoys; the data enter through ‖T‖² (``sum_of_squares``) alone.

    ``odds_against`` is (1 − β)/β, the coin's odds against taking part; ``mean`` and ``variance``
    are those of a cell's number of decoys; ``gamma`` is the channel's, None without one;
    ``published`` is the variance of a published count's noise, 0 for the researcher's own counts.
    In aligned linkage n is known and the error exact; in matched linkage the estimate is a ratio,
    and this is its error to the first order.
    """
    scale = (1 + odds_against) / population_size  # 1/(nβ), from counts to shares
    coins = odds_against / population_size
    noise = (variance + published) * scale**2
    total = coins + domain_size * noise
    if linkage == "aligned":
        squares = coins**2 * sum_of_squares + 2 * coins * noise + domain_size * noise**2
        error = total - squares / total if total else total
    else:
        error = coins * (1 - sum_of_squares)
        error += noise * (domain_size - 2 + domain_size * sum_of_squares)
    if gamma is None:
        return error
    rows = scale + domain_size * mean * scale**2  # expected rows over (nβ)²
    error += rows * perturbation_error(1, domain_size, gamma)
    return error + domain_size * published * scale**2 * perturbation_error(1, domain_size, gamma)


def worst_decoys_error(
    population_size: int,
    domain_size: int,
    *,
    odds_against: Number,
    mean: Number,
    variance: Number,
    gamma: Number | None,
    linkage: LinkageMode,
    published: Number | int = 0,
) -> Number:
    """Return the squared error with decoys for the hardest data.

    They are uniform in aligned linkage; in matched linkage the error is linear in ‖T‖², so they
    are uniform or all in one cell.
    """
    one = 1 + 0 * odds_against  # of the same kind of number
    hardest = [one / domain_size] + [one] * (linkage == "matched")
    return max(
        decoys_squared_error(
            population_size,
            domain_size,
            odds_against=odds_against,
            mean=mean,
            variance=variance,
            gamma=gamma,
            linkage=linkage,
            sum_of_squares=sum_of_squares,
            published=published,
        )
        for sum_of_squares in hardest
    )


def published_error(
    sample_size: int, domain_size: int, keep_probability: Number, published: Number
) -> Number:
    """Return v(N − 1)/(pm)²: what a published copy's noise adds to the squared error by rank.

    ``published`` is the noise's variance v.  The sample size is known, so only differences between
    cells can be wrong.
    """
    return published * (domain_size - 1) / (keep_probability * sample_size) ** 2


def laplace_rmse(population_size: int, domain_size: int, epsilon: float) -> float:
    """Return the error of a trusted party that adds Laplace noise of scale 2/ε to each count.

    Replacing a respondent changes two counts by one, hence the 2; no record is sampled.
    """
    return math.sqrt(2 * domain_size) * 2 / (epsilon * population_size)


def uniform_guess_rmse(domain_size: int) -> float:
    """Return √(1 − 1/N), the error of naming 1/N for every cell, for the hardest data.

    ‖T − U‖² = ‖T‖² − 2T·U + ‖U‖² = ‖T‖² − 1/N, and ‖T‖² is at most one: if all are in one cell.
    """
    return math.sqrt(1 - 1 / domain_size)


def publication_variance(threshold: int) -> Fraction:
    """Return the variance 2r/(1 − r)² of a published count's noise, r = threshold/2⁶⁴.

    The noise is two-sided geometric, P(z) ∝ r^|z|: the difference of two
    numbers with the law P(z) = (1 − r)rᶻ.
    """
    ratio = Fraction(threshold, DRAW_RANGE)
    return 2 * ratio / (1 - ratio) ** 2
