"""Notebooks: how they are run, and what of their outputs has to come out again.

``python -m tests.support.notebooks`` runs every notebook of ``examples`` and stores what it shows.
"""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import nbclient
import nbformat
from traitlets.config import Config

from tests.support.documents import ROOT

EXAMPLES = ROOT / "examples"
TIMEOUT = 120
"""Seconds that a cell may take."""

COMPARED = ("text/plain", "text/html")
"""Pictures are left out: their bytes change with the fonts of a machine."""

QUIET = {"PYDEVD_DISABLE_FILE_VALIDATION": "1", "JUPYTER_PLATFORM_DIRS": "1"}
"""Warnings of Jupyter's own parts, about nothing that a notebook does."""


def read(path: Path) -> Any:  # noqa: ANN401 - nbformat has no types
    """Read a notebook."""
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]


def execute(path: Path) -> Any:  # noqa: ANN401 - as above
    """Run a notebook from the top in a new kernel, and return it with what it showed."""
    notebook = read(path)
    with tempfile.TemporaryDirectory() as folder, _environment(folder):
        sockets = {"transport": "ipc", "ip": str(Path(folder) / "kernel")}  # files, not ports
        client = nbclient.NotebookClient(
            notebook,
            config=Config({"ConnectionFileMixin": sockets}),
            timeout=TIMEOUT,
            coalesce_streams=True,
            resources={"metadata": {"path": folder}},
        )
        client.execute()
    for cell in notebook.cells:  # when each cell ran is nobody's business
        cell.metadata.pop("execution", None)
    notebook.metadata.language_info = {"name": "python"}
    return notebook


@contextmanager
def _environment(folder: str) -> Iterator[None]:
    """Keep the kernel away from what its user has set up, and from old warnings."""
    places = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR")
    changes = {**QUIET, **{name: str(Path(folder) / name) for name in places}}
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def texts(cell: Any) -> list[str]:  # noqa: ANN401 - as above
    """Return what a cell shows in words."""
    found = []
    for output in cell.get("outputs", []):
        if output.output_type == "stream":
            found.append(f"{output.name}: {output.text}")
        elif output.output_type == "error":
            found.append(f"{output.ename}: {output.evalue}")
        else:
            found += [output.data[kind] for kind in COMPARED if kind in output.data]
    return found


def main() -> None:
    """Store what the notebooks show today."""
    for path in sorted(EXAMPLES.glob("*.ipynb")):
        text = nbformat.writes(execute(path))  # type: ignore[no-untyped-call]
        path.write_text(f"{text}\n", "utf-8")


if __name__ == "__main__":
    main()
