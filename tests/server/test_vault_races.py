"""Vaults on both databases: a whole life, and steps of several parties at the same moment."""

import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.support.servers import make_context
from tests.support.simulator import Simulator
from tests.support.vaults import VaultOnServer
from veiltab.errors import StateError, VeiltabError
from veiltab.server import steps, views
from veiltab.server.context import ServiceContext
from veiltab.server.stored_study import StoredStudy
from veiltab.server.vaults import drawing
from veiltab.server.vaults.stored_vault import StoredVault

SERVER = Simulator().server


@pytest.fixture
def context(tmp_path: Path, address: str) -> Iterator[ServiceContext]:
    """Return a server on each kind of database in turn."""
    context = make_context(tmp_path / "data", identity=SERVER, database=address)
    yield context
    context.database.close()


def at_once(*work: Callable[[], object]) -> list[VeiltabError | None]:
    """Start several steps at the same moment; return what each was refused with."""
    start = threading.Barrier(len(work))
    refusals: list[VeiltabError | None] = [None] * len(work)

    def run(place: int, step: Callable[[], object]) -> None:
        start.wait()
        try:
            step()
        except VeiltabError as error:
            refusals[place] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(work)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return refusals


def test_last_pads_at_once_join_the_rows_once(context: ServiceContext) -> None:
    """Two studies on one vault go through; two last answers are taken one after the other."""
    vault = VaultOnServer(context).store()
    for study in (vault.study(), vault.study()):
        assert study.work() == "sampled"
        for place in range(2):
            study.prepare(place)
        assert at_once(*(partial(study.answer, place) for place in range(2))) == [None, None]
        assert study.work() == "released"
        assert study.events().count("complete") == 1
        assert study.events().count("repadded") == 2


def test_a_study_and_a_close_at_once(context: ServiceContext) -> None:
    """The study is refused or aborted: none is left that waits for a vault that is gone."""
    parties = Simulator()
    for _ in range(3):
        vault = VaultOnServer(context, parties).store()
        study = vault.study(opened=False)
        signed = vault.parties.sign(vault.contract())
        body, both = signed.dumps(), study.contract.dumps()
        refusals = at_once(
            partial(steps.propose, context, vault.sender(0, body)),
            partial(steps.sign, context, vault.sender(1, both), study.study),
            vault.close,
        )
        assert all(isinstance(error, StateError | None) for error in refusals)
        assert refusals[2] is None
        with context.database.reading() as records:
            assert records.studies_on(vault.vault, ["proposed", "open"]) == []
        assert study.state == "aborted"


def test_a_draw_and_a_close_at_once(context: ServiceContext) -> None:
    """The study is drawn and goes on, or ends; it never hangs, and the log says the same."""
    parties = Simulator()
    for _ in range(3):
        vault = VaultOnServer(context, parties).store()
        study = vault.study()
        assert at_once(study.work, vault.close) == [None, None]
        study.work()
        assert study.state in ("sampled", "aborted")
        assert study.events()[-1] == study.state
        assert views.chunks(context, vault.sender(0), vault.vault, StoredVault) == []


def test_a_close_between_two_looks_at_a_study(
    context: ServiceContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A study that waits for its rows at the first look is left alone if it has ended since."""
    vault = VaultOnServer(context).store()
    study = vault.study()
    look = drawing._rows_in_doubt

    def look_and_close(stored: StoredStudy) -> set[bytes] | None:
        monkeypatch.undo()
        doubt = look(stored)
        vault.close()
        return doubt

    monkeypatch.setattr(drawing, "_rows_in_doubt", look_and_close)
    assert study.work() == "done"
    assert study.events()[-1] == study.state == "aborted"


def test_what_is_erased_at_once_is_erased(context: ServiceContext) -> None:
    """A close, an abort and a release that end together do not stand in each other's way."""
    for moment in range(20):
        with context.database.transaction() as records:
            records.add_invitation(bytes([moment]) * 32, "somebody", 0, 1)
        assert at_once(*[context.database.scrub] * 4) == [None] * 4
