"""The ledger: exact sums of decimals, each study once, and a policy that is kept."""

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from veiltab.errors import BudgetError, ParameterError
from veiltab.protocol.curator.ledger import Entry, Ledger


def ledger(limit: float = 1.0, **policy: float | None) -> Ledger:
    """Return an empty ledger."""
    return Ledger(dataset="patients", epsilon_limit=limit, **policy)  # type: ignore[arg-type]


def charged(start: Ledger, *epsilons: float) -> Ledger:
    """Charge one study after the other."""
    for number, epsilon in enumerate(epsilons, start=len(start.entries)):
        start = start.charge(number.to_bytes(32, "big"), epsilon, 0.0, None)
    return start


def test_ten_times_a_tenth_is_one() -> None:
    """Exactly: floats add up to 0.9999999999999999, and their true values to more than 1."""
    full = charged(ledger(), *[0.1] * 10)
    assert full.epsilon_spent == 1
    assert not full.supports(5e-324, 0.0)
    with pytest.raises(BudgetError, match="of 'patients': epsilon 0 of 1, delta 0") as caught:
        charged(full, 0.1)
    assert "cannot be won back" in caught.value.hint
    assert sum([0.1] * 10) < 1 < 10 * Fraction(0.1)


def test_a_ledger_that_allows_no_delta_says_how_to_allow_it() -> None:
    """A new one does not; a limit that is spent is another matter."""
    none = ledger(delta_limit=0.0)
    with pytest.raises(BudgetError) as caught:
        none.charge(bytes(32), 0.5, 1e-6, None)
    assert "ledger set" in caught.value.hint
    some = ledger(delta_limit=1e-7)
    with pytest.raises(BudgetError) as caught:
        some.charge(bytes(32), 0.5, 1e-6, None)
    assert "cannot be won back" in caught.value.hint


def test_a_tenth_and_a_fifth_are_three_tenths() -> None:
    """Floats would say 0.30000000000000004, and refuse; not one bit more fits."""
    full = charged(ledger(0.3), 0.1, 0.2)
    assert full.epsilon_spent == Fraction(3, 10)
    almost = charged(ledger(0.3), 0.1)
    assert almost.supports(0.2, 0.0)
    assert not almost.supports(math.nextafter(0.2, 1), 0.0)
    with pytest.raises(BudgetError):
        charged(almost, math.nextafter(0.2, 1))


@given(st.lists(st.integers(1, 500), min_size=1, max_size=12), st.integers(1, 3000))
def test_sums_are_those_of_whole_thousandths(costs: list[int], limit: int) -> None:
    """Against integers: a study is refused when, and only when, the sum would exceed the limit."""
    current, spent = ledger(limit / 1000), 0
    for number, cost in enumerate(costs):
        study = number.to_bytes(32, "big")
        fits = spent + cost <= limit
        assert current.supports(cost / 1000, 0.0) == fits
        if fits:
            current, spent = current.charge(study, cost / 1000, 0.0, None), spent + cost
        else:
            with pytest.raises(BudgetError):
                current.charge(study, cost / 1000, 0.0, None)
        assert current.epsilon_spent == Fraction(spent, 1000)


def test_a_study_is_charged_once() -> None:
    """Signing again after a crash costs nothing, even when all is spent."""
    full = charged(ledger(), 1.0)
    study = full.entries[0].study
    assert full.charge(study, 1.0, 0.0, None) is full
    assert full.entries == (Entry(study, 1.0, 0.0),)


def test_a_charge_leaves_the_old_ledger_alone() -> None:
    """A refused or unsaved charge never happened."""
    empty = ledger()
    full = charged(empty, 1.0)
    assert empty.entries == ()
    with pytest.raises(BudgetError):
        charged(full, 0.5)
    assert len(full.entries) == 1


def test_delta_has_a_limit_of_its_own() -> None:
    """Zero by default, and added up in the same way."""
    study = bytes(32)
    with pytest.raises(BudgetError):
        ledger().charge(study, 0.1, 1e-9, None)
    some = ledger(delta_limit=3e-6).charge(study, 0.1, 1e-6, None)
    assert some.supports(0.1, 2e-6)
    assert not some.supports(0.1, 2.1e-6)
    assert some.delta_spent == Fraction(1, 10**6)


def test_the_policy_on_single_studies() -> None:
    """The largest ε of one study and the smallest population, each up to the limit itself."""
    strict = ledger(10.0, largest_epsilon=0.5, smallest_population=100)
    study = bytes(32)
    assert strict.charge(study, 0.5, 0.0, 100).entries
    with pytest.raises(BudgetError, match=r"epsilon 0\.6 is above 0\.5"):
        strict.charge(study, 0.6, 0.0, 100)
    with pytest.raises(BudgetError, match="population of 99 is below 100"):
        strict.charge(study, 0.5, 0.0, 99)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, 51.0, math.nan, math.inf])
def test_a_charge_must_be_a_promise(epsilon: float) -> None:
    """Nothing is charged for what no contract could say, least of all a negative amount."""
    with pytest.raises(ParameterError):
        ledger(1e9).charge(bytes(32), epsilon, 0.0, None)


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan, math.inf])
def test_a_limit_must_limit(limit: float) -> None:
    """Infinity and NaN would let everything pass."""
    with pytest.raises(ParameterError):
        ledger(limit)
    with pytest.raises(ParameterError):
        ledger(delta_limit=limit or 1.0)
    if not limit > 0:
        with pytest.raises(ParameterError):
            ledger(largest_epsilon=limit)
