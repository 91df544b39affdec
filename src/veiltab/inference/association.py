"""Measures of association: Pearson's correlation, Cramér's V and mutual information."""

from collections.abc import Callable

import numpy as np

from veiltab.core.released import ReleasedCounts, Shares
from veiltab.errors import ParameterError
from veiltab.inference.correlation import estimate_correlation
from veiltab.inference.independence import pair_table
from veiltab.inference.quantities import CLEARLY, Quantity, Question
from veiltab.inference.scores import NamedScores, check_named_scores, ordered_scores
from veiltab.inference.strength import (
    Clarity,
    Strength,
    clear_categories,
    contingency_strength,
    information_strength,
)

SECOND_ORDER = "law of the estimate to second order, Feldman–Cousins"
FIELLER = "Fieller, within −1..1"

MOST_CELLS = 10_000
MOST_WORK = 400_000_000
"""Cells times the square of all categories: about ten seconds of work."""

NOT_EXCLUDED = "it cannot be distinguished from zero: independence is not excluded"

CAUTIOUS = (
    "some cells are nearly empty: how skew the estimate is cannot be known well, and the interval"
    " is wider than needed on its shorter side"
)

Estimator = Callable[[Shares, Clarity], Strength]


def cramers_v(question: Question, x: str, y: str) -> Quantity:
    """Estimate Cramér's V, from 0 (independence) to 1 (one attribute determines the other)."""
    pair = _sized_pair(question, x, y)
    most = min(pair.schema.sizes) - 1

    def estimate(tables: Shares, clarity: Clarity) -> Strength:
        return contingency_strength(
            tables, pair.design(question.population), clarity, question.critical
        )

    def scale(theta: float) -> float:
        return float(np.sqrt(min(max(theta, 0.0) / most, 1.0)))

    def error(theta: float, spread: float) -> float:
        """Return the error of the root; near zero that of an estimate one error above it."""
        return spread / most / (2 * scale(max(theta, spread)))

    label = f"Cramér's V of {x} and {y}"
    return _associate(question, pair, label, estimate, (scale, error))


def mutual_information(question: Question, x: str, y: str) -> Quantity:
    """Estimate the mutual information in bits."""
    pair = _sized_pair(question, x, y)

    def estimate(tables: Shares, clarity: Clarity) -> Strength:
        return information_strength(
            tables, pair.design(question.population), clarity, question.critical
        )

    def scale(theta: float) -> float:
        return float(max(theta, 0.0) / np.log(2))

    def error(_: float, spread: float) -> float:
        return scale(spread)

    label = f"mutual information of {x} and {y} (bits)"
    return _associate(question, pair, label, estimate, (scale, error))


def _sized_pair(question: Question, x: str, y: str) -> ReleasedCounts:
    """Return the table of two attributes, unless it is too large."""
    pair = pair_table(question.released, x, y)
    cells, categories = pair.schema.domain_size, sum(pair.schema.sizes)
    if cells > MOST_CELLS or cells * categories**2 > MOST_WORK:
        raise ParameterError(
            f"a table of {cells:,} cells is too large for a measure of association",
            hint=f"use attributes with at most {MOST_CELLS:,} joint cells, and fewer if one of"
            " them has hundreds of categories",
        )
    return pair


def _associate(
    question: Question,
    pair: ReleasedCounts,
    label: str,
    estimate: Estimator,
    scales: tuple[Callable[[float], float], Callable[[float, float], float]],
) -> Quantity:
    """Estimate a measure of association that cannot be negative."""
    tables = pair.unbiased.reshape(1, *pair.schema.sizes)
    rows, columns = clear_categories(tables, pair.design(question.population))
    clarity = Clarity(rows[0], columns[0])
    unclear = _unclear(pair, clarity)
    if not clarity.enough:
        return question.refuse(label, SECOND_ORDER, unclear)
    found = estimate(tables, clarity)
    scale, error = scales
    low, value, high = (
        scale(float(number[0])) for number in (found.interval.low, found.value, found.interval.high)
    )
    total, private = error(float(found.value[0]), float(found.error[0])), float(found.privacy[0])
    errors = total, total * (1 - private) ** 0.5, total * private**0.5
    warnings = [] if low > 0 else [NOT_EXCLUDED]
    if found.cautious[0]:
        warnings.append(CAUTIOUS)
    if not clarity.all:
        warnings.append(
            f"{unclear}: it is counted with the most frequent one, and the upper end allows for"
            " any distribution within it"
        )
    return question.answer(label, SECOND_ORDER, value, errors, (low, high), *warnings)


def _unclear(pair: ReleasedCounts, clarity: Clarity) -> str:
    """Say which categories are not clearly there."""
    names = [
        f"{attribute.name} = {category!r}"
        for attribute, clear in zip(
            pair.schema.attributes, (clarity.rows, clarity.columns), strict=True
        )
        for category, is_clear in zip(attribute.categories, clear, strict=True)
        if not is_clear
    ]
    shown = ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")  # noqa: PLR2004 - a short list
    return f"the share of {shown} cannot be clearly distinguished from zero"


def correlation(question: Question, x: str, y: str, scores: NamedScores | None) -> Quantity:
    """Estimate Pearson's correlation of two attributes with numeric scores."""
    pair = pair_table(question.released, x, y)
    label = f"correlation of {x} and {y}"
    named = check_named_scores(scores, question.released.schema, (x, y))
    first, second = (ordered_scores(attribute, named) for attribute in pair.schema.attributes)
    tables = pair.unbiased.reshape(1, *pair.schema.sizes)
    design = pair.design(question.population)
    found = estimate_correlation(tables, design, (first, second), question.critical)
    clearness = found.clearness[0] / question.critical
    for name, clear in zip((x, y), clearness, strict=True):
        if clear <= 1:
            why = f"the variance of {name}, a denominator, cannot be distinguished from zero"
            return question.refuse(label, FIELLER, why)
    ends = float(found.interval.low[0]), float(found.interval.high[0])
    plain, total, privacy = (
        float(number[0]) for number in (found.value, found.error, found.privacy_error)
    )
    warnings = []
    if abs(plain) > 1:
        warnings.append(f"the unbiased estimate is {plain:.4g}, outside −1..1 because of the noise")
    if clearness.min() < CLEARLY:
        warnings.append(_doubtful(ends))
    errors = total, max(total**2 - privacy**2, 0.0) ** 0.5, privacy
    value = float(np.clip(plain, -1, 1))
    return question.answer(label, FIELLER, value, errors, ends, *warnings)


def _doubtful(ends: tuple[float, float]) -> str:
    """Say that a variance is uncertain, and which end of the interval still says something."""
    text = "the variance of an attribute is itself uncertain: the interval is wide and rough"
    if ends == (-1.0, 1.0):
        return f"{text}, and excludes nothing"
    if ends[0] == -1:
        return f"{text}, and only its upper end says something"
    if ends[1] == 1:
        return f"{text}, and only its lower end says something"
    return text
