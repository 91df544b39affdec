"""``veiltab study``: agree on a study, follow it, end it."""

import click

from veiltab.cli.asking import confirm
from veiltab.cli.lazy import LazyCommands, OrderedGroup
from veiltab.cli.output import console, json_option, moment, print_json, print_rows, show_help
from veiltab.cli.party import Party, party_options
from veiltab.cli.status import STATES, print_status, wait_for_state

COMMANDS = {
    "example": "veiltab.cli.study:example_command",
    "propose": "veiltab.cli.agree:propose_command",
    "list": "veiltab.cli.study:list_command",
    "show": "veiltab.cli.agree:show_command",
    "sign": "veiltab.cli.agree:sign_command",
    "status": "veiltab.cli.study:status_command",
    "abort": "veiltab.cli.study:abort_command",
}


@click.group(
    "study", cls=OrderedGroup, commands=LazyCommands(COMMANDS), invoke_without_command=True
)
@click.pass_context
def study_group(context: click.Context) -> None:
    """Propose studies, sign them, and see where they stand.

    A STUDY is named by its exact title, or by the first digits of its id.

    \b
    Examples:
      veiltab study example > smoking.toml
      veiltab study propose smoking.toml
      veiltab study sign "Smoking and income"
      veiltab study status "Smoking and income" --wait released
    """  # noqa: D301 - \b tells click to leave the lines alone
    show_help(context)


@click.command("example")
@json_option
def example_command(as_json: bool) -> None:
    """Print a study file with an explanation of every key.

    \b
    Example:
      veiltab study example > smoking.toml
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.client.study_file import example_study

    if as_json:
        print_json({"study_file": example_study()})
    else:
        click.echo(example_study(), nl=False)


@click.command("list")
@party_options
@json_option
def list_command(party: Party, as_json: bool) -> None:
    """List the studies that name you.

    \b
    Example:
      veiltab study list
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        found = session.server.studies()
    if as_json:
        print_json({"studies": [each.to_json() for each in found]})
    elif not found:
        click.echo("No study names you yet.")
    else:
        rows = [
            (each.study.hex()[:16], each.title, each.state, each.role, moment(each.updated))
            for each in found
        ]
        print_rows(console(), ("study", "title", "state", "your part", "since"), rows)


@click.command("status")
@click.argument("study")
@click.option(
    "--wait",
    type=click.Choice(STATES),
    help="Wait until the study is this far, or further.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    help="Give up after so many seconds.  By default it waits for ever.",
)
@party_options
@json_option
def status_command(
    study: str, wait: str | None, timeout: float | None, party: Party, as_json: bool
) -> None:
    """Say where STUDY stands, and who has done what.

    \b
    Examples:
      veiltab study status "Smoking and income"
      veiltab study status 3fa9 --wait released --timeout 3600 --json
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        found = session.find_study(study)
        if wait is None:
            status = session.server.status(found)
        else:
            status = wait_for_state(session, found, wait, timeout)
    print_status(status, as_json=as_json)


@click.command("abort")
@click.argument("study")
@click.option("--reason", required=True, help="What everybody in the study is told.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@party_options
@json_option
def abort_command(study: str, reason: str, yes: bool, party: Party, as_json: bool) -> None:
    """End STUDY before its release, for good; the server forgets what was pushed.

    What was charged to a data set stays charged.

    \b
    Example:
      veiltab study abort "Smoking and income" --reason "the wrong table was used"
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        found = session.find_study(study)
        title = session.server.status(found).title
        confirm(f"End {title!r} for everybody in it?", yes=yes)
        status = session.server.abort(found, reason)
    print_status(status, as_json=as_json)
