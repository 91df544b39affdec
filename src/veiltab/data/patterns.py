"""Patterns such as ``C34*``: texts with stars, each of which stands for any text or none.

Where several patterns match a value, the most specific one counts: one that matches less than all
the others.  If there is none, the patterns contradict each other, and the value is refused.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.data.folding import folded
from veiltab.errors import SchemaError

STAR = "*"
_PART = re.compile(r"\\[*\\]|\*|[^*\\]+|\\")
_ANY = "\ud800"
"""Stands for a star where patterns are compared: no text of a table can have it."""

MOST_PATTERNS = 2_000
"""Patterns that are no prefixes: every two that match one value are compared with each other."""

NONE, AMBIGUOUS = -1, -2
"""What stands for a text that no pattern matches, and one for which patterns disagree."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """What stands before, between and after the stars; a plain text is one piece."""

    pieces: tuple[str, ...]

    @property
    def plain(self) -> bool:
        """Whether it has no star, and so matches one text only."""
        return len(self.pieces) == 1

    @property
    def prefix(self) -> str | None:
        """The text that all matches begin with, if nothing else is asked of them."""
        return self.pieces[0] if len(self.pieces) == 2 and not self.pieces[1] else None  # noqa: PLR2004

    def matches(self, text: str) -> bool:
        """Tell whether one text matches."""
        if self.plain:
            return text == self.pieces[0]
        first, *between, last = self.pieces
        start, stop = len(first), len(text) - len(last)
        if start > stop or not text.startswith(first) or not text.endswith(last):
            return False
        for piece in between:
            place = text.find(piece, start, stop)
            if place < 0:
                return False
            start = place + len(piece)
        return True

    def covers(self, other: "Pattern") -> bool:
        """Tell whether it matches whatever the other matches."""
        return self.matches(_ANY.join(other.pieces))

    def folded(self, rules: Sequence[str]) -> "Pattern":
        """Apply rules for values to the pattern; only its two ends are trimmed."""
        inner = [rule for rule in rules if rule != "trim"]
        pieces = fold_values(pl.Series(self.pieces, dtype=pl.String), inner).to_list()
        if "trim" in rules:
            pieces[0] = pl.Series(pieces[:1]).str.strip_chars_start()[0]
            pieces[-1] = pl.Series(pieces[-1:]).str.strip_chars_end()[0]
        return Pattern(tuple(pieces))

    def __str__(self) -> str:
        r"""Write it as people do; a star or backslash of the text itself has a ``\`` before it."""
        return STAR.join(escaped(piece) for piece in self.pieces)


def parse_pattern(text: str) -> Pattern:
    r"""Read a pattern: ``*`` is any text, ``\*`` a star, ``\\`` a backslash."""
    pieces = [""]
    for part in _PART.findall(text):
        if part != STAR:
            pieces[-1] += part[1] if len(part) == 2 and part[0] == "\\" else part  # noqa: PLR2004
        elif len(pieces) == 1 or pieces[-1]:  # two stars in a row are one
            pieces.append("")
    return Pattern(tuple(pieces))


def escaped(text: str) -> str:
    """Write a text as the pattern that matches it alone."""
    return text.replace("\\", "\\\\").replace(STAR, "\\*")


def fold_values(texts: pl.Series, rules: Sequence[str]) -> pl.Series:
    """Fold values, or pieces of patterns.

    At the end of a word, Greek has another small sigma; a piece of a pattern cannot know whether
    the word ends there, so that both count as one.
    """
    texts = folded(texts, rules)
    return texts.str.replace_all("ς", "σ", literal=True) if "lowercase" in rules else texts


class PatternTable:
    """Patterns with the number of each one's target, compiled to be matched with many texts."""

    def __init__(self, patterns: Iterable[tuple[Pattern, int]]) -> None:
        """Take patterns with stars."""
        self._patterns = list(patterns)
        self._prefixes: dict[int, dict[str, int]] = {}
        self._others: list[tuple[int, str]] = []
        for number, (pattern, _) in enumerate(self._patterns):
            if pattern.prefix is not None:
                length = len(pattern.prefix)
                self._prefixes.setdefault(length, {})[pattern.prefix] = number
            else:
                inner = ".*".join(pl.escape_regex(piece) for piece in pattern.pieces)
                self._others.append((number, rf"(?s)\A{inner}\z"))
        if len(self._others) > MOST_PATTERNS:
            raise SchemaError(
                f"a column has {len(self._others):,} patterns with a star elsewhere than at their"
                " end",
                hint=f"give at most {MOST_PATTERNS:,}; of those such as C34* as many as you like",
            )
        self._resolved: dict[bytes, int] = {}
        self._places = {number: place for place, (number, _) in enumerate(self._others)}
        self._covered: dict[int, NDArray[np.bool_]] = {}

    def __len__(self) -> int:
        """Count the patterns."""
        return len(self._patterns)

    def targets(self, texts: pl.Series) -> NDArray[np.int64]:
        """Return the target of each text, ``NONE`` or ``AMBIGUOUS``.

        A text's longest prefix is found for all prefixes of a length at once.  Then texts that
        match the same patterns are decided together.
        """
        prefix = self._longest_prefix(texts)
        if not self._others:
            mapped = np.array([target for _, target in self._patterns] + [NONE], dtype=np.int64)
            return mapped[prefix]
        bits = np.zeros((len(texts), (len(self._others) + 7) // 8), dtype=np.uint8)
        for place, (_, regex) in enumerate(self._others):
            bits[:, place // 8] |= (
                texts.str.contains(regex).to_numpy().astype(np.uint8) << place % 8
            )
        keys = np.hstack([prefix.astype("<i4").view(np.uint8).reshape(-1, 4), bits])
        rows = np.ascontiguousarray(keys).view(f"V{keys.shape[1]}").reshape(-1)
        sets, places = np.unique(rows, return_inverse=True)
        decided = [self._decide(key.tobytes()) for key in sets]
        return np.array(decided, dtype=np.int64)[places]

    def rivals(self, text: str) -> list[str]:
        """Return the most specific patterns that match a text, as people write them."""
        matching = [n for n, (pattern, _) in enumerate(self._patterns) if pattern.matches(text)]
        return [str(self._patterns[number][0]) for number in self._most_specific(matching)]

    def _longest_prefix(self, texts: pl.Series) -> NDArray[np.int64]:
        chosen = np.full(len(texts), NONE, dtype=np.int64)
        lengths = texts.str.len_chars().to_numpy()
        for length in sorted(self._prefixes):
            known = self._prefixes[length]
            starts = texts.str.slice(0, length)
            place = (
                starts.cast(pl.Enum(list(known)), strict=False).to_physical().fill_null(len(known))
            )
            numbers = np.array([*known.values(), NONE], dtype=np.int64)[place.to_numpy()]
            found = (numbers != NONE) & (lengths >= length)
            chosen[found] = numbers[found]
        return chosen

    def _decide(self, key: bytes) -> int:
        """Return the target for texts that match one set of patterns."""
        if key not in self._resolved:
            bits = np.unpackbits(np.frombuffer(key[4:], np.uint8), bitorder="little")
            matching = [number for (number, _), bit in zip(self._others, bits, strict=False) if bit]
            prefix = int.from_bytes(key[:4], "little", signed=True)
            if prefix != NONE:  # shorter prefixes cover the longest one
                matching.append(prefix)
            targets = {self._patterns[number][1] for number in self._most_specific(matching)}
            only = targets.pop() if targets else NONE
            self._resolved[key] = AMBIGUOUS if targets else only
        return self._resolved[key]

    def _most_specific(self, numbers: Sequence[int]) -> list[int]:
        """Return those that cover none of the others.

        There can be any number of prefixes, so they are compared with these patterns alone.
        """
        place = self._places
        among = np.array([place[number] for number in numbers if number in place], dtype=np.intp)
        prefixes = [number for number in numbers if number not in place]

        def covers_another(number: int) -> bool:
            if number not in place:
                return any(self._is_within(other, number) for other in numbers)
            if np.count_nonzero(self._covers(number)[among]) > 1:
                return True
            return any(self._is_within(prefix, number) for prefix in prefixes)

        return [number for number in numbers if not covers_another(number)]

    def _covers(self, number: int) -> NDArray[np.bool_]:
        """Tell which of the patterns that are no prefixes one of them covers, itself included."""
        if number not in self._covered:
            pattern = self._patterns[number][0]
            covered = [pattern.covers(self._patterns[other][0]) for other, _ in self._others]
            self._covered[number] = np.array(covered, dtype=np.bool_)
        return self._covered[number]

    def _is_within(self, number: int, other: int) -> bool:
        pattern, wider = self._patterns[number][0], self._patterns[other][0]
        return number != other and wider.covers(pattern)


def ambiguous(column: str, text: str, rivals: Sequence[str]) -> SchemaError:
    """Return the error for a value for which patterns disagree."""
    named = " and ".join(map(repr, rivals))
    return SchemaError(
        f"the value {text!r} of column {column!r} matches {named}, which belong to different"
        " categories, and neither is the more specific one",
        hint="list the value itself under its category, or write a pattern that is more specific"
        " than both",
    )
