"""``veiltab serve``: the service itself."""

import json
import logging
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, TypeVar

import click

from veiltab.cli.output import (
    guard_keys,
    json_option,
    read_secret,
)
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.server.context import ServiceContext
    from veiltab.server.http.app import Address


ENVIRONMENT = "VEILTAB_DATABASE"
Command = TypeVar("Command", bound=Callable[..., object])


def server_options(command: Command) -> Command:
    """Add ``--data``, ``--database`` and ``--database-file``."""
    for option in (_DATABASE_FILE, _DATABASE, _DATA):
        option(command)
    return command


_DATA = click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="The server's folder: its key, its database and the chunks of studies.",
)
_DATABASE = click.option(
    "--database",
    help=f"sqlite:///… or postgresql://…, without a password.  The default is ${ENVIRONMENT}, or"
    " an SQLite file in the data folder.",
)
_DATABASE_FILE = click.option(
    "--database-file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A file that holds the address of the database, password included.",
)


def database_address(database: str | None, file: Path | None) -> str | None:
    """Return the database's address; none stands for the one in the data folder."""
    if database is not None and file is not None:
        raise ParameterError(
            "give either --database or --database-file, and not both",
            hint="the file is for an address with a password in it",
        )
    if file is not None:
        return read_secret(file, "database address").strip()
    if database is not None:
        check_no_password(database, "--database", f"${ENVIRONMENT}, or --database-file")
        return database
    return os.environ.get(ENVIRONMENT) or None


def check_no_password(address: str, option: str, instead: str) -> None:
    """Refuse a password on the command line, where every user of the computer can read it."""
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(address)
    except (ArgumentError, ValueError):
        return  # whoever reads the address says what is wrong with it, and does not repeat it
    if url.password is not None or any("password" in key.lower() for key in url.query):
        raise ParameterError(
            f"the address in {option} has a password, which others on this computer could read",
            hint=f"put the whole address into {instead}; and change the password",
        )


FILE = click.Path(dir_okay=False, path_type=Path)
RATE = click.FloatRange(min=0, min_open=True)
COUNT = click.IntRange(min=1)
METRICS_PORT = 8751


@click.command("serve")
@server_options
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8750,
    show_default=True,
    help="The port to listen on; 0 takes a free one.",
)
@click.option("--tls-cert", type=FILE, help="The certificate, with its chain, in PEM form.")
@click.option("--tls-key", type=FILE, help="The private key of the certificate.")
@click.option(
    "--behind-proxy",
    is_flag=True,
    help="Listen without TLS on any address: a proxy in front of it encrypts.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(0, 65535),
    help="A port on 127.0.0.1 that answers GET /metrics; 0 is none.  The default is"
    f" {METRICS_PORT}, or none with --port 0.",
)
@click.option("--name", help="What the server is called; may change until the first proposal.")
@click.option("--rate", type=RATE, help="Requests a second for each party.  The default is 200.")
@click.option("--burst", type=COUNT, help="How many of them at once.  The default is 800.")
@click.option(
    "--stranger-rate",
    type=RATE,
    help="Requests a second from each address of unregistered senders.  The default is 20.",
)
@click.option("--stranger-burst", type=COUNT, help="How many at once.  The default is 100.")
@click.option(
    "--connections", type=COUNT, help="Connections at once, of all clients.  The default is 500."
)
@click.option(
    "--connections-per-address",
    type=COUNT,
    help="How many of them from one address, of IPv6 from one /64; not counted behind a proxy."
    "  The default is 32.",
)
@click.option(
    "--shutdown-seconds",
    type=COUNT,
    help="How long running requests may take to finish at the end.  The default is 20.",
)
@click.option(
    "--party-disk-bytes",
    type=COUNT,
    help="What one party may keep on the disk.  The default is an eighth of it, at most 64 GiB.",
)
@click.option(
    "--proposal-days",
    type=COUNT,
    help="After how many days unsigned proposals expire.  The default is 30.",
)
@click.option(
    "--archive-days",
    type=COUNT,
    help="How long after its last change a finished study is archived.  The default is 365.",
)
@json_option
def serve_command(
    data: Path,
    database: str | None,
    database_file: Path | None,
    host: str,
    port: int,
    tls_cert: Path | None,
    tls_key: Path | None,
    behind_proxy: bool,
    metrics_port: int | None,
    name: str | None,
    as_json: bool,
    **limits: float | None,
) -> None:
    """Serve studies until the process is told to stop.

    The first start makes the server's identity.  Tell everybody its fingerprint, by telephone or
    on paper: they compare it when they register.  The server cannot read what it joins.

    \b
    Examples:
      veiltab serve --data /srv/veiltab
      veiltab serve --data /srv/veiltab --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
      veiltab serve --data /srv/veiltab --host 10.0.0.5 --behind-proxy
      veiltab serve --data /srv/veiltab --database-file /etc/veiltab/database
    """  # noqa: D301 - \b tells click to leave the lines alone
    if not (tls_cert or behind_proxy or is_loopback(host)):
        raise ParameterError(
            f"{host} can be reached from other computers, and there is no certificate",
            hint="give --tls-cert and --tls-key, or --behind-proxy if a proxy encrypts",
        )
    address = database_address(database, database_file)
    from veiltab.hosting import as_settings, start_server
    from veiltab.server.http.app import Address, listening, serve
    from veiltab.server.monitoring import set_up_logs

    where = Address(
        host=host,
        port=port,
        certificate=tls_cert,
        certificate_key=tls_key,
        behind_proxy=behind_proxy,
        metrics_port=(METRICS_PORT if port else 0) if metrics_port is None else metrics_port,
    )
    if tls_cert is not None and tls_key is not None:
        _check_certificate(tls_cert, tls_key)
    given = {limit: value for limit, value in limits.items() if value is not None}
    with listening(where) as sockets:  # first: a port that is taken must not leave a server behind
        context, new = start_server(data, address, name, as_settings(given))
        guard_keys()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _stop)
        set_up_logs(sys.stderr)
        if new:
            logging.getLogger("veiltab").info("made a new server identity", extra=_who(context))
        with context.database:
            serve(
                context, where, sockets, lambda url: _announce(context, url, where, as_json=as_json)
            )


def _check_certificate(certificate: Path, key: Path) -> None:
    """Say what is wrong with a certificate before anything starts."""
    import ssl

    try:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key, password="")
    except OSError as error:
        raise ParameterError(
            f"the certificate {certificate} cannot be used with the key {key}:"
            f" {error.strerror or error}",
            hint="give both in PEM form, the key without a passphrase",
        ) from error
    if key.stat().st_mode & 0o007:  # a group of its own may read it, as Debian's ssl-cert does
        raise ParameterError(
            f"every user of this computer can open the key {key}",
            hint=f"run: chmod o= {key}; if others may have read it, get a new certificate",
        )


def is_loopback(host: str) -> bool:
    """Tell whether only this computer can reach an address."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _stop(_number: int, _frame: object) -> NoReturn:
    """End with success, before the service has started and after it has stopped."""
    raise SystemExit(0)


def _announce(context: "ServiceContext", url: str, where: "Address", *, as_json: bool) -> None:
    """Print one line that scripts can wait for, and log who is serving."""
    who, metrics = _who(context), where.metrics_port
    scraped = f"http://127.0.0.1:{metrics}/metrics" if metrics else None
    data = str(context.folders.path)
    logging.getLogger("veiltab").info("listening", extra={"url": url, "data": data, **who})
    line = json.dumps({"url": url, **who, "data": data, "metrics": scraped}, ensure_ascii=False)
    click.echo(line if as_json else f"veiltab is listening on {url}")


def _who(context: "ServiceContext") -> dict[str, str]:
    from veiltab.crypto.identity import fingerprint

    party = context.identity.party_id
    return {"party": party.hex(), "fingerprint": fingerprint(party)}
