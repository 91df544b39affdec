"""The demonstration: one real run, what it finds, and that nothing of it is left behind."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import assert_refused, run_here
from veiltab.cli.demo import MARK, DemoFolder
from veiltab.core.plan import plan
from veiltab.data.counts import adult_table
from veiltab.demo.parties import make_parties, write_tables
from veiltab.demo.processes import DemoParty, Processes
from veiltab.errors import OutputError, VeiltabError
from veiltab.paper.experiment import exact_rmse
from veiltab.report.html import element, table

Capture = pytest.CaptureFixture[str]

CELLS = 24
FALSE_ALARMS = 1e-6
"""How often the estimates of a correct program may fail these tests."""

COMPARISONS = CELLS
PATIENCE = 600.0
INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from veiltab.cli.main import main
main(sys.argv[1:])
"""
"""Some test runners start their children deaf to Ctrl-C."""


sees_processes = pytest.mark.skipif(
    not Path("/proc/self/cwd").exists(), reason="finds processes in /proc, as Linux has it"
)


def start(*arguments: object) -> subprocess.Popen[str]:
    """Start a demonstration as a process of its own."""
    return subprocess.Popen(  # noqa: S603 - it is our own command
        [sys.executable, "-c", INTERRUPTIBLE, "demo", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    )


def processes_in(folder: Path) -> list[str]:
    """Return the processes that work in a folder or below it."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cwd"):
        try:
            if place.readlink().is_relative_to(folder):
                found.append(place.parent.name)
        except OSError:  # it has ended, or is somebody else's
            continue
    return found


def wait_for(condition: Path, process: subprocess.Popen[str]) -> None:
    """Wait until a file is there."""
    end = time.monotonic() + PATIENCE
    while not condition.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.02)


def assert_gone(folder: Path) -> None:
    """Check that every process in a folder ends, which may take a moment."""
    end = time.monotonic() + PATIENCE
    while processes_in(folder):
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the one run of this module leaves its report."""
    return tmp_path_factory.mktemp("demo") / "out"


@pytest.fixture(scope="module")
def shown(folder: Path) -> dict[str, Any]:
    """Run the demonstration once, and return what it prints."""
    process = start("--json", "--out", folder)
    out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (0, "")
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.fixture(scope="module")
def studies(shown: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return all three studies: the paper's, the one with decoys, and the one with δ."""
    return [shown, shown["decoys"], shown["with_delta"]]


def assert_close(cells: Sequence[Mapping[str, Any]], study: Mapping[str, Any]) -> None:
    """Compare the paper's estimates with the truth, by Bernstein's inequality.

    A released count is at most as spread as a binomial one with the same mean, so it is off by t
    with probability at most 2·exp(−t²/(2v + 2t/3)), v = mq(1 − q).
    """
    gamma, size = study["gamma"], study["sample_size"]
    keep = (gamma - 1) / (gamma + CELLS - 1)
    likely = math.log(2 * COMPARISONS / FALSE_ALARMS)
    for cell in cells:
        released = keep * cell["truth"] + (1 - keep) / len(cells)
        variance = size * released * (1 - released)
        most = likely / 3 + math.sqrt(likely**2 / 9 + 2 * likely * variance)
        assert abs(cell["share"] - cell["truth"]) <= most / (size * keep)


def assert_plausible(found: Mapping[str, Any]) -> None:
    """Compare an error with its prediction.

    The squared error is a sum over 24 cells.  It exceeds nine times its mean only if one of them
    is off by fifteen of its standard deviations or more, and is below a twenty-fifth of it only if
    all are almost right: with the laws of decoys and noise, less than once in a million runs.
    """
    assert found["predicted_rmse"] / 5 < found["l2_error"] < 3 * found["predicted_rmse"]


@pytest.mark.slow
def test_all_studies_estimate_the_truth(studies: list[Mapping[str, Any]]) -> None:
    """Every error is as large as predicted; a correct program fails once in a million runs."""
    assert_close(studies[0]["cells"], studies[0])
    for study in studies:
        assert_plausible(study)
    assert [study["mechanism"] for study in studies] == ["paper", "decoys", "decoys"]
    assert {study["epsilon"] for study in studies} == {0.5}
    assert [study["delta"] for study in studies] == [0, 0, 1e-6]
    assert [study["sample_size"] for study in studies] == [1222, None, None]


@pytest.mark.slow
def test_decoys_leave_far_less_error(studies: list[Mapping[str, Any]]) -> None:
    """Seven times less with δ = 0, by formula, and again ten times less with δ."""
    papers, decoys, with_delta = (study["predicted_rmse"] for study in studies)
    assert papers > 7 * decoys
    assert decoys > 10 * with_delta


@pytest.mark.slow
def test_the_curator_read_what_each_coalition_learns(studies: list[Mapping[str, Any]]) -> None:
    """Before it signed; only the paper's way has no bound for server and researcher together."""
    for study in studies:
        promises = {each["who"]: each["epsilon"] for each in study["coalitions"]}
        assert promises["researcher"] == 0.5
        with_server = None if study["mechanism"] == "paper" else 0.5
        assert promises["researcher and server"] == with_server
        assert promises["researcher and curator"] == study["epsilon_with_curator"]
        assert promises["readers of published copies"] == 0.5


@pytest.mark.slow
def test_server_and_researcher_read_the_papers_sample_in_the_clear(
    shown: Mapping[str, Any],
) -> None:
    """Every row that they open is a person's: no cell has more rows than people."""
    papers = shown["together"][0]
    assert (papers["epsilon"], papers["rows"]) == (None, shown["sample_size"])
    assert [cell["people"] for cell in papers["cells"]] == adult_table(CELLS).counts.tolist()
    assert all(cell["rows"] <= cell["people"] for cell in papers["cells"])
    assert sum(cell["rows"] for cell in papers["cells"]) == papers["rows"]


@pytest.mark.slow
def test_server_and_researcher_cannot_tell_decoys_from_people(shown: Mapping[str, Any]) -> None:
    """They open rows of people and decoys together, as many as the law of both says.

    With δ everybody takes part, except with a chance of one in a million, so that the truth shows
    the decoys: some in every cell, except with a smaller chance, and not equally many.
    """
    for reading, study in zip(
        shown["together"][1:], (shown["decoys"], shown["with_delta"]), strict=True
    ):
        assert reading["epsilon"] == 0.5
        # Twenty standard deviations: both laws have tails that are lighter than exponential ones.
        coins = math.sqrt(45_222 * 0.25)
        spread = 20 * math.hypot(coins, math.sqrt(CELLS) * reading["decoys_deviation"])
        assert abs(reading["rows"] - study["expected_rows"]) < spread
    decoys = [cell["rows"] - cell["people"] for cell in shown["together"][2]["cells"]]
    assert min(decoys) > 0
    assert len(set(decoys)) > 1
    mean, deviation = (shown["together"][2][f"decoys_{each}"] for each in ("per_cell", "deviation"))
    assert abs(sum(decoys) / CELLS - mean) < 20 * deviation / math.sqrt(CELLS)


@pytest.mark.slow
def test_the_published_copy_has_noise_of_its_own(shown: Mapping[str, Any]) -> None:
    """It is near the truth, but not the researcher's estimate, and the log names it."""
    published, own = shown["published"], shown["decoys"]
    assert (published["title"], published["epsilon"]) == (own["title"], 0.5)
    assert re.fullmatch("[0-9a-f]{64}", published["digest"])
    assert_plausible(published)
    assert published["predicted_rmse"] > own["predicted_rmse"]
    shares = [[cell["share"] for cell in each["cells"]] for each in (published, own)]
    assert shares[0] != shares[1]


@pytest.mark.slow
def test_the_truth_is_the_built_in_table(studies: list[Mapping[str, Any]]) -> None:
    """Cell by cell, and it sums to one; so do the estimates."""
    built_in = adult_table(CELLS)
    for study in studies:
        truth = [cell["truth"] for cell in study["cells"]]
        assert truth == built_in.distribution.tolist()
        assert sum(truth) == pytest.approx(1)
        assert sum(cell["share"] for cell in study["cells"]) == pytest.approx(1)
        assert set(study["cells"][0]) == {
            *built_in.schema.names,
            "truth",
            "share",
            "standard_error",
        }


@pytest.mark.slow
def test_the_errors_are_those_of_the_cells(studies: list[Mapping[str, Any]]) -> None:
    """The ℓ₂ error is what the cells give, and the prediction is the exact formula's."""
    table = adult_table(CELLS)
    for study in studies:
        off = [cell["share"] - cell["truth"] for cell in study["cells"]]
        assert study["l2_error"] == pytest.approx(math.hypot(*off))
        chosen = plan(
            population_size=study["population_size"],
            domain_size=CELLS,
            epsilon=study["epsilon"],
            delta=study["delta"],
            mechanism=study["mechanism"],
        )
        assert study["predicted_rmse"] == pytest.approx(exact_rmse(chosen, table))


@pytest.mark.slow
def test_the_second_researcher_sees_one_curators_part(shown: Mapping[str, Any]) -> None:
    """Its marginal is right, and whatever nobody has granted is refused in words."""
    second = shown["second_researcher"]
    assert second["granted"] == ["education", "marital"]
    assert len(second["cells"]) == 6
    for cell in second["cells"]:  # decoys have exponential tails: see above
        assert abs(cell["share"] - cell["truth"]) < 20 * cell["standard_error"]
    refused = second["refused"]
    assert refused["attributes"] == ["education", "marital", "salary"]
    assert refused["error"] == "you have no grant for: 'salary' (Tax office)"


@pytest.mark.slow
def test_the_server_had_nothing_to_read(shown: Mapping[str, Any]) -> None:
    """Even bytes, no ids, and after the release no unperturbed ciphertext."""
    server = shown["server"]
    assert (server["received_files"], server["received_files_after_release"]) == (4, 0)
    assert (server["released_files"], server["ids_found"]) == (4, 0)
    assert sum(server["column"]["table"]) == 45222
    assert sum(server["column"]["received"]) == shown["together"][1]["rows"]
    assert server["column"]["p_value"] > 1e-9  # so uneven once in 10⁹ runs
    assert server["verified_by"] == ["Registry office", "Tax office", "Dr. Rivera", "Dr. Okafor"]
    assert server["audit_entries"] == 16


@pytest.mark.slow
def test_each_ledger_is_charged_with_all_studies(shown: Mapping[str, Any]) -> None:
    """Before, nothing is spent; after, what all contracts promise."""
    for ledger in shown["ledgers"]:
        spent = [(ledger[when]["epsilon_spent"], ledger[when]["delta_spent"]) for when in
                 ("before", "after")]  # fmt: skip
        assert spent == [(0, 0), (2.0, 1e-6)]


@pytest.mark.slow
def test_agents_answer_a_study_on_stored_tables(shown: Mapping[str, Any]) -> None:
    """New pads for the sample alone, then a grant; the error is the paper's.

    Three times the expected error needs a χ² of 24 dependent cells beyond 9 times its mean, which
    has a chance far below 10⁻⁶ with even ten degrees of freedom.
    """
    stored = shown["stored"]
    assert [agent["curator"] for agent in stored["agents"]] == ["Registry office", "Tax office"]
    for agent in stored["agents"]:
        assert (agent["rows"], agent["events"]) == (shown["sample_size"], ["new pads", "grant"])
    assert stored["rows_stored"] == shown["population_size"]
    assert stored["predicted_rmse"] == pytest.approx(shown["predicted_rmse"])
    assert 0 < stored["l2_error"] < 3 * stored["predicted_rmse"]


@pytest.mark.slow
def test_nothing_is_left_but_the_report(shown: Mapping[str, Any], folder: Path) -> None:
    """No process, no keys, no tables."""
    assert processes_in(folder) == []
    assert sorted(path.name for path in folder.iterdir()) == [MARK, "report.html"]
    assert shown["report"] == str(folder / "report.html")


@pytest.mark.slow
def test_the_report_is_one_file_that_loads_nothing(shown: Mapping[str, Any], folder: Path) -> None:
    """No script, no address, no reference to anything outside; and all the numbers."""
    page = (folder / "report.html").read_text("utf-8")
    for outside in ("http:", "https:", "//", "src=", "href=", "url(", "@import", "<script"):
        assert outside not in page
    assert page.count('role="img"') == 6
    for cell in shown["cells"]:
        assert f"{100 * cell['share']:.2f} ± ".replace("-", "−") in page
    assert "you have no grant for: &#x27;salary&#x27; (Tax office)" in page


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a demonstration, and go on when its server has begun."""
    process = start("--out", tmp_path / "out")
    try:
        wait_for(tmp_path / "out" / "parties" / "server" / "data" / "server.key", process)
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.soak
@sees_processes
def test_no_process_outlives_a_demonstration_that_is_killed(
    running: subprocess.Popen[str], tmp_path: Path
) -> None:
    """The system itself tells them; nobody else could any more."""
    assert processes_in(tmp_path / "out")
    running.kill()
    running.wait()
    assert_gone(tmp_path / "out")


@pytest.mark.slow
@sees_processes
def test_no_process_outlives_ctrl_c(running: subprocess.Popen[str], tmp_path: Path) -> None:
    """It ends as every command does, and when it has, everything has."""
    running.send_signal(signal.SIGINT)
    _, err = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130
    assert "error: stopped" in err.splitlines()
    assert processes_in(tmp_path / "out") == []


def test_a_failure_says_whose_command_it_was(tmp_path: Path) -> None:
    """With what the command itself said."""
    party = DemoParty("Tax office", tmp_path)
    with Processes() as processes, pytest.raises(VeiltabError) as failed:
        processes.run(party, "plan", "--epsilon", "0.5")
    message = failed.value.message
    assert message.startswith("Tax office: `veiltab plan --epsilon 0.5` ended with exit code 2")
    assert "\n  error: Missing option '--population'" in message
    assert failed.value.exit_code == 1


@pytest.mark.slow
@sees_processes
def test_one_failure_ends_what_runs_beside_it(tmp_path: Path) -> None:
    """A server that nobody needs any more does not keep the demonstration waiting."""
    party = DemoParty("Server", tmp_path)
    with Processes() as processes:
        processes.serve(party, "serve", "--data", "data", "--port", 0, "--json")
        with pytest.raises(VeiltabError, match="exit code 2"):
            processes.together(
                lambda: processes.run(party, "serve", "--data", "other", "--port", 0, "--json"),
                lambda: processes.run(party, "plan"),
            )
        assert processes_in(tmp_path)
    assert processes_in(tmp_path) == []


def test_a_server_that_does_not_start_is_reported(tmp_path: Path) -> None:
    """With the end of its log."""
    party = DemoParty("Server", tmp_path)
    with (
        Processes() as processes,
        pytest.raises(VeiltabError, match="can be reached from other computers"),
    ):
        processes.serve(party, "serve", "--data", "data", "--host", "0.0.0.0", "--json")  # noqa: S104


def test_other_peoples_folders_are_refused(capsys: Capture, tmp_path: Path) -> None:
    """Nothing in them is touched, and nothing is started."""
    (tmp_path / "thesis.txt").write_text("years of work")
    outcome = run_here(capsys, "demo", "--out", tmp_path)
    assert "holds files that no demonstration has made" in assert_refused(outcome, code=1)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_is_reused_and_only_the_demonstrations_files_go(tmp_path: Path) -> None:
    """What somebody has put beside them stays, and so does what a link leads to."""
    place, outside = DemoFolder(tmp_path / "out"), tmp_path / "outside"
    place.prepare()
    (place.path / "notes.txt").write_text("mine")
    (place.parties / "key").write_text("theirs")
    place.report.write_text("old")
    place.prepare()
    assert {path.name for path in place.path.iterdir()} == {MARK, "notes.txt", "parties"}
    assert list(place.parties.iterdir()) == []
    outside.mkdir()
    (outside / "photo").write_text("mine")
    place.parties.rmdir()
    place.parties.symlink_to(outside)
    place.prepare()
    assert (outside / "photo").exists()
    assert not place.parties.is_symlink()


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    """It is nobody's folder."""
    (tmp_path / "out").write_text("a file")
    with pytest.raises(OutputError, match="cannot write"):
        DemoFolder(tmp_path / "out").prepare()


@pytest.mark.parametrize("options", [("--epsilon", "0"), ("--epsilon", "0.04"), ("--delta", "0.5")])
def test_impossible_promises_are_refused_at_once(
    capsys: Capture, tmp_path: Path, options: tuple[str, str]
) -> None:
    """Before anything is made."""
    assert_refused(run_here(capsys, "demo", "--out", tmp_path / "out", *options))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_curators_tables_are_the_built_in_one(tmp_path: Path) -> None:
    """Joined by id they give its counts, and neither is in the order of the other."""
    built_in = adult_table(CELLS)
    parties = make_parties(tmp_path)
    write_tables(parties, built_in)
    rows = [
        [line.split(",") for line in (curator.party.folder / "table.csv").read_text().splitlines()]
        for curator in parties.curators
    ]
    assert [each[0] for each in rows] == [
        ["person", "education", "marital"],
        ["person", "gender", "salary"],
    ]
    left, right = ({row[0]: row[1:] for row in each[1:]} for each in rows)
    assert left.keys() == right.keys()
    assert list(left) != list(right)
    counts = dict.fromkeys(range(CELLS), 0)
    every = {text: cell for cell, text in enumerate(_joint(built_in.schema.attributes))}
    for person, values in left.items():
        counts[every[*values, *right[person]]] += 1
    assert list(counts.values()) == built_in.counts.tolist()


def _joint(attributes: Sequence[Any]) -> Iterator[tuple[str, ...]]:
    return product(*(attribute.categories for attribute in attributes))


def test_pages_escape_what_they_are_given() -> None:
    """A category can be called anything."""
    text = element("p", "<=50K & more", aria_label='"quoted"', class_="x")
    assert text == '<p aria-label="&quot;quoted&quot;" class="x">&lt;=50K &amp; more</p>'
    rows = table("<caption>", ["a", "b"], [("<group>",), ("<x>", "1")], numbers=1)
    assert re.findall(r"&lt;(\w+)&gt;", rows) == ["caption", "caption", "group", "x"]
    assert '<th scope="rowgroup" colspan="2">' in rows
    assert '<td class="number">1</td>' in rows


def test_the_environment_of_a_party_is_its_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Whoever has a home of their own does not take part by accident."""
    monkeypatch.setenv("VEILTAB_HOME", "/home/somebody/.veiltab")
    monkeypatch.setenv("VEILTAB_DATABASE", "postgresql://real")
    found = DemoParty("Tax office", tmp_path).environment
    assert found["VEILTAB_HOME"] == str(tmp_path / "home")
    assert "VEILTAB_DATABASE" not in found
    assert os.environ["VEILTAB_DATABASE"] == "postgresql://real"
