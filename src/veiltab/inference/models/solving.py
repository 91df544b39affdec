"""Finding the root of estimating equations, or saying why there is none."""

from dataclasses import dataclass, replace

import numpy as np

from veiltab.core.released import Shares
from veiltab.inference.models.distance import Distance, times
from veiltab.inference.models.equations import Equations, Flags, RegressionEquations
from veiltab.inference.models.families import Scored

EVEN = 0.01
"""The weight of equal shares in the table from which the search starts: no cell is empty there."""

STAGES = (0.25, 0.5, 0.75, 1.0)
"""Where the search stops on its way from that table to the unbiased one, if one step fails."""

MOST_STEPS = 100
HALVINGS = 30
CLOSE, ROUNDED = 1e-10, 1e-6
"""How small the Newton step at a root is, relative to the parameters; and where no step helps."""

NO_SLOPE = 1e-13
"""A direction in which the equations change less, relatively, is left out of a step."""

FARTHEST = 30.0
"""A logit beyond this is certainty: e⁻³⁰ of a share is nobody."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The root, or the point where the search ended, and why there is none."""

    parameters: Shares
    problem: str | None = None


def solve(distance: Distance, names: tuple[str, ...]) -> list[Solution]:
    """Solve the equations of the unbiased shares of each release, starting from proper ones."""
    shares, likely = np.atleast_2d(distance.shares), np.atleast_2d(distance.likely)
    distance = replace(distance, shares=shares, likely=likely)
    proper = (1 - EVEN) * likely + EVEN / likely.shape[-1]
    begun, starts = _newton(distance, distance.equations.start(proper), proper)
    solved, roots = begun.copy(), starts.copy()
    solved[begun], roots[begun] = _newton(
        distance.rows(np.flatnonzero(begun)), starts[begun], shares[begun]
    )
    left = np.flatnonzero(begun & ~solved)
    starts = starts[left]
    for stage in STAGES:
        along = (1 - stage) * proper[left] + stage * shares[left]
        reached, points = _newton(distance.rows(left), starts, along)
        roots[left] = points
        left, starts = left[reached], points[reached]
    solved[left] = True
    ends = np.flatnonzero(solved)
    curvature = np.linalg.eigvalsh(_curvature(distance.rows(ends), roots[ends]))
    minimal = set(ends[curvature.min(axis=-1) <= 0].tolist())
    problems = (
        _no_start()
        if not begun[row]
        else _no_root(distance, root, names)
        if not solved[row]
        else _no_maximum(distance)
        if row in minimal
        else None
        for row, root in enumerate(roots)
    )
    return [Solution(root, problem) for root, problem in zip(roots, problems, strict=True)]


def _curvature(distance: Distance, parameters: Shares) -> Shares:
    """Return minus the derivatives of the equations, which are symmetric."""
    slopes = -distance.equations.jacobian(parameters, distance.shares)
    return (slopes + np.swapaxes(slopes, -1, -2)) / 2


def _newton(distance: Distance, starts: Shares, shares: Shares) -> tuple[Flags, Shares]:
    """Return roots by damped Newton steps, or the last points; and which of them are roots.

    A step is halved until the equations come nearer to zero, measured by their covariance.
    """
    equations = distance.equations
    roots, found = np.array(starts), np.zeros(len(starts), dtype=np.bool_)
    places = np.arange(len(starts))
    for _ in range(MOST_STEPS):
        if not places.size:
            break
        parameters = roots[places]
        step = _step(equations, parameters, shares[places])
        size = np.abs(step).max(axis=-1) / (1 + np.abs(parameters).max(axis=-1))
        close = size <= CLOSE
        roots[places[close]] = parameters[close] + step[close]
        found[places] = size <= ROUNDED
        places = places[~close]
        if not places.size:
            break
        better, moved = _halved(
            distance.rows(places), parameters[~close], step[~close], shares[places]
        )
        places, moved = places[better], moved[better]
        roots[places], found[places] = moved, False
        if not is_linear(equations):
            places = places[equations.extent(moved) <= FARTHEST]
    return found, roots


def _step(equations: Equations, parameters: Shares, shares: Shares) -> Shares:
    """Return the step of Newton's method; the shortest one where there are several."""
    slopes = equations.jacobian(parameters, shares)
    sums = times(equations.scores(parameters), shares)
    try:
        return -np.linalg.solve(slopes, sums[..., np.newaxis])[..., 0].astype(np.float64)
    except np.linalg.LinAlgError:
        inverse = np.linalg.pinv(slopes, rcond=NO_SLOPE).astype(np.float64)
        return -times(inverse, sums)


def _halved(
    distance: Distance, parameters: Shares, step: Shares, shares: Shares
) -> tuple[Flags, Shares]:
    """Halve steps until the equations come nearer to zero; tell which ones ever do."""
    equations = distance.equations
    point = distance.at(parameters)
    sums = times(point.scores, shares)
    weight = np.linalg.pinv(point.covariance, hermitian=True).astype(np.float64)
    off = (sums * times(weight, sums)).sum(axis=-1)
    moved, better = parameters.copy(), np.zeros(len(parameters), dtype=np.bool_)
    pending = np.arange(len(parameters))
    for halving in range(HALVINGS):
        tried = parameters[pending] + step[pending] / 2**halving
        proper = equations.proper(tried)
        places, tried = pending[proper], tried[proper]
        sums = times(equations.scores(tried), shares[places])
        nearer = (sums * times(weight[places], sums)).sum(axis=-1) < off[places]
        moved[places[nearer]], better[places[nearer]] = tried[nearer], True
        pending = pending[~better[pending]]
        if not pending.size:
            break
    return better, moved


def is_linear(equations: Equations) -> bool:
    """Tell whether a model predicts means, not chances."""
    return isinstance(equations, RegressionEquations) and isinstance(equations.family, Scored)


def _no_start() -> str:
    return (
        "no start was found for the search: the formula's columns may be almost collinear, or the"
        " noise may hide nearly everybody"
    )


def _no_root(distance: Distance, last: Shares, names: tuple[str, ...]) -> str:
    if is_linear(distance.equations):
        return _no_maximum(distance)
    largest = names[int(np.abs(last).argmax())]
    away = "runs away" if distance.equations.extent(last) > FARTHEST else "is not settled"
    return (
        f"no finite coefficients solve the equations: {largest!r} {away}. In some group the"
        " estimated share of an outcome is zero or negative, by noise or in truth (separation)"
    )


def _no_maximum(distance: Distance) -> str:
    if is_linear(distance.equations):
        return (
            "the spread of the covariates cannot be distinguished from zero, or is negative, by"
            " noise"
        )
    return (
        "the coefficients that solve the equations are no maximum: some groups have negative"
        " estimated shares, by noise"
    )
