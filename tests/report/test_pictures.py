"""Pictures of a report: heat maps, dots with intervals, groups side by side, and footnotes."""

import re
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise

import pytest

from tests.support.documents import Element, read_page
from tests.support.estimates import adult_to_show
from veiltab.estimates import Estimate
from veiltab.report.dots import END, Scale, dot_table, key
from veiltab.report.figures import SHADES, wrapped
from veiltab.report.heat import LIMITS, heat_map, shade
from veiltab.report.html import Html
from veiltab.report.page import estimate_page
from veiltab.report.view import ReportOptions, Row, ShownTable, view_release


def read(content: Html) -> Element:
    """Read a piece of a page."""
    return read_page(f"<!doctype html><html>{content}</html>")


def row_of(
    share: float | None = 0.1,
    low: float | None = 0.05,
    high: float | None = 0.15,
    labels: tuple[str, ...] = ("x",),
) -> Row:
    """Return a row with these numbers."""
    return Row(labels, share, 0.01, 0.0, 0.01, low, high)


@pytest.fixture(scope="module")
def estimate() -> Estimate:
    """Return the estimate of two attributes."""
    return adult_to_show().marginal(["gender", "salary"])


@pytest.fixture(scope="module")
def page(estimate: Estimate) -> Element:
    """Return its page, read."""
    return read_page(estimate_page(view_release(estimate, estimate.provenance, ReportOptions())))


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
    scale = Scale.over([row_of(share, share, share) for share in shares])
    assert scale.ticks == pytest.approx(ticks)
    for share in shares:
        assert 0 <= float(scale.place(share).rstrip("%")) <= 100


def test_the_colours_of_a_heat_map_follow_the_residuals() -> None:
    """White near independence, up to four steps of one colour above it, and of another below."""
    residuals = [1.99, -1.99, 2.0, -2.0, 5.0, -10.0, 20.0, -400.0]
    assert [shade(residual) for residual in residuals] == [0, 0, 1, -1, 2, -3, 4, -4]
    labels = [(a, b) for a in ("a", "b") for b in "wxyz"]
    rows = tuple(row_of(labels=pair) for pair in labels)
    heat = read(heat_map("words", ShownTable(("first", "second"), rows, 8), residuals))
    tiles = heat.every("tbody")[0].every("td")
    assert [cell.attributes["class"].removeprefix("shade ") for cell in tiles] == [
        *("zero", "zero", "more-1", "less-1"),
        *("more-2", "less-3", "more-4", "less-4"),
    ]
    assert tiles[0].text == "10.00 5.00–15.00"
    assert tiles[2].text == "10.00 ▲ 2.0 standard errors more than under independence 5.00–15.00"
    assert "▼ 400 standard errors less than under independence" in tiles[7].text
    chips = [item for item in heat.every("li") if "shade" in item.attributes["class"]]
    assert [chip.text for chip in chips][4:6] == ["under 2", "▲ 2–5"]
    assert len(chips) == 2 * len(LIMITS) + 1


@pytest.mark.parametrize(
    ("names", "kind"),
    [
        ("abcdef", "heat"),
        ("abcdefg", "heat tight"),
        ([*"abcdef", "thirteen long"], "heat tight upright"),
    ],
)
def test_a_heat_map_with_many_columns_is_tight(names: list[str], kind: str) -> None:
    """And long names of columns stand upright, so that a page of paper holds them."""
    rows = tuple(row_of(labels=("r", name)) for name in names)
    part = ShownTable(("first", "second"), rows, len(rows))
    heat = read(heat_map("words", part, [0.0] * len(rows)))
    assert heat.every("table")[0].attributes["class"] == kind


@pytest.mark.parametrize(
    ("share", "low", "high", "at_end"),
    [
        (0.0, 0.0, 0.1, True),
        (0.009, 0.0, 0.1, True),
        (0.011, 0.0, 0.1, False),
        (0.089, 0.0, 0.1, False),
        (0.091, 0.0, 0.1, True),
        (0.2, 0.0, 0.1, True),
        (0.5, 0.5, 0.5, False),
        (0.5, None, 0.5, False),
        (None, 0.0, 0.1, False),
    ],
)
def test_points_at_the_end_of_an_interval_are_hollow(
    share: float | None,
    low: float | None,
    high: float | None,
    at_end: bool,  # noqa: FBT001 - a case
) -> None:
    """They say less than the interval, and a key says so."""
    row = row_of(share, low, high)
    assert row.at_end is at_end
    part = ShownTable(("name",), (row,), 1)
    table = read(dot_table("words", part, Scale.over(part.rows)))
    dots = [dot.attributes["class"] for dot in table.every("circle")]
    assert dots == ([] if share is None else ["d end" if at_end else "d"])
    assert ("at or near an end of its interval" in table.text) == at_end
    assert (END in read(key(part.rows)).text) == at_end


@pytest.mark.parametrize(
    ("share", "low", "high", "text", "arrows"),
    [
        (0.3, 0.2, None, "30.00% at least 20.00", "›"),
        (0.3, None, 0.4, "30.00% at most 40.00", "‹"),
        (None, 0.2, None, "at least 20.00", "›"),
        (None, 0.2, 0.4, "20.00–40.00", ""),
        (None, None, None, "not estimable", ""),
    ],
)
def test_intervals_with_one_end(
    share: float | None, low: float | None, high: float | None, text: str, arrows: str
) -> None:
    """One end is written in words, and the line goes on to the edge of the picture."""
    row = row_of(share, low, high)
    part = ShownTable(("name",), (row,), 1)
    table = read(dot_table("words", part, Scale.over(part.rows)))
    assert table.every("td")[-1].text == text
    pictures = [svg for svg in table.every("svg") if svg.attributes["class"] == "dot"]
    assert "".join(e.text for svg in pictures for e in svg.every("text")) == arrows
    pair = ShownTable(("a", "b"), (replace(row, labels=("x", "y")),), 1)
    [tile] = read(heat_map("words", pair, [0.0])).every("tbody")[0].every("td")
    assert tile.text.strip() == text.replace("%", "")


def test_words_about_rows_become_footnotes() -> None:
    """Equal words share a mark, in tables of dots and in heat maps."""
    notes = ("it is shown as zero", None, "the denominator is uncertain", "it is shown as zero")
    rows = tuple(
        replace(row_of(labels=("g", str(place))), note=note) for place, note in enumerate(notes)
    )
    part = ShownTable(("a", "b"), rows, 4)
    for shown in (dot_table("words", part, Scale.over(rows)), heat_map("words", part, [0.0] * 4)):
        piece = read(shown)
        assert [mark.text for mark in piece.every("sup")] == [" note 1", " note 2", " note 1"]
        [listed] = piece.every("ol")
        assert [item.text for item in listed.every("li")] == [
            "It is shown as zero.",
            "The denominator is uncertain.",
        ]


def test_groups_stand_side_by_side(page: Element) -> None:
    """A panel for each category, the groups as its rows, and a line at the share among all."""
    captions = {table.every("caption")[0].text: table for table in page.every("table")}
    panel = captions["salary: >50K"]
    groups = [h.text for h in panel.every("th") if h.attributes["scope"] == "row"]
    assert groups == ["male", "female"]
    lines = [e for e in panel.every("line") if e.attributes["class"] == "all"]
    assert len(lines) == 2
    assert len({line.attributes["x1"] for line in lines}) == 1
    assert "gender: male" in captions  # the other way round, in closed details


def test_the_strength_of_every_pair(estimate: Estimate, page: Element) -> None:
    """Cramér's V and its interval are in a picture and in numbers, next to the test."""
    [table] = [t for t in page.every("table") if t.attributes.get("class") == "dots strengths"]
    [row] = table.every("tbody")[0].every("tr")
    strength = estimate.cramers_v("gender", "salary")
    assert f"{strength.value:.2f} {strength.low:.2f}–{strength.high:.2f}" in row.text
    assert len(row.every("circle")) == 1
    assert f"Cramér's V: {strength.value:.2f}, 95% interval {strength.low:.2f} to" in page.text


def _luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(first: str, second: str) -> float:
    dark, light = sorted(_luminance(color) for color in (first, second))
    return (light + 0.05) / (dark + 0.05)


def _colors(scheme: int) -> dict[str, str]:
    style = (files("veiltab.report") / "page.css").read_text("utf-8")
    block = re.findall(r":root \{(.*?)\}", style, flags=re.DOTALL)[scheme]
    return dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_colours_can_be_told_apart(scheme: int) -> None:
    """Text has contrast, in both schemes; shades differ in lightness, not in hue alone."""
    colors = _colors(scheme)
    for text in ("text", "muted", "accent"):
        for page in ("page", "card"):
            assert _contrast(colors[text], colors[page]) >= 4.5
    on = ["on-pale", "on-pale", "on-pale", "on-3", "on-strong"]
    for side in ("more", "less"):
        steps = range(1, 1 + len(LIMITS))
        shades = [colors["zero"], *(colors[f"{side}-{step}"] for step in steps)]
        for color, text in zip(shades, on, strict=True):
            assert _contrast(color, colors[text]) >= 4.5
        lightness = [_luminance(color) for color in shades]
        assert lightness == sorted(lightness, reverse=scheme == 0)
        assert all(_contrast(a, b) >= 1.12 for a, b in pairwise(shades))
    assert _contrast(colors["privacy"], colors["sampling"]) >= 1.5
    for mark in ("dot", "care"):
        assert _contrast(colors[mark], colors["card"]) >= 3


def test_files_have_the_colours_of_the_page() -> None:
    """White at zero, and the same steps on both sides."""
    colors = _colors(0)
    assert colors["zero"] == "#ffffff"
    for strength, color in SHADES.items():
        name = f"{'more' if strength > 0 else 'less'}-{abs(strength)}" if strength else "zero"
        assert colors[name].upper() == color


def test_no_word_of_a_picture_is_broken() -> None:
    """Lines end after spaces, slashes and hyphens; nothing is lost."""
    name = "single/divorced/widowed or post-graduate"
    assert wrapped(name, 14).splitlines() == [
        "single/",
        "divorced/",
        "widowed or ",
        "post-graduate",
    ]
    assert wrapped("x" * 60).splitlines() == ["x" * 26, "x" * 26, "x" * 8]
    assert wrapped("a  b\u3000c -- d/ /e", 3).replace("\n", "") == "a  b\u3000c -- d/ /e"
