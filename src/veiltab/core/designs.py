"""How a plan's release comes about: by rank or by coin."""

from dataclasses import replace

from veiltab.core.coin_design import CoinDesign
from veiltab.core.plan import Plan
from veiltab.core.publication import PublicationNoise
from veiltab.core.rank_design import RankDesign
from veiltab.core.uncertainty import Population, ReleaseDesign


def release_design(
    plan: Plan,
    *,
    cells: int | None = None,
    population: Population = "finite",
    publication: PublicationNoise | None = None,
    rows: int | None = None,
) -> ReleaseDesign:
    """Return the design of a plan's release, for a marginal of ``cells`` cells.

    Where a plan does not know how many respondents the curators have in common, their number is
    estimated from the number of ``rows`` that were released.
    """
    table = plan.domain_size if cells is None else cells
    if plan.mechanism.decoys is None:
        ranked = plan.ranked
        return RankDesign(
            ranked.channel.marginal(table),
            ranked.population_size,
            ranked.sample_size,
            population,
            publication,
        )
    known = size_known(plan)
    design = CoinDesign(
        plan.mechanism,
        plan.domain_size,
        table,
        plan.population_size or 1,
        known,
        population,
        publication,
    )
    if known or rows is None:
        return design
    return replace(design, population_size=max(design.people(rows)[0], 1.0))


def size_known(plan: Plan) -> bool:
    """Tell whether it is known how many respondents a plan's release is about.

    With decoys, the server that matches rows learns their number only with noise.
    """
    by_rank = plan.mechanism.decoys is None
    return plan.population_size is not None and (by_rank or plan.linkage == "aligned")
