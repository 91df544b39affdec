"""Every interval and every test that the API offers, asked at the held-out settings.

Each is asked as a researcher asks it, of one release after the other, and compared with the truth
that the releases were drawn from: new respondents each time for what describes a larger population,
the same ones for what describes the respondents.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import veiltab as vt
from tests.support.heldout import HeldOut, Shares, Truth
from veiltab.core.resampling import apportion
from veiltab.core.schema import Attribute, Schema
from veiltab.core.uncertainty import Population
from veiltab.errors import CalibrationError, ModelError, ParameterError
from veiltab.estimates import Estimate, Quantity
from veiltab.inference import comparison, hypotheses
from veiltab.inference.hypotheses import HypothesisTest
from veiltab.inference.quantiles import CategoryQuantile
from veiltab.inference.significance import COUNTED, Significance

Ends = tuple[float, float]
DRAWS = 399
"""How many releases are drawn for a p-value here."""

Answer = list[tuple[Ends | None, bool]]
"""For each number asked for: the ends of its interval, or None; and whether a doubt is stated."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A quantity: how it is asked for, and its true values under a distribution."""

    name: str
    ask: Callable[[Estimate, HeldOut], Answer]
    truth: Callable[[Shares, HeldOut], Sequence[float]]
    population: Population = "super"
    suits: Callable[[HeldOut], bool] = lambda _: True


@dataclass(frozen=True, slots=True)
class Test:
    """A test: how it is asked for, and under which truth its null hypothesis holds."""

    __test__ = False

    name: str
    ask: Callable[[Estimate, HeldOut], HypothesisTest]
    null: Truth
    suits: Callable[[HeldOut], bool] = lambda _: True


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """How often intervals hold the truth, or how often a test rejects at 5%.

    ``given`` is the share of the releases with an answer.  ``doubted`` is the share of those
    whose answer says that it may be rough.
    """

    setting: str
    name: str
    rate: float | None
    given: float
    doubted: float
    runs: int


@contextmanager
def fewer_draws() -> Iterator[None]:
    """Draw fewer releases for a p-value: whether it is below 5% does not need thousands."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (hypotheses, comparison):
            patch.setattr(module, "significance", _decided)
        yield


def _decided(observed: float, _cells: int, draw: Callable[[int], Shares]) -> Significance:
    """Return a p-value that is at most 5% exactly if that of all draws is.

    As soon as one draw in twenty is as large, the others cannot change that.
    """
    enough, drawn = (DRAWS + 1) // 20, np.empty(0)
    for count in (99, 199, DRAWS):
        drawn = np.concatenate([drawn, draw(count - drawn.size)])
        larger = np.count_nonzero(drawn >= observed * (1 - 1e-12))
        if larger >= enough:
            break
    return Significance((1 + larger) / (1 + drawn.size), drawn.size, COUNTED)


def measure(what: Interval | Test, setting: HeldOut, runs: int, seed: int) -> Measured:
    """Ask one thing of many releases of a setting."""
    rows = list(_asked(what, setting, runs, seed))
    answers = [hit for hit, _ in rows if hit is not None]
    doubted = [doubt for hit, doubt in rows if hit is not None]
    return Measured(
        setting=setting.name,
        name=what.name,
        rate=float(np.mean(answers)) if answers else None,
        given=len(answers) / len(rows),
        doubted=float(np.mean(doubted)) if doubted else 0.0,
        runs=runs,
    )


def _asked(
    what: Interval | Test, setting: HeldOut, runs: int, seed: int
) -> Iterator[tuple[bool | None, bool]]:
    kind: Truth = what.null if isinstance(what, Test) else "associated"
    population: Population = "super" if isinstance(what, Test) else what.population
    releases = setting.releases(runs, seed, population, kind)
    if isinstance(what, Test):
        with fewer_draws():
            for counts in releases:
                yield rejects(what, setting, counts)
        return
    truths = what.truth(true_shares(setting, population), setting)
    for counts in releases:
        hits = [
            (None if ends is None else bool(ends[0] <= truth <= ends[1]), doubt)
            for (ends, doubt), truth in zip(
                what.ask(setting.estimate(counts), setting), truths, strict=True
            )
        ]
        yield from hits


def rejects(what: Test, setting: HeldOut, counts: NDArray[np.int64]) -> tuple[bool | None, bool]:
    """Tell whether a test rejects, None if its model is not fitted; and if it states a doubt."""
    try:
        test = what.ask(setting.estimate(counts), setting)
    except ModelError:
        return None, False
    return test.p_value <= LEVEL, bool(test.warnings)


LEVEL = 0.05


def true_shares(setting: HeldOut, population: Population) -> Shares:
    """Return the distribution of those whom the estimates describe."""
    truth = setting.truth()
    if population == "super":
        return truth
    counts = apportion(truth.reshape(-1), setting.people)
    return (counts / setting.people).reshape(truth.shape)


def of(quantity: Quantity) -> Answer:
    """Return the interval of a quantity; a missing end is infinitely far away."""
    if quantity.low is None and quantity.high is None:
        return [(None, True)]
    low = -math.inf if quantity.low is None else quantity.low
    high = math.inf if quantity.high is None else quantity.high
    # Rounding alone must not decide at the limits of what is possible.
    return [((low - 1e-12, high + 1e-12), bool(quantity.warnings))]


def frame(table: pl.DataFrame) -> Answer:
    """Return the intervals of all rows of a table."""
    doubts = table["warning"].is_not_null() if "warning" in table.columns else [False] * len(table)
    return [
        (None if low is None or high is None else (low - 1e-12, high + 1e-12), bool(doubt))
        for low, high, doubt in zip(table["low"], table["high"], doubts, strict=True)
    ]


def last(setting: HeldOut, name: str) -> str:
    """Return the condition that an attribute has its last category."""
    return f"{name} = '{setting.sizes[('x', 'y').index(name)] - 1}'"


def binary(setting: HeldOut) -> bool:
    """Tell whether y has two categories, so that odds ratios have a common value."""
    return setting.sizes[1] == 2


FIRST = "x = '0'"


def _pair(shares: Shares) -> Shares:
    pair: Shares = shares.sum(axis=2)
    return pair


def _risk(shares: Shares) -> float:
    return float(shares[-1, -1].sum() / shares[-1].sum())


def _moments(shares: Shares) -> tuple[float, float]:
    x = shares.sum(axis=(1, 2))
    scores = np.arange(x.size)
    mean = float(x @ scores)
    return mean, float(x @ (scores - mean) ** 2)


QUANTILES = {"median": 0.5, "quantile": 0.9}


def _quantile(shares: Shares, setting: HeldOut, q: float) -> list[float]:
    """Return a quantile of x, whose category k stands for the numbers from k to k + 1."""
    cumulated = np.concatenate([[0.0], shares.sum(axis=(1, 2)).cumsum()])
    return [float(np.interp(q, cumulated, np.arange(setting.sizes[0] + 1)))]


GROUP = "g = 'group 0'"


def _scores(setting: HeldOut) -> list[int]:
    return list(range(setting.sizes[0]))


def _binned(estimate: Estimate) -> Estimate:
    """Return the same counts of an x whose category k stands for the numbers from k to k + 1."""
    x, *others = estimate.schema.attributes
    bins = Attribute("x", [f"{k} to <{k + 1}" for k in range(x.size)])
    return replace(estimate, schema=Schema([bins, *others]))


def weights_of(setting: HeldOut) -> Shares:
    """Return survey weights of the categories of x: from 1 to 3."""
    return np.linspace(1, 3, setting.sizes[0])


def _mean_within(part: Shares) -> float:
    x = part.sum(axis=1)
    return float(np.arange(x.size) @ x / x.sum())


def _calibrated(estimate: Estimate, setting: HeldOut, method: Any) -> Any:  # noqa: ANN401 - a literal, and its class
    """Calibrate to the groups' sizes, which are known exactly."""
    counts = apportion(setting.truth().reshape(-1), setting.people)
    groups = counts.reshape(setting.truth().shape).sum(axis=(0, 1))
    known = dict(zip(setting.schema.attributes[2].categories, groups.tolist(), strict=True))
    return estimate.calibrate({"g": known}, method)


def _raked(estimate: Estimate, setting: HeldOut) -> Answer:
    """Ask a raked estimate for a share in a group; none, if a group has nobody in the release."""
    try:
        raked = _calibrated(estimate, setting, "rake")
    except CalibrationError:
        return [(None, True)]
    return of(raked.probability(last(setting, "y"), given=GROUP))


FEWEST_AREAS = 5
"""A model of areas needs so many."""


def _areas(estimate: Estimate, setting: HeldOut) -> Answer:
    """Ask for a share in each group as in an area; none, if too few can be told from zero."""
    try:
        areas = estimate.small_areas(last(setting, "y"), "g")
    except ParameterError:
        return [(None, True)] * setting.sizes[2]
    return frame(areas.rename({"note": "warning"}))


def _categories(answer: CategoryQuantile, setting: HeldOut) -> Answer:
    """Return the interval of a category by numbers; it is one of whole bins, and so too wide."""
    names = setting.schema.attributes[0].categories
    if answer.low is None or answer.high is None:
        return [(None, True)]
    return [((names.index(answer.low), names.index(answer.high)), True)]


def main_effects(setting: HeldOut) -> str:
    """Return the formula of a logistic regression of the last category of y."""
    return f"y == '{setting.sizes[1] - 1}' ~ x + g"


INTERVALS: tuple[Interval, ...] = (
    Interval(
        "people",
        lambda e, s: of(e.people(last(s, "y"))),
        lambda t, s: [t[:, -1].sum() * s.people],
        "finite",
    ),
    Interval(
        "linear",
        lambda e, s: of(e.linear(np.arange(math.prod(s.sizes)) % 7)),
        lambda t, _: [float(t.reshape(-1) @ (np.arange(t.size) % 7))],
        "finite",
    ),
    Interval(
        "functional",
        lambda e, _: of(e.functional(lambda t: float((t.sum(axis=(0, 1)) ** 2).sum()))),
        lambda t, _: [(t.sum(axis=(0, 1)) ** 2).sum()],
    ),
    Interval(
        "deviations",
        lambda e, _: frame(e.deviations("x", "y")),
        lambda t, _: (
            (_pair(t) - np.outer(t.sum(axis=(1, 2)), t.sum(axis=(0, 2)))).reshape(-1).tolist()
        ),
    ),
    Interval(
        "mean",
        lambda e, s: of(e.mean("x", _scores(s))),
        lambda t, _: [_moments(t)[0]],
        "finite",
    ),
    Interval(
        "mean by group",
        lambda e, s: frame(e.mean("x", _scores(s), by="g")),
        lambda t, s: (np.arange(s.sizes[0]) @ t.sum(axis=1) / t.sum(axis=(0, 1))).tolist(),
        "finite",
    ),
    Interval(
        "variance",
        lambda e, s: of(e.variance("x", _scores(s))),
        lambda t, _: [_moments(t)[1]],
        "finite",
    ),
    Interval(
        "difference of means",
        lambda e, s: of(e.mean_difference("x", last(s, "y"), scores=_scores(s))),
        lambda t, _: [_mean_within(t[:, -1]) - _mean_within(t[:, :-1].sum(axis=1))],
    ),
    Interval(
        "median",
        lambda e, _: of(_binned(e).median("x")),
        lambda t, s: _quantile(t, s, QUANTILES["median"]),
        "finite",
    ),
    Interval(
        "weighted share",
        lambda e, s: of(e.weighted(last(s, "y"), "x", weights_of(s).tolist())),
        lambda t, s: [_pair(t)[:, -1] @ weights_of(s) / (t.sum(axis=(1, 2)) @ weights_of(s))],
    ),
    Interval(
        "common odds ratio",
        lambda e, s: of(e.mantel_haenszel(last(s, "y"), last(s, "x"), FIRST, within="g")),
        lambda _, s: [math.exp(4 * s.strength)],
        suits=binary,
    ),
    Interval(
        "calibrated conditional",
        lambda e, s: of(_calibrated(e, s, "greg").probability(last(s, "y"), given=GROUP)),
        lambda t, _: [t[:, -1, 0].sum() / t[:, :, 0].sum()],
        "finite",
    ),
    Interval(
        "quantile",
        lambda e, _: of(_binned(e).quantile("x", QUANTILES["quantile"])),
        lambda t, s: _quantile(t, s, QUANTILES["quantile"]),
        "finite",
    ),
    Interval(
        "difference in a group",
        lambda e, s: of(e.difference(FIRST, last(s, "x"), given=last(s, "y"))),
        lambda t, _: [(t[0, -1].sum() - t[-1, -1].sum()) / t[:, -1].sum()],
        "finite",
    ),
    Interval(
        "quantile category",
        lambda e, s: _categories(e.quantile_category("x", 0.5), s),
        lambda t, _: [float((t.sum(axis=(1, 2)).cumsum() < 0.5).sum())],
        "finite",
    ),
    Interval(
        "weighted mean",
        lambda e, s: of(
            e.weighted_mean("y", "x", list(range(s.sizes[1])), weight_scores=weights_of(s).tolist())
        ),
        lambda t, s: [
            weights_of(s) @ _pair(t) @ np.arange(s.sizes[1]) / (t.sum(axis=(1, 2)) @ weights_of(s))
        ],
    ),
    Interval(
        "raked conditional",
        _raked,
        lambda t, _: [t[:, -1, 0].sum() / t[:, :, 0].sum()],
        "finite",
    ),
    Interval(
        "people by category",
        lambda e, _: frame(e.marginal("y").people_table()),
        lambda t, s: (t.sum(axis=(0, 2)) * s.people).tolist(),
        "finite",
    ),
    Interval(
        "people in common",
        lambda e, _: of(e.population()),
        lambda _, s: [s.people],
        "finite",
        suits=lambda s: s.plan.linkage == "matched",
    ),
    Interval(
        "small areas",
        _areas,
        lambda t, _: (t[:, -1].sum(axis=0) / t.sum(axis=(0, 1))).tolist(),
        suits=lambda s: s.sizes[2] >= FEWEST_AREAS,
    ),
)


def whole(setting: HeldOut, categories: int = 2) -> bool:
    """Tell whether everybody can be in every cell: else some true coefficients are infinite.

    ``categories`` are the fewest that y must have.
    """
    return bool((setting.truth() > 0).all()) and setting.sizes[1] >= categories


TESTS: tuple[Test, ...] = (
    Test(
        "independence",
        lambda e, _: e.independence_test("x", "y"),
        "independent",
    ),
    Test(
        "independence within groups",
        lambda e, _: e.independence_test("x", "y", given="g"),
        "independent within",
    ),
    Test(
        "trend within groups",
        lambda e, _: e.trend_test("x", "y", given="g"),
        "independent within",
    ),
    Test(
        "Mantel–Haenszel",
        lambda e, s: e.mantel_haenszel_test(last(s, "y"), last(s, "x"), FIRST, within="g"),
        "independent within",
        suits=binary,
    ),
    Test(
        "homogeneity",
        lambda e, s: e.homogeneity_test(last(s, "y"), last(s, "x"), FIRST, within="g"),
        "associated",
        suits=binary,
    ),
    Test(
        "effect in a model",
        lambda e, s: e.logistic(main_effects(s)).test("x"),
        "independent within",
        suits=whole,
    ),
)


@dataclass(frozen=True, slots=True)
class PairMeasure:
    """What is asked of two releases: a change of a share, its test, or their mean."""

    name: str
    ask: Callable[[Estimate, Estimate, HeldOut], Answer | float]
    truth: Callable[[HeldOut], float] = lambda _: 0.0
    second: Truth = "associated"
    suits: Callable[[HeldOut], bool] = lambda _: True


PAIRS: tuple[PairMeasure, ...] = (
    PairMeasure(
        "change of a share",
        lambda a, b, s: of(vt.compare(a, b).probability(last(s, "y"), given=last(s, "x"))),
        lambda s: float(_risk(s.truth("independent")) - _risk(s.truth())),
        "independent",
    ),
    PairMeasure(
        "pooled share",
        lambda a, b, s: of(vt.pool([a, b], population="super").probability(last(s, "y"))),
        lambda s: float(s.truth()[:, -1].sum()),
    ),
    PairMeasure(
        "ratio of shares",
        lambda a, b, s: of(vt.compare(a, b).ratio(last(s, "y"), given=last(s, "x"))),
        lambda s: float(_risk(s.truth("independent")) / _risk(s.truth())),
        "independent",
    ),
    PairMeasure(
        "change of a mean",
        lambda a, b, s: of(vt.compare(a, b).mean("x", _scores(s), given=last(s, "y"))),
        lambda s: _mean_within(s.truth("independent")[:, -1]) - _mean_within(s.truth()[:, -1]),
        "independent",
    ),
    PairMeasure("change of the table", lambda a, b, _: vt.compare(a, b).test().p_value),
)


def measure_pair(what: PairMeasure, setting: HeldOut, runs: int, seed: int) -> Measured:
    """Ask one thing of many pairs of independent releases."""
    firsts = setting.releases(runs, seed, "super")
    seconds = setting.releases(runs, seed + 1, "super", what.second)
    hits: list[bool] = []
    doubts: list[bool] = []
    asked = 0
    with fewer_draws():
        for pair in zip(firsts, seconds, strict=True):
            asked += 1
            first, second = (setting.estimate(counts) for counts in pair)
            answer = what.ask(first, second, setting)
            if isinstance(answer, float):
                hits.append(answer <= 0.05)
                continue
            truth = what.truth(setting)
            hits += [ends[0] <= truth <= ends[1] for ends, _ in answer if ends is not None]
            doubts += [doubt for ends, doubt in answer if ends is not None]
    return Measured(
        setting=setting.name,
        name=what.name,
        rate=float(np.mean(hits)) if hits else None,
        given=len(hits) / asked,
        doubted=float(np.mean(doubts)) if doubts else 0.0,
        runs=runs,
    )
