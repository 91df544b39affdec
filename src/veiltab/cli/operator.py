"""What the operator's commands share: opening a server, and how they show parties and studies."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.output import json_option, print_json
from veiltab.cli.serve import database_address, server_options
from veiltab.party.known.names import readable

if TYPE_CHECKING:
    from veiltab.server.context import ServiceContext
    from veiltab.server.db.operators import OperatorLine, PartyLine
    from veiltab.server.operator import Disk

YES = click.option("--yes", is_flag=True, help="Do not ask.")
_KIB = 1024


def open_server(data: Path, database: str | None, database_file: Path | None) -> "ServiceContext":
    """Open a server that was started before, by this version of veiltab or an older one."""
    from veiltab.hosting import existing_server

    server = existing_server(data, database_address(database, database_file))
    server.database.check_current()
    return server


def operator_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of a server, and ``--json``."""
    return server_options(json_option(command))


def party_json(server: "ServiceContext", line: "PartyLine") -> dict[str, Any]:
    """Return what is shown of a party."""
    from veiltab.crypto.identity import fingerprint
    from veiltab.server.operator import party_use

    use = party_use(server, line.party)
    return {
        "name": readable(line.name),
        "party": line.party.hex(),
        "fingerprint": fingerprint(line.party),
        "created": line.created,
        "banned": line.banned,
        "open_proposals": use.open_proposals,
        "message_bytes": use.message_bytes,
        "chunk_bytes": use.chunk_bytes,
    }


def study_json(line: "OperatorLine") -> dict[str, Any]:
    """Return what is shown of a study or vault."""
    return {
        "study": line.study.hex(),
        "kind": line.kind,
        "title": readable(line.title),
        "state": line.state,
        "reason": line.reason,
        "proposer": line.proposer.hex(),
        "created": line.created,
        "updated": line.updated,
        "archived": line.archived,
        "chunk_bytes": line.size,
    }


def disk_json(disk: "Disk") -> dict[str, Any]:
    """Return what is shown of the disk."""
    return {
        "total_bytes": disk.total,
        "free_bytes": disk.free,
        "reserve_bytes": disk.reserve,
        "quota_bytes": disk.quota,
        "ballast": disk.ballast,
    }


def disk_facts(disk: "Disk") -> dict[str, str]:
    """Write for people how full the disk is."""
    taking = "yes" if disk.free >= disk.reserve else "no: only reading and aborts work"
    return {
        "disk": size_text(disk.total),
        "free": size_text(disk.free),
        "reserve": size_text(disk.reserve),
        "takes uploads": taking,
    }


def print_ended(studies: list[bytes], what: str, *, as_json: bool) -> None:
    """Print the ids of the studies to which something was done."""
    if as_json:
        print_json({what: [study.hex() for study in studies]})
        return
    for study in studies:
        click.echo(f"{what.capitalize()}: {study.hex()}")
    if not studies:
        click.echo(f"Nothing {what}.")


def size_text(size: int) -> str:
    """Write a number of bytes for people."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < _KIB:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= _KIB
    return f"{amount:.1f} TiB"
