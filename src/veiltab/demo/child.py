"""Run a ``veiltab`` command that ends when whoever started it does, however that happens.

The demonstration holds the other end of stdin.  The system closes it when the demonstration is
over, also if it was killed; so no server is ever left behind.
"""

import os
import signal
import sys
import threading

from veiltab.cli.main import main

STDIN = 0


def _follow() -> None:
    """Wait until nobody holds the other end of stdin, and end this process."""
    while os.read(STDIN, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_follow, daemon=True).start()
    main(sys.argv[1:])
