"""TOML files that people write: read strictly, written exactly, with errors that name the line."""

import contextlib
import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from veiltab.errors import InputError, MessageError, StudyFileError
from veiltab.wire.codec import MALFORMED_HINT, describe

T = TypeVar("T")
KeyPath = tuple[str | int, ...]
"""The way to a value: keys of tables and positions in lists."""

FILL_IN = "FILL IN"
"""What a draft says where a person has to decide."""

_FILL_IN = re.compile(r"\bFILL[ _-]?IN\b")  # also in the name of a file

LARGEST_FILE = 1 << 26
_ALIKE = 0.62
"""How alike two names are, from 0 to 1, if one was probably meant by the other."""

DEEPEST = 20
"""How deep tables and lists may lie in each other; the files that people write need six."""

_PART = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[A-Za-z0-9_-]+)"""

_KEY = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*(?:\[\[\s*(?P<list>{_KEY})\s*\]\]|\[\s*(?P<table>{_KEY})\s*\])")
_ASSIGNMENT = re.compile(rf"\s*(?P<key>{_KEY})\s*=(?P<value>.*)")
# A quote that is not closed reaches to the end of the line, so that each letter is read once: a
# search that begins anew at each quote would take hours for a line that somebody has made for it.
_QUOTED = re.compile(r'"(?:[^"\\]|\\.?)*+(?:"|$)|' + r"'[^']*+(?:'|$)|#.*")
_DOTTED = re.compile(r"""(?:\.[ \t]*(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')[ \t]*){100}""")
"""A key of more parts than anything has; tomllib takes the square of their number."""
_TRIPLE = re.compile('"""|' + "'''")

_POSITION = re.compile(r" \(at line (\d+), column (\d+)\)$")
_BARE = re.compile("[A-Za-z0-9_-]+")
_ESCAPED = re.compile('[\x00-\x1f"\\\\\x7f]')
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def read_bytes(path: Path, what: str) -> bytes:
    """Read a file that people write."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise StudyFileError(
            f"cannot read the {what} {path}: {error.strerror}",
            hint="check the path; paths in a study file start from the folder that it is in",
        ) from error
    if len(data) > LARGEST_FILE:
        raise StudyFileError(
            f"{path} has more than {LARGEST_FILE:,} bytes", hint=f"name a {what} instead"
        )
    return data


class Document:
    """A TOML file, with the lines that its keys stand on."""

    def __init__(self, data: bytes, name: str) -> None:
        """Parse the bytes; ``name`` is how errors call the file."""
        self.name = name
        try:
            text = data.decode("utf-8-sig").replace("\r\n", "\n")  # editors on Windows add both
            if _DOTTED.search(text):
                raise self._too_deep()
            self.values = tomllib.loads(text)
        except UnicodeDecodeError as error:
            raise StudyFileError(f"{name} is not UTF-8", hint="save it as UTF-8") from error
        except tomllib.TOMLDecodeError as error:
            raise self._not_toml(str(error)) from error
        except RecursionError as error:
            raise self._too_deep() from error
        except ValueError as error:  # Python reads no whole number of more than 4,300 digits
            raise StudyFileError(
                f"{name} has a number with too many digits", hint="write a shorter one"
            ) from error
        if _deeper(self.values, DEEPEST):
            raise self._too_deep()
        self._text, self._lines = text, find_lines(text)

    def error(self, place: KeyPath, problem: str, hint: str) -> StudyFileError:
        """Build the error about a key, or about the nearest table around it that has a line."""
        line = next(
            (
                self._lines[place[:end]]
                for end in range(len(place), 0, -1)
                if place[:end] in self._lines
            ),
            None,
        )
        where = f"{self.name}, line {line}" if line else self.name
        named = _spell(place)
        message = f"{where}: {named}{': ' if named else ''}{problem}"
        return StudyFileError(message, hint=hint, place=place, problem=problem)

    def find(self, words: re.Pattern[str]) -> list[tuple[int, str]]:
        """Return the lines that have these words in a key or value, or at the start of a comment.

        Each has the name of the key that it belongs to, or says that it is a comment.
        """
        places = {line: _spell(place) for place, line in self._lines.items()}
        found, key = [], ""
        for number, line in enumerate(self._text.split("\n"), start=1):
            key = places.get(number, key)
            bare, comment = _split_comment(line)
            if words.search(bare):
                found.append((number, key or "a value"))
            elif words.match(comment.lstrip("# \t")):
                found.append((number, "a comment"))
        return found

    def _too_deep(self) -> StudyFileError:
        return StudyFileError(
            f"{self.name} is nested too deeply", hint="write it as in the example"
        )

    def _not_toml(self, problem: str) -> StudyFileError:
        position = _POSITION.search(problem)
        where = f"{self.name}, line {position[1]}, column {position[2]}" if position else self.name
        if "overwrite" in problem:
            return StudyFileError(
                f"{where}: this key stands there already", hint="write each key once"
            )
        return StudyFileError(
            f"{where}: {_POSITION.sub('', problem)}",
            hint='write texts in quotes, as in title = "Smoking and income", and numbers without'
            " them, with a point, as in epsilon = 0.5",
        )


def check_filled_in(document: Document) -> None:
    """Refuse a draft that is not complete: it says FILL IN where something is missing."""
    left = document.find(_FILL_IN)
    if left:
        where = "; ".join(f"line {line} ({place})" for line, place in left)
        raise StudyFileError(
            f"{document.name} is not complete: it says {FILL_IN} on {where}",
            hint=f"write there what is asked for, and delete the words {FILL_IN}, also from"
            " comments",
        )


class TomlTable:
    """A table of a document with a fixed set of keys; each key has a hint about what to write."""

    def __init__(
        self, document: Document, place: KeyPath, value: object, keys: Mapping[str, str]
    ) -> None:
        """Refuse what is no table, and every unknown key."""
        self._document = document
        self._place = place
        self._keys = keys
        if not isinstance(value, dict):
            raise document.error(
                place, f"must be a table, not {describe(value)}", f"its keys are {_listed(keys)}"
            )
        self._values: dict[str, Any] = value
        for key in value:
            if key not in keys:
                raise self.error(key, "there is no such key here", closest(key, keys))

    def __contains__(self, key: str) -> bool:
        """Tell whether the key is given."""
        return key in self._values

    def get(self, key: str, read: Callable[[Any, str], T]) -> T:
        """Return the value of a key that must be there, read in the way that messages are."""
        if key not in self._values:
            raise self.error(key, "is missing", self._keys[key], at_table=True)
        try:
            return read(self._values[key], key)
        except (MessageError, InputError) as error:
            if isinstance(error, StudyFileError):
                raise
            hint = self._keys[key] if error.hint == MALFORMED_HINT else error.hint
            problem = error.message.removeprefix(f"{key}: ")
            raise self.error(key, problem, hint) from error

    def get_or(self, key: str, read: Callable[[Any, str], T], default: T) -> T:
        """Return the value of a key that may be left out."""
        return self.get(key, read) if key in self._values else default

    def tables(self, key: str, keys: Mapping[str, str]) -> list["TomlTable"]:
        """Return the tables of a list, at least one."""
        values = self.get(key, lambda value, _: value)
        if not isinstance(values, list) or not values:
            raise self.error(key, "must be a list of at least one table", self._keys[key])
        place = (*self._place, key)
        return [TomlTable(self._document, (*place, i), v, keys) for i, v in enumerate(values)]

    def table(self, key: str, keys: Mapping[str, str]) -> "TomlTable":
        """Return a table in this one; one that is left out is empty."""
        return TomlTable(self._document, (*self._place, key), self._values.get(key, {}), keys)

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return all keys that are given, with their values."""
        return self._values.items()

    def error(self, key: str, problem: str, hint: str, *, at_table: bool = False) -> StudyFileError:
        """Build the error about one key; ``at_table`` where it has no line, being missing."""
        if at_table and not self._place:
            message = f"{self._document.name}: {key}: {problem}"
            return StudyFileError(message, hint=hint, place=(key,), problem=problem)
        return self._document.error((*self._place, key), problem, hint)


def closest(text: str, known: Iterable[str]) -> str:
    """Suggest the known text that is closest, or list all of them."""
    names = list(known)
    close = difflib.get_close_matches(text, names, n=1, cutoff=_ALIKE)
    return f"did you mean {close[0]!r}?" if close else f"there are {_listed(names)}"


def find_lines(text: str) -> dict[KeyPath, int]:
    """Return the line of each key, table and table in a list, counted from 1.

    The text must be valid TOML.  Tables within one line are found by the line of their list.
    """
    scan = _Scan()
    for number, line in enumerate(text.split("\n"), start=1):
        with contextlib.suppress(tomllib.TOMLDecodeError):  # a text that only looks like a key
            scan.read_line(number, line)
    return scan.lines


def toml_string(text: str) -> str:
    """Write a text on one line, in quotes; any text can be put in a comment this way."""
    if _SURROGATE.search(text):
        raise StudyFileError(
            f"{text!r} has a lone surrogate, which no file can hold",
            hint="fix the text: it was read in the wrong encoding",
        )
    return f'"{_ESCAPED.sub(_escape, text)}"'


def toml_key(text: str) -> str:
    """Write a key, in quotes only where it needs them."""
    return text if _BARE.fullmatch(text) else toml_string(text)


def toml_strings(texts: tuple[str, ...]) -> str:
    """Write a list of texts on one line."""
    return f"[{', '.join(map(toml_string, texts))}]"


def toml_number(number: float) -> str:
    """Write a finite number so that it is read as the same number of the same type."""
    return repr(number)  # TOML reads Python's integers and floats, 1e-07 included


def comment(text: str) -> str:
    """Write a comment; the text may have newlines, but no other control characters."""
    return "".join(f"# {line}".rstrip() + "\n" for line in text.split("\n"))


class _Scan:
    """One pass over the lines; ``depth`` is how many brackets of a value are still open."""

    def __init__(self) -> None:
        self.lines: dict[KeyPath, int] = {}
        self._table: KeyPath = ()
        self._value: KeyPath = ()
        self._counts: dict[KeyPath, int] = {}
        self._depth = 0
        self._items = 0
        self._in_text = False

    def read_line(self, number: int, line: str) -> None:
        """Look at one line."""
        if self._in_text:
            self._in_text = len(_TRIPLE.findall(line)) % 2 == 0
        elif self._depth:
            self._continue(number, line)
        elif match := _HEADER.match(line):
            self._open_table(number, match)
        elif match := _ASSIGNMENT.match(line):
            self._value = (*self._table, *_parts(match["key"]))
            self._mark(self._value, number)
            self._items = 0
            self._in_text = len(_TRIPLE.findall(match["value"])) % 2 == 1
            self._count_brackets(match["value"])

    def _continue(self, number: int, line: str) -> None:
        if self._depth == 1 and line.lstrip().startswith("{"):
            self.lines[(*self._value, self._items)] = number
            self._items += 1
        self._count_brackets(line)

    def _count_brackets(self, value: str) -> None:
        bare = _QUOTED.sub("", value)
        self._depth += sum(bare.count(bracket) for bracket in "[{")
        closed = sum(bare.count(bracket) for bracket in "]}")
        self._depth = max(0, self._depth - closed)

    def _open_table(self, number: int, match: re.Match[str]) -> None:
        parts = _parts(match["list"] or match["table"])
        if match["list"]:
            place = (*self._resolve(parts[:-1]), parts[-1])
            self._counts[place] = self._counts.get(place, -1) + 1
            self._table = (*place, self._counts[place])
        else:
            self._table = self._resolve(parts)
        self._mark(self._table, number)

    def _mark(self, place: KeyPath, number: int) -> None:
        """Remember where a place, and what is around it, was first seen."""
        for end in range(1, len(place) + 1):
            self.lines.setdefault(place[:end], number)

    def _resolve(self, parts: tuple[str, ...]) -> KeyPath:
        """Follow a key through lists of tables by their last table, as TOML does."""
        place: KeyPath = ()
        for part in parts:
            place = (*place, part)
            if place in self._counts:
                place = (*place, self._counts[place])
        return place


def _deeper(value: object, depth: int) -> bool:
    """Tell whether tables and lists lie deeper in each other than this."""
    inner: Iterable[object] = ()
    if isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, list):
        inner = value
    return any(depth == 0 or _deeper(each, depth - 1) for each in inner)


def _split_comment(line: str) -> tuple[str, str]:
    """Split a line of TOML into what counts and its comment, which begins at a # outside quotes."""
    hidden = _QUOTED.sub(
        lambda found: found[0] if found[0].startswith("#") else "x" * len(found[0]), line
    )
    start = hidden.find("#")
    return (line, "") if start < 0 else (line[:start], line[start:])


def _parts(key: str) -> tuple[str, ...]:
    """Split a dotted key, with tomllib's own reading of quotes and escapes."""
    parts = []
    value: dict[str, Any] | int = tomllib.loads(f"{key} = 0")
    while isinstance(value, dict):
        ((part, value),) = value.items()
        parts.append(part)
    return tuple(parts)


def _listed(names: Iterable[str]) -> str:
    listed = list(names)
    shown = ", ".join(map(repr, listed[:10]))
    return f"{shown}, …" if len(listed) > 10 else shown or "none"  # noqa: PLR2004


def _spell(place: KeyPath) -> str:
    """Write a place for people, who count from one: ``curators no. 2, attributes``."""
    words: list[str] = []
    for part in place:
        if isinstance(part, int):
            words[-1] += f" no. {part + 1}"
        else:
            words.append(part if part.isprintable() else repr(part))
    return ", ".join(words)


def _escape(match: re.Match[str]) -> str:
    character = match.group()
    return _SHORT.get(character) or f"\\u{ord(character):04x}"
