"""Writing TOML: exactly the text that was given, whatever characters it has."""

import re

from veiltab.errors import StudyFileError

_BARE = re.compile("[A-Za-z0-9_-]+")
_ESCAPED = re.compile('[\x00-\x1f"\\\\\x7f]')
_SURROGATE = re.compile("[\ud800-\udfff]")
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def toml_string(text: str) -> str:
    """Write a text on one line, in quotes; also the way to put any text in a comment."""
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
    """Write lines of a comment; the text must be without control characters but newlines."""
    return "".join(f"# {line}".rstrip() + "\n" for line in text.split("\n"))


def _escape(found: re.Match[str]) -> str:
    character = found.group()
    return _SHORT.get(character) or f"\\u{ord(character):04x}"
