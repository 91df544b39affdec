"""How raw values become categories: a curator's table rarely has the study's words in it.

These are definitions only, so that they can be checked, stored and shown before a table is read.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from veiltab.core.schema import Attribute, check_text
from veiltab.errors import SchemaError

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True, init=False)
class ValueMap:
    """Raw texts and the category of each; the key ``None`` stands for missing values.

    A value that is not listed keeps its own text, so only the exceptions need an entry.
    """

    entries: Mapping[str | None, str]

    def __init__(
        self, entries: Mapping[str | None, str] | Mapping[str, str] | Mapping[None, str]
    ) -> None:
        """Copy the entries, so that nobody can change them afterwards."""
        object.__setattr__(self, "entries", MappingProxyType(dict(entries)))
        if not self.entries:
            raise SchemaError("a value map has no entries", hint="leave it out, or list a value")
        for raw, category in self.entries.items():
            _check_raw(raw)
            check_text(category, f"the category for {raw!r}")


@dataclass(frozen=True, slots=True, init=False)
class Bins:
    """Right-open intervals between edges: below the first, ..., from the last one on.

    A value equal to an edge belongs to the interval above it.
    """

    edges: tuple[int | float, ...]

    def __init__(self, edges: Iterable[int | float]) -> None:
        """Refuse edges that leave a gap, an empty interval or no order."""
        object.__setattr__(self, "edges", tuple(_edge(edge) for edge in edges))
        if not self.edges:
            raise SchemaError("the bins have no edges", hint="give one edge for two bins")
        for lower, upper in pairwise(self.edges):
            if lower >= upper:
                raise SchemaError(
                    f"the bin edge {_text(upper)} follows {_text(lower)}",
                    hint="list the edges in strictly increasing order",
                )

    def labels(self) -> tuple[str, ...]:
        """Name the intervals: ``<40``, ``40 to <60``, ``>=60``."""
        texts = [_text(edge) for edge in self.edges]
        between = (f"{lower} to <{upper}" for lower, upper in pairwise(texts))
        return (f"<{texts[0]}", *between, f">={texts[-1]}")

    def attribute(self, name: str) -> Attribute:
        """Build the attribute whose categories are these intervals."""
        return Attribute(name, self.labels())


Rule: TypeAlias = ValueMap | Bins


def _check_raw(raw: object) -> None:
    """Allow whatever a table can hold, the empty text and control characters included."""
    if raw is None or (isinstance(raw, str) and not _LONE_SURROGATE.search(raw)):
        return
    raise SchemaError(
        f"a value map has the key {raw!r}, which no table holds as text",
        hint="write keys as text, as in '1' or 'true', and None for missing values",
    )


def _edge(edge: object) -> int | float:
    """Take a plain finite number; minus zero becomes zero, because labels show it."""
    number = edge.item() if isinstance(edge, np.generic) else edge
    if isinstance(number, bool) or not isinstance(number, int | float):
        raise SchemaError(
            f"a bin edge is {edge!r}, not a number", hint="list whole or decimal numbers"
        )
    if not _is_finite(number):
        raise SchemaError(
            "a bin edge is NaN, infinite or too large for a floating-point number",
            hint="use finite numbers; the outer bins are unbounded as they are",
        )
    return number or 0


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:
        return False


def _text(edge: float) -> str:
    return repr(edge).removesuffix(".0")
