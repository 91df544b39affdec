"""``veiltab ledger``: how much privacy each data set may spend, and what it was spent on."""

from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.main import DefaultGroup
from veiltab.cli.options import Party, party_options
from veiltab.cli.output import console, json_option, moment, print_facts, print_json, print_rows

if TYPE_CHECKING:
    from veiltab.party.ledgers import KeptLedger


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
def show_command(party: Party, as_json: bool) -> None:
    """Show every data set's budget, and the studies that were charged to it.

    \b
    Example:
      veiltab ledger show
    """  # noqa: D301 - \b tells click to leave the lines alone
    home = party.home
    home.public  # noqa: B018 - says so if there is no home
    found = home.ledgers.all_ledgers()
    if as_json:
        print_json({"ledgers": [ledger_json(kept) for kept in found]})
    elif not found:
        click.echo("No data set has a budget yet: veiltab ledger set DATASET --epsilon LIMIT")
    else:
        for number, kept in enumerate(found):
            if number:
                click.echo()
            _print_ledger(kept)


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
    party: Party,
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
    home = party.home
    home.public  # noqa: B018 - says so if there is no home
    with home.lock():
        known = [k.ledger for k in home.ledgers.all_ledgers() if k.ledger.dataset == dataset]
        before = (
            {
                "delta_limit": known[0].delta_limit,
                "largest_epsilon": known[0].largest_epsilon,
                "smallest_population": known[0].smallest_population,
            }
            if known
            else {}
        )
        given: dict[str, Any] = {
            "delta_limit": delta,
            "largest_epsilon": largest_epsilon,
            "smallest_population": smallest_population,
        }
        limits = before | {key: value for key, value in given.items() if value is not None}
        kept = home.ledgers.set_limits(dataset, epsilon, **limits)
    if as_json:
        print_json(ledger_json(kept))
    else:
        _print_ledger(kept)


def ledger_json(kept: "KeptLedger") -> dict[str, Any]:
    """Return a ledger as JSON values."""
    ledger = kept.ledger
    return {
        "dataset": ledger.dataset,
        "epsilon_limit": ledger.epsilon_limit,
        "epsilon_spent": float(ledger.epsilon_spent),
        "epsilon_left": epsilon_left(kept),
        "delta_limit": ledger.delta_limit,
        "delta_spent": float(ledger.delta_spent),
        "largest_epsilon": ledger.largest_epsilon,
        "smallest_population": ledger.smallest_population,
        "overspent": kept.overspent,
        "entries": [
            {
                "study": entry.study.hex(),
                "title": kept.notes[entry.study].title,
                "at": kept.notes[entry.study].at,
                "epsilon": entry.epsilon,
                "delta": entry.delta,
                "accounting": entry.accounting,
            }
            for entry in ledger.entries
        ],
    }


def epsilon_left(kept: "KeptLedger") -> float:
    """Return what is left of ε: the difference of the decimals that people wrote."""
    from fractions import Fraction

    return float(Fraction(repr(float(kept.ledger.epsilon_limit))) - kept.ledger.epsilon_spent)


def _print_ledger(kept: "KeptLedger") -> None:
    ledger, screen = kept.ledger, console()
    spent = f"{float(ledger.epsilon_spent):g} spent, {epsilon_left(kept):g} left"
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
                kept.notes[entry.study].title,
                moment(kept.notes[entry.study].at),
                f"{entry.epsilon:g}",
                f"{entry.delta:g}",
            )
            for entry in ledger.entries
        ]
        print_rows(screen, ("study", "title", "signed", "ε", "δ"), rows, numbers=2)
