"""What somebody takes away from a view: its table, its picture, or a report."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from veiltab.console.choice import Choice
from veiltab.console.estimates import Opened
from veiltab.console.explored import (
    PAGE_ROWS,
    as_map,
    caption,
    flat,
    options,
    part,
    residuals,
    table,
)
from veiltab.core.schema import Schema
from veiltab.errors import ParameterError
from veiltab.estimates.estimate import PARQUET_KEY
from veiltab.files.spreadsheets import csv_bytes
from veiltab.inference.conditions import read_condition

if TYPE_CHECKING:
    from altair import TopLevelMixin

MOST_CHART_TILES = 144
"""Cells of a map that a picture has room for, as in a report; larger tables are lists of dots."""


@dataclass(frozen=True, slots=True)
class Download:
    """A file for the reader's disk."""

    name: str
    media: str
    data: bytes


def download(opened: Opened, choice: Choice, kind: str) -> Download:
    """Make the file of a view."""
    if kind not in KINDS:
        raise ParameterError(f"there is no download {kind!r}", hint=f"there are {', '.join(KINDS)}")
    name, media, make = KINDS[kind]
    return Download(name, media, make(opened, choice))


def _csv(opened: Opened, choice: Choice) -> bytes:
    """Write the table; a last column says in every row whether it may be passed on."""
    frame = table(opened, choice)
    name = "status"
    while name in frame.columns:
        name += " (veiltab)"
    return csv_bytes(frame.with_columns(pl.lit(opened.estimate.status).alias(name)))


def _parquet(opened: Opened, choice: Choice) -> bytes:
    """Write the table; its metadata say where it comes from, and whether it may be passed on."""
    file = BytesIO()
    note = json.dumps(opened.estimate.summary(), ensure_ascii=False, allow_nan=False)
    table(opened, choice).write_parquet(file, metadata={PARQUET_KEY: note})
    return file.getvalue()


def _svg(opened: Opened, choice: Choice) -> bytes:
    from veiltab.report.charts import chart_svg  # noqa: PLC0415 - altair is slow to load

    return chart_svg(_chart(opened, choice)).encode()


def _png(opened: Opened, choice: Choice) -> bytes:
    from veiltab.report.charts import chart_png  # noqa: PLC0415 - altair is slow to load

    return chart_png(_chart(opened, choice))


def _chart(opened: Opened, choice: Choice) -> "TopLevelMixin":
    """Draw what the page shows: a small map, or the dots of its page."""
    from veiltab.report.figures import dot_chart, heat_chart  # noqa: PLC0415 - as above

    frame = table(opened, choice)
    pages = max(1, -(-frame.height // PAGE_ROWS))
    shown = part(choice, frame, min(choice.page, pages))
    said = f"{caption(choice)}; {opened.estimate.status.partition(':')[0]}"
    if as_map(choice, frame) and frame.height <= MOST_CHART_TILES:
        return heat_chart(shown, residuals(opened, choice), options(choice), said)
    return dot_chart(flat(shown), options(choice), said)


def _report(opened: Opened, choice: Choice) -> bytes:
    """Write a report of the attributes of a view, and of those that its conditions are about."""
    conditions = [text for text in (choice.condition, choice.given) if text]
    schema = opened.estimate.schema
    asked = {name for text in conditions for name in _attributes_of(text, schema)}
    wanted = [name for name in schema.names if name in asked or name in choice.names]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "report.html"
        opened.estimate.marginal(wanted).report(
            path, conditions=conditions, level=choice.level, simultaneous=choice.simultaneous
        )
        return path.read_bytes()


def _attributes_of(text: str, schema: Schema) -> list[str]:
    """Return the attributes on which a condition depends."""
    mask = read_condition(text, schema).mask.reshape(schema.sizes)
    return [
        name
        for axis, name in enumerate(schema.names)
        if np.any(mask != np.take(mask, [0], axis=axis))
    ]


Make = Callable[[Opened, Choice], bytes]
KINDS: dict[str, tuple[str, str, Make]] = {
    "csv": ("table.csv", "text/csv; charset=utf-8", _csv),
    "parquet": ("table.parquet", "application/vnd.apache.parquet", _parquet),
    "svg": ("chart.svg", "image/svg+xml", _svg),
    "png": ("chart.png", "image/png", _png),
    "report": ("report.html", "text/html; charset=utf-8", _report),
}
"""The downloads of a view: name of the file, its type, and how it is made."""
