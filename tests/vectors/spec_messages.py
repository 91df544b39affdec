"""The messages that a researcher reads, field by field: written from the specification alone."""

import base64
import math
import re
from collections.abc import Callable
from typing import Any, TypeAlias

from tests.vectors.spec_bytes import MAX_WHOLE, canonical, parse, require, verify

Value: TypeAlias = Any
"""A JSON value from somebody else."""

Check: TypeAlias = Callable[[Value], None]
"""Refuses a value that is not of a form."""

MAX_ROWS = MAX_CELLS = 2**48


def text(value: Value) -> None:
    """Refuse all but 1 to 1,000 characters, none of them a control character."""
    require(isinstance(value, str) and 1 <= len(value) <= 1000, "a text is too short or long")
    refused = "[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
    require(not re.search(refused, value), "a text has control characters")


def hexadecimal(digits: int) -> Check:
    """Return the check for lowercase hexadecimal of fixed length."""

    def check(value: Value) -> None:
        fits = isinstance(value, str) and re.fullmatch(f"[0-9a-f]{{{digits}}}", value)
        require(bool(fits), "a value is not hexadecimal")

    return check


def whole(least: int, most: int = MAX_WHOLE) -> Check:
    """Return the check for a whole number in a range."""

    def check(value: Value) -> None:
        require(type(value) is int and least <= value <= most, "a whole number is out of range")

    return check


def number(fits: Callable[[float], bool]) -> Check:
    """Return the check for a number in a range."""

    def check(value: Value) -> None:
        require(type(value) in {int, float} and fits(value), "a number is out of range")

    return check


def only(*values: object) -> Check:
    """Return the check for one of a few values."""

    def check(value: Value) -> None:
        known = any(value == each and type(value) is type(each) for each in values)
        require(known, "a value is not one of the known ones")

    return check


def nullable(item: Check) -> Check:
    """Return the check for null or something else."""

    def check(value: Value) -> None:
        if value is not None:
            item(value)

    return check


def many(item: Check, least: int = 0, most: float = math.inf) -> Check:
    """Return the check for a list."""

    def check(value: Value) -> None:
        require(
            isinstance(value, list) and least <= len(value) <= most, "a list has no such length"
        )
        for each in value:
            item(each)

    return check


def record(**fields: Check) -> Check:
    """Return the check for an object with exactly these fields."""

    def check(value: Value) -> None:
        require(isinstance(value, dict) and value.keys() == fields.keys(), "fields are not right")
        for name, item in fields.items():
            item(value[name])

    return check


def threshold(value: Value) -> None:
    """Refuse all but the decimal text of a number of 64 bits, above 0."""
    fits = isinstance(value, str) and re.fullmatch("[1-9][0-9]{0,19}", value)
    require(bool(fits) and int(value) < 2**64, "the threshold is no 64-bit number")


def sealed(value: Value) -> None:
    """Refuse all but null, and base64 in its one spelling."""
    if value is None:
        return
    require(isinstance(value, str) and value.isascii(), "the sealed part is no base64")
    try:
        again = base64.b64encode(base64.b64decode(value, validate=True)).decode()
    except ValueError:
        again = None
    require(again == value, "the sealed part is no base64")


def linkage(value: Value) -> None:
    """Refuse all but the two forms of section 5."""
    if isinstance(value, dict) and value.get("by") == "rows":
        record(by=only("rows"), mode=MODE)(value)
    else:
        rules = many(only("nfc", "trim", "lowercase"))
        record(by=only("ids"), columns=whole(1), mode=MODE, normalisation=rules)(value)


MODE = only("aligned", "matched")
HASH = hexadecimal(64)
IDENTITY: dict[str, Check] = {"name": text, "sealing_key": HASH, "signing_key": HASH}
ATTRIBUTES = many(record(name=text, categories=many(text, 1, 65_535)), 1, 1000)
COLUMNS = many(record(attribute=text, chunks=many(HASH)), 1)
EPSILON, DELTA = number(lambda x: 0 < x <= 50), number(lambda x: x == 0 or 1e-30 <= x <= 0.01)
ACCOUNTING = only("pure-1", "shuffle-1")
SIGNATURES = many(record(key=HASH, signature=hexadecimal(128)))

CONTRACT = record(
    kind=only("contract"),
    version=only(1),
    title=text,
    nonce=hexadecimal(32),
    curators=many(record(attributes=ATTRIBUTES, **IDENTITY), 1, 1000),
    researchers=nullable(many(record(**IDENTITY))),
    server=record(**IDENTITY),
    epsilon=EPSILON,
    delta=DELTA,
    accounting=ACCOUNTING,
    mechanism=record(name=only("paper"), sample_size=nullable(whole(1, MAX_ROWS))),
    population=nullable(whole(1)),
    pads=only("stream", "one-time"),
    linkage=linkage,
    secret_commitment=HASH,
    stored=nullable(record(vault=HASH, uploads=many(HASH))),
)
RELEASE = record(
    kind=only("release"),
    version=only(1),
    accounting=ACCOUNTING,
    cells=whole(2, MAX_CELLS),
    columns=COLUMNS,
    delta=DELTA,
    epsilon=EPSILON,
    keep_threshold=threshold,
    population=whole(1),
    rows=whole(1, MAX_ROWS),
    study=HASH,
    uploads=many(record(curator=HASH, digest=HASH, positions=nullable(many(HASH))), 1, 1000),
)
GRANT = record(
    kind=only("grant"),
    version=only(1),
    attributes=many(text, 1),
    curator=HASH,
    expires=whole(0),
    grant=hexadecimal(32),
    pads=only("stream", "one-time"),
    researcher=HASH,
    sealed_digest=HASH,
    study=HASH,
    upload=HASH,
)


def read_contract(message: str) -> dict[str, Any]:
    """Read a contract, and refuse terms that contradict each other (section 4)."""
    found = parse(message.encode())
    record(body=CONTRACT, signatures=SIGNATURES)(found)
    check_order(found)
    body = found["body"]
    parties = [*body["curators"], *(body["researchers"] or []), body["server"]]
    different([party["signing_key"] for party in parties])
    attributes = [each for curator in body["curators"] for each in curator["attributes"]]
    different([attribute["name"] for attribute in attributes])
    cells = 1
    for attribute in attributes:
        different(attribute["categories"])
        cells *= len(attribute["categories"])
        require(cells <= MAX_CELLS, "there are too many cells")
    require(cells >= 2, "there is one cell only")
    expected = "pure-1" if body["delta"] == 0 else "shuffle-1"
    require(body["accounting"] == expected, "the accounting does not fit delta")
    size, population = body["mechanism"]["sample_size"], body["population"]
    require(None in {size, population} or size <= population, "the sample is too large")
    if body["stored"] is not None:
        require(body["linkage"]["mode"] == "matched", "stored tables are matched")
        require(len(body["stored"]["uploads"]) == len(body["curators"]), "uploads are missing")
    return found


def read_release(message: str) -> dict[str, Any]:
    """Read a release, and refuse lengths that cannot be (section 10)."""
    found = parse(message.encode())
    record(body=RELEASE, signatures=SIGNATURES)(found)
    require(len(found["signatures"]) == 1, "a release has one signature")
    body = found["body"]
    rows, uploads = body["rows"], body["uploads"]
    require(rows <= body["population"], "the sample is larger than the population")
    require((2**64 - int(body["keep_threshold"])) % body["cells"] == 0, "no M fits the threshold")
    different([column["attribute"] for column in body["columns"]])
    different([upload["curator"] for upload in uploads])
    positions = [upload["positions"] for upload in uploads if upload["positions"] is not None]
    require(len(positions) in {0, len(uploads)}, "some have positions and some have not")
    lists = [column["chunks"] for column in body["columns"]] + positions
    require(all(len(each) == -(-rows // 65_536) for each in lists), "chunks are missing")
    return found


def read_grant(message: str) -> dict[str, Any]:
    """Read a grant (section 11)."""
    found = parse(message.encode())
    record(body=GRANT, sealed=sealed, signatures=SIGNATURES)(found)
    require(len(found["signatures"]) == 1, "a grant has one signature")
    different(found["body"]["attributes"])
    return found


READERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "contract": read_contract,
    "grant": read_grant,
    "release": read_release,
}


def different(values: list[Any]) -> None:
    """Refuse values of which two are the same."""
    require(len(set(values)) == len(values), "something comes twice")


def check_order(message: dict[str, Any]) -> None:
    """Refuse signatures that are not sorted by key, one per key."""
    keys = [each["key"] for each in message["signatures"]]
    require(keys == sorted(set(keys)), "signatures are not in order")


def check_signers(message: dict[str, Any], signers: list[str]) -> None:
    """Refuse a message that has not been signed by exactly these keys."""
    require({each["key"] for each in message["signatures"]} == set(signers), "others have signed")
    body = canonical(message["body"]).encode()
    for each in message["signatures"]:
        key, signature = bytes.fromhex(each["key"]), bytes.fromhex(each["signature"])
        verify(key, message["body"]["kind"], body, signature)
