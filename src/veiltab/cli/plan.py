"""``veiltab plan``: what to promise, what it costs and what error to expect, before signing."""

from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from veiltab.cli.output import console, json_option, print_json, print_warnings
from veiltab.core.mechanism import LinkageMode
from veiltab.core.plan import DECOYS, PURE, SHUFFLE, MechanismName, Plan, plan

if TYPE_CHECKING:
    from rich.table import Table

    from veiltab.core.comparison import DecoysSummary


def _read_cells(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> tuple[int, ...] | None:
    """Read whole numbers with commas between them; what they must be is the planner's to say."""
    if value is None:
        return None
    try:
        return tuple(int(part) for part in value.split(","))
    except ValueError:
        raise click.BadParameter(f"{value!r} is not a list of whole numbers, as in 6,4") from None


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
@click.option(
    "--mechanism",
    type=click.Choice(get_args(MechanismName)),
    default="auto",
    show_default=True,
    help="How respondents are protected; auto takes decoys where it can.",
)
@click.option(
    "--epsilon-with-curator",
    type=float,
    metavar="X|inf",
    help="The most ε if a curator helps the researcher. By default the server's noise makes the"
    " error of decoys a tenth larger; inf: the server adds none.",
)
@click.option(
    "--epsilon-public",
    type=float,
    help="The promise to those who only read published copies; ε by default.",
)
@click.option(
    "--linkage",
    type=click.Choice(get_args(LinkageMode)),
    default="aligned",
    show_default=True,
    help="Whether all curators hold the same respondents, or the server matches them.",
)
@click.option(
    "--curator-cells",
    callback=_read_cells,
    metavar="N,N,…",
    help="The cells of each curator's own table, as in 6,4; matched linkage needs decoys for"
    " everybody whom only some of them hold.",
)
@click.option(
    "--max-decoys",
    type=int,
    help="The most decoys to expect; a million by default, or as many as respondents take part.",
)
@click.option(
    "--sample-size", type=int, help="Fix the sample, m, which is then cut by rank, without decoys."
)
@click.option(
    "--plot",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw the error to this .svg or .png file: against ε, or by rank against the sample size.",
)
@click.option(
    "--anyway", is_flag=True, help="Plan it even if a guess would be nearer to the truth."
)
@json_option
def plan_command(
    population: int,
    cells: int,
    epsilon: float | None,
    target_rmse: float | None,
    delta: float,
    mechanism: MechanismName,
    epsilon_with_curator: float | None,
    epsilon_public: float | None,
    linkage: LinkageMode,
    curator_cells: tuple[int, ...] | None,
    max_decoys: int | None,
    sample_size: int | None,
    plot: Path | None,
    anyway: bool,
    as_json: bool,
) -> None:
    """Choose the mechanism and its numbers for a promise of privacy.

    The error is the root mean squared ℓ₂ distance between the estimated and the true joint
    distribution, exact for the hardest data.  The promised ε is never exceeded, not even by
    rounding.

    \b
    Examples:
      veiltab plan --population 45222 --cells 24 --epsilon 0.5
      veiltab plan --population 45222 --cells 24 --epsilon 0.5 --delta 1e-6
      veiltab plan --population 45222 --cells 24 --epsilon 0.5 --mechanism paper
      veiltab plan --population 45222 --cells 24 --target-rmse 0.01 --json
      veiltab plan --population 45222 --cells 24 --epsilon 0.5 --plot plan.svg
    """  # noqa: D301 - \b tells click to leave the lines alone
    chosen = plan(
        population_size=population,
        domain_size=cells,
        epsilon=epsilon,
        delta=delta,
        sample_size=sample_size,
        target_rmse=target_rmse,
        mechanism=mechanism,
        epsilon_with_curator=epsilon_with_curator,
        epsilon_public=epsilon_public,
        linkage=linkage,
        curator_cells=curator_cells,
        max_decoys=max_decoys,
        anyway=anyway,
    )
    if plot is not None:
        from veiltab.report.charts import check_chart_path, plan_chart, save_chart

        check_chart_path(plot)
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
    print_warnings(screen, chosen.warnings)


def _plan_table(chosen: Plan) -> "Table":
    from rich.table import Table

    table = Table.grid(padding=(0, 3))
    for part in (_promises(chosen), _steps(chosen), _errors(chosen), _others(chosen)):
        if table.row_count:
            table.add_row()
        for name, text in part.items():
            table.add_row(f"[bold]{name}[/bold]", text)
    return table


def _promises(chosen: Plan) -> dict[str, str]:
    """Say in plain words against whom which ε holds."""
    spent = f"ε = {chosen.epsilon_achieved:.6g}"
    if chosen.delta_achieved:
        spent += f", δ = {chosen.delta_achieved:.2g}"
    if chosen.accounting == PURE:
        spent += " (Theorem 1)"
    elif chosen.accounting == SHUFFLE:
        spent += " (the secret order counts)"
    hidden = chosen.accounting == DECOYS
    promises = {
        "researcher": spent,
        "… with the server": "the same"
        if hidden
        else "no promise: together they read the sampled records",
        "… with a curator": "no promise: the server adds no noise",
        "other readers": f"ε = {chosen.epsilon_public:.6g}, for whoever sees published copies only",
    }
    if chosen.epsilon_with_curator is not None:
        promises["… with a curator"] = (
            f"ε = {chosen.epsilon_with_curator:.6g} (ln γ): the server's noise alone is left"
        )
    if chosen.epsilon_membership is not None:
        promises["membership"] = (
            f"ε = {chosen.epsilon_membership:.6g}, for whether any curator holds a person"
        )
    return promises


def _steps(chosen: Plan) -> dict[str, str]:
    """Say what is done to the records."""
    steps = {"mechanism": chosen.mechanism_name}
    summary = chosen.decoys_summary
    if summary is None:
        ranked = chosen.ranked
        share = 100 * ranked.sample_size / ranked.population_size
        steps["sample"] = (
            f"{ranked.sample_size:,} respondents ({share:.3g}%), in secret random order"
        )
    else:
        steps["take part"] = _taking_part(chosen)
        steps["decoys"] = _decoys(chosen, summary)
        steps["rows"] = f"about {chosen.expected_rows:,.0f} reach the researcher"
    if chosen.keep_probability is None:
        steps["keep a row"] = "always: the server adds no noise"
    else:
        steps["keep a row"] = (
            f"with probability {chosen.keep_probability:.6g}, else replace it by a random cell"
            f" (γ = {chosen.gamma:.6g})"
        )
    steps["upload"] = f"about {chosen.bytes_per_curator:,} bytes a curator at most"
    return steps


def _taking_part(chosen: Plan) -> str:
    if chosen.coin_probability == 1:
        return "all respondents"
    return f"each respondent with probability {chosen.coin_probability:.6g}, by a secret coin"


def _decoys(chosen: Plan, summary: "DecoysSummary") -> str:
    law = "geometric" if summary.law == "geometric" else f"two-sided around {summary.centre}"
    text = f"about {summary.expected:,.0f}: {summary.mean:.3g} a cell, {law},"
    text += f" ratio {summary.ratio:.4g}"
    if chosen.linkage == "aligned":
        return text
    if chosen.expected_pattern_decoys is None:
        return f"{text}\nand more for those whom not all hold: --curator-cells tells how many"
    return (
        f"{text}\nand {chosen.expected_pattern_decoys - summary.expected:,.0f} for those whom not"
        f" all hold: {chosen.patterns:,} patterns"
    )


def _errors(chosen: Plan) -> dict[str, str]:
    """Say how far estimates are from the truth."""
    return {
        "error": f"RMSE {chosen.rmse:.4g} over the whole table, at worst;"
        f" {100 * chosen.rmse_per_cell:.2g} percentage points a cell",
        "mean share": f"{100 * chosen.mean_share:.3g}% a cell",
        "published copy": f"RMSE {chosen.rmse_published:.4g}",
    }


def _others(chosen: Plan) -> dict[str, str]:
    """Say what other ways would give for the same promise."""
    paper, shuffle = chosen.paper, chosen.shuffle
    rows = {
        "the paper's way": f"RMSE {paper.rmse:.4g} at m* = {paper.optimal_sample_size:,},"
        f" γ = {paper.gamma:.4g}\n(its bound: {paper.error_bound:.4g}, tightened:"
        f" {paper.tightened_bound:.4g})",
        "shuffling": "needs a δ above 0",
        "a trusted party": f"RMSE {chosen.trusted.rmse:.4g} with Laplace noise",
    }
    if chosen.delta:
        rows["shuffling"] = "gains nothing over the paper's way"
    if shuffle is not None:
        rows["shuffling"] = (
            f"RMSE {shuffle.rmse:.4g} at m = {shuffle.sample_size:,}, γ = {shuffle.gamma:.4g}"
        )
    return rows
