"""Pages that say which test shows a claim name tests that exist."""

import re
from pathlib import Path

import pytest

from tests.support.documents import DOCUMENTS, ROOT, prose

DEFINED = {
    name
    for module in (ROOT / "tests").glob("**/*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)", module.read_text("utf-8"), re.MULTILINE)
}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_test_that_a_page_names_exists(document: Path) -> None:
    """Its file is there, and so is every function."""
    text = prose(document)
    for path in re.findall(r"`(tests/[\w/]+(?:\.py)?)`", text):
        assert (ROOT / path).exists(), path
    assert set(re.findall(r"`(test_\w+)`", text)) <= DEFINED
