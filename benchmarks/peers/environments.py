"""One virtual environment for each peer, made once under ``build/peers`` from exact pins."""

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
FOLDER = ROOT / "build" / "peers"
PEERS = ("multi_freq_ldpy", "pure_ldp", "opendp", "diffprivlib", "clkhash")
"""Each is a script of this folder, with a requirement file next to it."""

INSTALL_SECONDS = 600


class NotInstalledError(Exception):
    """A peer's environment could not be made; the message is the reason."""


def requirement_file(peer: str) -> Path:
    """Return the file with the peer's pins, those of its dependencies among them."""
    return HERE / f"{peer}.txt"


def python_for(peer: str) -> Path:
    """Return the Python of the peer's environment, which is made first if need be."""
    folder = FOLDER / peer
    python = folder / "bin" / "python"
    marker = folder / "installed.txt"
    wanted = f"# Python {sys.version.split()[0]}\n{requirement_file(peer).read_text()}"
    if marker.is_file() and marker.read_text() == wanted:
        return python
    print(f"peers: setting up {peer} (once)", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)])
    pip = [str(python), "-m", "pip", "--disable-pip-version-check"]
    # The file is the whole environment: nothing that it does not name is installed.
    options = ["--quiet", "--no-deps", "--retries", "2"]
    _run([*pip, "install", *options, "--requirement", str(requirement_file(peer))])
    _run([*pip, "check"])
    # Written last, so that an environment that was cut short is made anew.
    marker.write_text(wanted)
    return python


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - our own command
            command, capture_output=True, check=False, text=True, timeout=INSTALL_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise NotInstalledError(f"no answer within {INSTALL_SECONDS} seconds") from error
    if done.returncode:
        raise NotInstalledError(reason_of(done.stdout + done.stderr))


def reason_of(output: str) -> str:
    """Return the line that says why: the first error of pip, else the last line there is."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    notices = ("WARNING", "DEPRECATION", "[notice]")
    lines = [line for line in lines if not line.startswith(notices)]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR")]
    return next(iter(errors + lines[-1:]), "no reason given")
