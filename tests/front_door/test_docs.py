"""Documentation for users imports ``veiltab``, and nothing below it."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from tests.support.cases import for_each

ROOT = Path(__file__).parents[2]
PROTOCOL = re.compile(r"docs/(spec/|explanation/protocol)")
"""The specification and the pages that go through the protocol by hand may look inside."""

BLOCK = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
DEEP = re.compile(r"\b(?:from|import)\s+veiltab\.\w|\bveiltab\.\w+\.\w+\s+import\b")


def code_blocks(page: Path) -> Iterator[str]:
    """Yield the code of a page: fenced blocks, or the cells of a notebook."""
    text = page.read_text(encoding="utf-8")
    if page.suffix == ".ipynb":
        for cell in json.loads(text)["cells"]:
            if cell["cell_type"] == "code":
                yield "".join(cell["source"])
        return
    for _, code in BLOCK.findall(text):
        yield code


PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for path in (ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/*.ipynb"))
    if not PROTOCOL.match(path.relative_to(ROOT).as_posix())
)


def test_the_walk_sees_code() -> None:
    """Pages that must have Python in them have; and a deep import would be seen."""
    seen = [page for page in PAGES if any("veiltab" in code for code in code_blocks(ROOT / page))]
    assert {"README.md", "docs/reference/python.md", "docs/howto/run-a-study-in-python.md"} <= {
        *seen
    }
    assert len(seen) >= 10
    for deep in (
        "from veiltab.core import plan",
        ">>> import veiltab.wire",
        "from veiltab.a.b import c",
    ):
        assert DEEP.search(deep)
    for fine in ("import veiltab as vt", "from veiltab import plan", ">>> veiltab.plan(1)"):
        assert not DEEP.search(fine)


@for_each("page", PAGES)
def test_no_page_imports_below_the_front_door(page: str) -> None:
    """A user imports ``veiltab``."""
    deep = [
        line for code in code_blocks(ROOT / page) for line in code.splitlines() if DEEP.search(line)
    ]
    assert deep == []
