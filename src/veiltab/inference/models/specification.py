"""Which model: its table, its equations, and the names of its parameters."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.special import logit

from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.schema import Attribute, Schema
from veiltab.errors import FormulaError, ParameterError
from veiltab.inference.conditions import quote, quote_name, read_condition, suggest
from veiltab.inference.models.equations import (
    Equations,
    LogLinearEquations,
    RegressionEquations,
)
from veiltab.inference.models.families import Family, Multinomial, ProportionalOdds, Scored
from veiltab.inference.models.formula import (
    INTERCEPT,
    Columns,
    Formula,
    columns,
    read_formula,
)
from veiltab.inference.scores import NamedScores, ordered_scores

MOST_CELLS = 100_000
"""The largest table that a model is fitted to."""

MOST_NUMBERS = 20_000_000
"""How many numbers the design of a model may have: patterns × predictors × parameters."""


@dataclass(frozen=True, eq=False)
class Specification:
    """A model of the cells of ``released``, which has the model's attributes alone.

    ``covariates`` come first among the attributes; ``predicted`` are the names of what a regression
    predicts.  ``terms`` has the numbers of the parameters of each term of the formula.
    """

    model: str
    formula: str
    outcome: str
    released: ReleasedCounts
    covariates: tuple[Attribute, ...]
    predicted: tuple[str, ...]
    equations: Equations
    names: tuple[str, ...]
    terms: dict[str, list[int]]
    scores: NamedScores
    source: ReleasedCounts
    read: Formula
    arrange: "Arrange"

    def design_of(self, smaller: "Specification") -> Shares | None:
        """Return the design of another model on this one's patterns: a row per predictor.

        None if the other one uses an attribute that this one has not.
        """
        if not set(smaller.read.names) <= {attribute.name for attribute in self.covariates}:
            return None
        made = columns(smaller.read, self.covariates, smaller.scores)
        return self.arrange(made)[0].reshape(-1, smaller.equations.parameters)


Arranged = tuple[Shares, tuple[str, ...], dict[str, list[int]]]
"""A design with the axes pattern, predictor and parameter; the parameters' names, and by term."""
Arrange = Callable[[Columns], Arranged]


@dataclass(frozen=True, slots=True, eq=False)
class _Outcome:
    """The left side: its attributes, the level of each of their cells, and words."""

    attributes: tuple[str, ...]
    levels: Any
    text: str
    names: tuple[str, ...]


def logistic(
    released: ReleasedCounts, text: str, event: str | None, scores: NamedScores
) -> Specification:
    """Specify a logistic regression of an event."""
    formula = read_formula(text, released.schema)
    outcome = _event(formula, released.schema, event)
    _check_used(formula, scores)
    family, model = Multinomial(2), "logistic regression"
    return _regression(model, released, formula, outcome, family=family, scores=scores)


def multinomial(released: ReleasedCounts, text: str, scores: NamedScores) -> Specification:
    """Specify logits of each category of the outcome against the first one."""
    formula, outcome = _categories(released, text)
    _check_used(formula, scores)
    family, model = Multinomial(len(outcome.names)), "multinomial regression"
    return _regression(model, released, formula, outcome, family=family, scores=scores)


def ordinal(released: ReleasedCounts, text: str, scores: NamedScores) -> Specification:
    """Specify proportional odds for an outcome with ordered categories."""
    formula, outcome = _categories(released, text)
    _check_intercept(formula, "thresholds take the place of the intercept")
    _check_used(formula, scores)
    family, model = ProportionalOdds(len(outcome.names)), "ordinal regression, proportional odds"
    return _regression(model, released, formula, outcome, family=family, scores=scores)


def linear(released: ReleasedCounts, text: str, scores: NamedScores) -> Specification:
    """Specify a linear regression of scores."""
    formula, outcome = _categories(released, text)
    attribute = _named(outcome.attributes[0], released.schema)
    _check_used(formula, scores, attribute.name)
    family = Scored(ordered_scores(attribute, scores))
    names = (f"mean {attribute.name}",)
    worded = _Outcome(outcome.attributes, outcome.levels, f"score of {attribute.name}", names)
    model = "linear regression"
    return _regression(model, released, formula, worded, family=family, scores=scores)


def loglinear(released: ReleasedCounts, text: str, scores: NamedScores) -> Specification:
    """Specify a log-linear model of the cells of all attributes in the formula."""
    formula = read_formula(text, released.schema)
    if formula.outcome is not None:
        raise FormulaError(
            f"a log-linear model has no outcome, but the formula has {formula.outcome!r}",
            hint="write the attributes behind '~' alone, as in: ~ gender * education",
        )
    if not formula.names:
        raise FormulaError("the formula names no attribute", hint="name at least one attribute")
    _check_intercept(formula, "the shares sum to one, which sets the intercept")
    _check_used(formula, scores)
    table = _table(released, formula.names)
    made = columns(formula, table.schema.attributes, scores)
    _check_numbers(made.design.size)
    design, names, terms = _cells(made)
    return Specification(
        model="log-linear model",
        formula=text,
        outcome="shares of the cells",
        released=table,
        covariates=tuple(table.schema.attributes),
        predicted=("share",),
        equations=LogLinearEquations(design[:, 0]),
        names=names,
        terms=terms,
        scores=scores,
        source=released,
        read=formula,
        arrange=_cells,
    )


def _regression(
    model: str,
    released: ReleasedCounts,
    formula: Formula,
    outcome: _Outcome,
    *,
    family: Family,
    scores: NamedScores,
) -> Specification:
    twice = sorted(set(formula.names) & set(outcome.attributes))
    if twice:
        raise FormulaError(
            f"{twice[0]!r} stands on both sides of the formula", hint="explain it by others"
        )
    table = _table(released, [*formula.names, *outcome.attributes])
    covariates = tuple(table.schema.attributes[: len(formula.names)])
    made = columns(formula, covariates, scores)
    _check_numbers(len(made.design) * family.predictors**2 * (len(made.names) + 1))
    ordered = isinstance(family, ProportionalOdds)
    arrange: Arrange = partial(_ordered, levels=outcome.names)
    if not ordered:
        arrange = partial(_per_level, levels=outcome.names[-family.predictors :])
    design, names, terms = arrange(made)
    origin = _thresholds(table, outcome, len(names)) if ordered else np.zeros(len(names))
    return Specification(
        model=model,
        formula=formula.text,
        outcome=outcome.text,
        released=table,
        covariates=covariates,
        predicted=outcome.names,
        equations=RegressionEquations(family, design, outcome.levels, origin),
        names=names,
        terms=terms,
        scores=scores,
        source=released,
        read=formula,
        arrange=arrange,
    )


def _per_level(made: Columns, levels: Sequence[str]) -> Arranged:
    """Give every predictor parameters of its own; ``levels`` are what the predictors are about."""
    width, predictors = len(made.names), len(levels)
    design = np.einsum("gp,rs->grsp", made.design, np.eye(predictors))
    names = made.names
    if predictors > 1:
        names = tuple(f"{level}: {name}" for level in levels for name in made.names)
    terms = {
        term: [level * width + place for level in range(predictors) for place in places]
        for term, places in made.terms.items()
    }
    return design.reshape(len(made.design), predictors, -1), names, terms


def _ordered(made: Columns, levels: Sequence[str]) -> Arranged:
    """Give every threshold a parameter, and all of them the same slopes with a minus sign."""
    free = _without_intercept(made)
    patterns, width = free.design.shape
    thresholds = len(levels) - 1
    design = np.zeros((patterns, thresholds, thresholds + width))
    design[:, :, :thresholds] = np.eye(thresholds)
    design[:, :, thresholds:] = -free.design[:, np.newaxis, :]
    names = [f"{lower}|{upper}" for lower, upper in pairwise(levels)]
    terms = {term: [thresholds + place for place in places] for term, places in free.terms.items()}
    return design, (*names, *free.names), terms


def _cells(made: Columns) -> Arranged:
    """Centre the columns: a constant makes no difference, since the shares sum to one."""
    free = _without_intercept(made)
    centred = free.design - free.design.mean(axis=0)
    return centred[:, np.newaxis, :], free.names, free.terms


def _thresholds(table: ReleasedCounts, outcome: _Outcome, parameters: int) -> Shares:
    """Return thresholds that fit the outcome alone, and slopes of zero."""
    levels = len(outcome.names)
    shares = table.plausible.reshape(-1, levels).sum(axis=0) + 1 / (10 * levels)
    cumulated = np.cumsum(shares)[:-1] / shares.sum()
    origin = np.zeros(parameters)
    origin[: levels - 1] = logit(cumulated)
    return origin


def _without_intercept(made: Columns) -> Columns:
    kept = [place for place, name in enumerate(made.names) if name != INTERCEPT]
    moved = {place: number for number, place in enumerate(kept)}
    terms = {
        term: [moved[place] for place in places]
        for term, places in made.terms.items()
        if term != INTERCEPT
    }
    return Columns(tuple(made.names[place] for place in kept), made.design[:, kept], terms)


def _check_used(formula: Formula, scores: NamedScores, outcome: str | None = None) -> None:
    """Refuse scores of which the formula uses none, and takes the attributes as categories.

    They would be left out of account without a word.  Some may be there for other models.
    """
    numbers = {v.name for term in formula.terms for v in term if v.coding == "scores"}
    unused = [name for name in formula.names if name in scores]
    if unused and not (numbers | {outcome}) & set(scores):
        raise FormulaError(
            f"there are scores of {unused[0]!r}, but the formula takes it as categories",
            hint=f"write scores({_factor(unused[0])}) in the formula, or leave the scores out",
        )


def _check_intercept(formula: Formula, why: str) -> None:
    if not formula.has_intercept:
        raise FormulaError(f"the formula takes the intercept away, but {why}", hint="leave it in")


def _check_numbers(numbers: int) -> None:
    if numbers > MOST_NUMBERS:
        raise FormulaError(
            f"the design of the model has {numbers:,} numbers",
            hint="use fewer attributes, categories or products",
        )


def _table(released: ReleasedCounts, names: Sequence[str]) -> ReleasedCounts:
    """Return the table of the model's attributes, in this order."""
    sizes = [_named(name, released.schema).size for name in names]
    cells = math.prod(sizes)
    if cells > MOST_CELLS:
        raise ParameterError(
            f"a table of {cells:,} cells is too large for a model",
            hint=f"use attributes with at most {MOST_CELLS:,} joint cells",
        )
    return released.marginal(names)


def _factor(name: str) -> str:
    """Write a name as a formula wants it: in backticks if it is not a plain word."""
    return name if re.fullmatch(r"[^\W\d][\w.]*", name) else f"`{name}`"


def _named(name: str, schema: Schema) -> Attribute:
    return schema.attributes[schema.names.index(name)]


def _plain(formula: Formula, schema: Schema) -> str | None:
    """Return the attribute that the left side names, if it is no more than a name."""
    text = formula.outcome
    if text is None:
        raise FormulaError(
            "the formula has no outcome", hint="write it in front of '~', as in: salary ~ gender"
        )
    match = re.fullmatch(r"`([^`]+)`|\"([^\"]+)\"|scores?\(\s*`?([^`()]+?)`?\s*\)", text)
    name = text if match is None else next(part for part in match.groups() if part is not None)
    if name in schema.names:
        return name
    if match is not None or re.fullmatch(r"[\w.]+", text):
        raise FormulaError(
            f"there is no attribute {name!r}",
            hint=suggest(name, schema.names, "the attributes are"),
        )
    return None


def _categories(released: ReleasedCounts, text: str) -> tuple[Formula, _Outcome]:
    """Read a formula whose outcome is one attribute."""
    formula = read_formula(text, released.schema)
    name = _plain(formula, released.schema)
    if name is None:
        raise FormulaError(
            f"the outcome {formula.outcome!r} is not one attribute",
            hint="name an attribute in front of '~'; logistic() takes conditions",
        )
    attribute = _named(name, released.schema)
    if attribute.size == 1:
        raise FormulaError(
            f"the outcome {name!r} has only one category", hint="choose an attribute that varies"
        )
    categories = tuple(attribute.categories)
    listed = ", ".join(map(quote, categories[:6])) + (", …" if len(categories) > 6 else "")  # noqa: PLR2004
    return formula, _Outcome((name,), np.arange(attribute.size), f"{name}: {listed}", categories)


def _event(formula: Formula, schema: Schema, event: str | None) -> _Outcome:
    """Read what counts as success: a condition, or a category of the attribute on the left."""
    name = _plain(formula, schema)
    if name is None:
        if event is not None:
            raise FormulaError(f"{formula.outcome!r} is an event already", hint="leave out `event`")
        return _conditioned(str(formula.outcome), schema)
    attribute = _named(name, schema)
    if event is None and attribute.size != 2:  # noqa: PLR2004 - failure and success
        raise FormulaError(
            f"{name!r} has {attribute.size:,} categories, and one event is wanted",
            hint=f"write {quote_name(name)} == {quote(attribute.categories[-1])} in front of '~',"
            " or use multinomial() or ordinal()",
        )
    success = attribute.categories[-1] if event is None else event
    return _conditioned(f"{quote_name(name)} = {quote(success)}", schema)


def _conditioned(text: str, schema: Schema) -> _Outcome:
    """Return the outcome of a condition: the attributes that it depends on, and their cells."""
    mask = read_condition(re.sub(r"`([^`]+)`", r'"\1"', text), schema).mask.reshape(schema.sizes)
    names = []
    for axis, name in reversed(list(enumerate(schema.names))):
        first = mask.take([0], axis=axis)
        if (mask == first).all():
            mask = first.squeeze(axis=axis)
        else:
            names.append(name)
    if not names:
        raise FormulaError(f"everybody meets {text}", hint="name an event that can fail to happen")
    levels = mask.reshape(-1).astype(np.int64)
    return _Outcome(tuple(reversed(names)), levels, text, (f"not ({text})", text))
