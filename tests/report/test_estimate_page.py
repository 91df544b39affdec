"""The report of an estimate: valid, whole in itself, right, and readable by everybody."""

import json
import math
import re
import time
from base64 import b64encode
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pytest

from tests.support.documents import Element, read_page
from tests.support.estimates import (
    ODD,
    ORIGIN,
    adult_to_show,
    long_estimate,
    million_cells,
    odd_estimate,
)
from tests.support.explained import assert_explained
from veiltab.data.counts import adult_table
from veiltab.estimates import Estimate, Provenance
from veiltab.rehearsal import simulate
from veiltab.report.formatting import between, percent, points
from veiltab.report.glossary import plain_text
from veiltab.report.html import label
from veiltab.report.page import estimate_page
from veiltab.report.view import ReportOptions, view_release

MADE = "16 November 2026"
TOLD = replace(
    ORIGIN,
    researcher="Dr. Rivera",
    holders={"education": "Registry", "marital": "Registry", "gender": "Tax", "salary": "Tax"},
    linkage="aligned",
    pads="stream",
)
RICH_WOMEN = "salary = '>50K' and gender = 'female'"
FULL = ReportOptions(conditions=(RICH_WOMEN,))


def page_of(
    estimate: Estimate, options: ReportOptions | None = None, origin: Provenance = TOLD
) -> str:
    """Return the page of an estimate, which must say what its words mean."""
    page = estimate_page(view_release(estimate, origin, options or ReportOptions()), MADE)
    assert_explained(plain_text(page.partition("<main>")[2].partition("</main>")[0]))
    return page


@pytest.fixture(scope="module")
def estimate() -> Estimate:
    """Return the estimate that most tests show."""
    return adult_to_show()


@pytest.fixture(scope="module")
def text(estimate: Estimate) -> str:
    """Return its page."""
    return page_of(estimate, FULL)


@pytest.fixture(scope="module")
def page(text: str) -> Element:
    """Return its page, read."""
    return read_page(text)


@pytest.fixture(scope="module", params=["adult", "unbiased", "odd", "bare", "one", "empty groups"])
def any_page(request: pytest.FixtureRequest) -> Element:
    """Return pages of many kinds, read."""
    kind = request.param
    asked = {
        "adult": ReportOptions(simultaneous=True, population="super"),
        "unbiased": ReportOptions(estimator="unbiased", level=0.9),
        "odd": ReportOptions(conditions=(f"share = '{ODD[3]}'",)),
        "bare": FULL,
        "one": ReportOptions(estimator="most_likely"),
    }.get(kind, ReportOptions())
    if kind == "odd":
        found = odd_estimate()
    else:
        found = adult_to_show({"unbiased": 0.1, "empty groups": 0.02}.get(kind, 1.0))
    if kind == "bare":
        found = Estimate(found.schema, found.counts, found.plan)
    elif kind == "one":
        found = found.marginal("salary")
    origin = TOLD if kind == "adult" else found.provenance
    return read_page(page_of(found, asked, origin))


@pytest.mark.slow
def test_the_page_is_sound(any_page: Element) -> None:
    """One h1, headings in order, unique ids, and names that lead somewhere."""
    headings = [e for e in any_page.all() if re.fullmatch("h[1-6]", e.name)]
    levels = [int(each.name[1]) for each in headings]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    ids = Counter(e.attributes["id"] for e in any_page.all() if "id" in e.attributes)
    assert all(number == 1 for number in ids.values())
    for each in any_page.all():
        if "aria-labelledby" in each.attributes:
            assert each.attributes["aria-labelledby"] in ids
        if "href" in each.attributes:
            assert each.attributes["href"].removeprefix("#") in ids
    assert any_page.attributes["lang"] == "en-GB"


@pytest.mark.slow
def test_every_picture_has_words(any_page: Element) -> None:
    """Each SVG begins with a title; each table has a caption, scopes, and rows of equal length."""
    assert any_page.every("svg")
    for svg in any_page.every("svg"):
        assert svg.children[0].name == "title"
        assert svg.children[0].text.strip()
    for table in any_page.every("table"):
        assert table.children[0].name == "caption"
        assert table.children[0].text.strip()
        assert all("scope" in cell.attributes for cell in table.every("th"))
        widths = {
            sum(int(cell.attributes.get("colspan", 1)) for cell in row.children)
            for row in table.every("tr")
        }
        assert len(widths) == 1


def test_nothing_is_loaded(any_page: Element) -> None:
    """No source, no style from elsewhere; links stay on the page, and one script is its own."""
    data, script = any_page.every("script")
    assert data.attributes == {"type": "application/json", "id": "cells"}
    assert not script.attributes
    digest = b64encode(sha256(script.text.encode()).digest()).decode()
    assert not re.search(r"innerHTML|insertAdjacent|document.write|eval|fetch|XMLHttp", script.text)
    assert not any_page.every("img")
    assert not any_page.every("link")
    for each in any_page.all():
        assert not {"src", "srcset", "onload", "onclick"} & set(each.attributes)
        assert each.attributes.get("href", "#").startswith("#")
    [style] = any_page.every("style")
    assert not re.search(r"url\(|@import|https?:", style.text)
    policy = [m.attributes for m in any_page.every("meta") if "http-equiv" in m.attributes]
    assert policy[0]["content"] == (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}';"
        " base-uri 'none'; form-action 'none'"
    )


@pytest.mark.slow
def test_no_missing_numbers(any_page: Element) -> None:
    """What cannot be estimated is said so; there is no nan, no None, no infinity."""
    assert not re.search(r"\b(nan|none|inf|null)\b", any_page.every("main")[0].text.lower())


def test_no_address_of_a_network(text: str) -> None:
    """Not even in the citation, which names a number of arXiv."""
    assert not re.search(r"https?:|//", text)
    assert "arXiv:1304.4613" in text


@pytest.mark.slow
def test_a_tiny_epsilon_leaves_groups_not_estimable() -> None:
    """In words, in the place of a bar."""
    assert "not estimable" in read_page(page_of(adult_to_show(0.002))).text


def test_the_numbers_of_every_table(estimate: Estimate, page: Element) -> None:
    """Cells, marginals, pairs and groups are those of the estimate, with their intervals."""
    frames = [
        estimate.table(),
        *(estimate.marginal(name).table() for name in estimate.schema.names),
        estimate.conditional("salary", "gender"),
        estimate.conditional("gender", "salary"),
    ]
    cells = Counter(cell.text for cell in page.every("td"))
    for frame in frames:
        for share, low, high in frame.select("share", "low", "high").iter_rows():
            assert cells[f"{percent(share)} {between(low, high)}"] >= 1
    tiles = [c.text for c in page.every("td") if c.attributes.get("class", "").startswith("shade")]
    pair = estimate.marginal(["gender", "salary"]).table()
    for share, low, high in pair.select("share", "low", "high").iter_rows():
        ends = points(share), between(low, high)
        assert any((text.split()[0], text.split()[-1]) == ends for text in tiles)


def test_the_answer(estimate: Estimate, page: Element) -> None:
    """The share of a condition, its interval and both parts of its error."""
    answer = estimate.probability(RICH_WOMEN)
    assert answer.value is not None
    [section] = [s for s in page.every("section") if s.attributes["aria-labelledby"] == "answers"]
    assert RICH_WOMEN in section.text
    assert percent(answer.value) in section.text
    for error in (answer.standard_error, answer.sampling_error, answer.privacy_error):
        assert error is not None
        assert f"{100 * error:.2f}" in section.text


def test_the_promise_and_the_people(estimate: Estimate, page: Element) -> None:
    """Who, when, how much, against whom; and what is left if the order leaks."""
    text = page.text
    for known in (
        "ε = 1",
        "Statistics bureau",
        "Dr. Rivera",
        MADE,
        "held by Tax",
        "a stream cipher",
    ):
        assert known in text
    assert f"{estimate.plan.epsilon_if_order_known:.4g}" in text
    for promise in estimate.promises:
        assert promise.against[1:] in text
    assert str(ORIGIN.study) in text
    assert "3,238 of 45,222 respondents" in text


DECOY_PAGES: dict[str, dict[str, Any]] = {
    "aligned": {"epsilon_with_curator": 4.0},
    "everybody": {"delta": 1e-6, "epsilon_with_curator": math.inf},
    "matched": {"linkage": "matched"},
}


@pytest.mark.parametrize("name", DECOY_PAGES)
def test_a_report_with_decoys(name: str) -> None:
    """What was done, against whom the promise holds, and how many people there are."""
    table = adult_table(24).marginal(["gender", "salary"])
    estimate = simulate(table, epsilon=1.0, mechanism="decoys", seed=1, **DECOY_PAGES[name])
    told = Estimate.from_counts(estimate, provenance=ORIGIN)
    text = read_page(page_of(told, FULL, ORIGIN)).text
    for words in (
        "Estimates from records among decoys",
        "The curators mixed in decoys, invented records for each of the 4 cells",
        "holds against the researcher and the server together. It is computational",
        "The researcher, alone or together with the server",
        "A researcher whom a curator helps",
        "Whoever only reads published copies",
        "takes the promise from everybody",
        "Numbers of people",
        "Not for passing on",
    ):
        assert words in text
    assert "perturbed records" not in text
    assert "without anybody seeing a true record" not in text
    assert ("no limit" in text) == (name == "everybody")
    assert ("The server added no noise of its own." in text) == (name == "everybody")
    assert ("Statistics bureau, perturbed every row" in text) == (name != "everybody")
    assert ("about whether somebody is in the tables at all" in text) == (name == "matched")
    assert ("45,222 respondents" in text) == (name != "matched")
    assert ("people in common (interval" in text) == (name == "matched")
    assert ("Every respondent took part." in text) == (name == "everybody")
    assert ("Everybody took part: there is sampling error only" in text) == (name == "everybody")
    assert ("because not everybody took part" in text) == (name != "everybody")
    copy = read_page(page_of(estimate.publish(), FULL, ORIGIN)).text
    assert "Not for passing on" not in copy
    assert "Each of the 4 counts got noise of its own before publication" in copy
    assert str(estimate.publish().digest) in copy
    assert "Published copy." in copy


@pytest.mark.slow
def test_intervals_say_what_they_promise(estimate: Estimate, text: str) -> None:
    """One by one or together: never the one sold as the other."""
    assert "They are not simultaneous" in text
    assert "hold together" not in text
    together = page_of(estimate, ReportOptions(simultaneous=True))
    assert "All intervals of one table hold together with 95% confidence" in together
    assert "They are not simultaneous" not in together
    text = read_page(together).text
    assert "its share within each group of the other attribute, with pointwise 95% interval" in text
    assert "gender and salary together: share and simultaneous 95% interval" in text


def test_the_parts_of_the_error(page: Element) -> None:
    """Both are explained, and their shares of the variance add up."""
    [section] = [s for s in page.every("section") if s.attributes["aria-labelledby"] == "errors"]
    assert "Sampling error arises because" in section.text
    parts = re.findall(r"(\d+\.\d)%", section.text)
    assert float(parts[0]) + float(parts[1]) == pytest.approx(100, abs=0.11)


def test_warnings_stand_at_the_top(estimate: Estimate, page: Element) -> None:
    """Before any number that they are about."""
    [care] = [s for s in page.every("section") if s.attributes.get("class") == "care"]
    assert estimate.warnings
    assert all(warning[1:] in care.text for warning in estimate.warnings)
    status, first = page.every("section")[:2]
    assert status.attributes["aria-labelledby"] == "status"
    assert first is care


def test_odd_names_stay_text() -> None:
    """They are shown as they are, and never become elements or attributes."""
    estimate = odd_estimate()
    page = read_page(page_of(estimate, origin=replace(estimate.provenance, researcher=ODD[0])))
    headings = [e.text for e in page.every("h1") + page.every("h3")]
    assert headings == [f"{ODD[0]} & {ODD[3]}", f"{ODD[0]} × share"]
    cells = json.loads(page.every("script")[0].text)
    assert cells["names"] == list(estimate.schema.names)
    assert {row[0] for row in cells["rows"]} == set(ODD[:3])
    labels = {cell.text for cell in page.every("th")}
    assert set(ODD) <= labels
    assert {e.name for e in page.all()} <= {*"abg", *_NAMES.split()}


_NAMES = """html head meta title style body main header section nav footer h1 h2 h3 p ul li strong a
bdi wbr div span table caption thead tbody tr th td b svg rect line circle text desc details
summary figure figcaption code h4 sup ol script label input select option button output"""


@pytest.mark.parametrize(("rows", "long"), [(16, False), (17, True), (400, True), (401, True)])
def test_the_joint_table_is_open(rows: int, long: bool) -> None:  # noqa: FBT001 - a case
    """A long one is scrolled on a screen; of more than 400 cells there are the largest."""
    page = read_page(page_of(long_estimate(rows)))
    [joint] = [each for each in page.every("div") if each.attributes.get("id") == "joint"]
    assert not any(joint in details.all() for details in page.every("details"))
    assert ("many" in joint.attributes["class"]) == long
    shown = rows if rows <= 400 else 60
    assert len([row for row in joint.every("tr") if row.every("svg")]) == shown + 1
    assert ("too many for a page" in page.text) == (rows > 400)


def test_the_explorer_has_every_cell(estimate: Estimate, page: Element) -> None:
    """In the order of the rows that it sorts, with all digits; hidden until its script runs."""
    cells = json.loads(page.every("script")[0].text)
    frame = estimate.table()
    assert [row[-6] for row in cells["rows"]] == frame["share"].to_list()
    assert [row[-1] for row in cells["rows"]] == frame["high"].to_list()
    assert [row[:4] for row in cells["rows"]] == [list(row[:4]) for row in frame.iter_rows()]
    assert cells["status"] == estimate.status
    [controls] = [each for each in page.every("div") if each.attributes.get("id") == "explore"]
    assert "hidden" in controls.attributes
    ids = {each.attributes.get("id") for each in controls.all()}
    assert {"filter", "order", "download", "found"} <= ids


def test_pairs_are_open_if_their_dependence_is_clearest(page: Element) -> None:
    """The others are a click away, with their names in sight."""
    pairs = [each for each in page.every("section") if each.attributes.get("class") == "pair"]
    is_open = ["open" in pair.children[0].attributes for pair in pairs]
    assert len(pairs) == 6
    assert is_open.count(True) == 2


def test_words_are_broken_only_if_they_are_longer_than_a_line() -> None:
    """After a slash, too; the text is the same."""
    assert str(label("single/divorced")) == "<bdi>single/<wbr>divorced</bdi>"
    assert "<wbr>" not in label("post-graduate degree, or none at all")
    assert str(label("x" * 30)) == f"<bdi>{'x' * 24}<wbr>{'x' * 6}</bdi>"
    assert str(label("<" * 25)) == f"<bdi>{'&lt;' * 24}<wbr>&lt;</bdi>"


@pytest.mark.slow
def test_many_attributes() -> None:
    """All pairs are tested, the clearest ones drawn, and the page says so."""
    text = page_of(adult_to_show(cells=768))
    assert "Below are 10 of the 36 tested pairs" in text
    assert "the 60 largest of 768 cells" in text
    assert len(text) < 1_000_000


@pytest.mark.slow
def test_a_million_cells() -> None:
    """Seconds of work, a small page, the largest cells, and words about the others."""
    estimate = million_cells()
    start = time.process_time()
    text = page_of(estimate)
    assert time.process_time() - start < 30
    assert len(text) < 300_000
    page = read_page(text)
    assert "the 40 largest of 100 categories" in page.text
    assert "the 60 largest of 1,000,000 cells" in page.text
    assert "The joint table has 1,000,000 cells, too many for a page" in page.text


def test_the_size_of_an_ordinary_page(text: str) -> None:
    """24 cells take far less than a megabyte."""
    assert len(text.encode()) < 200_000
