"""Separation: groups in which the noise hides whether anybody has an outcome at all.

Where nobody of a group has an outcome, the coefficients of the group are infinite.  The estimated
share of such a cell is noise: it is negative in about half of all releases, where there is no fit,
and positive in the others, where there is one that is finite by the noise alone.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from veiltab.core.released import Shares
from veiltab.core.uncertainty import Population
from veiltab.inference.conditions import describe
from veiltab.inference.models.equations import RegressionEquations
from veiltab.inference.models.solving import is_linear
from veiltab.inference.models.specification import Specification
from veiltab.inference.quantities import CLEARLY

MOST_NAMED = 3

HIDDEN = (
    "it is not clear from the noise that anybody is in {cells}: if nobody is, true coefficients are"
    " infinite (separation), and finite ones come from the noise alone"
)


@dataclass(frozen=True, slots=True)
class HiddenCell:
    """A group of a model's term, by attribute and category, and an outcome that it may lack."""

    group: Mapping[str, str]
    text: str


def hidden_cells(spec: Specification, population: Population) -> tuple[HiddenCell, ...]:
    """Return cells of the model's terms and its outcome that are not clearly above zero."""
    if is_linear(spec.equations):
        return ()
    form, hidden = spec.released.design(population).total, []
    for names in _category_terms(spec):
        shares, fractions = _cells(spec, names)
        errors = np.sqrt(np.maximum(form.of_sets(np.clip(shares, 0, 1), fractions), 0))
        places = np.argwhere(shares < CLEARLY * errors).tolist()
        hidden += [_hidden(spec, names, pattern, level) for pattern, level in places]
    return tuple(hidden)


def hidden_words(hidden: Sequence[HiddenCell]) -> tuple[str, ...]:
    """Warn of such cells."""
    if not hidden:
        return ()
    more = len(hidden) - MOST_NAMED
    named = "; ".join(cell.text for cell in hidden[:MOST_NAMED])
    return (HIDDEN.format(cells=named + (f"; and {more:,} others" if more > 0 else "")),)


def _category_terms(spec: Specification) -> Iterator[list[str]]:
    """Yield the attributes of each term that has categories alone."""
    for term in spec.read.terms:
        if all(variable.coding != "scores" for variable in term):
            yield [variable.name for variable in term]


def _cells(spec: Specification, names: list[str]) -> tuple[Shares, Shares]:
    """Return the shares of a term's patterns by outcome, and the parts of all cells they are of.

    There is a row for each pattern and a column for each level of the outcome; a log-linear model
    has no outcome, and one column.
    """
    sizes = spec.released.schema.sizes
    covariates = [attribute.name for attribute in spec.covariates]
    codes = np.indices(sizes).reshape(len(sizes), -1)
    pattern = np.zeros(codes.shape[1], dtype=np.int64)
    for axis in map(covariates.index, names):
        pattern = pattern * sizes[axis] + codes[axis]
    level, levels = np.zeros_like(pattern), 1
    if isinstance(spec.equations, RegressionEquations):
        kinds = np.asarray(spec.equations.levels)
        level, levels = np.tile(kinds, pattern.size // kinds.size), spec.equations.family.levels
    place, count = pattern * levels + level, (int(pattern.max()) + 1) * levels
    every = np.full(place.size, 1 / place.size)
    shares, fractions = (
        np.bincount(place, part, count).astype(np.float64).reshape(-1, levels)
        for part in (spec.released.unbiased, every)
    )
    return shares, fractions


def _hidden(spec: Specification, names: list[str], pattern: int, level: int) -> HiddenCell:
    """Write the condition that a cell stands for."""
    group = spec.released.schema.subset(names).labels(pattern) if names else ()
    parts = [describe(names, group)] if names else []
    if isinstance(spec.equations, RegressionEquations):
        outcome = spec.released.schema.names[len(spec.covariates) :]
        event = spec.predicted[level]
        plain = len(outcome) == 1 and event in spec.released.schema.attributes[-1].categories
        parts.append(describe(outcome, [event]) if plain else event)
    return HiddenCell(dict(zip(names, group, strict=True)), " and ".join(parts))
