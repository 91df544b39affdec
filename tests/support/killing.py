"""A server in a process of its own that is killed with SIGKILL and started again, all the time."""

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PHASES = ("upload", "release", "download")
LONGEST = {"upload": 0.6, "release": 0.25, "download": 0.3}
"""Seconds within which a phase is hit, from when the server is ready in it."""


def free_port() -> int:
    """Return a port that nobody uses now."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


class Victim:
    """The server process; ``phase`` is what its clients are doing, as they say."""

    def __init__(self, data: Path, seed: int) -> None:
        """Choose a port that stays the same over all restarts."""
        self.data, self.port = data, free_port()
        self.phase = "upload"
        self.kills: Counter[str] = Counter()
        self._draw = random.Random(seed)  # noqa: S311 - chooses when to kill
        self._process: subprocess.Popen[str] | None = None
        self._stop = threading.Event()

    @property
    def url(self) -> str:
        """Where the server is, when it is."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the server, and wait until it answers."""
        command = [sys.executable, "-m", "veiltab", "serve", "--data", str(self.data)]
        command += ["--port", str(self.port), "--json", "--rate", "1e6", "--burst", "1000000"]
        with (self.data.parent / "server.log").open("a") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own command
                command, stdout=subprocess.PIPE, stderr=log, text=True, env=dict(os.environ)
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "}" in line:
                return
        raise AssertionError(f"the server has not started: {self._process.wait()}")

    def kill(self) -> None:
        """End the server without a warning."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def run(self, kills: int) -> None:
        """Kill and restart until it was done so often; each time in another phase, if it comes."""
        while not self._stop.is_set() and sum(self.kills.values()) < kills:
            wanted = self._draw.choice(PHASES)
            end = time.monotonic() + 3.0
            while self.phase != wanted and time.monotonic() < end and not self._stop.is_set():
                time.sleep(0.005)
            time.sleep(self._draw.uniform(0, LONGEST[wanted]))
            self.kills[self.phase] += 1
            self.kill()
            self.start()

    @contextmanager
    def killed(self, kills: int) -> Iterator[None]:
        """Kill the server in the background for as long as the block runs."""
        thread = threading.Thread(target=self.run, args=(kills,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(60)


def invitation(data: Path, name: str) -> str:
    """Let the operator invite somebody."""
    command = [sys.executable, "-m", "veiltab", "invite", "--data", str(data), name]
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return done.stdout.strip()
