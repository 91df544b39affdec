"""``veiltab reproduce``: every experiment and figure of the paper."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from veiltab.cli.output import console, json_option, print_json, track

if TYPE_CHECKING:
    from veiltab.paper.claims import Claim


@click.command("reproduce")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The folder for figures and results; made if it is not there.",
)
@click.option("--runs", type=int, default=1000, show_default=True, help="Releases a point.")
@click.option("--seed", type=int, default=1, show_default=True, help="Makes it repeatable.")
@json_option
def reproduce_command(out: Path, runs: int, seed: int, as_json: bool) -> None:
    """Run every experiment of the paper and draw its five result figures.

    Writes each figure as SVG and PNG and every point to results.csv, and says for each figure
    what the paper claims and whether it holds.

    \b
    Example:
      veiltab reproduce --out figures
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.paper.reproduce import reproduce

    found = reproduce(out, runs=runs, seed=seed, track=track)
    if as_json:
        files = [str(path) for path in found.files]
        print_json({"files": files, "claims": [asdict(claim) for claim in found.claims]})
        return
    _print_claims(found.claims)
    click.echo(f"\n{len(found.files)} files in {out}.  Start with {found.files[1]}")


def _print_claims(claims: "Sequence[Claim]") -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("figure", justify="right")
    table.add_column("holds")
    table.add_column("what the paper claims, and what is measured here")
    for claim in claims:
        verdict = "[green]yes[/green]" if claim.holds else "[red]no[/red]"
        where = "all" if claim.figure is None else str(claim.figure)
        table.add_row(where, verdict, f"{claim.claim}\n[dim]{claim.measured}[/dim]")
    console().print(table)
