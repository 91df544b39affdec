"""What the service writes down: lines for people, JSON for machines, and no secret in either."""

import base64
import io
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_simulator import HttpTerms, http_study, join_parties
from tests.support.servers import make_context, running
from tests.support.simulator import Stage
from veiltab.party import remote
from veiltab.party.researcher import estimate_study
from veiltab.server import invitations, steps
from veiltab.server.monitoring import set_up_logs
from veiltab.wire.invitations import group

QUIET = ("uvicorn", "uvicorn.error", "uvicorn.access", "httpx", "httpcore", "alembic")


class Terminal(io.StringIO):
    """A stream that people look at."""

    def isatty(self) -> bool:
        """Say that this is a terminal."""
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Leave the logs as they were."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in QUIET}
    root.handlers.clear()
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def test_machines_get_json() -> None:
    """One object a line, with everything that the event has beside it."""
    stream = io.StringIO()
    set_up_logs(stream)
    logging.getLogger("veiltab.test").info("something\nhappened", extra={"study": "é", "n": 3})
    logging.getLogger("veiltab.test").debug("unimportant")
    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)
    assert found.pop("time").endswith("+00:00")
    assert found == {
        "level": "info",
        "logger": "veiltab.test",
        "event": "something\nhappened",
        "study": "é",
        "n": 3,
    }


def test_people_get_lines() -> None:
    """With what matters at the end."""
    stream = Terminal()
    set_up_logs(stream)
    logging.getLogger("veiltab.test").warning("something happened", extra={"study": "é", "n": 3})
    line = stream.getvalue().rstrip()
    assert line.endswith(" warning something happened study=é n=3")


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()], ids=["terminal", "file"])
def test_traces_are_kept(stream: io.StringIO) -> None:
    """For bugs, and as a part of the one event."""
    set_up_logs(stream)
    try:
        int("a bug")
    except ValueError:
        logging.getLogger("veiltab.test").exception("it failed")
    text = stream.getvalue()
    if not stream.isatty():
        text = json.loads(text)["trace"]
    assert "Traceback" in text
    assert text.rstrip().endswith("'a bug'")


def test_unwritable_values_do_not_break_the_log() -> None:
    """Whatever an event has is written somehow."""
    stream = io.StringIO()
    set_up_logs(stream)
    logging.getLogger("veiltab.test").info("x", extra={"path": Path("/somewhere"), "raw": b"\xff"})
    found = json.loads(stream.getvalue())
    assert (found["path"], found["raw"]) == ("/somewhere", "b'\\xff'")


def test_setting_up_again_changes_where_logs_go() -> None:
    """And no event is written twice."""
    first, second = io.StringIO(), io.StringIO()
    set_up_logs(first)
    set_up_logs(second)
    logging.getLogger("veiltab.test").info("x")
    assert first.getvalue() == ""
    assert len(second.getvalue().splitlines()) == 1


class Spy:
    """Remembers what functions return."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Start without anything."""
        self._monkeypatch = monkeypatch
        self.seen: list[Any] = []

    def watch(self, module: object, name: str) -> None:
        """Remember what a function of a module returns."""
        original = getattr(module, name)

        def watched(*arguments: Any, **named: Any) -> Any:  # noqa: ANN401 - whatever it is
            found = original(*arguments, **named)
            self.seen.append(found)
            return found

        self._monkeypatch.setattr(module, name, watched)


@pytest.mark.slow
def test_a_whole_study_leaves_no_secret_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even in the most talkative one: codes, signatures, keys, bodies."""
    stream = io.StringIO()
    set_up_logs(stream, logging.DEBUG)
    drawn, headers = Spy(monkeypatch), Spy(monkeypatch)
    drawn.watch(invitations, "draw_code")
    drawn.watch(steps, "random_bytes")
    headers.watch(remote, "signature_headers")
    with running(make_context(tmp_path / "data")) as service:
        names = ("Süd", "Nord", "Dr. West")
        joined = join_parties(service, tmp_path, names)
        terms = HttpTerms(title="Lungs and incomes")
        study = http_study(service, tmp_path, Stage.GRANTED, terms=terms, parties=joined)
        estimate_study(study.researcher, study.researcher.contract(study.study))
        secret = study.curators[0].home.study(study.study).secret()
        grants = study.researcher.server.grants(study.study)
        chunks = [*study.chunks(0).values(), *study.chunks(1).values()]
    log = stream.getvalue()
    assert len(drawn.seen) == 4  # three invitations and a noise key
    assert len(headers.seen) > 20
    assert secret is not None
    codes = [code for code in drawn.seen if isinstance(code, str)]
    values = [key for key in drawn.seen if isinstance(key, bytes)]
    values += [secret, *chunks, *(grant.sealed for grant in grants if grant.sealed is not None)]
    forbidden = [form for value in values for form in forms(value)]
    forbidden += [form for code in codes for form in (code, group(code))]
    forbidden += [each["Signature"].split(":")[1] for each in headers.seen]
    forbidden += [each["Content-Digest"] for each in headers.seen]
    forbidden += [*names, terms.title, "smoker"]
    assert [text for text in forbidden if text in log] == []
    routes = {json.loads(line).get("route") for line in log.splitlines()}
    assert "/v1/studies/{study}/release/chunks" in routes


def forms(secret: bytes) -> list[str]:
    """Return the ways in which bytes could stand in a log."""
    return [secret.hex(), base64.b64encode(secret).decode(), repr(secret)[2:-1]]


def test_what_a_request_leaves(tmp_path: Path) -> None:
    """Its route and its outcome; nothing of its path, its query or its sender."""
    stream = io.StringIO()
    set_up_logs(stream)
    with running(make_context(tmp_path / "data")) as service:
        (session,) = join_parties(service, tmp_path, ("Süd",))
        assert session.server.studies() == []
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    requests = [line for line in lines if line["event"] == "request"]
    (listed,) = [request for request in requests if request["route"] == "/v1/studies"]
    assert listed.keys() == {
        "time",
        "level",
        "logger",
        "event",
        "method",
        "route",
        "status",
        "milliseconds",
    }
    assert (listed["method"], listed["status"]) == ("GET", 200)
