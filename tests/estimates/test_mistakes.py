"""What a statistician gets wrong: every mistake is refused in words, with a hint what to do."""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, cast

import numpy as np
import pytest

import veiltab as vt
from tests.support.cases import for_each
from veiltab.errors import InputError

Ask = Callable[[Any], object]
table: Any = vt.CountTable
"""Tables of counts that have other types than they should."""


@cache
def study() -> Any:  # noqa: ANN401 - the mistakes below have other types than they should
    """Return an estimate of the Adult table, with an age in bins."""
    table = vt.adult_table(24)
    age = vt.Attribute("age", ["18 to <40", "40 to <65", "65 to <90"])
    named = [age if a.name == "education" else a for a in table.schema.attributes]
    size = table.population_size
    plan = vt.plan(population_size=size, domain_size=24, epsilon=1.0, mechanism="paper")
    counts = np.random.default_rng(3).multinomial(plan.sample_size or 0, table.counts / size)
    return vt.Estimate(vt.Schema(named), counts, plan)


def fit(formula: str = "salary ~ age") -> Any:  # noqa: ANN401 - as above
    """Return a fit to ask wrong questions of."""
    return study().logistic(formula)


def squares(shares: Any) -> float:  # noqa: ANN401 - an array
    """Return the sum of the squares."""
    return float((shares**2).sum())


MISTAKES: dict[str, tuple[Ask, str]] = {
    "a level that is text": (lambda e: e.mean("age", level="95"), "not at '95'"),
    "a level in percent": (lambda e: e.table(level=95), "not at 95"),
    "a population that there is not": (lambda e: e.mean("age", population="all"), "population"),
    "a misspelt attribute": (lambda e: e.mean("agee"), "no attribute 'agee'"),
    "no numbers": (lambda e: e.mean("marital"), "does not say which numbers"),
    "too few scores": (lambda e: e.mean("age", [1, 2]), "each of its 3 categories"),
    "scores that are text": (lambda e: e.mean("age", ["a", "b", "c"]), "finite number"),
    "a group that is the variable": (lambda e: e.mean("age", by="age"), "cannot group"),
    "a quantile in percent": (lambda e: e.quantile("age", 50), "not at 50"),
    "a quantile that is text": (lambda e: e.quantile("age", "half"), "not at 'half'"),
    "quantiles of names": (lambda e: e.median("marital"), "not a bin with bounds"),
    "one bound": (lambda e: e.median("age", bounds=(50,)), "a smallest and a largest"),
    "bounds upside down": (lambda e: e.median("age", bounds=(90, 18)), "a smallest and a largest"),
    "bounds that cut a bin": (lambda e: e.median("age", bounds=(0, 50)), "does not lie between"),
    "scores of nothing": (
        lambda e: e.trend_test("age", "salary", {"agee": [1, 2, 3]}),
        "no attribute 'agee'",
    ),
    "scores without a name": (lambda e: e.correlation("age", "salary", [1, 2, 3]), "of which"),
    "a score beyond squaring": (
        lambda e: e.variance("age", [1e160, 1, 1]),
        r"scores of 'age' are as large as 1e\+160",
    ),
    "weights of cells beyond squaring": (
        lambda e: e.linear(np.full(24, 1e200)),
        r"as large as 1e\+200",
    ),
    "a score outside of the bounds": (
        lambda e: e.mean("age", {"18 to <40": 400}, bounds=(18, 100)),
        "score 400 of '18 to <40' does not lie between the bounds 18 and 100",
    ),
    "a group and itself": (
        lambda e: e.risk_ratio("salary = '>50K'", "gender = 'male'", {"gender": "male"}),
        "compared with itself",
    ),
    "a group's mean and its own": (
        lambda e: e.mean_difference("age", "gender = 'male'", "not gender = 'female'"),
        "compared with itself",
    ),
    "weights of a mean without numbers": (
        lambda e: e.weighted_mean("age", "gender"),
        "does not say which numbers",
    ),
    "one estimate to pool": (vt.pool, "at least two releases"),
    "scores for categories": (
        lambda e: e.logistic("salary ~ age", scores={"age": [1, 2, 3]}),
        "takes it as categories",
    ),
    "scores beside the formula, too few": (
        lambda e: e.logistic("salary ~ gender", scores={"age": [1, 2]}),
        "each of its 3 categories",
    ),
    "a test of no term": (lambda _: fit().test([]), "no term is named"),
    "a condition of a report": (
        lambda e: e.report("report.html", conditions="agee = 'x'"),
        "no attribute 'agee'",
    ),
    "too few counts": (lambda e: table(e.schema, [1, 2]), "not 24 whole numbers"),
    "counts with fractions": (lambda e: table(e.schema, [0.5] * 24), "whole numbers"),
    "negative counts": (
        lambda e: vt.simulate(table(e.schema, [-1] + [9] * 23), epsilon=1.0),
        "a count of -1",
    ),
    "equal scores": (lambda e: e.trend_test("age", "salary", {"age": [1, 1, 1]}), "all the same"),
    "a formula with a typo": (lambda e: e.logistic("salary ~ agee"), "no attribute 'agee'"),
    "no formula": (lambda e: e.logistic(None), "a formula is text"),
    "half a formula": (lambda e: e.logistic("salary ~ (age + gender"), "cannot be read"),
    "two operators": (lambda e: e.logistic("salary ~ age + * gender"), "cannot be read"),
    "a formula without terms": (lambda e: e.logistic("salary ~ 0"), "has no term left"),
    "a call in a formula": (lambda e: e.logistic("salary ~ log(age)"), "cannot be used"),
    "code in a formula": (lambda e: e.logistic("salary ~ open('x').read()"), "cannot be read"),
    "an outcome of three": (lambda e: e.logistic("age ~ salary"), "one event is wanted"),
    "model scores of nothing": (
        lambda e: e.logistic("salary ~ scores(age)", scores={"agee": [1, 2, 3]}),
        "no attribute 'agee'",
    ),
    "model scores too few": (
        lambda e: e.regress("salary ~ scores(age)", scores={"age": [1, 2]}),
        "each of its 3 categories",
    ),
    "a term that is not there": (lambda _: fit().test("gender"), "no term 'gender'"),
    "a prediction of a number": (lambda _: fit().predict(5), "not a table of categories"),
    "a prediction of numbers": (lambda _: fit().predict({"age": [40]}), "no category 40"),
    "predictions of uneven length": (
        lambda _: fit("salary ~ age + gender").predict({"age": ["18 to <40"] * 2, "gender": []}),
        "not a table of categories",
    ),
    "a prediction without a column": (lambda _: fit().predict([{"gender": "male"}]), "'age'"),
    "a contrast of two": (lambda _: fit().contrast([1, 2]), "shape"),
    "a comparison with no fit": (lambda _: fit().compare("salary ~ 1"), "another fit"),
    "models that are not nested": (
        lambda e: fit().compare(e.logistic("salary ~ gender")),
        "not a part",
    ),
    "a comparison with no estimate": (
        lambda e: vt.compare(e, cast("Any", 3)),
        "int is no estimate",
    ),
    "a comparison with itself": (lambda e: vt.compare(e, e), "given twice"),
    "a pool of nothing": (lambda _: vt.pool([]), "at least two releases"),
    "a pool of names": (lambda e: vt.pool([e, cast("Any", "x")]), "str is no estimate"),
    "margins without names": (lambda e: e.calibrate([1]), "by the names"),
    "margins of other people": (
        lambda e: e.calibrate(
            {"gender": {"female": 1, "male": 1}, "salary": {"<=50K": 3, ">50K": 1}}
        ),
        "people",
    ),
    "margins that disagree": (
        lambda e: e.calibrate(
            {
                "gender": {"female": 0.5, "male": 0.5},
                ("gender", "salary"): {
                    ("female", "<=50K"): 0.2,
                    ("female", ">50K"): 0.1,
                    ("male", "<=50K"): 0.4,
                    ("male", ">50K"): 0.3,
                },
            }
        ),
        "disagree",
    ),
    "a margin with a hole": (lambda e: e.calibrate({"gender": {"male": 1}}), "lacks the category"),
    "an unknown calibration": (
        lambda e: e.calibrate({"gender": {"female": 1, "male": 1}}, "raking"),
        "no calibration by",
    ),
    "two areas": (lambda e: e.small_areas("salary = '>50K'", "gender"), "at least 5"),
    "negative weights": (
        lambda e: e.weighted("salary = '>50K'", "age", [1, -1, 1]),
        "are negative",
    ),
    "weights without numbers": (
        lambda e: e.weighted("salary = '>50K'", "marital"),
        "does not say which numbers",
    ),
    "too few numbers": (lambda e: e.linear([1, 2, 3]), r"of shape \(3,\)"),
    "numbers that are text": (lambda e: e.linear("abc"), "one finite number for each cell"),
    "rows of numbers": (lambda e: e.linear([[1], [2, 3]]), "one finite number for each cell"),
    "objects": (lambda e: e.linear([object()] * 24), "one finite number for each cell"),
    "complex numbers": (lambda e: e.linear(np.ones(24) * 1j), "one finite number for each cell"),
    "scores of an attribute beside the question": (
        lambda e: e.correlation("age", "salary", {"gender": [0, 1]}),
        "scores of 'gender' would not be used",
    ),
    "scores of a group": (
        lambda e: e.trend_test("age", "salary", {"gender": [0, 1]}, given="gender"),
        "scores of 'gender' would not be used",
    ),
    "a contrast by name alone": (lambda _: fit().contrast("age"), "are not numbers"),
    "weights of a contrast that are text": (
        lambda _: fit().contrast({"Intercept": "1"}),
        "one is not finite",
    ),
    "a number for a group": (lambda e: e.mean("age", by=3), "not by 3"),
    "nothing to condition on": (lambda e: e.conditional("salary", None), "not by None"),
    "a list for a name": (lambda e: e.independence_test(["age"], "salary"), "no attribute"),
    "a list for a variable": (lambda e: e.mean(["age"]), "no attribute"),
    "a logarithm of a negative share": (
        lambda e: e.functional(lambda shares: math.log(shares.min() - 1)),
        "cannot be computed: math domain error",
    ),
    "a division by nothing": (
        lambda e: e.functional(lambda _: 1 / 0),
        "cannot be computed: division by zero",
    ),
    "scores of a calibrated mean that are text": (
        lambda e: e.calibrate({"gender": {"female": 0.5, "male": 0.5}}).mean(
            "age", ["a", "b", "c"]
        ),
        "one finite number for each category",
    ),
    "a factor of zero": (
        lambda e: e.calibrate({"gender": {"female": 1, "male": 0}}, "rake"),
        "nobody in a category",
    ),
    "no statistic": (lambda e: e.functional(3), "no function of the shares"),
    "a statistic of many": (lambda e: e.functional(lambda shares: shares), "not a number"),
    "a statistic of nothing": (lambda e: e.functional(lambda _: None), "not a number"),
    "a gradient that is none": (lambda e: e.functional(squares, np.ones(3)), "no function of"),
    "a gradient of another shape": (
        lambda e: e.functional(squares, lambda _: np.ones(3)),
        r"of shape \(3,\)",
    ),
    "a gradient of another statistic": (
        lambda e: e.functional(squares, lambda shares: 7 * shares),
        "not that of the statistic",
    ),
    "an order of names": (lambda e: e.probability("marital >= 5"), "cannot be compared"),
    "no condition": (lambda e: e.probability(None), "text or a mapping"),
    "strata of the group itself": (
        lambda e: e.mantel_haenszel("salary = '>50K'", "gender = 'male'", within="gender"),
        "in no stratum",
    ),
    "an estimator that there is not": (lambda e: e.table("best"), "no estimator"),
}


@for_each("mistake", MISTAKES)
def test_every_mistake_is_refused_with_a_hint(mistake: str) -> None:
    """No traceback of NumPy, SciPy, polars or formulaic reaches a user."""
    ask, words = MISTAKES[mistake]
    with pytest.raises(InputError, match=words) as caught:
        ask(study())
    assert caught.value.hint


def test_a_right_gradient_is_taken() -> None:
    """By the gradient or by differences, with a constant added or not: the same answer."""
    plain = study().functional(squares)
    for constant in (0.0, 5.0):
        own = study().functional(squares, lambda shares, c=constant: 2 * shares + c)
        assert own.standard_error == pytest.approx(plain.standard_error, rel=1e-6)


def test_a_separated_outcome_is_said_plainly() -> None:
    """Nobody of a group has the outcome: no numbers, and the coefficient's name."""
    schema = vt.Schema([vt.Attribute("x", ["a", "b"]), vt.Attribute("y", ["no", "yes"])])
    plan = vt.plan(population_size=10_000, domain_size=4, epsilon=1.0, mechanism="paper")
    quarter = (plan.sample_size or 0) // 4
    counts = np.array([(plan.sample_size or 0) - 2 * quarter, quarter, quarter, 0])
    separated = vt.Estimate(schema, counts, plan).logistic("y ~ x")
    assert not separated.converged
    assert any("x[T.b]" in warning for warning in separated.warnings)
