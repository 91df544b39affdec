"""The ``veiltab`` command: its subcommands, each imported when it is asked for, and how it ends."""

import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from io import TextIOWrapper
from typing import NoReturn

import click

from veiltab.cli.explaining import Context, begin, explain, notes
from veiltab.cli.output import own_process, show_help
from veiltab.errors import VeiltabError
from veiltab.report.glossary import meanings


class LazyCommands(MutableMapping[str, click.Command]):
    """Names of commands, each with the ``module:attribute`` that it is imported from."""

    def __init__(self, places: Mapping[str, str]) -> None:
        """Remember where the commands are; nothing is imported yet."""
        self._places = dict(places)
        self._loaded: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        """Import a command, once."""
        if name not in self._loaded:
            module, _, attribute = self._places[name].partition(":")
            self._loaded[name] = _explained(getattr(import_module(module), attribute))
        return self._loaded[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        """Add a command that is imported already."""
        self._places[name] = ""
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        """Take a command away."""
        del self._places[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        """Go through the names, in their order."""
        return iter(self._places)

    def __len__(self) -> int:
        """Count the commands."""
        return len(self._places)


def _explained(command: click.Command) -> click.Command:
    """Let the help of a command, and of those in a group, say what its words mean."""
    command.context_class = Context
    for inner in command.commands.values() if isinstance(command, click.Group) else ():
        _explained(inner)
    return command


_LONGEST_SENTENCE = 300


class OrderedGroup(click.Group):
    """A group whose help lists the commands in the order in which they are used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names as they were given, not by the alphabet."""
        del ctx
        return list(self.commands)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the first sentence of each command's help in full, on several lines if need be."""
        rows = [
            (name, self.commands[name].get_short_help_str(limit=_LONGEST_SENTENCE))
            for name in self.list_commands(ctx)
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class DefaultGroup(OrderedGroup):
    """A group that does its first command when no other is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the first command's name before options that are not the group's own."""
        help_options = ctx.help_option_names
        if not args or (args[0].startswith("-") and args[0] not in help_options):
            args = [next(iter(self.commands)), *args]
        return super().parse_args(ctx, args)


INTERRUPTED = 130
"""What shells expect of a command that was stopped from the keyboard."""

USAGE, STOPPED, REFUSED = "usage", "stopped", "system_refused"
"""The codes of failures that have no class in :mod:`veiltab.errors`."""

RUN_AGAIN = "nothing is left half-written; run it again"

_DIGITS_WITH_MARKS = re.compile(r"'[0-9.,]*[0-9][.,][0-9]+' is not a valid (?:float|integer)")
"""A number as people write it who put a comma before decimals, or marks between thousands."""

COMMANDS = {
    "demo": "veiltab.cli.demo:demo_command",
    "plan": "veiltab.cli.plan:plan_command",
    "simulate": "veiltab.cli.experiments:simulate_command",
    "reproduce": "veiltab.cli.experiments:reproduce_command",
    "serve": "veiltab.cli.serve:serve_command",
    "server": "veiltab.cli.server:server_group",
    "id": "veiltab.cli.identity:id_group",
    "register": "veiltab.cli.identity:register_command",
    "party": "veiltab.cli.party:party_group",
    "ledger": "veiltab.cli.ledger:ledger_group",
    "overlap": "veiltab.cli.overlap:overlap_group",
    "study": "veiltab.cli.study:study_group",
    "recode": "veiltab.cli.recode:recode_group",
    "push": "veiltab.cli.push:push_command",
    "grant": "veiltab.cli.grant:grant_command",
    "grants": "veiltab.cli.grant:grants_command",
    "revoke": "veiltab.cli.grant:revoke_command",
    "vault": "veiltab.cli.vault:vault_group",
    "agent": "veiltab.cli.agent:agent_group",
    "estimate": "veiltab.cli.estimate:estimate_command",
    "publish": "veiltab.cli.estimate:publish_command",
    "audit": "veiltab.cli.study:audit_command",
    "console": "veiltab.cli.console:console_command",
}


@click.group(
    cls=OrderedGroup,
    commands=LazyCommands(COMMANDS),
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="veiltab", message="%(prog)s %(version)s")
@click.pass_context
def veiltab(context: click.Context) -> None:
    """Joint statistics across organisations that may not share records.

    Data curators sample, add invented records and encrypt, an untrusted server joins what it
    cannot read, and a researcher whom the curators authorise estimates joint distributions under
    differential privacy.

    \b
    Start with a plan:
      veiltab plan --population 45222 --cells 24 --epsilon 0.5

    \b
    Run a server:    serve, then server invite everybody who is to take part; server status
    Take part:       id new, then register with the invitation; party verify those you work with
    As a curator:    ledger set, study propose or study sign, recode draft, push, grant
    Often the same:  vault propose, sign and push once; then agent answers studies on it
    As researcher:   estimate, once the curators have granted it; publish what others may read
    Anybody:         study status, grants, audit
    """  # noqa: D301 - \b tells click to leave the lines alone
    show_help(context)


veiltab.context_class = Context


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command; every failure is ``error:`` and ``hint:`` on stderr and an exit code.

    With ``--json`` it is one line of JSON on stderr instead, with the error's stable code.
    """
    _write_what_can_be_written()
    if arguments is None:
        own_process()
    words = sys.argv[1:] if arguments is None else arguments
    report = _Report(as_json=_wants_json(words))
    try:
        code = _run(arguments, explaining=not report.as_json)
        sys.stdout.flush()
    except VeiltabError as error:
        code = report(error.code, error.message, error.hint, error.exit_code)
    except click.ClickException as error:
        code = report(USAGE, _usage_message(error), _help_hint(error, words), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        code = report(STOPPED, "stopped", RUN_AGAIN, INTERRUPTED)
    except BrokenPipeError:  # the reader of a pipe has gone
        _close_output()
        code = 1
    except OSError as error:
        _close_output()
        reason = error.strerror or str(error)
        code = report(REFUSED, f"the system refused: {reason}", "look at where the output goes", 1)
    except BaseException as error:
        if not _stopped_in_polars(error):
            raise
        code = report(STOPPED, "stopped", RUN_AGAIN, INTERRUPTED)
    sys.exit(code)


def _stopped_in_polars(error: BaseException) -> bool:
    """Tell whether Ctrl-C came while polars called Python, which it takes for a fault of its own.

    Its type is known by name: polars is not loaded by commands that read no table.
    """
    return type(error).__name__ == "PanicException" and KeyboardInterrupt.__name__ in str(error)


def _run(arguments: Sequence[str] | None, *, explaining: bool) -> int:
    """Run the command, and explain the words of what it has shown, also if it fails then."""
    begin()
    try:
        code: int = veiltab.main(arguments, prog_name="veiltab", standalone_mode=False)
    except VeiltabError:
        if explaining:
            explain()
        raise
    if explaining:
        explain()
    return code


def _wants_json(arguments: Sequence[str]) -> bool:
    """Tell whether JSON is asked for, also where the rest of the line cannot be parsed."""
    words = list(arguments)
    return "--json" in (words[: words.index("--")] if "--" in words else words)


@dataclass(frozen=True, slots=True)
class _Report:
    """Prints a failure on stderr, for people or for scripts, and returns the exit code."""

    as_json: bool

    def __call__(self, code: str, message: str, hint: str, exit_code: int) -> int:
        if self.as_json:
            error = {"code": code, "message": message, "hint": hint}
            click.echo(json.dumps({"error": error}, ensure_ascii=False), err=True)
        else:
            click.echo(f"error: {message}", err=True)
            click.echo(f"hint: {hint}", err=True)
            for note in notes(meanings(f"{message} {hint}")):
                click.echo(note, err=True)
        return exit_code


def _write_what_can_be_written() -> None:
    """Let a terminal or file without Greek letters show a question mark and not a traceback."""
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


def _close_output() -> None:
    """Give Python a harmless place for its last flush."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


NOT_A_NUMBER = {
    "is not a valid float": "is not a number",
    "is not a valid float range": "is not a number",
    "is not a valid integer": "is not a whole number",
    "is not a valid integer range": "is not a whole number",
}
"""What Click says of numbers in the words of programmers, and how people say it."""


def _usage_message(error: click.ClickException) -> str:
    message = error.format_message()
    for theirs, ours in NOT_A_NUMBER.items():
        message = message.replace(f"{theirs}.", f"{ours}.")
    return message


def _help_hint(error: click.ClickException, words: Sequence[str]) -> str:
    """Say whose help to read; of an option without its value, click does not say which command."""
    context = getattr(error, "ctx", None)
    command = _path(words) if context is None else context.command_path
    if isinstance(error, click.exceptions.NoSuchCommand):
        return f"'{command} --help' lists every command"
    explained = f"'{command} --help' explains every option"
    if _DIGITS_WITH_MARKS.search(error.format_message()):
        return f"write a point before decimals, and nothing between thousands; {explained}"
    return explained


def _path(words: Sequence[str]) -> str:
    """Return the names of the command that the first words call."""
    command: click.Command = veiltab
    path = ["veiltab"]
    for word in words:
        if not isinstance(command, click.Group) or word not in command.commands:
            break
        command = command.commands[word]
        path.append(word)
    return " ".join(path)
