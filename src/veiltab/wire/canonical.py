"""The one form in which a message may be written: canonical JSON, RFC 8785 (spec 1.1)."""

import json
from typing import Any, NoReturn

import rfc8785

from veiltab.errors import MalformedError

MAX_MESSAGE_BYTES = 67_108_864
"""A longer message is refused before it is looked at (spec 1.1)."""

MAX_INTEGER = 2**53 - 1
"""The largest whole number that every JSON reader takes exactly; RFC 8785 allows no larger one."""

_MAX_INTEGER_CHARACTERS = len(str(-MAX_INTEGER))
_HINT = "ask whoever sent it for the message again; write it as canonical JSON (RFC 8785)"


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
        raise MalformedError(f"the message is not JSON: {_reason(error)}", hint=_HINT) from error
    if not isinstance(value, dict):
        raise MalformedError("the message is not a JSON object", hint=_HINT)
    if canonical != data:
        raise MalformedError("the message is not in canonical form", hint=_HINT)
    return value


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
