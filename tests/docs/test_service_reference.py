"""The page on the service lists every route, problem, limit, metric and log field, and no other."""

import ast
import dataclasses
import importlib.util
import inspect
import json
import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grimp
import pytest
from fastapi import FastAPI

from tests.support.requests import CURATORS, NAMED, Route, routes_of
from tests.support.servers import make_context
from veiltab import errors
from veiltab.server.http.app import create_app
from veiltab.server.http.models import Status
from veiltab.server.http.routes import PUBLIC
from veiltab.server.limits import Settings
from veiltab.server.monitoring import JsonFormatter, Metrics

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "service.md").read_text("utf-8")

FRAMEWORK = {"method_not_allowed": 405, "bad_request": 400}
"""Problems that no error of ours stands for."""

NEVER_ANSWERED = {
    "AuditError": "is the clients': the server does not verify its own log",
    "CountsError": "is whoever brings counts of their own; the server is never sent any",
    "OutputError": "is a curator's, whose scratch folder cannot be written; the server's is told",
    "PromiseError": "is the curators' and researchers', who verify a release; the server makes it",
    "SchemaError": "becomes a MalformedError where a message is read",
    "UselessPlanError": "is the proposer's; the server carries out what was signed",
}
"""Errors in modules that the service uses, which no request is answered with."""

OF_THE_COMMAND = {"party", "fingerprint", "url", "data"}
"""What ``veiltab serve`` logs when it starts."""


def table(heading: str) -> dict[str, list[str]]:
    """Return the rows of the table below a heading by their first cell, without code marks."""
    text = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    rows = [[cell.strip().replace("`", "") for cell in line.split("|")[1:-1]] for line in lines]
    found = {row[0]: row[1:] for row in rows}
    assert len(found) == len(rows), f"{heading}: a row comes twice"
    return found


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> FastAPI:
    """Return the service, which is not started."""
    return create_app(make_context(tmp_path_factory.mktemp("service") / "data"))


def described(app: FastAPI) -> dict[Route, dict[str, Any]]:
    """Return what the service says of each of its routes."""
    return {
        (method.upper(), path): found
        for path, methods in app.openapi()["paths"].items()
        for method, found in methods.items()
    }


def test_every_route_and_no_other(app: FastAPI) -> None:
    """With its method; HEAD comes with GET and is not listed."""
    real = {f"{method} {path}" for method, path in routes_of(app) if method != "HEAD"}
    assert set(table("Routes")) == real


def test_summaries_and_statuses_are_those_of_the_service(app: FastAPI) -> None:
    """Word for word, and 201 exactly where something is made."""
    for (method, path), found in described(app).items():
        row = table("Routes")[f"{method} {path}"]
        assert row[0] == found["summary"]
        answer = "201 or 200 " if "201" in found["responses"] else "200 "
        assert row[3].startswith(answer), row
        assert (row[2] == "none") == ("requestBody" not in found), row


def test_who_may_ask() -> None:
    """The page agrees with the table by which every route is tested for refusals."""
    for route, row in table("Routes").items():
        method, _, path = route.partition(" ")
        assert (row[1] == "anybody") == (path in PUBLIC)
        assert (row[1] == "curator") == ((method, path) in CURATORS)
        assert (row[1] == "named") == ((method, path) in NAMED)


def test_the_status_has_these_keys() -> None:
    """In their order."""
    assert list(table("Status")) == list(Status.model_fields)


def raised() -> Iterator[str]:
    """Yield the errors that are made anywhere in the modules which the service needs."""
    graph = grimp.build_graph("veiltab")
    for name in {"veiltab.server.http.app"} | graph.find_upstream_modules(
        "veiltab.server.http.app"
    ):
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        for node in ast.walk(ast.parse(Path(spec.origin).read_text("utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                yield node.func.id


def test_every_problem_and_no_other() -> None:
    """A code is listed if the service can answer with it, and has the right status."""
    known = {
        name: each
        for name, each in inspect.getmembers(errors, inspect.isclass)
        if issubclass(each, errors.VeiltabError)
    }
    reached = known.keys() & set(raised())
    assert reached >= NEVER_ANSWERED.keys(), "an exception that is not needed any more"
    real = {known[name].code: known[name].http_status for name in reached - NEVER_ANSWERED.keys()}
    listed = {code: int(row[0]) for code, row in table("Problems").items()}
    assert listed == real | FRAMEWORK


def test_the_codes_of_the_framework_are_there() -> None:
    """Two codes are written where answers are made, and nowhere else."""
    source = (ROOT / "src" / "veiltab" / "server" / "http" / "problems.py").read_text("utf-8")
    assert set(re.findall(r'"(method_not_allowed|bad_request)"', source)) == set(FRAMEWORK)


def test_every_limit() -> None:
    """With its default."""
    defaults = dataclasses.asdict(Settings())
    listed = {name: row[0] for name, row in table("Limits").items()}
    assert listed == {name: _number(value) for name, value in defaults.items()}


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:,}".removesuffix(".0")


def test_every_metric() -> None:
    """By the exposition itself: name, type and labels."""
    metrics = Metrics()
    types = dict(re.findall(r"^# TYPE (\w+) (\w+)$", metrics.expose().decode(), re.MULTILINE))
    real = {name: kind for name, kind in types.items() if not name.endswith("_created")}
    listed = table("Metrics")
    assert {name: row[0] for name, row in listed.items()} == real
    for found in vars(metrics).values():
        if hasattr(found, "_labelnames"):
            name = next(each for each in listed if each.removesuffix("_total") == found._name)
            assert listed[name][1] == (", ".join(found._labelnames) or "none")


def test_every_outcome_of_a_release() -> None:
    """The values of the label are those that the code returns."""
    source = (ROOT / "src" / "veiltab" / "server" / "worker.py").read_text("utf-8")
    outcomes = set(re.findall(r'return "(\w+)"', source)) | {"failed"}
    described = table("Metrics")["veiltab_releases_total"][2]
    assert outcomes <= set(re.findall(r"\w+", described))


def extras() -> Iterator[str]:
    """Yield the fields that the service adds to its log lines."""
    for path in (ROOT / "src" / "veiltab" / "server").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            passed = isinstance(node, ast.keyword) and node.arg == "extra"
            if passed or (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "extra"):
                for each in ast.walk(node):
                    if isinstance(each, ast.Dict):
                        yield from (ast.literal_eval(key) for key in each.keys if key)


def test_every_log_field() -> None:
    """Those of every line, those of errors, and what the service adds."""
    record = logging.makeLogRecord({"msg": "x", "exc_info": (ValueError, ValueError(), None)})
    usual = set(json.loads(JsonFormatter().format(record)))
    assert set(table("Log fields")) == usual | set(extras()) | OF_THE_COMMAND


def test_what_the_command_logs_is_in_its_source() -> None:
    """The fields of the start are not made up."""
    source = (ROOT / "src" / "veiltab" / "cli" / "serve.py").read_text("utf-8")
    for field in OF_THE_COMMAND:
        assert f'"{field}":' in source, field
