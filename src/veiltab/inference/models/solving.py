"""Finding the root of estimating equations, or saying why there is none."""

from dataclasses import dataclass

import numpy as np

from veiltab.core.released import Shares
from veiltab.inference.models.distance import Distance
from veiltab.inference.models.equations import Equations, RegressionEquations
from veiltab.inference.models.families import Scored

EVEN = 0.01
"""The weight of equal shares in the table from which the search starts: no cell is empty there."""

STAGES = (0.25, 0.5, 0.75, 1.0)
"""Where the search stops on its way from that table to the unbiased one, if one step fails."""

MOST_STEPS = 100
HALVINGS = 30
CLOSE, ROUNDED = 1e-10, 1e-6
"""How small the Newton step at a root is, relative to the parameters; and where no step helps."""

FARTHEST = 30.0
"""A logit beyond this is certainty: e⁻³⁰ of a share is nobody."""


@dataclass(frozen=True, slots=True, eq=False)
class Solution:
    """The root, or the point where the search ended, and why there is none."""

    parameters: Shares
    problem: str | None = None


def solve(distance: Distance, names: tuple[str, ...]) -> Solution:
    """Solve the equations of the unbiased shares, starting from proper ones."""
    cells = distance.likely.size
    proper = (1 - EVEN) * distance.likely + EVEN / cells
    start, _ = _newton(distance, distance.equations.start(proper), proper)
    if start is None:
        return Solution(distance.equations.start(proper), _no_start())
    root, last = _newton(distance, start, distance.shares)
    for stage in STAGES:
        if root is not None:
            break
        shares = (1 - stage) * proper + stage * distance.shares
        start, last = _newton(distance, start, shares)
        if start is None:
            break
        root = start if stage == STAGES[-1] else None
    if root is None:
        return Solution(last, _no_root(distance, last, names))
    if np.linalg.eigvalsh(_curvature(distance, root)).min() <= 0:
        return Solution(root, _no_maximum(distance))
    return Solution(root)


def _curvature(distance: Distance, parameters: Shares) -> Shares:
    """Return minus the derivatives of the equations, which are symmetric."""
    slopes = -distance.equations.jacobian(parameters, distance.shares)
    return (slopes + slopes.T) / 2


def _newton(distance: Distance, parameters: Shares, shares: Shares) -> tuple[Shares | None, Shares]:
    """Return the root by damped Newton steps, None if there is none near; and the last point.

    A step is halved until the equations come nearer to zero, measured by their covariance.
    """
    equations = distance.equations
    for _ in range(MOST_STEPS):
        sums = equations.scores(parameters) @ shares
        weight = np.linalg.pinv(distance.at(parameters).covariance, hermitian=True)
        step = -np.linalg.lstsq(equations.jacobian(parameters, shares), sums, rcond=1e-13)[0]
        off = float(sums @ weight @ sums)
        size = float(np.abs(step).max()) / (1 + float(np.abs(parameters).max()))
        if size <= CLOSE:
            return parameters + step, parameters
        for halving in range(HALVINGS):
            moved = parameters + step / 2**halving
            if not equations.proper(moved):
                continue
            sums = equations.scores(moved) @ shares
            if float(sums @ weight @ sums) < off:
                break
        else:
            return (parameters if size <= ROUNDED else None), parameters
        parameters = moved
        if not is_linear(distance.equations) and equations.extent(parameters) > FARTHEST:
            return None, parameters
    return None, parameters


def is_linear(equations: Equations) -> bool:
    """Tell whether a model predicts means, not chances."""
    return isinstance(equations, RegressionEquations) and isinstance(equations.family, Scored)


def _no_start() -> str:
    return "no start was found for the search: the formula's columns may be almost collinear"


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
