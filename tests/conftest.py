"""How tests run: hypothesis, the order on several cores, and what counts as fast."""

import gc
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.programs import NOT_RUN

GUARD = "VEILTAB_FAST_TESTS"
"""Set by ``make check``: a test without the mark ``slow`` must then be fast."""

# A busy machine must not fail a property that holds, so no example has a deadline.
settings.register_profile("developer", deadline=None)
# Elsewhere new examples are tried every time; on CI a change is judged by the same ones each time.
settings.register_profile("ci", deadline=None, derandomize=True)
# Where only fast tests are wanted, fewer examples do: the whole suite tries them all.
settings.register_profile("fast", deadline=None, max_examples=25)
settings.load_profile(
    "fast" if GUARD in os.environ else "ci" if os.environ.get("CI") else "developer"
)

CPU_SECONDS, SECONDS = 2.0, 30.0
"""The most that such a test may take, its child processes included.  Marks belong on tests of half
a second; these bounds leave room for slow and busy machines, on which CPU time hardly grows."""

MEMORY, ROOM = Path("/dev/shm"), 4 << 30  # noqa: S108 - pytest makes a private folder there
"""Linux's file system in memory, and the bytes that must be free there: far more than tests need.

Studies are folders of many small files, each of which has to be safe on the disk before the next
step; waiting for that would be a third of the time that such a test takes.
"""


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Keep the folders of tests in memory, where there is room for them."""
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOM:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_sessionstart(session: pytest.Session) -> None:
    """Let every worker compile its share of all tests first, and find the rest compiled.

    Compiling them, as pytest does to explain assertions, takes longer than to import them; without
    this each worker of a new checkout would do it for all.
    """
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    if workers == 1 or sys.dont_write_bytecode or session.config.args != ["tests"]:
        return
    number = int(os.environ["PYTEST_XDIST_WORKER"].removeprefix("gw"))
    root = session.config.rootpath
    for path in sorted(root.glob("tests/**/test_*.py"))[number::workers]:
        # Whatever is wrong with a module is reported when it is collected.
        with suppress(Exception, pytest.skip.Exception):
            import_module(".".join(path.relative_to(root).with_suffix("").parts))


def pytest_collection_finish() -> None:
    """Spare the garbage collector what lives to the end: all modules, and 10,000 tests."""
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what needs PostgreSQL; on several cores, start slow tests first, each for itself.

    Fast tests of a module stay together, and so do all whose module has a fixture for them: it is
    made once.  This goes first, because xdist reads the groups in the same hook.
    """
    for item in items:
        if _needs_postgresql(item):
            item.add_marker(pytest.mark.slow)  # a server in a process of its own
    if not hasattr(config, "workerinput"):
        return
    shared = {item.path for item in items if _shares_a_fixture(item)}
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    for item in items:
        if item.path in shared or not item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.xdist_group(str(item.path.relative_to(config.rootpath))))
    # The sort is stable: what shares a fixture and is slow, what is slow alone, and the rest.
    items.sort(
        key=lambda item: (
            0 if item.path in shared & slow else 1 if item.get_closest_marker("slow") else 2
        )
    )


def _needs_postgresql(item: pytest.Item) -> bool:
    """Return whether a test uses that server itself, or a database whose address is there."""
    chosen = item.callspec.params if hasattr(item, "callspec") else {}
    names = getattr(item, "fixturenames", ())
    return "postgresql" in names or chosen.get("address") == "postgresql"


def _shares_a_fixture(item: pytest.Item) -> bool:
    """Return whether a test uses a fixture that lives as long as its module."""
    definitions = getattr(item, "_fixtureinfo", None)
    by_name = definitions.name2fixturedefs.values() if definitions is not None else ()
    return any(each.scope == "module" for definition in by_name for each in definition)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Fail a test that takes long and does not say so, where only fast tests are wanted."""
    if GUARD not in os.environ or item.get_closest_marker("slow"):
        yield
        return
    cpu, wall = _cpu_seconds(), time.perf_counter()
    yield
    cpu, wall = _cpu_seconds() - cpu, time.perf_counter() - wall
    if cpu > CPU_SECONDS or wall > SECONDS:
        pytest.fail(
            f"it took {cpu:.1f} s of CPU time and {wall:.1f} s in all:"
            " mark it with @pytest.mark.slow, or make it faster",
            pytrace=False,
        )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say loudly what was not run because a program is not installed."""
    reasons = Counter(
        report.longrepr[2].partition(NOT_RUN)[2]
        for report in terminalreporter.getreports("skipped")
        if isinstance(report.longrepr, tuple) and NOT_RUN in report.longrepr[2]
    )
    if reasons:
        terminalreporter.section("NOT EVERYTHING WAS RUN", red=True, bold=True)
    for reason, times in reasons.items():
        terminalreporter.write_line(f"{times} NOT RUN: {reason}", red=True, bold=True)


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of the children that have ended."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
