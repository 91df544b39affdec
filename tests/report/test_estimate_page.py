"""The report of an estimate: valid, whole in itself, right, and readable by everybody."""

import math
import re
import time
from collections import Counter
from dataclasses import replace
from importlib.resources import files
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
from veiltab.data.counts import adult_table
from veiltab.estimates import Estimate, Provenance
from veiltab.rehearsal import simulate
from veiltab.report.formatting import between, percent
from veiltab.report.html import SHADES, Scale, heat_map
from veiltab.report.page import estimate_page
from veiltab.report.view import ReportOptions, Row, ShownTable, view_release

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
    """Return the page of an estimate."""
    return estimate_page(view_release(estimate, origin, options or ReportOptions()), MADE)


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
    """No script, no source, no style from elsewhere; links stay on the page."""
    assert not any_page.every("script")
    assert not any_page.every("img")
    assert not any_page.every("link")
    for each in any_page.all():
        assert not {"src", "srcset", "onload", "onclick"} & set(each.attributes)
        assert each.attributes.get("href", "#").startswith("#")
    [style] = any_page.every("style")
    assert not re.search(r"url\(|@import|https?:", style.text)
    policy = [m.attributes for m in any_page.every("meta") if "http-equiv" in m.attributes]
    assert policy[0]["content"] == "default-src 'none'; style-src 'unsafe-inline'"


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
    assert "not estimable" in read_page(page_of(adult_to_show(0.02))).text


def test_the_numbers_of_every_table(estimate: Estimate, page: Element) -> None:
    """Cells, marginals, pairs and groups are those of the estimate, with their intervals."""
    frames = [
        estimate.table(),
        *(estimate.marginal(name).table() for name in estimate.schema.names),
        estimate.marginal(["gender", "salary"]).table(),
        estimate.conditional("salary", "gender"),
        estimate.conditional("gender", "salary"),
    ]
    cells = Counter(cell.text for cell in page.every("td"))
    for frame in frames:
        for share, low, high in frame.select("share", "low", "high").iter_rows():
            assert cells[f"{percent(share)} {between(low, high)}"] >= 1


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
    assert "All intervals of one table hold together with 95 % confidence" in together
    assert "They are not simultaneous" not in together
    assert "salary within each group of gender: share of the group and pointwise 95 % interval" in (
        read_page(together).text
    )


def test_the_parts_of_the_error(page: Element) -> None:
    """Both are explained, and their shares of the variance add up."""
    [section] = [s for s in page.every("section") if s.attributes["aria-labelledby"] == "errors"]
    assert "Sampling error arises because" in section.text
    parts = re.findall(r"(\d+\.\d) %", section.text)
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
    assert not page.every("script")
    labels = {cell.text for cell in page.every("th")}
    assert set(ODD) <= labels
    assert {e.name for e in page.all()} <= {*"abg", *_NAMES.split()}


_NAMES = """html head meta title style body main header section nav footer h1 h2 h3 p ul li strong a
bdi wbr div span table caption thead tbody tr th td b svg rect line text desc details summary figure
figcaption code"""


@pytest.mark.parametrize(("rows", "closed"), [(30, False), (31, True), (400, True), (401, True)])
def test_a_long_table_is_closed_and_a_short_one_open(rows: int, closed: bool) -> None:  # noqa: FBT001 - a case
    """Whoever wants to see many rows opens them; of more than 400 there are the largest."""
    page = read_page(page_of(long_estimate(rows)))
    summaries = [each.every("summary")[0].text for each in page.every("details")]
    shown = rows if rows <= 400 else 60
    assert (f"The {shown} cells" in summaries) == closed
    assert ("too many for a page" in page.text) == (rows > 400)


@pytest.mark.slow
def test_many_attributes() -> None:
    """All pairs are tested, the clearest ones drawn, and the page says so."""
    text = page_of(adult_to_show(cells=768))
    assert "Below are 10 of the 36 tested pairs" in text
    assert "the 60 largest of 768 cells" in text
    assert len(text) < 1_000_000


@pytest.mark.slow
def test_a_million_cells() -> None:
    """Seconds, a small page, the largest cells, and words about the others."""
    estimate = million_cells()
    start = time.monotonic()
    text = page_of(estimate)
    assert time.monotonic() - start < 30
    assert len(text) < 300_000
    page = read_page(text)
    assert "the 40 largest of 100 categories" in page.text
    assert "the 60 largest of 1,000,000 cells" in page.text
    assert "The joint table has 1,000,000 cells, too many for a page" in page.text


def test_the_size_of_an_ordinary_page(text: str) -> None:
    """24 cells take far less than a megabyte."""
    assert len(text.encode()) < 200_000


@pytest.mark.parametrize(
    ("shares", "ticks"),
    [
        ([0.448, 0.0879], [0, 0.2, 0.4, 0.6]),
        ([1.0], [0, 0.25, 0.5, 0.75, 1]),
        ([-0.03, 0.3], [-0.1, 0, 0.1, 0.2, 0.3]),
        ([0.0], [0, 0.25]),
        ([], [0, 0.25]),
        ([1e-6], [0, 2.5e-7, 5e-7, 7.5e-7, 1e-6]),
    ],
)
def test_axes(shares: list[float], ticks: list[float]) -> None:
    """They hold every number, begin and end at a round one, and have a tick at zero."""
    scale = Scale.over([_row(share) for share in shares])
    assert scale.ticks == pytest.approx(ticks)
    for share in shares:
        assert 0 <= float(scale.place(share).rstrip("%")) <= 100


def _row(share: float) -> Row:
    return Row(("x",), share, 0.01, 0.0, 0.01, share, share)


def test_shades_follow_the_shares() -> None:
    """The largest share has the strongest shade; nobody has the palest; below zero too."""
    shares = {("a", "c"): 0.6, ("a", "d"): 0.3, ("b", "c"): 0.1, ("b", "d"): -0.01}
    rows = tuple(Row(labels, x, 0.01, 0.0, 0.01, x, x) for labels, x in shares.items())
    heat = read_page(
        f"<!doctype html><html>{heat_map('words', ShownTable(('x', 'y'), rows, 4))}</html>"
    )
    classes = [cell.attributes["class"] for cell in heat.every("tbody")[0].every("td")]
    assert classes == ["shade-6", "shade-3", "shade-1", "shade-0"]
    assert heat.every("div")[-1].attributes["aria-label"].endswith("60.00 % (strongest).")


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(first: str, second: str) -> float:
    dark, light = sorted(_luminance(color) for color in (first, second))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_can_be_told_apart(scheme: int) -> None:
    """Text has contrast, in both schemes; shades differ in lightness, not in hue alone."""
    style = (files("veiltab.report") / "page.css").read_text("utf-8")
    block = re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)[scheme]
    colors = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    for text in ("text", "muted", "accent"):
        for page in ("page", "card"):
            assert _contrast(colors[text], colors[page]) >= 4.5
    shades = [colors[f"shade-{number}"] for number in range(SHADES)]
    on = ["on-pale"] * 4 + ["on-4"] + ["on-strong"] * 2
    for shade, text in zip(shades, on, strict=True):
        assert _contrast(shade, colors[text]) >= 4.5
    lightness = [_luminance(shade) for shade in shades]
    assert lightness == sorted(lightness, reverse=scheme == 0)
    assert all(_contrast(a, b) >= 1.12 for a, b in pairwise(shades))
    assert _contrast(colors["privacy"], colors["sampling"]) >= 1.5
    assert _contrast(colors["bar"], colors["whisker"]) >= 3
