"""What a model predicts for patterns of covariates, with intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, logit

from veiltab.core.released import Shares
from veiltab.core.schema import Attribute
from veiltab.core.uncertainty import critical_value
from veiltab.errors import ModelError
from veiltab.inference.distributions import WARNING
from veiltab.inference.models.equations import LogLinearEquations, RegressionEquations
from veiltab.inference.models.families import Scored
from veiltab.inference.models.fitted import Fitted
from veiltab.inference.models.formula import pattern_codes
from veiltab.inference.models.separation import hidden_words
from veiltab.inference.models.solving import is_linear

New = pl.DataFrame | Mapping[str, Any] | Sequence[Mapping[str, str]]

NUMBERS = ("prediction", "standard_error", "sampling_error", "privacy_error", "low", "high")
OUTCOME = "outcome"
NO_LOWER = "the interval has no lower limit above zero: the release does not exclude separation"
NO_UPPER = "the interval has no upper limit below one: the release does not exclude separation"
WIDENED = "the interval is put together from those of the predictors, and wider than needed"
SHORT = "the interval may be too short here: ask for fewer patterns at once to have a wider one"

MOST_WIDENED = 30
"""How many intervals of combinations are found for that: each can take a fifth of a second."""

MOST_ROWS = 1_000
"""How many patterns are predicted at once."""


def predict(fitted: Fitted, new: New | None) -> pl.DataFrame:
    """Return a row for each pattern of covariates and each predicted level."""
    codes = _codes(fitted.specification.covariates, new)
    if len(codes) > MOST_ROWS:
        raise ModelError(
            f"{len(codes):,} patterns are too many to be predicted at once",
            hint=f"give at most {MOST_ROWS:,} of them as `new`",
        )
    patterns = _patterns(fitted.specification.covariates, codes)
    hidden = _hidden_words(fitted, codes)
    names, values = _predictions(fitted, patterns, np.array([bool(words) for words in hidden]))
    levels = len(names)
    words = [
        "; ".join([*hidden[row // levels], *_limits(fitted, values[row])])
        for row in range(len(values))
    ]
    attributes = [
        pl.Series(
            _column(attribute.name),
            np.array(attribute.categories)[np.repeat(codes[:, place], levels)].tolist(),
            dtype=pl.Enum(attribute.categories),
        )
        for place, attribute in enumerate(fitted.specification.covariates)
    ]
    outcome = pl.Series(OUTCOME, list(names) * len(codes), dtype=pl.String)
    numbers = [
        pl.Series(name, [row[place] for row in values], dtype=pl.Float64)
        for place, name in enumerate(NUMBERS)
    ]
    warnings = pl.Series(WARNING, [text or None for text in words], dtype=pl.String)
    return pl.DataFrame([*attributes, outcome, *numbers, warnings])


def _column(name: str) -> str:
    return f"{name} (attribute)" if name in {*NUMBERS, OUTCOME, WARNING} else name


def _hidden_words(fitted: Fitted, codes: NDArray[np.int64]) -> list[tuple[str, ...]]:
    """Warn of each pattern in which the noise hides whether anybody has an outcome."""
    names = [attribute.name for attribute in fitted.specification.covariates]
    listed = []
    for row in codes:
        labels = [
            a.categories[i] for a, i in zip(fitted.specification.covariates, row, strict=True)
        ]
        pattern = set(zip(names, labels, strict=True))
        mine = [cell for cell in fitted.hidden_cells if set(cell.group.items()) <= pattern]
        listed.append(hidden_words(mine))
    more = _about_chances(fitted, sum(map(bool, listed)))
    return [(*words, *more) if words else () for words in listed]


def _about_chances(fitted: Fitted, patterns: int) -> tuple[str, ...]:
    """Say what becomes of the intervals of chances in so many hidden patterns."""
    equations = fitted.specification.equations
    if not isinstance(equations, RegressionEquations) or equations.family.predictors == 1:
        return ()
    return (WIDENED if _can_be_widened(equations, patterns) else SHORT,)


def _can_be_widened(equations: RegressionEquations, patterns: int) -> bool:
    """Tell whether intervals for so many hidden patterns are found in a few seconds."""
    return patterns * len(equations.family.contrasts) <= MOST_WIDENED


def _limits(fitted: Fitted, row: "Row") -> tuple[str, ...]:
    """Say where an interval has no end, or none but the limit of what is possible."""
    low, high = row[-2:]
    if is_linear(fitted.specification.equations):
        return fitted.limits(low, high)
    sides = [NO_LOWER] if low == 0 else []
    return (*sides, *([NO_UPPER] if high == 1 else []))


Row = tuple[float | None, ...]


def _predictions(
    fitted: Fitted, patterns: NDArray[np.int64], hidden: NDArray[np.bool_]
) -> tuple[Sequence[str], list[Row]]:
    """Return the names of the predicted levels, and a row of numbers for each pattern and level.

    ``hidden`` are the patterns in which the noise hides whether anybody has an outcome.
    """
    spec = fitted.specification
    equations = spec.equations
    if isinstance(equations, LogLinearEquations):
        return spec.predicted, _shares(fitted, equations, patterns)
    assert isinstance(equations, RegressionEquations)  # noqa: S101 - the only other kind
    if equations.family.predictors > 1:
        rows = _chances(fitted, equations, patterns)
        return spec.predicted, _widened(fitted, equations, rows, patterns, hidden)
    combinations = equations.design[patterns, 0]
    ends = fitted.profile.ends(combinations, critical_value(fitted.level))
    rows = [
        _single(fitted, equations, combination, low, high)
        for combination, (low, high) in zip(combinations, ends, strict=True)
    ]
    return spec.predicted[-1:], rows


def _single(
    fitted: Fitted,
    equations: RegressionEquations,
    combination: Shares,
    low: float | None,
    high: float | None,
) -> Row:
    """Predict by one predictor, whose interval is inverted as that of a coefficient."""
    middle = float(combination @ fitted.estimate)
    errors = fitted.linearised.errors(combination)
    if isinstance(equations.family, Scored):
        return middle, *errors, low, high
    chance = float(expit(middle))
    slope = chance * (1 - chance)
    ends = (0.0 if low is None else float(expit(low)), 1.0 if high is None else float(expit(high)))
    return chance, *(slope * error for error in errors), *ends


def _chances(
    fitted: Fitted, equations: RegressionEquations, patterns: NDArray[np.int64]
) -> list[Row]:
    """Predict the chances of several levels, by the delta method on the logit scale."""
    design = equations.design[patterns]
    predictors = design @ fitted.estimate
    chances = equations.family.means(predictors)
    slopes = equations.family.slopes(predictors) @ design
    return [
        _on_logits(fitted, float(chance), slope)
        for row, bent in zip(chances, slopes, strict=True)
        for chance, slope in zip(row, bent, strict=True)
    ]


def _widened(
    fitted: Fitted,
    equations: RegressionEquations,
    rows: list[Row],
    patterns: NDArray[np.int64],
    hidden: NDArray[np.bool_],
) -> list[Row]:
    """Widen the intervals of chances in hidden patterns, where the delta method is too short.

    The chance of a level follows from a few combinations of coefficients.  Intervals of these that
    hold all together (Bonferroni) give one that holds at least as often.
    """
    if not hidden.any() or not _can_be_widened(equations, int(hidden.sum())):
        return rows
    family, hold = equations.family, 1 - (1 - fitted.level) / equations.family.together
    designs = family.contrasts @ equations.design[patterns[hidden]]
    flat = designs.reshape(-1, equations.parameters)
    ends = fitted.profile.ends(flat, critical_value(hold))
    limits = np.array(ends, dtype=np.float64).reshape(len(designs), -1, 2)
    wide, levels = list(rows), family.levels
    for place, limit in zip(np.flatnonzero(hidden).tolist(), limits, strict=True):
        low, high = (
            np.where(np.isnan(end), without, end)
            for end, without in zip(limit.T, (-np.inf, np.inf), strict=True)
        )
        for level, least, most in zip(range(levels), *family.limits(low, high), strict=True):
            *numbers, first, last = rows[place * levels + level]
            assert first is not None  # noqa: S101 - chances have both ends
            assert last is not None  # noqa: S101 - as above
            wide[place * levels + level] = (*numbers, min(first, least), max(last, most))
    return wide


def _shares(
    fitted: Fitted, equations: LogLinearEquations, patterns: NDArray[np.int64]
) -> list[Row]:
    """Predict the shares of cells, by the delta method on the logit scale."""
    shares = equations.fitted(fitted.estimate)
    centred = equations.design - shares @ equations.design
    return [
        _on_logits(fitted, float(shares[cell]), shares[cell] * centred[cell]) for cell in patterns
    ]


def _on_logits(fitted: Fitted, chance: float, slope: Shares) -> Row:
    errors = fitted.linearised.errors(slope)
    spread = chance * (1 - chance)
    half = critical_value(fitted.level) * errors[0] / spread if spread > 0 else np.inf
    return chance, *errors, float(expit(logit(chance) - half)), float(expit(logit(chance) + half))


def _codes(attributes: Sequence[Attribute], new: New | None) -> NDArray[np.int64]:
    """Return the codes of the patterns that are asked for: all of them, or given rows."""
    if new is None:
        return pattern_codes(attributes)
    try:
        frame = _frame(new)
    except (TypeError, ValueError, pl.exceptions.PolarsError) as error:
        raise ModelError(
            "the rows to predict are not a table of categories",
            hint=f"write a row as in {{{attributes[0].name!r}: {attributes[0].categories[0]!r}}}"
            if attributes
            else "leave them out: the model has nothing but an intercept",
        ) from error
    missing = [attribute.name for attribute in attributes if attribute.name not in frame.columns]
    if missing:
        raise ModelError(
            f"the rows to predict have no column {missing[0]!r}",
            hint="give a category for every attribute on the right side of the formula",
        )
    columns = [_coded(attribute, frame[attribute.name].to_list()) for attribute in attributes]
    return np.array(columns, dtype=np.int64).reshape(len(attributes), frame.height).T


def _frame(new: New) -> pl.DataFrame:
    if isinstance(new, pl.DataFrame):
        return new
    if isinstance(new, Mapping):
        listed = {name: [v] if isinstance(v, str) else list(v) for name, v in new.items()}
        return pl.DataFrame(listed)
    return pl.DataFrame([dict(row) for row in new])


def _coded(attribute: Attribute, values: Sequence[Any]) -> list[int]:
    codes = {category: code for code, category in enumerate(attribute.categories)}
    unknown = [value for value in values if not isinstance(value, str) or value not in codes]
    if unknown:
        listed = ", ".join(map(repr, attribute.categories[:10]))
        raise ModelError(
            f"{attribute.name!r} has no category {unknown[0]!r}",
            hint=f"its categories are {listed}",
        )
    return [codes[value] for value in values]


def _patterns(attributes: Sequence[Attribute], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of each pattern."""
    numbers = np.zeros(len(codes), dtype=np.int64)
    for place, attribute in enumerate(attributes):
        numbers = numbers * attribute.size + codes[:, place]
    return numbers
