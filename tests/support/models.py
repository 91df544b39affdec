"""Measures how often intervals of models hold the truth, and how often tests reject a true null.

The settings were fixed before anything was measured: every mechanism at ε = 1, the Adult table, the
same for 5,000 people, and a rare event (about 3%) with strong effects.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import null_space
from scipy.special import chdtrc, expit, softmax

from veiltab.core.designs import release_design
from veiltab.core.plan import plan
from veiltab.core.publication import PublicationNoise
from veiltab.core.resampling import apportion
from veiltab.core.schema import CountTable, Schema
from veiltab.core.uncertainty import CovarianceForm, Population, critical_value
from veiltab.data.counts import adult_table
from veiltab.errors import ModelError
from veiltab.estimates import Estimate
from veiltab.inference.models import comparison
from veiltab.inference.models.distance import Distance, Nearest
from veiltab.inference.models.fitted import Fitted
from veiltab.inference.models.profile import free_of, moved_to
from veiltab.inference.models.results import ModelFit
from veiltab.inference.models.solving import solve

CRITICAL = critical_value(0.95)
AT_ONCE = 250
"""To how many releases a model is fitted at once."""

ALMOST_EXACT: dict[str, Any] = {"epsilon": 36.0, "mechanism": "paper"}
"""With everybody sampled, a release of this plan has the counts of the table."""

MECHANISMS: dict[str, dict[str, Any]] = {
    "paper": {"mechanism": "paper"},
    "shuffle": {"mechanism": "shuffle", "delta": 1e-6},
    "decoys, pure": {"mechanism": "decoys"},
    "decoys, pure, no channel": {"mechanism": "decoys", "epsilon_with_curator": math.inf},
    "decoys, δ": {"mechanism": "decoys", "delta": 1e-6},
    "decoys, matched": {"mechanism": "decoys", "linkage": "matched"},
    "decoys, published": {"mechanism": "decoys", "published": True},
    "decoys, published, matched, δ": {
        "mechanism": "decoys",
        "linkage": "matched",
        "delta": 1e-6,
        "published": True,
    },
}

Fit = Callable[[Estimate], ModelFit]

MODELS: dict[str, Fit] = {
    "one covariate": lambda e: e.logistic("salary ~ gender"),
    "main effects": lambda e: e.logistic("salary ~ gender + education + marital"),
    "interaction": lambda e: e.logistic("salary ~ gender * education"),
    "multinomial": lambda e: e.multinomial("education ~ gender + marital"),
    "ordinal": lambda e: e.ordinal("education ~ gender + salary"),
    "linear": lambda e: e.regress("education ~ gender + salary", scores={"education": [1, 2, 4]}),
    "log-linear": lambda e: e.loglinear("~ (gender + education + salary)**2"),
}


def scaled(table: CountTable, population: int) -> CountTable:
    """Return the same shares of another number of people."""
    return CountTable(table.schema, apportion(table.distribution, population))


def rare_event(population: int = 20_000) -> CountTable:
    """Return a table in which 1% to 20% of each group have a salary above 50K."""
    weights = np.random.default_rng(5).dirichlet(np.ones(12)) * 0.9 + 0.1 / 12
    effects = (
        np.array([0, 0.4, 0.8])[:, None, None]
        + np.array([0, -1.0])[None, :, None]
        + np.array([0, 1.2])
    )
    chances = expit(effects.reshape(-1) - 4.0)
    shares = np.stack([weights * (1 - chances), weights * chances], axis=-1)
    return CountTable(adult_table(24).schema, apportion(shares.reshape(-1), population))


def data(name: str) -> CountTable:
    """Return one of the tables by its name."""
    if name in {"adult", "768 cells"}:
        return adult_table(24 if name == "adult" else 768)
    return scaled(adult_table(24), 5_000) if name == "5,000 people" else rare_event()


def releases(
    table: "CountTable | TrueTable",
    mechanism: str,
    runs: int,
    *,
    population: Population = "super",
    epsilon: float = 1.0,
    seed: int = 1,
) -> Iterator[Estimate]:
    """Yield estimates from releases: of new people in each, or of the same respondents."""
    options = dict(MECHANISMS[mechanism])
    published = options.pop("published", False)
    size, cells = table.population_size, table.schema.domain_size
    chosen = plan(population_size=size, domain_size=cells, epsilon=epsilon, **options)
    noise = PublicationNoise.for_epsilon(chosen.epsilon_public, cells) if published else None
    design = release_design(chosen, population=population, publication=noise)
    generator = np.random.default_rng([seed, size, *mechanism.encode()])
    if population == "super":
        drawn = design.redraw(table.distribution, runs, generator)
    else:
        drawn = design.draw(apportion(table.distribution, size), runs, generator)
    for counts in drawn:
        yield Estimate(table.schema, counts, chosen, noise)


def exact(table: CountTable) -> Estimate:
    """Return an estimate whose shares are those of the table."""
    size, cells = table.population_size, table.schema.domain_size
    chosen = plan(population_size=size, domain_size=cells, sample_size=size, **ALMOST_EXACT)
    return Estimate(table.schema, table.counts, chosen)


def core(fit: ModelFit) -> Fitted:
    """Return what is behind a fit."""
    return fit._fitted


def truth(fit: Fit, shares: NDArray[np.float64], table: CountTable) -> NDArray[np.float64]:
    """Return the coefficients that solve the equations of these shares, to the last digit."""
    spec = core(fit(exact(table))).specification
    names = [attribute.name for attribute in spec.released.schema.attributes]
    axes = [table.schema.names.index(name) for name in names]
    joint = shares.reshape(table.schema.sizes)
    others = tuple(axis for axis in range(joint.ndim) if axis not in axes)
    kept = [axis for axis in range(joint.ndim) if axis in axes]
    marginal = joint.sum(axis=others).transpose([kept.index(axis) for axis in axes]).reshape(-1)
    form = spec.released.design("super").total.like(marginal)
    return solve(Distance(spec.equations, marginal, marginal, form), spec.names)[0].parameters


@dataclass(frozen=True, slots=True)
class Measured:
    """How often a model is fitted, and how often each interval holds its coefficient then."""

    fitted: float
    holds: NDArray[np.float64]
    normal: NDArray[np.float64]
    runs: int


def fits(fit: Fit, estimates: Iterable[Estimate]) -> Iterator[Fitted]:
    """Yield a fit to each release; the formula is read only once."""
    first: Fitted | None = None
    for estimate in estimates:
        if first is None:
            first = core(fit(estimate))
        names = first.specification.released.schema.names
        table = estimate.marginal(names)
        specification = replace(first.specification, released=table, source=estimate)
        yield replace(first, specification=specification)


@dataclass(frozen=True, slots=True, eq=False)
class Many:
    """One model fitted to many releases at once: those that have a fit, and how many were tried.

    ``rows`` are the places of the former among the latter.
    """

    distance: Distance
    estimates: NDArray[np.float64]
    covariances: NDArray[np.float64]
    tried: int
    rows: NDArray[np.int64]

    def nearest(self, combination: NDArray[np.float64], value: float) -> Nearest:
        """Return the nearest coefficients whose combination has a value, for each release."""
        combinations = np.broadcast_to(combination, self.estimates.shape)
        values = np.full(len(self.estimates), value)
        shared = self.covariances @ combination
        origins = moved_to(self.estimates, combinations, values, shared)
        return self.distance.nearest(origins, free_of(combination[np.newaxis])[0])

    def p_values(self, places: Sequence[int]) -> list[float]:
        """Return p-values of the hypothesis that some coefficients are zero, where it is tested."""
        rows = np.eye(self.estimates.shape[1])[list(places)]
        shared = self.covariances @ rows.T
        off = np.linalg.solve(rows @ shared, self.estimates[:, places, np.newaxis])
        basis = null_space(rows)
        starts = (self.estimates - (shared @ off)[..., 0], self.estimates @ basis @ basis.T)
        near = [self.distance.nearest(start, basis) for start in starts]
        least = np.min([np.where(n.settled, n.distance, np.inf) for n in near], axis=0)
        for row in np.flatnonzero(np.isinf(least)).tolist():
            one = self.distance.rows(np.array(row))
            again = [one.searched(s[row], basis) for s in starts if one.equations.proper(s[row])]
            least[row] = min((n.distance[0] for n in again if n.settled[0]), default=np.inf)
        tested: list[float] = chdtrc(len(rows), least[np.isfinite(least)]).tolist()
        return tested


def together(fit: Fit, estimates: Iterable[Estimate]) -> Iterator[Many]:
    """Fit a model to many releases at once."""
    one_by_one = fits(fit, estimates)
    while several := list(islice(one_by_one, AT_ONCE)):
        distance = joined([fitted.distance for fitted in several])
        solutions = solve(distance, several[0].specification.names)
        rows = np.flatnonzero([solution.problem is None for solution in solutions])
        distance = distance.rows(rows)
        roots = np.array([solutions[row].parameters for row in rows])
        roots = roots.reshape(len(rows), distance.equations.parameters)
        slopes = np.linalg.inv(distance.equations.jacobian(roots, distance.shares))
        covariances = slopes @ distance.at(roots).covariance @ np.swapaxes(slopes, -1, -2)
        yield Many(distance, roots, covariances, len(several), rows)


def joined(distances: Sequence[Distance]) -> Distance:
    """Return the distances from many releases as one."""
    first = distances[0]
    forms = [(each.form.truth, each.form.uniform, each.form.shift) for each in distances]
    form = CovarianceForm(*np.array(forms).T[..., np.newaxis])
    shares, likely = (
        np.array([getattr(each, name) for each in distances]) for name in ("shares", "likely")
    )
    return Distance(first.equations, shares, likely, form)


def coverage(fit: Fit, estimates: Iterable[Estimate], true: NDArray[np.float64]) -> Measured:
    """Measure the distance of the true coefficients, and estimate ± 1.96 standard errors."""
    holds, normal, runs = [], [], 0
    for many in together(fit, estimates):
        runs += many.tried
        if not len(many.estimates):
            continue
        errors = np.sqrt(np.diagonal(many.covariances, axis1=-2, axis2=-1))
        normal.append(np.abs(many.estimates - true) <= CRITICAL * errors)
        nearest = [many.nearest(*each) for each in zip(np.eye(true.size), true, strict=True)]
        holds.append(np.array([~n.settled | (n.distance <= CRITICAL**2) for n in nearest]).T)
    if not holds:
        empty = np.full(true.size, np.nan)
        return Measured(0.0, empty, empty, runs)
    held = np.concatenate(holds)
    return Measured(len(held) / runs, held.mean(axis=0), np.concatenate(normal).mean(axis=0), runs)


def doubted(fit: Fit, estimates: Iterable[Estimate], combination: NDArray[np.float64]) -> float:
    """Return the share of the fits that warn of hidden cells, or of no end of an interval."""
    doubts = []
    for fitted in fits(fit, estimates):
        if fitted.converged:
            [ends] = fitted.profile.ends(combination[np.newaxis], CRITICAL)
            doubts.append(bool(fitted.hidden) or None in ends)
    return float(np.mean(doubts)) if doubts else 0.0


@dataclass(frozen=True, slots=True)
class Null:
    """A hypothesis, and shares for which it is true."""

    smaller: Fit
    larger: Fit
    shares: Callable[[], NDArray[np.float64]]

    def table(self, population: int) -> "TrueTable":
        """Return the shares as a table from which releases can be drawn."""
        return TrueTable(adult_table(24).schema, population, self.shares())


@dataclass(frozen=True, slots=True, eq=False)
class TrueTable:
    """Shares that need not be whole numbers of people."""

    schema: Schema
    population_size: int
    distribution: NDArray[np.float64]


def rejections(null: Null, estimates: Iterable[Estimate]) -> tuple[float, float]:
    """Return how often the hypothesis is rejected at 5%, and how often it can be tested."""
    both = list(estimates)
    p_values, basis = [], None
    for larger, smaller in zip(fits(null.larger, both), fits(null.smaller, both), strict=True):
        if basis is None:  # it does not depend on the release
            basis = comparison._embedding(larger, smaller)
        starts = [basis @ smaller.estimate] if smaller.converged else []
        with suppress(ModelError):
            p_values.append(comparison._test(larger, basis, starts, "").p_value)
    return float(np.mean(np.array(p_values) < 0.05)), len(p_values) / len(both)


def _without(effect: Callable[..., NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the Adult table with the outcome's chances replaced; axes e, m, g, salary."""
    joint = adult_table(24).distribution.reshape(3, 2, 2, 2)
    return effect(joint).reshape(-1)


def _no_marital_effect(joint: NDArray[np.float64]) -> NDArray[np.float64]:
    groups = joint.sum(axis=3)
    education, _, gender = np.meshgrid(range(3), range(2), range(2), indexing="ij")
    chance = expit(-1.6 + 1.1 * education - 0.9 * gender)
    return np.stack([groups * (1 - chance), groups * chance], axis=-1)


def _no_three_way(joint: NDArray[np.float64]) -> NDArray[np.float64]:
    education, marital, gender, salary = np.meshgrid(
        range(3), range(2), range(2), range(2), indexing="ij"
    )
    logs = (
        -0.5 * education
        + 0.4 * gender * (education == 1)
        - 1.5 * salary
        + 1.1 * salary * education
        - 1.3 * salary * gender
        - 0.3 * marital
    )
    shares: NDArray[np.float64] = softmax(logs.reshape(-1)).reshape(joint.shape)
    return shares


def _no_salary_effect(joint: NDArray[np.float64]) -> NDArray[np.float64]:
    others = joint.sum(axis=0)
    _, gender, _ = np.meshgrid(range(2), range(2), range(2), indexing="ij")
    first, second = expit(0.3 - 0.5 * gender), expit(2.4 - 0.5 * gender)
    return np.stack([others * first, others * (second - first), others * (1 - second)])


SCORES = {"education": [1.0, 2.0, 4.0]}
NULLS: dict[str, Null] = {
    "logistic": Null(
        lambda e: e.logistic("salary ~ gender + scores(education)"),
        lambda e: e.logistic("salary ~ gender + scores(education) + marital * gender"),
        lambda: _without(_no_marital_effect),
    ),
    "multinomial": Null(
        lambda e: e.multinomial("education ~ gender"),
        lambda e: e.multinomial("education ~ gender + salary"),
        lambda: _without(_no_salary_effect),
    ),
    "ordinal": Null(
        lambda e: e.ordinal("education ~ gender"),
        lambda e: e.ordinal("education ~ gender * salary"),
        lambda: _without(_no_salary_effect),
    ),
    "linear": Null(
        lambda e: e.regress("education ~ gender", scores=SCORES),
        lambda e: e.regress("education ~ gender + salary", scores=SCORES),
        lambda: _without(_no_salary_effect),
    ),
    "log-linear": Null(
        lambda e: e.loglinear("~ (gender + education + salary)**2"),
        lambda e: e.loglinear("~ gender * education * salary"),
        lambda: _without(_no_three_way),
    ),
}
