"""Numbers of people: of a condition, of every cell, and of all whom the curators have in common."""

import math

import numpy as np
import pytest

from veiltab.core.plan import Plan, plan
from veiltab.core.schema import Attribute, CountTable, Schema
from veiltab.data.counts import adult_table
from veiltab.errors import TooFewPeopleError
from veiltab.estimates import Estimate
from veiltab.rehearsal import simulate

RICH = "salary = '>50K'"
TABLE = adult_table(24)


def matched(delta: float = 0.0) -> Estimate:
    """Return an estimate that does not know how many people the curators have in common."""
    return simulate(TABLE, epsilon=1.0, delta=delta, linkage="matched", mechanism="decoys", seed=2)


@pytest.mark.parametrize("mechanism", ["decoys", "paper"])
def test_where_the_number_is_known_people_are_shares_of_it(mechanism: str) -> None:
    """The same estimate, times n."""
    estimate = simulate(TABLE, epsilon=1.0, mechanism=mechanism, seed=2)  # type: ignore[arg-type]
    share, people = estimate.probability(RICH), estimate.people(RICH)
    for name in ("value", "standard_error", "sampling_error", "privacy_error", "low", "high"):
        assert getattr(people, name) == pytest.approx(45_222 * getattr(share, name), rel=1e-12)
    assert people.label == f"people with {RICH}"
    assert "e+" not in str(people)
    known = estimate.population()
    assert (known.value, known.low, known.high, known.standard_error) == (45_222,) * 3 + (0.0,)
    assert str(known) == "people in common: 45,222 (known)"
    table, shares = estimate.people_table(), estimate.table()
    np.testing.assert_allclose(table["people"], shares["share"] * 45_222)
    np.testing.assert_allclose(table["high"], shares["high"] * 45_222)
    assert table["interval"].unique().to_list() == ["95% per cell"]


def test_where_it_is_not_known_it_is_estimated() -> None:
    """From the number of rows, decoys taken off; errors in two parts."""
    estimate = matched()
    found = estimate.population()
    coin, decoys = estimate.plan.coin_probability, estimate.plan.expected_decoys
    assert coin is not None
    assert found.value == pytest.approx((int(estimate.counts.sum()) - decoys) / coin)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 45_222 < found.high
    law = estimate.plan.mechanism.decoys
    assert law is not None
    sampling = (45_222 * (1 - coin) / coin) ** 0.5
    assert found.sampling_error == pytest.approx(sampling, rel=0.02)
    assert found.privacy_error == pytest.approx((24 * float(law.variance)) ** 0.5 / coin)
    assert estimate.summary()["population_size"] is None


def test_numbers_of_people_need_no_total() -> None:
    """They are not shares of an estimate, and every marginal says the same."""
    estimate = matched(delta=1e-6)
    rich = estimate.people(RICH)
    truth = int(TABLE.marginal(["salary"]).counts[1])
    assert rich.low is not None
    assert rich.high is not None
    assert rich.low < truth < rich.high
    again = estimate.marginal("salary").people(RICH)
    assert again.value == pytest.approx(rich.value)
    assert again.standard_error == pytest.approx(rich.standard_error)
    table = estimate.people_table()
    inside = (table["low"].to_numpy() <= TABLE.counts) & (TABLE.counts <= table["high"].to_numpy())
    assert inside.sum() >= 20
    squares = table["sampling_error"] ** 2 + table["privacy_error"] ** 2
    np.testing.assert_allclose(squares, table["standard_error"] ** 2)


def nearly_empty() -> Estimate:
    """Return an estimate of a release that holds almost nothing but decoys."""
    schema = Schema([Attribute("a", ["x", "y"]), Attribute("b", ["u", "v"])])
    table = CountTable(schema, np.array([2, 1, 1, 0]))
    return simulate(table, epsilon=0.5, linkage="matched", mechanism="decoys", seed=1, anyway=True)


def test_shares_of_almost_nobody_are_refused() -> None:
    """Every question about shares; numbers of people are answered, and the notebook says why."""
    estimate = nearly_empty()
    for ask in (
        estimate.table,
        lambda: estimate.probability("a = 'x'"),
        lambda: estimate.odds_ratio("a = 'x'", "b = 'u'"),
        lambda: estimate.independence_test("a", "b"),
        lambda: estimate.conditional("a", "b"),
        lambda: estimate.shares("most_likely"),
        lambda: estimate.warnings,
    ):
        with pytest.raises(TooFewPeopleError, match="almost nobody is in this release") as caught:
            ask()
        assert "estimate.population()" in caught.value.hint
    number = estimate.population()
    assert number.low == 0
    assert number.high is not None
    assert math.isfinite(number.high)
    assert estimate.people("a = 'x'").low == 0
    assert estimate.people_table().height == 4
    assert "almost nobody is in this release" in estimate._repr_html_()
    assert "not for passing on" in estimate._repr_html_()


def test_the_limit_is_five_standard_errors() -> None:
    """A row more or less decides."""
    chosen = plan(
        population_size=1000, domain_size=4, epsilon=1.0, linkage="matched", mechanism="decoys"
    )
    schema = Schema([Attribute("a", list("wxyz"))])
    first = next(rows for rows in range(1, 500) if accepted(schema, chosen, rows))
    assert not accepted(schema, chosen, first - 1)
    design = Estimate(schema, np.array([first, 0, 0, 0]), chosen).count_design()
    people, error = design.people(first)  # type: ignore[attr-defined]
    assert people / error == pytest.approx(5, abs=0.3)
    assert people >= 5 * error


def accepted(schema: Schema, chosen: Plan, rows: int) -> bool:
    """Tell whether shares of a release of so many rows are given."""
    try:
        Estimate(schema, np.array([rows, 0, 0, 0]), chosen).shares()
    except TooFewPeopleError:
        return False
    return True


def test_an_aligned_release_of_nobody_has_shares() -> None:
    """Where n is known nothing is refused: the shares are just very uncertain."""
    chosen = plan(population_size=50, domain_size=4, epsilon=0.5, mechanism="decoys")
    schema = Schema([Attribute("a", list("wxyz"))])
    estimate = Estimate(schema, np.zeros(4, dtype=np.int64), chosen)
    table = estimate.table()
    assert np.isfinite(table["share"].to_numpy()).all()
    assert (table["high"].to_numpy() - table["low"].to_numpy()).min() > 0.2
