"""The paper's claims: real results meet them, and results that contradict one are noticed."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from tests.support.paper import paper_results
from veiltab.paper.claims import Claim, check_claims
from veiltab.paper.experiment import Result

OPTIMUM, LOOSENESS, UNIFORM, LINEAR, PEAKY, OVERLAP, LOWER, NEAR_BEST, FORMULA = range(9)
"""The claims, in the order in which they are checked."""

Doctor = Callable[[Result], Result]


def scale(**factors: float) -> Doctor:
    """Multiply fields of a result."""
    return lambda r: replace(r, **{name: getattr(r, name) * f for name, f in factors.items()})


def doctor(results: Sequence[Result], change: Doctor, **where: object) -> list[Result]:
    """Change the results whose fields have the given values; there must be some."""
    hit = [all(getattr(r, name) == value for name, value in where.items()) for r in results]
    assert any(hit), where
    return [change(r) if chosen else r for r, chosen in zip(results, hit, strict=True)]


def broken(by_size: Sequence[Result], by_cells: Sequence[Result]) -> list[int]:
    """Return which claims do not hold."""
    return [i for i, claim in enumerate(check_claims(by_size, by_cells)) if not claim.holds]


@pytest.mark.slow
def test_every_claim_holds_in_real_experiments() -> None:
    """With 200 runs a point and a fixed seed."""
    claims = check_claims(*paper_results())
    assert [claim for claim in claims if not claim.holds] == []
    assert len(claims) == 9


@pytest.mark.slow
def test_each_claim_says_what_is_claimed_and_what_was_measured() -> None:
    """Each figure has a claim, and every measurement has a number in it."""
    claims = check_claims(*paper_results())
    assert [claim.figure for claim in claims] == [1, 1, 2, 3, 4, 5, 5, 5, None]
    assert len({claim.claim for claim in claims}) == 9
    for claim in claims:
        assert any(letter.isdigit() for letter in claim.measured), claim


SIZE, SMALLEST, EVERYBODY = 633, 30, 45_222
"""A sample size of the figures that is far from every m*, and the two ends."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claim", "change", "where"),
    [
        pytest.param(
            OPTIMUM,
            scale(mean_l2=0.4, error_bound=0.4),
            {"sample_size": SIZE},
            id="a sample size other than m* is far better",
        ),
        pytest.param(
            OPTIMUM,
            scale(mean_l2=1.5, error_bound=1.5),
            {"sample_size": 3899, "epsilon": 1.0},
            id="m* itself is far worse, at one ε",
        ),
        pytest.param(
            LOOSENESS,
            scale(error_bound=2.5),
            {"sample_size": SIZE, "epsilon": 0.5},
            id="the bound is looser than √N",
        ),
        pytest.param(
            LOOSENESS,
            scale(error_bound=0.1),
            {"sample_size": SIZE, "epsilon": 0.5},
            id="the bound is tighter than √N",
        ),
        pytest.param(
            UNIFORM,
            scale(mean_l2=1.5),
            {"distribution": "uniform", "sample_size": SIZE, "epsilon": 0.1},
            id="uniform data have a larger error at one point",
        ),
        pytest.param(
            UNIFORM,
            scale(mean_l2=0.5),
            {"distribution": "uniform", "sample_size": EVERYBODY, "epsilon": 1.0},
            id="uniform data have a smaller error at one point",
        ),
        pytest.param(
            LINEAR,
            scale(mean_l2=1.5),
            {"distribution": "linear", "sample_size": SMALLEST, "epsilon": 0.5},
            id="linear data have a larger error at one point",
        ),
        pytest.param(
            PEAKY,
            scale(mean_l2=2.0),
            {"distribution": "peaky", "sample_size": SMALLEST, "epsilon": 1.0},
            id="peaky data are like the others at the smallest sample, at one ε",
        ),
        pytest.param(
            PEAKY,
            scale(mean_l2=0.5),
            {"distribution": "peaky", "sample_size": EVERYBODY, "epsilon": 0.1},
            id="peaky data differ at m = n too, at one ε",
        ),
    ],
)
def test_a_contradiction_in_figures_1_to_4_is_noticed(
    claim: int, change: Doctor, where: dict[str, object]
) -> None:
    """Results that contradict one claim break that one and no other."""
    by_size, by_cells = paper_results()
    assert broken(doctor(by_size, change, **where), by_cells) == [claim]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claim", "change", "where"),
    [
        pytest.param(
            OVERLAP,
            scale(mean_l2=1.5),
            {"distribution": "uniform", "cells": 768, "epsilon": 0.1},
            id="the uniform curve leaves the others at one cardinality",
        ),
        pytest.param(
            OVERLAP,
            scale(mean_l2=0.5),
            {"distribution": "linear", "cells": 12, "epsilon": 1.0},
            id="the linear curve leaves the others at one cardinality",
        ),
        pytest.param(
            LOWER,
            scale(mean_l2=1.3),
            {"distribution": "peaky", "cells": 96, "epsilon": 0.5},
            id="peaky data are not lower at one cardinality",
        ),
        pytest.param(
            NEAR_BEST,
            scale(rmse=1.15, exact_rmse=1.15),
            {"distribution": "linear", "cells": 384, "epsilon": 0.5},
            id="m* is far from the best for one data set and cardinality",
        ),
        pytest.param(
            FORMULA,
            scale(rmse=1.5),
            {"distribution": "adult", "cells": 48, "epsilon": 0.5},
            id="one simulated error is above the formula",
        ),
        pytest.param(
            FORMULA,
            scale(rmse=0.6),
            {"distribution": "peaky", "cells": 24, "epsilon": 0.1},
            id="one simulated error is below the formula",
        ),
    ],
)
def test_a_contradiction_in_figure_5_is_noticed(
    claim: int, change: Doctor, where: dict[str, object]
) -> None:
    """Results that contradict one claim break that one and no other."""
    by_size, by_cells = paper_results()
    assert broken(by_size, doctor(by_cells, change, **where)) == [claim]


@pytest.mark.slow
def test_the_formula_is_checked_in_the_first_four_figures_too() -> None:
    """One point of 336 is enough."""
    by_size, by_cells = paper_results()
    wrong = doctor(by_size, scale(rmse=1.5), distribution="linear", sample_size=SIZE, epsilon=0.5)
    assert broken(wrong, by_cells) == [FORMULA]
    assert "1 of 420 points" in check_claims(wrong, by_cells)[FORMULA].measured


def with_runs(results: Sequence[Result], runs: int) -> list[Result]:
    """Pretend that the results come from another number of runs."""
    return [replace(result, runs=runs) for result in results]


@pytest.mark.slow
@pytest.mark.parametrize(("runs", "holds"), [(1000, False), (10_000, False), (100, True)])
def test_tolerances_are_wider_only_for_few_runs(*, runs: int, holds: bool) -> None:
    """A gap of 15% is too much for 1000 runs, and noise for 100; more runs are not narrower."""
    by_size, by_cells = paper_results()
    where = {"distribution": "uniform", "sample_size": SIZE, "epsilon": 0.5}
    adult = next(r for r in by_size if _at(r, where | {"distribution": "adult"}))
    gap = doctor(by_size, lambda r: replace(r, mean_l2=1.15 * adult.mean_l2), **where)
    assert _holds(check_claims(with_runs(gap, runs), by_cells), UNIFORM) is holds


def _at(result: Result, where: dict[str, object]) -> bool:
    return all(getattr(result, name) == value for name, value in where.items())


def _holds(claims: list[Claim], claim: int) -> bool:
    return claims[claim].holds


@pytest.mark.slow
def test_an_error_within_five_standard_errors_is_chance() -> None:
    """Beyond 3%, the simulation's own noise decides whether the formula is contradicted."""
    by_size, by_cells = paper_results()
    where = {"distribution": "adult", "sample_size": SIZE, "epsilon": 0.5}

    def off_by(standard_errors: float) -> list[Result]:
        return doctor(
            by_size,
            lambda r: replace(
                r,
                rmse=1.2 * r.exact_rmse,
                rmse_standard_error=0.2 * r.exact_rmse / standard_errors,
            ),
            **where,
        )

    assert broken(off_by(4.9), by_cells) == []
    assert broken(off_by(5.1), by_cells) == [FORMULA]


@pytest.mark.slow
def test_without_a_standard_error_only_three_percent_are_allowed() -> None:
    """A single run has none."""
    by_size, by_cells = paper_results()
    where = {"distribution": "adult", "sample_size": SIZE, "epsilon": 0.5}

    def off_by(share: float) -> list[Result]:
        return doctor(
            by_size,
            lambda r: replace(r, rmse=(1 + share) * r.exact_rmse, rmse_standard_error=None),
            **where,
        )

    assert broken(off_by(0.029), by_cells) == []
    assert broken(off_by(0.031), by_cells) == [FORMULA]
