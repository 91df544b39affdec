"""Small areas: the model against its textbook formulas, what is refused, and coverage."""

from typing import Any

import numpy as np
import polars as pl
import pytest

import veiltab as vt
from tests.support.estimates import shaped_table
from veiltab.core.designs import release_design
from veiltab.errors import ParameterError
from veiltab.inference.small_areas import _between_variance, _fit

AREAS = 12


def draw(
    rates: np.ndarray[Any, np.dtype[np.float64]],
    people: int,
    seed: int,
    sizes: np.ndarray[Any, np.dtype[np.float64]] | None = None,
    **terms: Any,
) -> vt.Estimate:
    """Return an estimate of a release about areas with these shares of b0."""
    areas = rates.size
    weights = np.ones(areas) if sizes is None else sizes
    joint = weights[:, np.newaxis] * np.stack([rates, 1 - rates], axis=1)
    table = shaped_table((areas, 2), joint, people)
    plan = vt.plan(population_size=people, domain_size=2 * areas, **({"epsilon": 1.0} | terms))
    design = release_design(plan, population="super")
    [counts] = design.redraw(joint.reshape(-1) / joint.sum(), 1, np.random.default_rng(seed))
    return vt.Estimate(table.schema, counts, plan)


def test_the_model_is_the_textbook_one_for_independent_areas() -> None:
    """Shrinkage A/(A + D), and Prasad and Rao's three terms, written out for diagonal D."""
    generator = np.random.default_rng(1)
    variances = generator.uniform(0.5, 3, AREAS)
    matrix = np.stack([np.ones(AREAS), generator.normal(size=AREAS)], axis=1)
    direct = (
        matrix @ [2.0, 1.0] + generator.normal(0, 1.5, AREAS) + generator.normal(0, variances**0.5)
    )
    model = _fit(direct, np.diag(variances), matrix)
    between = model.between
    total = between + variances
    covariance = np.linalg.inv((matrix / total[:, np.newaxis]).T @ matrix)
    slopes = covariance @ (matrix / total[:, np.newaxis]).T @ direct
    weights = between / total
    assert model.weights == pytest.approx(weights)
    assert model.coefficients == pytest.approx(slopes)
    wanted = weights * direct + (1 - weights) * (matrix @ slopes)
    assert model.predictions == pytest.approx(wanted)
    g1 = between * variances / total
    g2 = (variances / total) ** 2 * np.einsum("ij,jk,ik->i", matrix, covariance, matrix)
    g3 = variances**2 / total**3 * 2 / (1 / total**2).sum()
    assert model.errors**2 == pytest.approx(g1 + g2 + 2 * g3)


def test_the_variance_between_areas_maximises_the_adjusted_likelihood() -> None:
    """By a fine grid over the formula for independent areas; it is never zero."""
    generator = np.random.default_rng(2)
    variances = generator.uniform(0.5, 3, AREAS)
    ones = np.ones((AREAS, 1))
    for spread in (0.0, 2.0):
        direct = generator.normal(0, spread, AREAS) + generator.normal(0, variances**0.5)
        grid = np.exp(np.linspace(np.log(1e-4), np.log(50), 4_000))
        total = grid[:, np.newaxis] + variances
        mean = (direct / total).sum(axis=1) / (1 / total).sum(axis=1)
        loglik = -0.5 * (
            np.log(total).sum(axis=1)
            + np.log((1 / total).sum(axis=1))
            + ((direct - mean[:, np.newaxis]) ** 2 / total).sum(axis=1)
        )
        adjusted = loglik + np.log(np.arctan((1 - variances / total).sum(axis=1))) / AREAS
        best = _between_variance(direct, np.diag(variances), ones)
        assert best == pytest.approx(grid[adjusted.argmax()], rel=0.01)
    flat = _between_variance(np.zeros(AREAS), np.diag(variances), ones)
    assert flat > 0


def test_areas_borrow_strength() -> None:
    """Direct estimates agree with conditional shares, and the model shrinks them."""
    rates = np.linspace(0.2, 0.4, AREAS)
    estimate = draw(rates, 4_000, 3)
    areas = estimate.small_areas("b = 'b0'", "a")
    assert areas.columns == [
        "a", "direct", "direct_error", "model", "model_error", "low", "high", "weight", "between",
        "note",
    ]  # fmt: skip
    for row in areas.iter_rows(named=True):
        direct = estimate.probability("b = 'b0'", given={"a": row["a"]}, population="super")
        assert row["direct"] == pytest.approx(direct.value)
        assert row["direct_error"] == pytest.approx(direct.standard_error, rel=0.25)
        assert row["low"] < row["model"] < row["high"]
        assert 0 < row["weight"] < 1
    spread = areas["direct"].std()
    assert areas["model"].std() < spread  # type: ignore[operator]
    assert areas["model_error"].mean() < areas["direct_error"].mean()  # type: ignore[operator]
    assert areas["note"].null_count() == AREAS
    finite = estimate.small_areas("b = 'b0'", "a", population="finite")
    assert (finite["direct_error"] < areas["direct_error"]).all()


def test_without_noise_the_direct_estimates_remain() -> None:
    """With many people and a large ε, weights go to one."""
    rates = np.linspace(0.2, 0.8, AREAS)
    areas = draw(rates, 3_000_000, 4, epsilon=8.0).small_areas("b = 'b0'", "a")
    assert areas["weight"].min() > 0.99  # type: ignore[operator]
    assert areas["model"].to_numpy() == pytest.approx(rates, abs=0.01)


def test_an_area_that_cannot_be_seen_gets_the_models_estimate() -> None:
    """It has no direct estimate, the widest interval, and a note."""
    sizes = np.ones(AREAS)
    sizes[3] = 1e-4
    areas = draw(np.linspace(0.2, 0.4, AREAS), 5_000, 5, sizes).small_areas("b = 'b0'", "a")
    row = areas.row(3, named=True)
    assert row["direct"] is None
    assert row["weight"] == 0
    assert "model alone" in row["note"]
    assert row["model_error"] == areas["model_error"].max()
    assert row["model_error"] >= row["between"]
    assert areas["note"].null_count() == AREAS - 1


def test_a_rate_of_zero_has_an_interval() -> None:
    """Nobody has the event: where noise takes a number below zero, its row says so."""
    notes = []
    for seed in range(12):
        areas = draw(np.zeros(AREAS), 6_000, seed, epsilon=0.5).small_areas("b = 'b0'", "a")
        assert (areas["low"] < areas["high"]).all()
        assert ((areas["low"] <= areas["model"]) & (areas["model"] <= areas["high"])).all()
        moved = areas.filter(pl.col("note").is_not_null())
        assert (moved["model"] == 0).all()
        notes += moved["note"].to_list()
    assert notes
    assert all(
        note.endswith("below zero because of the noise; it is shown as zero") for note in notes
    )


def test_covariates_explain_areas() -> None:
    """A covariate that the rates follow leaves less between areas; a frame says the same."""
    generator = np.random.default_rng(6)
    x = generator.normal(size=20)
    estimate = draw(0.4 + 0.1 * x, 60_000, 6)
    names = estimate.schema.attributes[0].categories
    plain = estimate.small_areas("b = 'b0'", "a")
    covariate = {"x": dict(zip(names, x.tolist(), strict=True))}
    explained = estimate.small_areas("b = 'b0'", "a", covariate)
    assert explained["between"][0] < plain["between"][0] / 3
    frame = pl.DataFrame({"x": x, "a": names})
    assert estimate.small_areas("b = 'b0'", "a", frame).equals(explained)
    for wrong, reason in (
        ({"x": {"a0": 1.0}}, "one finite number for each area"),
        ({"x": 3}, "not mappings"),
        ({"x": dict.fromkeys(names, 1.0)}, "the same in all areas"),
        (pl.DataFrame({"x": x}), "no column 'a'"),
    ):
        with pytest.raises(ParameterError, match=reason):
            estimate.small_areas("b = 'b0'", "a", wrong)  # type: ignore[arg-type]


def test_too_few_areas_and_conditions_about_areas_are_refused() -> None:
    """Four areas say too little about a variance between them."""
    with pytest.raises(ParameterError, match="4 of 4 areas can be told"):
        draw(np.full(4, 0.3), 5_000, 1).small_areas("b = 'b0'", "a")
    with pytest.raises(ParameterError, match="decides about whole areas"):
        draw(np.full(8, 0.3), 5_000, 1).small_areas("a = 'a0'", "a")


SETTINGS: dict[str, tuple[int, int, float, float, dict[str, Any]]] = {
    "decoys": (12, 6_000, 0.3, 0.08, {"mechanism": "decoys"}),
    "matched": (30, 10_000, 0.15, 0.04, {"mechanism": "decoys", "linkage": "matched"}),
    "paper": (20, 100_000, 0.4, 0.1, {"mechanism": "paper"}),
    "shuffle": (25, 20_000, 0.1, 0.03, {"mechanism": "shuffle", "delta": 1e-6, "epsilon": 0.5}),
}


def coverage(name: str, runs: int) -> tuple[float, float]:
    """Return how often intervals hold the rates, drawn from the model, and what is left of RMSE."""
    areas, people, mean, spread, terms = SETTINGS[name]
    generator = np.random.default_rng([7, *name.encode()])
    sizes, held, errors = generator.dirichlet(np.full(areas, 5.0)), 0.0, np.zeros(2)
    for run in range(runs):
        rates = np.clip(generator.normal(mean, spread, areas), 0.001, 0.999)
        frame = draw(rates, people, run, sizes, **terms).small_areas("b = 'b0'", "a")
        low, high = frame["low"].to_numpy(), frame["high"].to_numpy()
        held += float(((low <= rates) & (rates <= high)).mean())
        known = frame["note"].is_null().to_numpy()
        for position, column in enumerate(("model", "direct")):
            errors[position] += ((frame[column].to_numpy() - rates)[known] ** 2).sum()
    return held / runs, float(errors[0] / errors[1]) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", ["matched", "paper"])
def test_intervals_hold_on_average_over_areas(name: str) -> None:
    """20 releases: as all areas of one share a variance, the standard error is about 1.5%.

    A right program fails once in 10⁴ runs.
    """
    held, left = coverage(name, 20)
    assert 0.88 < held < 0.995
    assert left < 0.95


def test_intervals_of_areas_that_differ_widely_are_not_too_wide() -> None:
    """Rates of 5% and 90%: in 40 releases 480 areas, standard error 1%.

    With variances at the rate of all areas, 99.4% of the intervals hold.
    """
    rates, held = np.array([0.05, 0.9] * 6), []
    for seed in range(40):
        frame = draw(rates, 20_000, seed).small_areas("b = 'b0'", "a")
        low, high = frame["low"].to_numpy(), frame["high"].to_numpy()
        held.append(((low <= rates) & (rates <= high)).mean())
    assert 0.915 < np.mean(held) < 0.985


@pytest.mark.soak
@pytest.mark.parametrize("name", list(SETTINGS))
def test_intervals_hold_in_many_releases(name: str) -> None:
    """1,000 releases have 12,000 areas or more."""
    held, left = coverage(name, 1_000)
    assert 0.93 <= held <= 0.97
    assert left < 1
