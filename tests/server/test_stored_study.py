"""What is written of a study, and records that are not as they should be."""

from pathlib import Path

import pytest

from tests.support.http_simulator import http_study
from tests.support.servers import make_context, running
from tests.support.simulator import Simulator, Stage
from veiltab.errors import DamagedError, StateError
from veiltab.server.stored_study import StoredStudy
from veiltab.wire.messages import Release


def test_only_a_study_that_has_ended_is_written_as_ended(tmp_path: Path) -> None:
    """Its noise key and its uploads would be erased, and it could never be released."""
    context = make_context(tmp_path, identity=Simulator().server)
    study = Simulator().on_server(context, stage=Stage.UPLOADED).study
    with context.database.transaction() as records:
        stored = StoredStudy.find(context, records, study)
        with pytest.raises(StateError, match="the study is uploaded, not released or aborted"):
            stored.save_end(stored.resume())
    with context.database.reading() as records:
        assert StoredStudy.find(context, records, study).record.noise_key is not None


def test_a_release_that_the_records_have_lost(tmp_path: Path) -> None:
    """It is said to be damaged; an empty answer would look like one that was cut off."""
    with running(make_context(tmp_path / "data")) as server:
        study = http_study(server, tmp_path, Stage.GRANTED)
        with server.context.database.transaction() as records:
            records.forget_contents(study.study, Release.kind)
        with pytest.raises(DamagedError, match="records of this release are damaged"):
            study.curators[0].server.release(study.study)
