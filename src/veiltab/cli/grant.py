"""``veiltab grant``: let a researcher decrypt attributes of a release."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from veiltab.cli.identity import read_identity, spell
from veiltab.cli.options import LONG_PATIENCE, Party, party_options
from veiltab.cli.output import (
    check_new,
    console,
    json_option,
    moment,
    print_facts,
    print_json,
    tell,
)
from veiltab.errors import InputError, ParameterError

if TYPE_CHECKING:
    from veiltab.wire.contract import Contract, PublicIdentity
    from veiltab.wire.messages import SignedGrant

DAYS = 30
SECONDS_A_DAY = 86_400


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
@party_options
@json_option
def grant_command(
    study: str,
    to: str,
    attributes: tuple[str, ...],
    days: int,
    out: Path | None,
    party: Party,
    as_json: bool,
) -> None:
    """Grant a researcher your part of STUDY.

    The study must be released.  The pads that take the encryption away are sealed to the
    researcher: nobody else can use them.  What is below is sampled and perturbed, and keeps the
    promise that you have signed.

    \b
    Examples:
      veiltab grant "Smoking and income" --to rivera.json
      veiltab grant "Smoking and income" --to "Dr. Rivera" --attribute smoker --days 7
      veiltab grant 3fa9 --to rivera.json --out for-rivera.grant
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.files.private import write_private
    from veiltab.party.curator import grant

    if out is not None:
        check_new(out)
    with party.session(LONG_PATIENCE) as session:
        found = session.find_study(study)
        contract = session.contract(found).body
        if contract.pads == "one-time" and out is None:
            raise ParameterError(
                "this study has one-time pads, which never pass through the server",
                hint="name a file with --out, and hand it to the researcher directly",
            )
        researcher = _researcher(contract, to)
        expires = session.now + days * SECONDS_A_DAY
        made = grant(session, found, researcher, list(attributes) or None, expires)
    if out is not None:
        write_private(out, made.dumps())
    _report(contract, researcher, made, out, as_json=as_json)


def _researcher(contract: "Contract", to: str) -> "PublicIdentity":
    """Find whom the curator means: a file that is there, or somebody whom the contract names."""
    if Path(to).is_file():
        return read_identity(Path(to))
    named = [each for each in contract.researchers or () if to in (each.name, each.party_id.hex())]
    if len(named) == 1:
        return named[0]
    names = ", ".join(repr(each.name) for each in contract.researchers or ())
    raise InputError(
        f"there is no identity file {to!r}, and not one researcher of this name in the contract",
        hint=f"the contract names {names}"
        if names
        else "ask the researcher for the file that `veiltab id show --public` writes",
    )


def _report(
    contract: "Contract",
    researcher: "PublicIdentity",
    made: "SignedGrant",
    out: Path | None,
    *,
    as_json: bool,
) -> None:
    body = made.body
    if as_json:
        print_json(
            {
                "study": body.study.hex(),
                "grant": body.grant_id.hex(),
                "researcher": {"name": researcher.name, "party": researcher.party_id.hex()},
                "attributes": list(body.attributes),
                "expires": body.expires,
                "file": None if out is None else str(out),
            }
        )
        return
    facts = {
        "study": contract.title,
        "granted to": f"{researcher.name}, {spell(researcher)}",
        "attributes": ", ".join(body.attributes),
        "until": moment(body.expires),
    }
    print_facts(console(), facts | ({} if out is None else {"file": str(out)}))
    if out is not None:
        tell(f"Hand {out} to {researcher.name} directly; the server has no copy of its pads.")
