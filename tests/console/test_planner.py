"""The planner's page: every mechanism for what is typed, mistakes in its words, a link onwards."""

import re
from collections.abc import Iterator
from html import unescape
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.support.cases import for_each
from tests.support.pages import Browser, party_browser, plain
from veiltab.console.pages.planner import Asked, _ways
from veiltab.core.planner import Question
from veiltab.party.home import Home


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Return a browser on a new home, which needs no server to plan."""
    home = Home(tmp_path_factory.mktemp("planner") / "home")
    home.create("City hospital")
    with party_browser(home.path) as opened:
        yield opened


def test_all_mechanisms_side_by_side(browser: Browser) -> None:
    """With the intervals of the cells that somebody has named, and what a curator could learn."""
    text = browser.get("/plan?population=45222&sizes=3,2,2,2&epsilon=0.5&delta=1e-6&shares=25, 5")
    shown = plain(text)
    for words in (
        "24 cells, 45,222 respondents",
        "Decoys ± 0.0",
        "The paper's way ± ",
        "Shuffling about ± ",
        "A trusted party ± ",
        "the researcher, and the researcher with the server",
        "If a curator helps ε = ",
        "about 1,12",
    ):
        assert words in shown, words
    assert text.count("<rect ") == 2 * 4
    ends = re.findall(r'<td class="number">([0-9.]+)%</td><td class="number">([0-9.]+)%', text)
    assert len(ends) == 2 * 4
    assert all(float(low) < float(high) for low, high in ends)  # none is rounded away
    links = [unescape(href) for href in re.findall(r'href="(/propose[?][^"]*)"', text)]
    carried = [parse_qs(urlsplit(link).query) for link in links]
    assert [one["mechanism"] for one in carried] == [["decoys"], ["paper"], ["shuffle"]]
    assert [one["delta"] for one in carried] == [["1e-6"], ["0"], ["1e-6"]]
    for one in carried:
        assert one["population"] == ["45222"]
        assert one["sizes"] == ["3,2,2,2"]
    used = browser.get(links[0])
    assert 'value="45222"' in used
    assert used.count("planned: ") == 4


def test_without_a_delta_shuffling_says_what_it_needs(browser: Browser) -> None:
    """And a part of the page is enough for a change."""
    assert "Shuffling gains nothing without a delta" in plain(browser.get("/plan"))
    part = browser.client.get("/plan?epsilon=2", headers={"hx-request": "true"})
    assert part.status_code == 200
    assert "<html" not in part.text
    assert "24 cells" in plain(part.text)


MISTAKES = (
    ("population=many", "The number of respondents must be a number"),
    ("population=0", "population"),
    ("sizes=two", "how many categories each attribute has"),
    ("sizes=1", "categories of all attributes"),
    ("epsilon=-1", "epsilon"),
    ("delta=2", "delta"),
    ("epsilon_with_curator=none", "ε with a curator must be a number"),
    ("linkage=magic", "there is no choice"),
    ("shares=120", "together at most 100"),
    ("shares=60,60", "together at most 100"),
    ("shares=most", "the shares of up to"),
)


@for_each("mistake", MISTAKES)
def test_mistakes_keep_what_was_typed(browser: Browser, mistake: tuple[str, str]) -> None:
    """The page says what is wrong in the field's words, and shows it again."""
    query, words = mistake
    text = browser.get(f"/plan?{query}")
    assert words.lower() in plain(text).lower()
    assert query.partition("=")[2] in text


QUESTIONS = (
    (1_000, 24, 1.0, 1e-6),
    (1_000_000, 24, 0.1, 1e-6),
    (20_000, 24, 0.01, 1e-6),
    (20_000, 768, 1.0, 1e-6),
)


@for_each("question", QUESTIONS)
def test_shuffling_is_shown_as_it_is_or_a_little_worse(
    question: tuple[int, int, float, float],
) -> None:
    """The quick bound is never below the exact plan, and no more than 3% above it."""
    population, cells, epsilon, delta = question
    asked = Question(
        population_size=population, domain_size=cells, delta=delta, mechanism="shuffle"
    )
    exact = asked.plan_for_epsilon(epsilon).rmse
    ways = _ways(Asked(population, (cells,), epsilon, delta, None, "aligned"))
    shown = next(way for way in ways if way.mechanism == "shuffle")
    assert exact <= shown.per_cell * cells**0.5 <= 1.03 * exact
