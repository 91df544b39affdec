"""The explorer in a report: the joint table, which a script of the page's own sorts and filters.

The script is in the page, and the page's policy names its digest: no other script can run in it.
"""

import json
from base64 import b64encode
from functools import lru_cache
from hashlib import sha256
from importlib.resources import files

from veiltab.report.html import Html, element
from veiltab.report.view import ShownTable

ORDERS = {
    "study": "the study's order",
    "largest": "largest shares first",
    "smallest": "smallest shares first",
    "certain": "narrowest intervals first",
}


@lru_cache(maxsize=1)
def _script() -> str:
    return (files("veiltab.report") / "explore.js").read_text("utf-8")


def policy() -> str:
    """Return what the page may do: show its own style, and run its own script."""
    digest = b64encode(sha256(_script().encode()).digest()).decode()
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}';"
        " base-uri 'none'; form-action 'none'"
    )


def controls() -> Html:
    """Return what the script works with; hidden until it does."""
    options = (element("option", said, value=value) for value, said in ORDERS.items())
    return element(
        "div",
        element(
            "div",
            element("label", "Filter", for_="filter"),
            Html('<input id="filter" type="search" autocomplete="off" spellcheck="false">'),
        ),
        element(
            "div",
            element("label", "Order", for_="order"),
            element("select", *options, id="order"),
        ),
        element("button", "Download as CSV", id="download", type="button"),
        element("output", id="found", for_="filter"),
        class_="explore",
        id="explore",
        hidden="hidden",
        role="group",
        aria_label="Explore the table",
    )


def scripts(part: ShownTable, status: str) -> Html:
    """Return the cells with all their digits, and the script that shows them."""
    rows = [
        [
            *row.labels, row.share, row.standard_error, row.sampling_error, row.privacy_error,
            row.low, row.high,
        ]
        for row in part.rows
    ]  # fmt: skip
    cells = {"names": list(part.names), "rows": rows, "status": status}
    data = json.dumps(cells, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    # Names must not end the element, and no parser may take them for markup.
    for letter in "<>&":
        data = data.replace(letter, f"\\u{ord(letter):04x}")
    return Html(
        element("script", Html(data), type="application/json", id="cells")
        + element("script", Html(_script()))
    )
