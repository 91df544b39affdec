"""The gallery: a page for each analysis, all of one form, and each of them in the index."""

import inspect
import re

import veiltab as vt
from tests.support.documents import ROOT, blocks, prose

GALLERY = ROOT / "docs" / "gallery"
INDEX = GALLERY / "README.md"
PAGES = sorted(page for page in GALLERY.glob("*.md") if page != INDEX)
NO_ANALYSES = {
    "as_dict",
    "design",
    "count_design",
    "figures",
    "from_counts",
    "load",
    "publisher",
    "report",
    "save",
    "shares",
    "summary",
    "to_numpy",
    "to_pandas",
    "uncertainty",
    "with_publication",
    "write_parquet",
}
"""Methods of an estimate that answer no question of their own: files, pictures and arrays."""

OWNERS = (vt.Estimate, vt.Comparison, vt.CalibratedEstimate, vt.PooledEstimate, vt.ModelFit)
"""Whatever answers questions."""

HEADINGS = ["## Call and output", "## What it assumes", "## See also"]


def test_the_index_lists_every_page_by_its_title() -> None:
    """No page is missing, and none is listed that is not there."""
    listed = dict(re.findall(r"^\| \[(.+?)\]\((.+?)\)", INDEX.read_text("utf-8"), re.MULTILINE))
    titles = {page.read_text("utf-8").splitlines()[0][2:]: page.name for page in PAGES}
    assert listed == titles


def test_every_page_has_the_same_parts() -> None:
    """A question, a call with its output, what it assumes, and where to read on."""
    for page in PAGES:
        text = prose(page)
        assert "**Question.** " in text, page.name
        assert re.findall(r"^## .*$", text, re.MULTILINE) == HEADINGS, page.name


def test_every_analysis_is_shown() -> None:
    """A method that nobody finds in the gallery is one that nobody uses."""
    shown = "".join(b.text for page in PAGES for b in blocks(page) if b.language == "python")
    called = set(re.findall(r"\.(\w+)\(", shown))
    for owner in OWNERS:
        methods = {
            name for name, member in inspect.getmembers(owner, callable) if not name.startswith("_")
        }
        assert methods - called - NO_ANALYSES == set(), owner.__name__
    assert {"compare", "pool"} <= called


def test_the_list_of_what_is_no_analysis_is_not_stale() -> None:
    """Each name on it is still a method."""
    methods = {name for owner in OWNERS for name, _ in inspect.getmembers(owner, callable)}
    assert methods >= NO_ANALYSES
