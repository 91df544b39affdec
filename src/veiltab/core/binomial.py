"""Binomial tails and probabilities on arrays, accurate far out and for a billion trials."""

import math

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, gammaln

Numbers = NDArray[np.float64]

_SERIES_FROM = 16.0
_SMALLEST = 1e-300
_LEAST_EXPONENT = 1074.0


def upper_tail(least: Numbers, trials: Numbers, chance: float) -> Numbers:
    """Return P(X ≥ least) for X ~ Bin(trials, chance)."""
    inside = np.clip(least, 1.0, np.maximum(trials, 1.0))
    tail = betainc(inside, np.maximum(trials - least + 1, _SMALLEST), chance)
    return np.where(least <= 0, 1.0, np.where(least > trials, 0.0, tail))


def lower_tail(most: Numbers, trials: Numbers, chance: float) -> Numbers:
    """Return P(X ≤ most) for X ~ Bin(trials, chance)."""
    inside = np.maximum(most + 1, 1.0)
    tail = betainc(np.maximum(trials - most, _SMALLEST), inside, 1 - chance)
    return np.where(most < 0, 0.0, np.where(most >= trials, 1.0, tail))


def between(edges: Numbers, trials: Numbers, chance: float) -> Numbers:
    """Return P(edge ≤ X < next edge) along the last axis.

    Each edge's tail is taken on the side of the mean where it is small, so that the differences
    keep their digits.
    """
    low = edges <= trials * chance
    at = np.clip(edges, _SMALLEST, np.maximum(trials, 1.0))
    rest = np.maximum(trials - edges + 1, _SMALLEST)
    tail = betainc(
        np.where(low, rest, at), np.where(low, at, rest), np.where(low, 1 - chance, chance)
    )
    tail = np.where((edges <= 0) | (edges > trials), 0.0, tail)
    first, last = tail[..., :-1], tail[..., 1:]
    inside = np.where(
        low[..., 1:], last - first, np.where(low[..., :-1], 1 - first - last, first - last)
    )
    return np.maximum(inside, 0.0)


def fair_excess(level: Numbers, tosses: Numbers) -> Numbers:
    """Return E[(X − level)⁺] for X ~ Bin(tosses, ½) and a level of at least tosses/2.

    With h the least integer above the level, Σ_{x≥h} (x − tosses/2) P(x) = (h/2) P(h), so that
    nothing is the small difference of two large sums.
    """
    least = np.floor(level) + 1
    mean_part = least / 2 * fair_probability(least, tosses)
    excess = mean_part - (level - tosses / 2) * upper_tail(least, tosses, 0.5)
    return np.where(least > tosses, 0.0, np.maximum(excess, 0.0))


def fair_probability(heads: Numbers, tosses: Numbers) -> Numbers:
    """Return P(X = heads) for X ~ Bin(tosses, ½), by Loader's saddle point expansion."""
    trials = np.maximum(tosses, 2.0)
    inner = np.clip(heads, 1.0, trials - 1)
    rest = trials - inner
    exponent = _stirling_error(trials) - _stirling_error(inner) - _stirling_error(rest)
    exponent -= _deviance(inner, trials / 2) + _deviance(rest, trials / 2)
    chance = np.sqrt(trials / (2 * math.pi * inner * rest)) * np.exp(exponent)
    end = (heads == 0) | (heads == tosses)
    edge = np.where(end, np.exp2(-np.minimum(tosses, _LEAST_EXPONENT)), 0.0)
    return np.where((heads > 0) & (heads < tosses), chance, edge)


def _stirling_error(count: Numbers) -> Numbers:
    """Return ln(x!) less Stirling's formula."""
    large = np.maximum(count, _SERIES_FROM)
    squared = large**2
    series = (1 / 12 - (1 / 360 - (1 / 1260 - 1 / (1680 * squared)) / squared) / squared) / large
    small = np.clip(count, 1.0, _SERIES_FROM)
    stirling = (small + 0.5) * np.log(small) - small + 0.5 * math.log(2 * math.pi)
    return np.where(count < _SERIES_FROM, gammaln(small + 1) - stirling, series)


def _deviance(count: Numbers, mean: Numbers) -> Numbers:
    """Return x ln(x/µ) + µ − x, with an error far below its own size where it matters."""
    share = (count - mean) / mean
    deviance: Numbers = mean * ((1 + share) * np.log1p(share) - share)
    return deviance
