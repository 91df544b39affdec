"""``veiltab server rotate-key``: new keys for a server."""

from pathlib import Path

import click

from veiltab.cli.output import confirm, console, json_option, print_facts, print_json


@click.command("rotate-key")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The server's folder.",
)
@click.option("--yes", is_flag=True, help="Do it without being asked.")
@json_option
def rotate_key_command(data: Path, yes: bool, as_json: bool) -> None:
    """Give a server that does not run new keys.

    Its party id and its fingerprint stay, and studies go on: every signature of the new key
    carries the proof that the old one has handed over to it.  Homes follow by themselves.

    \b
    Example:
      veiltab server rotate-key --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.crypto.identity import fingerprint
    from veiltab.hosting import existing_server, rotate_server_key

    existing_server(data, None)
    confirm(f"Replace the keys of the server in {data}?", yes=yes)
    identity = rotate_server_key(data)
    count, spelt = len(identity.earlier), fingerprint(identity.party_id)
    if as_json:
        print_json({"party": identity.party_id.hex(), "fingerprint": spelt, "rotations": count})
    else:
        facts = {"server": identity.name, "fingerprint": spelt, "rotations": str(count)}
        print_facts(console(), facts)
