"""How two attributes go together: correlation, Cramér's V, mutual information."""

from collections.abc import Mapping, Sequence

import numpy as np

from veiltab.core.schema import Attribute
from veiltab.errors import ParameterError
from veiltab.estimates.independence import pair_table
from veiltab.estimates.inversion import associate
from veiltab.estimates.quantities import DELTA, Question
from veiltab.estimates.quantity import Quantity
from veiltab.estimates.released import Shares

FISHER = "Fisher's z, delta method"
Scores = Mapping[str, Sequence[float]]


def correlation(question: Question, x: str, y: str, scores: Scores | None) -> Quantity:
    """Estimate Pearson's correlation of two attributes with numeric scores."""
    pair = pair_table(question.released, x, y)
    label = f"correlation of {x} and {y}"
    first, second = (_scores(each, scores or {}) for each in pair.schema.attributes)
    left = np.repeat(first, second.size)
    right = np.tile(second, first.size)
    shares, uncertainty = pair.unbiased, pair.uncertainty(question.population)
    left, right = left - left @ shares, right - right @ shares
    for name, centred in ((x, left), (y, right)):
        spread = centred**2 @ shares
        if spread <= question.critical * float(uncertainty.total(centred**2)) ** 0.5:
            why = f"the variance of {name} cannot be told from zero, and would be divided by"
            return question.refuse(label, FISHER, why)
    left, right = left / (left**2 @ shares) ** 0.5, right / (right**2 @ shares) ** 0.5
    value = float((left * right) @ shares)
    influence = left * right - value * (left**2 + right**2) / 2
    parts = (uncertainty.total, uncertainty.sampling, uncertainty.privacy)
    total, sampling, privacy = (max(float(part(influence)), 0.0) ** 0.5 for part in parts)
    return _correlation_answer(question, label, value, (total, sampling, privacy))


def _correlation_answer(
    question: Question, label: str, value: float, errors: tuple[float, float, float]
) -> Quantity:
    """Return the interval on Fisher's scale, where there is one."""
    half = question.critical * errors[0]
    if abs(value) < 1:
        centre, half = np.arctanh(value), half / (1 - value**2)
        ends = float(np.tanh(centre - half)), float(np.tanh(centre + half))
        return question.answer(label, FISHER, value, errors, ends)
    beyond = f"the unbiased estimate, {value:.4g}, lies beyond ±1: noise"
    clipped = float(np.clip(value, -1, 1))
    ends = max(clipped - half, -1.0), min(clipped + half, 1.0)
    return question.answer(label, DELTA, clipped, errors, ends, beyond)


def _scores(attribute: Attribute, scores: Scores) -> Shares:
    """Return the number of each category: as given, or 0, 1, 2, … in their order."""
    given = np.asarray(scores.get(attribute.name, range(attribute.size)), dtype=np.float64)
    if given.shape != (attribute.size,) or not np.isfinite(given).all() or np.ptp(given) == 0:
        raise ParameterError(
            f"the scores of {attribute.name!r} are not {attribute.size} different finite numbers",
            hint=f"give one number for each of {', '.join(map(repr, attribute.categories[:10]))}",
        )
    return given


def cramers_v(question: Question, x: str, y: str) -> Quantity:
    """Estimate Cramér's V, from 0 (independent) to 1 (one attribute tells the other)."""
    pair = pair_table(question.released, x, y)
    sizes = pair.schema.sizes

    def measure(shares: Shares) -> Shares:
        return np.sqrt(np.minimum(_contingency(shares, sizes) / (min(sizes) - 1), 1))

    return associate(question, pair, f"Cramér's V of {x} and {y}", measure)


def mutual_information(question: Question, x: str, y: str) -> Quantity:
    """Estimate how many bits one attribute tells about the other."""
    pair = pair_table(question.released, x, y)

    def measure(shares: Shares) -> Shares:
        return np.maximum(_information(shares, pair.schema.sizes), 0)

    return associate(question, pair, f"mutual information of {x} and {y} (bits)", measure)


def _contingency(shares: Shares, sizes: tuple[int, ...]) -> Shares:
    """Return φ² = Σ (T − rc)²/(rc); cells of an empty row or column add nothing."""
    table = shares.reshape(*shares.shape[:-1], *sizes)
    expected = table.sum(axis=-1, keepdims=True) * table.sum(axis=-2, keepdims=True)
    terms = np.divide((table - expected) ** 2, expected, where=expected > 0, out=table * 0)
    total: Shares = terms.sum(axis=(-2, -1))
    return total


def _information(shares: Shares, sizes: tuple[int, ...]) -> Shares:
    """Return Σ T log₂(T/(rc)); empty cells add nothing."""
    table = shares.reshape(*shares.shape[:-1], *sizes)
    expected = table.sum(axis=-1, keepdims=True) * table.sum(axis=-2, keepdims=True)
    ratio = np.divide(table, expected, where=table > 0, out=np.ones_like(table))
    total: Shares = (table * np.log2(ratio)).sum(axis=(-2, -1))
    return total
