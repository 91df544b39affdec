"""What a server's refusal means to its client: problem details (RFC 9457) as our errors.

The server is not trusted, and what it says ends up in a terminal: it is cut, made harmless, and
marked as the server's own words.
"""

import json
import unicodedata
from collections.abc import Iterator
from email.utils import parsedate_to_datetime

from veiltab.errors import ConnectionFailedError, UnauthenticatedError, VeiltabError
from veiltab.wire.requests import MAX_SKEW_SECONDS

PROBLEM_TYPE = "application/problem+json"
MAX_SHOWN = 500
"""Characters of a server's detail or hint that are shown."""

_NO_DETAIL = "it gives no reason"
_NO_HINT = "ask the server's operator; its log says more"


def _tree(root: type[VeiltabError]) -> Iterator[type[VeiltabError]]:
    yield root
    for child in root.__subclasses__():
        yield from _tree(child)


_BY_CODE = {each.code: each for each in _tree(VeiltabError) if each.__module__ == "veiltab.errors"}


def harmless(text: object, otherwise: str) -> str:
    """Return a stranger's text on one line, cut, and without anything that a terminal obeys."""
    if not isinstance(text, str):
        return otherwise
    shown = "".join(map(_printable, text[: 4 * MAX_SHOWN])).strip()
    return (shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]}…") or otherwise


def _printable(character: str) -> str:
    """Drop control, format (text direction) and unknown characters; any space is a plain one."""
    kind = unicodedata.category(character)[0]
    return " " if kind == "Z" or character in "\t\r\n" else "" if kind == "C" else character


def read_problem(content_type: str, body: bytes) -> VeiltabError | None:
    """Build the error that a problem document is about; ``None`` if it is no problem document."""
    if content_type.partition(";")[0].strip().lower() != PROBLEM_TYPE:
        return None
    try:
        found = json.loads(body)
    except (ValueError, RecursionError):
        return None
    code = found.get("code") if isinstance(found, dict) else None
    if not isinstance(code, str):
        return None
    kind = _BY_CODE.get(code, VeiltabError)  # a later server may know more codes
    detail = harmless(found.get("detail"), _NO_DETAIL)
    return kind(f"the server says: {detail}", hint=harmless(found.get("hint"), _NO_HINT))


def unexpected(status: int) -> VeiltabError:
    """Build the error for an answer that no veiltab service would give."""
    if 300 <= status < 400:  # noqa: PLR2004 - redirections, RFC 9110
        return ConnectionFailedError(
            f"the server answered with a redirection ({status}), and none is ever followed",
            hint="use the URL of the service itself; is there a log-in page in between?",
        )
    return ConnectionFailedError(
        f"the server answered with status {status} and no reason that veiltab understands",
        hint="check the URL; if it is right, both sides may have different versions of veiltab",
    )


def with_skew(error: VeiltabError, date: str | None, now: float) -> VeiltabError:
    """Say so if the reason why a signature is refused may be that the clocks differ."""
    difference = _seconds_apart(date, now)
    if not isinstance(error, UnauthenticatedError) or abs(difference) <= MAX_SKEW_SECONDS:
        return error
    way = "ahead of" if difference > 0 else "behind"
    return UnauthenticatedError(
        error.message,
        hint=f"this computer's clock is {abs(difference):,.0f} seconds {way} the server's,"
        f" and at most {MAX_SKEW_SECONDS} are allowed; set it right, and try again",
    )


def _seconds_apart(date: str | None, now: float) -> float:
    """Return by how much ``now`` is after the server's Date, 0 if it states none."""
    try:
        return 0.0 if date is None else now - parsedate_to_datetime(date).timestamp()
    except (ValueError, OverflowError):
        return 0.0
