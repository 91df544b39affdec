"""What a server's answers hold, read strictly: it may say what it likes, but not in any form.

Refusals come as problem details (RFC 9457) and become errors of veiltab.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import fields
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar, Self, TypeVar, cast

from veiltab.errors import (
    AuditError,
    ConnectionFailedError,
    MalformedError,
    MismatchError,
    UnauthenticatedError,
    VeiltabError,
)
from veiltab.wire.audit import AuditEntry, AuditHead
from veiltab.wire.codec import (
    MAX_INTEGER,
    TEXT,
    Codec,
    Part,
    describe,
    dump,
    integer,
    items,
    malformed,
    message,
    nested,
    optional,
    wired,
)
from veiltab.wire.contract import DIGEST, PARTY_ID, PublicIdentity
from veiltab.wire.requests import MAX_SKEW_SECONDS
from veiltab.wire.rotation import ROTATIONS, Rotation
from veiltab.wire.signed import Signed

T = TypeVar("T")
TIME = integer(0, MAX_INTEGER)
_CURSOR = re.compile(r"[0-9A-Za-z_-]{1,100}")


def _check_flag(value: object, path: str) -> bool:
    if not isinstance(value, bool):
        raise malformed(path, f"must be true or false, not {describe(value)}")
    return value


FLAG = Codec(_check_flag, _check_flag)


class Answer(Part):
    """An object in an answer; fields that a later server adds are not looked at."""

    __slots__ = ()

    left_out: ClassVar[dict[str, Any]] = {}
    """What stands for fields that some answers do not have."""

    @classmethod
    def from_json(cls, value: object, path: str = "") -> Self:
        """Read the object from JSON values."""
        if not isinstance(value, dict):
            raise malformed(path, f"must be an object, not {describe(value)}")
        names = {field.name for field in fields(cast("Any", cls))}
        known = {key: item for key, item in value.items() if key in names}
        return super().from_json(cls.left_out | known, path)


@message
class CuratorStatus(Answer):
    """How far a curator has got in a study."""

    name: str = wired(TEXT)
    party: bytes = wired(PARTY_ID)
    signed: bool = wired(FLAG)
    aligned: bool = wired(FLAG)
    uploaded: bool = wired(FLAG)


@message
class ResearcherStatus(Answer):
    """A researcher whom the contract names."""

    name: str = wired(TEXT)
    party: bytes = wired(PARTY_ID)


@message
class StudySummary(Answer):
    """A study in the list of those that a party takes part in; ``updated`` in Unix seconds."""

    study: bytes = wired(DIGEST)
    title: str = wired(TEXT)
    state: str = wired(TEXT)
    role: str = wired(TEXT)
    updated: int = wired(TIME)


@message
class Status(StudySummary):
    """Where a study stands; ``granted`` are the attributes granted to the asking researcher."""

    left_out: ClassVar[dict[str, Any]] = {"granted": []}

    reason: str | None = wired(optional(TEXT))
    curators: tuple[CuratorStatus, ...] = wired(items(nested(CuratorStatus)))
    researchers: tuple[ResearcherStatus, ...] | None = wired(
        optional(items(nested(ResearcherStatus)))
    )
    granted: tuple[str, ...] = wired(items(TEXT))


@message
class Block(Answer):
    """Somebody whose proposals a party does not want; ``at`` is since when, in Unix seconds."""

    party: bytes = wired(PARTY_ID)
    at: int = wired(TIME)


@message
class ServerStatus(Answer):
    """What a server says of itself to anybody; only a pinned identity is believed."""

    identity: PublicIdentity = wired(nested(PublicIdentity))
    rotations: tuple[Signed[Rotation], ...] = wired(ROTATIONS)
    software: str = wired(TEXT)
    versions: tuple[int, ...] = wired(items(integer(1, MAX_INTEGER)))


def read_object(body: bytes) -> dict[str, Any]:
    """Read an answer that is a JSON object and no message: nobody signs it, so any form will do."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise MalformedError(
            "the server's answer is not JSON", hint="check the URL, and ask the server's operator"
        ) from error
    if not isinstance(value, dict):
        raise malformed("", f"must be an object, not {describe(value)}")
    return value


def read_list(body: bytes, key: str, read: Callable[[Any, str], T]) -> list[T]:
    """Read an answer whose one list has this key."""
    return read_items(read_object(body), key, read)


def read_items(value: dict[str, Any], key: str, read: Callable[[Any, str], T]) -> list[T]:
    """Read one list of an object."""
    if key not in value:
        raise malformed(key, "is missing")
    return list(items(Codec(read, lambda item, _: item)).read(value[key], key))


def read_next(value: dict[str, Any]) -> str | None:
    """Read how to ask for the next page: a text for a URL, or nothing after the last page."""
    following = value.get("next")
    if following is not None and not (isinstance(following, str) and _CURSOR.fullmatch(following)):
        raise malformed("next", f"must be null or a short text, not {describe(following)}")
    return following


MAX_PAGES = 1_000
"""Pages of a list; a server that has more of them is wrong, or means to keep us busy."""


def read_pages(
    get: Callable[[str], bytes],
    path: str,
    key: str,
    read: Callable[[Any, str], T],
    *,
    inbox: bool = False,
) -> list[T]:
    """Get all pages of a list, of what was looked at or of what was not."""
    values: list[T] = []
    after: str | None = None
    for _ in range(MAX_PAGES):
        query = "&".join(["inbox=true"] * inbox + [f"after={after}"] * (after is not None))
        answer = read_object(get(f"{path}{f'?{query}' if query else ''}"))
        values += read_items(answer, key, read)
        after = read_next(answer)
        if after is None:
            return values
    raise MalformedError(
        f"the server lists more than {MAX_PAGES:,} pages of {key}",
        hint="ask the server's operator what is wrong",
    )


def as_message(loads: Callable[[bytes], T]) -> Callable[[Any, str], T]:
    """Return how to read a message that stands within an answer: as if it had come alone."""

    def read(value: object, path: str) -> T:
        if not isinstance(value, dict):
            raise malformed(path, f"must be an object, not {describe(value)}")
        try:
            return loads(dump(value))
        except MalformedError as error:
            raise MalformedError(f"{path}: {error.message}", hint=error.hint) from error

    return read


MAX_LOG_ENTRIES = 100_000
"""The longest audit log that is read: studies have a few dozen entries, and some for each grant."""

MAX_LOG_PAGE_BYTES = 2**22
Log = tuple[list[AuditEntry], Signed[AuditHead]]


def read_log_page(body: bytes, scope: bytes) -> Log:
    """Read some entries of the log of a study or vault, and its head."""
    answer = read_object(body)
    entries = read_items(answer, "entries", AuditEntry.from_json)
    head = as_message(AuditHead.loads)(answer.get("head"), "head")
    for named in (head.body.study, *(entry.study for entry in entries)):
        expect_study(named, scope, "audit log")
    return entries, head


def read_log_pages(fetch: Callable[[int], Log], after: int) -> Log:
    """Read a log from an entry on.  ``fetch`` returns the page that begins there.

    A server can make no page so long, nor so many of them, that they fill the memory.
    """
    entries: list[AuditEntry] = []
    while True:
        page, head = fetch(after + len(entries))
        entries += page
        if not page or after + len(entries) >= head.body.length:
            return entries, head
        if len(entries) > MAX_LOG_ENTRIES:
            raise AuditError(
                f"the audit log has more than {MAX_LOG_ENTRIES:,} entries",
                hint="no study has so many; ask the server's operator",
            )


def expect_study(named: bytes, study: bytes, what: str) -> None:
    """Refuse what belongs to another study than the one that was asked about."""
    if named != study:
        raise MismatchError(
            f"the {what} belongs to study {named.hex()}, not to {study.hex()}",
            hint="the server has mixed up studies, perhaps on purpose; ask its operator",
        )


def expect_digest(signed: Signed[Any], digest: bytes) -> None:
    """Refuse another message than the one that was asked for by its digest."""
    if signed.digest != digest:
        raise MismatchError(
            f"the {signed.body.kind} has the digest {signed.digest.hex()}, not {digest.hex()}",
            hint="the server has mixed up messages, perhaps on purpose; ask its operator",
        )


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
        problem = json.loads(body)
    except (ValueError, RecursionError):
        return None
    code = problem.get("code") if isinstance(problem, dict) else None
    if not isinstance(code, str):
        return None
    kind = _BY_CODE.get(code, VeiltabError)  # a later server may know more codes
    detail = harmless(problem.get("detail"), _NO_DETAIL)
    return kind(f"the server says: {detail}", hint=harmless(problem.get("hint"), _NO_HINT))


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
