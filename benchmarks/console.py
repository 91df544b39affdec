"""How long a person waits for the console: its start, the planner's answers, a large table.

Answers are those of a console that runs, over its own port, to questions that it has not had yet.
What they are compared with is a page that asks nothing: the one that unlocks the keys.  The seconds
are those of the processor, which a busy machine changes less: nothing here waits for anything else.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Thread
from urllib.parse import urljoin

import httpx
import numpy as np
import polars as pl

from benchmarks.commands import run_empty_python
from benchmarks.timing import Clock, Ratio, median_of
from veiltab.console.app import ConsoleServer
from veiltab.console.keys import ConsoleParty
from veiltab.console.state import ConsoleState
from veiltab.crypto.entropy import SystemEntropy
from veiltab.estimates import Estimate
from veiltab.party.home import Home
from veiltab.rehearsal import rehearse

ANSWER, TABLE, START = 0.2, 1.0, 2.0
"""How many seconds an answer of the planner, a table, and the start of a console may take."""

QUESTIONS = (
    {"population": 20_000, "sizes": "2, 3, 4", "delta": 0},
    {"population": 45_222, "sizes": "3, 2, 2, 2", "delta": 1e-6},
    {"population": 1_000_000, "sizes": "8, 8, 12", "delta": 1e-6},
    {"population": 20_000, "sizes": "2, 3, 4", "delta": 1e-3},
    {"population": 20_000, "sizes": "2, 3, 4", "delta": 1e-6, "linkage": "matched"},
    {"population": 1_000_000_000, "sizes": "2, 3, 4", "delta": 1e-12},
)
EPSILONS = (0.05, 0.5, 5.0)
FIELDS = ("rows", "columns", "layer")
NAMES = ("row", "column", "layer")
SIDE, PEOPLE = 47, 20_000
"""Three attributes of 47 categories have 103,823 cells."""


def console_ratios() -> list[Ratio]:
    """Return the rows of the console."""
    with tempfile.TemporaryDirectory() as folder, _console(Path(folder)) as client:
        return [*_start(Path(folder)), _planner(client), _explorer(client, Path(folder))]


@contextmanager
def _console(folder: Path) -> Iterator[httpx.Client]:
    Home(folder / "home").create("Benchmark")
    party = ConsoleParty(folder / "home")
    party.unlock(None)
    server, ready = ConsoleServer(ConsoleState(party), SystemEntropy()), Event()
    thread = Thread(target=server.run, args=(ready.set,))
    thread.start()
    ready.wait()
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as client:
            client.get(server.link()).raise_for_status()
            yield client
    finally:
        server.stop()
        thread.join()


def _seconds(work: Callable[[], object], repeats: int, clock: Clock = time.process_time) -> float:
    return median_of({"work": work}, repeats, clock=clock)["work"]


def _of_others() -> float:
    """Return the processor's seconds of the processes that were started and have ended."""
    used = os.times()
    return used.children_user + used.children_system


def _get(client: httpx.Client, path: str, **fields: object) -> str:
    answer = client.get(path, params={key: str(value) for key, value in fields.items()}, timeout=60)
    answer.raise_for_status()
    return answer.text


def _empty(client: httpx.Client) -> tuple[str, float]:
    return "a page that asks nothing", _seconds(lambda: _get(client, "/unlock"), 15)


def _start(folder: Path) -> Iterator[Ratio]:
    """Time the start of a console to its link, and to the first page behind that."""
    command = [sys.executable, "-m", "veiltab", "console", "--no-browser", "--json", "--home"]

    def start(*pages: str) -> None:
        with subprocess.Popen([*command, str(folder / "home")], stdout=subprocess.PIPE) as process:  # noqa: S603 - our own command
            assert process.stdout is not None  # noqa: S101 - it is a pipe
            while b'"url"' not in (line := process.stdout.readline()):
                pass
            link = line.split(b'"')[3].decode()
            with httpx.Client(trust_env=False) as browser:
                for page in pages:
                    browser.get(urljoin(link, page)).raise_for_status()
            process.kill()  # whatever it goes on to load is not waited for

    reference = _seconds(run_empty_python, 5, _of_others)
    for what, pages in (("its link", ()), ("its first page", ("", "/"))):  # "" is the link itself
        seconds = _seconds(partial(start, *pages), 5, _of_others)
        yield Ratio(
            name=f"veiltab console, start to {what}",
            seconds=seconds,
            reference="python -c pass",
            reference_seconds=reference,
            goal=f"under {START:g} seconds",
            met=seconds < START,
        )


def _planner(client: httpx.Client) -> Ratio:
    """Time the slowest question; a number of its own keeps each from being remembered."""
    other = count()

    def ask(question: dict[str, object], epsilon: float) -> None:
        fields = question | {"epsilon": epsilon * (1 + next(other) / 1000)}
        assert "in a new study" in _get(client, "/plan", **fields)  # noqa: S101 - it has an answer

    questions = [partial(ask, question, epsilon) for question in QUESTIONS for epsilon in EPSILONS]
    questions[-1]()  # SciPy is loaded
    seconds = max(_seconds(question, 5) for question in questions)
    reference, reference_seconds = _empty(client)
    return Ratio(
        name="an answer of the planner, the slowest of 18 questions",
        seconds=seconds,
        reference=reference,
        reference_seconds=reference_seconds,
        goal=f"under {1000 * ANSWER:g} ms",
        met=seconds < ANSWER,
    )


def _explorer(client: httpx.Client, folder: Path) -> Ratio:
    """Time the first page of a choice: each level of confidence is computed anew."""
    path, levels = folder / "estimate.json", iter(("0.9", "0.95", "0.99"))
    _large_estimate().save(path)
    token = re.search(r'name="form_token" value="(\w+)"', _get(client, "/explore"))
    assert token is not None  # noqa: S101 - the page has a form
    origin = str(client.base_url).rstrip("/")
    opened = client.post(
        "/explore",
        data={"path": str(path), "form_token": token[1]},
        headers={"origin": origin},
        timeout=60,
    )
    page = opened.headers["location"]
    seconds = _seconds(
        lambda: _get(client, page, **dict(zip(FIELDS, NAMES, strict=True)), level=next(levels)), 2
    )
    reference, reference_seconds = _empty(client)
    return Ratio(
        name=f"the explorer, a table of {SIDE**3:,} cells",
        seconds=seconds,
        reference=reference,
        reference_seconds=reference_seconds,
        goal=f"under {TABLE:g} second",
        met=seconds < TABLE,
    )


def _large_estimate() -> Estimate:
    people = np.arange(PEOPLE)
    tables = [
        pl.DataFrame({"person": people, name: [f"{name} {value % SIDE}" for value in people]})
        for name in NAMES
    ]
    return rehearse(tables, on="person", epsilon=5.0, anyway=True, seed=1)
