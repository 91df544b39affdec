"""Parties with stored tables on a running server: two curators, a researcher, and studies at will.

``StoredParties.join`` registers them, ``store`` fills a vault with both tables, ``sampled`` returns
a study that both have signed and whose rows are drawn, and ``agent`` is the hospital's agent.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from tests.support.servers import Server, wait_for
from veiltab.crypto.identity import fingerprint
from veiltab.party.agent.agent import Agent
from veiltab.party.agent.log import AgentLog
from veiltab.party.context import PartyContext
from veiltab.party.session import Session
from veiltab.party.study import Study

TITLE = "Health and taxes"
HELD = 300
"""Rows of each table; the two have ``COMMON`` people in common."""
COMMON = 250

VAULT_FILE = f"""\
title = "{TITLE}"
[linkage]
by = "ids"
[[curators]]
identity = "me"
attributes = [{{name = "smoker", categories = ["no", "yes"]}}]
[[curators]]
identity = "taxes.json"
attributes = [{{name = "income", categories = ["low", "high"]}}]
"""


def tables() -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the tables of the hospital and of the tax office."""
    draw = np.random.default_rng(3)
    people = np.arange(2 * HELD - COMMON)
    smoker = draw.choice(["no", "yes"], size=HELD)
    income = draw.choice(["low", "high"], size=HELD)
    first = pl.DataFrame({"id": people[:HELD], "smoker": smoker})
    return first, pl.DataFrame({"id": people[-HELD:], "income": income})


@dataclass(eq=False)
class StoredParties:
    """Two curators and a researcher, with their files in one folder."""

    folder: Path
    hospital: PartyContext
    taxes: PartyContext
    researcher: PartyContext

    @classmethod
    def join(cls, server: Server, folder: Path) -> "StoredParties":
        """Register all three, with a budget for each curator."""
        parties = cls(
            folder, *(server.join(name, folder / name) for name in ("hospital", "taxes", "rivera"))
        )
        parties.prepare()
        return parties

    def prepare(self) -> None:
        """Write the files that people hand to each other."""
        for context in (self.hospital, self.taxes, self.researcher):
            context.home.write_public(self.folder / f"{context.identity.name}.json")
            context.home.set_budget("people", 1000)
        (self.folder / "vault.toml").write_text(VAULT_FILE, "utf-8")

    def store(self) -> None:
        """Agree on a vault, and fill it."""
        own = Session(self.hospital).propose_vault(self.folder / "vault.toml")
        other = Session(self.taxes).vault(TITLE)
        other.sign()
        for vault, table in zip((own, other), tables(), strict=True):
            vault.push(table, "id")

    def study_file(self, title: str, more: str = "", epsilon: float = 1.0) -> Path:
        """Write a study file about the vault; ``more`` is its further keys."""
        path = self.folder / f"{title}.toml"
        path.write_text(
            f'title = "{title}"\nepsilon = {epsilon}\n{more}\n[vault]\nname = "{TITLE}"\n', "utf-8"
        )
        return path

    def proposed(self, title: str, more: str = "", epsilon: float = 1.0) -> Study:
        """Let the tax office propose and sign a study."""
        return Session(self.taxes).propose(self.study_file(title, more, epsilon))

    def sampled(self, title: str, more: str = "", epsilon: float = 1.0) -> Study:
        """Return a study of the hospital that both have signed, and whose rows are drawn."""
        self.proposed(title, more, epsilon)
        study = Session(self.hospital).study(title)
        study.sign()
        wait_for(self.hospital, bytes.fromhex(study.id), "sampled")
        return study

    def released(self, title: str, more: str = "", epsilon: float = 1.0) -> Study:
        """Return a study that both have answered."""
        study = self.sampled(title, more, epsilon)
        study.answer()
        Session(self.taxes).study(title).answer()
        wait_for(self.hospital, bytes.fromhex(study.id), "released")
        return study

    def researchers(self, more: str = "") -> str:
        """Return the part of a policy that allows grants to the researcher."""
        digits = fingerprint(self.researcher.identity.party_id)
        return f'[[researchers]]\nfingerprint = "{digits}"\ndays = 30\n{more}\n'

    @contextmanager
    def agent(
        self,
        folder: Path,
        more: str = "",
        *,
        epsilon: float = 1000,
        covers: str = f'vaults = ["{TITLE}"]',
    ) -> Iterator[Agent]:
        """Open the hospital's agent with a policy; policy and log are in a folder of the test."""
        policy = folder / "policy.toml"
        policy.write_text(f"epsilon = {epsilon}\npoll_seconds = 1\n{covers}\n{more}", "utf-8")
        policy.chmod(0o600)
        log = AgentLog(folder / "agent.jsonl")
        try:
            yield Agent(self.hospital, policy, log)
        finally:
            log.close()
