"""``veiltab id``: who you are, and what others may know of it."""

import json
from pathlib import Path
from typing import TYPE_CHECKING

import click

from veiltab.cli.asking import ask_secret, on_terminal, read_secret
from veiltab.cli.lazy import OrderedGroup
from veiltab.cli.output import (
    check_new,
    console,
    json_option,
    print_facts,
    print_json,
    show_help,
    tell,
)
from veiltab.cli.party import Party, party_options
from veiltab.errors import InputError, MalformedError, ParameterError

if TYPE_CHECKING:
    from veiltab.wire.contract import PublicIdentity

LARGEST_IDENTITY = 1 << 16


@click.group("id", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def id_group(context: click.Context) -> None:
    """Make your identity, show it, and look at those of others.

    \b
    Examples:
      veiltab id new --name "City hospital"
      veiltab id show --public --out city-hospital.json
      veiltab id fingerprint tax-office.json
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
def new_command(name: str, no_passphrase: bool, party: Party, as_json: bool) -> None:
    """Draw the keys of a new identity, and keep them in your home.

    On a terminal you are asked for a passphrase.  Make a copy of the home: a lost key cannot be
    made again, and without it nobody can be granted what you have pushed.

    \b
    Examples:
      veiltab id new --name "City hospital"
      veiltab id new --name "City hospital" --passphrase-file secret.txt
      veiltab id new --name "Test" --no-passphrase --home /tmp/test
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.crypto.entropy import SystemEntropy

    home = party.home
    passphrase = _new_passphrase(party.passphrase_file, no_passphrase=no_passphrase)
    home.create(name, passphrase, SystemEntropy())
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
        return ask_secret("A passphrase for the key", twice=True)
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
def show_command(public: bool, out: Path | None, party: Party, as_json: bool) -> None:
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
        from veiltab.files.plain import write_whole

        check_new(out)
        write_whole(out, f"{_public(identity)}\n".encode())
        tell(f"Give {out} to those who are to name you in a study file.")
    if public and out is None:
        click.echo(_public(identity))
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
    identity = read_identity(file)
    facts = {"name": identity.name, "fingerprint": spell(identity)}
    if as_json:
        print_json({**facts, "party": identity.party_id.hex()})
    else:
        print_facts(console(), facts)


def read_identity(file: Path) -> "PublicIdentity":
    """Read a file that ``veiltab id show --public`` has written."""
    from veiltab.wire.contract import PublicIdentity

    try:
        with file.open("rb") as opened:
            data = opened.read(LARGEST_IDENTITY)
        return PublicIdentity.from_json(json.loads(data))
    except OSError as error:
        raise InputError(f"cannot read {file}: {error.strerror}", hint="check the path") from error
    except (ValueError, RecursionError, MalformedError) as error:
        raise InputError(
            f"{file} is not a public identity",
            hint="ask that party for the file that `veiltab id show --public` writes",
        ) from error


def spell(identity: "PublicIdentity") -> str:
    """Return the fingerprint that people compare."""
    from veiltab.crypto.identity import fingerprint

    return fingerprint(identity.party_id)


def _public(identity: "PublicIdentity") -> str:
    return json.dumps(identity.to_json(), ensure_ascii=False, indent=2)


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
