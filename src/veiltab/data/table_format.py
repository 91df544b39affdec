"""How a table is written: what a user says about it, and what a look at it has found."""

import codecs
import shlex
from dataclasses import asdict, dataclass, fields
from typing import Any

from veiltab.data.numbers import POINTS, NumberMarks
from veiltab.errors import ParameterError
from veiltab.remedies import Remedy

SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars"}
"""What fields may be separated by, unless the user names something else."""

_NAMED_SEPARATORS = {
    "comma": ",",
    "semicolon": ";",
    "tab": "\t",
    "bar": "|",
    "space": " ",
    "colon": ":",
}
_NAMED_MARKS = {"comma": ",", "point": "."}
_ENCODING_NAMES = {
    "utf-8": "UTF-8",
    "utf-8-sig": "UTF-8",
    "utf-16": "UTF-16",
    "utf-16-le": "UTF-16",
    "utf-16-be": "UTF-16",
    "cp1252": "CP1252",
    "iso8859-1": "Latin-1",
}


@dataclass(frozen=True, slots=True)
class FormatOptions:
    """What a user says about a file; ``None`` is to be found by looking."""

    separator: str | None = None
    encoding: str | None = None
    decimal: str | None = None
    thousands: str | None = None
    quote: str | None = None
    header: bool | None = None
    skip_lines: int | None = None
    sheet: str | None = None

    def __post_init__(self) -> None:
        """Replace names by what they stand for, and refuse what no file can have."""
        if self.separator is not None:
            object.__setattr__(self, "separator", _separator(self.separator))
        for name in ("decimal", "thousands"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, _mark(name, getattr(self, name)))
        if self.decimal is not None and self.decimal == self.thousands:
            raise ParameterError(
                f"{self.decimal!r} cannot stand before decimals and between thousands",
                hint="name two different marks",
            )
        if self.quote is not None:
            object.__setattr__(self, "quote", _quote(self.quote, self.separator))
        if self.encoding is not None:
            object.__setattr__(self, "encoding", _encoding(self.encoding))
        if self.skip_lines is not None and self.skip_lines < 0:
            raise ParameterError(
                f"{self.skip_lines} lines cannot be skipped", hint="use 0 or a positive number"
            )

    @property
    def marks(self) -> NumberMarks | None:
        """The marks of numbers, if the user has named any."""
        if self.decimal is None and self.thousands is None:
            return None
        decimal = self.decimal or ("," if self.thousands == "." else ".")
        return NumberMarks(decimal, self.thousands)

    def given(self) -> list[str]:
        """Return the names of the options that are given."""
        return [f.name for f in fields(self) if getattr(self, f.name) is not None]


@dataclass(frozen=True, slots=True)
class TableFormat:
    """How a table was read; ``notes`` say what could have been read otherwise."""

    kind: str
    compression: str | None = None
    separator: str | None = None
    encoding: str | None = None
    quote: str | None = None
    one_column: bool = False
    header_line: int | None = None
    marks: NumberMarks = POINTS
    sheet: str | None = None
    parts: int | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Say it in one line: ``CSV, semicolons, CP1252, decimal comma, header in line 1``."""
        words = [self.kind + (f" ({self.compression})" if self.compression else "")]
        if self.parts is not None:
            words.append(f"{self.parts:,} part{'s' * (self.parts != 1)}")
        if self.sheet is not None:
            words.append(f"sheet {self.sheet!r}")
        if self.separator is not None:
            words.append("one column" if self.one_column else separator_words(self.separator))
        if self.encoding is not None:
            words.append(encoding_words(self.encoding))
        if self.encoding is not None or self.marks != POINTS:
            words += self._number_words()
        if self.separator is not None or self.sheet is not None:
            line, of = self.header_line, "row" if self.sheet is not None else "line"
            words.append("no header" if line is None else f"header in {of} {line:,}")
        return ", ".join(words)

    def _number_words(self) -> list[str]:
        names = {",": "comma", ".": "point"}
        words = [f"decimal {names[self.marks.decimal]}"]
        if self.marks.thousands is not None:
            words.append(f"a {names[self.marks.thousands]} between thousands")
        if self.separator is not None and self.quote is None:
            words.append("no quotes")
        elif self.quote is not None and self.quote != '"':
            words.append(f"fields in {self.quote}")
        return words

    def to_json(self) -> dict[str, Any]:
        """Return the description, and each of its parts."""
        values = asdict(self)
        marks = values.pop("marks")
        del values["one_column"]
        textual = self.encoding is not None or self.sheet is not None
        return {
            "read_as": str(self),
            **values,
            "decimal": marks["decimal"] if textual else None,
            "thousands": marks["thousands"],
            "notes": list(self.notes),
        }


def option(name: str, value: str | int) -> str:
    """Name an option for both kinds of users, as a hint does."""
    flag, given = name.replace("_", "-"), shlex.quote(str(value))
    return Remedy.OPTION.format(flag, given, name, repr(value))


def separator_words(separator: str) -> str:
    """Say what separates fields."""
    others = {" ": "spaces", ":": "colons"}
    return SEPARATORS.get(separator) or others.get(separator) or f"the mark {separator}"


def separator_option(separator: str) -> str:
    """Return how a separator is named where no shell can misread it."""
    return next(name for name, mark in _NAMED_SEPARATORS.items() if mark == separator)


def encoding_words(encoding: str) -> str:
    """Return the usual name of an encoding."""
    return _ENCODING_NAMES.get(encoding, encoding.upper())


def _separator(text: str) -> str:
    separator = _NAMED_SEPARATORS.get(text.lower(), "\t" if text == "\\t" else text)
    if (
        len(separator) != 1
        or not separator.isascii()
        or separator in '"\r\n\0'
        or separator.isalnum()
    ):
        raise ParameterError(
            f"{text!r} cannot separate fields",
            hint=f"name one character, such as ; or |, or one of {', '.join(_NAMED_SEPARATORS)}",
        )
    return separator


def _mark(name: str, text: str) -> str:
    mark = _NAMED_MARKS.get(text.lower(), text)
    if mark not in (",", "."):
        where = "before decimals" if name == "decimal" else "between thousands"
        raise ParameterError(f"{text!r} cannot stand {where}", hint="name comma or point")
    return mark


def _quote(text: str, separator: str | None) -> str:
    """Return the mark, or an empty text for files without quotes."""
    if text.lower() == "none" or not text:
        return ""
    if text not in ("'", '"') or text == separator:
        raise ParameterError(
            f"{text!r} cannot enclose fields", hint="name ' or \", or none if quotes mean nothing"
        )
    return text


def _encoding(text: str) -> str:
    try:
        "a".encode(text)
        return codecs.lookup(text).name
    except (LookupError, ValueError, UnicodeError):
        raise ParameterError(
            f"there is no encoding {text!r}",
            hint="name one such as utf-8, utf-16, cp1252, latin-1 or cp850",
        ) from None
