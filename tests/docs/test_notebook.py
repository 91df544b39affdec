"""The example notebooks run from the top, and show what they say that they show."""

from pathlib import Path

import pytest

from tests.support.notebooks import EXAMPLES, execute, read, texts

NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
LARGEST = 300_000
REMEDY = "look at the difference; if it is right, run `python -m tests.support.notebooks`"

notebooks = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def test_there_are_notebooks() -> None:
    """The tests below would be silent about none."""
    assert [path.name for path in NOTEBOOKS] == ["adult.ipynb"]


@pytest.mark.slow
@notebooks
def test_a_notebook_shows_what_is_stored_in_it(path: Path) -> None:
    """It is run in a new kernel without an error, and every word comes out as it is stored."""
    stored, run = read(path), execute(path)
    for before, after in zip(stored.cells, run.cells, strict=True):
        assert texts(before) == texts(after), f"{path.name}, cell {before.id}: {REMEDY}"


@notebooks
def test_a_stored_notebook_is_whole(path: Path) -> None:
    """Every cell was run, in order and without an error; there are pictures; it is not large."""
    cells = [cell for cell in read(path).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    outputs = [output for cell in cells for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "execute_result"}
    assert not any(output.get("name") == "stderr" for output in outputs)
    assert sum("image/svg+xml" in output.get("data", {}) for output in outputs) >= 3
    assert path.stat().st_size < LARGEST
