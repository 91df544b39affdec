"""The estimate as an object: tables, marginals, conditional shares, and what travels with it."""

import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

from tests.support.estimates import adult_estimate, released_estimate, shaped_table
from veiltab.core.estimators import most_likely, project
from veiltab.core.schema import Attribute, Schema
from veiltab.core.uncertainty import VarianceComponents
from veiltab.errors import InputError, ParameterError, SchemaError
from veiltab.estimates import Estimate, Promise, Provenance
from veiltab.inference.distributions import NUMBERS
from veiltab.inference.quantities import DOUBT

ESTIMATE = adult_estimate()


def test_the_joint_table_has_a_row_for_each_cell() -> None:
    """Categories in the schema's order, shares in 0..1, and errors that add up in squares."""
    table = ESTIMATE.table()
    assert table.columns == [*ESTIMATE.schema.names, *NUMBERS, "warning", "interval"]
    for cell, row in enumerate(table.select(ESTIMATE.schema.names).iter_rows()):
        assert row == ESTIMATE.schema.labels(cell)
    np.testing.assert_array_equal(table["share"], np.clip(ESTIMATE.unbiased, 0, 1))
    assert ESTIMATE.table("projected")["share"].sum() == pytest.approx(1)
    squares = table["sampling_error"] ** 2 + table["privacy_error"] ** 2
    np.testing.assert_allclose(squares, table["standard_error"] ** 2)
    assert table["interval"].unique().to_list() == ["95% per cell"]
    assert (table["low"] <= table["high"]).all()
    assert table.drop("warning").null_count().sum_horizontal().item() == 0
    assert (table["warning"].is_null() == (ESTIMATE.unbiased >= 0)).all()
    assert (
        "below zero because of the noise; it is shown as zero" in table["warning"].drop_nulls()[0]
    )


def test_each_estimator_gives_its_own_shares() -> None:
    """Points change; errors and intervals are always those of the unbiased estimate."""
    tables = {name: ESTIMATE.table(name) for name in ("clipped", "unbiased", "projected")}
    assert tables["clipped"].equals(ESTIMATE.table())
    np.testing.assert_array_equal(tables["unbiased"]["share"], ESTIMATE.unbiased)
    np.testing.assert_array_equal(tables["projected"]["share"], project(ESTIMATE.unbiased))
    both = tables["clipped"].drop("share", "warning"), tables["projected"].drop("share", "warning")
    assert both[0].equals(both[1])
    likely = ESTIMATE.table("most_likely")
    np.testing.assert_array_equal(likely["share"], most_likely(ESTIMATE.counts, ESTIMATE.design()))
    assert likely.drop("share").equals(tables["unbiased"].drop("share"))
    with pytest.raises(ParameterError, match="no estimator 'median'"):
        ESTIMATE.table("median")  # type: ignore[arg-type]


def test_simultaneous_intervals_are_wider_and_say_so() -> None:
    """Every row says what its interval promises; the level too."""
    alone, together = ESTIMATE.table(level=0.9), ESTIMATE.table(level=0.9, simultaneous=True)
    assert together["interval"].unique().to_list() == ["90% simultaneous"]
    assert (together["low"] <= alone["low"]).all()
    assert (together["high"] > alone["high"]).all()
    assert together.equals(ESTIMATE.table(level=0.9, simultaneous=True))  # reproducible


def test_a_larger_population_has_a_larger_sampling_error() -> None:
    """The privacy error is the same for both."""
    finite, larger = ESTIMATE.table(), ESTIMATE.table(population="super")
    assert (larger["sampling_error"] > finite["sampling_error"])[0]
    assert larger["privacy_error"].equals(finite["privacy_error"])
    with pytest.raises(ParameterError, match="no population"):
        ESTIMATE.table(population="infinite")  # type: ignore[arg-type]


def test_a_marginal_is_the_sum_of_the_joint_estimate() -> None:
    """In the order asked for; its errors are those of the sums."""
    part = ESTIMATE.marginal(["gender", "education"])
    assert isinstance(part, Estimate)
    assert part.provenance == ESTIMATE.provenance
    joint = ESTIMATE.to_numpy("unbiased").sum(axis=(1, 3))
    np.testing.assert_allclose(part.to_numpy("unbiased"), joint.T, atol=1e-12)
    weights = np.zeros(ESTIMATE.schema.sizes)
    weights[1, :, 0, :] = 1  # some college, male
    errors = VarianceComponents(part.unbiased, part.design()).cells().total
    whole = VarianceComponents(ESTIMATE.unbiased, ESTIMATE.design())
    assert errors[1] == pytest.approx(whole.total(weights.ravel()), rel=1e-9)
    assert ESTIMATE.marginal("salary").schema.names == ("salary",)
    with pytest.raises(SchemaError, match="no attribute 'age'"):
        ESTIMATE.marginal("age")


def test_conditional_shares_sum_to_one_within_each_group() -> None:
    """Groups come first; each group's projected shares are a proper distribution."""
    table = ESTIMATE.conditional("salary", ["gender", "marital"], estimator="projected")
    assert table.columns[:3] == ["gender", "marital", "salary"]
    sums = table.group_by(["gender", "marital"]).agg(pl.col("share").sum())["share"]
    np.testing.assert_allclose(sums, 1)
    assert table["estimable"].all()
    assert table["reason"].null_count() == table.height
    table = ESTIMATE.conditional("salary", ["gender", "marital"])
    assert ((table["low"] <= table["share"]) & (table["share"] <= table["high"])).all()


def test_a_conditional_table_agrees_with_single_questions() -> None:
    """The vectorised intervals are those of one condition at a time."""
    table = ESTIMATE.conditional("salary", ["gender", "marital"])
    assert DOUBT in table["warning"].to_list()
    for row in table.iter_rows(named=True):
        group = {"gender": row["gender"], "marital": row["marital"]}
        found = ESTIMATE.probability({"salary": row["salary"]}, group)
        assert row["warning"] == (found.warnings[0] if found.warnings else None)
        assert found.value == pytest.approx(row["share"], rel=1e-9)
        assert found.low == pytest.approx(row["low"], rel=1e-6)
        assert found.high == pytest.approx(row["high"], rel=1e-6)
        assert found.standard_error == pytest.approx(row["standard_error"], rel=1e-6)
        assert found.privacy_error == pytest.approx(row["privacy_error"], rel=1e-6)


def test_a_group_of_next_to_nobody_is_not_estimable() -> None:
    """Numbers are null, never NaN, and the reason is given."""
    weights = np.array([[60.0, 40.0], [0.0, 0.0], [30.0, 20.0]])
    estimate = released_estimate(shaped_table((3, 2), weights, 20_000), 1.0)
    table = estimate.conditional("b", "a")
    hopeless = table.filter(pl.col("a") == "a1")
    assert not hopeless["estimable"].any()
    for name in NUMBERS:
        assert hopeless[name].null_count() == 2
    assert "cannot be distinguished from zero" in hopeless["reason"][0]
    assert table.filter(pl.col("a") != "a1")["estimable"].all()
    floats = table.select(NUMBERS)
    assert not any(floats[name].is_nan().any() for name in NUMBERS)


@pytest.mark.parametrize(("of", "given"), [([], "gender"), ("gender", []), ("gender", "gender")])
def test_what_cannot_be_conditioned_is_refused(of: Any, given: Any) -> None:  # noqa: ANN401 - both kinds
    """At least one attribute on each side, and none on both."""
    with pytest.raises(ParameterError, match="cannot condition"):
        ESTIMATE.conditional(of, given)


def test_columns_make_way_for_attributes_of_the_same_name() -> None:
    """No attribute's name is taken twice, however awkward."""
    names = ["share", "share (attribute)", "interval"]
    schema = Schema(Attribute(name, ["x", "y"]) for name in names)
    table = shaped_table((2, 2, 2), np.ones(8), 5_000)
    shaped = released_estimate(table, 1.0)
    estimate = Estimate(schema, shaped.counts, shaped.plan)
    columns = estimate.table().columns
    assert len(set(columns)) == len(columns) == 11
    assert columns[3] == "share"


def test_numpy_has_an_axis_per_attribute() -> None:
    """And the same numbers."""
    found = ESTIMATE.to_numpy()
    assert found.shape == ESTIMATE.schema.sizes
    np.testing.assert_array_equal(found.ravel(), ESTIMATE.table()["share"])


def test_pandas_is_optional(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it there is a clear error; with it, a frame with the same columns."""
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match="pandas, which is not installed") as caught:
        ESTIMATE.to_pandas()
    assert "table()" in caught.value.hint

    def from_codes(codes: Any, categories: Any) -> list[str]:  # noqa: ANN401 - a stand-in
        return [categories[code] for code in codes]

    stand_in = SimpleNamespace(
        DataFrame=dict, Categorical=SimpleNamespace(from_codes=from_codes), __name__="pandas"
    )
    monkeypatch.setitem(sys.modules, "pandas", stand_in)
    frame = ESTIMATE.to_pandas("unbiased", level=0.9)
    table = ESTIMATE.table("unbiased", level=0.9)
    assert {name: list(column) for name, column in frame.items()} == table.to_dict(as_series=False)


def test_the_promises_travel_with_it() -> None:
    """Those that were given, or those of the plan."""
    given = Promise("the server", 0.0, 0.0)
    told = Estimate(
        ESTIMATE.schema,
        ESTIMATE.counts,
        ESTIMATE.plan,
        provenance=Provenance(promises=(given,)),
    )
    assert told.marginal("gender").promises == (given,)
    assert str(given) == "ε = 0 against the server"
    assert ESTIMATE.promises[0].epsilon == ESTIMATE.plan.epsilon_achieved
    assert ESTIMATE.promises[1].epsilon == ESTIMATE.plan.epsilon_if_order_known


def test_the_counts_are_safe_from_changes() -> None:
    """The estimate keeps a copy of its own."""
    counts = ESTIMATE.counts.copy()
    estimate = Estimate(ESTIMATE.schema, counts, ESTIMATE.plan)
    counts[0] += 1
    assert (estimate.counts == ESTIMATE.counts).all()
    with pytest.raises(ValueError, match="read-only"):
        estimate.counts[0] = 7


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda counts: counts[:-1], "24 cells"),
        (lambda counts: counts.astype(float), "float64"),
        (lambda counts: counts + 1, "sum to"),
        (lambda counts: counts - np.eye(24, dtype=int)[0] * 10**6, "sum to"),
    ],
)
def test_what_is_no_release_of_the_plan_is_refused(change: Any, message: str) -> None:  # noqa: ANN401 - a function
    """Counts of the wrong length, kind or sum."""
    with pytest.raises(ParameterError, match=message):
        Estimate(ESTIMATE.schema, change(ESTIMATE.counts), ESTIMATE.plan)


def test_a_schema_that_is_no_part_of_what_was_released_is_refused() -> None:
    """Five cells are no marginal of twenty-four."""
    counts = np.array([ESTIMATE.plan.sample_size, 0, 0, 0, 0])
    with pytest.raises(ParameterError, match="no marginal"):
        Estimate(Schema([Attribute("a", "vwxyz"[:1] and list("vwxyz"))]), counts, ESTIMATE.plan)


def test_warnings_say_where_approximations_fail() -> None:
    """Few records, few per cell, and cells that look empty; none of them where all is well."""
    poor = released_estimate(shaped_table((4, 6), np.arange(24.0), 900), 0.5)
    assert poor.plan.ranked.sample_size < 100
    words = " ".join(poor.warnings)
    assert "only" in words
    assert "records were released" in words
    assert "released records, noise included" in words
    assert "cells the estimated share is zero" in words
    rich = released_estimate(shaped_table((2, 2), np.ones(4), 45_222), 1.0)
    assert rich.warnings == ()
