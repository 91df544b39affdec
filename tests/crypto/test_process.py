"""Processes that hold keys: no core files, and no swap where the system allows it."""

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource
from veiltab.crypto.process import forbid_core_dumps, keep_out_of_swap
forbid_core_dumps()
secret = bytearray(1 << 20)
locked = keep_out_of_swap()
print(resource.getrlimit(resource.RLIMIT_CORE))
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0))
print(locked)
status = open("/proc/self/status").read()
print(int(status.split("VmLck:")[1].split()[0]))
limits = open("/proc/self/limits").read()
print(limits.split("Max core file size")[1].split()[:2])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the limits are read from /proc")
def test_a_process_with_keys_dumps_no_core_and_is_locked_in_memory() -> None:
    """As the system itself tells: the limit, the flag, and the kilobytes that are locked."""
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    core, dumpable, locked, kilobytes, limits = done.stdout.splitlines()
    assert core == "(0, 0)"
    assert dumpable == "0"
    assert limits == "['0', '0']"
    assert (int(kilobytes) > 1_000) == (locked == "True")
