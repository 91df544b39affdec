"""What the commands print: tables for people, JSON for scripts, pictures where asked."""

import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

import veiltab
from tests.support.cases import for_each
from tests.support.commands import assert_refused, run_here, succeed
from veiltab.paper.claims import Claim
from veiltab.paper.reproduce import Reproduction

Capture = pytest.CaptureFixture[str]

PLAN = ("plan", "--population", 45222, "--cells", 24)
SIMULATE = ("simulate", "--runs", 20, "--seed", 1)
ROW = {
    *("distribution", "cells", "epsilon", "sample_size", "gamma", "runs", "mean_l2", "rmse"),
    *("exact_rmse", "error_bound", "tightened_bound", "mechanism"),
}


@pytest.fixture
def counts(tmp_path: Path) -> Path:
    """Write a table of 2 × 2 cells and 100 respondents."""
    path = tmp_path / "mine.csv"
    path.write_text("sex,smokes,count\nm,yes,10\nm,no,20\nf,yes,30\nf,no,40\n")
    return path


def rows(capsys: Capture, *arguments: object) -> list[dict[str, Any]]:
    """Return the rows that ``simulate --json`` prints."""
    found: list[dict[str, Any]] = json.loads(succeed(capsys, *arguments, "--json"))["rows"]
    return found


def test_plan_prints_what_it_chose(capsys: Capture) -> None:
    """The three promises, the decoys, the errors, and other ways beside it."""
    text = succeed(capsys, *PLAN, "--epsilon", 0.5)
    assert "45,222 respondents, 24 cells, ε = 0.5" in text
    for name, words in (
        ("researcher", "ε = 0.5"),
        ("… with the server", "the same"),
        ("… with a curator", "ε = 5.83212 (ln γ): the server's noise alone is left"),
        ("other readers", "ε = 0.5, for whoever sees published copies only"),
        ("take part", "each respondent with probability 0.355837, by a secret coin"),
        ("decoys", "about 138: 5.74 a cell, geometric, ratio 0.8515"),
        ("rows", "about 16,229 reach the researcher"),
        ("error", "RMSE 0.007111 over the whole table, at worst; 0.15 percentage points a cell"),
        ("mean share", "4.17% a cell"),
        ("published copy", "RMSE 0.007336"),
        ("the paper's way", "RMSE 0.05605 at m* = 1,472, γ = 20.93"),
        ("shuffling", "needs a δ above 0"),
        ("a trusted party", "RMSE 0.0006128 with Laplace noise"),
    ):
        assert re.search(rf"^{name} +{re.escape(words)} *$", text, re.MULTILINE), name
    assert max(map(len, text.splitlines())) <= 100


def test_plan_prints_decoys_with_delta(capsys: Capture) -> None:
    """In matched linkage there are decoys for patterns of absence, and one more promise."""
    options = ("--delta", 1e-6, "--linkage", "matched", "--curator-cells", "6,4")
    text = succeed(capsys, *PLAN, "--epsilon", 0.5, *options, "--epsilon-with-curator", "inf")
    for words in (
        "no promise: the server adds no noise",
        "about 1,128: 47 a cell, two-sided around 47, ratio 0.7755",
        "and 470 for those whom not all hold: 34 patterns",
        "for whether any curator holds a person",
        "RMSE 0.001723 at m = 45,222",
    ):
        assert words in text, words
    assert max(map(len, text.splitlines())) <= 100
    text = succeed(capsys, *PLAN, "--epsilon", 0.5, "--linkage", "matched")
    assert "and more for those whom not all hold: --curator-cells tells how many" in text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--mechanism", "paper"), ("ε = 0.5 (Theorem 1)", "1,222", "γ = 25.0069", "RMSE 0.05581")),
        (
            ("--mechanism", "shuffle", "--delta", 1e-6),
            ("(the secret order counts)", "45,222 respondents (100%)"),
        ),
    ],
)
def test_plan_prints_a_cut_by_rank(
    capsys: Capture, options: tuple[object, ...], words: tuple[str, ...]
) -> None:
    """And says plainly what the server and the researcher would learn together."""
    text = succeed(capsys, *PLAN, "--epsilon", 0.5, *options)
    for word in (*words, "no promise: together they read the sampled records"):
        assert word in text, word
    assert max(map(len, text.splitlines())) <= 100


def test_plan_as_json_is_the_plan(capsys: Capture) -> None:
    """Exactly what the library's plan says, under the documented names."""
    found = json.loads(succeed(capsys, *PLAN, "--epsilon", 0.5, "--json"))
    assert found == veiltab.plan(population_size=45222, domain_size=24, epsilon=0.5).as_dict()
    assert {"sample_size", "keep_threshold", "epsilon_achieved", "rmse", "paper"} <= set(found)


def test_every_option_of_plan_reaches_the_planner(capsys: Capture) -> None:
    """As if the library had been called."""
    options = ("--mechanism", "decoys", "--epsilon-with-curator", 4, "--epsilon-public", 0.3)
    more = ("--linkage", "matched", "--curator-cells", "6,4", "--max-decoys", 100)
    found = json.loads(succeed(capsys, *PLAN, "--epsilon", 0.5, *options, *more, "--json"))
    assert (
        found
        == veiltab.plan(
            population_size=45222,
            domain_size=24,
            epsilon=0.5,
            mechanism="decoys",
            epsilon_with_curator=4,
            epsilon_public=0.3,
            linkage="matched",
            curator_cells=(6, 4),
            max_decoys=100,
        ).as_dict()
    )
    assert found["epsilon_with_curator"] <= 4
    assert found["decoys"]["expected"] <= 100


def test_plan_says_when_single_cells_are_noise(capsys: Capture) -> None:
    """The table as a whole is worth while, so that it is planned."""
    command = ("plan", "--population", 20_000, "--cells", 10_000, "--epsilon", 1)
    text = " ".join(succeed(capsys, *command).split())
    assert "Warning: the error of a cell" in text
    assert "is above its mean share, 0.01%: single cells will mostly be noise" in text
    (warning,) = json.loads(succeed(capsys, *command, "--json"))["warnings"]
    assert warning in text


@for_each("delta", [2e-5, 2.3e-5, 1e-3])
def test_plan_warns_of_a_delta_above_one_in_n(capsys: Capture, delta: float) -> None:
    """Such a promise could be kept by showing one respondent's record."""
    command = (*PLAN, "--epsilon", 1, "--delta", delta)
    warnings = json.loads(succeed(capsys, *command, "--json"))["warnings"]
    found = ["is above 1/n, one in 45,222 respondents" in warning for warning in warnings]
    assert found == ([True] if delta * 45_222 > 1 else [])
    assert ("Warning: δ" in succeed(capsys, *command)) == bool(found)


def test_plan_refuses_what_says_less_than_a_guess(capsys: Capture) -> None:
    """A sample of one person; whoever insists gets it, with the same words in the plan."""
    asked = (*PLAN, "--epsilon", 0.5, "--sample-size", 1)
    outcome = run_here(capsys, *asked)
    assert "would say less than a guess: its RMSE is 0.98" in assert_refused(outcome)
    assert "--anyway" in outcome.err
    text = succeed(capsys, *asked, "--anyway")
    assert "to name the same share for every cell would be nearer to the truth" in text


def test_plan_for_a_target_error(capsys: Capture) -> None:
    """The smallest ε that reaches it."""
    command = (*PLAN, "--target-rmse", 0.05, "--mechanism", "paper", "--json")
    found = json.loads(succeed(capsys, *command))
    assert found["rmse"] <= 0.05
    assert found["rmse"] == pytest.approx(0.05, rel=1e-3)
    about = math.log1p(4 * 23 / (45222 * 0.05**2))  # from RMSE ≈ 2√((N − 1)/(nη))
    assert found["epsilon"] == pytest.approx(about, rel=0.01)


def test_plan_with_a_given_sample(capsys: Capture) -> None:
    """It is taken as it is, and γ follows from Theorem 1."""
    found = json.loads(succeed(capsys, *PLAN, "--epsilon", 0.5, "--sample-size", 1472, "--json"))
    assert found["sample_size"] == 1472
    assert found["gamma"] == pytest.approx(found["paper"]["gamma"], rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["plan.svg", "plan.png"])
def test_plan_draws_a_picture(capsys: Capture, tmp_path: Path, name: str) -> None:
    """Beside the table, which says where it is."""
    options = ("--sample-size", 1222, "--plot", tmp_path / name)
    text = succeed(capsys, *PLAN, "--epsilon", 0.5, *options)
    assert f"\nPicture: {tmp_path / name}\n" in text
    data = (tmp_path / name).read_bytes()
    if name.endswith(".svg"):
        assert "m* = 1,472" in "".join(ET.fromstring(data.decode()).itertext())  # noqa: S314
    else:
        assert data.startswith(b"\x89PNG\r\n\x1a\n")


@pytest.mark.slow
def test_plan_draws_beside_json_too(capsys: Capture, tmp_path: Path) -> None:
    """The output stays one JSON object."""
    path = tmp_path / "plan.svg"
    json.loads(succeed(capsys, *PLAN, "--epsilon", 1, "--plot", path, "--json"))
    assert path.exists()


def test_simulate_prints_a_table(capsys: Capture) -> None:
    """One line a setting, and the seed to repeat it."""
    text = succeed(capsys, *SIMULATE, "--epsilon", 0.5, "--epsilon", 1)
    lines = text.splitlines()
    assert lines[0].split()[:6] == ["data", "mechanism", "cells", "ε", "δ", "rows"]
    assert [line.split()[:6] for line in lines[1:3]] == [
        ["adult", "paper", "24", "0.5", "0", "1,222"],
        ["adult", "paper", "24", "1", "0", "3,238"],
    ]
    assert "20 simulated releases a row, seed 1" in lines


def test_simulate_all_mechanisms(capsys: Capture) -> None:
    """Side by side, with δ = 0 and a small δ where that is of use; the lines fit a screen."""
    command = (*SIMULATE, "--epsilon", 0.5, "--mechanism", "all")
    simulated = rows(capsys, *command)
    assert [(row["mechanism"], row["delta"]) for row in simulated] == [
        *(("paper", 0), ("shuffle", 1e-6), ("decoys", 0), ("decoys", 1e-6)),
    ]
    errors = [row["exact_rmse"] for row in simulated]
    assert errors[0] > errors[2] > errors[1] > errors[3]
    assert [row["sample_size"] for row in simulated] == [1222, 45222, None, None]
    assert all(row["gamma"] > 1 for row in simulated)
    text = succeed(capsys, *command, "--epsilon-with-curator", "inf")
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[3].split()[:7] == ["adult", "decoys", "24", "0.5", "0", "16,229", "–"]
    alone = rows(capsys, *command, "--epsilon-with-curator", "inf")
    assert [row["gamma"] for row in alone[2:]] == [None, None]
    assert alone[2]["exact_rmse"] < simulated[2]["exact_rmse"]
    chosen = ("--mechanism", "decoys", "--delta", 0, "--delta", 1e-8)
    several = rows(capsys, *SIMULATE, "--epsilon", 0.5, *chosen)
    assert [row["delta"] for row in several] == [0, 1e-8]


def test_simulate_rows_have_the_documented_names(capsys: Capture) -> None:
    """And the values that were asked for."""
    options = ("--distribution", "peaky", "--cells", 48, "--population", 5000)
    [row] = rows(capsys, *SIMULATE, *options, "--epsilon", 1, "--sample-size", 100)
    assert set(row) >= ROW
    assert (row["distribution"], row["cells"], row["epsilon"]) == ("peaky", 48, 1)
    assert (row["sample_size"], row["runs"]) == (100, 20)
    assert row["gamma"] == pytest.approx(1 + 5000 / 100 * 1.718281828, rel=1e-8)
    assert 0 < row["mean_l2"] <= row["rmse"] < row["error_bound"]


def test_simulate_runs_every_combination(capsys: Capture) -> None:
    """Data by ε by sample size, in the order in which they were given."""
    found = rows(
        capsys,
        *(*SIMULATE, "--distribution", "uniform", "--distribution", "linear"),
        *("--epsilon", 0.5, "--epsilon", 0.1, "--sample-size", 50, "--sample-size", 20),
    )
    places = [(row["distribution"], row["epsilon"], row["sample_size"]) for row in found]
    assert places == [
        (name, epsilon, size)
        for name in ("uniform", "linear")
        for epsilon in (0.5, 0.1)
        for size in (50, 20)
    ]


@pytest.mark.parametrize("engine", ["counts", "records"])
def test_simulate_repeats_itself_with_a_seed(capsys: Capture, engine: str) -> None:
    """The same seed prints the same bytes; another one, other errors."""
    command = ("simulate", "--runs", 3, "--epsilon", 1, "--engine", engine, "--json", "--seed")
    first, again = succeed(capsys, *command, 5), succeed(capsys, *command, 5)
    assert first == again
    other = json.loads(succeed(capsys, *command, 6))
    assert other["rows"][0]["rmse"] != json.loads(first)["rows"][0]["rmse"]
    assert (other["seed"], other["engine"]) == (6, engine)


def test_the_engines_are_not_the_same(capsys: Capture) -> None:
    """With one seed they draw different releases, of the same theory."""
    command = ("simulate", "--runs", 3, "--seed", 1, "--epsilon", 1, "--engine")
    [by_counts], [by_records] = rows(capsys, *command, "counts"), rows(capsys, *command, "records")
    assert by_counts["rmse"] != by_records["rmse"]
    assert by_counts["exact_rmse"] == by_records["exact_rmse"]


def test_simulate_draws_a_seed_and_tells_it(capsys: Capture) -> None:
    """Two runs differ, and the seed of the first repeats it."""
    command = ("simulate", "--runs", 3, "--epsilon", 1, "--json")
    first, second = succeed(capsys, *command), succeed(capsys, *command)
    assert first != second
    assert succeed(capsys, *command, "--seed", json.loads(first)["seed"]) == first


@pytest.mark.parametrize("engine", ["counts", "records"])
def test_simulate_on_a_table_of_ones_own(capsys: Capture, counts: Path, engine: str) -> None:
    """The file's name stands for the data; stating its size rightly changes nothing."""
    command = (*SIMULATE, "--counts", counts, "--epsilon", 1, "--engine", engine)
    [row] = rows(capsys, *command)
    assert (row["distribution"], row["cells"]) == ("mine.csv", 4)
    assert [row] == rows(capsys, *command, "--cells", 4, "--population", 100)
    # ‖T‖² = 0.3 for shares 0.1, 0.2, 0.3 and 0.4
    exact = veiltab.plan(population_size=100, domain_size=4, epsilon=1, mechanism="paper")
    assert row["exact_rmse"] < exact.rmse


def test_a_file_name_is_printed_as_it_is(capsys: Capture, counts: Path) -> None:
    """Brackets in a name are no markup."""
    odd = counts.rename(counts.with_name("[bold]odd[green].csv"))
    text = succeed(capsys, *SIMULATE, "--counts", odd, "--epsilon", 1)
    assert text.splitlines()[1].startswith("[bold]odd[green].csv ")


def test_reproduce_for_people_and_for_programs(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A verdict for every claim, and where to look first; the same as JSON.

    The experiments are not run here: the page on reproducing the paper runs the command as it is.
    """
    calls = []
    files = [tmp_path / name for name in ("figure-1.svg", "figure-1.png", "results.csv")]
    claims = [
        Claim(1, "it is small", "7% at most", holds=True),
        Claim(None, "it is exact", "3% off", holds=False),
    ]

    def reproduce(folder: Path, *, runs: int, seed: int, track: object) -> Reproduction:
        calls.append((folder, runs, seed, track is not None))
        return Reproduction(files, claims)

    monkeypatch.setattr("veiltab.paper.reproduce.reproduce", reproduce)
    text = succeed(capsys, "reproduce", "--out", tmp_path / "paper", "--runs", 50, "--seed", 3)
    assert calls == [(tmp_path / "paper", 50, 3, True)]
    heading, *lines = [line.rstrip().split(maxsplit=2) for line in text.splitlines() if line]
    assert heading[:2] == ["figure", "holds"]
    assert lines[:4] == [
        ["1", "yes", "it is small"],
        ["7%", "at", "most"],
        ["all", "no", "it is exact"],
        ["3%", "off"],
    ]
    assert text.splitlines()[-1] == f"3 files in {tmp_path / 'paper'}.  Start with {files[1]}"
    shown = json.loads(succeed(capsys, "reproduce", "--out", tmp_path / "paper", "--json"))
    assert shown == {
        "files": [str(path) for path in files],
        "claims": [
            {"figure": 1, "claim": "it is small", "measured": "7% at most", "holds": True},
            {"figure": None, "claim": "it is exact", "measured": "3% off", "holds": False},
        ],
    }


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ([], ("plan", "simulate", "reproduce", "--version")),
        (["plan"], ("--population", "--cells", "--epsilon", "--target-rmse", "--plot", "--json")),
        (["simulate"], ("--counts", "--distribution", "--engine", "--runs", "--seed", "--json")),
        (["reproduce"], ("--out", "--runs", "--seed", "--json")),
        (["serve"], ("--data", "--port", "--tls-cert", "--behind-proxy", "--json")),
        (["server", "invite"], ("--data", "--days", "--list", "--json")),
        (["id"], ("new", "show", "fingerprint")),
        (["id", "new"], ("--name", "--no-passphrase", "--passphrase-file", "--home", "--json")),
        (["id", "show"], ("--public", "--out", "--home", "--json")),
        (["id", "fingerprint"], ("FILE", "--json")),
        (["register"], ("URL", "--invitation-file", "--server-fingerprint", "--json")),
        (["ledger"], ("show", "set")),
        (["ledger", "show"], ("--home", "--json")),
        (["ledger", "set"], ("DATASET", "--epsilon", "--largest-epsilon", "--json")),
        (["study"], ("example", "propose", "list", "show", "sign", "status", "abort")),
        (["study", "example"], ("--json",)),
        (["study", "propose"], ("--dataset", "--from", "--recode-out", "--json")),
        (["study", "list"], ("--home", "--json")),
        (["study", "show"], ("STUDY", "--json")),
        (["study", "sign"], ("STUDY", "--dataset", "--yes", "--json")),
        (["study", "status"], ("STUDY", "--wait", "--timeout", "--json")),
        (["study", "abort"], ("STUDY", "--reason", "--yes", "--json")),
        (["push"], ("STUDY", "--table", "--query", "--id", "--recode", "--dry-run", "--json")),
        (["push"], ("--duplicates", "refuse|first|last|identical")),
        (["recode", "draft"], ("TABLE", "--study", "--attribute", "--out", "--json")),
        (["grant"], ("STUDY", "--to", "--attribute", "--days", "--out", "--json")),
        (["estimate"], ("STUDY", "--attribute", "--grant", "--csv", "--json")),
        (["audit"], ("STUDY", "--json")),
    ],
)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help(capsys: Capture, command: list[str], words: tuple[str, ...], flag: str) -> None:
    """Every command explains itself and its options, and shows an example."""
    text = succeed(capsys, *command, flag)
    assert text.startswith(" ".join(["Usage: veiltab", *command]))
    assert all(word in text for word in words)
    assert f"veiltab {' '.join(command)}" in text.partition("\n")[2]


def test_without_a_command_there_is_help(capsys: Capture) -> None:
    """The same as with --help, and no error."""
    assert succeed(capsys) == succeed(capsys, "--help")


def test_the_version(capsys: Capture) -> None:
    """One line, as the package is installed."""
    name, version = succeed(capsys, "--version").split()
    assert name == "veiltab"
    assert version[0].isdigit()
