"""``veiltab ledger``: how much privacy each data set may spend, and what it was spent on."""

from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.main import DefaultGroup
from veiltab.cli.options import PartyOptions, party_options
from veiltab.cli.output import (
    confirm,
    console,
    json_option,
    moment,
    print_facts,
    print_json,
    print_rows,
)

if TYPE_CHECKING:
    from veiltab.party.ledgers import StoredLedger
    from veiltab.protocol.curator.ledger import Refund


@click.group("ledger", cls=DefaultGroup)
def ledger_group() -> None:
    """Show the privacy budgets of your data sets, set one, or take a charge back.

    Every study that you sign is charged to a data set before your signature leaves.  What was
    released cannot be won back; a study that ended before can be refunded.

    \b
    Examples:
      veiltab ledger
      veiltab ledger set "Patients 2025" --epsilon 3
      veiltab ledger refund "Smoking and income" --reason "the wrong table was used"
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


@ledger_group.command("refund")
@click.argument("study")
@click.option("--reason", required=True, help="Why; it stays in the ledger, beside the charge.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@party_options
@json_option
def refund_command(study: str, reason: str, yes: bool, party: PartyOptions, as_json: bool) -> None:
    """Take back what STUDY was charged, because it ended before anybody could learn anything.

    The study must have been ended (`veiltab study abort`) before its release.  If you have pushed
    nothing, that is all.  If you have, all curators must hold the same respondents, and you must
    have granted nothing: the pads of what you pushed are deleted, and nobody can ever decrypt it.
    After a release or a grant there is no refund.

    From then on this home refuses the study for ever.  Delete its pads from your backups too.

    \b
    Example:
      veiltab ledger refund "Smoking and income" --reason "the wrong table was used"
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        chosen = session.study(study)
        confirm("Give this study up for ever, and delete the pads of what you pushed?", yes=yes)
        stored = chosen.refund(reason)
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
                "refund": _refund_json(ledger.refund_of(entry.study)),
            }
            for entry in ledger.entries
        ],
    }


def _refund_json(refund: "Refund | None") -> dict[str, Any] | None:
    if refund is None:
        return None
    log = None
    if refund.log is not None:
        log = {"length": refund.log[0], "hash": refund.log[1].hex()}
    return {
        "at": refund.at,
        "reason": refund.reason,
        "basis": refund.basis,
        "done": refund.done,
        "log": log,
    }


BASES: dict[str, str] = {
    "nothing-sent": "nothing of the table had left",
    "never-granted": "nobody was granted anything, and the pads are deleted",
}


def _refund_line(refund: "Refund", title: str) -> str:
    """Say on one line what was taken back, when and why."""
    if not refund.done:
        return (
            f"not refunded yet: {title}; finish it with: veiltab ledger refund"
            f" {refund.study.hex()[:16]} --reason …"
        )
    return f"refunded {moment(refund.at)}: {title}: {refund.reason} ({BASES[refund.basis]})"


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
    for refund in ledger.refunds:
        line = _refund_line(refund, stored.notes[refund.study].title)
        screen.print(line, markup=False, highlight=False, soft_wrap=True)
