"""New keys for a server, and a process that protects its keys, by the commands themselves."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.commands import assert_refused, run
from tests.support.servers import serving
from veiltab.hosting import start_server
from veiltab.party.remote import RemoteServer
from veiltab.server.directory import DataDirectory
from veiltab.server.limits import Settings


def test_a_server_gets_new_keys(tmp_path: Path) -> None:
    """Its party id stays; not while it runs, and not where there is none."""
    data = tmp_path / "data"
    context, _ = start_server(data, None, "Statistics bureau", Settings())
    command = ("server", "rotate-key", "--data", data, "--yes")
    assert "there is no server" in assert_refused(run(*command[:-2], tmp_path / "x", "--yes"))
    found = json.loads(run(*command, "--json").out)
    assert (found["party"], found["rotations"]) == (context.identity.party_id.hex(), 1)
    assert "rotations" in run(*command).out
    again, new = start_server(data, None, None, Settings())
    assert (again.identity, new) == (context.identity, False)
    assert len(again.key.proof) == 2
    with DataDirectory(data).lock():
        assert assert_refused(run(*command), code=1)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limits are read from /proc")
def test_a_server_dumps_no_core_and_keeps_its_keys_in_memory(tmp_path: Path) -> None:
    """As the system shows them of the running process."""
    with serving(tmp_path) as server:
        process = Path("/proc") / str(server.process.pid)
        limits = (process / "limits").read_text()
        status = (process / "status").read_text()
        assert RemoteServer.discover(server.url) == server.context.identity
    assert limits.split("Max core file size")[1].split()[:2] == ["0", "0"]
    locked = int(status.split("VmLck:")[1].split()[0])
    assert locked > 0 or os.geteuid() != 0
