"""Calibration to known margins: its algebra against dense matrices, its refusals, its coverage."""

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray

import veiltab as vt
from tests.support.estimates import adult_estimate, million_cells, shaped_table
from veiltab.core.designs import release_design
from veiltab.core.publication import PublicationNoise
from veiltab.core.schema import CountTable
from veiltab.core.uncertainty import CovarianceForm
from veiltab.errors import CalibrationError, ParameterError
from veiltab.inference.calibration import Calibration, Method, calibrate, nearest
from veiltab.inference.combined import SetErrors, Sets
from veiltab.inference.margins import Errors, KnownMargins, Margins

SIZES = (2, 3, 2)
TABLE = shaped_table(SIZES, np.array([9.0, 3, 1, 4, 6, 2, 5, 8, 1, 7, 2, 2]), 20_000)
TERMS: dict[str, dict[str, Any]] = {
    "decoys": {"mechanism": "decoys"},
    "matched": {"mechanism": "decoys", "linkage": "matched", "delta": 1e-6},
    "published": {"mechanism": "decoys"},
    "paper": {"mechanism": "paper"},
    "shuffle": {"mechanism": "shuffle", "delta": 1e-6},
}


def releases(name: str, table: CountTable, runs: int, epsilon: float = 1.0) -> list[vt.Estimate]:
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
    drawn = design.redraw(table.distribution, runs, np.random.default_rng([4, *name.encode()]))
    return [vt.Estimate(table.schema, counts, plan, noise) for counts in drawn]


def margin(table: CountTable, *names: str) -> dict[Any, float]:
    """Return the true shares of some attributes."""
    part = table.marginal(names)
    keys = [part.schema.labels(cell) for cell in range(part.schema.domain_size)]
    shares = part.distribution.tolist()
    return {
        key if len(names) > 1 else key[0]: share for key, share in zip(keys, shares, strict=True)
    }


def dense(calibration: Calibration) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return M as a matrix over cells, and the covariance of the release at the reference."""
    cells = calibration.reference.size
    form = calibration.design.total
    return calibration.margins.sums(np.eye(cells)).T, np.asarray(
        form.of_statistics(calibration.reference, np.eye(cells)), dtype=np.float64
    )


def test_the_covariance_with_every_cell_is_that_of_indicators() -> None:
    """In fractions: ``times`` is the row of the covariance matrix."""
    form = CovarianceForm(Fraction(1, 7), Fraction(2, 5), Fraction(1, 3))
    shares = np.array([Fraction(1, 2), Fraction(1, 3), Fraction(1, 6)], dtype=object)
    gradients = np.array([[Fraction(2), Fraction(-1), Fraction(5)]], dtype=object)
    indicators = np.array(
        [[Fraction(int(i == j)) for j in range(3)] for i in range(3)], dtype=object
    )
    wanted = [form.between(shares, row, gradients[0]) for row in indicators]
    assert form.times(shares, gradients)[0].tolist() == wanted


@pytest.mark.parametrize("name", ["decoys", "matched", "published", "paper"])
@pytest.mark.parametrize("uncertain", [False, True])
def test_regression_is_the_textbook_formula(name: str, *, uncertain: bool) -> None:
    """T̂ − ΣMᵀ(MΣMᵀ + S)⁻¹(MT̂ − μ), and its covariance is Σ less the part that is explained."""
    [estimate] = releases(name, TABLE, 1)
    margins = {"a": margin(TABLE, "a"), ("c", "b"): margin(TABLE, "c", "b")}
    errors: Errors | None = None
    if uncertain:
        errors = {"a": dict.fromkeys(margins["a"], 0.01), ("c", "b"): np.eye(6) * 1e-4}
    calibration = calibrate(estimate, margins, "greg", errors, "super")
    matrix, covariance = dense(calibration)
    middle = matrix @ covariance @ matrix.T + calibration.margins.covariance
    gain = covariance @ matrix.T @ np.linalg.pinv(middle, rcond=1e-9)
    apart = matrix @ estimate.unbiased - calibration.margins.targets
    assert calibration.unbiased == pytest.approx(estimate.unbiased - gain @ apart, abs=1e-9)
    explained = covariance - gain @ matrix @ covariance
    events = calibration._statistics(np.eye(TABLE.counts.size), calibration.reference)
    assert events.total == pytest.approx(explained, abs=1e-12)
    assert calibration.cell_errors().total == pytest.approx(np.diag(explained), abs=1e-12)


@pytest.mark.parametrize("name", ["matched", "shuffle"])
def test_raking_has_the_errors_of_its_linear_form(name: str) -> None:
    """(I − GM)Σ(I − GM)ᵀ with the multinomial G, for cells and for sets alike."""
    [estimate] = releases(name, TABLE, 1)
    calibration = calibrate(estimate, {"b": margin(TABLE, "b")}, "rake", None, "super")
    matrix, covariance = dense(calibration)
    shares = calibration.reference
    multinomial = np.diag(shares) - np.outer(shares, shares)
    gain = multinomial @ matrix.T @ np.linalg.pinv(matrix @ multinomial @ matrix.T, rcond=1e-9)
    left = np.eye(shares.size) - gain @ matrix
    wanted = left @ covariance @ left.T
    assert calibration.cell_errors().total == pytest.approx(np.diag(wanted), abs=1e-12)
    mask = np.arange(shares.size) % 3 == 0
    errors = calibration.set_errors(mask)
    assert float(errors.total[0]) == pytest.approx(mask @ wanted @ mask, rel=1e-6)


@pytest.mark.parametrize("name", ["decoys", "paper"])
def test_a_table_and_a_question_give_one_answer(name: str) -> None:
    """Each row of the table is what the same condition gives."""
    [estimate] = releases(name, TABLE, 1)
    calibrated = estimate.calibrate({"a": margin(TABLE, "a")}, population="super")
    for row in calibrated.table().head(4).iter_rows(named=True):
        answer = calibrated.probability({n: row[n] for n in "abc"})
        for column in ("standard_error", "sampling_error", "privacy_error", "low", "high"):
            assert getattr(answer, column) == pytest.approx(row[column], abs=1e-8), column


def test_a_category_that_is_known_to_be_empty() -> None:
    """Nothing is divided by it, and raking, whose factors cannot reach zero, is refused."""
    [estimate] = releases("decoys", TABLE, 1)
    known = {"b": {"b0": 0.6, "b1": 0.4, "b2": 0.0}}
    with pytest.raises(CalibrationError, match="the margin of b has nobody in a category"):
        estimate.calibrate(known, "rake")
    calibrated, nobody = estimate.calibrate(known), "b = 'b2'"
    assert calibrated.probability(nobody).value == pytest.approx(0, abs=1e-12)
    answers = [
        calibrated.probability("a = 'a0'", given=nobody),
        calibrated.difference("a = 'a0'", "c = 'c0'", given=nobody),
        calibrated.risk_difference("a = 'a0'", nobody),
        calibrated.risk_ratio("a = 'a0'", nobody),
        calibrated.odds_ratio("a = 'a0'", "b = 'b0'", nobody),
        calibrated.mean("c", [0, 1], given=nobody),
    ]
    for answer in answers:
        assert not answer.estimable
        assert answer.warnings[0] == "not estimable: the share of b = 'b2' is known to be zero"


@pytest.mark.parametrize("name", ["decoys", "paper"])
def test_a_share_of_a_small_known_group_has_a_width(name: str) -> None:
    """Noise takes it far above one, where the interval is that of the nearest possible share."""
    table = shaped_table((2, 2), np.array([[70.0, 29], [1, 0]]), 20_000)
    known, beyond = {"a": margin(table, "a")}, 0
    for estimate in releases(name, table, 12, epsilon=0.05):
        calibrated = estimate.calibrate(known)
        for column in ("b0", "b1"):
            share = calibrated.probability({"b": column}, given="a = 'a1'")
            assert share.low is not None
            assert share.high is not None
            assert 0 <= share.low < share.high <= 1
            beyond += any("above one" in text for text in share.warnings)
    assert beyond > 4


def test_a_mean_lies_between_the_scores() -> None:
    """Where nobody has the higher score, noise takes every second mean below the lower one."""
    table, moved = shaped_table((2, 2), np.array([[6.0, 0], [4, 0]]), 400), 0
    for seed in range(12):
        estimate = vt.simulate(table, epsilon=1, seed=seed)
        calibrated = estimate.calibrate({"a": margin(table, "a")})
        for given in (None, "a = 'a0'"):
            mean = calibrated.mean("b", [2, 5], given=given)
            assert mean.low is not None
            assert mean.value is not None
            assert mean.high is not None
            assert 2 <= mean.low <= mean.value < mean.high <= 5
            assert any("it is shown as 2" in text for text in mean.warnings) == (mean.value == 2)
            moved += mean.value == 2
    assert 4 < moved < 20
    same = calibrated.mean("b", [3, 3], given="a = 'a0'")
    assert (same.low, same.value, same.high, same.method) == (3, 3, 3, "known")


@pytest.mark.parametrize("method", ["greg", "rake"])
def test_a_table_says_which_shares_are_shown_as_zero(method: Method) -> None:
    """As the answer to each question does; what is known, rounded or not, is not among them."""
    weights = np.array([[30.0, 0, 0, 0, 2], [0, 40, 0, 0, 0], [0, 0, 0, 0, 1]])
    table = shaped_table((3, 5), weights, 30_000)
    [estimate] = releases("paper", table, 1)
    calibrated = estimate.calibrate({"a": margin(table, "a")}, method)
    about_all = calibrated.warnings
    for frame, given in ((calibrated.table(), None), (calibrated.conditional("b", "a"), "a")):
        assert frame["warning"].drop_nulls().len() > 0
        for row in frame.iter_rows(named=True):
            event = {name: row[name] for name in ("a", "b") if name != given}
            answer = calibrated.probability(event, None if given is None else {"a": row["a"]})
            words = "; ".join(w for w in answer.warnings if w not in about_all)
            said = row["warning"]
            if not answer.estimable:
                assert row["warning"] is None
                said = f"not estimable: {row['reason']}"
            assert said == (words or None)


@pytest.mark.parametrize("method", ["greg", "rake"])
def test_what_is_known_is_known_and_nothing_else(method: Method) -> None:
    """Margins and their sums have no error; everything else has an interval."""
    [estimate] = releases("decoys", TABLE, 1)
    known = margin(TABLE, "b")
    calibrated = estimate.calibrate({"b": known}, method)
    one, two = calibrated.probability("b = 'b1'"), calibrated.probability("b != 'b1'")
    assert one.low == one.high == pytest.approx(known["b1"])
    assert one.standard_error == 0
    assert two.value == pytest.approx(1 - known["b1"])
    assert "known" in str(one)
    score = calibrated.mean("b", [0.0, 1.0, 2.0])
    assert score.value == pytest.approx(known["b1"] + 2 * known["b2"])
    assert score.standard_error == 0
    table = calibrated.table()
    assert (table["high"] - table["low"]).min() > 0  # type: ignore[operator]
    assert calibrated.to_numpy("projected").sum(axis=(0, 2)) == pytest.approx(list(known.values()))
    assert calibrated.shares("projected").min() >= 0
    assert calibrated.shares("unbiased").sum() == pytest.approx(1)
    assert calibrated.margins()["known"].to_list() == pytest.approx(list(known.values()))


def test_shares_within_a_known_group_are_linear() -> None:
    """They need no Fieller, and exist where the release alone cannot see the group."""
    weights = np.array([[40.0, 59.5], [0.2, 0.3]])
    table = shaped_table((2, 2), weights, 3_000)
    [estimate] = releases("decoys", table, 1, epsilon=0.05)
    alone = estimate.probability("b = 'b0'", given="a = 'a1'")
    calibrated = estimate.calibrate({"a": margin(table, "a")})
    answer = calibrated.probability("b = 'b0'", given="a = 'a1'")
    assert "denominator is known" in answer.method
    assert not alone.estimable or alone.low is None or alone.high == 1
    assert answer.estimable
    both = calibrated.probability("a = 'a1' and b = 'b0'")
    assert both.high is not None
    assert answer.high == pytest.approx(min(both.high / margin(table, "a")["a1"], 1))
    rows = calibrated.conditional("b", "a")
    assert rows["estimable"].all()
    assert rows["low"][2] == pytest.approx(answer.low)


def test_the_part_of_the_variance_that_is_left_shortens_an_interval() -> None:
    """A quarter of the variance gives half of the length, far from zero; nothing gives a point."""
    nothing = SetErrors(np.zeros(3), np.zeros(3), None)
    sets = Sets(np.full(3, 0.4), np.full(3, 0.4), np.array([1, 0.25, 0]), (1e-4, 0, 0), nothing)
    interval = sets.interval(1.96)
    assert interval.high - interval.low == pytest.approx([0.0392, 0.0196, 0], abs=1e-6)
    assert sets.standard_errors()[0] == pytest.approx([0.01, 0.005, 0])


def test_a_table_whose_cells_are_all_known() -> None:
    """It has no errors at all."""
    [estimate] = releases("matched", shaped_table((2, 2), np.array([1.0, 2, 3, 4]), 10_000), 1)
    known = {("a0", "b0"): 0.1, ("a0", "b1"): 0.2, ("a1", "b0"): 0.3, ("a1", "b1"): 0.4}
    table = estimate.calibrate({("a", "b"): known}).table()
    for column in ("share", "low", "high"):
        assert table[column].to_list() == pytest.approx(list(known.values()), abs=1e-7)
    assert table["standard_error"].max() == 0


def test_margins_with_large_errors_change_nothing_and_with_none_everything() -> None:
    """The answer goes from the release alone to the margin as the margin's error vanishes."""
    [estimate] = releases("matched", TABLE, 1)
    known = {"a0": 0.9, "a1": 0.1}
    alone = float(estimate.unbiased.reshape(2, -1).sum(axis=1)[0])
    for error, wanted in ((1e3, alone), (1e-9, 0.9)):
        calibrated = estimate.calibrate({"a": known}, errors={"a": dict.fromkeys(known, error)})
        assert calibrated.probability("a = 'a0'").value == pytest.approx(wanted, abs=1e-5)
    # with the error of the release itself, halfway
    own = estimate.probability("a = 'a0'").standard_error or 0.0
    matrix = own**2 * np.array([[1.0, -1.0], [-1.0, 1.0]])
    middle = estimate.calibrate({"a": known}, errors={"a": matrix}).probability("a = 'a0'")
    assert middle.value == pytest.approx((0.9 + alone) / 2, abs=0.02)
    assert middle.standard_error == pytest.approx(own / 2**0.5, rel=0.1)


def test_every_way_to_write_a_margin() -> None:
    """Nested, by pairs, as counts, and as a frame with its errors."""
    [estimate] = releases("paper", TABLE, 1)
    pairs = margin(TABLE, "a", "b")
    nested: dict[str, dict[str, float]] = {"a0": {}, "a1": {}}
    for (first, second), share in pairs.items():
        nested[first][second] = share
    people = {key: round(share * TABLE.population_size) for key, share in pairs.items()}
    frame = pl.DataFrame(
        {"b": [k[1] for k in pairs], "a": [k[0] for k in pairs], "count": list(people.values())}
    )
    tables: list[Any] = [pairs, nested, people, frame]
    answers = [estimate.calibrate({("a", "b"): t}).probability("c = 'c0'").low for t in tables]
    assert answers == pytest.approx([answers[0]] * 4, abs=1e-9)
    doubled = {key: 2 * number for key, number in people.items()}
    census = estimate.calibrate({("a", "b"): doubled}, population="super")
    assert census.margins()["known"].to_list() == pytest.approx(list(pairs.values()), abs=1e-4)
    uncertain = frame.with_columns(standard_error=pl.lit(500.0))
    loose = estimate.calibrate({("a", "b"): uncertain})
    assert loose.margins()["known_error"].to_list() == pytest.approx([500 / 20_000] * 6)
    assert "calibrated to a × b (greg)" in str(loose)


BAD: list[tuple[Any, dict[str, Any], str]] = [
    ({}, {}, "no margins"),
    ({3: {}}, {}, "does not name"),
    ({"a": 0.5}, {}, "no table"),
    ({"a": {"a0": 0.5}}, {}, "lacks the category a1"),
    ({"a": {"a0": 0.5, "a1": 0.4, "x": 0.1}}, {}, "has the category x"),
    ({"a": {"a0": 0.5, "a1": 0.4}}, {}, "neither shares nor counts"),
    ({"a": {"a0": 1.5, "a1": -0.5}}, {}, "negative"),
    ({"a": {"a0": "many", "a1": 0.5}}, {}, "no number"),
    ({"a": {"a0": 5, "a1": 7}}, {}, "release is about 20,000"),
    ({"a": {"a0": 5, "a1": 7}, "c": {"c0": 5, "c1": 8}}, {"population": "super"}, "counts 13"),
    (
        {
            "a": {"a0": 0.5, "a1": 0.5},
            ("a", "c"): {"a0": {"c0": 0.3, "c1": 0.3}, "a1": {"c0": 0.2, "c1": 0.2}},
        },
        {},
        "disagree: the share of a0 is 0.5 in one and 0.6",
    ),
    ({"a": {"a0": 0.5, "a1": 0.5}}, {"errors": {"c": {"c0": 0.1, "c1": 0.1}}}, "no margin"),
    ({"a": {"a0": 0.5, "a1": 0.5}}, {"errors": {"a": np.eye(3)}}, "have the shape"),
    ({"a": {"a0": 0.5, "a1": 0.5}}, {"errors": {"a": -np.eye(2)}}, "no covariance matrix"),
    ({"a": pl.DataFrame({"a": ["a0", "a0"], "n": [1, 2]})}, {}, "twice"),
    ({"a": pl.DataFrame({"x": ["a0", "a1"], "n": [1, 2]})}, {}, "is no margin"),
]  # fmt: skip


@pytest.mark.parametrize(("margins", "options", "reason"), BAD)
def test_malformed_and_inconsistent_margins_are_refused(
    margins: Margins, options: dict[str, Any], reason: str
) -> None:
    """Each refusal says what is wrong."""
    [estimate] = releases("decoys", TABLE, 1)
    with pytest.raises(CalibrationError, match=reason):
        estimate.calibrate(margins, **options)


def test_three_margins_that_no_table_has() -> None:
    """Any two of the pairs agree, but a = b, b = c and a ≠ c cannot hold together."""
    [estimate] = releases("decoys", shaped_table((2, 2, 2), np.ones(8), 5_000), 1)
    same = {(f"a{i}", f"b{j}"): 0.5 * (i == j) for i, j in product((0, 1), repeat=2)}
    pairs: dict[Any, Any] = {
        ("a", "b"): same,
        ("b", "c"): {(f"b{i}", f"c{j}"): 0.5 * (i == j) for i, j in product((0, 1), repeat=2)},
        ("a", "c"): {(f"a{i}", f"c{j}"): 0.5 * (i != j) for i, j in product((0, 1), repeat=2)},
    }
    with pytest.raises(CalibrationError, match="no table of shares has all"):
        estimate.calibrate(pairs)
    with pytest.raises(ParameterError, match="no calibration by"):
        estimate.calibrate({("a", "b"): same}, "wrong")  # type: ignore[arg-type]


def test_raking_says_when_it_cannot() -> None:
    """A category in which the estimate has nobody cannot be raised by a factor."""
    plan = vt.plan(population_size=10_000, domain_size=4, epsilon=1, mechanism="decoys")
    mean = round(float(plan.mechanism.decoys.mean))  # type: ignore[union-attr]
    schema = shaped_table((2, 2), np.ones(4), 4).schema
    counts = np.array([4_000, 4_000, 0, 0]) + mean - np.array([0, 0, 2, 2])
    estimate = vt.Estimate(schema, counts, plan)
    with pytest.raises(CalibrationError, match="nobody in a category of a"):
        estimate.calibrate({"a": {"a0": 0.99, "a1": 0.01}}, "rake")
    by_regression = estimate.calibrate({"a": {"a0": 0.99, "a1": 0.01}})
    assert by_regression.to_numpy("projected").sum(axis=1) == pytest.approx([0.99, 0.01])
    # two margins that the empty cells forbid: the only cells left are on the diagonal
    diagonal = vt.Estimate(
        schema, np.array([4_000, 0, 0, 4_000]) + mean - np.array([0, 2, 2, 0]), plan
    )
    with pytest.raises(CalibrationError, match="does not converge"):
        diagonal.calibrate(
            {"a": {"a0": 0.5, "a1": 0.5}, "b": {"b0": 0.6, "b1": 0.4}}, "rake", population="super"
        )


def test_the_nearest_table_is_the_nearest() -> None:
    """It has the margins, and fulfils the conditions of an optimum."""
    generator = np.random.default_rng(3)
    schema = shaped_table((3, 4), np.ones(12), 12).schema
    truth = generator.dirichlet(np.ones(12) / 2)
    [estimate] = releases("paper", CountTable(schema, np.full(12, 100)), 1)
    sums = truth.reshape(3, 4).sum(axis=1).tolist()
    margins = {"a": dict(zip(schema.attributes[0].categories, sums, strict=True))}
    known = calibrate(estimate, margins, "greg", None, "super").margins
    values = truth + generator.normal(0, 0.1, 12)
    result = nearest(values, known)
    # the conditions of Karush, Kuhn and Tucker: one multiplier per margin, and none too small
    pulled = (result - values).reshape(3, 4)
    for shares, pull in zip(result.reshape(3, 4), pulled, strict=True):
        assert pull[shares > 0] == pytest.approx(pull[shares > 0][0], abs=1e-9)
        assert (pull[shares == 0] >= pull[shares > 0][0] - 1e-9).all()
    assert (result == 0).any()
    assert known.sums(result) == pytest.approx(known.targets, abs=1e-9)


def test_large_tables_and_many_margins() -> None:
    """Single questions are answered about a million cells; what takes too long is refused."""
    estimate = million_cells()
    shares = np.full(100, 0.5 / 99)
    shares[0] = 0.5
    known = dict(zip(estimate.schema.attributes[1].categories, shares.tolist(), strict=True))
    calibrated = estimate.calibrate({"a1": known}, population="super")
    assert calibrated._source.multipliers(np.ones((1, 10**6))).shape == (1, 100)
    with pytest.raises(ParameterError, match="take too long"):
        calibrated._source.cell_errors()
    with pytest.raises(ParameterError, match="too large to be combined"):
        calibrated.conditional("a0", "a1")
    with pytest.raises(CalibrationError, match="too many"):
        KnownMargins.of(
            calibrate(estimate, {"a1": known}, "greg", None, "super").margins.margins * 21,
            estimate.schema,
        )


def test_a_published_adult_table_to_read() -> None:
    """Every method that an estimate has, on the Adult data, and fewer errors than without."""
    estimate = adult_estimate()
    names = estimate.schema.names
    table = vt.adult_table(24)
    calibrated = estimate.calibrate({"education": margin(table, "education")})
    assert isinstance(calibrated, vt.CalibratedEstimate)
    assert calibrated.schema.names == names
    assert (calibrated.method, calibrated.population) == ("greg", "finite")
    rich, man = "salary = '>50K'", "gender = 'male'"
    assert (calibrated.table()["standard_error"] ** 2).sum() < (
        estimate.table()["standard_error"] ** 2
    ).sum()
    for answer in (
        calibrated.difference(rich, man),
        calibrated.difference(rich, "salary = '<=50K'", given=man),
        calibrated.risk_difference(rich, man),
        calibrated.risk_ratio(rich, man),
        calibrated.odds_ratio(rich, man),
        calibrated.linear(np.arange(24.0), label="rank"),
        calibrated.mean("education", [0, 1, 2], man),
        calibrated.probability("education = 'no college'", given=man),
    ):  # fmt: skip
        assert answer.low is not None
        assert answer.high is not None
        assert answer.value is not None
        assert answer.low <= answer.value <= answer.high
        assert answer.population == "finite"
    with pytest.raises(ParameterError, match="scores"):
        calibrated.mean("salary", [1.0])
    with pytest.raises(ParameterError, match="no estimator"):
        calibrated.shares("best")  # type: ignore[arg-type]


def test_few_people_in_a_category_are_mentioned() -> None:
    """The linear form is rough where a margin rests on a few people."""
    table = shaped_table((2, 2), np.array([50.0, 49.5, 0.25, 0.25]), 1_000)
    [estimate] = releases("decoys", table, 1)
    calibrated = estimate.calibrate({"a": margin(table, "a")})
    assert any("in 1 categories" in warning for warning in calibrated.warnings)
    assert any("merge" in warning for warning in calibrated.probability("b = 'b0'").warnings)


def test_margins_of_other_people_are_mentioned() -> None:
    """The farthest category is named with both shares; near ones and rounded ones are not."""
    table = shaped_table((2, 2), np.array([0.3, 0.3, 0.2, 0.2]), 20_000)
    [estimate] = releases("decoys", table, 1)
    methods: tuple[Method, ...] = ("greg", "rake")
    for method in methods:
        far = estimate.calibrate({"a": {"a0": 0.1, "a1": 0.9}}, method)
        [warning] = far.warnings
        assert warning.startswith("the known share of a")
        assert "standard errors from that in the release" in warning
        assert far.probability("b = 'b0'").warnings == (warning,)
    assert estimate.calibrate({"a": {"a0": 0.6, "a1": 0.4}}).warnings == ()
    unsure = {"a": {"a0": 0.3, "a1": 0.3}}
    assert estimate.calibrate({"a": {"a0": 0.1, "a1": 0.9}}, errors=unsure).warnings == ()


HARD = shaped_table((3, 4, 2), np.random.default_rng(8).dirichlet(np.ones(24) / 2), 8_000)


def coverage(name: str, method: Method, runs: int) -> tuple[float, float, float]:
    """Return how often cells hold, and a share within a group, and what is left of the RMSE."""
    truth, margins = HARD.distribution, {"a": margin(HARD, "a"), "c": margin(HARD, "c")}
    group = truth.reshape(3, 4, 2)[2].sum(axis=1)
    held, single, errors = np.zeros(24), [], np.zeros(2)
    for estimate in releases(name, HARD, runs):
        calibrated = estimate.calibrate(margins, method, population="super")
        table = calibrated.table()
        held += (table["low"].to_numpy() <= truth) & (truth <= table["high"].to_numpy())
        answer = calibrated.probability("b = 'b1'", given="a = 'a2'")
        single.append((answer.low or 0) <= group[1] / group.sum() <= (answer.high or 0))
        shares = np.array([calibrated.shares("unbiased"), estimate.unbiased])
        errors += ((shares - truth) ** 2).sum(axis=1)
    return held.mean() / runs, float(np.mean(single)), float(errors[0] / errors[1]) ** 0.5


CASES = [(name, "greg") for name in TERMS] + [("matched", "rake"), ("paper", "rake")]


@pytest.mark.slow
@pytest.mark.parametrize(("name", "method"), CASES)
def test_intervals_hold_and_errors_shrink(name: str, method: Method) -> None:
    """Few releases, to notice what is badly wrong; a right program fails once in 10⁴ runs.

    The 24 cells of a release are nearly independent: 60 releases have a standard error of 0.6%.
    """
    cells, single, left = coverage(name, method, 60)
    assert 0.92 < cells < 0.98
    assert single > 0.84
    assert left < 0.97


@pytest.mark.soak
@pytest.mark.parametrize("name", list(TERMS))
@pytest.mark.parametrize("method", ["greg", "rake"])
def test_intervals_hold_in_many_releases(name: str, method: Method) -> None:
    """2,000 releases: shares within a group have a standard error of 0.5%."""
    cells, single, left = coverage(name, method, 2_000)
    assert 0.94 < cells < 0.96
    assert 0.93 < single < 0.97
    assert left < 0.97
