"""A wrong table is corrected within a study: alignments in attempts, until somebody uploads."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Thread
from unittest import mock

import pytest

from tests.support.commands import write_csv
from tests.support.http_simulator import HttpStudy, HttpTerms, http_study
from tests.support.servers import Server, make_context, running, soon
from tests.support.simulator import Stage
from veiltab.data.tables import open_table
from veiltab.errors import AlignmentError, MismatchError, StateError, VeiltabError
from veiltab.party import alignments, push
from veiltab.party.checking import Source
from veiltab.party.context import PartyContext
from veiltab.party.evidence import examine
from veiltab.party.progress import Patience, Progress, ignore_progress
from veiltab.party.remote import RemoteServer, Status
from veiltab.protocol.verify import sign
from veiltab.wire.messages import MAX_ATTEMPTS, Alignment
from veiltab.wire.signed import Signed

TERMS = HttpTerms(shares=({"first": 2}, {"second": 2}), population=4, sample_size=2)
RIGHT, SHORT, OTHER = range(4), range(3), range(1, 5)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for all studies of this module."""
    with running(make_context(tmp_path_factory.mktemp("aligned") / "data")) as server:
        yield server


@pytest.fixture
def study(service: Server, tmp_path: Path) -> HttpStudy:
    """Return a study that every curator has signed."""
    return http_study(service, tmp_path, Stage.OPEN, terms=TERMS)


def source_of(study: HttpStudy, place: int, ids: Sequence[int], *, turned: bool = False) -> Source:
    """Return a curator's table with these respondents."""
    (attribute,) = study.contract.body.curators[place].attributes
    rows = [(number, attribute.categories[(number + turned) % 2]) for number in ids]
    path = study.curators[place].home.path / f"table-{min(ids)}-{len(ids)}-{turned}.csv"
    return Source(open_table(str(write_csv(path, ("id", attribute.name), rows))), ("id",))


def pushed(
    study: HttpStudy,
    place: int,
    ids: Sequence[int] | None,
    patience: Patience | None = None,
    progress: Callable[[Progress], None] = ignore_progress,
    *,
    turned: bool = False,
) -> Status:
    """Let a curator push a table, or go on with what it has prepared."""
    session = study.curators[place]
    source = None if ids is None else source_of(study, place, ids, turned=turned)
    given = None if source is None else lambda: source
    return push.push(session, session.contract(study.study), given, progress, patience)


def attempts(study: HttpStudy) -> list[int]:
    """Return the attempts of the curators' alignments, in the order of the contract."""
    status = alignments.compare(
        study.contract.body, study.curators[0].server.alignments(study.study)
    )
    return [curator.attempt or 0 for curator in status.curators]


def uploaded(status: Status) -> list[bool]:
    """Tell who has uploaded."""
    return [curator.uploaded for curator in status.curators]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (SHORT, "curator 1: 4 respondents, curator 2: 3"),
        (OTHER, "curator 1: 4 respondents, curator 2: 4; whose ids differ: curator 1 | curator 2"),
    ],
)
def test_a_wrong_table_is_corrected_while_the_other_curator_waits(
    study: HttpStudy, wrong: Sequence[int], words: str
) -> None:
    """It is told who holds how many; whoever waits goes on by itself when that is corrected."""
    reports: list[Progress] = []
    ended: list[Status] = []

    def wait() -> None:
        ended.append(pushed(study, 0, RIGHT, Patience(60), reports.append))

    waiting = Thread(target=wait, daemon=True)
    waiting.start()
    assert soon(lambda: attempts(study) == [1, 0])
    with pytest.raises(AlignmentError, match="not aligned") as caught:
        pushed(study, 1, wrong, Patience(60))
    assert words in caught.value.message
    assert "pushes the right one" in caught.value.hint
    assert soon(lambda: any(words in (report.difference or "") for report in reports))
    pushed(study, 1, RIGHT, Patience(60))
    waiting.join(30)
    assert len(ended) == 1
    assert uploaded(study.curators[0].server.status(study.study)) == [True, True]
    assert attempts(study) == [2, 2]
    events = [e.event for e in examine(study.curators[0], study.study).entries]
    assert events.count("aligned") == 4
    study.curators[0].server.status(study.study)


@pytest.mark.slow
def test_without_waiting_everybody_pushes_again_after_a_correction(study: HttpStudy) -> None:
    """The next attempt needs all curators; a table of the same people is corrected at no cost."""
    assert uploaded(pushed(study, 0, SHORT)) == [False, False]
    with pytest.raises(AlignmentError):
        pushed(study, 1, RIGHT)
    assert uploaded(pushed(study, 0, RIGHT, turned=True)) == [False, False]
    assert attempts(study) == [2, 1]
    assert uploaded(pushed(study, 0, RIGHT)) == [False, False]
    assert attempts(study) == [2, 1], "other values of the same people are no other alignment"
    assert uploaded(pushed(study, 1, RIGHT)) == [False, True]
    for _ in range(2):  # the slip costs nothing, however often
        with pytest.raises(AlignmentError, match="3 respondents, and that one 4"):
            pushed(study, 0, SHORT)
    assert uploaded(pushed(study, 0, RIGHT)) == [True, True]
    for place in (0, 1):
        with pytest.raises(StateError, match="not the table that was pushed"):
            pushed(study, place, SHORT)


@pytest.mark.slow
def test_the_server_takes_attempts_in_order_and_no_upload_between_them(study: HttpStudy) -> None:
    """The same attempt with other digests, an earlier one, too many, and a late upload."""
    first, second = study.curators
    study.go_to(Stage.PREPARED)
    own = next(
        a for a in first.server.alignments(study.study) if a.body.curator == first.identity.party_id
    )

    def sent(attempt: int, **changes: object) -> Signed[Alignment]:
        body = replace(own.body, attempt=attempt, **changes)  # type: ignore[arg-type]
        signed = sign(body, first.identity.signing)
        first.server.send_alignment(study.study, signed)
        return signed

    for changes in ({"population": 9}, {"digest": bytes(32)}):
        with pytest.raises(StateError, match="another alignment was sent in attempt 1"):
            sent(1, **changes)
    sent(3)
    with pytest.raises(StateError, match="in attempt 3, and this one is of attempt 2"):
        sent(2)
    with pytest.raises(AlignmentError, match="has replaced its alignment"):
        study.upload(1)  # prepared for attempt 1
    assert second.server.status(study.study).state == "open"
    sent(MAX_ATTEMPTS)
    with pytest.raises(VeiltabError):
        sent(MAX_ATTEMPTS + 1)
    second_own = replace(own.body, attempt=MAX_ATTEMPTS, curator=second.identity.party_id)
    second.server.send_alignment(study.study, sign(second_own, second.identity.signing))
    study.upload(0)
    with pytest.raises(StateError, match="a table was uploaded"):
        sent(MAX_ATTEMPTS, population=5)
    study.upload(1)


@pytest.mark.slow
def test_a_prepared_upload_is_sent_when_the_others_come_back_to_it(study: HttpStudy) -> None:
    """Somebody replaced its alignment after all agreed: what was prepared stays as it is."""
    first, second = study.curators
    pushed(study, 1, RIGHT)
    real = RemoteServer.upload

    def late(server: RemoteServer, scope: bytes, signed: object) -> Status:
        if server is first.server and attempts(study) == [1, 1]:
            pushed(study, 1, SHORT)  # returns, because nobody is to be waited for
        return real(server, scope, signed)  # type: ignore[arg-type]

    with (
        mock.patch.object(RemoteServer, "upload", late),
        pytest.raises(AlignmentError, match="curator 1: 4 respondents, curator 2: 3"),
    ):
        pushed(study, 0, RIGHT)
    assert uploaded(first.server.status(study.study)) == [False, False]
    with pytest.raises(StateError, match="not the table that was pushed"):
        pushed(study, 0, SHORT)  # some of it may have left: its decoys would cancel
    assert uploaded(pushed(study, 1, RIGHT)) == [False, False]
    assert uploaded(pushed(study, 0, None)) == [True, False]
    assert uploaded(pushed(study, 1, RIGHT)) == [True, True]
    assert second.server.status(study.study).state != "aborted"


@pytest.mark.slow
def test_a_server_cannot_let_two_curators_upload_different_tables(study: HttpStudy) -> None:
    """Both correct their table at once, and it shows each the other's old alignment."""
    first = study.curators[0]
    seen: dict[tuple[bytes, int], Signed[Alignment]] = {}

    def remember() -> None:
        for a in first.server.alignments(study.study):
            seen[a.body.curator, a.body.attempt] = a

    pushed(study, 0, RIGHT)
    with pytest.raises(AlignmentError):
        pushed(study, 1, SHORT)
    remember()
    pushed(study, 0, SHORT)  # attempt 2; and now the other one, which has not seen that
    old = seen[first.identity.party_id, 1]

    def showing(hidden: PartyContext) -> Callable[..., list[Signed[Alignment]]]:
        real = RemoteServer.alignments

        def alignments_of(server: RemoteServer, scope: bytes) -> list[Signed[Alignment]]:
            shown = real(server, scope)
            kept = [a for a in shown if a.body.curator != hidden.identity.party_id]
            return [*kept, old]

        return alignments_of

    with mock.patch.object(RemoteServer, "alignments", showing(first)):
        status = pushed(study, 1, RIGHT)
    assert uploaded(status) == [False, False], "the first one has signed nothing in attempt 2 yet"
    with pytest.raises(AlignmentError, match="curator 1: 3 respondents, curator 2: 4"):
        pushed(study, 0, SHORT)


@pytest.mark.slow
def test_a_home_from_an_old_copy_signs_no_attempt_twice(study: HttpStudy) -> None:
    """The server's copy of its own alignment counts; what another copy has sent stays pinned."""
    first = study.curators[0]
    folder = first.home.study(study.study)
    pushed(study, 0, RIGHT)
    (folder.path / "alignment.json").unlink()
    pushed(study, 0, SHORT)
    assert attempts(study) == [2, 0]
    with (
        mock.patch.object(RemoteServer, "sent_chunks", return_value={bytes(32)}),
        pytest.raises(StateError, match="not the table that was pushed"),
    ):
        pushed(study, 0, RIGHT)
    with (
        mock.patch.object(RemoteServer, "send_alignment"),
        mock.patch.object(RemoteServer, "alignments", return_value=[]),
        pytest.raises(MismatchError, match="does not show the alignment"),
    ):
        pushed(study, 0, SHORT)


@pytest.mark.slow
def test_there_is_no_way_back_to_an_earlier_attempt(study: HttpStudy) -> None:
    """A server says that somebody has uploaded, to lead a curator back to what it held before."""
    first, second = study.curators
    pushed(study, 0, RIGHT)
    (old,) = first.server.alignments(study.study)
    theirs = replace(old.body, curator=second.identity.party_id)
    pushed(study, 0, SHORT)  # attempt 2, which the server may show to the other curator
    status = first.server.status(study.study)
    lie = replace(status, curators=tuple(replace(c, uploaded=True) for c in status.curators))
    with (
        mock.patch.object(RemoteServer, "status", return_value=lie),
        mock.patch.object(
            RemoteServer, "alignments", return_value=[old, sign(theirs, second.identity.signing)]
        ),
        pytest.raises(AlignmentError, match="not the table that you have aligned"),
    ):
        pushed(study, 0, RIGHT)
    assert first.home.study(study.study).pinned_table() is None
