"""``veiltab grant``, ``grants`` and ``revoke``: who may decrypt which attributes, until when."""

from collections.abc import Iterable, Iterator
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
    print_rows,
    tell,
    warn,
)
from veiltab.cli.party import VERIFIED, meet_parties
from veiltab.files.disk import check_new
from veiltab.party.known.names import readable

if TYPE_CHECKING:
    from veiltab.party.curator import GivenGrant
    from veiltab.party.grants import GrantStatus

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
    help="For how many days the server serves it.",
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

    Another grant adds to what the researcher may read already.  To let them read less, revoke, and
    grant what is left.

    \b
    Examples:
      veiltab grant "Smoking and income" --to rivera.json
      veiltab grant "Smoking and income" --to "Dr. Rivera" --attribute smoker --days 7
      veiltab grant 3fa9 --to rivera.json --out for-rivera.grant
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.party.curator import find_researcher
    from veiltab.party.roles import check_curator

    if out is not None:
        check_new(out)  # before a passphrase is asked for
    from veiltab.party.known.known import is_verified

    with party.session(LONG_PATIENCE) as session:
        chosen = session.study(study)
        check_curator(chosen.terms, session.identity, "grant it to researchers")
        researcher = find_researcher(chosen.terms, to)
        meet_parties(session.home, [researcher], verified=verified, yes=yes)
        given = chosen.grant(researcher, list(attributes) or None, days=days, file=out)
        verified_now = is_verified(session.home, researcher.party_id)
    _report(given, verified=verified_now, as_json=as_json)


@click.command("grants")
@click.argument("study", required=False)
@party_options
@json_option
def grants_command(study: str | None, party: PartyOptions, as_json: bool) -> None:
    """List who can read what until when, in STUDY or in all your studies.

    A curator sees the grants of all curators of a study, and a researcher its own.  Every grant is
    signed by its curator and in the audit log; so is every revocation.  A grant of yours that ends
    within a week comes with a warning.

    \b
    Examples:
      veiltab grants
      veiltab grants "Smoking and income" --json
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        me = session.identity.party_id
        grants = session.grants() if study is None else session.study(study).grants()
    if as_json:
        print_json({"grants": [grant_json(one) for one in grants]})
    elif not grants:
        click.echo("There are no grants that you can see.")
    else:
        print_rows(
            console(), ("study", "curator", "researcher", "attributes", "until"), _rows(grants)
        )
    warn_of_ends(grants, me)


@click.command("revoke")
@click.argument("study")
@click.option(
    "--from",
    "researcher",
    required=True,
    metavar="FILE_OR_NAME",
    help="The researcher: a name, a fingerprint, a party id, or an identity file.",
)
@party_options
@json_option
def revoke_command(study: str, researcher: str, party: PartyOptions, as_json: bool) -> None:
    """Take back what you have granted to a researcher in STUDY.

    The server serves nothing more by your grants to them: no columns, no pads.  The revocation is
    signed by you and in the audit log.  Once more, it changes nothing.  'veiltab grant' lets them
    read again.

    It cannot undo what has happened: what they have downloaded, estimated or published before stays
    with them and with whoever has read it.  With one-time pads they also keep the grant file, which
    is of no use without the columns.

    \b
    Examples:
      veiltab revoke "Smoking and income" --from "Dr. Rivera"
      veiltab revoke 3fa9 --from rivera.json --json
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.party.grants import CANNOT_UNDO

    with party.session() as session:
        chosen = session.study(study)
        revoked = chosen.revoke(researcher)
    if as_json:
        print_json({"grants": [grant_json(one) for one in revoked], "cannot_undo": CANNOT_UNDO})
        return
    names = dict.fromkeys(name for one in revoked for name in one.attributes)
    facts = {
        "study": chosen.title,
        "revoked from": readable(revoked[0].researcher),
        "attributes": ", ".join(names),
    }
    print_facts(console(), facts)
    click.echo(f"\n{CANNOT_UNDO}.")


def warn_of_ends(grants: "Iterable[GrantStatus]", me: bytes) -> None:
    """Say on stderr which grants by or to a party end within a week."""
    from veiltab.party.grants import notices

    for notice in notices(grants, me):
        warn(notice)


def grant_json(one: "GrantStatus") -> dict[str, object]:
    """Return a grant as it stands as JSON values."""
    body = one.grant
    return {
        "study": body.study.hex(),
        "title": one.title,
        "grant": one.id,
        "curator": {"name": one.curator, "party": body.curator.hex()},
        "researcher": {"name": one.researcher, "party": body.researcher.hex()},
        "attributes": list(one.attributes),
        "expires": one.expires,
        "revoked": one.revoked,
        "state": one.state,
    }


def _rows(grants: "Iterable[GrantStatus]") -> Iterator[tuple[str, ...]]:
    for one in grants:
        until = moment(one.expires) if one.state == "good" else one.ended
        names = (readable(name) for name in (one.title, one.curator, one.researcher))
        yield (*names, ", ".join(one.attributes), until)


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
