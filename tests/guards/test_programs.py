"""What tests need and pip does not bring is never missed in silence."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import programs
from tests.support.programs import ALL, BROWSER, NOT_RUN, PDF_TEXT, install_missing, needed


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand on a machine where nothing is installed, and return the folder of its programs."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CI", raising=False)
    return tmp_path


def add(folder: Path, name: str) -> Path:
    """Put a program into a folder."""
    path = folder / name
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_a_browser_is_found_under_its_names(bare: Path) -> None:
    """Chromium first, and Chrome where there is none."""
    chrome = add(bare, "google-chrome-stable")
    assert needed(BROWSER) == str(chrome)
    assert needed(BROWSER) != str(add(bare, "chromium"))


@pytest.mark.usefixtures("bare")
def test_without_a_browser_a_test_is_skipped_and_fails_on_ci(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With what is missing, and what to do."""
    with pytest.raises(pytest.skip.Exception, match=r"NOT RUN: Chromium .* as root"):
        needed(BROWSER)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="NOT RUN: Chromium or Chrome"):
        needed(BROWSER)


def test_the_end_of_a_run_says_what_was_not_run(pytestconfig: pytest.Config) -> None:
    """In a section of its own, with how many tests it were; other skipped tests are not there."""
    lines: list[str] = []
    reasons = [f"Skipped: {NOT_RUN}no browser"] * 2 + ["Skipped: as root"]
    reporter = SimpleNamespace(
        getreports=lambda _: [SimpleNamespace(longrepr=("", 1, reason)) for reason in reasons],
        section=lambda words, **_: lines.append(words),
        write_line=lambda words, **_: lines.append(words),
    )
    for plugin in pytestconfig.pluginmanager.get_plugins():
        if getattr(plugin, "GUARD", None) == "VEILTAB_FAST_TESTS":
            plugin.pytest_terminal_summary(reporter)
    assert lines == ["NOT EVERYTHING WAS RUN", "2 NOT RUN: no browser"]


def test_what_is_missing_is_installed_on_debian_as_root(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Once; elsewhere a warning says so, and it is an error on CI."""
    asked: list[list[str]] = []

    def install(packages: list[str]) -> None:
        asked.append(packages)
        for program in ALL:
            add(bare, program.names[0])

    monkeypatch.setattr(programs, "_install", install)
    add(bare, "apt-get")
    for system, user in (("ubuntu", 0), ("debian", 1000)):
        monkeypatch.setattr("platform.freedesktop_os_release", lambda system=system: {"ID": system})
        monkeypatch.setattr("os.geteuid", lambda user=user: user)
        assert (install_missing({}), install_missing({"CI": "true"})) == (0, 1)
        assert "warning: tests that need Chromium or Chrome will NOT RUN" in capsys.readouterr().err
    assert asked == []
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert install_missing({"CI": "true"}) == 0
    assert install_missing({"CI": "true"}) == 0
    assert asked == [["chromium-headless-shell", "poppler-utils", "fonts-liberation"]]
    assert needed(PDF_TEXT) == str(bare / "pdftotext")
