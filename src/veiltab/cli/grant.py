"""``veiltab grant``: let a researcher decrypt attributes of a release."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from veiltab.cli.identity import spell
from veiltab.cli.options import LONG_PATIENCE, PartyOptions, party_options
from veiltab.cli.output import (
    console,
    json_option,
    moment,
    print_facts,
    print_json,
    tell,
)
from veiltab.cli.party import VERIFIED, meet_parties
from veiltab.cli.terms import is_verified
from veiltab.files.disk import check_new

if TYPE_CHECKING:
    from veiltab.party.curator import GivenGrant

DAYS = 30


@click.command("grant")
@click.argument("study")
@click.option(
    "--to",
    required=True,
    metavar="FILE_OR_NAME",
    help="The researcher: an identity file, or a name in the contract.",
)
@click.option(
    "--attribute",
    "attributes",
    multiple=True,
    help="One of your attributes; may be repeated.  All of yours by default.",
)
@click.option(
    "--days",
    type=click.IntRange(1, 3650),
    default=DAYS,
    show_default=True,
    help="How long the server serves it.",
)
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The new grant file; needed with one-time pads, which never pass through the server.",
)
@click.option("--verified", metavar="FINGERPRINT", multiple=True, help=VERIFIED)
@click.option("--yes", is_flag=True, help="Do not ask for the fingerprint of the researcher.")
@party_options
@json_option
def grant_command(
    study: str,
    to: str,
    attributes: tuple[str, ...],
    days: int,
    out: Path | None,
    verified: tuple[str, ...],
    yes: bool,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Grant a researcher your part of STUDY.

    The study must be released.  The pads that take the encryption away are sealed to the
    researcher: nobody else can use them.  What they uncover keeps the promise that you have signed:
    rows in random order, perturbed, or hidden among decoys.

    You are asked for the fingerprint of a researcher whom you have not verified yet.

    \b
    Examples:
      veiltab grant "Smoking and income" --to rivera.json
      veiltab grant "Smoking and income" --to "Dr. Rivera" --attribute smoker --days 7
      veiltab grant 3fa9 --to rivera.json --out for-rivera.grant
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.party.curator import find_researcher

    if out is not None:
        check_new(out)  # before a passphrase is asked for
    with party.session(LONG_PATIENCE) as session:
        chosen = session.study(study)
        researcher = find_researcher(chosen.terms, to)
        meet_parties(session.home, [researcher], verified=verified, yes=yes)
        given = chosen.grant(researcher, list(attributes) or None, days=days, file=out)
        verified_now = is_verified(session.home, researcher.party_id)
    _report(given, verified=verified_now, as_json=as_json)


def _report(given: "GivenGrant", *, verified: bool, as_json: bool) -> None:
    body, researcher = given.signed.body, given.researcher
    mark = "verified" if verified else "not verified"
    if as_json:
        print_json(
            {
                "study": body.study.hex(),
                "grant": body.grant_id.hex(),
                "researcher": {
                    "name": researcher.name,
                    "party": researcher.party_id.hex(),
                    "verified": verified,
                },
                "attributes": list(given.attributes),
                "expires": given.expires,
                "file": None if given.file is None else str(given.file),
            }
        )
        return
    facts = {
        "study": given.title,
        "granted to": f"{researcher.name}, {spell(researcher)} ({mark})",
        "attributes": ", ".join(given.attributes),
        "until": moment(given.expires),
    }
    print_facts(console(), facts | ({} if given.file is None else {"file": str(given.file)}))
    if given.file is not None:
        tell(
            f"Hand {given.file} to {researcher.name} directly; the server has no copy of its pads."
        )
