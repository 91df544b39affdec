"""``veiltab audit``: what has happened to a study, and whether anybody has rewritten it."""

from typing import TYPE_CHECKING

import click

from veiltab.cli.options import Party, party_options
from veiltab.cli.output import console, json_option, moment, print_json, print_rows

if TYPE_CHECKING:
    from veiltab.wire.contract import Contract


@click.command("audit")
@click.argument("study")
@party_options
@json_option
def audit_command(study: str, party: Party, as_json: bool) -> None:
    """Fetch and verify the audit log of STUDY.

    Every entry holds a hash of the one before, and the server signs the end.  What you have seen
    is remembered: a log that is shorter or different the next time is an error.

    \b
    Example:
      veiltab audit "Smoking and income"
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        found = session.find_study(study)
        entries, (length, last) = session.audit(found)
        names = _names(session.contract(found).body)
    if as_json:
        lines = [{**each.to_json(), "name": names.get(each.actor)} for each in entries]
        print_json({"study": found.hex(), "length": length, "head": last.hex(), "entries": lines})
        return
    rows = [
        (
            str(each.sequence),
            moment(each.at),
            names.get(each.actor, each.actor.hex()[:16]),
            each.event,
            each.state,
        )
        for each in entries
    ]
    print_rows(console(), ("no.", "at", "who", "what", "then"), rows)
    click.echo(f"\nThe log is whole.  Its last hash: {last.hex()}")


def _names(contract: "Contract") -> dict[bytes, str]:
    return {identity.party_id: identity.name for _, identity in contract.parties()}
