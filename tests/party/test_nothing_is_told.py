"""With decoys, nobody is told how many take part, how many decoys there are, or how many match.

A whole study is run, and everything that curators are answered, shown and that the server writes
down is searched for these numbers.
"""

import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from tests.support.commands import run
from tests.support.decoy_study import DecoyStudy, decoy_study
from tests.support.decoys import decoy_terms
from tests.support.servers import Server, make_context, running
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import Geometric, LinkageMode
from veiltab.party.connection import Call, Connection
from veiltab.party.progress import Progress
from veiltab.party.terms import EXAMPLE_POPULATIONS

pytestmark = pytest.mark.slow

PEOPLE = 3_000
MANY = Geometric(DRAW_RANGE // 100 * 99)
"""About a hundred decoys in each cell, so that their number is not found by chance."""


@dataclass
class Heard:
    """What the curators were answered and shown, and what the server has written."""

    answers: list[tuple[str, bytes]] = field(default_factory=list)
    screens: list[str] = field(default_factory=list)
    reports: list[Progress] = field(default_factory=list)
    logs: list[str] = field(default_factory=list)


@contextmanager
def listening(heard: Heard) -> Iterator[None]:
    """Note every answer to every party of this process."""
    real = Connection.send

    def send(self: Connection, call: Call, sign: Any) -> bytes:  # noqa: ANN401 - as the real one
        body = real(self, call, sign)
        heard.answers.append((call.path, body))
        return body

    with mock.patch.object(Connection, "send", send):
        yield


def as_curators(study: DecoyStudy, heard: Heard) -> None:
    """Take every step of the curators, by Python and by commands, for people and for scripts."""
    for place in (0, 1, 0):
        study.push(place, heard.reports.append)
    study.push_all()
    study.grant()
    home = study.curators[1].home.path
    study.tables[1].write_csv(home.parent / "table.csv")
    pushing = ("push", study.study.hex(), "--table", home.parent / "table.csv", "--id", "id")
    for command in (
        ("study", "list"),
        ("study", "show", study.study.hex()),
        ("study", "status", study.study.hex()),
        ("audit", study.study.hex()),
        (*pushing, "--dry-run"),
        pushing,
        ("grant", study.study.hex(), "--to", "researcher"),
    ):
        for flags in ((), ("--json",)):
            outcome = run(*command, "--home", home, *flags)
            assert outcome.code == 0, outcome.err
            heard.screens += [outcome.out, outcome.err]


def secret_numbers(study: DecoyStudy, linkage: LinkageMode) -> set[int]:
    """Return the numbers that only the curators' programs know, or that they must not know."""
    truth = study.truth()
    people = [sum(each.values()) for each in truth.people]
    decoys = sum(truth.decoys.values())
    joined = sum(n for pattern, n in truth.decoys.items() if None not in pattern)
    numbers = {*people, decoys, joined, sum(truth.common.values())}
    if linkage == "matched":
        numbers |= {sum(truth.joined), truth.uploaded(0), truth.uploaded(1)}
    return {number for number in numbers if number > 99}  # smaller ones are found by chance


def told(text: str, numbers: set[int]) -> list[int]:
    """Return which numbers stand in a text by themselves, with or without commas."""
    plain = re.sub(r"(?<=\d),(?=\d{3})", "", text)
    words = set(re.findall(r"(?<![\w+/=.-])\d+(?![\w+/=.])", plain))
    return sorted(number for number in numbers if str(number) in words)


def said_by(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields of a line of the log, without where in the program it was written."""
    place = {"lineno", "levelno", "process", "thread"}
    return {name: value for name, value in vars(record).items() if name not in place}


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a service for the studies of all tests here."""
    with running(make_context(tmp_path_factory.mktemp("service") / "data")) as service:
        yield service


@pytest.mark.parametrize("linkage", ["aligned", "matched"])
def test_no_curator_is_told(
    service: Server,
    tmp_path: Path,
    linkage: LinkageMode,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Neither by the server, nor by its own commands, nor by the log or the metrics."""
    caplog.set_level(logging.INFO)
    mechanism, heard = decoy_terms(law=MANY), Heard()
    study = decoy_study(service, tmp_path, linkage, people=PEOPLE, mechanism=mechanism)
    with listening(heard):
        as_curators(study, heard)
    numbers = secret_numbers(study, linkage)
    assert len(numbers) >= 2
    numbers -= set(EXAMPLE_POPULATIONS)  # which every screen shows: once in a thousand runs
    assert len(heard.answers) > 60
    for path, body in heard.answers:
        if not path.endswith("/release") or linkage == "matched":  # aligned, they may look at it
            assert not told(body.decode(), numbers), path
    for screen in heard.screens:
        assert not told(screen, numbers), screen
    assert {report.total for report in heard.reports if report.step == "sending"} == {100}
    assert {report.total for report in heard.reports} <= {100, PEOPLE, None}
    logs = [json.dumps(said_by(record), default=str) for record in caplog.records]
    assert any('"route"' in line for line in logs)
    server = [line for line in logs if "veiltab." in line]
    assert not [line for line in server if told(line, numbers)]
    metrics = service.metrics()
    assert "veiltab_requests_total" in metrics
    assert not told(metrics, numbers)


def test_the_search_finds_what_it_looks_for() -> None:
    """In sentences, in JSON, with commas; but not within other numbers or digests."""
    numbers = {1234, 567}
    assert told('{"rows": 1234}', numbers) == [1234]
    assert told("about 1,234 rows, 567 of them", numbers) == [567, 1234]
    assert told("81234 and 12345, 9,567 and ab567cd, 0.567", numbers) == []
