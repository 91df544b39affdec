"""Means, variances and differences of means: what they are made of, and what they refuse."""

import itertools
import json
import math
from dataclasses import replace
from fractions import Fraction

import numpy as np
import polars as pl
import pytest

import veiltab as vt
from tests.support.estimates import million_cells
from tests.support.mean_coverage import measure, settings
from veiltab.core.channel import GammaDiagonal
from veiltab.core.rank_design import RankDesign
from veiltab.inference.atoms import Atoms
from veiltab.inference.bounded import BoundedMean
from veiltab.inference.means import overall_variance

TABLE = vt.adult_table(24)
MEN, RICH = "gender = 'male'", "salary = '>50K'"
DECOYS = vt.simulate(TABLE, epsilon=0.5, seed=3)
PAPER = vt.simulate(TABLE, epsilon=0.5, mechanism="paper", seed=3)
MATCHED = vt.simulate(TABLE, epsilon=0.5, linkage="matched", seed=3)
PUBLISHED = DECOYS.publish()
ALL = pytest.mark.parametrize("estimate", [DECOYS, PAPER, MATCHED, PUBLISHED])
EDUCATION = [0.0, 1.0, 2.0]


def assert_same(left: vt.Quantity, right: vt.Quantity) -> None:
    """Check that two quantities have the same numbers, whatever they are called."""
    for name in ("value", "low", "high", "standard_error", "sampling_error", "privacy_error"):
        assert getattr(left, name) == pytest.approx(getattr(right, name), rel=1e-6, abs=1e-9), name


def assert_whole(found: vt.Quantity) -> None:
    """Check what holds for every quantity that is estimable and not known exactly."""
    assert found.estimable
    assert found.value is not None
    assert found.low is not None
    assert found.high is not None
    assert found.low <= found.value <= found.high
    assert found.low < found.high
    errors = found.standard_error, found.sampling_error, found.privacy_error
    standard, sampling, privacy = (error or 0.0 for error in errors)
    assert standard == pytest.approx(math.hypot(sampling, privacy), rel=1e-9)
    assert standard > 0
    assert json.loads(json.dumps(found.as_dict()))["value"] == found.value


@ALL
def test_the_mean_of_zero_and_one_is_the_share(estimate: vt.Estimate) -> None:
    """One answer to one question: among all, and within a condition."""
    assert_same(estimate.mean("salary", [0, 1]), estimate.probability(RICH))
    within = estimate.mean("salary", {"<=50K": 0, ">50K": 1}, given=MEN)
    assert_same(within, estimate.probability(RICH, MEN))


@ALL
def test_every_answer_is_whole(estimate: vt.Estimate) -> None:
    """Values within intervals, errors that add up, JSON values."""
    for found in (
        estimate.mean("education", EDUCATION),
        estimate.mean("education", EDUCATION, given=MEN, population="super"),
        estimate.variance("education", EDUCATION),
        estimate.variance("education", EDUCATION, given=MEN),
        estimate.mean_difference("education", MEN, scores=EDUCATION),
    ):
        assert_whole(found)


@ALL
def test_a_table_has_the_answers_of_its_groups(estimate: vt.Estimate) -> None:
    """Row by row, the mean within the group's condition, and its warning."""
    by = ["marital", "gender"]
    table = estimate.mean("education", [5, 5, 9], by=by, given="salary = '<=50K'")
    assert table.columns[:3] == [*by, "value"]
    for row in table.iter_rows(named=True):
        group = f"marital = '{row['marital']}' and gender = '{row['gender']}'"
        alone = estimate.mean("education", [5, 5, 9], given=f"{group} and salary = '<=50K'")
        assert row["estimable"] == alone.estimable
        if alone.estimable:
            numbers = {name: row[name] for name in row if hasattr(alone, name)}
            assert_same(alone, replace(alone, **numbers))
            assert (row["warning"] or "") == "; ".join(alone.warnings)
            assert row["reason"] is None
        else:
            assert row["value"] is None
            assert "cannot be distinguished from zero" in row["reason"]


def test_columns_of_a_table_do_not_hide_attributes() -> None:
    """An attribute may be called as a column is."""
    schema = vt.Schema([vt.Attribute("value", ["a", "b"]), vt.Attribute("x", ["1", "2"])])
    estimate = vt.simulate(vt.CountTable(schema, np.array([500, 200, 300, 900])), epsilon=1, seed=1)
    table = estimate.mean("x", by="value")
    assert table.columns[:2] == ["value (attribute)", "value"]


def test_scores_may_be_moved_and_stretched() -> None:
    """A mean follows its scores, a variance their square; the intervals too."""
    plain, moved = (DECOYS.mean("education", scores) for scores in (EDUCATION, [10.0, 13.0, 16.0]))
    for name in ("value", "low", "high"):
        assert getattr(moved, name) == pytest.approx(10 + 3 * getattr(plain, name))
    plain, moved = (DECOYS.variance("education", scores) for scores in (EDUCATION, [7, 4, 1]))
    for name in ("value", "low", "high", "standard_error"):
        assert getattr(moved, name) == pytest.approx(9 * getattr(plain, name))


def test_without_noise_they_are_those_of_the_table() -> None:
    """With an ε of 40 and as errors those of a plain random sample."""
    estimate = vt.simulate(TABLE, epsilon=40, seed=1)
    shares = TABLE.marginal(["education"]).distribution
    true = float(shares @ EDUCATION)
    spread = float(shares @ (np.array(EDUCATION) - true) ** 2)
    found = estimate.mean("education", EDUCATION, population="super")
    assert found.value == pytest.approx(true, abs=1e-6)
    assert found.standard_error == pytest.approx((spread / TABLE.population_size) ** 0.5, rel=1e-3)
    assert estimate.variance("education", EDUCATION).value == pytest.approx(spread, abs=1e-6)
    men, women = (TABLE.distribution.reshape(3, 2, 2, 2)[:, :, i].sum(axis=(1, 2)) for i in (0, 1))
    apart = men @ EDUCATION / men.sum() - women @ EDUCATION / women.sum()
    assert estimate.mean_difference("education", MEN, scores=EDUCATION).value == pytest.approx(
        apart, abs=1e-5
    )


def releases(people: list[int], design: RankDesign) -> list[tuple[Fraction, np.ndarray]]:
    """Return every release of a tiny study by rank, with its chance."""
    keep, cells = design.channel.keep_probability, design.cells
    samples = list(itertools.combinations(people, design.sample_size))
    outcomes = []
    for sample in samples:
        for outputs in itertools.product(range(cells), repeat=design.sample_size):
            chance = Fraction(1, len(samples))
            for cell, output in zip(sample, outputs, strict=True):
                chance *= (keep if cell == output else 0) + (1 - keep) * Fraction(1, cells)
            counts = np.array([Fraction(outputs.count(cell)) for cell in range(cells)])
            outcomes.append((chance, counts))
    return outcomes


PEOPLE = [0, 0, 1, 3]
TINY = RankDesign(GammaDiagonal(4, Fraction(1, 2)), 4, 2)
ENUMERATED = releases(PEOPLE, TINY)
SHARES = np.array([Fraction(PEOPLE.count(cell), 4) for cell in range(4)])


def test_linear_statistics_have_the_enumerated_mean_and_variance() -> None:
    """In fractions, over every sample and every output; cells with the same weight as one set."""
    weights = np.array([Fraction(3), Fraction(-1), Fraction(-1), Fraction(5)])
    values = [(chance, weights @ TINY.estimate(counts)) for chance, counts in ENUMERATED]
    mean = sum(chance * value for chance, value in values)
    variance = sum(chance * (value - mean) ** 2 for chance, value in values)
    assert mean == weights @ SHARES
    atoms = np.array([SHARES[0], SHARES[1] + SHARES[2], SHARES[3]])
    fractions = np.array([Fraction(1, 4), Fraction(1, 2), Fraction(1, 4)])
    columns = np.array([[weights[0], weights[1], weights[3]]])
    total = TINY.total
    assert total.of_statistics(SHARES, weights[np.newaxis])[0, 0] == variance
    assert total.of_statistics(atoms, columns, fractions)[0, 0] == variance


def test_the_variance_is_debiased_by_the_variance_of_the_mean() -> None:
    """In fractions: Σa²T̂ − (Σa T̂)² + Var(Σa T̂) has the mean σ², exactly."""
    scores = np.array([Fraction(2), Fraction(1), Fraction(7), Fraction(4)])
    of_mean = TINY.total.of_statistics(SHARES, scores[np.newaxis])[0, 0]
    mean = Fraction(0)
    for chance, counts in ENUMERATED:
        shares = TINY.estimate(counts)
        mean += chance * (scores**2 @ shares - (scores @ shares) ** 2 + of_mean)
    assert mean == scores**2 @ SHARES - (scores @ SHARES) ** 2


def test_the_estimated_variance_has_no_bias_to_speak_of() -> None:
    """4,000 releases with so much noise that Σa²T̂ − (Σa T̂)² alone is far too small.

    The mean lies within four standard errors: a correct program fails once in 16,000.
    """
    setting = next(s for s in settings() if s.name == "ends, paper, published")
    counts = setting.releases(4_000, 7, "finite").reshape(-1, 5, 24).sum(axis=-1)
    design = setting.design(counts, "finite").marginal(5)
    units = np.array([0, 0.2, 0.4, 0.8, 1.0])
    average = BoundedMean(Atoms.of(counts, np.ones(5), design), units)
    true = setting.table.marginal(["age"]).distribution
    spread = 4 * float(true @ units**2 - (true @ units) ** 2)
    values = overall_variance(average).value
    biased = 4 * (average.atoms.shares @ units**2 - average.value**2)
    error = float(values.std()) / 4_000**0.5
    assert abs(values.mean() - spread) < 4 * error
    assert spread - biased.mean() > 10 * error


@ALL
def test_the_error_of_a_variance_has_a_linear_and_a_square_part(estimate: vt.Estimate) -> None:
    """Var(Σ(a − μ̂)²T̂) + 2Var(μ̂)², each with both causes."""
    mean, found = estimate.mean("education", EDUCATION), estimate.variance("education", EDUCATION)
    squares = [(score - (mean.value or 0)) ** 2 for score in EDUCATION]
    straight = estimate.marginal("education").linear(squares)
    assert mean.standard_error is not None
    assert straight.standard_error is not None
    expected = straight.standard_error**2 + 2 * mean.standard_error**4
    assert (found.standard_error or 0) ** 2 == pytest.approx(expected, rel=1e-9)


def test_where_mean_and_variance_go_together_the_error_follows() -> None:
    """2,000 releases, of a group that is hardly above the noise, most of it at the lowest score.

    With the error at the estimated mean the intervals would hold in 87%.
    """
    setting = next(s for s in settings() if s.name == "peaked, paper")
    row = next(r for r in measure(setting, 2_000, 1) if r.quantity == "variance, islands")
    assert row.coverage > 0.93


def test_differences_of_overlapping_groups_know_that_they_overlap() -> None:
    """Where errors are small the interval is that of the delta method, correlation included."""
    everybody = "gender in ('male', 'female')"
    found = DECOYS.mean_difference("education", MEN, everybody, scores=EDUCATION)
    assert found.low is not None
    assert found.high is not None
    assert found.standard_error is not None
    assert (found.high - found.low) / 2 == pytest.approx(1.96 * found.standard_error, rel=0.02)
    alone = DECOYS.mean("education", EDUCATION, given=MEN, population="super").standard_error
    assert found.standard_error < 0.8 * (alone or 0)


def test_variances_are_plugged_in_at_a_proper_distribution() -> None:
    """Also where atoms have negative shares."""
    counts, design = np.array([3, 90, 7]), RankDesign(GammaDiagonal(3, Fraction(1, 2)), 1000, 100)
    atoms = Atoms.of(counts, np.ones(3), design)
    assert atoms.shares.min() < 0
    assert atoms.likely.min() >= 0
    assert atoms.likely.sum() == pytest.approx(1)


def test_a_score_that_everybody_has_is_known() -> None:
    """A condition may leave a single category."""
    found = DECOYS.mean("education", EDUCATION, given="education = 'some college'")
    assert (found.value, found.low, found.high, found.method) == (1.0, 1.0, 1.0, "known")
    assert DECOYS.variance("education", [4, 4, 4]).value == 0


@ALL
def test_what_follows_from_the_groups_alone_is_known(estimate: vt.Estimate) -> None:
    """The mean of a category is its score, and the weighted share of everybody is one."""
    categories = estimate.schema.attributes[0].categories
    second, first = ({"education": name} for name in (categories[1], categories[0]))
    apart = estimate.mean_difference("education", second, first, scores=EDUCATION)
    everybody = estimate.weighted({"education": categories}, "education", EDUCATION)
    for answer in (apart, everybody):
        assert (answer.low, answer.value, answer.high) == (1, 1, 1)
        assert answer.method == "known"


@pytest.mark.slow
def test_noise_never_makes_an_interval_empty() -> None:
    """Where everybody is at an end, many estimates lie beyond it, and say so."""
    schema = vt.Schema([vt.Attribute("x", ["0", "1", "2"]), vt.Attribute("g", ["a", "b"])])
    table = vt.CountTable(schema, np.array([600, 400, 0, 0, 0, 0]))
    beyond = 0
    for seed in range(30):
        estimate = vt.simulate(table, epsilon=0.3, mechanism="paper", sample_size=200, seed=seed)
        mean, spread = estimate.mean("x"), estimate.variance("x")
        assert_whole(mean)
        assert_whole(spread)
        assert mean.low is not None
        assert mean.low >= 0
        assert spread.low is not None
        assert spread.low >= 0
        beyond += any("below what is possible" in warning for warning in mean.warnings)
        apart = estimate.mean_difference("x", "g = 'a'")
        if apart.estimable:
            assert_whole(apart)
    assert 5 <= beyond <= 25


def test_a_group_of_next_to_nobody_is_refused() -> None:
    """With its name, for means, variances and differences."""
    schema = vt.Schema([vt.Attribute("x", ["0", "1", "2"]), vt.Attribute("g", ["a", "b"])])
    table = vt.CountTable(schema, np.array([600, 0, 400, 0, 300, 0]))
    estimate = vt.simulate(table, epsilon=0.5, mechanism="paper", seed=1)
    for found in (
        estimate.mean("x", given="g = 'b'"),
        estimate.variance("x", given="g = 'b'"),
        estimate.mean_difference("x", "g = 'a'"),
        estimate.mean_difference("x", "g = 'b'"),
    ):
        assert not found.estimable
        assert "g = " in found.warnings[0]
        assert "cannot be distinguished from zero" in found.warnings[0]
    rows = estimate.mean("x", by="g")
    assert rows["estimable"].to_list() == [True, False]
    assert rows["high"].to_list()[1] is None


def test_categories_need_numbers() -> None:
    """Or they are left out by the condition; the message says which, and what to do."""
    schema = vt.Schema([vt.Attribute("age", ["0–17", "18–64", "65+", "unknown"])])
    table = vt.CountTable(schema, np.array([300, 500, 100, 20]))
    estimate = vt.simulate(table, epsilon=1, seed=1)
    with pytest.raises(vt.errors.ParameterError, match="'65\\+' of 'age' is open") as caught:
        estimate.mean("age")
    assert "scores={'65+': " in caught.value.hint
    assert "bounds=(" in caught.value.hint
    with pytest.raises(vt.errors.ParameterError, match="'unknown' of 'age' does not say"):
        estimate.mean("age", bounds=(0, 100))
    known = estimate.mean("age", bounds=(0, 99), given="age != 'unknown'")
    scored = estimate.mean("age", {"65+": 82.0}, given="age != 'unknown'")
    assert_same(known, scored)
    assert known.value == pytest.approx((300 * 8.5 + 500 * 41 + 100 * 82) / 900, abs=3)


@pytest.mark.parametrize("by", [[], ["education"], ["gender", "gender"]])
def test_groups_that_make_no_sense_are_refused(by: list[str]) -> None:
    """None at all, the variable itself, and one twice."""
    with pytest.raises(vt.errors.ParameterError, match="cannot group 'education'"):
        DECOYS.mean("education", EDUCATION, by=by)
    with pytest.raises(vt.errors.SchemaError, match="no attribute 'sex'"):
        DECOYS.mean("education", EDUCATION, by="sex")


@pytest.mark.slow
def test_a_million_cells() -> None:
    """Means within 10,000 groups, and among all."""
    estimate = million_cells()
    table = estimate.mean("a2", by=["a0", "a1"])
    assert isinstance(table, pl.DataFrame)
    assert table.height == 10_000
    assert_whole(estimate.mean("a0"))
    assert_whole(estimate.variance("a0", given="a1 < 50"))


def test_means_of_a_constant_by_groups() -> None:
    """They are known, whatever the noise."""
    schema = vt.Schema([vt.Attribute("x", ["7"]), vt.Attribute("g", ["a", "b"])])
    estimate = vt.simulate(vt.CountTable(schema, np.array([300, 700])), epsilon=1.0, seed=1)
    frame = estimate.mean("x", by="g")
    assert frame["value"].to_list() == frame["low"].to_list() == frame["high"].to_list() == [7, 7]


def test_groups_that_a_condition_leaves_out() -> None:
    """It is the condition that empties them, and not the noise."""
    schema = vt.Schema([vt.Attribute("x", ["1", "2"]), vt.Attribute("g", ["a", "b"])])
    estimate = vt.simulate(
        vt.CountTable(schema, np.array([300, 700, 400, 600])), epsilon=1.0, seed=1
    )
    reasons = estimate.mean("x", by="g", given="g = 'b'")["reason"].to_list()
    assert reasons == ["nobody who meets the condition `given` can be in this group", None]
