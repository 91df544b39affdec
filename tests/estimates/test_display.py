"""How an estimate looks in a notebook: complete, escaped, readable aloud, self-contained."""

from html.parser import HTMLParser

import numpy as np

from tests.support.estimates import adult_estimate, released_estimate, shaped_table


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
