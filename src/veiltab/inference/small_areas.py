"""Shares in small areas, by the model of Fay and Herriot (1979).

The direct estimate of an area is y = θ + e, with the known covariance D of the errors e, from
sampling and noise.  The true shares θ vary around Xβ with a variance A between areas.  A and β are
estimated from all areas, and θ is predicted by

    θ̂ = Xβ̂ + A V⁻¹ (y − Xβ̂),      V = A I + D,

which leans on the direct estimate where that is precise, and on the other areas where it is not.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import stdtrit

from veiltab.core.released import Shares
from veiltab.core.schema import Attribute
from veiltab.errors import ParameterError
from veiltab.inference.conditions import Condition
from veiltab.inference.quantities import Question
from veiltab.inference.wording import beyond

Chosen = NDArray[np.bool_]
Covariates = Mapping[str, Mapping[str, float]] | pl.DataFrame

CLEAR = 2.0
"""Half-widths of its interval by which an area's share must exceed zero for a direct estimate."""

SPARE = 4
"""How many areas there must be beyond the coefficients of the model."""

MOST_AREAS = 1_000
FITS = 3
"""How often variances are computed again at the rates that the model predicts."""

INSIDE = 1e-3
"""Rates at which variances are computed stay so far from 0 and 1."""

GRID = 80
MOST_FREEDOM = 1e6
"""With more degrees of freedom Student's law is the normal one."""


SYNTHETIC = (
    "the share of this area cannot be told from zero clearly enough: the number is that of the"
    " model alone"
)


def small_areas(
    question: Question, event: Condition, area: str, covariates: Covariates | None
) -> pl.DataFrame:
    """Return a row per area with its direct estimate, the model's, and its interval."""
    schema = question.released.schema
    attribute = schema.subset([area]).attributes[0]
    if attribute.size > MOST_AREAS:
        raise ParameterError(
            f"{area!r} has {attribute.size:,} categories", hint=f"use at most {MOST_AREAS:,} areas"
        )
    areas = _Areas.of(question, event, area)
    matrix = _covariate_matrix(covariates, attribute)
    clear = areas.clear(question.critical)
    needed = SPARE + matrix.shape[1]
    if np.count_nonzero(clear) < needed:
        raise ParameterError(
            f"{np.count_nonzero(clear):,} of {clear.size:,} areas can be told from zero, and a"
            f" model of areas needs at least {needed}",
            hint="use probability(event, given=…) for single areas, or merge small areas",
        )
    _check_rank(matrix[clear])
    return _frame(attribute, _predict(areas, clear, matrix), question.level)


def _predict(areas: "_Areas", clear: Chosen, matrix: Shares) -> "_Predictions":
    """Fit the model and predict all areas; those without a direct estimate get the model's own."""
    direct = areas.direct(clear)
    rates = np.full(clear.size, np.clip(areas.overall(clear), INSIDE, 1 - INSIDE))
    for _ in range(FITS):
        covariance = areas.covariance(rates, clear)
        model = _fit(direct, covariance, matrix[clear])
        rates = matrix @ model.coefficients
        rates[clear] = model.predictions
        rates = np.clip(rates, INSIDE, 1 - INSIDE)
    spread = model.between + np.einsum("ij,jk,ik->i", matrix, model.covariance, matrix)
    values, errors, weights = matrix @ model.coefficients, np.sqrt(spread), np.zeros(clear.size)
    values[clear], errors[clear], weights[clear] = model.predictions, model.errors, model.weights
    shown, shown_errors = np.full(clear.size, np.nan), np.full(clear.size, np.nan)
    shown[clear], shown_errors[clear] = np.clip(direct, 0, 1), np.sqrt(np.diag(covariance))
    return _Predictions(
        clear,
        shown,
        shown_errors,
        values,
        errors,
        weights,
        model.between,
        _freedom(model, errors, weights),
    )


def _freedom(model: "_Model", errors: Shares, weights: Shares) -> Shares:
    """Return Student's degrees of freedom for each area, because A is estimated (Satterthwaite).

    The squared error of a prediction grows with A by (1 − weight)².  There are at least as many
    degrees of freedom as areas beyond the coefficients.
    """
    spread = (1 - weights) ** 4 * model.between_variance
    areas = model.predictions.size - model.coefficients.size
    freedom: Shares = np.maximum(2 * errors**4 / np.maximum(spread, 1e-300), areas)
    return np.minimum(freedom, MOST_FREEDOM)


@dataclass(frozen=True, slots=True, eq=False)
class _Areas:
    """Areas in two parts each: those who meet the event, and the others."""

    question: Question
    shares: Shares
    fractions: Shares

    @classmethod
    def of(cls, question: Question, event: Condition, area: str) -> "_Areas":
        """Count both parts of each area, in people and in cells."""
        released = question.released
        schema, design = released.schema, question.design
        size = schema.subset([area]).domain_size
        codes = schema.codes(np.arange(schema.domain_size))[schema.names.index(area)]
        part = 2 * codes.astype(np.int64) + ~event.mask
        cells = np.bincount(part, minlength=2 * size).astype(np.float64)
        if (cells == 0).any():
            raise ParameterError(
                f"the condition {event.text} decides about whole areas",
                hint=f"ask for a condition that some and not all may meet in each {area}",
            )
        counts = np.bincount(part, released.counts, 2 * size).astype(np.int64)
        shares = np.asarray(design.estimate_sets(counts, cells), dtype=np.float64)
        return cls(question, shares.reshape(size, 2), cells.reshape(size, 2) / part.size)

    @property
    def whole(self) -> Shares:
        """The share of each area."""
        summed: Shares = self.shares.sum(axis=1)
        return summed

    def clear(self, critical: float) -> Chosen:
        """Tell which areas are clear of zero."""
        likely = np.clip(self.whole, 0, 1)
        variances = self.question.design.total.of_sets(likely, self.fractions.sum(axis=1))
        clear: Chosen = self.whole > CLEAR * critical * np.sqrt(np.maximum(variances, 0))
        return clear

    def direct(self, clear: Chosen) -> Shares:
        """Return the share of the event in each area that is clear of zero."""
        ratio: Shares = self.shares[clear, 0] / self.whole[clear]
        return ratio

    def overall(self, clear: Chosen) -> float:
        """Return the share of the event in all these areas together."""
        return float(self.shares[clear, 0].sum() / self.whole[clear].sum())

    def covariance(self, rates: Shares, clear: Chosen) -> Shares:
        """Return the covariance of the direct estimates if areas had these rates.

        The direct estimate of an area would make it look more precise where it is near zero by
        chance, and the rate of all areas less precise where areas differ widely.  So rates are
        those that the model predicts.
        """
        likely = np.clip(self.whole, 0, 1)
        likely = likely / likely.sum()
        parts = np.stack([likely * rates, likely * (1 - rates)], axis=1).reshape(-1)
        fractions, design = self.fractions.reshape(-1), self.question.design
        kept = np.flatnonzero(clear)
        gradients = np.zeros((kept.size, parts.size))
        rows = np.arange(kept.size)
        gradients[rows, 2 * kept] = (1 - rates[kept]) / self.whole[kept]
        gradients[rows, 2 * kept + 1] = -rates[kept] / self.whole[kept]
        covariance: Shares = gradients @ design.total.of_partition(parts, fractions) @ gradients.T
        return (covariance + covariance.T) / 2


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """The fitted model: coefficients, A, their variances, predictions and their errors."""

    coefficients: Shares
    covariance: Shares
    between: float
    between_variance: float
    predictions: Shares
    errors: Shares
    weights: Shares


@dataclass(frozen=True, slots=True, eq=False)
class _Predictions:
    """All areas: which have a direct estimate, that with its error, and the model's."""

    clear: Chosen
    direct: Shares
    direct_errors: Shares
    values: Shares
    errors: Shares
    weights: Shares
    between: float
    freedom: Shares


def _fit(direct: Shares, errors: Shares, matrix: Shares) -> _Model:
    """Fit the model, with the mean squared errors of Prasad and Rao (1990), in matrix form."""
    between = _between_variance(direct, errors, matrix)
    inverse = np.linalg.inv(errors + between * np.eye(direct.size))
    covariance = np.linalg.inv(matrix.T @ inverse @ matrix).astype(np.float64)
    coefficients = covariance @ (matrix.T @ inverse @ direct)
    weights = between * inverse
    predictions = matrix @ coefficients + weights @ (direct - matrix @ coefficients)
    synthetic = errors @ inverse
    known = np.diag(weights @ errors)
    slope = np.diag(synthetic @ matrix @ covariance @ matrix.T @ synthetic.T)
    doubt = np.diag(inverse @ errors @ inverse @ errors @ inverse)
    variance = 2 / float((inverse**2).sum())
    squares = np.maximum(known + slope + 2 * doubt * variance, 0)
    return _Model(
        coefficients,
        covariance,
        between,
        variance,
        predictions,
        np.sqrt(squares),
        np.diag(weights).copy(),
    )


def _between_variance(direct: Shares, errors: Shares, matrix: Shares) -> float:
    """Estimate A by the adjusted residual likelihood of Yoshimori and Lahiri (2014).

    The factor arctan(Σ A/(A + D))^(1/areas) keeps it above zero, and changes nothing in the limit
    of many areas.
    """
    values, vectors = np.linalg.eigh(errors)
    values = np.maximum(values, values.max() * 1e-12)
    turned, columns = vectors.T @ direct, vectors.T @ matrix

    from scipy.optimize import minimize_scalar  # noqa: PLC0415 - slow to load, and seldom needed

    def minus_log(log_between: float) -> float:
        between = float(np.exp(log_between))
        variances = between + values
        information = columns.T @ (columns / variances[:, np.newaxis])
        slopes = np.linalg.solve(information, columns.T @ (turned / variances))
        left = turned - columns @ slopes
        fit = np.log(variances).sum() + np.linalg.slogdet(information)[1]
        fit += float((left**2 / variances).sum())
        adjusted = np.log(np.arctan((between / variances).sum())) / direct.size
        return float(fit / 2 - adjusted)

    low, high = float(values.min()) * 1e-4, 10 * (float(values.max()) + float(direct.var()) + 1e-12)
    grid = np.linspace(np.log(low), np.log(high), GRID)
    best = int(np.argmin([minus_log(point) for point in grid]))
    bounds = grid[max(best - 1, 0)], grid[min(best + 1, GRID - 1)]
    found = minimize_scalar(minus_log, bounds=bounds, method="bounded")
    return float(np.exp(found.x))


def _covariate_matrix(covariates: Covariates | None, attribute: Attribute) -> Shares:
    """Return a column of ones and one per covariate, scaled, with a row per area."""
    columns = [np.ones(attribute.size)]
    for name, values in _columns(covariates, attribute.name):
        numbers = np.array([values.get(area, np.nan) for area in attribute.categories], dtype=float)
        if not np.isfinite(numbers).all() or len(values) != attribute.size:
            raise ParameterError(
                f"the covariate {name!r} is not one finite number for each area",
                hint=f"give it for every category of {attribute.name!r}, and for no other",
            )
        spread = float(numbers.std()) or 1.0
        columns.append((numbers - numbers.mean()) / spread)
    return np.stack(columns, axis=1)


def _columns(covariates: Covariates | None, area: str) -> Sequence[tuple[str, Mapping[str, float]]]:
    if covariates is None:
        return []
    if not isinstance(covariates, pl.DataFrame):
        if all(isinstance(values, Mapping) for values in covariates.values()):
            return list(covariates.items())
        raise ParameterError(
            "the covariates are not mappings from areas to numbers",
            hint="as in {'unemployment': {'north': 0.07, 'south': 0.05}}",
        )
    if area not in covariates.columns:
        raise ParameterError(
            f"the frame of covariates has no column {area!r}", hint="name the areas in a column"
        )
    areas = covariates[area].cast(pl.String).to_list()
    others = [name for name in covariates.columns if name != area]
    return [(name, dict(zip(areas, covariates[name].to_list(), strict=True))) for name in others]


def _check_rank(matrix: Shares) -> None:
    if np.linalg.matrix_rank(matrix) < matrix.shape[1]:
        raise ParameterError(
            "a covariate is the same in all areas, or follows from the others",
            hint="leave it out",
        )


def _frame(attribute: Attribute, areas: "_Predictions", level: float) -> pl.DataFrame:
    """Return a row per area; a number beyond 0..1 has the interval around the nearest end."""
    margin = stdtrit(areas.freedom, (1 + level) / 2) * areas.errors
    shown = np.clip(areas.values, 0, 1)
    columns = {
        "direct": areas.direct,
        "direct_error": areas.direct_errors,
        "model": shown,
        "model_error": areas.errors,
        "low": np.clip(shown - margin, 0, 1),
        "high": np.clip(shown + margin, 0, 1),
        "weight": areas.weights,
        "between": np.full(attribute.size, areas.between**0.5),
    }
    name = attribute.name
    while name in (*columns, "note"):
        name += " (attribute)"
    return pl.DataFrame(
        [
            pl.Series(name, attribute.categories, dtype=pl.Enum(attribute.categories)),
            *(pl.Series(key, column).fill_nan(None) for key, column in columns.items()),
            pl.Series("note", _notes(areas), dtype=pl.String),
        ]
    )


def _notes(areas: "_Predictions") -> list[str | None]:
    """Say where a number is the model's alone, and where the noise has taken it beyond 0..1."""
    words = [
        "; ".join([*([] if clear else [SYNTHETIC]), *beyond(float(value))])
        for clear, value in zip(areas.clear, areas.values, strict=True)
    ]
    return [text or None for text in words]
