"""Which user of this computer asks.

Browsers keep the cookies of different ports of one address together.  So another user of this
computer, who gets a browser to open a port of theirs, is sent the console's cookie.  It is of no
use to them: Linux tells whose program is at the other end of a connection.
"""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

TABLES = Path("/proc/net/tcp"), Path("/proc/net/tcp6")
"""Linux's lists of all connections: the second has those of programs that ask by IPv6."""

ESTABLISHED = "01"
"""The state of a connection that is open on both sides.  Others may belong to nobody any more."""

_OWN, _OTHER, _STATE, _USER = 1, 2, 3, 7
"""The columns of an end's own address, the other end's, its state and the user's number."""


def may_ask(client: tuple[str, int], server: tuple[str, int]) -> bool:
    """Tell whether a connection comes from whoever started the console, or from root.

    Where the system has no such lists, as outside of Linux, only the cookie can tell.
    """
    lines = list(_lines())
    return not lines or any(user in _users() for user in _owners(lines, client, server))


def _users() -> set[int]:
    """Return the numbers of root, of this program's user, and of whoever started it by sudo."""
    invoker = os.environ.get("SUDO_UID", "")
    return {0, os.getuid()} | ({int(invoker)} if invoker.isdecimal() else set())


def _lines() -> Iterator[list[str]]:
    for table in TABLES:
        with suppress(OSError):
            yield from (line.split() for line in table.read_text("ascii").splitlines())


def _owners(
    lines: list[list[str]], client: tuple[str, int], server: tuple[str, int]
) -> Iterator[int]:
    """Yield the user's number of the connection that goes from one address to another."""
    own, other = _written(client), _written(server)
    for line in lines:
        same = line[_OWN].endswith(own) and line[_OTHER].endswith(other)  # IPv6 has a prefix
        if same and line[_STATE] == ESTABLISHED:
            yield int(line[_USER])


def _written(address: tuple[str, int]) -> str:
    """Write an address of IPv4 as the lists do: its four bytes as the processor has them."""
    host, port = address
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"
