"""``veiltab serve``: the service that joins and perturbs what it cannot read."""

import json
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from veiltab.cli.output import json_option
from veiltab.cli.server_options import (
    database_address,
    open_server,
    server_identity,
    server_options,
)
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.server.context import Context
    from veiltab.server.directory import DataDirectory
    from veiltab.server.limits import Settings

FILE = click.Path(dir_okay=False, path_type=Path)
RATE = click.FloatRange(min=0, min_open=True)
COUNT = click.IntRange(min=1)


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
@click.option("--name", help="What the server is called; fixed when it first starts.")
@click.option("--rate", type=RATE, help="Requests a second for each party.  The default is 500.")
@click.option("--burst", type=COUNT, help="How many of them at once.  The default is 2000.")
@click.option(
    "--stranger-rate",
    type=RATE,
    help="Requests a second for each address, of strangers.  The default is 20.",
)
@click.option("--stranger-burst", type=COUNT, help="How many at once.  The default is 100.")
@click.option(
    "--shutdown-seconds",
    type=COUNT,
    help="How long running requests may take to finish at the end.  The default is 20.",
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
    from veiltab.server.directory import DataDirectory
    from veiltab.server.monitoring import set_up_logs
    from veiltab.server.run import Address, serve

    where = Address(
        host=host,
        port=port,
        certificate=tls_cert,
        certificate_key=tls_key,
        behind_proxy=behind_proxy,
    )
    if tls_cert is not None and tls_key is not None:
        _check_certificate(tls_cert, tls_key)
    context, new = _start(DataDirectory(data), address, name, _settings(limits))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    set_up_logs(sys.stderr)
    if new:
        logging.getLogger("veiltab").info("made a new server identity", extra=_who(context))
    with context.database:
        serve(context, where, lambda url: _announce(context, url, as_json=as_json))


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


def is_loopback(host: str) -> bool:
    """Tell whether only this computer can reach an address."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _stop(_number: int, _frame: object) -> NoReturn:
    """End well: before the service has begun, or again after it has ended in an orderly way."""
    raise SystemExit(0)


def _settings(limits: dict[str, Any]) -> "Settings":
    from veiltab.server.limits import Settings

    return Settings(**{name: value for name, value in limits.items() if value is not None})


def _start(
    folders: "DataDirectory", database: str | None, name: str | None, settings: "Settings"
) -> "tuple[Context, bool]":
    """Bring the database up to date, and tell whether this is the server's first start."""
    with folders.lock():
        identity, new = server_identity(folders, name)
        context = open_server(folders, database, identity, settings)
        context.database.migrate()
    return context, new


def _announce(context: "Context", url: str, *, as_json: bool) -> None:
    """Print one line that scripts can wait for, and log who is serving."""
    who = _who(context)
    data = str(context.folders.path)
    logging.getLogger("veiltab").info("listening", extra={"url": url, "data": data, **who})
    line = json.dumps({"url": url, **who, "data": data}, ensure_ascii=False)
    click.echo(line if as_json else f"veiltab is listening on {url}")


def _who(context: "Context") -> dict[str, str]:
    from veiltab.crypto.identity import fingerprint

    party = context.identity.party_id
    return {"party": party.hex(), "fingerprint": fingerprint(party)}
