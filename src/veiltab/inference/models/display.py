"""A fitted model as text and as HTML: what it is, and a table of coefficients."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

HEADS = ("estimate", "std. error", "sampling", "privacy", "z", "p")
KEYS = ("estimate", "standard_error", "sampling_error", "privacy_error", "z", "p_value")
NOTHING, NO_LIMIT = "–", "none"
SMALLEST = 0.0005
"""Smaller p-values are not written out."""

Facts = Sequence[tuple[str, str]]
Rows = Sequence[Mapping[str, Any]]


def as_text(facts: Facts, rows: Rows, level: float, warnings: Sequence[str]) -> str:
    """Return facts, a table with aligned columns, and the warnings."""
    heads, cells = _cells(rows, level)
    table = [heads, *cells]
    widths = [max(len(row[place]) for row in table) for place in range(len(heads))]
    lines = [_aligned(row, widths) for row in table]
    rule = "=" * len(lines[0])
    label = max(len(name) for name, _ in facts) + 2
    head = [f"{name + ':':<{label}}{value}" for name, value in facts]
    return "\n".join(
        [rule, *head, rule, lines[0], "-" * len(rule), *lines[1:], rule]
        + [f"  {warning}" for warning in warnings]
    )


def as_html(facts: Facts, rows: Rows, level: float, warnings: Sequence[str]) -> str:
    """Return the same as a list, a table and a list."""
    heads, cells = _cells(rows, level)
    listed = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    head = "".join(f'<th scope="col">{escape(name)}</th>' for name in heads)
    body = "".join(
        f'<tr><th scope="row">{escape(row[0])}</th>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in cells
    )
    notes = "".join(f"<li>{escape(warning)}</li>" for warning in warnings)
    return (
        f"<dl>{listed}</dl><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        + (f"<ul>{notes}</ul>" if notes else "")
    )


def _cells(rows: Rows, level: float) -> tuple[list[str], list[list[str]]]:
    heads = ["", *HEADS, f"[{100 * level:g}%", "interval]"]
    return heads, [_row(row) for row in rows]


def _row(row: Mapping[str, Any]) -> list[str]:
    numbers = [_number(row[key]) for key in KEYS[:-1]]
    missing = row["estimate"] is None
    ends = [
        (NOTHING if missing else NO_LIMIT) if row[key] is None else _number(row[key])
        for key in ("low", "high")
    ]
    return [str(row["term"]), *numbers, _p_value(row["p_value"]), *ends]


def _number(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"{value:.4f}" if abs(value) < 1_000 else f"{value:.4g}"  # noqa: PLR2004 - for width


def _p_value(value: float | None) -> str:
    if value is None:
        return NOTHING
    return f"<{2 * SMALLEST:g}" if value < SMALLEST else f"{value:.3f}"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    first = f"{row[0]:<{widths[0]}}"
    others = (f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))
    return "  ".join([first, *others])
