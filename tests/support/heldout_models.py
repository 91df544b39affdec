"""What is asked of models at the held-out settings, of many releases at once.

Tests compare the answers with those that users get, release by release.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from tests.support import models
from tests.support.heldout import HELD_OUT, HeldOut, Shares
from tests.support.heldout_measures import (
    LEVEL,
    Answer,
    Interval,
    Measured,
    frame,
    main_effects,
    of,
    whole,
)
from veiltab.core.resampling import apportion
from veiltab.core.schema import CountTable
from veiltab.errors import ModelError
from veiltab.estimates import Estimate, Quantity
from veiltab.inference.models.equations import LogLinearEquations, RegressionEquations


def three_levels(setting: HeldOut) -> bool:
    """Tell whether y has an order, and everybody can be in every cell."""
    return whole(setting, 3)


MODELS: dict[str, tuple[Callable[[HeldOut], models.Fit], Callable[[HeldOut], bool]]] = {
    "logistic": (lambda s: lambda e: e.logistic(main_effects(s)), whole),
    "multinomial": (lambda _: lambda e: e.multinomial("y ~ x"), three_levels),
    "ordinal": (lambda _: lambda e: e.ordinal("y ~ scores(x) + g"), three_levels),
    "linear regression": (lambda _: lambda e: e.regress("y ~ scores(x) + g"), lambda _: True),
    "log-linear": (lambda _: lambda e: e.loglinear("~ x * y"), whole),
}
"""Each model at a setting, and which settings suit it."""


@cache
def _exact(name: str) -> CountTable:
    setting = next(setting for setting in HELD_OUT if setting.name == name)
    return CountTable(setting.schema, apportion(setting.truth().reshape(-1), 10**9))


def true_coefficients(setting: HeldOut, fit: models.Fit) -> list[float]:
    """Return the coefficients that a release without noise of very many people would have."""
    table = _exact(setting.name)
    return list(map(float, models.truth(fit, setting.truth().reshape(-1), table)))


def measure_model(name: str, setting: HeldOut, runs: int, seed: int) -> Measured:
    """Fit a model to many releases; the coefficient whose coverage is farthest from 95% counts."""
    fit = MODELS[name][0](setting)
    true = np.array(true_coefficients(setting, fit))
    releases = setting.releases(runs, seed, "super")
    measured = models.coverage(fit, map(setting.estimate, releases), true)
    if not measured.fitted:
        return _of_models(name, setting, [], runs)
    worst = int(np.abs(measured.holds - 0.95).argmax())
    combination = np.eye(true.size)[worst]
    doubted = models.doubted(fit, map(setting.estimate, releases[:DOUBTS]), combination)
    row = _of_models(name, setting, [], runs)
    rate = float(measured.holds[worst])
    return replace(row, rate=rate, given=measured.fitted, doubted=doubted)


DOUBTS = 200
"""In how many of the first releases it is counted whether a fit says that it may be rough."""


def _of_models(name: str, setting: HeldOut, hits: Sequence[bool], runs: int) -> Measured:
    """Return how many of the releases with a fit have an interval that holds."""
    rate = float(np.mean(hits)) if hits else None
    given = len(hits) / runs
    return Measured(setting=setting.name, name=name, rate=rate, given=given, doubted=0, runs=runs)


def _saturated(setting: HeldOut) -> str:
    """Return the formula of a model that any table fulfils."""
    return f"y == '{setting.sizes[1] - 1}' ~ x * g"


def _contrast(setting: HeldOut) -> dict[str, float]:
    """Return the effect of the last category of x, in the last group."""
    x, group = setting.sizes[0] - 1, setting.schema.attributes[2].categories[-1]
    return {f"x[T.{x}]": 1.0, f"x[T.{x}]:g[T.{group}]": 1.0}


def _log_odds(shares: Shares) -> float:
    return float(np.log(shares[-1] / shares[:-1].sum()))


def _fitted(ask: Callable[[Estimate, HeldOut], Answer]) -> Callable[[Estimate, HeldOut], Answer]:
    """Give no answer where a model has no fit."""

    def answered(estimate: Estimate, setting: HeldOut) -> Answer:
        try:
            return ask(estimate, setting)
        except ModelError:
            return [(None, True)]

    return answered


PREDICTIONS: tuple[Interval, ...] = (
    Interval(
        "prediction",
        _fitted(lambda e, s: frame(e.logistic(_saturated(s)).predict({"x": "0", "g": "group 1"}))),
        lambda t, _: [float(t[0, -1, 1] / t[0, :, 1].sum())],
        suits=whole,
    ),
    Interval(
        "contrast",
        lambda e, s: of(cast("Quantity", e.logistic(_saturated(s)).contrast(_contrast(s)))),
        lambda t, _: [_log_odds(t[-1, :, -1]) - _log_odds(t[0, :, -1])],
        suits=whole,
    ),
    Interval(
        "chance of a category",
        _fitted(lambda e, s: frame(MODELS["multinomial"][0](s)(e).predict(_pattern(s, "x"))[-1:])),
        lambda t, _: [float(t[-1, -1].sum() / t[-1].sum())],
        suits=three_levels,
    ),
    Interval(
        "fitted share",
        _fitted(lambda e, s: frame(MODELS["log-linear"][0](s)(e).predict(_pattern(s, "x", "y")))),
        lambda t, _: [float(t[-1, -1].sum())],
        suits=whole,
    ),
)
"""What is asked of fitted models, as users ask it."""


def _pattern(setting: HeldOut, *names: str) -> dict[str, str]:
    """Return the last category of each attribute."""
    return {name: setting.schema.subset([name]).attributes[0].categories[-1] for name in names}


INCLUDED = frozenset({"Intercept", "g[T.group 1]"})
"""The coefficients of the first category of x in the second group."""

COMBINATIONS: dict[str, Callable[[HeldOut, Sequence[str]], dict[str, float]]] = {
    "prediction": lambda _, terms: {name: 1.0 for name in terms if name in INCLUDED},
    "contrast": lambda s, _: _contrast(s),
}
"""What is asked of the saturated model, as a combination of its coefficients."""


def measure_combination(name: str, setting: HeldOut, runs: int, seed: int) -> Measured:
    """Ask for a combination of coefficients of the saturated model in many releases at once."""
    fit: models.Fit = lambda e: e.logistic(_saturated(setting))  # noqa: E731 - as those above
    releases = setting.releases(runs, seed, "super")
    terms = fit(setting.estimate(releases[0])).terms
    weights = COMBINATIONS[name](setting, terms)
    combination = np.array([weights.get(term, 0.0) for term in terms])
    true = float(combination @ true_coefficients(setting, fit))
    hits: list[bool] = []
    for many in models.together(fit, map(setting.estimate, releases)):
        near = many.nearest(combination, true)
        hits += (~near.settled | (near.distance <= models.CRITICAL**2)).tolist()
    return replace(_of_models(name, setting, hits, runs), doubted=_doubted(name, setting, releases))


def _doubted(name: str, setting: HeldOut, releases: NDArray[np.int64]) -> float:
    """Return how many of the answers of the first releases say that they may be rough."""
    [what] = [each for each in PREDICTIONS if each.name == name]
    answers = [what.ask(setting.estimate(counts), setting) for counts in releases[:DOUBTS]]
    doubts = [doubt for answer in answers for ends, doubt in answer if ends is not None]
    return float(np.mean(doubts)) if doubts else 0.0


DELTA = {"chance of a category": "multinomial", "fitted share": "log-linear"}
"""What is predicted with an interval by the delta method, and by which model."""


def measure_delta(name: str, setting: HeldOut, runs: int, seed: int) -> Measured:
    """Predict a chance or a share, whose interval is by the delta method, in many releases at once.

    Where the noise hides an outcome, the interval of a chance holds that of the delta method; so it
    is asked for only where that misses.
    """
    fit = MODELS[DELTA[name]][0](setting)
    [what] = [each for each in PREDICTIONS if each.name == name]
    [truth] = what.truth(setting.truth(), setting)
    releases, before = setting.releases(runs, seed, "super"), 0
    hits: list[bool] = []
    for many in models.together(fit, map(setting.estimate, releases)):
        values, slopes = _predicted(many)
        errors = np.sqrt(np.einsum("ri,rij,rj->r", slopes, many.covariances, slopes))
        apart = np.abs(logit(values) - logit(truth)) * values * (1 - values)
        for row, held in zip(many.rows.tolist(), apart <= models.CRITICAL * errors, strict=True):
            [(ends, _)] = (
                [((0, 1), False)]
                if held
                else what.ask(setting.estimate(releases[before + row]), setting)
            )
            assert ends is not None
            hits.append(ends[0] <= truth <= ends[1])
        before += many.tried
    first = models.fits(fit, map(setting.estimate, releases[:DOUBTS]))
    pattern = set(_pattern(setting, *setting.schema.names).items())
    doubts = [
        any(set(cell.group.items()) <= pattern for cell in fitted.hidden_cells)
        for fitted in first
        if fitted.converged
    ]
    doubted = float(np.mean(doubts)) if doubts else 0.0
    return replace(_of_models(name, setting, hits, runs), doubted=doubted)


def _predicted(many: models.Many) -> tuple[Shares, Shares]:
    """Return the last chance of the last pattern, or the share of the last cell, and its slopes."""
    equations = many.distance.equations
    if isinstance(equations, LogLinearEquations):
        shares = equations.fitted(many.estimates)
        centred = equations.design[-1] - shares @ equations.design
        return shares[:, -1], shares[:, -1:] * centred
    assert isinstance(equations, RegressionEquations)
    predictors = equations.predictors(many.estimates)[:, -1]
    slopes: NDArray[np.float64] = equations.family.slopes(predictors)[:, -1] @ equations.design[-1]
    return equations.family.means(predictors)[:, -1], slopes


def measure_effect(name: str, setting: HeldOut, runs: int, seed: int) -> Measured:
    """Test whether x has an effect in a logistic regression, in many releases at once."""
    fit: models.Fit = lambda e: e.logistic(main_effects(setting))  # noqa: E731 - as those above
    releases = setting.releases(runs, seed, "super", "independent within")
    places = models.core(fit(setting.estimate(releases[0]))).specification.terms["x"]
    rejected: list[bool] = []
    for many in models.together(fit, map(setting.estimate, releases)):
        rejected += [p_value <= LEVEL for p_value in many.p_values(places)]
    return _of_models(name, setting, rejected, runs)


BY_MODELS = {
    **dict.fromkeys(MODELS, measure_model),
    **dict.fromkeys(COMBINATIONS, measure_combination),
    **dict.fromkeys(DELTA, measure_delta),
    "effect in a model": measure_effect,
}
"""What is asked of models, of many releases at once."""
