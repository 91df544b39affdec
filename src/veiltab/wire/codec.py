"""How a message is written and read: canonical JSON (RFC 8785) with strict fields (spec 1).

A message has one form.  Anything else is refused, with the path of the field that is wrong.
"""

import base64
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import Any, Generic, NoReturn, Self, TypeVar, cast, dataclass_transform

import rfc8785

from veiltab.core.schema import check_text
from veiltab.errors import InputError, MalformedError, ParameterError

MAX_MESSAGE_BYTES = 67_108_864
"""A longer message is refused before it is looked at (spec 1.1)."""

MAX_INTEGER = 2**53 - 1
"""The largest whole number that every JSON reader takes exactly; RFC 8785 allows no larger one."""

MAX_TEXT = 1_000
"""Characters (Unicode code points) in a name, title or category (spec 1.1)."""

T = TypeVar("T")
PartType = TypeVar("PartType", bound="Part")
MALFORMED_HINT = (
    "ask whoever sent it for the message again; both sides need the same version of veiltab"
)
_CANONICAL_HINT = "ask whoever sent it for the message again; write it as canonical JSON (RFC 8785)"
_MAX_INTEGER_CHARACTERS = len(str(-MAX_INTEGER))
_SHOWN = 40
_HEX = re.compile("[0-9a-f]*")


def dump(value: dict[str, Any]) -> bytes:
    """Write a message in its canonical form (spec 1.1)."""
    try:
        data = rfc8785.dumps(value)
    except (ValueError, RecursionError) as error:
        raise MalformedError(
            f"the message cannot be written as canonical JSON: {_reason(error)}",
            hint="use whole numbers below 2^53, finite numbers and valid Unicode",
        ) from error
    if len(data) > MAX_MESSAGE_BYTES:
        raise _too_long(len(data))
    return data


def load(data: bytes) -> dict[str, Any]:
    """Read a message, and refuse every other way of writing the same thing (spec 1.1).

    Whatever the bytes are, the only error is a ``MalformedError``.
    """
    if len(data) > MAX_MESSAGE_BYTES:
        raise _too_long(len(data))
    try:
        value = json.loads(
            data.decode("utf-8"), parse_constant=_refuse_constant, parse_int=_parse_integer
        )
        canonical = rfc8785.dumps(value)
    except (ValueError, RecursionError) as error:  # includes wrong UTF-8 and every JSON error
        raise MalformedError(
            f"the message is not JSON: {_reason(error)}", hint=_CANONICAL_HINT
        ) from error
    if not isinstance(value, dict):
        raise MalformedError("the message is not a JSON object", hint=_CANONICAL_HINT)
    if canonical != data:
        raise MalformedError("the message is not in canonical form", hint=_CANONICAL_HINT)
    return value


def malformed(path: str, problem: str, *, hint: str = MALFORMED_HINT) -> MalformedError:
    """Build the error for the field at ``path``, such as ``curators[1].attributes[0].name``."""
    return MalformedError(f"{path or 'the message'}: {problem}", hint=hint)


@contextmanager
def input_errors_at(path: str) -> Iterator[None]:
    """Turn what ``core`` refuses while a message is read into an error of that message."""
    try:
        yield
    except InputError as error:
        raise malformed(path, error.message, hint=error.hint) from error


def join(path: str, key: str) -> str:
    """Return the path of a field of the object at ``path``."""
    return f"{path}.{key}" if path else key


def describe(value: object) -> str:
    """Describe a value in a few words, without quoting much of what a stranger sent."""
    match value:
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
        case int() if abs(value) <= MAX_INTEGER:
            return str(value)
        case float():
            return repr(value)
        case str():
            return repr(value if len(value) <= _SHOWN else f"{value[:_SHOWN]}…")
    names = {int: "a huge number", list: "a list", dict: "an object"}
    return names.get(type(value), type(value).__name__)


def exact_fields(value: object, keys: Iterable[str], path: str) -> dict[str, Any]:
    """Read a JSON object with exactly these fields (spec 1.1)."""
    if not isinstance(value, dict):
        raise malformed(path, f"must be an object, not {describe(value)}")
    expected = set(keys)
    for key in sorted(expected - value.keys()):
        raise malformed(join(path, key), "is missing")
    for key in value.keys() - expected:
        raise malformed(path, f"has the unknown field {describe(key)}")
    return value


@dataclass(frozen=True, slots=True)
class Codec(Generic[T]):
    """How one value is read from JSON and written to it; both are told its path, for errors."""

    read: Callable[[Any, str], T]
    write: Callable[[T, str], Any]


def _check_text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise malformed(path, f"must be text, not {describe(value)}")
    if len(value) > MAX_TEXT:
        raise malformed(path, f"has {len(value):,} characters, more than {MAX_TEXT:,}")
    try:  # a context manager would take longer than the check; some messages are mostly texts
        check_text(value, "the text")
    except InputError as error:
        raise malformed(path, error.message, hint=error.hint) from error
    return value


TEXT = Codec(_check_text, _check_text)
"""1 to 1,000 printable characters (spec 1.1)."""


def check_typed(text: str, what: str) -> str:
    """Refuse a text that somebody has typed and no message could carry; return it if one can."""
    try:
        return TEXT.read(text, what)
    except MalformedError as error:
        raise ParameterError(
            f"{what} is empty, too long, or has control characters",
            hint=f"write it on one line, in at most {MAX_TEXT:,} characters",
        ) from error


def hexadecimal(size: int) -> Codec[bytes]:
    """Return the codec of ``size`` bytes in lowercase hexadecimal (spec 1)."""

    def read(value: object, path: str) -> bytes:
        if isinstance(value, str) and len(value) == 2 * size and _HEX.fullmatch(value):
            return bytes.fromhex(value)
        raise malformed(path, f"must be {2 * size} lowercase hex digits, not {describe(value)}")

    def write(value: object, path: str) -> str:
        if isinstance(value, bytes) and len(value) == size:
            return value.hex()
        raise malformed(path, f"must be {size} bytes")

    return Codec(read, write)


def _read_base64(value: object, path: str) -> bytes:
    try:
        decoded = base64.b64decode(value, validate=True) if isinstance(value, str) else None
    except ValueError:
        decoded = None
    if decoded is None or base64.b64encode(decoded).decode() != value:
        raise malformed(path, f"must be standard base64 with padding, not {describe(value)}")
    return decoded


def _write_base64(value: object, path: str) -> str:
    if not isinstance(value, bytes):
        raise malformed(path, "must be bytes")
    return base64.b64encode(value).decode()


BASE64 = Codec(_read_base64, _write_base64)
"""Bytes of any length in standard base64 with padding (spec 1)."""


def integer(least: int, most: int) -> Codec[int]:
    """Return the codec of whole numbers in a range; true and false are refused."""

    def check(value: object, path: str) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        problem = f"must be a whole number from {least:,} to {most:,}, not {describe(value)}"
        raise malformed(path, problem)

    return Codec(check, check)


def number(check_range: Callable[[float], None]) -> Codec[float]:
    """Return the codec of finite numbers that ``check_range`` does not refuse."""

    def check(value: object, path: str) -> float:
        plain = isinstance(value, int | float) and not isinstance(value, bool)
        if not plain or not abs(cast("float", value)) <= MAX_INTEGER:
            raise malformed(path, f"must be a number, not {describe(value)}")
        with input_errors_at(path):
            check_range(result := float(cast("float", value)))
        return result

    return Codec(check, check)


def choice(*options: T) -> Codec[T]:
    """Return the codec of one text out of a few."""

    def check(value: object, path: str) -> T:
        for option in options:
            if isinstance(value, str) and value == option:
                return option
        listed = " or ".join(map(repr, options))
        raise malformed(path, f"must be {listed}, not {describe(value)}")

    return Codec(check, check)


def items(codec: Codec[T], *, least: int = 0, most: float = math.inf) -> Codec[tuple[T, ...]]:
    """Return the codec of a list whose items all have the same codec."""

    def check_length(count: int, path: str) -> None:
        if not least <= count <= most:
            bound = f"at least {least:,}" if count < least else f"at most {most:,}"
            raise malformed(path, f"must have {bound} items, not {count:,}")

    def read(value: object, path: str) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise malformed(path, f"must be a list, not {describe(value)}")
        check_length(len(value), path)
        return tuple(codec.read(item, f"{path}[{i}]") for i, item in enumerate(value))

    def write(value: Sequence[T], path: str) -> list[Any]:
        check_length(len(value), path)
        return [codec.write(item, f"{path}[{i}]") for i, item in enumerate(value)]

    return Codec(read, write)


def optional(codec: Codec[T]) -> Codec[T | None]:
    """Return the codec of a value or null."""

    def read(value: object, path: str) -> T | None:
        return None if value is None else codec.read(value, path)

    def write(value: T | None, path: str) -> object:
        return None if value is None else codec.write(value, path)

    return Codec(read, write)


def wired(codec: Codec[T], *, key: str | None = None) -> T:
    """Declare a dataclass field with its codec, and with its key where that is not its name."""
    return cast("T", field(metadata={"codec": codec, "key": key}))


@dataclass_transform(frozen_default=True, field_specifiers=(wired,))
def part(cls: type[T]) -> type[T]:
    """Make a class of wired fields a frozen dataclass: a part of messages."""
    return dataclass(frozen=True, slots=True)(cls)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(wired,))
def message(cls: type[T]) -> type[T]:
    """Make a class of wired fields a frozen dataclass whose fields are given by name."""
    return dataclass(frozen=True, slots=True, kw_only=True)(cls)


class Part:
    """An object in a message: its JSON form follows from its wired fields."""

    __slots__ = ()

    def __post_init__(self) -> None:
        """Refuse values that could not be sent, then those that contradict each other."""
        self.to_json()
        self.check()

    def check(self) -> None:
        """Refuse fields that contradict each other; overridden where fields can."""

    def to_json(self, path: str = "") -> dict[str, Any]:
        """Return the object as JSON values."""
        return {
            key: codec.write(getattr(self, name), join(path, key))
            for name, key, codec in _layout(type(self))
        }

    @classmethod
    def from_json(cls, value: object, path: str = "") -> Self:
        """Read the object, with exactly its fields, from JSON values."""
        layout = _layout(cls)
        members = exact_fields(value, (key for _, key, _ in layout), path)
        values = {name: codec.read(members[key], join(path, key)) for name, key, codec in layout}
        return cast("Callable[..., Self]", cls)(**values)


def nested(cls: type[PartType]) -> Codec[PartType]:
    """Return the codec of a part."""
    return Codec(cls.from_json, lambda value, path: value.to_json(path))


def _layout(cls: type[Part]) -> tuple[tuple[str, str, Codec[Any]], ...]:
    """Return name, key and codec of each field."""
    return tuple(
        (item.name, item.metadata["key"] or item.name, item.metadata["codec"])
        for item in fields(cast("Any", cls))
    )


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number in JSON")


def _parse_integer(digits: str) -> int:
    if len(digits) > _MAX_INTEGER_CHARACTERS:  # before a conversion that takes quadratic time
        raise ValueError("a whole number is 2^53 or more")
    return int(digits)


def _reason(error: Exception) -> str:
    """Say why, in few words: a JSON error quotes nothing, but a Unicode error quotes all bytes."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if isinstance(error, UnicodeError):
        return "it has bytes or characters that are not valid Unicode"
    return str(error)


def _too_long(size: int) -> MalformedError:
    return MalformedError(
        f"the message has {size:,} bytes, more than {MAX_MESSAGE_BYTES:,}",
        hint="split the study: fewer rows or fewer attributes",
    )
