"""Runs a ``veiltab`` command that ends when its parent process ends, whatever the reason.

``python -m veiltab.demo.ends_with_parent`` takes a command's arguments.  Its stdin must be a pipe
whose other end the parent holds.  When the parent ends, even if it is killed, the system closes
that end, and this process ends itself; so a demonstration never leaves a server behind.
"""

import os
import signal
import sys
import threading

from veiltab.cli.main import main

STDIN = 0


def run() -> None:
    """Run the command in the arguments of this process."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    main(sys.argv[1:])


def _end_with_parent() -> None:
    """Wait until the other end of stdin is closed, and end this process."""
    while os.read(STDIN, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    run()
