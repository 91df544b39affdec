"""Tests of several coefficients at once, and of one model within another, without a likelihood.

The statistic is the smallest distance Q of the larger model under the hypothesis, which is about χ²
with as many degrees of freedom as coefficients are taken away.
"""

from collections.abc import Iterable

import numpy as np
from scipy.linalg import null_space
from scipy.special import chdtrc

from veiltab.core.released import Shares
from veiltab.errors import ModelError
from veiltab.inference.hypotheses import HypothesisTest
from veiltab.inference.models.fitted import Fitted

METHOD = "smallest distance of the estimating equations, χ²"
UNSETTLED = "the nearest coefficients under the hypothesis were not found"


def test_combinations(fitted: Fitted, combinations: Shares, label: str) -> HypothesisTest:
    """Test whether all of these combinations of coefficients, one per row, are zero."""
    rows = int(np.linalg.matrix_rank(combinations))
    if rows < len(combinations):
        raise ModelError(
            "some of the combinations follow from others", hint="leave out what follows"
        )
    return _test(fitted, null_space(combinations), _under(fitted, combinations), label)


def compare(larger: Fitted, smaller: Fitted) -> HypothesisTest:
    """Test a model against a larger one that has the same outcome and holds it."""
    basis = _embedding(larger, smaller)
    label = f"{smaller.specification.formula} against {larger.specification.formula}"
    starts = [basis @ smaller.estimate] if smaller.converged else []
    return _test(larger, basis, starts, label)


def _test(fitted: Fitted, basis: Shares, starts: Iterable[Shares], label: str) -> HypothesisTest:
    """Return the smallest distance under the hypothesis.

    Without a fit there is no test: the equations are then off by more than the hypothesis, and the
    distance would count that against it.
    """
    equations = fitted.specification.equations
    degrees = equations.parameters - basis.shape[1]
    plain = basis @ np.linalg.lstsq(basis, fitted.estimate, rcond=None)[0]
    found = [fitted.distance.nearest(np.array([*starts, plain]), basis)]
    if not found[0].settled.any():
        proper = [start for start in (*starts, plain) if equations.proper(start)]
        found = [fitted.distance.searched(start, basis) for start in proper]
    settled = [float(q) for each in found for q in each.distance[each.settled]]
    if not settled:
        raise ModelError(UNSETTLED, hint="test fewer terms at once, or fit a smaller model")
    statistic = min(settled)
    return HypothesisTest(
        label=label,
        statistic=statistic,
        degrees_of_freedom=degrees,
        p_value=float(chdtrc(degrees, statistic)),
        population=fitted.population,
        method=METHOD,
        warnings=(*fitted.warnings, *fitted.hidden),
    )


def _under(fitted: Fitted, combinations: Shares) -> list[Shares]:
    """Return the coefficients under the hypothesis, to first order."""
    shared = fitted.linearised.total @ combinations.T
    off = combinations @ fitted.estimate
    return [fitted.estimate - shared @ np.linalg.solve(combinations @ shared, off)]


def _embedding(larger: Fitted, smaller: Fitted) -> Shares:
    """Return the coefficients of the larger model that those of the smaller one stand for."""
    big, small = larger.specification, smaller.specification
    _check_comparable(larger, smaller)
    design, whole = big.design_of(small), big.design_of(big)
    if design is not None and whole is not None and design.shape[1] < whole.shape[1]:
        basis: Shares = np.linalg.pinv(whole) @ design
        if np.allclose(whole @ basis, design, atol=1e-8):
            return basis
    raise ModelError(
        f"{small.formula!r} is not a part of {big.formula!r}",
        hint="compare a model with one that has all of its terms and some more",
    )


def _check_comparable(larger: Fitted, smaller: Fitted) -> None:
    big, small = larger.specification, smaller.specification
    same = (big.model, big.outcome, larger.population) == (
        small.model,
        small.outcome,
        smaller.population,
    )
    if not same:
        raise ModelError(
            "the models differ in more than their terms",
            hint="compare fits of one model and one outcome, for the same population",
        )
    first, second = big.source, small.source
    if first.schema != second.schema or not np.array_equal(first.counts, second.counts):
        raise ModelError(
            "the models are fitted to different releases", hint="fit both to the same estimate"
        )
