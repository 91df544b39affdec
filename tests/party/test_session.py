"""A party remembers what it saw of a study, and does not work with a server that forgot it."""

import shutil
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from tests.support.http_simulator import held_releases, http_study
from tests.support.servers import make_context, running
from tests.support.simulator import Stage
from veiltab.errors import AuditError, MismatchError
from veiltab.party.evidence import examine
from veiltab.party.remote import RemoteServer
from veiltab.party.researcher import estimate_study
from veiltab.party.study import Study
from veiltab.protocol.curator.agreement import unsigned


@pytest.mark.slow
def test_a_server_restored_from_an_old_copy_is_found_out(tmp_path: Path) -> None:
    """It could be made to perturb the same sample once more, with other noise."""
    data = tmp_path / "data"
    with running(make_context(data)) as service, held_releases():
        study = http_study(service, tmp_path, Stage.OPEN)
        shutil.copytree(data, tmp_path / "copy")
        study.go_to(Stage.UPLOADED)
        for session in study.curators:
            examine(session, study.study)
    shutil.rmtree(data)
    (tmp_path / "copy").rename(data)
    with running(make_context(data)) as service:
        for old in study.curators:
            server = RemoteServer(service.url, old.server.pinned, old.identity)
            session = replace(old, server=server)
            with server, pytest.raises(AuditError, match="entries were there before"):
                session.contract(study.study)


def test_signing_looks_at_the_log_once_more(tmp_path: Path) -> None:
    """The terms may have been read long ago; since then the server may have been set back."""
    with running(make_context(tmp_path / "data")) as service:
        proposed = http_study(service, tmp_path, Stage.PROPOSED)
        second = proposed.curators[1]
        study = Study(second, proposed.study)
        terms = study.contract()
        second.home.set_budget("people", 10.0)
        log = second.home.study(proposed.study).log
        before = log.read()
        assert before is not None
        log.save(replace(before, seen=(before.seen[0] + 5, bytes(32))))
        with pytest.raises(AuditError, match="entries were there before"):
            study.sign()
        assert second.home.budgets()[0].epsilon_left == 10
        assert study.contract() == terms


def test_a_contract_for_another_server_is_refused(tmp_path: Path) -> None:
    """A server can hold a study that was proposed to another one, and must not get its tables."""
    with running(make_context(tmp_path / "data")) as service:
        study = http_study(service, tmp_path, Stage.OPEN)
        first = study.curators[0]
        elsewhere = replace(first.server.pinned, signing_key=bytes(32))
        contract = unsigned(replace(study.contract.body, server=elsewhere))
        with (
            mock.patch.object(first.server, "contract", return_value=contract),
            pytest.raises(MismatchError, match="names another server"),
        ):
            first.contract(study.study)
        assert first.contract(study.study) == study.contract


@pytest.mark.slow
def test_the_log_grows_and_is_remembered(tmp_path: Path) -> None:
    """Every step that fetches the contract looks at the log too."""
    with running(make_context(tmp_path / "data")) as service:
        study = http_study(service, tmp_path, Stage.GRANTED)
        place = study.researcher.home.study(study.study)
        assert place.log.read() is None
        estimate_study(study.researcher, study.researcher.contract(study.study))
        seen = place.log.read()
        examined = examine(study.researcher, study.study)
    assert seen is not None
    assert seen == examined.logged
    assert seen.seen[0] == len(examined.entries)
