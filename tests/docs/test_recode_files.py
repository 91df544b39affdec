"""The recode files that pages show are read as the pages say."""

from pathlib import Path

import pytest

import veiltab as vt
from tests.support.documents import ROOT, blocks
from veiltab.data.recode_file import read_recode_file

SMOKER = vt.Attribute("smoker", ["no", "yes", "unknown"])
AGE = vt.Attribute("age", ["<40", "40 to <60", ">=60", "unknown"])
DIAGNOSIS = vt.Attribute("diagnosis", ["lung cancer", "other"])
INCOME = vt.Attribute("income", ["low", "high"])


def shown(page: str, tmp_path: Path) -> vt.Recode:
    """Read the recode file of a page, for the attributes that it is about."""
    (block,) = [
        b for b in blocks(ROOT / page) if b.language == "toml" and "[attributes.age]" in b.text
    ]
    path = tmp_path / "recode.toml"
    path.write_text(block.text, encoding="utf-8")
    return read_recode_file(path, vt.Schema([SMOKER, AGE, INCOME, DIAGNOSIS]))


def test_the_object_is_the_same_as_the_file(tmp_path: Path) -> None:
    """``prepare-a-table.md`` shows one recode in both forms."""
    page = "docs/howto/prepare-a-table.md"
    (code,) = [b.text for b in blocks(ROOT / page) if "vt.Recode(" in b.text]
    session: dict[str, object] = {}
    exec(code, session)  # noqa: S102 - our own documents
    assert shown(page, tmp_path) == session["recode"]


@pytest.mark.parametrize("page", ["docs/howto/prepare-a-table.md", "docs/reference/files.md"])
def test_every_kind_of_rule_is_shown(page: str, tmp_path: Path) -> None:
    """Values, missing values, bins and columns."""
    recode = shown(page, tmp_path)
    smoker, age = recode.rules["smoker"], recode.rules["age"]
    assert isinstance(smoker, vt.ValueMap)
    assert smoker.entries[None] == "unknown"
    assert age == vt.Bins([40, 60], missing="unknown")
    assert smoker.fold == ("trim", "lowercase")
    assert recode.columns["smoker"] == "SMK_2"
