"""What a δ of one in a million buys: the paper's way, shuffling, and a trusted party compared.

No experiment is needed: all three errors are exact, for the hardest data.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from veiltab.core.plan import plan
from veiltab.report.charts import ErrorChart, Mark

CELLS = 24
DELTA = 1e-6
POPULATION = 45_222
EPSILON = 0.5
EPSILONS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.5, 2.0)
POPULATIONS = (300, 1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 1_000_000, 10_000_000)

PAPER, SHUFFLED, TRUSTED = "the paper's way (δ = 0)", "shuffled (δ = 1e-6)", "a trusted party"
SERIES = "exact RMSE, worst case"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The worst-case RMSE of three ways to publish the same table."""

    population_size: int
    domain_size: int
    epsilon: float
    delta: float
    pure_rmse: float
    shuffle_rmse: float
    trusted_party_rmse: float

    @property
    def gain(self) -> float:
        """How many times less error shuffling leaves than the paper's way."""
        return self.pure_rmse / self.shuffle_rmse


def compare(population_size: int, epsilon: float) -> Comparison:
    """Plan all three ways for one setting."""
    pure = plan(population_size=population_size, domain_size=CELLS, epsilon=epsilon)
    shuffled = plan(
        population_size=population_size, domain_size=CELLS, epsilon=epsilon, delta=DELTA
    )
    return Comparison(
        population_size=population_size,
        domain_size=CELLS,
        epsilon=epsilon,
        delta=DELTA,
        pure_rmse=pure.rmse,
        shuffle_rmse=shuffled.rmse,
        trusted_party_rmse=pure.trusted_party_rmse,
    )


def epsilon_chart(comparisons: Sequence[Comparison]) -> ErrorChart:
    """Show the three errors against ε."""
    return ErrorChart(
        title="Figure 6. What a δ of one in a million buys, against ε",
        subtitle=[f"n = {POPULATION:,} respondents, N = {CELLS} cells; exact worst-case RMSE"],
        x_title="privacy ε",
        group_title="",
        curves=[mark for each in comparisons for mark in _marks(each, each.epsilon)],
        x_ticks=[0.05, 0.1, 0.2, 0.5, 1, 2],
        x_format="~g",
    )


def population_chart(comparisons: Sequence[Comparison]) -> ErrorChart:
    """Show the three errors against the number of respondents."""
    return ErrorChart(
        title="Figure 7. What a δ of one in a million buys, against the population",
        subtitle=[f"ε = {EPSILON:g}, N = {CELLS} cells; exact worst-case RMSE"],
        x_title="respondents n",
        group_title="",
        curves=[mark for each in comparisons for mark in _marks(each, each.population_size)],
        x_ticks=[1_000, 10_000, 100_000, 1_000_000, 10_000_000],
    )


def _marks(each: Comparison, x: float) -> list[Mark]:
    return [
        Mark(x, each.pure_rmse, PAPER, SERIES),
        Mark(x, each.shuffle_rmse, SHUFFLED, SERIES),
        Mark(x, each.trusted_party_rmse, TRUSTED, SERIES),
    ]
