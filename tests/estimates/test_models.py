"""Models equal plain fits where there is no noise; derivatives and covariances are right."""

import math
import subprocess
from functools import cache

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from numpy.typing import ArrayLike, NDArray
from statsmodels.miscmodels.ordinal_model import OrderedModel

import veiltab as vt
from tests.support.cases import for_each
from tests.support.models import MODELS, core, exact, rare_event, releases, scaled
from veiltab.core.plan import plan
from veiltab.estimates import Estimate
from veiltab.inference.models.families import (
    Family,
    Multinomial,
    ProportionalOdds,
    Scored,
)

TABLE = scaled(vt.adult_table(24), 3_000)
ESTIMATE = exact(TABLE)
SCORES = {"education": [1.0, 2.0, 4.0], "marital": [0.0, 3.0]}


@cache
def records() -> pd.DataFrame:
    """Return the table as one row for each person."""
    cells = np.repeat(np.arange(24, dtype=np.uint8), TABLE.counts)
    decoded = vt.decode_cells(cells, TABLE.schema)
    frame = pd.DataFrame(
        {
            attribute.name: pd.Categorical(
                decoded[attribute.name].to_list(), categories=attribute.categories, ordered=True
            )
            for attribute in TABLE.schema.attributes
        }
    )
    return frame.assign(
        rich=(frame["salary"] == ">50K").astype(float),
        schooling=np.array(SCORES["education"])[frame["education"].cat.codes],
        alone=np.array(SCORES["marital"])[frame["marital"].cat.codes],
    )


def same(fit: vt.ModelFit, names: list[str], params: ArrayLike, errors: ArrayLike | None) -> None:
    """Check coefficients and standard errors, whatever their order, to 1e-8."""
    frame = fit.coefficients
    assert set(frame["term"]) == set(names)
    order = [names.index(term) for term in frame["term"]]
    assert np.abs(frame["estimate"].to_numpy() - np.asarray(params)[order]).max() < 1e-8
    if errors is not None:
        ratios = frame["standard_error"].to_numpy() / np.asarray(errors)[order]
        assert np.abs(ratios - 1).max() < 1e-8
        assert frame["privacy_error"].to_numpy().max() < 1e-6


def test_logistic_regression_without_noise_is_the_plain_fit() -> None:
    """Coefficients, and the errors that statisticians call HC0, to 1e-8."""
    fit = ESTIMATE.logistic("salary ~ gender * education + scores(marital)", scores=SCORES)
    plain = smf.glm(
        "rich ~ gender * education + alone", records(), family=sm.families.Binomial()
    ).fit(cov_type="HC0", tol=1e-14)
    names = [name.replace("alone", "scores(marital)") for name in plain.params.index]
    same(fit, names, plain.params, plain.bse)


def test_linear_regression_without_noise_is_the_plain_fit() -> None:
    """Least squares with HC0 errors."""
    fit = ESTIMATE.regress("education ~ gender + salary", scores=SCORES)
    plain = smf.ols("schooling ~ gender + salary", records()).fit(cov_type="HC0")
    same(fit, list(plain.params.index), plain.params, plain.bse)


def dummies() -> pd.DataFrame:
    """Return a constant and two indicators."""
    frame = records()
    return pd.DataFrame(
        {
            "Intercept": 1.0,
            "gender[T.female]": (frame["gender"] == "female").astype(float),
            "salary[T.>50K]": frame["rich"],
        }
    )


@pytest.mark.filterwarnings("ignore")  # of the other program
def test_multinomial_regression_without_noise_is_the_plain_fit() -> None:
    """Logits against the first category, with HC0 errors."""
    fit = ESTIMATE.multinomial("education ~ gender + salary")
    plain = sm.MNLogit(records()["education"].cat.codes.to_numpy(), dummies()).fit(
        cov_type="HC0", disp=0, method="newton", tol=1e-14
    )
    categories = TABLE.schema.attributes[0].categories[1:]
    names = [f"{category}: {name}" for category in categories for name in dummies().columns]
    same(fit, names, np.asarray(plain.params).T.ravel(), np.asarray(plain.bse).T.ravel())


@pytest.mark.filterwarnings("ignore")  # of the other program
def test_ordinal_regression_without_noise_is_the_plain_fit() -> None:
    """Thresholds and slopes; the other program's search ends at about 1e-9."""
    fit = ESTIMATE.ordinal("education ~ gender + salary")
    model = OrderedModel(records()["education"], dummies().iloc[:, 1:], distr="logit")
    plain = model.fit(method="bfgs", disp=0, gtol=1e-11, maxiter=500, cov_type="HC0")
    thresholds = model.transform_threshold_params(plain.params)[1:-1]
    frame = fit.coefficients
    assert np.abs(frame["estimate"].to_numpy()[:2] - thresholds).max() < 1e-7
    assert np.abs(frame["estimate"].to_numpy()[2:] - plain.params.to_numpy()[:2]).max() < 1e-7
    errors = frame["standard_error"].to_numpy()[2:]
    assert np.abs(errors / plain.bse.to_numpy()[:2] - 1).max() < 1e-5
    assert np.abs(core(fit).distance.at(core(fit).estimate).sums).max() < 1e-12


def test_log_linear_model_without_noise_is_the_plain_fit() -> None:
    """A Poisson regression of the counts of cells; its intercept is not free here."""
    fit = ESTIMATE.loglinear("~ gender * education + salary * gender")
    table = TABLE.marginal(["gender", "education", "salary"])
    decoded = vt.decode_cells(np.arange(12, dtype=np.uint8), table.schema)
    frame = pd.DataFrame({name: decoded[name].to_list() for name in decoded.columns})
    for attribute in table.schema.attributes:
        frame[attribute.name] = pd.Categorical(
            frame[attribute.name], categories=attribute.categories
        )
    formula = "people ~ gender * education + salary * gender"
    plain = smf.glm(formula, frame.assign(people=table.counts), family=sm.families.Poisson()).fit(
        tol=1e-14
    )
    params = plain.params.drop("Intercept")
    same(fit, list(params.index), params, None)


def test_coefficients_do_not_depend_on_the_mechanism_once_noise_vanishes() -> None:
    """With decoys too: the difference to the plain fit falls with ε, to 1e-8."""
    formula = "salary ~ gender + education"
    wanted = ESTIMATE.logistic(formula).coefficients["estimate"]
    apart = []
    for epsilon in (3.0, 40.0):
        estimate = vt.simulate(
            TABLE, epsilon=epsilon, mechanism="decoys", epsilon_with_curator=math.inf, seed=1
        )
        found = estimate.logistic(formula).coefficients["estimate"]
        apart.append(float(np.abs(found - wanted).max()))
    assert apart[0] > 1e-3
    assert apart[1] < 1e-8


def test_a_proportion_is_warners_estimate_with_his_variance() -> None:
    """One attribute with two categories through the channel is Warner's design (1965).

    With the truth told with probability p, π̂ = (λ̂ + p − 1)/(2p − 1) and its variance is π(1 − π)/n
    + p(1 − p)/(n(2p − 1)²); this is the design of RRreg's first example.
    """
    schema = vt.Schema([vt.Attribute("used", ["no", "yes"])])
    chosen = plan(
        population_size=1_000, domain_size=2, sample_size=1_000, epsilon=1.6, mechanism="paper"
    )
    assert chosen.keep_probability is not None
    told = (1 + chosen.keep_probability) / 2
    fit = Estimate(schema, np.array([600, 400]), chosen).logistic("used ~ 1")
    share = (0.4 + told - 1) / (2 * told - 1)
    variance = share * (1 - share) / 1000 + told * (1 - told) / (1000 * (2 * told - 1) ** 2)
    row = fit.coefficients.row(0, named=True)
    assert row["estimate"] == pytest.approx(np.log(share / (1 - share)), abs=1e-9)
    assert row["standard_error"] == pytest.approx(variance**0.5 / (share * (1 - share)), rel=1e-9)


def test_a_saturated_logit_has_the_interval_of_the_ratio_behind_it() -> None:
    """With one group, all p with |s − p·w| ≤ z σ(p): Fieller's set on the logit scale."""
    estimate = next(releases(vt.adult_table(24), "paper", 1))
    fit = estimate.logistic("salary ~ gender")
    predicted = fit.predict({"gender": "female"}).row(0, named=True)
    table = estimate.marginal(["gender", "salary"])
    form = table.design("super").total.like(table.unbiased)
    for end in (predicted["low"], predicted["high"]):
        if end == 0.0:
            continue
        weights = np.array([0.0, 0.0, -end, 1 - end])
        off = float(weights @ table.unbiased)
        variance = float(form.between(table.plausible, weights, weights))
        assert off**2 / variance == pytest.approx(1.959964**2, rel=1e-4)


FAMILIES: list[tuple[Family, NDArray[np.float64]]] = [
    (Multinomial(2), np.array([[0.3], [-1.2]])),
    (Multinomial(4), np.array([[0.3, -0.5, 1.0], [2.0, 0.1, -0.7]])),
    (ProportionalOdds(4), np.array([[-1.0, 0.2, 1.5], [-0.3, 0.1, 2.2]])),
    (Scored(np.array([1.0, 2.0, 5.0])), np.array([[1.3], [4.0]])),
]


@for_each("case", FAMILIES)
def test_derivatives_of_the_log_likelihood(case: tuple[Family, NDArray[np.float64]]) -> None:
    """First derivatives are those of the log-chance, second those of the first, by differences."""
    family, predictors = case
    first, second, slopes = (f(predictors) for f in (family.first, family.second, family.slopes))
    for place in range(family.predictors):
        step = np.zeros(family.predictors)
        step[place] = 1e-6
        high, low = (family.first(predictors + sign * step) for sign in (1, -1))
        assert np.allclose((high - low) / 2e-6, second[..., place], atol=1e-7)
        high, low = (family.means(predictors + sign * step) for sign in (1, -1))
        assert np.allclose((high - low) / 2e-6, slopes[..., place], atol=1e-7)
        if not isinstance(family, Scored):
            logs = (np.log(high) - np.log(low)) / 2e-6
            assert np.allclose(logs, first[..., place], atol=1e-7)


@for_each("name", MODELS)
def test_derivatives_of_equations_and_distance(name: str) -> None:
    """The Jacobian, and the slope of Q with a covariance that moves along, by differences."""
    fitted = core(MODELS[name](next(releases(rare_event(), "decoys, pure", 1))))
    distance, equations = fitted.distance, fitted.specification.equations
    start = fitted.solution.parameters * 0.9
    point = distance.at(start)
    slopes = equations.jacobian(start, distance.shares)
    gradient = distance._gradient(point, slopes)
    for place, step in enumerate(1e-6 * np.eye(start.size)):
        high, low = distance.at(start + step), distance.at(start - step)
        assert np.allclose((high.sums - low.sums) / 2e-6, slopes[:, place], atol=1e-7)
        rise = (high.distance - low.distance) / 2e-6
        assert rise == pytest.approx(2 * gradient[place], rel=1e-4, abs=1e-3)


def test_the_covariance_is_the_sandwich() -> None:
    """H⁻¹VH⁻ᵀ with V of the mechanism, and its two parts add up."""
    fit = next(releases(vt.adult_table(24), "paper", 1)).logistic("salary ~ gender + education")
    fitted = core(fit)
    spec = fitted.specification
    slopes = np.linalg.inv(spec.equations.jacobian(fitted.estimate, spec.released.unbiased))
    scores = spec.equations.scores(fitted.estimate)
    uncertainty = spec.released.uncertainty("super")
    between = [[uncertainty.between(left, right) for right in scores] for left in scores]
    assert np.allclose(fit.covariance, slopes @ np.array(between) @ slopes.T, rtol=1e-9)
    frame = fit.coefficients
    squares = frame["sampling_error"] ** 2 + frame["privacy_error"] ** 2
    assert np.allclose(squares, frame["standard_error"] ** 2)
    assert np.allclose(np.diag(fit.covariance), frame["standard_error"] ** 2)


def test_the_respondents_themselves_have_smaller_errors() -> None:
    """If everybody is sampled, no sampling error is left for the finite population."""
    finite = ESTIMATE.logistic("salary ~ gender", population="finite").coefficients
    assert finite["sampling_error"].to_numpy().max() == 0
    assert finite["standard_error"].to_numpy().max() < 1e-6
    assert (finite["high"] > finite["low"]).all()


R_SCRIPT = """
library(survey, quietly = TRUE)
d <- read.csv(file('stdin'))
design <- svydesign(ids = ~1, weights = ~1, data = d[rep(seq_len(nrow(d)), d$n), ])
fit <- svyglm(rich ~ female + some + post, design = design, family = quasibinomial())
cat(format(c(coef(fit), SE(fit)), digits = 15))
"""


@pytest.mark.slow
def test_errors_without_noise_are_those_of_survey() -> None:
    """R's svyglm, which divides by n − 1 instead of n; left out where R is not installed."""
    frame = records()
    wide = pd.DataFrame(
        {
            "rich": frame["rich"],
            "female": (frame["gender"] == "female").astype(int),
            "some": (frame["education"] == "some college").astype(int),
            "post": (frame["education"] == "post-graduate degree").astype(int),
        }
    )
    counted = wide.value_counts().rename("n").reset_index()
    try:
        run = subprocess.run(  # noqa: S603 - a script of our own
            ["Rscript", "-e", R_SCRIPT],  # noqa: S607 - wherever R is
            input=counted.to_csv(index=False),
            capture_output=True,
            text=True,
            check=True,
        )
    except (FileNotFoundError, subprocess.CalledProcessError):
        pytest.skip("R with the package survey is not installed")
    numbers = np.array(run.stdout.split(), dtype=float)
    ours = ESTIMATE.logistic("salary ~ gender + education").coefficients
    assert np.allclose(ours["estimate"], numbers[:4], atol=1e-6)
    people = len(frame)
    scaled_errors = ours["standard_error"] * (people / (people - 1)) ** 0.5
    assert np.allclose(scaled_errors, numbers[4:], rtol=1e-5)
