"""Draw the pictures of the documentation from real pages: ``make pictures``.

The story of :mod:`tests.support.story` is played, and photographed where a reader wants to see it.
"""

import dataclasses
import sys
import tempfile
from pathlib import Path

from tests.support.browsing import Visitor, chromium
from tests.support.servers import QUICK, make_context, running
from tests.support.story import playing
from veiltab.crypto.entropy import SystemEntropy
from veiltab.crypto.identity import PrivateIdentity

FOLDER = Path(__file__).parents[2] / "docs" / "images"
WIDTH, HEIGHT = 1100, 760
TALLER = {"shares within rows": 1240}
"""The pages that show their point further down."""
PEOPLE = 20_000

PICTURES = {
    "a proposal": "console-propose",
    "a study to sign": "console-study",
    "values without categories": "console-table",
    "shares within rows": "console-explorer",
    "the page /plan?delta=1e-6": "console-planner",
    "the page /ledger": "console-ledger",
    "operator /": "console-operator",
}
"""Which page of the story is which file."""


def photograph(visitor: Visitor, name: str) -> None:
    """Keep the upper part of a page, if the documentation shows it."""
    if name not in PICTURES:
        return
    page = visitor.page
    page.set_viewport_size({"width": WIDTH, "height": TALLER.get(name, HEIGHT)})
    page.evaluate("document.activeElement.blur(); scrollTo(0, 0)")
    page.screenshot(path=FOLDER / f"{PICTURES[name]}.png")
    sys.stdout.write(f"docs/images/{PICTURES[name]}.png\n")


def main() -> None:
    """Play the story."""
    identity = PrivateIdentity.create("Statistics bureau", SystemEntropy())
    settings = dataclasses.replace(QUICK, poll_seconds=0.5)
    with tempfile.TemporaryDirectory(prefix="tables-") as made, chromium() as browser:
        folder = Path(made)
        context = make_context(folder / "data", identity=identity, settings=settings)
        with (
            running(context) as server,
            server.context.folders.lock(),
            playing(folder, browser, server, photograph, people=PEOPLE) as story,
        ):
            story.play()


if __name__ == "__main__":
    main()
