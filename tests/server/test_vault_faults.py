"""Draws of stored tables that are interrupted at every effect, and disks that lose data."""

import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from sqlalchemy.engine import Transaction

from tests.support.servers import make_context
from tests.support.simulator import Simulator
from tests.support.vaults import VaultOnServer, VaultStudy
from veiltab.errors import DigestError, UnavailableError
from veiltab.files.bundles import BundledChunks
from veiltab.protocol.rotating import rotate
from veiltab.protocol.verify import verify_release
from veiltab.server.context import ServiceContext
from veiltab.server.db.database import Database
from veiltab.server.vaults import steps as vault_steps
from veiltab.server.worker import release_study, tidy
from veiltab.wire.bundles import COUNT_BYTES, index_bytes
from veiltab.wire.messages import RepadRequest

SERVER = Simulator().server


def open_context(path: Path) -> ServiceContext:
    """Open a server's data, as a new process does."""
    return make_context(path, identity=SERVER)


def reopen(path: Path) -> ServiceContext:
    """Do the same without bringing the database up to date, which takes longest."""
    with mock.patch.object(Database, "migrate"):
        return open_context(path)


@pytest.fixture
def context(tmp_path: Path) -> ServiceContext:
    """Return a server without anything in it."""
    return open_context(tmp_path / "data")


class Killed(BaseException):
    """The process ends here."""


@contextmanager
def killed_at(effect: int | None, *, before: bool = True) -> Iterator[list[str]]:
    """End the process before or after one of its effects; yield the effects that have begun.

    These are what outlives a process: a commit, a wait for the disk, a new name of a file.
    """
    begun: list[str] = []

    def interrupt(real: Callable[..., Any], name: str, *given: Any) -> Any:  # noqa: ANN401
        begun.append(name)
        if len(begun) - 1 == effect and before:
            raise Killed
        try:
            return real(*given)
        finally:
            if len(begun) - 1 == effect:
                raise Killed

    def hooked(owner: type, name: str) -> Any:  # noqa: ANN401 - a patch
        real = getattr(owner, name)

        def method(*given: Any) -> Any:  # noqa: ANN401 - as the real one
            return interrupt(real, name, *given)

        return mock.patch.object(owner, name, method)

    with (
        mock.patch.object(os, "fsync", partial(interrupt, os.fsync, "fsync")),
        hooked(Path, "replace"),
        hooked(Path, "rename"),
        hooked(Transaction, "commit"),
    ):
        yield begun


def outcome(path: Path, study: bytes) -> tuple[list[bytes], list[bytes], dict[bytes, bytes]]:
    """Return what parties can see of a study: requests, its release, and the chunks of either."""
    context = reopen(path)
    with context.database.reading() as records:
        # In any order: that of the records is by the time, and a second may begin in between.
        requests = sorted(m.content for m in records.messages(study, RepadRequest.kind))
        releases = [m.content for m in records.messages(study, "release")]
    store = context.folders.released(study) if releases else context.folders.drawn(study)
    chunks = {digest: store.get(digest) for digest in store.digests()}
    context.database.close()
    return requests, releases, chunks if releases or requests else {}


def recover(path: Path, study: bytes) -> None:
    """Do what a server does when it starts again."""
    context = reopen(path)
    tidy(context)
    release_study(context, study)
    context.database.close()


@pytest.mark.filterwarnings("ignore:transaction already deassociated")
@pytest.mark.parametrize("step", ["draw", "release"])
def test_a_step_that_ends_before_or_after_any_effect(tmp_path: Path, step: str) -> None:
    """Rows are drawn once and released once: whenever a server dies, the next one does the same."""
    context = open_context(tmp_path / "data")
    study = VaultOnServer(context).store().study()
    if step == "release":
        study.work()
        study.answer_all()
    context.database.close()
    reference = tmp_path / "reference"
    shutil.copytree(tmp_path / "data", reference)
    with killed_at(None) as effects:
        recover(reference, study.study)
    expected = outcome(reference, study.study)
    start = outcome(tmp_path / "data", study.study)
    assert expected != start
    assert {"fsync", "replace", "commit"} <= set(effects)
    # What comes between two effects is lost with the process, so "after" matters for the last.
    moments = [(number, True) for number, _ in enumerate(effects)] + [(len(effects) - 1, False)]
    for number, before in moments:
        trial = tmp_path / f"trial {number} {before}"
        shutil.copytree(tmp_path / "data", trial)
        with pytest.raises(Killed), killed_at(number, before=before):
            recover(trial, study.study)
        seen = outcome(trial, study.study)
        assert seen in (start, expected) or seen[:2] == expected[:2], (number, before)
        recover(trial, study.study)
        assert outcome(trial, study.study) == expected, (number, before)


def damage(folder: Path) -> None:
    """Let the disk change every chunk in a folder."""
    files = sorted(folder.rglob("*.chunks"))
    assert files
    for path in files:
        content = path.read_bytes()
        start = index_bytes(content[:COUNT_BYTES])
        path.write_bytes(content[:start] + bytes(byte ^ 1 for byte in content[start:]))


def folder_of(study: VaultStudy | VaultOnServer) -> Path:
    """Return where a study's or a vault's chunks are."""
    name = study.study if isinstance(study, VaultStudy) else study.vault
    return study.context.folders.path / "studies" / name.hex()


def test_a_damaged_table_is_noticed_named_and_mended(context: ServiceContext) -> None:
    """Years later: the study waits, everybody reads whose table it is, and a push mends it."""
    vault = VaultOnServer(context).store()
    study, second = vault.study(), vault.parties.curators[1]
    damage(folder_of(vault) / "received" / second.party_id.hex())
    assert study.work() == "damaged"
    reason = "the stored table of curator 2 is damaged; push it again"
    assert (study.state, study.status.reason, vault.status.reason) == ("open", reason, reason)
    upload = vault.deposit.stored[1].upload.dumps()
    with pytest.raises(DigestError):  # its chunks were not sent again
        vault_steps.upload(context, vault.sender(1, upload), vault.vault)
    assert study.work() == "damaged"
    vault.send_table(1)
    assert (vault.state, vault.status.reason) == ("stored", None)
    assert study.work() == "sampled"
    assert (study.status.reason, study.answer_all().work()) == (None, "released")


def test_drawn_rows_that_are_damaged_are_drawn_again(context: ServiceContext) -> None:
    """The same rows, so that an answer that was given stays right."""
    study = VaultOnServer(context).store().study()
    study.work()
    request, positions = study.request(0), study.positions(0)
    study.answer(0)
    damage(folder_of(study) / "drawn")
    with pytest.raises(UnavailableError, match="damaged the drawn rows"):
        study.positions(1)
    assert "drawn again" in (study.status.reason or "")
    assert study.work() == "sampled"
    assert (study.status.reason, study.request(0)) == (None, request)
    assert study.positions(0)._chunks == positions._chunks
    study.answer(1)
    damage(folder_of(study) / "drawn")
    assert study.work() == "damaged"
    assert study.work() == "sampled"
    assert study.work() == "released"


def test_rows_that_are_whole_after_all_are_kept(context: ServiceContext) -> None:
    """A read that failed once is no reason to draw again, nor to look again and again."""
    study = VaultOnServer(context).store().study()
    study.work()
    broken = mock.patch.object(BundledChunks, "read", side_effect=DigestError("", hint=""))
    with broken, pytest.raises(UnavailableError):
        study.positions(0)
    reasons = [study.status.reason]
    assert study.work() == "done"
    reasons.append(study.status.reason)
    assert [reason is None for reason in reasons] == [False, True]
    assert study.answer_all().work() == "released"


def test_damaged_pads_are_sent_again(context: ServiceContext) -> None:
    """By their curator, the same bytes; rows are not drawn again for that."""
    study = VaultOnServer(context).store().study()
    study.work()
    study.answer_all()
    damage(folder_of(study) / "received")
    drawn = sorted((folder_of(study) / "drawn").iterdir())
    times = [path.stat().st_mtime_ns for path in drawn]
    assert study.work() == "damaged"
    assert study.work() == "damaged"
    assert "push again" in (study.status.reason or "")
    study.answer_all()
    assert [path.stat().st_mtime_ns for path in drawn] == times
    assert study.work() == "released"


def test_rows_that_cannot_be_drawn_again(context: ServiceContext) -> None:
    """The vault is closed: the study ends with the reason, instead of failing for ever."""
    vault = VaultOnServer(context).store()
    study = vault.study()
    study.work()
    vault.close()
    study.answer_all()
    damage(folder_of(study) / "drawn")
    assert study.work() == "damaged"
    assert study.work() == "aborted"
    assert study.status.reason == "the vault that it reads was closed"
    assert not folder_of(study).exists()


def test_other_rows_are_never_put_in_the_place_of_the_first(context: ServiceContext) -> None:
    """If a draw does not come out the same, the study ends: curators answer for one draw alone."""
    study = VaultOnServer(context).store().study()
    study.work()
    damage(folder_of(study) / "drawn")
    with pytest.raises(UnavailableError):
        study.positions(0)
    with context.database.transaction() as records:
        records.change_study(study.record.study, noise_key=bytes(32))
    assert study.work() == "aborted"
    assert study.status.reason == "the drawn rows were damaged, and cannot be drawn again"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_vault_that_is_closed_while_a_study_draws(context: ServiceContext, when: str) -> None:
    """The study ends with the reason if its rows are not drawn yet; nothing of it is left."""
    vault = VaultOnServer(context).store()
    study = vault.study()
    real = BundledChunks.sync if when == "after" else BundledChunks.get

    def closing(self: BundledChunks, *given: Any) -> Any:  # noqa: ANN401 - as the real one
        result = real(self, *given)
        if vault.state != "closed":
            vault.close()
        return result

    with mock.patch.object(BundledChunks, real.__name__, closing):
        assert study.work() in ("done", "damaged", "aborted")
    study.work()
    assert (study.state, study.status.reason) == ("aborted", "the vault that it reads was closed")
    assert not folder_of(study).exists()
    assert not folder_of(vault).exists()


def test_tables_of_a_closed_vault_are_deleted_after_a_crash(tmp_path: Path) -> None:
    """The records say that it is closed, and the server died before it deleted the tables."""
    context = open_context(tmp_path / "data")
    vault = VaultOnServer(context).store()
    dying = mock.patch.object(type(context.folders), "forget_study", side_effect=Killed)
    with dying, pytest.raises(Killed):
        vault.close()
    assert folder_of(vault).exists()
    again = open_context(tmp_path / "data")
    tidy(again)
    assert not folder_of(vault).exists()
    assert vault.state == "closed"


def test_a_vault_outlives_the_keys_of_its_server(tmp_path: Path) -> None:
    """Before a draw, and between a draw and its release: curators follow the rotations."""
    context = open_context(tmp_path / "data")
    vault = VaultOnServer(context).store()
    identity = SERVER
    for year in range(2):
        identity = rotate(identity, vault.parties.entropy, year)
        vault.context = make_context(tmp_path / "data", identity=identity)
        if not year:
            study = vault.study()
            assert study.work() == "sampled"
        else:
            assert study.answer_all().work() == "released"
    verify_release(study.contract.body, study.release())
