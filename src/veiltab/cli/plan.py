"""``veiltab plan``: how many to sample and how much to perturb, before anything is signed."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from veiltab.cli.output import console, json_option, print_json
from veiltab.core.plan import PURE, SHUFFLE, Plan, plan

if TYPE_CHECKING:
    from rich.table import Table

ACCOUNTINGS = {
    PURE: "pure accounting, Theorem 1",
    SHUFFLE: "shuffle accounting: the secret order counts",
}


@click.command("plan")
@click.option("--population", type=int, required=True, help="How many respondents, n.")
@click.option(
    "--cells",
    type=int,
    required=True,
    help="How many cells the joint table has, N: the product of the attributes' categories.",
)
@click.option("--epsilon", type=float, help="The privacy to promise; smaller is more private.")
@click.option("--target-rmse", type=float, help="Instead of ε: the error to reach.")
@click.option(
    "--delta",
    type=float,
    default=0.0,
    show_default=True,
    help="The chance that the promise of ε does not hold; 1e-6 allows far less noise.",
)
@click.option("--sample-size", type=int, help="Fix the sample, m; the best one by default.")
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the error against the sample size to this .svg or .png file.",
)
@json_option
def plan_command(
    population: int,
    cells: int,
    epsilon: float | None,
    target_rmse: float | None,
    delta: float,
    sample_size: int | None,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Choose the sample size and the noise for a promise of privacy.

    The error is the root mean squared ℓ₂ distance between the estimated and the true joint
    distribution, exact for the hardest data.  The promised ε is never exceeded, not even by
    rounding.

    \b
    Examples:
      veiltab plan --population 45222 --cells 24 --epsilon 0.5
      veiltab plan --population 45222 --cells 24 --epsilon 0.5 --delta 1e-6
      veiltab plan --population 45222 --cells 24 --target-rmse 0.05 --json
      veiltab plan --population 45222 --cells 24 --epsilon 0.5 --plot plan.svg
    """  # noqa: D301 - \b tells click to leave the lines alone
    chosen = plan(
        population_size=population,
        domain_size=cells,
        epsilon=epsilon,
        delta=delta,
        sample_size=sample_size,
        target_rmse=target_rmse,
    )
    if plot is not None:
        from veiltab.report.charts import plan_chart, save_chart

        save_chart(plan_chart(chosen).draw(), plot)
    if as_json:
        print_json(chosen.as_dict())
    else:
        _print_plan(chosen)
        if plot is not None:
            click.echo(f"\nPicture: {plot}")


def _print_plan(chosen: Plan) -> None:
    screen = console()
    delta = f", δ = {chosen.delta:g}" if chosen.delta else ""
    screen.print(
        f"[bold]Plan[/bold] for {chosen.population_size:,} respondents,"
        f" {chosen.domain_size:,} cells, ε = {chosen.epsilon:.6g}{delta}\n"
    )
    screen.print(_plan_table(chosen))


def _plan_table(chosen: Plan) -> "Table":
    from rich.table import Table

    table = Table.grid(padding=(0, 3))
    share = 100 * chosen.ranked.sample_size / chosen.ranked.population_size
    per_cell = chosen.rmse / chosen.domain_size**0.5
    paper = chosen.paper
    rows = {
        "sample": f"{chosen.sample_size:,} respondents ({share:.3g}%), in secret random order",
        "keep a record": f"with probability {chosen.keep_probability:.6g},"
        f" else replace it by a random cell (γ = {chosen.gamma:.6g})",
        "privacy": f"ε = {chosen.epsilon_achieved:.6g}, δ = {chosen.delta_achieved:.4g}"
        f" ({ACCOUNTINGS[chosen.accounting]})",
        "if the order leaks": f"ε = {chosen.epsilon_if_order_known:.6g} (ln γ)",
        "error": f"RMSE {chosen.rmse:.4g} over the whole table, at worst;"
        f" about {100 * per_cell:.2g} percentage points a cell",
        "a trusted party": f"would reach RMSE {chosen.trusted_party_rmse:.4g} with Laplace noise",
        "upload": f"at most {chosen.bytes_per_curator:,} bytes a curator",
        "the paper's way": f"m* = {paper.optimal_sample_size:,}, γ = {paper.gamma:.4g}:"
        f" RMSE {paper.rmse:.4g}\n(its bound: {paper.error_bound:.4g}, tightened:"
        f" {paper.tightened_bound:.4g})",
    }
    for name, text in rows.items():
        table.add_row(f"[bold]{name}[/bold]", text)
    return table
