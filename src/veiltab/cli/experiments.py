"""``veiltab simulate`` and ``veiltab reproduce``: releases on known data; the paper's figures."""

import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from veiltab.cli.output import console, json_option, print_json, track
from veiltab.errors import CountsError, ParameterError

if TYPE_CHECKING:
    from veiltab.core.schema import CountTable
    from veiltab.paper.claims import Claim
    from veiltab.paper.experiment import Result, Wishes


DISTRIBUTIONS = ("adult", "uniform", "linear", "peaky")
DEFAULT_CELLS = 24
MECHANISMS = ("paper", "shuffle", "decoys", "all")
DELTAS_OF_ALL = (0.0, 1e-6)
"""What is simulated of all mechanisms if no δ is given."""


@click.command("simulate")
@click.option(
    "--distribution",
    "distributions",
    type=click.Choice(DISTRIBUTIONS),
    multiple=True,
    help="Built-in data; may be repeated.  The default is adult.",
)
@click.option(
    "--counts",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Your own joint table: a CSV with the attributes and a column 'count'.",
)
@click.option("--cells", type=int, help="How many cells, N.  The default is 24.")
@click.option("--population", type=int, help="How many respondents, n.  The default is 45222.")
@click.option(
    "--epsilon",
    "epsilons",
    type=float,
    multiple=True,
    required=True,
    help="The privacy to promise; may be repeated.",
)
@click.option(
    "--mechanism",
    type=click.Choice(MECHANISMS),
    default="paper",
    show_default=True,
    help="How the promise is kept; decoys and shuffling go beyond the paper.",
)
@click.option(
    "--delta",
    "deltas",
    type=float,
    multiple=True,
    help="The δ of shuffling and decoys; may be repeated.  The default is 0, of all both 0 and"
    " 1e-6.",
)
@click.option(
    "--epsilon-with-curator",
    type=float,
    metavar="X|inf",
    help="With decoys: ε against a researcher whom a curator helps; inf: no noise by the server."
    "  By default that noise adds a tenth to the error.",
)
@click.option(
    "--sample-size",
    "sample_sizes",
    type=int,
    multiple=True,
    help="The sample, m; may be repeated.  The default is the best one for each ε.  Decoys have"
    " none.",
)
@click.option(
    "--runs",
    type=int,
    default=1000,
    show_default=True,
    help="How many releases are simulated for each setting.",
)
@click.option("--seed", type=int, help="Makes the results repeatable.  Drawn if left out.")
@click.option(
    "--engine",
    type=click.Choice(["counts", "records"]),
    default="counts",
    show_default=True,
    help="Draw released tables directly, or run the whole protocol on records.",
)
@json_option
def simulate_command(
    distributions: tuple[str, ...],
    counts: Path | None,
    cells: int | None,
    population: int | None,
    epsilons: tuple[float, ...],
    mechanism: str,
    deltas: tuple[float, ...],
    epsilon_with_curator: float | None,
    sample_sizes: tuple[int, ...],
    runs: int,
    seed: int | None,
    engine: str,
    as_json: bool,
) -> None:
    """Simulate releases on data that are known, and compare the error with theory.

    \b
    Examples:
      veiltab simulate --epsilon 0.1 --epsilon 0.5 --seed 1
      veiltab simulate --mechanism all --epsilon 0.5
      veiltab simulate --distribution peaky --cells 96 --epsilon 0.5 --sample-size 500
      veiltab simulate --counts table.csv --epsilon 1 --json
    """  # noqa: D301 - \b tells click to leave the lines alone
    import secrets

    from veiltab.core.parameters import check_runs, check_seed
    from veiltab.paper.experiment import run_experiment, settings_for

    seed = secrets.randbits(32) if seed is None else seed
    check_runs(runs)
    check_seed(seed)
    wishes = _wishes(mechanism, deltas, epsilon_with_curator, sample_sizes)
    settings = [
        setting
        for name, table in _tables(distributions, counts, cells, population)
        for setting in settings_for(name, table, epsilons, wishes)
    ]
    results = [run_experiment(s, runs, seed, engine) for s in track(settings, "Simulating")]
    if as_json:
        print_json({"rows": [asdict(r) for r in results], "engine": engine, "seed": seed})
    else:
        _print_results(results, seed)


def _wishes(
    mechanism: str,
    deltas: tuple[float, ...],
    epsilon_with_curator: float | None,
    sample_sizes: tuple[int, ...],
) -> "list[Wishes]":
    """Return what to simulate for every ε: the paper's way, then shuffling, then decoys."""
    from veiltab.paper.experiment import Wishes

    _check_options(mechanism, deltas, epsilon_with_curator, sample_sizes)
    several = mechanism == "all"
    chosen = deltas or (DELTAS_OF_ALL if several else (0.0,))
    sizes = sample_sizes or (None,)
    wishes: list[Wishes] = []
    if mechanism in ("paper", "all"):
        wishes += [Wishes(sample_size=size) for size in sizes]
    if mechanism in ("shuffle", "all"):
        wishes += [
            Wishes(mechanism="shuffle", delta=delta, sample_size=size)
            for delta in chosen
            if delta or not several  # without δ there is nothing to gain, and a refusal says so
            for size in sizes
        ]
    if mechanism in ("decoys", "all"):
        wishes += [
            Wishes(mechanism="decoys", delta=delta, epsilon_with_curator=epsilon_with_curator)
            for delta in chosen
        ]
    return wishes


def _check_options(
    mechanism: str,
    deltas: tuple[float, ...],
    epsilon_with_curator: float | None,
    sample_sizes: tuple[int, ...],
) -> None:
    """Refuse options that would change nothing."""
    if mechanism == "paper" and any(deltas):
        raise ParameterError(
            "the paper's way has no use for a delta",
            hint="choose --mechanism shuffle or decoys, or leave --delta out",
        )
    if mechanism == "decoys" and sample_sizes:
        raise ParameterError(
            "with decoys the size of a sample cannot be fixed: each respondent has a coin",
            hint="leave --sample-size out, or choose --mechanism paper or shuffle",
        )
    if mechanism in ("paper", "shuffle") and epsilon_with_curator is not None:
        raise ParameterError(
            "--epsilon-with-curator chooses the server's noise beside decoys",
            hint="leave it out, or choose --mechanism decoys",
        )


def _tables(
    distributions: tuple[str, ...],
    counts: Path | None,
    cells: int | None,
    population: int | None,
) -> "list[tuple[str, CountTable]]":
    from veiltab.paper.experiment import distribution_table

    if counts is None:
        size = DEFAULT_CELLS if cells is None else cells
        names = distributions or ("adult",)
        return [(name, distribution_table(name, size, population)) for name in names]
    if distributions:
        raise ParameterError(
            "give either --distribution or --counts, and not both",
            hint="--counts names a table of your own, --distribution a built-in one",
        )
    name = os.fsencode(counts.name).decode(errors="replace")  # a file's name may be any bytes
    return [(name, _read(counts, cells, population))]


def _read(counts: Path, cells: int | None, population: int | None) -> "CountTable":
    from veiltab.data.counts import read_counts

    table = read_counts(counts)
    for what, stated, counted in (
        ("cells", cells, table.schema.domain_size),
        ("respondents", population, table.population_size),
    ):
        if stated is not None and stated != counted:
            raise CountsError(
                f"{counts} has {counted} {what}, not {stated}",
                hint="correct the table or the option; the option may be left out",
            )
    return table


COLUMNS = ("cells", "ε", "δ", "rows", "γ", "mean error", "RMSE", "exact", "bound")


def _digits(number: float | None) -> str:
    if number is None:
        return "–"
    return f"{number:,.0f}" if number >= 10**4 else f"{number:.4g}"


def _print_results(results: "list[Result]", seed: int) -> None:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("data", "mechanism", *COLUMNS):
        table.add_column(name, justify="left" if name in ("data", "mechanism") else "right")
    for r in results:
        table.add_row(
            *(escape(r.distribution), r.mechanism, f"{r.cells:,}", f"{r.epsilon:g}"),
            *(f"{r.delta:g}", f"{r.expected_rows:,.0f}", _digits(r.gamma), _digits(r.mean_l2)),
            *(_digits(r.rmse), _digits(r.exact_rmse), _digits(r.error_bound)),
        )
    screen = console()
    screen.print(table)
    screen.print(f"\n{results[0].runs:,} simulated releases a row, seed {seed}")


@click.command("reproduce")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The folder for figures and results; made if it is not there.",
)
@click.option(
    "--runs",
    type=int,
    default=1000,
    show_default=True,
    help="How many releases are simulated for each point.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Makes it repeatable.")
@json_option
def reproduce_command(out: Path, runs: int, seed: int, as_json: bool) -> None:
    """Run every experiment of the paper, draw its five result figures and four of our own.

    Writes each figure as SVG and PNG and every point to results.csv, and says for each figure
    what is claimed and whether it holds.  Figures 6 to 9 compare the paper's way with shuffling,
    decoys and a trusted party.

    \b
    Example:
      veiltab reproduce --out figures
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.paper.reproduce import reproduce

    reproduction = reproduce(out, runs=runs, seed=seed, track=track)
    if as_json:
        files = [str(path) for path in reproduction.files]
        print_json({"files": files, "claims": [asdict(claim) for claim in reproduction.claims]})
        return
    _print_claims(reproduction.claims)
    click.echo(f"\n{len(reproduction.files)} files in {out}.  Start with {reproduction.files[1]}")


def _print_claims(claims: "Sequence[Claim]") -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("figure", justify="right")
    table.add_column("holds")
    table.add_column("what is claimed, and what is measured here")
    for claim in claims:
        verdict = "[green]yes[/green]" if claim.holds else "[red]no[/red]"
        where = "all" if claim.figure is None else str(claim.figure)
        table.add_row(where, verdict, f"{claim.claim}\n[dim]{claim.measured}[/dim]")
    console().print(table)
