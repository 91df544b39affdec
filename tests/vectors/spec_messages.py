"""The messages that a researcher reads, field by field: written from the specification alone."""

import base64
import math
import re
from collections.abc import Callable
from math import prod
from typing import Any, TypeAlias

from tests.vectors.spec_bytes import MAX_WHOLE, canonical, parse, require, verify
from tests.vectors.spec_decoys import pattern_count
from tests.vectors.spec_plan import check_decoy_promise, check_noise, check_public, moments

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


def decimal(least: int, most: int) -> Check:
    """Return the check for the decimal text of a number in a range."""

    def check(value: Value) -> None:
        fits = isinstance(value, str) and re.fullmatch("0|[1-9][0-9]{0,19}", value)
        require(bool(fits) and least <= int(value) <= most, "a number is out of range")

    return check


threshold = decimal(1, 2**64 - 1)


def mechanism(value: Value) -> None:
    """Refuse all but the forms of sections 4.1, 4.3 and 13."""
    if isinstance(value, dict) and value.get("name") == "overlap":
        record(
            name=only("overlap"),
            coin_threshold=decimal(1, 2**64),
            decoys=law,
            noise_threshold=threshold,
        )(value)
        return
    if isinstance(value, dict) and value.get("name") == "paper":
        record(name=only("paper"), sample_size=nullable(whole(1, MAX_ROWS)))(value)
        return
    record(
        name=only("decoys"),
        coin_threshold=decimal(1, 2**64),
        decoys=law,
        epsilon_public=EPSILON,
        keep_threshold=nullable(threshold),
    )(value)


def law(value: Value) -> None:
    """Refuse all but the two laws of section 4.3."""
    if isinstance(value, dict) and value.get("law") == "geometric":
        record(law=only("geometric"), threshold=threshold)(value)
        return
    weight = decimal(0, 2**64)
    record(law=only("table"), weights=many(weight, 1, 65_536))(value)
    require(sum(map(int, value["weights"])) == 2**64, "the weights do not sum to 2^64")


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
IDENTITY: dict[str, Check] = {"name": text, "sealing_key": hexadecimal(2432), "signing_key": HASH}
ATTRIBUTES = many(record(name=text, categories=many(text, 1, 65_535)), 0, 1000)
COLUMNS = many(record(attribute=text, chunks=many(HASH)), 1)
EPSILON, DELTA = number(lambda x: 0 < x <= 50), number(lambda x: x == 0 or 1e-30 <= x <= 0.01)
ACCOUNTING = only("pure-1", "shuffle-1", "decoys-1", "overlap-1")
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
    mechanism=mechanism,
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
    keep_threshold=nullable(threshold),
    nonce=hexadecimal(32),
    population=nullable(whole(1)),
    rows=whole(0, MAX_ROWS),
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
OVERLAP = record(
    kind=only("overlap"),
    version=only(1),
    number=whole(-(2**34), 2**34),
    study=HASH,
    uploads=many(HASH, 2, 8),
)
ALIGNMENT = record(
    kind=only("alignment"),
    version=only(1),
    attempt=whole(1, 100),
    curator=HASH,
    decoys=nullable(HASH),
    digest=nullable(HASH),
    population=nullable(whole(1)),
    study=HASH,
)
PUBLICATION = record(
    kind=only("publication"),
    version=only(1),
    attributes=many(text, 1),
    counts=HASH,
    epsilon=EPSILON,
    release=HASH,
    researcher=HASH,
    study=HASH,
)
REVOCATION = record(
    kind=only("grant-revocation"),
    version=only(1),
    curator=HASH,
    grant=hexadecimal(32),
    researcher=HASH,
    study=HASH,
)


def read_contract(message: str) -> dict[str, Any]:
    """Read a contract, and refuse terms that contradict each other (section 4)."""
    found = parse(message.encode())
    record(body=CONTRACT, signatures=SIGNATURES)(found)
    check_order(found)
    body = found["body"]
    parties = [*body["curators"], *(body["researchers"] or []), body["server"]]
    different([party["signing_key"] for party in parties])
    if body["mechanism"]["name"] == "overlap":
        check_overlap(body)
        return found
    require(all(curator["attributes"] for curator in body["curators"]), "no attributes")
    attributes = [each for curator in body["curators"] for each in curator["attributes"]]
    different([attribute["name"] for attribute in attributes])
    cells = 1
    for attribute in attributes:
        different(attribute["categories"])
        cells *= len(attribute["categories"])
        require(cells <= MAX_CELLS, "there are too many cells")
    require(cells >= 2, "there is one cell only")
    expected = "pure-1" if body["delta"] == 0 else "shuffle-1"
    if body["mechanism"]["name"] == "decoys":
        expected = "decoys-1"
        check_decoys(body, cells)
    else:
        size, population = body["mechanism"]["sample_size"], body["population"]
        require(None in {size, population} or size <= population, "the sample is too large")
    require(body["accounting"] == expected, "the accounting does not fit")
    if body["stored"] is not None:
        require(body["mechanism"]["name"] == "paper", "stored tables have no decoys")
        require(body["linkage"]["mode"] == "matched", "stored tables are matched")
        require(len(body["stored"]["uploads"]) == len(body["curators"]), "uploads are missing")
    return found


def check_overlap(body: dict[str, Any]) -> None:
    """Refuse an overlap count that has values, or breaks its promise (section 13.1)."""
    agreed = body["mechanism"]
    linked = body["linkage"]["by"], body["linkage"]["mode"]
    fixed = [body[name] for name in ("researchers", "delta", "population", "stored", "pads")]
    require(linked == ("ids", "matched"), "an overlap count is matched by ids")
    require(fixed == [[], 0, None, None, "stream"], "an overlap count has no such thing")
    require(body["accounting"] == "overlap-1", "the accounting does not fit")
    require(not any(curator["attributes"] for curator in body["curators"]), "there are values")
    require(2 <= len(body["curators"]) <= 8, "too few curators, or too many")
    require(agreed["decoys"]["law"] == "geometric", "the law ends")
    check_decoy_promise(agreed, body["epsilon"], 0)
    check_noise(int(agreed["noise_threshold"]), body["epsilon"])
    for each in (agreed["decoys"]["threshold"], agreed["noise_threshold"]):
        require(int(each) <= 100_000 * (2**64 - int(each)), "drawing would not end")


def check_decoys(body: dict[str, Any], cells: int) -> None:
    """Refuse a contract with decoys that breaks its promise, or asks for too much (section 4.3)."""
    agreed = body["mechanism"]
    check_decoy_promise(agreed, body["epsilon"], body["delta"])
    check_public(agreed["epsilon_public"])
    matched = body["linkage"]["mode"] == "matched"
    sizes = [
        prod(len(attribute["categories"]) for attribute in curator["attributes"])
        for curator in body["curators"]
    ]
    patterns = pattern_count(sizes, matched=matched)
    require(patterns <= 10**7, "there are too many patterns")
    require(patterns * moments(agreed["decoys"])[0] <= 10**9, "there are too many decoys")
    if agreed["keep_threshold"] is not None:
        require((2**64 - int(agreed["keep_threshold"])) % cells == 0, "no M fits the threshold")


def read_alignment(message: str) -> dict[str, Any]:
    """Read an alignment (section 5.1)."""
    found = parse(message.encode())
    record(body=ALIGNMENT, signatures=SIGNATURES)(found)
    require(len(found["signatures"]) == 1, "an alignment has one signature")
    body = found["body"]
    require((body["digest"] is None) == (body["population"] is None), "half of an alignment")
    require(body["digest"] is not None or body["decoys"] is not None, "an alignment of nothing")
    return found


def read_publication(message: str) -> dict[str, Any]:
    """Read a publication (section 11.1)."""
    found = parse(message.encode())
    record(body=PUBLICATION, signatures=SIGNATURES)(found)
    require(len(found["signatures"]) == 1, "a publication has one signature")
    different(found["body"]["attributes"])
    return found


def read_overlap(message: str) -> dict[str, Any]:
    """Read the number of an overlap count (section 13.2)."""
    found = parse(message.encode())
    record(body=OVERLAP, signatures=SIGNATURES)(found)
    require(len(found["signatures"]) == 1, "a number has one signature")
    return found


def read_release(message: str) -> dict[str, Any]:
    """Read a release, and refuse lengths that cannot be (section 10)."""
    found = parse(message.encode())
    record(body=RELEASE, signatures=SIGNATURES)(found)
    require(len(found["signatures"]) == 1, "a release has one signature")
    body = found["body"]
    rows, uploads, keep = body["rows"], body["uploads"], body["keep_threshold"]
    if body["accounting"] != "decoys-1":
        require(None not in {body["population"], keep}, "only decoys do without these")
        require(1 <= rows <= body["population"], "the sample is larger than the population")
    require(keep is None or (2**64 - int(keep)) % body["cells"] == 0, "no M fits the threshold")
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


def read_revocation(message: str) -> dict[str, Any]:
    """Read the revocation of a grant (section 11.2)."""
    found = parse(message.encode())
    record(body=REVOCATION, signatures=SIGNATURES)(found)
    require(len(found["signatures"]) == 1, "a revocation has one signature")
    return found


READERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "alignment": read_alignment,
    "contract": read_contract,
    "grant": read_grant,
    "grant-revocation": read_revocation,
    "overlap": read_overlap,
    "publication": read_publication,
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
