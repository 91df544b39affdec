"""Another user of this computer gets nothing from a console, not even with its cookie."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.browsing import serving
from tests.support.cases import for_each
from veiltab.console import users
from veiltab.console.app import ADDRESS
from veiltab.console.keys import ConsoleParty
from veiltab.console.state import ConsoleState
from veiltab.console.users import may_ask
from veiltab.party.home import Home

ME, ROOT, ADMIN, NOBODY = 1001, 0, 1002, 65_534
CLIENT, SERVER = ("127.0.0.1", 0x95C0), ("127.0.0.1", 0xAE01)
HERE, THERE = (f"{users._written(address)}" for address in (CLIENT, SERVER))
MAPPED = "0000000000000000FFFF0000"
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout"


def line(own: str, other: str, user: int, state: str = "01") -> str:
    """Write one end of a connection as Linux does."""
    return f" 140: {own} {other} {state} 00000000:00000000 00:00000000 00000000 {user} 0 91866"


OTHERS = (line(THERE, HERE, ME), line(HERE.replace("95C0", "95C1"), THERE, ME))
"""The console's end of the same connection, and another connection of its user."""


@contextmanager
def listed(folder: Path, four: list[str], six: list[str] | None = None) -> Iterator[None]:
    """Have the system's lists say this to a program that an admin has started by sudo."""
    tables = folder / "tcp", folder / "tcp6"
    for table, lines in zip(tables, (four, six or []), strict=True):
        table.write_text("\n".join([HEAD, *lines]) + "\n", "ascii")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(users, "TABLES", tables)
        patch.setattr(os, "getuid", lambda: ME)
        patch.setenv("SUDO_UID", str(ADMIN))
        yield


@for_each("user", [ME, ROOT, ADMIN])
def test_whoever_started_it_may_ask(tmp_path: Path, user: int) -> None:
    """The program's user, root, and the user who was somebody else when they typed sudo."""
    with listed(tmp_path, [*OTHERS, line(HERE, THERE, user)]):
        assert may_ask(CLIENT, SERVER)
    with listed(tmp_path, [*OTHERS], [line(MAPPED + HERE, MAPPED + THERE, user)]):
        assert may_ask(CLIENT, SERVER)


def test_nobody_else_may_ask(tmp_path: Path) -> None:
    """Another user; one who has hung up already, whose number is lost; and who is in no list."""
    for found in (
        [line(HERE, THERE, NOBODY)],
        [line(HERE, THERE, ROOT, state="05")],  # it waits for the other end to hang up
        [line(HERE, THERE, ROOT, state="06")],
        [],
    ):
        with listed(tmp_path, [*OTHERS, *found]):
            assert not may_ask(CLIENT, SERVER), found


def test_without_lists_the_cookie_decides(tmp_path: Path) -> None:
    """Other systems have none."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(users, "TABLES", (tmp_path / "none",))
        assert may_ask(CLIENT, SERVER)


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can connect as another user")
def test_the_cookie_is_no_use_to_another_user(tmp_path: Path) -> None:
    """A browser sends it to every port of this computer, and one may be another user's."""
    Home(tmp_path / "home").create("City hospital")
    with serving(ConsoleState(ConsoleParty(tmp_path / "home"))) as console:

        def ask(path: str, cookie: str = "", user: int = ROOT) -> str:
            with socket.socket() as connection:
                os.fchown(connection.fileno(), user, -1)
                connection.connect((ADDRESS, console.port))
                connection.sendall(
                    f"GET {path} HTTP/1.1\r\nHost: {ADDRESS}:{console.port}\r\n"
                    f"Cookie: {cookie}\r\nConnection: close\r\n\r\n".encode()
                )
                return b"".join(iter(lambda: connection.recv(65_536), b"")).decode()

        link = console.link().partition(str(console.port))[2]
        assert ask(link, user=NOBODY).startswith("HTTP/1.1 403")
        welcome = ask(link)
        assert welcome.startswith("HTTP/1.1 200")
        [cookie] = (
            each.split(";")[0].partition(" ")[2]
            for each in welcome.splitlines()
            if each.startswith("set-cookie")
        )
        assert ask("/unlock", cookie).startswith("HTTP/1.1 200")
        refused = ask("/unlock", cookie, NOBODY)
    assert refused.startswith("HTTP/1.1 403")
    assert "belongs to another user of this computer" in refused
    assert "content-security-policy" in refused
