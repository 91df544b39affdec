"""The demonstration's last chapter: tables stored once, and agents that answer a study on them."""

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from veiltab.core.schema import CountTable
from veiltab.crypto.identity import fingerprint
from veiltab.demo.parties import (
    ID_COLUMN,
    TABLE,
    DemoCurator,
    DemoParties,
    curator_lines,
    researcher_lines,
)
from veiltab.demo.processes import Processes
from veiltab.demo.results import AgentView
from veiltab.errors import VeiltabError
from veiltab.party.home import Home

VAULT, STUDY = "Adult, stored", "Adult from the vault"
VAULT_FILE, STUDY_FILE, POLICY = "vault.toml", "stored.toml", "policy.toml"
EVENTS = ("new pads", "grant")
"""What each agent does in the study, in this order."""

PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class StoredTables:
    """The commands of the chapter, in two parts: filling a vault, and a study on it."""

    processes: Processes
    parties: DemoParties
    table: CountTable
    epsilon: float

    def fill(self) -> None:
        """Agree on a vault, and store both tables in it."""
        registry, tax = self.parties.curators
        lines = [f"title = {json.dumps(VAULT)}", 'linkage = {by = "ids"}']
        lines += curator_lines(self.parties, self.table)
        _write(registry.party.folder / VAULT_FILE, lines)
        self.processes.run(registry.party, "vault", "propose", VAULT_FILE, "--json")
        self.processes.run(tax.party, "vault", "sign", VAULT, "--yes", "--json")
        push = ("vault", "push", VAULT, "--table", TABLE, "--id", ID_COLUMN, "--json")
        self.processes.together(
            *(partial(self.processes.run, c.party, *push) for c in self.parties.curators)
        )

    def study(self) -> tuple[str, Mapping[str, Any], tuple[AgentView, ...]]:
        """Let both sign a study and go home; return its id, the estimate, and the agents' logs."""
        registry, tax = self.parties.curators
        for curator in self.parties.curators:
            self._start_agent(curator)
        lines = [f"title = {json.dumps(STUDY)}", f"epsilon = {self.epsilon!r}"]
        lines += [f"vault = {{name = {json.dumps(VAULT)}}}", *researcher_lines(self.parties)]
        _write(registry.party.folder / STUDY_FILE, lines)
        proposed = self.processes.run(
            registry.party, "study", "propose", STUDY_FILE, "--yes", "--json"
        ).values
        self.processes.run(tax.party, "study", "sign", STUDY, "--yes", "--json")
        study: str = proposed["study"]
        logs = tuple(_wait_for_agent(curator, study) for curator in self.parties.curators)
        options = ("--estimator", "unbiased", "--json")
        estimate = self.processes.run(self.parties.rivera, "estimate", STUDY, *options).values
        return study, estimate, logs

    def _start_agent(self, curator: DemoCurator) -> None:
        """Write a policy that allows one researcher all of the vault, and start the agent."""
        digits = fingerprint(Home(self.parties.rivera.home).public.party_id)
        policy = [f"epsilon = {self.epsilon!r}", "poll_seconds = 1"]
        policy += [f"vaults = [{json.dumps(VAULT)}]"]
        policy += ["[[researchers]]", f"fingerprint = {json.dumps(digits)}", "days = 30"]
        _write(curator.party.folder / POLICY, policy)
        self.processes.watch(curator.party, "agent", "run", "--policy", POLICY)


def _wait_for_agent(curator: DemoCurator, study: str) -> AgentView:
    """Wait until an agent has answered and granted a study; its log tells."""
    log, end = curator.party.home / "agent.jsonl", time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < end:
        lines = log.read_bytes().split(b"\n")[:-1] if log.exists() else []
        entries = [e for e in map(json.loads, lines) if e.get("study") == study]
        if [entry["event"] for entry in entries] == list(EVENTS):
            return AgentView(curator.party.name, entries[0]["rows"], EVENTS)
        time.sleep(0.05)
    raise VeiltabError(
        f"the agent of {curator.party.name} has not answered",
        hint=f"look at {log}",
    )


def _write(path: Path, lines: Sequence[str]) -> None:
    path.touch(mode=0o600)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
