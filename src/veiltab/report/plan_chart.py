"""The chart of a plan: what every sample size would give, and the one that was chosen."""

import math

from veiltab.core import utility
from veiltab.core.plan import Plan
from veiltab.core.privacy import gamma_for
from veiltab.report.charts import BOUND, ErrorChart, Mark, Vertical

PAPER, OURS = "the paper", "veiltab"
WORST, TIGHTENED = "exact RMSE, worst case", "tightened bound"
REACH = 100
"""How far the curve goes on either side of the chosen sample size, as a factor."""

STEPS = 200


def plan_chart(plan: Plan) -> ErrorChart:
    """Show the exact worst-case error and the paper's bounds against the sample size."""
    curves = []
    for size in _sizes(plan):
        gamma = gamma_for(plan.population_size, size, plan.epsilon)
        exact = utility.worst_case_rmse(plan.population_size, size, plan.domain_size, gamma)
        bound = utility.error_bound(size, plan.domain_size, gamma)
        tightened = utility.tightened_bound(size, plan.domain_size, gamma)
        curves.append(Mark(size, exact, OURS, WORST))
        curves.append(Mark(size, bound, PAPER, BOUND))
        curves.append(Mark(size, tightened, PAPER, TIGHTENED))
    best = plan.paper.optimal_sample_size
    return ErrorChart(
        title=f"Error against sample size at ε = {plan.epsilon:.4g}",
        subtitle=[
            f"n = {plan.population_size:,} respondents, N = {plan.domain_size:,} cells",
            f"The plan: m = {plan.sample_size:,}, RMSE {plan.rmse:.4g}",
        ],
        x_title="sample size m",
        group_title="",
        curves=curves,
        points=[Mark(plan.sample_size, plan.rmse, OURS, "the plan")],
        verticals=[Vertical(best, PAPER, f"m* = {best:,}")],
        symbol_title="Chosen",
    )


def _sizes(plan: Plan) -> list[int]:
    """Return sample sizes around the chosen one and the paper's, evenly spread in logarithm."""
    both = (plan.sample_size, plan.paper.optimal_sample_size)
    low = math.log(max(1, min(both) / REACH))
    high = math.log(min(plan.population_size, max(both) * REACH))
    step = (high - low) / STEPS
    spread = (round(math.exp(low + i * step)) for i in range(STEPS + 1))
    # Near 2^53 the exponential of a logarithm can come out above the number.
    return sorted({*both, *(min(size, plan.population_size) for size in spread)})
