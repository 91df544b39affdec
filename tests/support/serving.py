"""A service in a process of its own, as ``veiltab serve`` has it.

Run as a module: ``python -m tests.support.serving DIRECTORY [CERTIFICATE KEY]``.  Prints its URL
when it is ready, and logs to stderr.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.support.service import make_context
from veiltab.server.monitoring import set_up_logs
from veiltab.server.run import Address, serve


@dataclass(eq=False)
class Served:
    """A process that serves on ``url``."""

    process: subprocess.Popen[str]
    url: str
    log: Path

    def wait(self, seconds: float = 20.0) -> int:
        """Wait for the end of the process, and return its code."""
        return self.process.wait(seconds)


@contextmanager
def serving(directory: Path, *certificate: Path) -> Iterator[Served]:
    """Start a service and wait until it is ready; kill it at the end if it still runs."""
    log = directory.with_suffix(".log")
    command = [sys.executable, "-m", "tests.support.serving", str(directory)]
    with log.open("w") as errors:
        process = subprocess.Popen(  # noqa: S603 - it is our own module
            [*command, *map(str, certificate)], stdout=subprocess.PIPE, stderr=errors, text=True
        )
    try:
        yield Served(process, _first_line(process.stdout, log), log)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def _first_line(stream: IO[str] | None, log: Path) -> str:
    line = stream.readline().strip() if stream is not None else ""
    assert line, log.read_text(encoding="utf-8")
    return line


def main(directory: str, *certificate: str) -> None:
    """Serve until a signal comes."""
    address = Address(port=0)
    if certificate:
        chain, key = map(Path, certificate)
        address = Address(port=0, certificate=chain, certificate_key=key)
    set_up_logs()
    serve(make_context(Path(directory)), address, lambda url: print(url, flush=True))  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
