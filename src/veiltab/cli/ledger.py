"""``veiltab ledger``: how much privacy each data set may spend, and what it was spent on."""

from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.main import DefaultGroup
from veiltab.cli.options import PartyOptions, party_options
from veiltab.cli.output import console, json_option, moment, print_facts, print_json, print_rows

if TYPE_CHECKING:
    from veiltab.party.ledgers import StoredLedger


@click.group("ledger", cls=DefaultGroup)
def ledger_group() -> None:
    """Show the privacy budgets of your data sets, or set one.

    Every study that you sign is charged to a data set before your signature leaves, and what was
    promised cannot be won back.

    \b
    Examples:
      veiltab ledger
      veiltab ledger set "Patients 2025" --epsilon 3
    """  # noqa: D301 - \b tells click to leave the lines alone


@ledger_group.command("show")
@party_options
@json_option
def show_command(party: PartyOptions, as_json: bool) -> None:
    """Show every data set's budget, and the studies that were charged to it.

    \b
    Example:
      veiltab ledger show
    """  # noqa: D301 - \b tells click to leave the lines alone
    ledgers = party.home.budgets()
    if as_json:
        print_json({"ledgers": [ledger_json(stored) for stored in ledgers]})
    elif not ledgers:
        click.echo("No data set has a budget yet: veiltab ledger set DATASET --epsilon LIMIT")
    else:
        for number, stored in enumerate(ledgers):
            if number:
                click.echo()
            _print_ledger(stored)


@ledger_group.command("set")
@click.argument("dataset")
@click.option("--epsilon", type=float, required=True, help="The sum of ε that is never exceeded.")
@click.option("--delta", type=float, help="The same for δ.  A new ledger has 0.")
@click.option("--largest-epsilon", type=float, help="The most ε that one study may take.")
@click.option(
    "--smallest-population",
    type=click.IntRange(min=1),
    help="The fewest respondents that a study must state.",
)
@party_options
@json_option
def set_command(
    dataset: str,
    epsilon: float,
    delta: float | None,
    largest_epsilon: float | None,
    smallest_population: int | None,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Give DATASET a privacy budget, or change the one it has.

    What is already spent stays spent, and limits that are not given stay as they are.  A limit
    below what is spent means that nothing more can be signed.

    \b
    Examples:
      veiltab ledger set "Patients 2025" --epsilon 3
      veiltab ledger set "Patients 2025" --epsilon 3 --delta 1e-5 --largest-epsilon 1
    """  # noqa: D301 - \b tells click to leave the lines alone
    stored = party.home.set_budget(
        dataset,
        epsilon,
        delta=delta,
        largest_epsilon=largest_epsilon,
        smallest_population=smallest_population,
    )
    if as_json:
        print_json(ledger_json(stored))
    else:
        _print_ledger(stored)


def ledger_json(stored: "StoredLedger") -> dict[str, Any]:
    """Return a ledger as JSON values."""
    ledger = stored.ledger
    return {
        "dataset": ledger.dataset,
        "epsilon_limit": ledger.epsilon_limit,
        "epsilon_spent": float(ledger.epsilon_spent),
        "epsilon_left": stored.epsilon_left,
        "delta_limit": ledger.delta_limit,
        "delta_spent": float(ledger.delta_spent),
        "largest_epsilon": ledger.largest_epsilon,
        "smallest_population": ledger.smallest_population,
        "overspent": stored.overspent,
        "entries": [
            {
                "study": entry.study.hex(),
                "title": stored.notes[entry.study].title,
                "at": stored.notes[entry.study].at,
                "epsilon": entry.epsilon,
                "delta": entry.delta,
                "accounting": entry.accounting,
            }
            for entry in ledger.entries
        ],
    }


def _print_ledger(stored: "StoredLedger") -> None:
    ledger, screen = stored.ledger, console()
    spent = f"{float(ledger.epsilon_spent):g} spent, {stored.epsilon_left:g} left"
    facts = {"data set": ledger.dataset, "ε": f"{ledger.epsilon_limit:g}: {spent}"}
    if ledger.delta_limit:
        facts["δ"] = f"{ledger.delta_limit:g}: {float(ledger.delta_spent):g} spent"
    if ledger.largest_epsilon is not None:
        facts["policy"] = f"at most ε = {ledger.largest_epsilon:g} a study"
    if ledger.smallest_population > 1:
        facts["population"] = f"at least {ledger.smallest_population:,}"
    print_facts(screen, facts)
    if ledger.entries:
        rows = [
            (
                entry.study.hex()[:16],
                stored.notes[entry.study].title,
                moment(stored.notes[entry.study].at),
                f"{entry.epsilon:g}",
                f"{entry.delta:g}",
            )
            for entry in ledger.entries
        ]
        print_rows(screen, ("study", "title", "signed", "ε", "δ"), rows, numbers=2)
