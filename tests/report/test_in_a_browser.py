"""The report in a real browser, from its one file: sorted, filtered, pointed at and downloaded."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Browser, Page

from tests.support.browsing import axe_faults, chromium, layout_faults
from tests.support.estimates import adult_to_show, odd_estimate, released_estimate
from veiltab.core.resampling import apportion
from veiltab.core.schema import Attribute, CountTable, Schema
from veiltab.estimates import Estimate

pytestmark = pytest.mark.slow


def seven_by_five() -> Estimate:
    """Return the estimate of a table that is wide, with one name longer than a line."""
    regions = ("North West", "Yorkshire and the Humber", "Donaudampfschifffahrtsgesellschaft",
               "East Midlands", "Wales", "Scotland", "عمر")  # fmt: skip
    incomes = ("lowest", "second", "third", "fourth", "highest of them all")
    schema = Schema([Attribute("region", regions), Attribute("income group", incomes)])
    weights = np.outer([5.0, 4, 3, 2, 2, 1, 1], [1.0, 2, 3, 2, 1]) + np.eye(7, 5) * 4
    return released_estimate(CountTable(schema, apportion(weights.reshape(-1), 50_000)), 2.0)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Return the browser, one for all."""
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def adult(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a report of 24 cells."""
    path = tmp_path_factory.mktemp("adult") / "report.html"
    adult_to_show().report(path)
    return path


@pytest.fixture
def page(browser: Browser, adult: Path) -> Iterator[Page]:
    """Return the report, open; afterwards nothing was refused, and nothing was asked of anybody."""
    yield from opened(browser, adult)


def opened(browser: Browser, path: Path, width: int = 1024) -> Iterator[Page]:
    """Open a file; afterwards the browser has not complained, and nothing else was loaded."""
    context = browser.new_context(viewport={"width": width, "height": 900}, accept_downloads=True)
    complaints: list[str] = []
    asked: list[str] = []
    context.on("console", lambda message: complaints.append(message.text))
    context.on("weberror", lambda error: complaints.append(str(error.error)))
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    page.goto(path.as_uri())
    yield page
    assert complaints == []
    assert [url for url in asked if url != path.as_uri() and not url.startswith("blob:")] == []
    context.close()


def rows(page: Page) -> list[str]:
    """Return the names of the cells that are shown, in their order."""
    shown = page.locator("#joint tbody tr:visible:has(td) th[scope=row]")
    return [" ".join(name.split()) for name in shown.all_inner_texts()]


def shares(page: Page) -> list[float]:
    """Return the shares that are shown, in their order."""
    shown = page.locator("#joint tbody tr:visible td.number b").all_inner_texts()
    return [float(re.sub("[^0-9.]", "", text.replace("−", "-"))) for text in shown]


def test_the_joint_table_is_open(page: Page) -> None:
    """Every cell is there without a click, and so are the fields to explore it."""
    assert page.locator("#joint").is_visible()
    assert len(rows(page)) == 24
    assert page.get_by_label("Filter").is_visible()


def test_sort_and_filter(page: Page) -> None:
    """By the size of shares; by words of any attribute, together; and back."""
    before = rows(page)
    page.get_by_label("Order").select_option("largest shares first")
    assert shares(page) == sorted(shares(page), reverse=True)
    page.get_by_label("Order").select_option("smallest shares first")
    assert shares(page) == sorted(shares(page))
    page.get_by_label("Filter").fill("college FEMALE")
    assert 0 < len(rows(page)) < 24
    assert all("college" in name and "female" in name for name in rows(page))
    assert page.locator("#found").inner_text() == f"{len(rows(page))} of 24 cells"
    page.get_by_label("Filter").fill("nowhere")
    assert rows(page) == []
    page.get_by_label("Filter").fill("")
    page.get_by_label("Order").select_option("the study's order")
    assert rows(page) == before


def test_by_keyboard_alone(page: Page) -> None:
    """From the top of the page to the filter, the order, and the button."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "filter":
            break
    page.keyboard.type("married")
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.value") == "largest"
    page.keyboard.press("Tab")
    assert all("married" in name for name in rows(page))
    assert shares(page) == sorted(shares(page), reverse=True)
    with page.expect_download():
        page.keyboard.press("Enter")


def test_point_at_a_row(page: Page) -> None:
    """Its errors are shown beside the pointer, within the window, and go away with Escape."""
    card = page.locator(".hover")
    assert card.is_hidden()
    row = page.locator("#joint tbody tr:has(td)").nth(3)
    row.hover()
    assert "standard error" in card.inner_text()
    assert "sampling" in card.inner_text()
    box = card.bounding_box()
    assert box is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 1024
    page.keyboard.press("Escape")
    assert card.is_hidden()


def test_download_what_is_shown(page: Page, tmp_path: Path) -> None:
    """As a CSV file with all digits, in the order and with the filter of the page."""
    page.get_by_label("Filter").fill("female")
    page.get_by_label("Order").select_option("largest shares first")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as CSV").click()
    file = tmp_path / download.value.suggested_filename
    download.value.save_as(file)
    assert file.name == "cells.csv"
    table = list(csv.DictReader(file.read_text("utf-8-sig").splitlines()))
    assert len(table) == len(rows(page)) == 12
    assert {row["gender"] for row in table} == {"female"}
    taken = [float(row["share"]) for row in table]
    assert taken == sorted(taken, reverse=True)
    assert [round(100 * share, 2) for share in taken] == shares(page)


def test_no_name_is_a_formula_in_a_download(browser: Browser, tmp_path: Path) -> None:
    """As in the other files of CSV: what a spreadsheet would compute has an apostrophe."""
    names = [Attribute("=A1", ["@x", "-1", "-1-2"]), Attribute("b", ['a;"=B1', "-1 to <0"])]
    counts = CountTable(Schema(names), np.full(6, 250))
    released_estimate(counts, 3.0).report(tmp_path / "report.html")
    for page in opened(browser, tmp_path / "report.html"):
        with page.expect_download() as download:
            page.get_by_role("button", name="Download as CSV").click()
        download.value.save_as(tmp_path / "cells.csv")
    head, *cells = csv.reader((tmp_path / "cells.csv").read_text("utf-8-sig").splitlines())
    assert head[:2] == ["'=A1", "b"]
    assert {row[0] for row in cells} == {"'@x", "-1", "'-1-2"}
    assert {row[1] for row in cells} == {"a;\"'=B1", "-1 to <0"}


@pytest.mark.parametrize("make", [adult_to_show, seven_by_five, odd_estimate])
def test_nothing_is_cut_off_or_broken(browser: Browser, tmp_path: Path, make: object) -> None:
    """From a narrow window to a wide one, in tables and in charts; nor is any word broken."""
    path = tmp_path / "report.html"
    make().report(path)  # type: ignore[operator]
    for page in opened(browser, path):
        assert layout_faults(page) == []


def test_no_serious_fault_of_accessibility(page: Page) -> None:
    """In light and in dark."""
    assert axe_faults(page) == []


def test_nobody_reaches_for_anything_sideways(browser: Browser, adult: Path) -> None:
    """At 360 px, no part of the page has to be scrolled sideways, but for columns of numbers."""
    for page in opened(browser, adult, width=360):
        wide = page.evaluate(
            "[...document.querySelectorAll('.scroll')]"
            ".filter(one => one.checkVisibility() && one.scrollWidth > one.clientWidth + 1)"
            ".map(one => one.getAttribute('aria-label'))"
        )
        assert wide == []
        page.get_by_label("Filter").fill("female")
        assert len(rows(page)) == 12
