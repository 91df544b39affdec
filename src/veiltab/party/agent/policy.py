"""An agent's policy: what it may answer without its owner, in TOML that the owner writes.

A policy allows nothing that the owner has not signed; it only says for which of the signed studies
the owner need not be asked again.  ``example_policy.toml`` beside this module explains every key.
"""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from pathlib import Path
from typing import Any

from veiltab.crypto.identity import fingerprint
from veiltab.errors import StudyFileError
from veiltab.files.toml import Document, TomlTable, read_bytes
from veiltab.party.curator import LONGEST_GRANT_DAYS
from veiltab.party.home import read_identity
from veiltab.wire.codec import TEXT, describe, integer, items, malformed
from veiltab.wire.contract import Contract, PublicIdentity

POLL_SECONDS = 60
LONGEST_POLL = 86_400
SHORTEST_ID = 16
"""Digits of an id that a policy must give: as many as lists show."""

POLICY_KEYS = {
    "epsilon": "write the most that all studies together may cost, such as epsilon = 3.0",
    "poll_seconds": "write how often to ask the server, such as poll_seconds = 60",
    "vaults": 'write titles or ids of vaults, such as vaults = ["Health and taxes"]',
    "studies": 'write titles or ids of studies, such as studies = ["Smoking and income"]',
    "researchers": "write a [[researchers]] table for each one who may be granted access",
}
ALLOWANCE_KEYS = {
    "fingerprint": "write the thirty digits that the researcher has told you",
    "attributes": 'write a list such as ["smoker"]; leave it out for all of yours',
    "days": "write for how many days a grant is good, such as days = 30",
    "identity": "write the path of the researcher's public identity, for studies that name nobody",
}
_FINGERPRINT = re.compile("[0-9]{30}")
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH
_NAMES = items(TEXT)


@dataclass(frozen=True, slots=True)
class Allowance:
    """What one researcher may be granted: these attributes, or all of the owner's, for a time."""

    fingerprint: str
    attributes: tuple[str, ...] | None
    days: int
    identity: PublicIdentity | None

    def find(self, contract: Contract) -> PublicIdentity | None:
        """Return the researcher as the contract names it, or as the policy does."""
        if contract.researchers is None:
            return self.identity
        named = contract.researchers
        return next((who for who in named if _digits(who) == self.fingerprint), None)

    def granted(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return which of the owner's attributes of a study the researcher may have."""
        if self.attributes is None:
            return names
        return tuple(name for name in names if name in self.attributes)


@dataclass(frozen=True, slots=True)
class Policy:
    """Which studies an agent answers, whom it grants what, and how much all of it may cost."""

    epsilon: Fraction
    poll_seconds: int
    vaults: tuple[str, ...]
    studies: tuple[str, ...]
    researchers: tuple[Allowance, ...]

    def covers(self, contract: Contract, vault_title: str | None) -> bool:
        """Tell whether a study, or the vault that it reads, is named."""
        if _is_named(self.studies, contract.study_id, contract.title):
            return True
        stored = contract.stored
        return stored is not None and _is_named(self.vaults, stored.vault, vault_title)

    def allows(self, answered: Mapping[str, Fraction], contract: Contract) -> bool:
        """Tell whether a study fits into the budget; one that was answered costs nothing more.

        ``answered`` are the studies so far, by id in hexadecimal, each with its ε.
        """
        study = contract.study_id.hex()
        if study in answered:
            return True
        return sum(answered.values(), exact(contract.epsilon)) <= self.epsilon


def exact(number: float) -> Fraction:
    """Read a number as the decimal that people wrote, as ledgers do."""
    return Fraction(repr(float(number)))


def example_policy() -> str:
    """Return a complete policy with an explanation of every key."""
    return (files("veiltab.party.agent") / "example_policy.toml").read_text(encoding="utf-8")


def read_policy(path: Path) -> Policy:
    """Read a policy; refused is a file that others could have changed."""
    check_unchanged_by_others(path)
    document = Document(read_bytes(path, "policy"), str(path))
    table = TomlTable(document, (), document.values, POLICY_KEYS)
    researchers = table.tables("researchers", ALLOWANCE_KEYS) if "researchers" in table else []
    policy = Policy(
        epsilon=table.get("epsilon", _read_budget),
        poll_seconds=table.get_or("poll_seconds", integer(1, LONGEST_POLL).read, POLL_SECONDS),
        vaults=table.get_or("vaults", _read_names, ()),
        studies=table.get_or("studies", _read_names, ()),
        researchers=tuple(_allowance(entry, path.parent) for entry in researchers),
    )
    if not policy.vaults and not policy.studies:
        raise table.error(
            "vaults",
            "is missing: the policy names neither a vault nor a study, and allows nothing",
            POLICY_KEYS["vaults"],
            at_table=True,
        )
    return policy


def check_unchanged_by_others(path: Path) -> None:
    """Refuse a file that somebody else owns, or can write, or can put another file in place of."""
    try:
        resolved = path.resolve(strict=True)
        file, folder = resolved.stat(), resolved.parent.stat()
    except OSError as error:
        raise StudyFileError(
            f"cannot read the policy {path}: {error.strerror}", hint="check the path"
        ) from error
    mine = {os.getuid(), 0}
    loose = folder.st_mode & _WRITABLE and not folder.st_mode & stat.S_ISVTX
    if file.st_uid not in mine or folder.st_uid not in mine or file.st_mode & _WRITABLE or loose:
        raise StudyFileError(
            f"others can change the policy {path}, or put another one in its place",
            hint=f"run: chmod go-w {path} {path.parent}; both must be your own or root's",
        )


def _allowance(table: TomlTable, folder: Path) -> Allowance:
    digits = table.get("fingerprint", _read_fingerprint)
    attributes = table.get_or("attributes", _read_names, None)
    days = table.get("days", integer(1, LONGEST_GRANT_DAYS).read)
    name = table.get_or("identity", TEXT.read, None)
    identity = None if name is None else read_identity(folder / name)
    if identity is not None and _digits(identity) != digits:
        raise table.error(
            "identity",
            f"the identity has the fingerprint {fingerprint(identity.party_id)}, and not the one"
            " that the policy states",
            "ask the researcher for its fingerprint, by telephone",
        )
    return Allowance(digits, attributes, days, identity)


def _read_budget(value: object, path: str) -> Fraction:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e6:  # noqa: PLR2004
        raise malformed(path, f"must be a number above 0, not {describe(value)}")
    return exact(value)


def _read_names(value: Any, path: str) -> tuple[str, ...]:  # noqa: ANN401 - of any TOML value
    return _NAMES.read(value, path)


def _read_fingerprint(value: object, path: str) -> str:
    digits = "".join(TEXT.read(value, path).split())
    if not _FINGERPRINT.fullmatch(digits):
        raise malformed(
            path, "must have thirty digits, such as 12345 67890 12345 67890 12345 67890"
        )
    return digits


def _digits(identity: PublicIdentity) -> str:
    return "".join(fingerprint(identity.party_id).split())


def _is_named(names: tuple[str, ...], scope: bytes, title: str | None) -> bool:
    """Tell whether a title or an id is named; of an id, at least its first sixteen digits."""
    digits = scope.hex()
    return any(
        name == title or (len(name) >= SHORTEST_ID and digits.startswith(name.lower()))
        for name in names
    )
