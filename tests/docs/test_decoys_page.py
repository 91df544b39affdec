"""The page on decoys: every number in its tables and examples, computed again.

Nothing here uses the program, except for the last tests, which compare it with the page.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import pytest

import veiltab as vt
from tests.support.decoy_laws import moments, sorted_delta, two_sided
from tests.support.documents import ROOT, Table, prose, tables
from veiltab.core import decoys
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Coin, Geometric, WeightTable

PAGE = ROOT / "docs" / "explanation" / "decoys.md"
THIRD, HALF = Fraction(1, 3), Fraction(1, 2)
SHARES = [(Fraction(1, 3),) * 3, (HALF, HALF, Fraction(0)), (Fraction(1), Fraction(0), Fraction(0))]


def shown(*columns: str) -> Table:
    """Return the page's table that has these columns."""
    (table,) = [table for table in tables(prose(PAGE)) if set(columns) <= set(table.header)]
    return table


def worst_case(
    n: int, cells: int, beta: float, law: tuple[float, float], keep: float = 1.0
) -> float:
    """Return the RMSE on uniform data, by the formula of the page; a law is mean and variance."""
    mean, variance = law
    rows = n * beta + cells * mean
    noise = rows * (1 - keep**2) / keep**2
    total = n * beta * (1 - beta) + cells * variance + noise
    return math.sqrt((1 - 1 / cells) * total) / (n * beta)


def pure_error(n: int, cells: int, epsilon: float, q: float, keep: float = 1.0) -> float:
    """Return the RMSE of the geometric law with the largest coin that ε allows."""
    odds = q * math.expm1(epsilon)
    return worst_case(n, cells, odds / (1 + odds), (q / (1 - q), q / (1 - q) ** 2), keep)


def best_ratio(n: int, cells: int, epsilon: float, keep: float = 1.0) -> float:
    """Return the q with the least error, by golden section."""
    low, high, part = 1e-6, 1 - 1e-9, (math.sqrt(5) - 1) / 2
    for _ in range(100):
        left, right = high - part * (high - low), low + part * (high - low)
        if pure_error(n, cells, epsilon, left, keep) < pure_error(n, cells, epsilon, right, keep):
            high = right
        else:
            low = left
    return (low + high) / 2


def papers_way(n: int, cells: int, epsilon: float) -> float:
    """Return the RMSE of the paper's mechanism at its best sample size."""
    eta = math.expm1(epsilon)
    best = n * eta / cells * math.sqrt(n / (n - 1))

    def error(m: int) -> float:
        """Return the exact worst-case error of a sample of m."""
        gamma = 1 + n * eta / m
        noise = (cells - 1) * (2 * gamma + cells - 2) / (m * (gamma - 1) ** 2)
        return math.sqrt(noise + (1 - 1 / cells) * (n - m) / (m * (n - 1)))

    sizes = {min(max(1, size), n) for size in (math.floor(best), math.ceil(best))}
    return min(error(size) for size in sizes)


def number(text: str) -> int:
    """Read a number with its commas."""
    return int(text.replace(",", ""))


def as_shown(value: float, text: str) -> str:
    """Write a number with as many decimals as the page does."""
    return f"{value:.{len(text.partition('.')[2])}f}"


def test_the_table_of_pure_plans() -> None:
    """The best q, the coin, the decoys, the error and both factors; and the first estimate of q."""
    rows = shown("n", "q", "β", "factor", "2√N").rows
    assert len(rows) == 6
    for row in rows:
        n, cells, epsilon = number(row[0]), number(row[1]), float(row[2])
        q = best_ratio(n, cells, epsilon)
        odds = q * math.expm1(epsilon)
        error, paper = pure_error(n, cells, epsilon, q), papers_way(n, cells, epsilon)
        values = (q, odds / (1 + odds), 0, error, paper, paper / error, 2 * math.sqrt(cells))
        assert number(row[5]) == round(cells * q / (1 - q))
        for text, value in zip(row[3:5] + row[6:], values[:2] + values[3:], strict=True):
            assert as_shown(value, text) == text, row
        bracket = 1 / (n * q * math.expm1(epsilon)) + cells * (1 + odds) ** 2 / (
            (1 - q) ** 2 * q * (n * math.expm1(epsilon)) ** 2
        )
        assert error == pytest.approx(math.sqrt((1 - 1 / cells) * bracket))


def test_the_first_estimate_of_q_and_the_limit() -> None:
    """For many people 1 − q is as the page says, and the gain nears 2√N."""
    n, cells, epsilon = 10**12, 24, 0.5
    q = best_ratio(n, cells, epsilon)
    estimate = (2 * cells * math.exp(2 * epsilon) / (n * math.expm1(epsilon))) ** (1 / 3)
    assert 1 - q == pytest.approx(estimate, rel=0.01)
    error = pure_error(n, cells, epsilon, q)
    assert error == pytest.approx(math.sqrt((1 - 1 / cells) / (n * math.expm1(epsilon))), rel=0.01)
    # The paper's error is 2√((N − 1)/(nη)) less a small term in η/N.
    assert papers_way(n, cells, epsilon) / error == pytest.approx(2 * math.sqrt(cells), rel=0.01)


def least_centre(epsilon: float, delta: float) -> int:
    """Return the least centre that keeps δ if everybody takes part and q = e^(−ε/2)."""
    q = math.exp(-epsilon / 2)
    return next(s for s in range(2000) if two_sided(q, s)[0] <= delta)


def test_the_table_of_plans_with_delta() -> None:
    """The centre, the decoys, the error, and what a trusted party and the pure law have."""
    rows = shown("n", "s", "a trusted party", "pure").rows
    assert len(rows) == 6
    for row in rows:
        n, cells, epsilon = number(row[0]), number(row[1]), float(row[2])
        q, centre = math.exp(-epsilon / 2), least_centre(epsilon, 1e-6)
        mean, variance = moments(two_sided(q, centre))
        trusted = math.sqrt(8 * cells) / (epsilon * n)
        pure = pure_error(n, cells, epsilon, best_ratio(n, cells, epsilon))
        values = (q, centre, 0, worst_case(n, cells, 1.0, (mean, variance)), trusted, pure)
        assert number(row[5]) == round(cells * mean)
        for text, value in zip(row[3:5] + row[6:], values[:2] + values[3:], strict=True):
            assert as_shown(value, text) == text, row
    ratio = best_ratio(10**6, 10**6, 0.5)
    assert round(10**6 * ratio / (1 - ratio), -4) == 440_000


def test_a_coin_can_pay_where_cells_are_many() -> None:
    """As many cells as people, and a large δ."""
    n = cells = 10**6

    def error(beta: float, q: float, centre: int) -> float:
        """Return the RMSE if δ is kept, else infinity."""
        law = two_sided(q, centre)
        if sorted_delta(beta, law, math.e) > 0.01:
            return math.inf
        return worst_case(n, cells, beta, moments(law))

    everybody = min(error(1.0, q / 50, s) for q in range(20, 40) for s in range(4, 14))
    assert round(error(0.65, 0.46, 3), 5) == 0.00251
    assert round(everybody, 5) == 0.00267


def test_the_table_with_a_channel() -> None:
    """γ = 25: the best q for it, and its error; and the coin that would be if γ counted."""
    rows = shown("RMSE, γ = 25", "without a channel").rows
    assert len(rows) == 3
    for row in rows:
        n, cells, epsilon = number(row[0]), number(row[1]), float(row[2])
        keep = (25 - 1) / (25 + cells - 1)
        q = best_ratio(n, cells, epsilon, keep)
        plain = pure_error(n, cells, epsilon, best_ratio(n, cells, epsilon))
        values = (q, pure_error(n, cells, epsilon, q, keep), plain, papers_way(n, cells, epsilon))
        for text, value in zip(row[3:], values, strict=True):
            assert as_shown(value, text) == text, row
    odds = 0.852 * math.expm1(0.5)
    assert round(odds / (odds + 1), 3) == 0.356
    assert round(odds / (odds + 1 - math.exp(0.5) / 25), 3) == 0.372


def test_the_epsilon_of_adding_a_person() -> None:
    """The worse of both ends, at the best q of the paper's study."""
    q = best_ratio(45222, 24, 0.5)
    odds = q * math.expm1(0.5)
    beta = odds / (1 + odds)
    assert round(max(-math.log(1 - beta), math.log(1 - beta + beta / q)), 2) == 0.44


def linear_error(d: Sequence[Fraction], weights: Sequence[Fraction]) -> Fraction:
    """Return E‖e − wΣe‖² for independent errors with variances d."""
    total = sum(d)
    return sum((v - 2 * w * v + w**2 * total for v, w in zip(d, weights, strict=True)), Fraction(0))


def test_the_error_of_calibrated_shares() -> None:
    """Σd − Σd²/Σd; no other way to share out is better; uniform data are the worst."""
    n, beta, v = 100, Fraction(2, 5), Fraction(7)
    errors = []
    for shares in SHARES:
        d = [n * beta * (1 - beta) * share + v for share in shares]
        total = sum(d)
        weights = [each / total for each in d]
        errors.append(linear_error(d, weights))
        assert errors[-1] == total - sum(each**2 for each in d) / total
        assert errors[-1] <= linear_error(d, [Fraction(1, 3)] * 3)
        assert errors[-1] <= linear_error(d, list(shares))
    assert max(errors) == errors[0] == (1 - Fraction(1, 3)) * (n * beta * (1 - beta) + 3 * v)
    assert errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize("beta", [Fraction(2, 5), Fraction(1)])
def test_the_error_of_ratio_shares(beta: Fraction) -> None:
    """The formula in ‖T‖²; the worst data are uniform, or all in one cell, as the page says."""
    n, v, cells = 100, Fraction(7), 3
    errors = []
    for shares in SHARES:
        d = [n * beta * (1 - beta) * share + v for share in shares]
        squares = sum(share**2 for share in shares)
        errors.append(linear_error(d, shares))
        coins = n * beta * (1 - beta) * (1 - squares)
        assert errors[-1] == coins + v * (cells - 2 + cells * squares)
    if n * beta * (1 - beta) > cells * v:
        assert max(errors) == errors[0]
    else:
        assert max(errors) == errors[2] == 2 * v * (cells - 1) == 2 * errors[0]


def published_variance(epsilon: float) -> float:
    """Return the variance of a published copy's noise."""
    alpha = math.exp(-epsilon / 2)
    return 2 * alpha / (1 - alpha) ** 2


def test_the_table_of_published_copies() -> None:
    """The error of the researcher's own estimate, and of a copy at two values of ε_public."""
    table = shown("law", "published, ε_public = 1", "published, ε_public = 0.5")
    n, cells = 45222, 24
    q = best_ratio(n, cells, 0.5)
    odds = q * math.expm1(0.5)
    laws = {
        "pure": (odds / (1 + odds), q / (1 - q), q / (1 - q) ** 2),
        "δ = 10⁻⁶": (1.0, *moments(two_sided(math.exp(-0.25), least_centre(0.5, 1e-6)))),
    }
    assert [row[0] for row in table.rows] == list(laws)
    for name, *texts in table.rows:
        beta, mean, variance = laws[name]
        extra = (0.0, published_variance(1.0), published_variance(0.5))
        for text, more in zip(texts, extra, strict=True):
            assert as_shown(worst_case(n, cells, beta, (mean, variance + more)), text) == text, name


@pytest.mark.parametrize(("beta", "q"), [(THIRD, HALF), (Fraction(1, 4), Fraction(3, 4))])
def test_the_program_has_the_same_ratios(beta: Fraction, q: Fraction) -> None:
    """The theorem and its counterpart for adding a person, at the integers next to the example."""
    coin, law = Coin(int(beta * DRAW_RANGE)), Geometric(int(q * DRAW_RANGE))
    assert decoys.pure_ratio(coin, law) == 1 + coin.probability / (
        law.ratio * (1 - coin.probability)
    )
    up, down = 1 - coin.probability + coin.probability / law.ratio, 1 / (1 - coin.probability)
    assert decoys.membership_ratio(coin, law) == max(up, down)


def test_the_program_has_the_same_delta() -> None:
    """The page's example, and a table of the two-sided law."""
    quarter = DRAW_RANGE // 4
    example = WeightTable((quarter, 2 * quarter, quarter))
    coin = Coin(DRAW_RANGE // 2)
    found = decoys.exact_delta(coin, example, math.log(2))
    assert float(found) == pytest.approx(5 / 32, rel=1e-9)
    law = two_sided(math.exp(-0.25), 47)
    weights = [int(p * DRAW_RANGE) for p in law]
    weights[47] += DRAW_RANGE - sum(weights)
    delta = decoys.exact_delta(Coin(DRAW_RANGE), WeightTable(tuple(weights)), 0.5)
    assert float(delta) == pytest.approx(law[0], rel=1e-3)


def test_the_planner_finds_the_same() -> None:
    """Without noise by the server, the program's plans have the errors of both tables."""
    pure = shown("n", "q", "β", "factor", "2√N").rows
    with_delta = shown("n", "s", "a trusted party", "pure").rows
    for row, delta in [*((row, 0.0) for row in pure), *((row, 1e-6) for row in with_delta[:5])]:
        plan = vt.plan(
            population_size=number(row[0]),
            domain_size=number(row[1]),
            epsilon=float(row[2]),
            delta=delta,
            mechanism="decoys",
            epsilon_with_curator=math.inf,
        )
        assert as_shown(plan.rmse, row[6]) == row[6], row
        assert as_shown(plan.expected_decoys, "1") == row[5].replace(",", ""), row
