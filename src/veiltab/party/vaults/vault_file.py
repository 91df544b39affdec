"""Vault files: which tables are to be stored, and whose, in TOML that people write and read.

A vault file becomes a vault when the proposer's program adds the server, a nonce and the commitment
to a secret.  ``example_vault.toml`` beside this module explains every key.
"""

from importlib.resources import files
from pathlib import Path

from veiltab.errors import InputError, MalformedError, StudyFileError
from veiltab.files.toml import Document, TomlTable, check_filled_in, read_bytes
from veiltab.party.proposal import VaultDraft
from veiltab.party.study_file import (
    STUDY_KEYS,
    Parties,
    any_server,
    check_proposer,
    read_curators,
    read_linkage,
)
from veiltab.wire.codec import TEXT
from veiltab.wire.contract import NONCE_BYTES, PublicIdentity

VAULT_FILE_KEYS = {key: STUDY_KEYS[key] for key in ("title", "linkage", "curators")}


def example_vault() -> str:
    """Return a complete vault file with an explanation of every key."""
    return (files("veiltab.party.vaults") / "example_vault.toml").read_text(encoding="utf-8")


def read_vault_file(path: Path, me: PublicIdentity) -> VaultDraft:
    """Read a vault file; ``me`` is the proposer, whom it calls ``"me"``."""
    document = Document(read_bytes(path, "vault file"), str(path))
    check_filled_in(document)
    table = TomlTable(document, (), document.values, VAULT_FILE_KEYS)
    draft = VaultDraft(
        title=table.get("title", TEXT.read),
        linkage=read_linkage(table, "matched"),
        curators=read_curators(table, Parties(path.parent, me)),
    )
    if draft.linkage.mode != "matched":
        raise table.error(
            "linkage",
            "stored tables are matched by the server, whoever else is in them",
            'leave mode out, or write mode = "matched"',
        )
    _check_terms(path, draft)
    check_proposer(str(path), draft.curators, me)
    return draft


def _check_terms(path: Path, draft: VaultDraft) -> None:
    """Refuse terms that contradict each other: those of the vault, with any server."""
    try:
        draft.vault(server=any_server(), secret_commitment=bytes(32), nonce=bytes(NONCE_BYTES))
    except (MalformedError, InputError) as error:
        raise StudyFileError(
            f"{path}: {error.message}",
            hint="each party once, each attribute name once; the numbers of categories multiply"
            " to 2 up to 2^48 cells",
        ) from error
