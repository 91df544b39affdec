"""How an estimate looks in a notebook: complete, escaped, readable aloud, self-contained."""

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np

import veiltab as vt
from tests.support.estimates import ORIGIN, adult_estimate, released_estimate, shaped_table


class Outline(HTMLParser):
    """Collects what a page is made of, and checks that elements are closed in order."""

    def __init__(self) -> None:
        """Start with nothing."""
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember an element."""
        self.open.append(tag)
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        """Close the element that was opened last."""
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        """Remember the text."""
        self.text += data


def outline(html: str) -> Outline:
    """Read a page."""
    page = Outline()
    page.feed(html)
    assert page.open == []
    return page


def test_the_table_is_accessible_and_self_contained() -> None:
    """A caption, headers with a scope, and no script, style or address from elsewhere."""
    page = outline(adult_estimate()._repr_html_())
    tags = [tag for tag, _ in page.found]
    assert tags.count("caption") == 1
    assert tags.count("tr") == 25
    assert all(a.get("scope") in {"row", "col"} for tag, a in page.found if tag == "th")
    assert not {"script", "link", "img", "style", "iframe"} & set(tags)
    assert not any("src" in a or "href" in a for _, a in page.found)


def test_facts_and_promises_are_told() -> None:
    """What was sampled, who perturbed, what was promised; names are escaped."""
    html = adult_estimate()._repr_html_()
    assert "Statistics &lt;Office&gt;" in html
    text = outline(html).text
    assert "Salary & schooling" in text
    assert "of 45,222 respondents were sampled" in text
    assert "promised: ε = 1 against" in text
    assert "95% interval per cell" in text


def test_of_a_large_table_the_largest_cells_are_shown() -> None:
    """Sixty of them, the largest first, and the caption says so."""
    weights = np.arange(1.0, 101.0)
    estimate = released_estimate(shaped_table((10, 10), weights, 10**6), 3.0)
    page = outline(estimate._repr_html_())
    assert [tag for tag, _ in page.found].count("tr") == 61
    assert "the 60 largest of 100 cells" in page.text


def test_what_is_printed_has_no_counts() -> None:
    """A line in a list, and a few lines in words; the released counts are in neither."""
    estimate = released_estimate(shaped_table((2, 3), np.ones(6), 9_000), 1.0)
    other = released_estimate(shaped_table((2, 3), np.ones(6), 8_000), 1.0)
    other = replace(other, provenance=ORIGIN)  # a release of another study
    assert repr(estimate) == "<Estimate: a × b, 6 cells, paper, ε = 1>"
    first, mechanism, status, *rest = str(estimate).splitlines()
    assert first.endswith("a × b, 6 cells")
    assert "of 9,000 respondents were sampled" in mechanism
    assert status.endswith(estimate.status)
    promises = [f"  promised: {promise}" for promise in estimate.promises]
    assert rest == [*promises, *(f"  {warning}" for warning in estimate.warnings)]
    change = vt.compare(estimate, other)
    assert str(change).startswith("changes between two releases of a × b, 6 cells")
    even = estimate.calibrate({"a": {"a0": 0.5, "a1": 0.5}})
    assert repr(even) == "<CalibratedEstimate: estimate calibrated to a (greg), a × b, 6 cells>"
    for shown in (estimate, change, even, change.pooled()):
        for count in (*estimate.counts, *other.counts):
            assert str(count) not in repr(shown) + str(shown)


def test_an_estimate_of_almost_nobody_can_be_printed() -> None:
    """It says so in place of warnings about shares."""
    table = shaped_table((2, 3), np.ones(6), 30)
    estimate = vt.simulate(table, epsilon=0.5, linkage="matched", seed=1, anyway=True)
    assert str(estimate).splitlines()[-1].startswith("  almost nobody is in this release")
