"""Reads a workbook in a process of its own, and hands its sheets over as Arrow streams.

A small file can be a huge table: a cell far away, one text in a million cells, a thousand bytes
packed into one.  Its reader then ends its whole process, as it does if it has a fault.  So it has
one where there are no keys, with a limit of memory where the system knows one.

Run as ``python -m veiltab.data.workbook_reader FILE``.
"""

import json
import sys
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import polars as pl

MOST_MEMORY = 4 << 30
"""Bytes of memory that reading takes at most."""

UNREADABLE = 3
"""What the process ends with if the file is no complete workbook."""

BEGUN = b"\n"
"""The first output; without it the process did not even start."""

_MIDNIGHT = r"^([0-9]{4}-[0-9]{2}-[0-9]{2}) 00:00:00$"


def main() -> None:
    """Read the workbook that the command line names; its sheets are the output."""
    out = sys.stdout.buffer
    out.write(BEGUN)
    out.flush()
    _limit_memory()
    path = Path(sys.argv[1])
    try:
        sheets = _read(path)
    except MemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever the reader does not understand
        sys.exit(UNREADABLE)
    streams = {name: _stream(cells) for name, cells in sheets.items()}
    lengths = [(name, len(stream)) for name, stream in streams.items()]
    out.write(json.dumps(lengths).encode() + b"\n")
    for stream in streams.values():
        out.write(stream)


def _limit_memory() -> None:
    with suppress(ImportError, OSError, ValueError):  # not on Windows
        import resource  # noqa: PLC0415 - as above

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))


def _read(path: Path) -> dict[str, pl.DataFrame]:
    """Read all sheets as texts."""
    read: Any = pl.read_excel if path.suffix.lower() == ".xlsx" else pl.read_ods
    sheets: dict[str, pl.DataFrame] = read(
        path,
        sheet_id=0,
        has_header=False,
        infer_schema_length=0,  # texts, as in all files without types
        drop_empty_rows=False,  # so that rows keep their numbers
        drop_empty_cols=False,
        raise_if_empty=False,
    )
    return {name: _as_texts(cells) for name, cells in sheets.items()}


def _as_texts(cells: pl.DataFrame) -> pl.DataFrame:
    """Write dates without a time; empty texts are missing, and empty rows at the end are none."""
    if not cells.width:
        return cells
    text = pl.all().cast(pl.String).str.replace(_MIDNIGHT, "$1")
    cells = cells.select(pl.when(text != "").then(text))
    filled = cells.select(pl.any_horizontal(pl.all().is_not_null())).to_series().arg_true()
    return cells.head(int(filled[-1]) + 1 if len(filled) else 0)


def _stream(cells: pl.DataFrame) -> bytes:
    stream = BytesIO()
    cells.write_ipc_stream(stream)
    return stream.getvalue()


if __name__ == "__main__":
    main()
