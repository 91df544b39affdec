"""Two and more releases: changes, tests of change, pooled shares."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import veiltab as vt
from tests.support.estimates import adult_estimate, million_cells, shaped_table
from tests.support.heldout_measures import fewer_draws
from veiltab.core.designs import release_design
from veiltab.core.publication import PublicationNoise
from veiltab.core.schema import CountTable
from veiltab.errors import ParameterError
from veiltab.estimates import Provenance
from veiltab.inference.comparison import Pooled, change, change_test, ratio
from veiltab.inference.quantities import Quantity

TERMS: dict[str, dict[str, Any]] = {
    "decoys": {"mechanism": "decoys"},
    "bare": {"mechanism": "decoys", "epsilon_with_curator": math.inf},
    "matched": {"mechanism": "decoys", "linkage": "matched", "delta": 1e-6},
    "published": {"mechanism": "decoys"},
    "paper": {"mechanism": "paper"},
    "shuffle": {"mechanism": "shuffle", "delta": 1e-6},
}
WEIGHTS = np.random.default_rng(12).dirichlet(np.ones(12) / 2)
TABLE = shaped_table((3, 2, 2), WEIGHTS, 6_000)
SPARSE = np.where(np.arange(40) % 2, 0.0, np.random.default_rng(2).dirichlet(np.ones(40) / 2))


def releases(
    name: str, table: CountTable, runs: int, *, seed: int = 0, epsilon: float = 1.0
) -> list[vt.Estimate]:
    """Return estimates of simulated releases about a larger population with these shares."""
    plan = vt.plan(
        population_size=table.population_size,
        domain_size=table.schema.domain_size,
        epsilon=epsilon,
        **TERMS[name],
    )
    noise = None
    if name == "published":
        noise = PublicationNoise.for_epsilon(plan.epsilon_public, plan.domain_size)
    design = release_design(plan, population="super", publication=noise)
    generator = np.random.default_rng([9, seed, *name.encode()])
    drawn = design.redraw(table.distribution, runs, generator)
    return [vt.Estimate(table.schema, counts, plan, noise) for counts in drawn]


def quantity(value: float, low: float, high: float, error: float = 0.1) -> Quantity:
    """Return a quantity to compare."""
    return Quantity(
        label="P(x)",
        value=value,
        standard_error=error,
        sampling_error=error * 0.6,
        privacy_error=error * 0.8,
        low=low,
        high=high,
        level=0.95,
        method="any",
        population="super",
    )


def test_a_change_has_the_squares_of_both_intervals() -> None:
    """3-4-5 triangles: the first reaches 0.3 up, the second 0.4 down."""
    answer = change(quantity(0.2, 0.08, 0.5), quantity(0.6, 0.2, 0.65), "change")
    assert answer.value == pytest.approx(0.4)
    assert answer.low == pytest.approx(0.4 - 0.5)
    assert answer.high == pytest.approx(0.4 + 0.13)
    assert answer.standard_error == pytest.approx(0.1 * 2**0.5)
    assert (answer.sampling_error or 0) ** 2 + (answer.privacy_error or 0) ** 2 == pytest.approx(
        0.02
    )


@pytest.mark.parametrize("high", [0.3, 0.45])
def test_the_ends_of_a_ratio_are_where_the_change_may_be_zero(high: float) -> None:
    """At each end ρ, the interval of second − ρ·first ends at zero."""
    first, second = quantity(0.2, 0.15, high), quantity(0.5, 0.42, 0.61)
    answer = ratio(first, second, "ratio")
    assert answer.low is not None
    assert answer.high is not None
    for rho, end in ((answer.low, "low"), (answer.high, "high")):
        scaled = quantity(0.2 * rho, 0.15 * rho, high * rho)
        assert getattr(change(scaled, second, ""), end) == pytest.approx(0, abs=1e-12)
    assert answer.value == pytest.approx(2.5)
    assert answer.standard_error == pytest.approx((0.1**2 / 0.04 + 0.25 * 0.01 / 0.04**2) ** 0.5)
    exact = ratio(quantity(0.2, 0.2, 0.2), second, "")
    assert exact.low == pytest.approx(2.1)
    assert exact.high == pytest.approx(3.05)


def test_a_share_without_limits_has_no_change() -> None:
    """The reason is that of the release in which it is."""
    missing = Quantity.not_estimable(
        "P", "nobody is there", level=0.95, method="any", population="super"
    )
    answer = change(quantity(0.2, 0.1, 0.3), missing, "change")
    assert not answer.estimable
    assert answer.warnings == ("not estimable: in the second release, nobody is there",)
    assert not ratio(missing, quantity(0.2, 0.1, 0.3), "r").estimable
    zero = ratio(quantity(0.1, 0.0, 0.3), quantity(0.2, 0.0, 0.3), "r")
    assert not zero.estimable
    assert "distinguished from zero in the first release" in zero.warnings[0]
    doubtful = ratio(quantity(0.1, 0.01, 0.3), quantity(0.2, 0.1, 0.3), "r")
    assert any("uncertain" in warning for warning in doubtful.warnings)


def test_the_change_of_a_mean() -> None:
    """Of a variable with two scores it is that of a share, among all and within a group."""
    [first], [second] = releases("decoys", TABLE, 1), releases("paper", TABLE, 1)
    compared = vt.compare(first, second)
    for given in (None, "a = 'a0'"):
        moved = compared.mean("b", [0, 1], given)
        share = compared.probability("b = 'b1'", given)
        for name in ("value", "low", "high", "standard_error"):
            assert getattr(moved, name) == pytest.approx(getattr(share, name), abs=1e-9)
    wide, narrow = (compared.mean("b", [1, 5], level=level) for level in (0.99, 0.9))
    assert (wide.low or 0) < (narrow.low or 0) < (narrow.value or 0)
    with pytest.raises(ParameterError, match="does not say which numbers"):
        compared.mean("a")


@pytest.mark.parametrize("value", [0.1, 0.0])
def test_a_ratio_to_what_may_be_zero_has_its_lower_end(value: float) -> None:
    """There the change of second − ρ·first ends at zero; the other end is missing, and said so."""
    first, second = quantity(value, 0.0, 0.3), quantity(0.5, 0.4, 0.6)
    answer = ratio(first, second, "r")
    assert (answer.value, answer.high) == (5.0 if value else None, None)
    assert (answer.standard_error is None) == (value == 0)
    assert answer.low is not None
    scaled = quantity(value * answer.low, 0.0, 0.3 * answer.low)
    assert change(scaled, second, "").low == pytest.approx(0, abs=1e-12)
    assert "no upper limit" in answer.interval_text
    assert "there is no upper limit, because P" in answer.warnings[-1]
    assert not ratio(quantity(0.0, 0.0, 0.0), second, "r").estimable


def test_releases_are_compared_by_the_names_of_categories() -> None:
    """Other orders of attributes and categories, and other attributes besides, do not matter."""
    [first], [second] = releases("decoys", TABLE, 1), releases("paper", TABLE, 1)
    names = ("c", "a", "b")
    schema = vt.Schema(
        vt.Attribute(attribute.name, attribute.categories[::-1])
        for attribute in second.schema.subset(names).attributes
    )
    counts = second.counts.reshape(3, 2, 2).transpose(2, 0, 1)[::-1, ::-1, ::-1].reshape(-1)
    turned = vt.Estimate(schema, counts, second.plan)
    straight, other = vt.compare(first, second), vt.compare(first, turned)
    assert isinstance(other, vt.Comparison)
    assert other.table().equals(straight.table())
    assert other.probability("a = 'a1'", given="b = 'b0'") == straight.probability(
        "a = 'a1'", given="b = 'b0'"
    )
    part = vt.compare(first.marginal(["b"]), turned)
    assert part.schema.names == ("b",)
    answer = part.probability("b = 'b0'")
    wanted = straight.probability("b = 'b0'")
    assert answer.value == pytest.approx(wanted.value)
    assert answer.label == "change of P(b = 'b0')"


def test_what_cannot_be_compared_is_refused() -> None:
    """No common attribute, other categories, the same estimate twice, only one."""
    [estimate] = releases("decoys", TABLE, 1)
    other = adult_estimate()
    with pytest.raises(ParameterError, match="no attribute in common"):
        vt.compare(estimate, other)
    schema = vt.Schema([vt.Attribute("a", ["a0", "a1", "x"])])
    plan = vt.plan(population_size=100, domain_size=3, epsilon=5, mechanism="decoys")
    with pytest.raises(ParameterError, match="not all have 'a2'"):
        vt.compare(estimate, vt.Estimate(schema, np.array([90, 90, 90]), plan))
    with pytest.raises(ParameterError, match="twice"):
        vt.compare(estimate, estimate)
    with pytest.raises(ParameterError, match="at least two releases"):
        vt.pool([estimate])
    with pytest.raises(ParameterError, match="too large"):
        change_test(Pooled((million_cells(), million_cells()), "super"))


def test_two_views_of_one_release_are_refused(tmp_path: Path) -> None:
    """Parts, copies and saved files of it: their noise is the same, and would be counted twice."""
    first, second = (vt.simulate(TABLE, epsilon=1.0, seed=seed) for seed in (1, 2))
    named = replace(first, provenance=Provenance(study="5a" * 32))
    named.save(tmp_path / "named.estimate")
    views = [
        (first, first.marginal(["a", "b", "c"])),
        (first.marginal(["a"]), first.publish().marginal(["b", "a"])),
        (named, vt.Estimate.load(tmp_path / "named.estimate")),
    ]
    for one, other in views:
        with pytest.raises(ParameterError, match="of the same release"):
            vt.compare(one, other)
        with pytest.raises(ParameterError, match="of the same release"):
            vt.pool([one, second, other])
    assert vt.pool([first, second.publish()]).weights[0] > 0.5


def test_a_change_of_what_is_known_is_known() -> None:
    """Everybody is everybody in both releases: an interval of width zero says why."""
    [first], [second] = releases("decoys", TABLE, 1), releases("paper", TABLE, 1)
    answer = vt.compare(first, second).probability("a in ('a0', 'a1', 'a2')")
    assert (answer.low, answer.value, answer.high) == (0, 0, 0)
    assert str(answer).endswith(": 0 (known)")


@pytest.mark.parametrize("names", [("bare", "paper"), ("matched", "shuffle")])
def test_a_table_says_what_an_answer_says(names: tuple[str, str]) -> None:
    """In many empty cells, noise takes shares below zero: every row has the answer's words."""
    table = shaped_table((10, 4), SPARSE, 4_000)
    [first], [second] = (releases(name, table, 1) for name in names)
    compared, pooled = vt.compare(first, second), vt.pool([first, second], population="finite")
    about_all = pooled.warnings
    for frame, source in ((compared.table(), compared), (pooled.table(), pooled)):
        words = [
            "; ".join(w for w in source.probability(place).warnings if w not in about_all)
            for place in frame.select("a", "b").iter_rows(named=True)
        ]
        assert frame["warning"].to_list() == [text or None for text in words]
        assert 0 < frame["warning"].null_count() < 40
    within = pooled.conditional("a", "b", level=0.9)
    for row in within.iter_rows(named=True):
        answer = pooled.probability({"a": row["a"]}, {"b": row["b"]}, level=0.9)
        words = [w for w in answer.warnings if w not in about_all]
        assert row["estimable"] == answer.estimable
        said = row["warning"] if answer.estimable else f"not estimable: {row['reason']}"
        assert said == ("; ".join(words) or None)
    assert within["warning"].null_count() < 40


def test_a_table_and_a_question_give_one_answer() -> None:
    """Each row of the table is what the same condition gives."""
    [first], [second] = releases("matched", TABLE, 1), releases("published", TABLE, 1)
    compared = vt.compare(first, second)
    for row in compared.table().iter_rows(named=True):
        answer = compared.probability({name: row[name] for name in "abc"})
        for field, column in (
            ("value", "difference"),
            ("low", "low"),
            ("high", "high"),
            ("standard_error", "standard_error"),
        ):
            assert getattr(answer, field) == pytest.approx(row[column], rel=0.02, abs=2e-4)
        assert row["low"] < row["difference"] < row["high"]


def test_the_pooled_mean_and_its_error_are_those_of_independent_parts() -> None:
    """Weights sum to one, follow from the designs alone, and give the sum of variances."""
    parts = [releases(name, TABLE, 1)[0] for name in ("decoys", "paper", "matched")]
    pooled = vt.pool(parts)
    assert isinstance(pooled, vt.PooledEstimate)
    weights = np.array(pooled.weights)
    assert weights.sum() == pytest.approx(1)
    mean = sum(w * part.unbiased for w, part in zip(weights, parts, strict=True))
    assert pooled.shares("unbiased") == pytest.approx(mean)
    again = [releases("decoys", TABLE, 1, seed=5)[0], *parts[1:]]
    assert vt.pool(again).weights == pytest.approx(pooled.weights, rel=1e-12)
    even = np.full(12, 1 / 12)
    traces = [float(np.sum(part.design("super").total.of_sets(even, 1 / 12))) for part in parts]
    assert weights * traces == pytest.approx([weights[0] * traces[0]] * 3)
    row = np.zeros(12)
    row[3] = 1.0
    variance = sum(
        w**2 * part.design("super").total.between(pooled.shares("projected"), row, row)
        for w, part in zip(weights, parts, strict=True)
    )
    table = pooled.table()
    assert table["standard_error"][3] == pytest.approx(variance**0.5, rel=1e-6)
    named = {name: table[name][3] for name in "abc"}
    assert pooled.probability(named).standard_error == pytest.approx(variance**0.5, rel=1e-6)
    assert pooled.probability(named).low == pytest.approx(table["low"][3], abs=1e-6)
    assert (pooled.population, str(pooled)) == ("super", "estimate pooled from 3 releases")


def test_two_equal_releases_pool_to_half_the_variance() -> None:
    """And equal weights; a conditional share gains as much."""
    first, second = releases("paper", TABLE, 2)
    compared = vt.compare(first, second)
    pooled = compared.pooled()
    assert pooled.weights == pytest.approx((0.5, 0.5))
    alone, both = (
        e.probability("a = 'a0'", given="b = 'b0'") for e in (first, pooled)
    )  # fmt: skip
    assert both.standard_error == pytest.approx((alone.standard_error or 0) / 2**0.5, rel=0.3)
    lengths = [table["high"] - table["low"] for table in (pooled.table(), first.table())]
    assert lengths[0].mean() / lengths[1].mean() == pytest.approx(2**-0.5, abs=0.08)  # type: ignore[operator]
    assert compared.test() == pooled.heterogeneity()
    assert compared.test().label == "no change"
    assert compared.test().degrees_of_freedom == 11


def test_the_statistic_is_the_weighted_distance_from_the_mean() -> None:
    """Σ (T̂ − P)²/(a + bP⁺) over cells and both releases, written out."""
    [first], [second] = releases("paper", TABLE, 1), releases("shuffle", TABLE, 1)
    pooled = vt.pool([first, second])
    mean, likely = pooled.shares("unbiased"), pooled.shares("projected")
    wanted = 0.0
    for release in (first, second):
        plan = release.plan.ranked
        keep, size = float(plan.channel.keep_probability), plan.sample_size
        released = keep * likely + (1 - keep) / 12
        wanted += float(((release.unbiased - mean) ** 2 / (released / (size * keep**2))).sum())
    assert pooled.heterogeneity().statistic == pytest.approx(wanted)


def test_releases_of_different_shares_are_noticed() -> None:
    """The test rejects, and the pooled answers say what they are."""
    [first] = releases("decoys", TABLE, 1)
    [second] = releases("bare", CountTable(TABLE.schema, np.full(12, 500)), 1)
    compared = vt.compare(first, second)
    test = compared.test()
    assert test.found_by == "tail"  # no drawn pair is nearly as far apart
    assert test.p_value < 1e-6
    answer = compared.pooled().probability("a = 'a0'")
    assert any("differ by more than chance" in warning for warning in answer.warnings)
    same = vt.pool([first, releases("decoys", TABLE, 1, seed=3)[0]], population="finite")
    assert not same.probability("a = 'a0'").warnings
    assert compared.ratio("a = 'a0'").estimable


@pytest.mark.parametrize("name", ["decoys", "published"])
def test_the_shape_of_a_sum_is_that_of_its_cumulants(name: str) -> None:
    """Two releases of one design: the skewness of their mean is 1/√2 of one, the excess 1/2."""
    first, second = releases(name, TABLE, 2)
    pooled = Pooled((first, second), "super")
    row = np.zeros((1, 12))
    row[0, 2] = 1.0
    joint = pooled.statistics(row).shape(np.ones(1))
    single = pooled.parts[0].design.shape(row[0], pooled.plausible, np.full(12, 1 / 12))
    assert joint is not None
    assert joint.skewness == pytest.approx(single.skewness / 2**0.5, rel=1e-3)
    assert joint.excess == pytest.approx(single.excess / 2, rel=1e-3)
    cell = pooled.cell_errors().shape
    assert cell is not None
    assert cell.skewness[2] == pytest.approx(float(joint.skewness), rel=1e-3)


PAIRS: dict[str, tuple[Any, ...]] = {
    "decoys and paper": ((3, 2, 2), WEIGHTS, ("decoys", 6_000), ("paper", 30_000)),
    "sparse": ((10, 4), SPARSE / SPARSE.sum(), ("bare", 2_000), ("matched", 4_000)),
    "published": ((3, 2, 2), WEIGHTS, ("published", 5_000), ("shuffle", 10_000)),
    "sparse by rank": ((10, 4), SPARSE / SPARSE.sum(), ("paper", 40_000), ("shuffle", 4_000)),
}


def _share_held(table: pl.DataFrame, truth: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    """Return how many of the rows have an interval that holds the truth."""
    return float(((table["low"].to_numpy() <= truth) & (truth <= table["high"].to_numpy())).mean())


def measure(pair: str, runs: int) -> tuple[float, float, float]:
    """Return how often no change is rejected at 5%, and how often changes and cells hold."""
    sizes, weights, *sides = PAIRS[pair]
    tables = [shaped_table(sizes, weights, people) for _, people in sides]
    shifted = CountTable(tables[1].schema, np.roll(tables[1].counts, 1))
    drawn = [
        releases(sides[0][0], tables[0], runs),
        releases(sides[1][0], tables[1], runs, seed=1),
        releases(sides[1][0], shifted, runs, seed=2),
    ]
    true = shifted.distribution - tables[0].distribution
    rejected, held, pooled_held = 0, 0.0, 0.0
    for first, same, other in zip(*drawn, strict=True):
        pooled = Pooled((first, same), "super")
        rejected += change_test(pooled).p_value <= 0.05
        table = vt.compare(first, other).table()
        held += _share_held(table, true)
        pooled_held += _share_held(vt.pool([first, same]).table(), tables[0].distribution)
    return rejected / runs, held / runs, pooled_held / runs


@pytest.mark.slow
@pytest.mark.parametrize("pair", ["decoys and paper", "sparse"])
def test_changes_are_tested_and_estimated_at_their_level(pair: str) -> None:
    """60 pairs: more than 11 rejections come once in 10⁴ runs of a right program."""
    with fewer_draws():
        rejected, held, pooled = measure(pair, 60)
    assert rejected <= 11 / 60
    assert held > 0.925
    assert pooled > 0.925


@pytest.mark.soak
@pytest.mark.parametrize("pair", list(PAIRS))
def test_changes_in_many_releases(pair: str) -> None:
    """4,000 pairs, 0.35% standard error: 4% to 6% rejections; 93% of the intervals at least."""
    with fewer_draws():
        rejected, held, pooled = measure(pair, 4_000)
    assert 0.04 <= rejected <= 0.06
    assert held >= 0.93
    assert 0.93 <= pooled <= 0.97
