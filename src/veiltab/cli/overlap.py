"""``veiltab overlap``: how many people curators have in common, before a study."""

from typing import TYPE_CHECKING

import click

from veiltab.cli.main import OrderedGroup
from veiltab.cli.options import PartyOptions, party_options
from veiltab.cli.output import (
    check_can_ask,
    confirm,
    console,
    json_option,
    print_facts,
    print_json,
    print_warnings,
    show_help,
)
from veiltab.cli.party import VERIFIED, meet_parties
from veiltab.cli.study import DATASET, YES
from veiltab.cli.terms import print_coalitions, show_status, status_json
from veiltab.core.overlap import LEVEL, PEOPLE

if TYPE_CHECKING:
    from veiltab.core.overlap import OverlapEstimate, OverlapPlan

NORMALISATIONS = ("nfc", "trim", "lowercase")

_EPSILON = click.option(
    "--epsilon",
    type=float,
    required=True,
    help="The privacy that the answer may cost; 0.1 is little.",
)
_PEOPLE = click.option(
    "--people",
    type=int,
    default=PEOPLE,
    show_default=True,
    help="About how many you expect in common; no promise depends on it.",
)


@click.group("overlap", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def overlap_group(context: click.Context) -> None:
    """Ask how many people you have in common with other curators, before a study.

    An overlap count is a small study without values: everybody signs it, and it is charged to your
    data set.  Each curator pushes its ids, as tokens of chosen people among decoys; the server
    counts, and tells all of you one number with noise.  Besides the commands here, use `veiltab
    study sign`, `veiltab push` and `veiltab study status`.

    \b
    Examples:
      veiltab overlap plan --people 10000 --epsilon 0.1
      veiltab overlap propose "Patients and taxpayers" --with taxes.json --epsilon 0.1
      veiltab push "Patients and taxpayers" --table patients.csv --id patient_no
      veiltab overlap show "Patients and taxpayers"
    """  # noqa: D301 - \b tells click to leave the lines alone
    show_help(context)


@overlap_group.command("plan")
@_PEOPLE
@_EPSILON
@click.option(
    "--curators", type=int, default=2, show_default=True, help="How many take part, 2 to 8."
)
@json_option
def plan_command(people: int, epsilon: float, curators: int, as_json: bool) -> None:
    """Say how far off the answer would be, before you ask anybody.

    \b
    Example:
      veiltab overlap plan --people 10000 --epsilon 0.1
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.core.overlap import plan_overlap

    plan = plan_overlap(people, epsilon, curators)
    if as_json:
        print_json(_plan_json(plan, people))
        return
    print_facts(console(), {"promise": f"ε = {epsilon:g}"} | _facts(plan, people))
    print_warnings(console(), plan.warnings(people))


@overlap_group.command("propose")
@click.argument("title")
@click.option(
    "--with",
    "others",
    metavar="FILE_OR_NAME",
    multiple=True,
    required=True,
    help="Another curator: its public identity, or a name that you know; may be repeated.",
)
@_EPSILON
@_PEOPLE
@click.option(
    "--columns",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="How many columns make up an id.",
)
@click.option(
    "--normalise",
    type=click.Choice(NORMALISATIONS),
    multiple=True,
    help="How ids are made alike on every side; may be repeated.",
)
@click.option("--dataset", help=DATASET)
@click.option("--verified", metavar="FINGERPRINT", multiple=True, help=VERIFIED)
@click.option("--yes", is_flag=True, help=YES)
@party_options
@json_option
def propose_command(
    title: str,
    others: tuple[str, ...],
    epsilon: float,
    people: int,
    columns: int,
    normalise: tuple[str, ...],
    dataset: str | None,
    verified: tuple[str, ...],
    yes: bool,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Propose an overlap count called TITLE, sign it, and charge it to your data set.

    The error to expect, your budget, and who could learn what are shown first, and you are asked.
    The others sign it with `veiltab study sign`.  The same command again takes up a proposal that
    was interrupted.

    \b
    Examples:
      veiltab overlap propose "Patients and taxpayers" --with taxes.json --epsilon 0.1
      veiltab overlap propose "Three registers" --with taxes.json --with schools.json \\
        --epsilon 0.2 --people 50000 --columns 2 --normalise trim --normalise lowercase
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.party.coalitions import coalitions
    from veiltab.party.costs import costs
    from veiltab.party.overlaps import draft_overlap, id_linkage, plan_count
    from veiltab.party.terms import cost_lines

    home = party.home
    identities = [home.known.identify(other) for other in others]
    plan = plan_count(home.public, identities, epsilon, people)
    draft = draft_overlap(title, home.public, identities, plan, id_linkage(columns, normalise))
    check_can_ask(yes=yes)
    home.known.check(identities)  # before anybody reads about an impostor
    with party.session() as session:
        terms = session.preview(draft, dataset).body
        if not (as_json and yes):
            cost = cost_lines(costs(home.ledgers, terms, dataset))
            screen = console(stderr=as_json)
            promise = {"overlap count": title, "promise": f"ε = {epsilon:g}"}
            print_facts(screen, promise | _facts(plan, people) | cost)
            print_warnings(screen, plan.warnings(people))
            screen.print()
            print_coalitions(screen, coalitions(terms))
            click.echo(err=as_json)
        meet_parties(home, identities, verified=verified, yes=yes)
        confirm(f"Propose {title!r}, and sign it?", yes=yes)
        status = session.propose(draft, dataset).status()
    if as_json:
        print_json({**status_json(status, home), "plan": _plan_json(plan, people)})
    else:
        show_status(console(), status, home)


@overlap_group.command("show")
@click.argument("study")
@click.option(
    "--level",
    type=float,
    default=LEVEL,
    show_default=True,
    help="How often the interval is to hold the truth.",
)
@click.option(
    "--table-size", type=int, help="How many people your table has: adds its share, for you alone."
)
@party_options
@json_option
def show_command(
    study: str, level: float, table_size: int | None, party: PartyOptions, as_json: bool
) -> None:
    """Show how many people the curators of STUDY have in common, with the error.

    The answer is the same for every curator, and whenever you ask.  You may tell it to anybody, the
    server included: all of it follows from the one number that the server has told.  The share of
    your own table does not; with the answer, it tells how many people your table has.

    \b
    Examples:
      veiltab overlap show "Patients and taxpayers"
      veiltab overlap show "Patients and taxpayers" --table-size 12000
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        chosen = session.study(study)
        estimate = chosen.overlap()
        about = {"study": chosen.id, "title": chosen.title}
    share = None if table_size is None else estimate.share_of(table_size)
    if as_json:
        values = {**about, "epsilon": estimate.plan.epsilon, **estimate.as_dict(level)}
        print_json(values | ({} if share is None else {"share": share}))
        return
    facts = {"overlap count": about["title"]} | _answer(estimate, level)
    if share is not None:
        facts["your table"] = f"about {100 * share:.3g}% of it; tell nobody"
    print_facts(console(), facts)


def _answer(estimate: "OverlapEstimate", level: float) -> dict[str, str]:
    low, high = estimate.interval(level)
    return {
        "in common": f"about {estimate.people:,.0f} people",
        "error": f"{estimate.standard_error:,.0f} (one standard error)",
        "interval": f"{low:,.0f} to {high:,.0f}, which holds the truth in"
        f" {100 * level:g} of 100 counts",
        "cost": f"ε = {estimate.plan.epsilon:g}",
    }


def _facts(plan: "OverlapPlan", people: int) -> dict[str, str]:
    from veiltab.party.terms import overlap_facts

    return overlap_facts(plan, sorted({max(1, people // 10), people, 10 * people}))


def _plan_json(plan: "OverlapPlan", people: int) -> dict[str, object]:
    return {
        "people": people,
        "standard_error": plan.standard_error(people),
        **plan.as_dict(),
        "warnings": list(plan.warnings(people)),
    }
