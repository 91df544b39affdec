"""Programs that tests need and pip does not bring: a browser, and what looks into PDF files.

``python -m tests.support.programs`` installs those that are missing, where it may: on Debian, as
root.  ``make test`` does so first.  A test that needs one asks :func:`needed` for it, and is then
skipped where it is missing, which the end of the run says in capital letters; where ``CI`` is set,
it fails.
"""

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

NOT_RUN = "NOT RUN: "
"""How the reason of a skipped test begins, so that the end of the run can collect them."""

HINT = "run make test as root on Debian, or install {packages}"


@dataclass(frozen=True, slots=True)
class Program:
    """A program by the names that it may have, and the Debian package that brings it."""

    words: str
    names: tuple[str, ...]
    package: str

    def find(self) -> str | None:
        """Return where it is installed."""
        return next(filter(None, map(shutil.which, self.names)), None)


BROWSER = Program(
    "Chromium or Chrome",
    (
        "chromium-headless-shell",  # draws the same, and takes half of the time for it
        "chromium",
        "chromium-browser",
        "google-chrome",
        "google-chrome-stable",
        "chrome",
        "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
        "/Applications/Chromium.app/Contents/MacOS/Chromium",
    ),
    "chromium-headless-shell",
)
PDF_TEXT = Program("pdftotext", ("pdftotext",), "poppler-utils")
PDF_PICTURES = Program("pdftoppm", ("pdftoppm",), "poppler-utils")
ALL = (BROWSER, PDF_TEXT, PDF_PICTURES)

FONTS = "fonts-liberation"
"""Has the widths of Arial, which most readers have; without it pages look unlike theirs."""


def needed(program: Program) -> str:
    """Return where a program is; without it the test is skipped, or fails on CI."""
    path = program.find()
    if path is not None:
        return path
    hint = HINT.format(packages=program.package)
    message = f"{NOT_RUN}{program.words} is not installed; {hint}"
    if os.environ.get("CI"):
        pytest.fail(message, pytrace=False)
    pytest.skip(message)


def missing() -> list[Program]:
    """Return what is not installed."""
    return [program for program in ALL if program.find() is None]


def install_missing(environment: Mapping[str, str] = os.environ) -> int:
    """Install what is missing, where that is possible, and say so; return an exit code."""
    if not missing():
        return 0
    if _is_debian() and os.geteuid() == 0 and shutil.which("apt-get"):
        packages = sorted({program.package for program in missing()})
        print(f"Installing {', '.join(packages)} (once)", flush=True)  # noqa: T201 - a command
        _install([*packages, FONTS])
    left = missing()
    for program in left:
        hint = HINT.format(packages=program.package)
        print(  # noqa: T201 - as above
            f"warning: tests that need {program.words} will NOT RUN: it is not installed\n"
            f"hint: {hint}",
            file=sys.stderr,
        )
    return 1 if left and environment.get("CI") else 0


def _is_debian() -> bool:
    """Tell whether this is Debian; elsewhere packages of these names hold something else."""
    try:
        return platform.freedesktop_os_release().get("ID") == "debian"
    except OSError:
        return False


def _install(packages: list[str]) -> None:
    """Install packages with as little as they need."""
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    options = ["-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Use-Pty=0"]
    # Without a network the lists may still be good enough, so only the second has to succeed.
    for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
        done = subprocess.run(  # noqa: S603 - fixed names
            ["apt-get", *options, *command],  # noqa: S607 - as the system's PATH has it
            env=environment,
            check=False,
            stdout=subprocess.DEVNULL,
        )
    if done.returncode:
        print("warning: apt-get could not install them", file=sys.stderr)  # noqa: T201 - as above


if __name__ == "__main__":
    sys.exit(install_missing())
