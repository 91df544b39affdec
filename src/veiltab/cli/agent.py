"""``veiltab agent``: a curator's process that answers what its owner has signed."""

import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.main import OrderedGroup
from veiltab.cli.options import PartyOptions, party_options
from veiltab.cli.output import (
    console,
    count,
    json_option,
    print_facts,
    print_json,
    print_rows,
    say,
    show_help,
    tell,
)
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.party.agent.agent import Agent, Verdict
    from veiltab.party.agent.log import AgentLog
    from veiltab.party.agent.policy import Policy

_USER = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,63}\$?")

PATIENCE = 20.0
"""Seconds to try a server that does not answer; then the agent waits before the next round."""

POLICY = click.option(
    "--policy",
    "policy_file",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    help="What the agent may answer: a policy, which only you can change.",
)


@click.group("agent", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def agent_group(context: click.Context) -> None:
    """Answer studies that you have signed, without being there.

    The agent sends new pads to studies on a vault, and gives grants: only for studies that you have
    signed and charged in this home, and that your policy names.  It signs nothing.  Every answer
    and every refusal is a line in agent.jsonl in your home, which is written first.

    \b
    Examples:
      veiltab agent example > policy.toml
      veiltab agent check --policy policy.toml
      veiltab agent run --policy policy.toml
      veiltab agent unit --policy /etc/veiltab/policy.toml > veiltab-agent.service
    """  # noqa: D301 - \b tells click to leave the lines alone
    show_help(context)


@agent_group.command("example")
@json_option
def example_command(as_json: bool) -> None:
    """Print a policy with an explanation of every key.

    \b
    Example:
      veiltab agent example > policy.toml
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.party.agent.policy import example_policy

    if as_json:
        print_json({"policy": example_policy()})
    else:
        click.echo(example_policy(), nl=False)


@agent_group.command("check")
@POLICY
@party_options
@json_option
def check_command(policy_file: Path, party: PartyOptions, as_json: bool) -> None:
    """Say what the agent would do now; nothing is sent.

    \b
    Example:
      veiltab agent check --policy policy.toml
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.party.agent.policy import read_policy

    policy = read_policy(policy_file)  # before a passphrase is asked for
    with _agent(party, policy_file, Event(), writing=False) as agent:
        verdicts, log = agent.check(), agent.log
        missing = _unknown_names(agent, policy)
    if as_json:
        print_json(_check_json(policy, log, verdicts, missing))
    else:
        _print_check(policy, log, verdicts, missing)


@agent_group.command("run")
@POLICY
@click.option("--once", is_flag=True, help="Look at every study once, and end; for cron.")
@party_options
@json_option
def run_command(policy_file: Path, once: bool, party: PartyOptions, as_json: bool) -> None:
    """Watch the server and answer, until it is stopped.

    It waits for a server that does not answer, and ends at SIGTERM or Ctrl-C.  It can be stopped at
    any time: nothing is lost or sent twice.  Whatever it does is printed, one line each.

    \b
    Examples:
      veiltab agent run --policy policy.toml
      veiltab agent run --policy policy.toml --once
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.party.agent.agent import AgentStopped, only_agent
    from veiltab.party.agent.policy import read_policy

    read_policy(policy_file)  # before a passphrase is asked for
    stop = Event()
    with (
        only_agent(party.home),
        _stopping(stop),
        _agent(party, policy_file, stop, writing=True) as agent,
    ):
        agent.on_event = _print_json_line if as_json else _print_line
        if once:
            with suppress(AgentStopped):
                agent.step()
            return
        tell("The agent is at work; Ctrl-C ends it.")
        agent.run()


@agent_group.command("unit")
@POLICY
@click.option("--user", help="The user who owns the home.  You, by default.")
@click.option(
    "--passphrase",
    type=click.Path(path_type=Path),
    help="The file with the passphrase, which only root can read; systemd gives it to the agent.",
)
@click.option(
    "--home",
    type=click.Path(path_type=Path),
    help="Where your identity lives.  The default is $VEILTAB_HOME, or ~/.veiltab.",
)
@json_option
def unit_command(
    policy_file: Path, user: str | None, passphrase: Path | None, home: Path | None, as_json: bool
) -> None:
    """Print a systemd unit that runs the agent.

    \b
    Example:
      veiltab agent unit --policy /etc/veiltab/policy.toml --passphrase /etc/veiltab/passphrase
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.party.agent.unit import AgentUnit
    from veiltab.party.home import Home

    if user is not None and not _USER.fullmatch(user):
        raise ParameterError(
            f"{user!r} cannot be the name of a user of this computer",
            hint="name the user who owns the agent's home, such as veiltab",
        )
    unit = AgentUnit(
        program=_program(),
        home=Home(home).path,
        policy=policy_file.absolute(),
        user=user or _user(),
        passphrase=None if passphrase is None else passphrase.absolute(),
    )
    if as_json:
        print_json({"unit": unit.text()})
    else:
        click.echo(unit.text(), nl=False)


def _program() -> tuple[str, ...]:
    """Return how this very program is run."""
    found = shutil.which("veiltab")
    return (sys.executable, "-m", "veiltab") if found is None else (str(Path(found).absolute()),)


def _user() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a container may have no name for its user
        return str(os.getuid())


@contextmanager
def _agent(
    party: PartyOptions, policy_file: Path, stop: Event, *, writing: bool
) -> "Iterator[Agent]":
    from veiltab.party.agent.agent import Agent, AgentStopped, open_log
    from veiltab.party.connection import Retry
    from veiltab.party.context import check_registered
    from veiltab.party.session import open_context

    def on_wait(_reason: str, _seconds: float) -> None:
        if stop.is_set():
            raise AgentStopped

    home = party.home
    check_registered(home)  # before a passphrase is asked for
    identity = party.identity()
    retry = Retry(total=PATIENCE, cap=5.0, on_wait=on_wait)
    context = open_context(home, identity, retry)
    with context.server, open_log(home, writing=writing) as log:
        yield Agent(context, policy_file, log, stop)


@contextmanager
def _stopping(stop: Event) -> Iterator[None]:
    """End the agent at a signal, after what it is writing."""

    def handle(_number: int, _frame: object) -> None:
        stop.set()

    signals = (signal.SIGTERM, signal.SIGINT)
    before = [signal.signal(number, handle) for number in signals]
    try:
        yield
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)


def _print_json_line(entry: dict[str, Any]) -> None:
    import json

    click.echo(json.dumps(entry))
    sys.stdout.flush()


def _print_line(entry: dict[str, Any]) -> None:
    say(f"{entry['at']}  {_words(entry)}")
    sys.stdout.flush()


def _words(entry: dict[str, Any]) -> str:
    event, title = entry["event"], entry.get("title")
    study = f"{title!r} ({entry['study'][:16]})" if entry.get("study") else ""
    if event == "new pads":
        return f"new pads for {entry['rows']:,} rows of {study}, ε = {entry['epsilon']:g}"
    if event == "grant":
        who = entry["to"]
        names = ", ".join(entry["attributes"])
        return f"{names} of {study} granted to {who['name']}, {who['fingerprint']}"
    if event == "refused":
        about = f"left to you: {study}: " if study else "nothing answered: "
        return f"{about}{entry['reason']}"
    return str(event)


def _unknown_names(agent: "Agent", policy: "Policy") -> list[str]:
    """Return the names in a policy that no vault or study of this home has (yet)."""
    home = agent.context.home
    scopes = [(vault, home.vault(vault).title()) for vault in home.vaults()]
    scopes += [(study, home.study(study).title()) for study in home.studies()]
    return [
        name
        for name in (*policy.vaults, *policy.studies)
        if not any(name == title or scope.hex().startswith(name) for scope, title in scopes)
    ]


def _check_json(
    policy: "Policy", log: "AgentLog", verdicts: "list[Verdict]", missing: list[str]
) -> dict[str, Any]:
    return {
        "epsilon": float(policy.epsilon),
        "epsilon_answered": float(sum(log.answered.values())),
        "unknown": missing,
        "studies": [
            {
                "study": verdict.study.hex(),
                "title": verdict.title,
                "state": verdict.state,
                "action": verdict.action,
                "reason": verdict.reason,
            }
            for verdict in verdicts
        ],
    }


def _print_check(
    policy: "Policy", log: "AgentLog", verdicts: "list[Verdict]", missing: list[str]
) -> None:
    screen, answered = console(), sum(log.answered.values())
    facts = {
        "answers": ", ".join((*policy.vaults, *policy.studies)),
        "budget": f"ε = {float(policy.epsilon - answered):g} of {float(policy.epsilon):g} left",
        "grants to": f"{count(len(policy.researchers), 'researcher')}, by fingerprint",
        "asks": f"every {policy.poll_seconds:,} s",
        "log": str(log.path),
    }
    if missing:
        facts["not known here"] = f"{', '.join(missing)}: is the title exact?"
    print_facts(screen, facts)
    screen.print()
    if not verdicts:
        click.echo("There is nothing to answer now.")
        return
    rows = [
        (v.title, v.study.hex()[:16], v.state, v.action or f"left to you: {v.reason}")
        for v in verdicts
    ]
    print_rows(screen, ("study", "id", "state", "the agent would"), rows)
