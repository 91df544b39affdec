"""``veiltab id`` and ``veiltab register``: who you are, and which server knows you."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from veiltab.cli.main import OrderedGroup
from veiltab.cli.options import PATIENCE, PartyOptions, party_options
from veiltab.cli.output import (
    LONGEST_SECRET,
    ask_secret,
    confirm,
    console,
    ending_its_line,
    json_option,
    on_terminal,
    print_facts,
    print_json,
    read_secret,
    show_help,
    tell,
)
from veiltab.errors import InputError, InvitationError, ParameterError

if TYPE_CHECKING:
    from veiltab.party.registration import Registration
    from veiltab.wire.contract import PublicIdentity

CODE_TRIES = 3


@click.group("id", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def id_group(context: click.Context) -> None:
    """Make your identity, show it, and look at those of others.

    \b
    Examples:
      veiltab id new --name "City hospital"
      veiltab id show --public --out city-hospital.json
      veiltab id fingerprint tax-office.json
      veiltab id rotate
      veiltab id revoke --out revocation.json
    """  # noqa: D301 - \b tells click to leave the lines alone
    show_help(context)


@id_group.command("new")
@click.option("--name", required=True, help="What others call you; it proves nothing.")
@click.option(
    "--no-passphrase",
    is_flag=True,
    help="Keep the key without a passphrase: whoever reads the file is you.",
)
@party_options
@json_option
def new_command(name: str, no_passphrase: bool, party: PartyOptions, as_json: bool) -> None:
    """Draw the keys of a new identity, and keep them in your home.

    On a terminal you are asked for a passphrase.  Make a copy of the home: a lost key cannot be
    made again, and without it nobody can be granted what you have pushed.

    \b
    Examples:
      veiltab id new --name "City hospital"
      veiltab id new --name "City hospital" --passphrase-file secret.txt
      veiltab id new --name "Test" --no-passphrase --home /tmp/test
    """  # noqa: D301 - \b tells click to leave the lines alone
    home = party.home
    passphrase = _new_passphrase(party.passphrase_file, no_passphrase=no_passphrase)
    home.create(name, passphrase)
    _show(home.public, home.path, locked=passphrase is not None, as_json=as_json)


def _new_passphrase(file: Path | None, *, no_passphrase: bool) -> str | None:
    if file is not None and no_passphrase:
        raise ParameterError(
            "give either --passphrase-file or --no-passphrase, and not both",
            hint="a key without a passphrase is as safe as the disk that it is on",
        )
    if no_passphrase:
        return None
    if file is not None:
        return read_secret(file, "passphrase")
    if on_terminal():
        from veiltab.crypto.identity import SHORTEST_PASSPHRASE

        return ask_secret(
            f"A passphrase for the key, of {SHORTEST_PASSPHRASE} characters or more", twice=True
        )
    raise ParameterError(
        "there is no terminal to ask for a passphrase on",
        hint="name a file that holds it with --passphrase-file, or give --no-passphrase",
    )


@id_group.command("show")
@click.option("--public", is_flag=True, help="Print exactly the file that others need of you.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the public identity to this new file.",
)
@party_options
@json_option
def show_command(public: bool, out: Path | None, party: PartyOptions, as_json: bool) -> None:
    """Show your fingerprint, your party id, and where your home is.

    With --public, print what others put into study files: your name and your public keys.  No
    passphrase is needed.

    \b
    Examples:
      veiltab id show
      veiltab id show --public --out city-hospital.json
    """  # noqa: D301 - \b tells click to leave the lines alone
    home = party.home
    identity = home.public
    if out is not None:
        home.write_public(out)
        tell(f"Give {out} to those who are to name you in a study file.")
    if public and out is None:
        from veiltab.party.home import identity_text

        click.echo(identity_text(identity))
    elif out is None or as_json:
        _show(identity, home.path, locked=home.locked, as_json=as_json)


@id_group.command("fingerprint")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@json_option
def fingerprint_command(file: Path, as_json: bool) -> None:
    """Show the fingerprint of somebody else's identity FILE.

    Compare it with them by telephone: then the file is theirs, whoever sent it to you.

    \b
    Example:
      veiltab id fingerprint tax-office.json
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.party.home import read_identity

    identity = read_identity(file)
    facts = {"name": identity.name, "fingerprint": spell(identity)}
    if as_json:
        print_json({**facts, "party": identity.party_id.hex()})
    else:
        print_facts(console(), facts)


@id_group.command("keyring")
@click.option("--forget", is_flag=True, help="Take the passphrase out of the keyring again.")
@party_options
@json_option
def keyring_command(forget: bool, party: PartyOptions, as_json: bool) -> None:
    """Let the keyring of your system keep the passphrase, so that commands do not ask for it.

    Whoever can use your session on this computer can use your identity then.  A passphrase that
    has changed or is lost from the keyring is asked for as before.  The package `keyring` must be
    installed.

    \b
    Examples:
      veiltab id keyring
      veiltab id keyring --forget
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.party import passphrases

    home = party.home
    home.check_identity()
    if forget:
        passphrases.forget(home)
        kept_by = None
    elif not home.locked:
        raise ParameterError(
            f"the identity in {home.path} has no passphrase", hint="there is nothing to keep"
        )
    else:
        kept_by = party.unlock(lambda secret: passphrases.keep(home, secret or ""), by_hand=True)
    if as_json:
        print_json({"party": home.public.party_id.hex(), "kept_by": kept_by})
    else:
        kept = "no: commands ask for it" if kept_by is None else f"by {kept_by}"
        print_facts(console(), {"name": home.public.name, "passphrase kept": kept})


@id_group.command("rotate")
@click.option("--yes", is_flag=True, help="Do it without being asked.")
@party_options
@json_option
def rotate_command(yes: bool, party: PartyOptions, as_json: bool) -> None:
    """Replace your keys by new ones, here and at your server.

    Your fingerprint stays, and studies go on: what you sign carries the proof that the old key has
    handed over to the new one.  The old keys are kept for what was sealed to them, and sign nothing
    that the server takes.  If this is broken off, the same command finishes it.  Make a new copy
    of the home afterwards.

    \b
    Examples:
      veiltab id rotate
      veiltab id rotate --yes --passphrase-file secret.txt
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.party.connection import Retry

    home = party.home
    home.check_identity()
    confirm(f"Replace the keys of {home.public.name!r}?", yes=yes)
    identity = party.unlock(lambda passphrase: home.rotate(passphrase, Retry(total=PATIENCE)))
    count, told = len(identity.earlier), home.server is not None
    facts = {"name": identity.name, "fingerprint": home.fingerprint}
    if as_json:
        print_json({**facts, "party": identity.party_id.hex(), "rotations": count, "told": told})
    else:
        server = "knows the new keys" if told else "none yet"
        print_facts(console(), {**facts, "rotations": str(count), "server": server})


@id_group.command("revoke")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Only write a certificate to this new file, to be sent when it is needed.",
)
@click.option(
    "--certificate",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Send this certificate; no key is needed.",
)
@click.option("--server", "url", help="The server's URL, if this home knows none.")
@click.option("--reason", default="revoked by its owner", help="What others are told.")
@click.option("--yes", is_flag=True, help="Do it without being asked.")
@party_options
@json_option
def revoke_command(
    out: Path | None,
    certificate: Path | None,
    url: str | None,
    reason: str,
    yes: bool,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Revoke your identity, for good: because its keys were stolen or lost.

    The server refuses it from then on, and tells everybody who asks for your keys.  You go on
    with a new identity and a new invitation.  Make a certificate while you have your keys, and keep
    it apart from them: whoever has it can end your identity, and nothing more.

    \b
    Examples:
      veiltab id revoke --out revocation.json
      veiltab id revoke --certificate revocation.json
      veiltab id revoke --reason "laptop stolen"
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.party import rotation
    from veiltab.party.connection import Retry

    if out is not None and (certificate is not None or url is not None):
        raise ParameterError(
            "with --out nothing is sent", hint="leave --certificate and --server out"
        )
    home = party.home
    if certificate is None:
        made = party.unlock(lambda secret: rotation.make_certificate(home, secret, reason))
    else:
        made = rotation.read_certificate(certificate)
    if out is not None:
        rotation.write_certificate(made, out)
        tell(f"Keep {out} apart from the key: whoever has it can revoke your identity.")
    else:
        confirm("Revoke this identity for good?  It cannot be taken back.", yes=yes)
        rotation.revoke(home, made, url=url, retry=Retry(total=PATIENCE))
    _tell_revoked(made.body.party, made.body.reason, sent=out is None, as_json=as_json)
    if out is not None:
        tell(f"Keep {out} apart from your keys.  To revoke: veiltab id revoke --certificate {out}")


def _tell_revoked(party: bytes, reason: str, *, sent: bool, as_json: bool) -> None:
    from veiltab.crypto.identity import fingerprint

    facts = {"fingerprint": fingerprint(party), "reason": reason}
    if as_json:
        print_json({**facts, "party": party.hex(), "revoked": sent})
    else:
        print_facts(console(), {"revoked": "yes" if sent else "not yet", **facts})


def spell(identity: "PublicIdentity") -> str:
    """Return the fingerprint that people compare."""
    from veiltab.crypto.identity import fingerprint

    return fingerprint(identity.party_id)


def _show(identity: "PublicIdentity", home: Path, *, locked: bool, as_json: bool) -> None:
    facts = {
        "name": identity.name,
        "fingerprint": spell(identity),
        "party": identity.party_id.hex(),
        "home": str(home),
    }
    if as_json:
        print_json({**facts, "locked": locked})
    else:
        key = "locked by a passphrase" if locked else "not locked: keep its disk safe"
        print_facts(console(), {**facts, "key": key})


FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("register")
@click.argument("server")
@click.option(
    "--invitation-file",
    type=FILE,
    help="A file with the code alone.  By default it is asked for, or read from stdin.",
)
@click.option("--ca-file", type=FILE, help="The authority of the server's certificate, if private.")
@click.option(
    "--server-fingerprint",
    help='The fingerprint that the operator has told you, such as "12345 67890 …".',
)
@click.option("--yes", is_flag=True, help="Trust the server that answers, without being asked.")
@click.option(
    "--replace",
    is_flag=True,
    help="Forget the server known before; its studies cannot be continued.",
)
@party_options
@json_option
def register_command(
    server: str,
    invitation_file: Path | None,
    ca_file: Path | None,
    server_fingerprint: str | None,
    yes: bool,
    replace: bool,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Register with a server: by the file that its operator sent you, or by its URL and a code.

    SERVER is the file, or the URL.  Compare the server's fingerprint with what the operator tells
    you by telephone, also if there is a file: whoever can change your mail can change the file.
    The server's identity is remembered: from now on your home speaks to no other.  Registering
    again changes nothing.

    \b
    Examples:
      veiltab register tax-office.invitation
      veiltab register tax-office.invitation \\
        --server-fingerprint "12345 67890 12345 67890 12345 67890"
      veiltab register https://stats.example.org
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.party.connection import Retry
    from veiltab.party.known.fingerprints import check_digits
    from veiltab.party.registration import meet

    home = party.home
    home.check_identity()
    if server_fingerprint is not None:
        check_digits(server_fingerprint)
    met = meet(home, server, ca_file=ca_file, replace=replace, retry=Retry(total=PATIENCE))
    if met.code is not None and invitation_file is not None:
        raise ParameterError(
            "the invitation has a code already", hint="leave --invitation-file out"
        )
    known = home.server is not None and not replace
    _check_server(met, server_fingerprint, yes=yes or known)
    code = met.code or _code(invitation_file)
    identity = party.identity()
    met.finish(identity, code)
    _report(met.url, met.server, identity.party_id, as_json=as_json)


def _check_server(met: "Registration", expected: str | None, *, yes: bool) -> None:
    """Have somebody compare the fingerprint before anything is sent."""
    if expected is not None:
        met.check_fingerprint(expected)
        return
    confirm(
        f"The server is {met.server.name!r}, with the fingerprint {spell(met.server)}.\n"
        "Is this what its operator has told you, by telephone and not by mail?",
        yes=yes,
        hint="give --server-fingerprint with the digits that the operator has told you",
    )


def _code(file: Path | None) -> str:
    """Get the code of an invitation; whoever types it sees it, and may try three times."""
    if file is not None:
        return read_secret(file, "invitation", private=False).strip()
    if on_terminal():
        return _ask_code()
    code = sys.stdin.read(LONGEST_SECRET).strip()
    if not code:
        raise InputError(
            "there is no invitation",
            hint="give the operator's file instead of the URL, or pipe the code in",
        )
    return code


def _ask_code() -> str:
    from veiltab.wire.invitations import read_code

    def ask() -> str:
        with ending_its_line():
            typed: str = click.prompt(
                "The code of your invitation (you see what you type)", err=True
            )
        return read_code(typed)

    for _ in range(CODE_TRIES - 1):
        try:
            return ask()
        except InvitationError as error:
            click.echo(f"{error.message}; try again.", err=True)
    return ask()


def _report(url: str, server: "PublicIdentity", me: bytes, *, as_json: bool) -> None:
    fingerprint = spell(server)
    if as_json:
        about = {"name": server.name, "party": server.party_id.hex(), "fingerprint": fingerprint}
        print_json({"url": url, "server": about, "party": me.hex()})
    else:
        facts = {"server": server.name, "url": url, "fingerprint": fingerprint, "party": me.hex()}
        print_facts(console(), {"registered": "yes", **facts})
