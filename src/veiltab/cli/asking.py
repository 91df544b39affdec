"""What commands ask people for, and where secrets come from: never from the command line."""

import sys
from pathlib import Path

import click

from veiltab.errors import InputError, ParameterError

LONGEST_SECRET = 1 << 16


def on_terminal() -> bool:
    """Tell whether there is somebody to ask."""
    return sys.stdin.isatty()


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something that cannot be taken back; ``yes`` is the answer of a script."""
    if yes:
        return
    if not on_terminal():
        raise ParameterError(
            "this needs a yes, and there is no terminal to ask on",
            hint="read what it would do, and give --yes",
        )
    if not click.confirm(question, err=True):
        raise click.Abort


def ask_secret(prompt: str, *, twice: bool = False) -> str:
    """Ask on the terminal, without echo."""
    answer: str = click.prompt(prompt, hide_input=True, confirmation_prompt=twice, err=True)
    return answer


def read_secret(path: Path, what: str) -> str:
    """Read a secret from a file, without the end of its line."""
    try:
        with path.open("rb") as file:
            text = file.read(LONGEST_SECRET + 1).decode()
    except OSError as error:
        raise InputError(
            f"cannot read the {what} from {path}: {error.strerror}", hint="check the path"
        ) from error
    except UnicodeDecodeError:  # its message would quote the secret
        raise InputError(f"the {what} in {path} is not UTF-8", hint="save it as UTF-8") from None
    found = text.removesuffix("\n").removesuffix("\r")
    if not found or len(text) > LONGEST_SECRET:
        raise InputError(f"there is no {what} in {path}", hint="put it there, on one line")
    return found
