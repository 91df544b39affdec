"""Plans with decoys: the reference values, the three promises, the limits and what is refused."""

import json
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.cases import examples, for_each
from veiltab.core import decoys, parameters, privacy, utility
from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.decoy_search import two_sided_moments, two_sided_table
from veiltab.core.mechanism import Coin, Geometric, LinkageMode, Mechanism, WeightTable
from veiltab.core.plan import Plan, plan
from veiltab.errors import InfeasiblePlanError, ParameterError


def planned(**changes: Any) -> Plan:
    """Plan the paper's study with decoys, and without noise by the server unless told."""
    asked: dict[str, Any] = {
        "population_size": 45222,
        "domain_size": 24,
        "mechanism": "decoys",
        "epsilon_with_curator": math.inf,
        "anyway": True,
    }
    return plan(**asked | changes)


@pytest.mark.parametrize(
    ("cells", "epsilon", "delta", "most"),
    [
        *((24, 0.1, 0.0, 0.0174), (24, 0.5, 0.0, 0.0066), (24, 1.0, 0.0, 0.0041)),
        *((24, 0.1, 1e-6, 0.0038), (24, 0.5, 1e-6, 0.00062), (24, 1.0, 1e-6, 0.00031)),
        *((768, 0.5, 0.0, 0.0087), (768, 0.5, 1e-6, 0.0036)),
    ],
)
def test_the_papers_study(cells: int, epsilon: float, delta: float, most: float) -> None:
    """The errors that decoys are made for, and the promise kept by the exact integers."""
    found = planned(domain_size=cells, epsilon=epsilon, delta=delta)
    assert found.rmse <= most
    assert found.channel is None
    assert found.epsilon_with_curator is None
    assert found.epsilon_achieved <= epsilon
    assert found.delta_achieved <= delta
    assert found.rmse < found.rmse_published
    if delta:  # as good as a trusted party with Laplace noise
        assert found.rmse == pytest.approx(found.trusted_party_rmse, rel=0.05)
        assert found.coin_probability == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    ("n", "cells", "epsilon", "q", "beta", "expected", "rmse"),
    [
        (45222, 24, 0.1, 0.797, 0.0773, 94, 0.01737),
        (45222, 24, 0.5, 0.852, 0.3559, 138, 0.00660),
        (45222, 24, 1.0, 0.852, 0.5941, 138, 0.00405),
        (45222, 768, 0.5, 0.619, 0.2866, 1250, 0.00864),
        (10**6, 24, 0.5, 0.944, 0.3797, 401, 0.00130),
        (10_000, 6, 1.0, 0.846, 0.5926, 33, 0.00865),
    ],
)
def test_the_best_geometric_laws(  # noqa: PLR0917 - a row of the table of reference values
    n: int, cells: int, epsilon: float, q: float, beta: float, expected: float, rmse: float
) -> None:
    """The reference values; they leave out the factor √(1 − 1/N)."""
    found = planned(population_size=n, domain_size=cells, epsilon=epsilon)
    summary = found.decoys_summary
    assert summary is not None
    assert (summary.law, summary.centre) == ("geometric", 0)
    assert summary.ratio == pytest.approx(q, abs=6e-4)
    assert found.coin_probability == pytest.approx(beta, abs=1e-4)
    assert summary.expected == pytest.approx(expected, rel=0.005)
    assert found.rmse / math.sqrt(1 - 1 / cells) == pytest.approx(rmse, abs=6e-6)


@pytest.mark.parametrize(("epsilon", "most"), [(0.1, 0.0334), (0.5, 0.0148), (1.0, 0.0111)])
def test_with_the_papers_own_protection_against_a_curator(epsilon: float, most: float) -> None:
    """γ = N + 1 on top: still three to four times better than the paper's way."""
    found = planned(epsilon=epsilon, epsilon_with_curator=math.log(25))
    assert found.gamma == pytest.approx(25)
    assert found.rmse <= most
    paper = planned(epsilon=epsilon, mechanism="paper", epsilon_with_curator=None)
    assert 3 < paper.rmse / found.rmse < 4.3


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("linkage", ["aligned", "matched"])
def test_by_default_the_servers_noise_adds_a_tenth(delta: float, linkage: str) -> None:
    """RMSE 1.1 times that without it; the law is the same, and so is ε."""
    free = planned(epsilon=0.5, delta=delta, linkage=linkage)
    noisy = planned(epsilon=0.5, delta=delta, linkage=linkage, epsilon_with_curator=None)
    assert noisy.rmse == pytest.approx(1.1 * free.rmse, rel=1e-6)
    assert noisy.rmse <= 1.1 * free.rmse * (1 + 1e-12)
    assert replace(noisy.mechanism, keep_threshold=None) == free.mechanism
    assert noisy.epsilon_achieved == free.epsilon_achieved
    assert noisy.epsilon_with_curator == noisy.epsilon_if_order_known
    assert noisy.epsilon_with_curator is not None
    assert noisy.epsilon_with_curator > 5


@given(st.floats(0.01, 12), st.sampled_from([2, 24, 1000]))
@examples(30)
def test_the_promise_with_a_curator_is_used_up_but_kept(limit: float, cells: int) -> None:
    """With decoys the next threshold up would exceed it; Theorem 1 can ask for still more noise."""
    paper, found = (
        planned(domain_size=cells, epsilon=0.5, mechanism=name, epsilon_with_curator=limit)
        for name in ("paper", "decoys")
    )
    for kept in (paper, found):
        assert kept.epsilon_with_curator is not None
        assert kept.epsilon_with_curator <= limit
    assert found.keep_threshold is not None
    up = GammaDiagonal.from_threshold(cells, found.keep_threshold + cells)
    assert up.gamma - 1 > privacy.expm1_below(limit)


def test_by_rank_a_stricter_promise_with_a_curator_costs_more() -> None:
    """With γ ≤ e² larger samples than the minimax one are best, and shuffling is limited too."""
    free = planned(epsilon=0.5, mechanism="paper", epsilon_with_curator=None)
    strict = planned(epsilon=0.5, mechanism="paper", epsilon_with_curator=2.0)
    assert strict.ranked.sample_size > free.ranked.sample_size
    assert strict.rmse > free.rmse
    same_size = planned(
        epsilon=0.5,
        mechanism="paper",
        epsilon_with_curator=2.0,
        sample_size=free.ranked.sample_size,
    )
    assert strict.rmse < same_size.rmse
    shuffled = planned(epsilon=0.5, delta=1e-6, mechanism="shuffle", epsilon_with_curator=2.0)
    assert shuffled.epsilon_with_curator is not None
    assert shuffled.epsilon_with_curator <= 2


def test_an_interior_optimum_is_found() -> None:
    """As many cells as respondents and a large δ: neither β = 1 nor the geometric law is best."""
    asked = {"population_size": 10**6, "domain_size": 10**6, "epsilon": 1.0, "delta": 0.01}
    found = planned(**asked, max_decoys=10**7)
    summary = found.decoys_summary
    assert summary is not None
    assert (summary.law, summary.centre) == ("two-sided", 3)
    assert summary.ratio == pytest.approx(0.46, abs=0.01)
    assert found.coin_probability == pytest.approx(0.65, abs=0.01)
    mean, variance = two_sided_moments(0.46, 3)
    rounded = utility.worst_decoys_error(
        10**6,
        10**6,
        odds_against=1 / 0.65 - 1,
        mean=mean,
        variance=variance,
        gamma=None,
        linkage="aligned",
    )
    assert found.rmse <= math.sqrt(rounded)


def test_the_law_without_delta_can_be_the_best() -> None:
    """As many cells as respondents and a usual δ; the promise is then kept without δ."""
    found = planned(
        population_size=10**6,
        domain_size=10**6,
        epsilon=0.5,
        delta=1e-6,
        max_decoys=10**8,
    )
    assert isinstance(found.mechanism.decoys, Geometric)
    assert (found.delta, found.delta_achieved) == (1e-6, 0.0)
    assert found.rmse == pytest.approx(0.0053, abs=2e-5)
    assert found.expected_decoys == pytest.approx(430_000, rel=0.05)


SETTINGS = [
    (45222, 24, 0.5, 1e-6),
    (1000, 24, 0.3, 1e-4),
    (20_000, 20_000, 1.0, 0.01),
    (500, 1000, 2.0, 1e-3),
]


@for_each("setting", SETTINGS)
@for_each("linkage", ["aligned", "matched"])
@for_each("gamma", [None, 40.0])
def test_no_law_that_is_tried_is_better(
    setting: tuple[int, int, float, float], linkage: LinkageMode, gamma: float | None
) -> None:
    """Two-sided laws of other ratios and centres, each with the largest coin that keeps δ."""
    n, cells, epsilon, delta = setting
    found = planned(
        population_size=n,
        domain_size=cells,
        epsilon=epsilon,
        delta=delta,
        linkage=linkage,
        epsilon_with_curator=math.inf if gamma is None else math.log(gamma),
        max_decoys=10**9,
    )
    for centre in (0, 1, 2, 5, 12, 30):
        for ratio in (0.15, 0.4, 0.6, 0.75, math.exp(-epsilon / 2), 0.9):
            law = two_sided_table(ratio, centre, delta / 512)
            share = largest_share(law, epsilon, delta)
            error = utility.worst_decoys_error(
                n,
                cells,
                odds_against=1 / share - 1,
                mean=float(law.mean),
                variance=float(law.variance),
                gamma=gamma,
                linkage=linkage,
            )
            assert found.rmse <= 1.002 * math.sqrt(error), (centre, ratio)


def largest_share(law: WeightTable, epsilon: float, delta: float) -> float:
    """Return the largest β that keeps (ε, δ), to a hundredth of its size, by halving."""
    low, high = 1e-6, 1.0
    if decoys.exact_delta(Coin(DRAW_RANGE), law, epsilon) <= delta:
        return high
    while high / low > 1.002:
        middle = math.sqrt(low * high)
        kept = decoys.exact_delta(Coin(int(middle * DRAW_RANGE)), law, epsilon) <= delta
        low, high = (middle, high) if kept else (low, middle)
    return low


@pytest.mark.slow
@examples(150)
@given(
    n=st.integers(1, 2**53),
    cells=st.integers(2, 10**7),
    epsilon=st.floats(1e-4, 50),
    delta=st.just(0.0) | st.floats(-12, -2).map(lambda exponent: 10.0**exponent),
    linkage=st.sampled_from(["aligned", "matched"]),
    with_curator=st.sampled_from([None, math.inf, 1.5]),
)
def test_whatever_is_asked_the_promise_is_kept(  # noqa: PLR0917 - one strategy each
    n: int,
    cells: int,
    epsilon: float,
    delta: float,
    linkage: LinkageMode,
    with_curator: float | None,
) -> None:
    """And the limit on decoys, and no number of the plan is missing."""
    try:
        found = planned(
            population_size=n,
            domain_size=cells,
            epsilon=epsilon,
            delta=delta,
            linkage=linkage,
            epsilon_with_curator=with_curator,
        )
    except InfeasiblePlanError:
        return
    assert found.epsilon_achieved <= epsilon
    assert found.delta_achieved <= delta
    assert 0 < found.rmse <= found.rmse_published < math.inf
    sample = n * (found.coin_probability or 0)
    assert found.expected_decoys <= max(10**6, sample) * (1 + 1e-9)
    assert found.expected_rows == pytest.approx(sample + found.expected_decoys)
    assert (found.epsilon_membership is None) == (linkage == "aligned")


def test_too_many_decoys_are_not_planned_unless_asked_for() -> None:
    """A million, or as many as take part; --max-decoys lifts the limit and lowers the error."""
    asked = {"population_size": 10**6, "domain_size": 10**6, "epsilon": 1.0, "delta": 0.01}
    limited = planned(**asked)
    assert limited.expected_decoys <= 10**6
    lifted = planned(**asked, max_decoys=10**8)
    assert lifted.expected_decoys > 10**6
    assert lifted.rmse < limited.rmse
    tight = planned(epsilon=0.5, delta=1e-6, max_decoys=100)
    assert tight.expected_decoys <= 100
    many = planned(population_size=10**9, domain_size=10**6, epsilon=1.0, delta=1e-6)
    assert 10**6 < many.expected_decoys < 10**9


def test_patterns_of_absence_count() -> None:
    """6 and 4 cells make 34 patterns; the joint table has only its own decoys."""
    found = planned(epsilon=0.5, linkage="matched", curator_cells=(6, 4))
    aligned = planned(epsilon=0.5)
    assert (found.patterns, aligned.patterns) == (34, 24)
    assert found.expected_pattern_decoys == pytest.approx(34 / 24 * found.expected_decoys)
    assert planned(epsilon=0.5, linkage="matched").patterns is None
    assert found.epsilon_membership is not None
    assert found.epsilon_membership < 0.5
    law, coin = found.mechanism.decoys, found.mechanism.coin
    assert isinstance(law, Geometric)
    assert coin is not None
    beta = coin.probability
    ratio = max(1 / (1 - beta), 1 - beta + beta / law.ratio)
    assert found.epsilon_membership == pytest.approx(math.log(ratio), rel=1e-12)
    # The limit counts the decoys of all patterns, which are what curators upload.
    tight = planned(epsilon=0.5, linkage="matched", curator_cells=(6, 4), max_decoys=50)
    assert 49 < (tight.expected_pattern_decoys or 0) <= 50


def test_more_patterns_than_anybody_could_invent_decoys_for() -> None:
    """With decoys it is refused; auto takes the best of the other mechanisms."""
    asked = {"domain_size": 2**22, "linkage": "matched", "curator_cells": (2,) * 22}
    with pytest.raises(InfeasiblePlanError, match="31,381,059,608 patterns"):
        planned(**asked, epsilon=0.5)
    assert planned(**asked, epsilon=0.5, mechanism="auto").mechanism_name == "paper"


@pytest.mark.parametrize("delta", [1e-18, 1e-20, 1e-30])
def test_a_delta_below_what_whole_weights_reach_is_refused(delta: float) -> None:
    """Rather than promised and not spent."""
    with pytest.raises(InfeasiblePlanError, match="whole weights"):
        planned(epsilon=0.5, delta=delta)
    assert planned(epsilon=0.5, delta=1e-16).delta_achieved > 0


def test_auto_does_what_is_possible_with_such_a_delta() -> None:
    """It takes decoys that need no δ."""
    chosen = planned(epsilon=0.5, delta=1e-20, mechanism="auto", epsilon_with_curator=None)
    assert chosen.mechanism_name == "decoys"
    assert chosen.delta_achieved == 0


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_auto_takes_what_has_the_least_error(delta: float) -> None:
    """Compared as they would be run: decoys with the server's default noise."""
    names = ["decoys", "shuffle" if delta else "paper"]
    found, *others = (
        planned(epsilon=0.5, delta=delta, mechanism=name, epsilon_with_curator=None)
        for name in ("auto", *names)
    )
    assert found == min(others, key=lambda other: other.rmse) == others[0]
    fixed = planned(epsilon=0.5, delta=delta, mechanism="auto", sample_size=1000)
    assert fixed.sample_size == 1000
    assert fixed.mechanism.decoys is None


def test_auto_never_gives_the_wider_promise_away_for_accuracy() -> None:
    """The paper's way promises nothing against researcher and server together."""
    chosen = planned(epsilon=0.5, mechanism="auto", epsilon_with_curator=1.0)
    by_rank = planned(epsilon=0.5, mechanism="paper", epsilon_with_curator=1.0)
    assert by_rank.rmse < chosen.rmse
    assert chosen.mechanism_name == "decoys"


TARGETS = [
    ({"mechanism": "decoys"}, 0.005, 1e-6),
    ({"mechanism": "decoys", "epsilon_with_curator": 3.0}, 0.02, 1e-6),
    ({"mechanism": "decoys", "delta": 1e-6}, 0.001, 1e-3),
    ({"mechanism": "paper", "epsilon_with_curator": None}, 0.05, 1e-6),
    ({"mechanism": "auto", "epsilon_with_curator": None}, 0.01, 1e-6),
    ({"mechanism": "auto", "delta": 1e-6, "epsilon_with_curator": None}, 0.001, 1e-3),
    ({"mechanism": "decoys", "linkage": "matched"}, 0.01, 1e-6),
]


@pytest.mark.parametrize(("options", "target", "step"), TARGETS, ids=str)
def test_the_smallest_epsilon_for_a_target(
    options: dict[str, Any], target: float, step: float
) -> None:
    """It reaches the target, and a little less does not."""
    found = planned(target_rmse=target, **options)
    assert found.rmse <= target
    assert planned(epsilon=found.epsilon * (1 - step), **options).rmse > target


def test_a_target_out_of_reach() -> None:
    """Against a helping curator the noise stays, whatever ε is."""
    with pytest.raises(InfeasiblePlanError, match="no epsilon up to 50 reaches"):
        planned(target_rmse=1e-4, epsilon_with_curator=1.0)
    other = planned(target_rmse=0.2, domain_size=2**40, mechanism="auto")
    assert other.mechanism_name == "paper"


def test_a_plan_does_not_need_the_population_to_promise() -> None:
    """Without it all is known but the error and the number of rows."""
    known = planned(epsilon=0.5, delta=1e-6, epsilon_with_curator=None)
    found = replace(known, population_size=None)
    assert found.expected_rows is None
    assert found.expected_decoys == known.expected_decoys
    assert (found.epsilon_achieved, found.delta_achieved) == (
        known.epsilon_achieved,
        known.delta_achieved,
    )
    with pytest.raises(ParameterError, match="without a population"):
        _ = found.rmse
    with pytest.raises(ParameterError, match="without a population"):
        _ = found.bytes_per_curator
    printed = json.loads(json.dumps(found.as_dict()))
    assert list(printed) == list(known.as_dict())
    assert printed["rmse"] is printed["paper"] is printed["expected_rows"] is None
    by_rank = planned(epsilon=0.5, mechanism="paper", epsilon_with_curator=None)
    with pytest.raises(ParameterError, match="needs a known population"):
        replace(by_rank, population_size=None)


def test_the_json_of_decoys() -> None:
    """The keys that scripts rely on; what has no meaning is null."""
    found = json.loads(json.dumps(planned(epsilon=0.5, delta=1e-6).as_dict()))
    assert found["decoys"] == {
        "law": "two-sided",
        "ratio": pytest.approx(math.exp(-0.25), rel=1e-6),
        "centre": 47,
        "mean": pytest.approx(47, rel=1e-4),
        "variance": pytest.approx(31.8, rel=1e-2),
        "expected": pytest.approx(24 * 47, rel=1e-4),
    }
    assert (found["mechanism"], found["accounting"]) == ("decoys", "decoys")
    assert found["coin_threshold"] == str(2**64)
    absent = ("sample_size", "gamma", "keep_threshold", "epsilon_with_curator")
    assert [found[key] for key in absent] == [None] * 4
    assert found["epsilon_membership"] is None
    assert found["shuffle"]["sample_size"] == 45222
    assert found["trusted"]["rmse"] == found["trusted_party_rmse"]
    pure = planned(epsilon=0.5, epsilon_public=0.2, epsilon_with_curator=3.0).as_dict()
    assert list(pure) == list(found)
    assert (pure["shuffle"], pure["epsilon_public"]) == (None, 0.2)
    assert pure["coin_threshold"] == str(round(int(pure["coin_threshold"])))
    assert int(pure["keep_threshold"]) / 2**64 == pure["keep_probability"]


def test_a_table_that_is_not_two_sided_is_called_a_table() -> None:
    """Contracts may carry any law; it is described as what it is."""
    end = 1 << 54
    odd, even = (
        Plan(
            population_size=1000,
            domain_size=24,
            epsilon=20.0,
            delta=0.01,
            mechanism=Mechanism(Coin(DRAW_RANGE), WeightTable(weights), None),
            accounting="decoys",
        ).decoys_summary
        for weights in ((end, DRAW_RANGE - 3 * end, 2 * end), (end, DRAW_RANGE - 2 * end, end))
    )
    assert odd is not None
    assert even is not None
    assert (odd.law, odd.ratio, odd.centre) == ("table", None, None)
    assert (even.law, even.centre) == ("two-sided", 1)
    assert even.ratio == pytest.approx(1 / 1022)


def test_the_published_copys_noise_follows_its_promise() -> None:
    """A smaller ε for readers costs more, and without saying so it is ε itself."""
    usual, strict = planned(epsilon=0.5), planned(epsilon=0.5, epsilon_public=0.05)
    assert (usual.epsilon_public, strict.epsilon_public) == (0.5, 0.05)
    assert usual.mechanism == strict.mechanism
    assert usual.rmse == strict.rmse
    assert strict.rmse_published > 2 * usual.rmse_published
    loose = planned(epsilon=0.5, epsilon_public=1.0)
    assert loose.rmse_published == pytest.approx(1.009 * loose.rmse, rel=1e-3)
    by_rank = planned(epsilon=0.5, mechanism="paper", epsilon_with_curator=None)
    added = by_rank.rmse_published**2 - by_rank.rmse**2
    variance = float(utility.publication_variance(privacy.publication_threshold(0.5)))
    sample, keep = by_rank.ranked.sample_size, by_rank.ranked.keep_probability
    assert added == pytest.approx(23 * variance / (keep * sample) ** 2, rel=1e-6)


@pytest.mark.parametrize(
    "bad",
    [
        {"mechanism": "hope"},
        {"mechanism": "shuffle"},
        {"sample_size": 100},
        {"epsilon_with_curator": 0},
        {"epsilon_with_curator": -1},
        {"epsilon_with_curator": math.nan},
        {"epsilon_with_curator": 51},
        {"epsilon_public": 0},
        {"epsilon_public": math.inf},
        {"linkage": "guessed"},
        {"curator_cells": (6, 3)},
        {"curator_cells": 6},
        {"curator_cells": (24, 0)},
        {"curator_cells": ()},
        {"curator_cells": (2.0, 12)},
        {"max_decoys": 0},
        {"max_decoys": 10**9 + 1},
        {"max_decoys": math.nan},
        {"delta": -0.1},
        {"epsilon": 0},
    ],
    ids=str,
)
def test_bad_parameters_are_refused(bad: dict[str, Any]) -> None:
    """Each is one line of error and a hint."""
    with pytest.raises(ParameterError) as caught:
        planned(**{"epsilon": 0.5} | bad)
    assert "\n" not in caught.value.message
    assert caught.value.hint


def test_promises_too_small_for_64_bits_are_refused() -> None:
    """Nobody could take part, nothing but noise, or no noise large enough."""
    for epsilon in (1e-11, 1e-160, 1e-300):  # the error of the last two is beyond all floats
        with pytest.raises(InfeasiblePlanError, match="nobody could take part"):
            planned(epsilon=epsilon)
    with pytest.raises(InfeasiblePlanError, match="nothing but noise"):
        planned(epsilon=0.5, epsilon_with_curator=1e-11)
    with pytest.raises(InfeasiblePlanError, match="no noise of a published copy"):
        planned(epsilon=0.5, epsilon_public=1e-21)


def test_the_work_of_a_plan_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many respondents and cells: a few exact accountings, and some thousand errors."""
    exact, errors = [], []
    delta_of, error_of = decoys.exact_delta, utility.worst_decoys_error

    def counted_delta(coin: Coin, law: WeightTable, epsilon: float) -> Fraction:
        exact.append(len(law.weights))
        return delta_of(coin, law, epsilon)

    def counted_error(*numbers: int, **more: Any) -> object:
        errors.append(1)
        return error_of(*numbers, **more)

    monkeypatch.setattr(decoys, "exact_delta", counted_delta)
    monkeypatch.setattr(utility, "worst_decoys_error", counted_error)
    for n, cells, epsilon in ((45222, 24, 0.5), (10**9, 10**6, 0.01), (10**9, 2, 10.0)):
        exact.clear()
        errors.clear()
        planned(population_size=n, domain_size=cells, epsilon=epsilon, delta=1e-6)
        assert len(exact) <= 4
        assert max(exact) <= 40 / epsilon + 40
        assert len(errors) < 12_000
    errors.clear()
    planned(population_size=10**9, domain_size=10**6, epsilon=0.01)
    assert len(errors) < 100
    assert parameters.MAX_DECOYS == 10**6
