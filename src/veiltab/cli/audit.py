"""``veiltab audit``: what has happened to a study, and whether anybody has rewritten it."""

from typing import TYPE_CHECKING

import click

from veiltab.cli.options import PartyOptions, party_options
from veiltab.cli.output import console, json_option, moment, print_json, print_rows

if TYPE_CHECKING:
    from veiltab.wire.contract import Contract


@click.command("audit")
@click.argument("study")
@party_options
@json_option
def audit_command(study: str, party: PartyOptions, as_json: bool) -> None:
    """Fetch and verify the audit log of STUDY.

    Every entry holds a hash of the one before, and the server signs the end.  What you have seen
    is remembered: a log that is shorter or different the next time is an error.

    \b
    Example:
      veiltab audit "Smoking and income"
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        chosen = session.study(study)
        entries, (length, last) = chosen.audit()
        names = _names(chosen.terms)
    if as_json:
        lines = [{**entry.to_json(), "name": names.get(entry.actor)} for entry in entries]
        print_json({"study": chosen.id, "length": length, "head": last.hex(), "entries": lines})
        return
    rows = [
        (
            str(entry.sequence),
            moment(entry.at),
            names.get(entry.actor, entry.actor.hex()[:16]),
            entry.event,
            entry.state,
        )
        for entry in entries
    ]
    print_rows(console(), ("no.", "at", "who", "what", "then"), rows)
    click.echo(f"\nThe log is whole.  Its last hash: {last.hex()}")


def _names(contract: "Contract") -> dict[bytes, str]:
    return {identity.party_id: identity.name for _, identity in contract.parties()}
