"""``veiltab party``: whom you know, whose fingerprint you have compared, whom you have blocked."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.main import OrderedGroup
from veiltab.cli.options import PartyOptions, party_options
from veiltab.cli.output import (
    confirm,
    console,
    ending_its_line,
    json_option,
    moment,
    on_terminal,
    print_facts,
    print_json,
    print_rows,
    show_help,
    tell,
)
from veiltab.errors import InputError, ParameterError
from veiltab.party.known.names import readable

if TYPE_CHECKING:
    from veiltab.party.home import Home
    from veiltab.party.known.known import KnownParty
    from veiltab.wire.contract import Contract, PublicIdentity

VERIFIED = (
    "The fingerprint of a party, as they have told you; may be repeated.  One that nobody in the"
    " study has is refused."
)


@click.group("party", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def party_group(context: click.Context) -> None:
    """See whom you know, and verify that they are who they say.

    Everybody in a study that you propose, sign, push to or grant is remembered, with their keys.
    The same name with another key is refused from then on.  But only who was compared by telephone
    is verified.

    \b
    Examples:
      veiltab party list
      veiltab party verify tax-office.json
      veiltab party verify "Dr. Rivera" --fingerprint "12345 67890 12345 67890 12345 67890"
    """  # noqa: D301 - \b tells click to leave the lines alone
    show_help(context)


@party_group.command("list")
@party_options
@json_option
def list_command(party: PartyOptions, as_json: bool) -> None:
    """List the parties that you know.

    \b
    Example:
      veiltab party list
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.crypto.identity import fingerprint

    home = party.home
    known, blocked = home.known.parties(), home.known.blocked()
    if as_json:
        print_json(
            {
                "parties": [party_json(home, one) for one in known],
                "blocked": [
                    {"name": one.name, "party": one.party.hex(), "since": one.at} for one in blocked
                ],
            }
        )
        return
    if not known and not blocked:
        click.echo("You know nobody yet: veiltab party verify FILE")
        return
    ids = {one.party for one in blocked}
    rows = [
        (readable(one.name), one.fingerprint, _verified(one)[:10], _mark(one.party_id in ids))
        for one in known
    ]
    strangers = [one for one in blocked if home.known.of(one.party) is None]
    rows += [(readable(one.name), fingerprint(one.party), "no", "yes") for one in strangers]
    names = ("name", "fingerprint", "verified", "blocked")
    print_rows(console(), names, rows, whole="fingerprint")


@party_group.command("show")
@click.argument("name")
@party_options
@json_option
def show_command(name: str, party: PartyOptions, as_json: bool) -> None:
    """Show what you know of the party NAME.

    \b
    Example:
      veiltab party show "Tax office"
    """  # noqa: D301 - \b tells click to leave the lines alone
    home = party.home
    _show(home, home.known.find(name), as_json=as_json)


@party_group.command("verify")
@click.argument("party_name", metavar="FILE_OR_NAME")
@click.option("--fingerprint", help="The thirty digits that they have told you; else asked for.")
@click.option("--as", "name", metavar="NAME", help="What to call them here, if it is taken.")
@party_options
@json_option
def verify_command(
    party_name: str,
    fingerprint: str | None,
    name: str | None,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Verify a party: compare its fingerprint with what they tell you.

    FILE_OR_NAME is a file with their public identity, or the name of a party that you know.  Call
    them on a number that you know already, and let them read the digits to you: `veiltab id show`
    prints them.

    Two parties may have the same name.  Give the second one another with --as; it is yours alone.

    \b
    Examples:
      veiltab party verify tax-office.json
      veiltab party verify "Dr. Rivera" --fingerprint "12345 67890 12345 67890 12345 67890"
      veiltab party verify lyon.json --as "City hospital (Lyon)"
    """  # noqa: D301 - \b tells click to leave the lines alone
    from dataclasses import replace

    home = party.home
    identity = home.known.identify(party_name)
    # Before anybody is called.
    home.known.check([identity if name is None else replace(identity, name=name)])
    digits = fingerprint if fingerprint is not None else _ask_digits(identity)
    _show(home, home.known.verify(identity, digits, name=name), as_json=as_json)


@party_group.command("forget")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@party_options
@json_option
def forget_command(name: str, yes: bool, party: PartyOptions, as_json: bool) -> None:
    """Forget the party NAME, such as one that has lost its key.

    Whoever comes with that name next is new to you: verify them at once.

    \b
    Example:
      veiltab party forget "Tax office"
    """  # noqa: D301 - \b tells click to leave the lines alone
    home = party.home
    known = home.known.find(name)
    confirm(f"Forget {known.name!r}, with the fingerprint {known.fingerprint}?", yes=yes)
    home.known.forget(known.party_id.hex())
    if as_json:
        print_json({"forgotten": party_json(home, known)})
    else:
        click.echo(f"You do not know {known.name!r} any more.  Verify them with their new key.")


@party_group.command("block")
@click.argument("party_name", metavar="FILE_OR_NAME")
@click.option("--study", help="Look for the name among the parties of this study.")
@party_options
@json_option
def block_command(party_name: str, study: str | None, party: PartyOptions, as_json: bool) -> None:
    """Have nothing to do with a party any more.

    The server refuses its proposals that name you, and shows you none; they are not told why.  You
    cannot propose, sign, push or grant what names it either.

    \b
    Examples:
      veiltab party block "Pushy research"
      veiltab party block "Pushy research" --study 3fa9
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        if study is None:
            identity = session.home.known.identify(party_name)
        else:
            identity = _named(session.study(study).terms, party_name)
        blocked = session.block(identity)
    if as_json:
        print_json({"name": blocked.name, "party": blocked.party.hex(), "since": blocked.at})
    else:
        from veiltab.crypto.identity import fingerprint

        digits = fingerprint(blocked.party)  # names can look alike: say which one it is
        click.echo(f"{readable(blocked.name)!r}, with the fingerprint {digits}, is blocked.")


@party_group.command("unblock")
@click.argument("name")
@party_options
@json_option
def unblock_command(name: str, party: PartyOptions, as_json: bool) -> None:
    """Work with the blocked party NAME again.

    \b
    Example:
      veiltab party unblock "Pushy research"
    """  # noqa: D301 - \b tells click to leave the lines alone
    with party.session() as session:
        blocked = session.unblock(name)
    if as_json:
        print_json({"name": blocked.name, "party": blocked.party.hex()})
    else:
        click.echo(f"{readable(blocked.name)!r} is not blocked any more.")


def _named(contract: "Contract", name: str) -> "PublicIdentity":
    """Find a party of a study, by its name there or its party id."""
    parties = [identity for place, identity in contract.parties() if place != "server"]
    matches = [one for one in parties if name.strip() in (one.name, one.party_id.hex())]
    if len(matches) == 1:
        return matches[0]
    listed = ", ".join(f"{one.name!r} ({one.party_id.hex()})" for one in parties)
    raise InputError(f"{name!r} is not one party of the study", hint=f"its parties are {listed}")


def meet_parties(
    home: "Home",
    identities: Iterable["PublicIdentity"],
    *,
    verified: Sequence[str] = (),
    yes: bool = False,
) -> None:
    """Have somebody compare the fingerprints of parties that are not verified yet.

    ``verified`` are fingerprints that were compared before, as a script states them.  With ``yes``,
    or where nobody can be asked, the others stay unverified.
    """
    from veiltab.party.known.known import Standing

    parties = list(identities)
    home.known.check(parties)
    for digits in verified:
        home.known.verify(_with_fingerprint(parties, digits), digits)
    if yes or not on_terminal():
        return
    for identity, standing in zip(parties, home.known.standings(parties), strict=True):
        if standing in (Standing.NEW, Standing.UNVERIFIED):
            digits = _ask_digits(identity, new=standing is Standing.NEW, optional=True)
            if digits:
                home.known.verify(identity, digits)


def _with_fingerprint(parties: Sequence["PublicIdentity"], digits: str) -> "PublicIdentity":
    from veiltab.party.known.fingerprints import same_digits

    for identity in parties:
        if same_digits(identity.party_id, digits):
            return identity
    raise ParameterError(
        f"nobody here has the fingerprint {digits}",
        hint="look at `veiltab study show`; if that party should be in the study, somebody else"
        " is in its place",
    )


def _ask_digits(identity: "PublicIdentity", *, new: bool = False, optional: bool = False) -> str:
    """Ask for a fingerprint until it has thirty digits; nothing means not verified."""
    from veiltab.party.known.fingerprints import check_digits

    if not on_terminal():
        raise ParameterError(
            "there is no terminal to ask for the fingerprint on",
            hint="give the digits that they have told you with --fingerprint",
        )
    if optional:
        words = "is new to you" if new else "is not verified"
        click.echo(f"{identity.name!r} {words}.  Let them read their fingerprint to you.", err=True)
    skip = " [Enter: not verified]" if optional else ""
    while True:
        prompt = f"Fingerprint of {identity.name!r}{skip}"
        with ending_its_line():
            digits: str = click.prompt(prompt, default="", show_default=False, err=True)
        if optional and not digits.strip():
            return ""
        try:
            check_digits(digits)
        except ParameterError as error:
            tell(f"{error.message}: {error.hint}")
        else:
            return digits


def party_json(home: "Home", known: "KnownParty") -> dict[str, Any]:
    """Return what is known of a party as JSON values."""
    blocked = {one.party for one in home.known.blocked()}
    return {
        "name": known.name,
        "calls_itself": known.identity.name,
        "party": known.party_id.hex(),
        "fingerprint": known.fingerprint,
        "verified": known.verified is not None,
        "verified_at": known.verified,
        "first_seen": known.first_seen,
        "blocked": known.party_id in blocked,
    }


def _show(home: "Home", known: "KnownParty", *, as_json: bool) -> None:
    if as_json:
        print_json(party_json(home, known))
        return
    facts = {
        "name": readable(known.name),
        "fingerprint": known.fingerprint,
        "verified": _verified(known),
        "known since": moment(known.first_seen),
        "party": known.party_id.hex(),
    }
    if known.identity.name != known.name:
        facts["calls itself"] = readable(known.identity.name)
    if known.party_id in {one.party for one in home.known.blocked()}:
        facts["blocked"] = "yes"
    print_facts(console(), facts)


def _verified(known: "KnownParty") -> str:
    return "no" if known.verified is None else moment(known.verified)


def _mark(done: bool) -> str:
    return "yes" if done else "no"
