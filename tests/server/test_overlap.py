"""Overlap counts on the server: the number is drawn once, kept before it is told, and served."""

from pathlib import Path
from unittest import mock

import pytest

from tests.support.overlaps import counters, overlap_terms
from tests.support.servers import make_context
from tests.support.simulator import ServerSideStudy, Stage
from veiltab.core.overlap import OverlapPlan
from veiltab.errors import MismatchError, NotFoundError, StateError
from veiltab.protocol.curator.agreement import public_identity
from veiltab.server import views
from veiltab.server.context import ServiceContext
from veiltab.server.http.auth import Sender
from veiltab.server.stored_study import StoredStudy
from veiltab.server.worker import release_study, tidy
from veiltab.wire.messages import Overlap, Upload
from veiltab.wire.states import State


def uploaded(folder: Path) -> tuple[ServiceContext, ServerSideStudy]:
    """Return a server on which two curators have uploaded; nothing is counted yet."""
    parties = counters(range(60), range(30, 90))
    context = make_context(folder / "data", identity=parties.server)
    return context, parties.on_server(context, overlap_terms(), Stage.UPLOADED)


def told(context: ServiceContext, study: bytes, reader: Sender) -> Overlap:
    """Return what a party is told."""
    return Overlap.loads(views.release(context, reader, study)).body


def test_a_count_that_breaks_off_is_told_once(tmp_path: Path) -> None:
    """However often it fails between the draw and the record, and after a restart: one number."""
    context, study = uploaded(tmp_path)
    drawn: list[int] = []
    count = OverlapPlan.add_noise

    def remember(plan: OverlapPlan, number: int, entropy: object) -> int:
        drawn.append(count(plan, number, entropy))  # type: ignore[arg-type]
        return drawn[-1]

    with mock.patch.object(OverlapPlan, "add_noise", remember):
        for _ in range(3):
            with (
                mock.patch.object(StoredStudy, "save_end", side_effect=OSError("no disk")),
                pytest.raises(OSError, match="no disk"),
            ):
                release_study(context, study.study)
            tidy(context)
        reader = study.sender(0, b"")
        with pytest.raises(StateError):
            told(context, study.study, reader)
        assert release_study(context, study.study) == "released"
        assert release_study(context, study.study) == "done"
    assert len(drawn) == 4
    assert set(drawn) == {told(context, study.study, reader).number}
    context.database.close()


def test_what_is_left_afterwards(tmp_path: Path) -> None:
    """The number, for curators alone; no token, no upload, and no key of the noise."""
    context, study = uploaded(tmp_path)
    release_study(context, study.study)
    assert told(context, study.study, study.sender(0, b"")) == told(
        context, study.study, study.sender(1, b"")
    )
    stranger = Sender(public_identity(study.rehearsal.researcher), [b""], b"")
    with pytest.raises(NotFoundError):
        told(context, study.study, stranger)
    with context.database.reading() as records:
        stored = StoredStudy.find(context, records, study.study)
        assert stored.state is State.RELEASED
        assert stored.record.noise_key is None
        assert not any(m.content for m in records.messages(study.study, Upload.kind))
    for curator in study.rehearsal.curators:
        assert not list(context.folders.received(study.study, curator.party_id).digests())
    context.database.close()


def test_uploads_that_do_not_fit_end_it_without_a_number(tmp_path: Path) -> None:
    """The reason states no numbers of rows."""
    context, study = uploaded(tmp_path)
    problem = MismatchError("59 rows are not 60", hint="none")
    with mock.patch("veiltab.protocol.server.study.count_overlap", side_effect=problem):
        assert release_study(context, study.study) == "aborted"
    with context.database.reading() as records:
        stored = StoredStudy.find(context, records, study.study)
        assert stored.state is State.ABORTED
        assert stored.record.reason == "the curators' uploads do not belong together"
    context.database.close()
