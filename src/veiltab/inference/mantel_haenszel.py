"""Analyses within strata: a common odds ratio, tests of it, and trends of ordered categories.

The estimating equation is that of Mantel and Haenszel, Σ w (ad − ψbc) = 0 over strata, with the
bias of each product taken off and with weights that noise cannot blow up
(:mod:`veiltab.inference.strata`).  The interval inverts its score test: for each ψ the variance is
that of the nearest tables whose odds ratio is ψ in every stratum.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy.special import ndtr

from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.resampling import Statistic, check_size
from veiltab.core.uncertainty import Population
from veiltab.errors import ConditionError, ParameterError
from veiltab.inference.conditions import Condition, Mask
from veiltab.inference.hypotheses import DrawnTest, HypothesisTest
from veiltab.inference.independence import grouped_pair
from veiltab.inference.quantities import Quantity, Question
from veiltab.inference.rank_one import MOST_STEPS, Tables
from veiltab.inference.scores import NamedScores, check_named_scores, ordered_scores
from veiltab.inference.strata import FOURFOLD, Counts, Products, Strata, best_weights, scored

SCORE_TEST = "Mantel–Haenszel equation, score test inverted"
MANTEL = "Mantel–Haenszel statistic with noise in its variance, parametric bootstrap"
TREND = "Mantel's statistic of linear trend with noise in its variance, parametric bootstrap"
HOMOGENEITY = "scores of the strata at the common odds ratio, parametric bootstrap"

HIDDEN = (
    "the shares of {count:,} groups are within three standard errors of zero: the noise hides how"
    " large they are, and the p-value is the larger one of the drawn and the normal one"
)

FARTHEST = 7.0
"""Odds ratios are searched for from exp(−7) to exp(7): from about 1/1,100 to 1,100."""

POINTS = 113
"""How many odds ratios are tried at once; a second time between two neighbours of the first."""


def trend_test(
    released: ReleasedCounts,
    pair: tuple[str, str],
    given: Sequence[str],
    scores: NamedScores | None,
    population: Population,
) -> HypothesisTest:
    """Test whether two ordered attributes rise or fall together, also within groups."""
    joint, table = grouped_pair(released, *pair, given)
    named = check_named_scores(scores, released.schema, pair)
    first, second = (ordered_scores(attribute, named) for attribute in joint.schema.attributes)
    cells = table.schema.domain_size
    shape = first.size, second.size, cells // (first.size * second.size)
    strata = Strata(table.design(population), shape, np.arange(cells))
    numbers = scored(first - first.mean(), second - second.mean())

    def statistic(counts: Counts) -> Tables:
        return standardised_trend(strata, numbers, counts)

    label = " and ".join(pair) + (f" given {', '.join(given)}" if given else "")
    test = _drawn(table, strata, f"trend of {label}", TREND, lambda c: statistic(c) ** 2)
    deviate = float(statistic(table.counts[np.newaxis])[0])
    return _cautious(test.result(statistic=deviate), deviate, strata, table)


def mantel_haenszel_test(
    question: Question, outcome: Condition, group: Condition, versus: Condition, within: list[str]
) -> HypothesisTest:
    """Test whether an outcome is unrelated to a group within every stratum."""
    table, strata = fourfold(question, outcome, group, versus, within)
    label = f"no association, {_compared(outcome, group, versus, within)}"

    def statistic(counts: Counts) -> Tables:
        tables = strata.tables(counts)
        weights = best_weights(strata, FOURFOLD, tables)
        squared: Tables = standardised(strata, FOURFOLD, tables, weights) ** 2
        return squared

    test = _drawn(table, strata, label, MANTEL, statistic).result(degrees_of_freedom=1)
    return _cautious(test, test.statistic**0.5, strata, table)


def _cautious(
    test: HypothesisTest, deviate: float, strata: Strata, table: ReleasedCounts
) -> HypothesisTest:
    """Take the larger of two p-values where the noise hides how large the groups are.

    Releases are drawn from the nearest table.  That is more uneven than the true one there, and the
    statistic varies less in it: the test would reject too often.
    """
    unclear = strata.unclear(strata.tables(table.counts[np.newaxis]))
    if not unclear:
        return test
    p_value = max(test.p_value, float(2 * ndtr(-abs(deviate))))
    return replace(test, p_value=p_value, warnings=(*test.warnings, HIDDEN.format(count=unclear)))


def homogeneity_test(
    question: Question, outcome: Condition, group: Condition, versus: Condition, within: list[str]
) -> HypothesisTest:
    """Test whether the odds ratio is the same in all strata."""
    table, strata = fourfold(question, outcome, group, versus, within)
    if strata.shape[2] == 1:
        raise ParameterError(
            "there is only one stratum in which the groups can be compared",
            hint="name attributes whose categories divide both groups",
        )
    label = f"equal odds ratios, {_compared(outcome, group, versus, within)}"
    common = float(common_odds_ratio(strata, strata.tables(table.counts[np.newaxis]))[0])

    def statistic(counts: Counts) -> Tables:
        return heterogeneity(strata, counts)

    test = _drawn(table, strata, label, HOMOGENEITY, statistic, odds_ratio=common)
    return test.result(degrees_of_freedom=strata.shape[2] - 1)


def mantel_haenszel(
    question: Question, outcome: Condition, group: Condition, versus: Condition, within: list[str]
) -> Quantity:
    """Estimate the odds ratio that all strata have in common."""
    table, strata = fourfold(question, outcome, group, versus, within)
    label = (
        f"common odds({outcome.text} | {group.text}) / odds({outcome.text} | {versus.text})"
        f" within {', '.join(within)}"
    )
    tables = strata.tables(table.counts[np.newaxis])
    value = float(common_odds_ratio(strata, tables)[0])
    low, high = accepted(strata, tables, value, question.critical)
    if not np.isfinite(high):
        known = f", but it is at least {low:.4g}" if low > 0 else ""
        why = f"the release does not bound the odds ratio from above{known}"
        return question.refuse(label, SCORE_TEST, why)
    errors = _errors(strata, tables, value)
    open_below = () if low > 0 else ("an odds ratio of zero is not excluded",)
    return question.answer(label, SCORE_TEST, value, errors, (low, high), *open_below)


def fourfold(
    question: Question, outcome: Condition, group: Condition, versus: Condition, within: list[str]
) -> tuple[ReleasedCounts, Strata]:
    """Return the table that the conditions are about, and its fourfold tables by strata.

    Strata in which one of the four sets has no cells say nothing, and are left out.
    """
    if (group.mask & versus.mask).any():
        raise ConditionError(
            f"somebody can be in both groups: {group.text}, and {versus.text}",
            hint="compare two groups that exclude each other",
        )
    schema = question.released.schema
    if not within:
        raise ParameterError("no strata are named", hint="name attributes in within=…")
    used = [schema.names.index(name) for name in question.released.marginal(within).schema.names]
    masks = [condition.mask.reshape(schema.sizes) for condition in (outcome, group, versus)]
    kept = [i for i in range(len(schema.sizes)) if i in used or any(_varies(m, i) for m in masks)]
    table = question.released.marginal([schema.names[i] for i in kept])
    check_size(table.schema.domain_size)
    met, members, others = (_reduced(mask, kept) for mask in masks)
    sizes = [schema.sizes[i] for i in kept]
    codes = np.indices(sizes).reshape(len(kept), -1)[[kept.index(i) for i in used]]
    stratum = np.ravel_multi_index(tuple(codes), [schema.sizes[i] for i in used])
    sets = np.where(members, 0, 2) + np.where(met, 0, 1)
    counted = np.zeros((4, int(stratum.max()) + 1), dtype=np.int64)
    np.add.at(counted, (sets[members | others], stratum[members | others]), 1)
    whole: Mask = counted.min(axis=0) > 0
    if not whole.any():
        raise ConditionError(
            "in no stratum can both groups have and not have the outcome",
            hint="name other attributes in within=…, or other conditions",
        )
    strata = int(whole.sum())
    number = (np.cumsum(whole) - 1)[stratum]
    inside = (members | others) & whole[stratum]
    numbered = np.where(inside, sets * strata + number, 4 * strata)
    return table, Strata(table.design(question.population), (2, 2, strata), numbered)


def common_odds_ratio(strata: Strata, tables: Tables) -> Tables:
    """Return the solution of the estimating equation for each release, within exp(∓7)."""
    weights = best_weights(strata, FOURFOLD, tables)
    products = Products(strata, FOURFOLD, tables, strata.model().signed(tables))
    pair = products.products(products.covariances())
    upper, lower = ((weights * part).sum(axis=0) for part in pair)
    most = np.exp(FARTHEST)
    ratio = np.divide(upper, lower, where=lower > 0, out=np.full_like(upper, most))
    solution: Tables = np.clip(ratio, 1 / most, most)
    return solution


def standardised(strata: Strata, numbers: Shares, tables: Tables, weights: Tables) -> Tables:
    """Return the weighted sum of U over the strata, in its standard errors under the hypothesis."""
    products = Products(strata, numbers, tables, strata.model().signed(tables))
    value, variance = products.together(weights)
    errors = np.sqrt(variance)
    deviates: Tables = np.divide(value, errors, where=errors > 0, out=np.zeros_like(value))
    return deviates


def standardised_trend(strata: Strata, numbers: Shares, counts: Counts) -> Tables:
    """Return the covariance of scores; rows and columns play the same part in its weights."""
    tables = strata.tables(counts)
    rows, columns = (best_weights(strata, numbers, tables, axis) for axis in (0, 1))
    return standardised(strata, numbers, tables, rows + columns)


def heterogeneity(strata: Strata, counts: Counts) -> Tables:
    """Return how far the strata's odds ratios are apart.

    It is Σ U²/V at the common odds ratio, less what another choice of that could explain.
    """
    tables = strata.tables(counts)
    common = common_odds_ratio(strata, tables)
    fitted = strata.model(common).signed(tables)
    value, variance, change = Products(strata, FOURFOLD, tables, fitted, common).apart()
    squares = (value**2 / variance).sum(axis=0)
    shared = (change * value / variance).sum(axis=0) ** 2
    scale = (change**2 / variance).sum(axis=0)
    explained = np.divide(shared, scale, where=scale > 0, out=np.zeros_like(shared))
    apart: Tables = np.maximum(squares - explained, 0)
    return apart


def accepted(strata: Strata, tables: Tables, value: float, critical: float) -> tuple[float, float]:
    """Return the smallest and the largest odds ratio whose score test does not reject.

    They are 0 or infinite where the farthest that are tried are not rejected.  ``value`` solves
    the equation, so that it is accepted.
    """
    grid = np.linspace(-FARTHEST, FARTHEST, POINTS)
    place = int(np.searchsorted(grid, np.log(value)))
    grid = np.insert(grid, place, np.log(value))
    inside = deviates_at(strata, tables, np.exp(grid)) <= critical
    inside[place] = True
    first, last = int(np.argmax(inside)), grid.size - 1 - int(np.argmax(inside[::-1]))
    low, high = 0.0, np.inf
    if first > 0:
        low = _edge(strata, tables, critical, (float(grid[first]), float(grid[first - 1])))
    if last < grid.size - 1:
        high = _edge(strata, tables, critical, (float(grid[last]), float(grid[last + 1])))
    return low, high


def _edge(strata: Strata, tables: Tables, critical: float, bracket: tuple[float, float]) -> float:
    """Return the odds ratio next to an accepted one, on the way to a rejected one."""
    finer = np.linspace(*bracket, POINTS)
    rejected = deviates_at(strata, tables, np.exp(finer)) > critical
    return float(np.exp(finer[max(int(np.argmax(rejected)), 1)]))


def deviates_at(strata: Strata, tables: Tables, ratios: Shares) -> Tables:
    """Return how unlikely the release is at each odds ratio, as absolute normal deviates."""
    many = np.broadcast_to(tables, (*strata.shape, ratios.size))
    fitted = strata.model(ratios).signed(many, MOST_STEPS)
    products = Products(strata, FOURFOLD, many, fitted, ratios)
    weights = best_weights(strata, FOURFOLD, tables)
    value, variance = products.together(weights)
    deviates = value / np.sqrt(variance)
    if strata.design.normal:
        return np.abs(deviates)
    gradients = (weights * products.gradients()).reshape(-1, ratios.size).T
    likely = np.maximum(fitted, 0).reshape(-1, ratios.size).T
    rest = np.maximum(1 - likely.sum(axis=1, keepdims=True), 0)
    shape = strata.design.shape(
        np.pad(gradients, ((0, 0), (0, 1))),
        np.hstack([likely, rest]),
        strata.sizes / strata.members.size,
    )
    return np.abs(shape.score(deviates))


def _errors(strata: Strata, tables: Tables, value: float) -> tuple[float, float, float]:
    """Return standard, sampling and privacy error of the common odds ratio."""
    ratio, design = np.array([value]), strata.design
    fitted = strata.model(ratio).signed(tables, MOST_STEPS)
    products = Products(strata, FOURFOLD, tables, fitted, ratio)
    weights = best_weights(strata, FOURFOLD, tables)
    _, variance = products.together(weights)
    slope = (weights * products.products(products.covariances())[1]).sum(axis=0)
    sampling, privacy = (
        float(products.first_order(weights * products.gradients(), form, (0, 1, 2))[0])
        for form in (design.sampling, design.privacy)
    )
    total = float(variance[0]) ** 0.5 / max(abs(float(slope[0])), 1e-300)
    part = sampling / max(sampling + privacy, 1e-300)
    return total, total * part**0.5, total * (1 - part) ** 0.5


def _drawn(
    table: ReleasedCounts,
    strata: Strata,
    label: str,
    method: str,
    measure: Statistic,
    *,
    odds_ratio: float = 1.0,
) -> DrawnTest:
    """Return a test that draws from the nearest proper tables with an odds ratio in common."""
    nearest = strata.model(odds_ratio).proper(strata.tables(table.counts[np.newaxis]))
    return DrawnTest(
        table=table,
        label=label,
        method=method,
        design=strata.design,
        truth=strata.distribution(nearest),
        measure=measure,
    )


def _compared(outcome: Condition, group: Condition, versus: Condition, within: list[str]) -> str:
    return f"{outcome.text} in {group.text} and {versus.text} within {', '.join(within)}"


def _varies(mask: Mask, axis: int) -> bool:
    return bool((mask != mask.take([0], axis=axis)).any())


def _reduced(mask: Mask, kept: list[int]) -> Mask:
    """Return a condition on the cells of some attributes; it does not depend on the others."""
    where = tuple(slice(None) if i in kept else 0 for i in range(mask.ndim))
    return np.asarray(mask[where]).reshape(-1)
