"""``veiltab server status``: how a server is doing, at a glance."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.operator import disk_facts, disk_json, open_server, operator_options
from veiltab.cli.output import console, count, day, print_facts, print_json, print_rows
from veiltab.party.known.names import readable

if TYPE_CHECKING:
    from veiltab.server.status import ServerReport, Wait


@click.command("status")
@operator_options
def status_command(
    data: Path, database: str | None, database_file: Path | None, as_json: bool
) -> None:
    """Show how the server is doing: studies, parties, disk, queue, and what waits for whom.

    It changes nothing, and works whether the server runs or not.

    \b
    Example:
      veiltab server status --data /srv/veiltab
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.crypto.identity import fingerprint
    from veiltab.server.status import server_report

    server = open_server(data, database, database_file)
    with server.database:
        report = server_report(server)
    name, digits = server.identity.name, fingerprint(server.identity.party_id)
    if as_json:
        print_json({"name": name, "fingerprint": digits, **_json(report)})
        return
    print_facts(console(), {"server": name, "fingerprint": digits, **_facts(report)})
    if report.waits:
        click.echo()
        rows = [_row(wait) for wait in report.waits]
        print_rows(console(), ("waiting", "kind", "for", "by", "since"), rows, whole="since")


def _json(report: "ServerReport") -> dict[str, Any]:
    return {
        "running": report.running,
        "studies": report.studies,
        "vaults": report.vaults,
        "parties": report.parties,
        "banned": report.banned,
        "open_invitations": report.open_invitations,
        "disk": disk_json(report.disk),
        "queue": [study.hex() for study in report.queue],
        "waiting": [
            {
                "study": wait.line.study.hex(),
                "kind": wait.line.kind,
                "title": readable(wait.line.title),
                "state": wait.line.state,
                "for": wait.step,
                "by": [readable(name) for name in wait.by],
                "since": wait.line.updated,
                "reason": wait.line.reason,
            }
            for wait in report.waits
        ],
    }


def _facts(report: "ServerReport") -> dict[str, str]:
    banned = f", {report.banned:,} of them banned" if report.banned else ""
    return {
        "running": "yes" if report.running else "no",
        "studies": _counts(report.studies),
        "vaults": _counts(report.vaults),
        "parties": f"{report.parties:,}{banned}",
        "invitations": f"{report.open_invitations:,} open",
        "queue": f"{count(len(report.queue), 'study', 'studies')} to be released by the server",
        **disk_facts(report.disk),
    }


def _counts(by_state: Mapping[str, int]) -> str:
    return ", ".join(f"{number:,} {state}" for state, number in by_state.items()) or "none"


def _row(wait: "Wait") -> tuple[str, ...]:
    by = ", ".join(map(readable, wait.by)) or "the server"
    why = f" ({wait.line.reason})" if wait.line.reason else ""
    return readable(wait.line.title), wait.line.kind, wait.step + why, by, day(wait.line.updated)
