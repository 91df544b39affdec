"""What a demonstration tells people: the printed story, the page, and the numbers behind them."""

import io
import math
import re
from pathlib import Path

import pytest
from rich.console import Console

from tests.support.demo import TABLE, demo_results, finished_demonstration
from veiltab.core.plan import plan
from veiltab.demo.charts import draw_charts
from veiltab.demo.page import demo_page
from veiltab.demo.results import DemoResults
from veiltab.demo.story import Story
from veiltab.paper.experiment import exact_rmse

deltas = pytest.mark.parametrize("delta", [1e-6, 0.0])


@pytest.fixture
def told(tmp_path: Path) -> list[str]:
    """Print a whole story, and return its lines."""
    return tell(tmp_path)


def tell(folder: Path, delta: float = 1e-6) -> list[str]:
    """Print a whole story on a screen of a hundred columns."""
    screen = Console(file=io.StringIO(), width=100)
    results = demo_results(delta)
    story = Story(screen, finished_demonstration(folder, delta))
    for step in (story.begin, story.enrolled, story.agreed, story.pushed, story.estimated):
        step()
    story.published()
    story.verified(results)
    story.end(results, folder / "report.html", None)
    printed = screen.file
    assert isinstance(printed, io.StringIO)
    return [line.rstrip() for line in printed.getvalue().splitlines()]


def step(lines: list[str], heading: str) -> str:
    """Return one step of the story, on one line."""
    starts = [number for number, line in enumerate(lines) if re.match(r"\d+  ", line)]
    [start] = [number for number in starts if heading in lines[number]]
    end = next((number for number in starts if number > start), len(lines))
    return " ".join(" ".join(lines[start:end]).split())


def test_the_steps_are_numbered(told: list[str]) -> None:
    """From the parties to the report; no line is wider than the screen."""
    numbers = [int(line.split()[0]) for line in told if re.match(r"\d+  \S", line)]
    assert numbers == list(range(1, 12))
    assert max(map(len, told)) <= 100
    assert "None" not in " ".join(told)


def test_the_story_compares_both_ways(told: list[str]) -> None:
    """The same ε and the same people; errors found and predicted, of the paper's way and decoys."""
    found = step(told, "What Dr. Rivera finds")
    for study in demo_results().studies:
        assert f"{study.l2_error:.5f} {study.predicted_rmse:.5f}" in found
    assert "paper, δ = 0 decoys, δ = 0 decoys, δ = 1e-6" in found
    assert "0.5 0 1,222 none 50.0%" in step(told, "The plans")
    promises = step(told, "The curators agree")
    assert "researcher and server no bound 0.5 0.5" in promises
    assert "researcher and curator 3.22 5.83" in promises


def test_the_story_says_what_server_and_researcher_read(told: list[str]) -> None:
    """The rows of the rarest cells, and what they mean."""
    text = step(told, "could read together")
    readings = demo_results().readings
    rarest = min(range(24), key=TABLE.counts.__getitem__)
    rows = " ".join(f"{reading.rows[rarest]:,}" for reading in readings)
    assert f"post-graduate degree, married, female, <=50K 48 {rows}" in text
    assert f"all cells 45,222 1,222 {sum(readings[1].rows):,} {sum(readings[2].rows):,}" in text
    assert "Adult by the paper: every row is the record of a person" in text
    assert "Adult with decoys: about 5.7 ± 6.2 rows of each cell are invented" in text


def test_the_story_has_the_published_copy(told: list[str]) -> None:
    """With its promise, and the error that its noise adds."""
    text = step(told, "a published copy")
    copy = demo_results().published
    assert "ε = 0.5 against all who only read it" in text
    assert f"published copy {copy.l2_error:.5f} {copy.predicted_rmse:.5f}" in text


def test_without_delta_there_are_two_studies(tmp_path: Path) -> None:
    """The story and the page leave the third one out."""
    assert "1e-6" not in " ".join(tell(tmp_path, delta=0.0)).replace("1e-6 of 2e-6", "")
    assert "1e-6" not in page(demo_results(0.0)).replace('<td class="number">1e-6</td>', "")
    assert demo_results(0.0).as_dict("")["with_delta"] is None


def page(results: DemoResults) -> str:
    """Return the page of some results."""
    return demo_page(results, draw_charts(results.studies, results.server.column))


@deltas
def test_the_page_has_every_number(delta: float) -> None:
    """Of all studies: estimates, errors, promises, rows that were opened, and the copy."""
    results = demo_results(delta)
    text = page(results)
    for study in results.studies:
        for cell in study.cells:
            assert (
                f"{100 * cell.share:.2f} ± {100 * cell.standard_error:.2f}".replace("-", "−")
                in text
            )
        assert f'<td class="number">{study.predicted_rmse:.5f}</td>' in text
        assert f'<td class="number">{study.l2_error:.5f}</td>' in text
    for reading in results.readings:
        for number in reading.rarest[:6]:
            assert f'<td class="number">{reading.rows[number]:,}</td>' in text
    assert '<td class="number">no bound</td>' in text
    assert results.published.digest in text
    assert "None" not in text


def test_the_page_says_how_much_less_error_decoys_leave() -> None:
    """By the exact errors for these data."""
    papers, decoys, with_delta = (study.predicted_rmse for study in demo_results().studies)
    text = page(demo_results())
    assert f"decoys leave {papers / decoys:.1f} times less error" in text
    trusted = 2 * math.sqrt(2 * 24) / (0.5 * TABLE.population_size)
    assert f"{with_delta / trusted:.2f} times its error" in text


def test_predictions_are_the_exact_errors() -> None:
    """For all mechanisms, on these data, and not for the hardest ones."""
    for study in demo_results().studies:
        chosen = plan(
            population_size=TABLE.population_size,
            domain_size=24,
            epsilon=study.epsilon,
            delta=study.delta,
            mechanism=study.plan["mechanism"],
        )
        assert study.predicted_rmse == pytest.approx(exact_rmse(chosen, TABLE))


def test_the_prediction_for_a_copy_counts_its_noise() -> None:
    """Two-sided geometric noise with ratio r = e^(−ε/2) adds 2r/(1 − r)² to a count's variance.

    In shares that is divided by (nβp)²; and the sum of all cells is known, which takes some off.
    """
    own, copy = demo_results().studies[1], demo_results().published
    ratio = math.exp(-0.25)
    noise = 2 * ratio / (1 - ratio) ** 2
    scale = 45_222 * own.plan["coin_probability"] * own.plan["keep_probability"]
    added = copy.predicted_rmse**2 - own.predicted_rmse**2
    assert 0.9 * 23 * noise / scale**2 < added < 24 * noise / scale**2


def test_the_rarest_cells_come_first() -> None:
    """By the number of people in them."""
    reading = demo_results().readings[0]
    assert [reading.people[cell] for cell in reading.rarest] == sorted(TABLE.counts.tolist())
