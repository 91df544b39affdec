"""Studies with decoys over HTTP: what comes out, what is refused, and what nobody is told."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.decoy_study import decoy_study
from tests.support.decoys import decoy_terms
from tests.support.servers import Server, make_context, running
from veiltab.core.mechanism import LinkageMode
from veiltab.errors import AlignmentError, StateError, WithheldError
from veiltab.party.checking import check
from veiltab.party.progress import Progress, ignore_progress
from veiltab.party.push import push
from veiltab.party.researcher import estimate_study
from veiltab.wire.contract import PadMode

pytestmark = pytest.mark.slow

MODES: tuple[LinkageMode, ...] = ("aligned", "matched")


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a service for the studies of all tests here."""
    with running(make_context(tmp_path_factory.mktemp("service") / "data")) as service:
        yield service


@pytest.mark.parametrize("pads", ["stream", "one-time"])
@pytest.mark.parametrize("linkage", MODES)
def test_the_researcher_counts_participants_and_decoys(
    service: Server, tmp_path: Path, linkage: LinkageMode, pads: PadMode
) -> None:
    """Exactly those that the specification says, of the people whom both curators hold."""
    study = decoy_study(service, tmp_path, linkage, pads=pads)
    study.push_all()
    study.grant()
    reader = study.researcher
    grants = study.grants if pads == "one-time" else []
    estimate = estimate_study(reader, reader.contract(study.study), grants=grants)
    truth = study.truth()
    assert estimate.counts.tolist() == truth.joined
    assert sum(truth.common.values()) > 0
    assert [study.prepared_rows(place) for place in (0, 1)] == [truth.uploaded(p) for p in (0, 1)]
    assert estimate.plan.population_size == (300 if linkage == "aligned" else None)


def test_the_server_adds_its_noise(service: Server, tmp_path: Path) -> None:
    """As many rows, other cells."""
    terms = decoy_terms(keep=0.5, cells=6)
    study = decoy_study(service, tmp_path, "matched", mechanism=terms)
    study.push_all()
    study.grant()
    reader = study.researcher
    estimate = estimate_study(reader, reader.contract(study.study))
    truth = study.truth()
    assert int(estimate.counts.sum()) == sum(truth.joined)
    assert estimate.counts.tolist() != truth.joined
    assert estimate.plan.keep_threshold == terms.keep_threshold


@pytest.mark.parametrize("linkage", MODES)
def test_a_table_that_has_changed_needs_a_new_study(
    service: Server, tmp_path: Path, linkage: LinkageMode
) -> None:
    """From the first chunk on: after the upload, and after the release; before, it may change."""
    study = decoy_study(service, tmp_path, linkage)
    session, table = study.curators[0], study.tables[0]
    changed = study.source(0, table.with_columns(first=table["first"].reverse()))

    def refused() -> None:
        with pytest.raises(StateError, match="not the table that was pushed") as caught:
            push(session, session.contract(study.study), changed, ignore_progress, None)
        assert "new study" in caught.value.hint

    study.push(0)
    push(session, session.contract(study.study), changed, ignore_progress, None)
    study.push(0)
    study.push(1)
    study.push(0)
    refused()
    study.push_all()
    refused()
    assert study.push(0).state == "released"
    status = push(session, session.contract(study.study), None, ignore_progress, None)
    assert all(each.uploaded for each in status.curators)


@pytest.mark.parametrize("linkage", MODES)
def test_a_preview_tells_what_to_expect(
    service: Server, tmp_path: Path, linkage: LinkageMode
) -> None:
    """From the plan, also before the others have signed; another secret, another sample."""
    study = decoy_study(service, tmp_path, linkage)
    session = study.curators[1]
    seen: list[Progress] = []
    terms = session.contract(study.study).body
    found = check(session.home, terms, study.source(1)(), progress=seen.append)
    decoys = 6 if linkage == "aligned" else 2 * (3 + 1)
    assert found.respondents == 300
    assert found.rows == round(300 / 3 + decoys)
    assert {report.step for report in seen} == {"reading rows"}
    assert [path.name for path in (session.home.path / "check").iterdir()] == ["lock"]


def test_the_release_of_matched_respondents_is_not_for_curators(
    service: Server, tmp_path: Path
) -> None:
    """They know the decoys: the number of rows would tell how many people are in common."""
    study = decoy_study(service, tmp_path, "matched")
    study.push_all()
    for session in study.curators:
        with pytest.raises(WithheldError, match="not for its curators"):
            session.server.release(study.study)
    study.grant()
    release = study.researcher.server.release(study.study)
    assert release.body.population is None
    aligned = decoy_study(service, tmp_path / "aligned", "aligned")
    aligned.push_all()
    assert aligned.curators[0].server.release(aligned.study).body.population == 300


def test_other_decoys_are_found_before_anything_is_uploaded(
    service: Server, tmp_path: Path
) -> None:
    """A curator whose program invents other decoys, or none, is found by its digest."""
    study = decoy_study(service, tmp_path, "matched")
    honest, other = study.curators
    study.push(0)
    other.home.study(study.study).save_secret(bytes(32))
    with pytest.raises(AlignmentError, match="decoys"):
        study.push(1)
    with pytest.raises(AlignmentError, match="decoys"):
        study.push(0)
    assert not any(c.uploaded for c in honest.server.status(study.study).curators)
    assert not honest.server.sent_chunks(study.study)
