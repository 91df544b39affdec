"""A push to a study that somebody ends meanwhile."""

from pathlib import Path

import pytest

from tests.support.commands import write_csv
from tests.support.http_simulator import HttpStudy, HttpTerms, http_study
from tests.support.servers import make_context, running
from tests.support.simulator import Stage
from veiltab.data.tables import open_table
from veiltab.errors import StateError
from veiltab.party.checking import Source
from veiltab.party.progress import Patience, Progress, ignore_progress
from veiltab.party.push import push

TERMS = HttpTerms(shares=({"first": 2}, {"second": 2}), population=4, sample_size=2)


class Aborting:
    """Lets the other curator end the study as soon as it is waited for."""

    def __init__(self, study: HttpStudy) -> None:
        """Wait for the second curator of this study."""
        self._study, self.waited = study, 0

    def __call__(self, report: Progress) -> None:
        """End the study, once; a second time is one too many."""
        if report.step != "waiting":
            return
        self.waited += 1
        assert self.waited == 1, f"still waits for {report.waiting_for}"
        self._study.curators[1].server.abort(self._study.study, "the wrong table")


def source_of(folder: Path, study: HttpStudy) -> Source:
    """Write the first curator's table."""
    (attribute,) = study.contract.body.curators[0].attributes
    rows = [(number, attribute.categories[number % 2]) for number in range(TERMS.population)]
    table = write_csv(folder / "table.csv", ("id", attribute.name), rows)
    return Source(open_table(str(table)), ("id",))


@pytest.mark.slow
def test_nobody_is_waited_for_in_a_study_that_was_ended(tmp_path: Path) -> None:
    """The other curators will not come any more, and the push says why."""
    with running(make_context(tmp_path / "data")) as service:
        study = http_study(service, tmp_path, Stage.OPEN, terms=TERMS)
        first, source = study.curators[0], source_of(tmp_path, study)
        with pytest.raises(StateError, match="aborted: curator 2: the wrong table"):
            push(first, first.contract(study.study), lambda: source, Aborting(study), Patience(60))
        assert not list(study.curators[0].home.study(study.study).path.glob("scratch*"))


@pytest.mark.slow
def test_what_was_prepared_for_a_study_that_was_ended_is_not_called_pushed(
    tmp_path: Path,
) -> None:
    """Going on with an interrupted push fails as well as a new one does."""
    with running(make_context(tmp_path / "data")) as service:
        study = http_study(service, tmp_path, Stage.PREPARED, terms=TERMS)
        study.curators[1].server.abort(study.study, "the wrong table")
        with pytest.raises(StateError, match="aborted: curator 2: the wrong table"):
            push(
                study.curators[0],
                study.curators[0].contract(study.study),
                None,
                ignore_progress,
                None,
            )
