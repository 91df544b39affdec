"""How far parameters are from what a release says: Q(β) = U(β)ᵀ V(β)⁻¹ U(β).

U is linear in the unbiased shares, so V is known at each β and no standard error of β is needed.  A
hypothesis that leaves β on a line, plane, … is judged by the smallest Q on it, which is about χ²
with as many degrees of freedom as the hypothesis takes away.  With one ratio of two linear
statistics this is Fieller's set.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.optimize import minimize

from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.uncertainty import CovarianceForm, Population
from veiltab.inference.models.equations import Equations

MOST_STEPS = 100
DAMPINGS = (0.0, 0.1, 1.0, 10.0, 1e2, 1e3, 1e4, 1e6)
"""By how much the curvature is raised, one after the other, until Q falls."""

NEGLIGIBLE = 1e-10
CLOSE = 1e-6
"""A step that promises less, relative to Q, is not made; or shows that Q is at its minimum."""

FLAT = 1e-3
"""The largest slope, relative to Q, at which it is at its minimum for differences."""


@dataclass(frozen=True, slots=True, eq=False)
class Nearest:
    """The nearest parameters under a hypothesis, and how far they are from the release."""

    parameters: Shares
    distance: float
    settled: bool


@dataclass(frozen=True, eq=False)
class Distance:
    """Equations, and the shares and the covariance with which they are judged."""

    equations: Equations
    shares: Shares
    likely: Shares
    form: CovarianceForm

    @classmethod
    def of(
        cls, equations: Equations, released: ReleasedCounts, population: Population
    ) -> "Distance":
        """Judge by a release."""
        form = released.design(population).total.like(released.unbiased)
        return cls(equations, released.unbiased, released.plausible, form)

    def at(self, parameters: Shares) -> "Point":
        """Compute U, V and what follows from them."""
        scores = self.equations.scores(parameters)
        return Point(
            parameters, scores, scores @ self.shares, self.form.of_statistics(self.likely, scores)
        )

    def _gradient(self, point: "Point", slopes: Shares) -> Shares:
        """Return half of Q's derivatives, Dᵀ V⁻¹ U.

        D is ∂U/∂β less what it has in common with U: ∂U/∂β − Cov(∂U/∂β, U) V⁻¹ U.
        """
        along = point.direction @ point.scores
        bent = self.equations.combined_slopes(point.parameters, point.direction)
        mean, even = bent @ self.likely, bent.mean(axis=1)
        true, uniform = float(along @ self.likely), float(along.mean())
        common = (
            self.form.truth * (bent @ (along * self.likely) - mean * true)
            + self.form.uniform * (bent @ along / along.size - even * uniform)
            + self.form.shift * (mean - even) * (true - uniform)
        )
        gradient: Shares = slopes.T @ point.direction - common
        return gradient

    def nearest(self, origin: Shares, basis: Shares) -> Nearest:
        """Minimise Q over origin + basis·γ, by damped Gauss–Newton steps."""
        if not self.equations.proper(origin):
            return Nearest(origin, np.inf, settled=False)
        point = self.at(origin)
        if basis.shape[1] == 0:
            return Nearest(origin, point.distance, settled=True)
        for _ in range(MOST_STEPS):
            slopes = self.equations.jacobian(point.parameters, self.shares)
            gradient = basis.T @ self._gradient(point, slopes)
            inner = slopes @ basis
            curvature = inner.T @ np.linalg.solve(point.covariance, inner)
            moved = self._lower(point, basis, gradient, curvature)
            if moved is None:
                step = np.linalg.lstsq(curvature, gradient, rcond=1e-12)[0]
                settled = float(gradient @ step) <= CLOSE * (1 + point.distance)
                return Nearest(point.parameters, point.distance, settled)
            point = moved
        return Nearest(point.parameters, point.distance, settled=False)

    def searched(self, origin: Shares, basis: Shares) -> Nearest:
        """Minimise the same by quasi-Newton steps with differences: slower, where others fail."""

        def squared(inner: Shares) -> float:
            parameters = origin + basis @ inner
            return self.at(parameters).distance if self.equations.proper(parameters) else np.inf

        found = minimize(squared, np.zeros(basis.shape[1]), method="BFGS")
        settled = bool(np.abs(found.jac).max() <= FLAT * (1 + found.fun))
        return Nearest(origin + basis @ found.x, float(found.fun), settled)

    def _lower(
        self, point: "Point", basis: Shares, gradient: Shares, curvature: Shares
    ) -> "Point | None":
        """Return a point with a smaller Q; None if there is hardly any.

        The more the curvature is raised, the shorter the step, and the nearer to steepest descent.
        """
        scale = np.diag(np.diag(curvature))
        for damping in DAMPINGS:
            step = -np.linalg.lstsq(curvature + damping * scale, gradient, rcond=1e-12)[0]
            gain = float(-gradient @ step)
            if gain <= NEGLIGIBLE * (1 + point.distance):
                return None
            parameters = point.parameters + basis @ step
            if not self.equations.proper(parameters):
                continue
            moved = self.at(parameters)
            if moved.distance < point.distance:
                return moved
        return None


@dataclass(frozen=True, eq=False)
class Point:
    """U and V at some parameters."""

    parameters: Shares
    scores: Shares
    sums: Shares
    covariance: Shares

    @cached_property
    def direction(self) -> Shares:
        """V⁻¹U."""
        return np.linalg.solve(self.covariance, self.sums).astype(np.float64, copy=False)

    @property
    def distance(self) -> float:
        """Q = UᵀV⁻¹U."""
        return max(float(self.sums @ self.direction), 0.0)
