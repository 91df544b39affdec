"""Where the keys of a TOML file stand: for error messages, and for files as people lay them out."""

import contextlib
import re
import tomllib
from typing import Any

Place = tuple[str | int, ...]
"""The way to a value: keys of tables and positions in lists."""

_PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""
_KEY = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*(?:\[\[\s*(?P<list>{_KEY})\s*\]\]|\[\s*(?P<table>{_KEY})\s*\])")
_ASSIGNMENT = re.compile(rf"\s*(?P<key>{_KEY})\s*=(?P<value>.*)")
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"|' + r"'[^']*'")
_TRIPLE = re.compile('"""|' + "'''")


def find_lines(text: str) -> dict[Place, int]:
    """Return the line of each key, table and table in a list, counted from 1.

    The text must be valid TOML.  Tables within one line are found by the line of their list.
    """
    scan = _Scan()
    for number, line in enumerate(text.split("\n"), start=1):
        with contextlib.suppress(tomllib.TOMLDecodeError):  # a text that only looks like a key
            scan.take(number, line)
    return scan.lines


class _Scan:
    """One pass over the lines; ``depth`` is how many brackets of a value are still open."""

    def __init__(self) -> None:
        self.lines: dict[Place, int] = {}
        self._table: Place = ()
        self._value: Place = ()
        self._counts: dict[Place, int] = {}
        self._depth = 0
        self._items = 0
        self._in_text = False

    def take(self, number: int, line: str) -> None:
        """Look at one line."""
        if self._in_text:
            self._in_text = len(_TRIPLE.findall(line)) % 2 == 0
        elif self._depth:
            self._continue(number, line)
        elif found := _HEADER.match(line):
            self._open_table(number, found)
        elif found := _ASSIGNMENT.match(line):
            self._value = (*self._table, *_parts(found["key"]))
            self._mark(self._value, number)
            self._items = 0
            self._in_text = len(_TRIPLE.findall(found["value"])) % 2 == 1
            self._count_brackets(found["value"])

    def _continue(self, number: int, line: str) -> None:
        if self._depth == 1 and line.lstrip().startswith("{"):
            self.lines[(*self._value, self._items)] = number
            self._items += 1
        self._count_brackets(line)

    def _count_brackets(self, value: str) -> None:
        bare = _QUOTED.sub("", value).partition("#")[0]
        self._depth += sum(bare.count(each) for each in "[{")
        self._depth = max(0, self._depth - sum(bare.count(each) for each in "]}"))

    def _open_table(self, number: int, found: re.Match[str]) -> None:
        parts = _parts(found["list"] or found["table"])
        if found["list"]:
            place = (*self._resolve(parts[:-1]), parts[-1])
            self._counts[place] = self._counts.get(place, -1) + 1
            self._table = (*place, self._counts[place])
        else:
            self._table = self._resolve(parts)
        self._mark(self._table, number)

    def _mark(self, place: Place, number: int) -> None:
        """Remember where a place, and what is around it, was first seen."""
        for end in range(1, len(place) + 1):
            self.lines.setdefault(place[:end], number)

    def _resolve(self, parts: tuple[str, ...]) -> Place:
        """Lead through lists of tables by way of their last table, as TOML does."""
        place: Place = ()
        for part in parts:
            place = (*place, part)
            if place in self._counts:
                place = (*place, self._counts[place])
        return place


def _parts(key: str) -> tuple[str, ...]:
    """Split a dotted key, with tomllib's own reading of quotes and escapes."""
    parts = []
    value: dict[str, Any] | int = tomllib.loads(f"{key} = 0")
    while isinstance(value, dict):
        ((part, value),) = value.items()
        parts.append(part)
    return tuple(parts)
