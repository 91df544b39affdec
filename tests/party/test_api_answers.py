"""Answers of a confused or hostile server: of another study, in another form, too large."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support import messages
from tests.support.answers import (
    ALIGNMENT,
    AUDIT,
    CHUNK,
    CONTRACT,
    DIGEST,
    ENTRY,
    GETS,
    GRANT,
    HEAD,
    OTHER,
    POSTS,
    SECRET,
    STATUS,
    STUDY,
    UPLOAD,
    Call,
    answering,
    of_study,
)
from tests.support.messages import signed
from veiltab.errors import (
    DigestError,
    MalformedError,
    MismatchError,
)
from veiltab.wire.bundles import BUNDLE_BYTES, bundle

NAMED = (DIGEST, CHUNK)
OTHER_STATUS = STATUS | {"study": OTHER.hex()}


@pytest.mark.parametrize(
    ("call", "body"),
    [
        (GETS["status"][0], OTHER_STATUS),
        (GETS["contract"][0], signed(messages.contract(title="Another one")).dumps()),
        (
            GETS["secrets"][0],
            {"secrets": [of_study(messages.secret, "scope", OTHER).to_json()]},
        ),
        (
            GETS["alignments"][0],
            {"alignments": [each.to_json() for each in (ALIGNMENT, signed(messages.alignment()))]},
        ),
        (GETS["release"][0], of_study(messages.release, study=OTHER).dumps()),
        (GETS["grants"][0], {"grants": [of_study(messages.grant, study=OTHER).to_json()]}),
        (GETS["audit"][0], AUDIT | {"entries": [replace(ENTRY, study=OTHER).to_json()]}),
        (GETS["audit"][0], AUDIT | {"head": signed(replace(HEAD.body, study=OTHER)).to_json()}),
        *((POSTS[name][0], OTHER_STATUS) for name in ("propose", "sign", "abort", "upload")),
    ],
)
def test_answers_of_another_study_are_refused(call: Call, body: bytes | dict[str, Any]) -> None:
    """The server may be confused or hostile: an answer must be about what was asked."""
    server, _ = answering(body)
    with pytest.raises(MismatchError, match=STUDY.hex()):
        call(server)


@pytest.mark.parametrize(
    "call",
    [
        lambda s: s.sign(OTHER, CONTRACT),
        lambda s: s.send_secret(OTHER, SECRET),
        lambda s: s.send_alignment(OTHER, ALIGNMENT),
        lambda s: s.upload(OTHER, UPLOAD),
        lambda s: s.send_grant(OTHER, GRANT),
    ],
)
def test_messages_of_another_study_are_not_sent(call: Call) -> None:
    """A mistake of the caller's does not leave the house."""
    server, seen = answering(STATUS)
    with pytest.raises(MismatchError):
        call(server)
    assert seen == []


@pytest.mark.parametrize("name", [name for name in GETS if name != "chunk"])
@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"null", b"{}", b"[" * 100_000])
def test_answers_in_another_form_are_refused(name: str, body: bytes) -> None:
    """A log-in page, or nothing: one error, and it is not retried."""
    server, seen = answering(body)
    with pytest.raises(MalformedError):
        GETS[name][0](server)
    assert len(seen) == 1


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("status", STATUS | {"state": "open\x1b[2J"}),
        ("status", STATUS | {"updated": "now"}),
        ("status", STATUS | {"curators": [{}]}),
        ("status", STATUS | {"curators": [{**STATUS["curators"][0], "signed": 1}]}),  # type: ignore[index]
        ("studies", {"studies": [1]}),
        ("chunks", {"chunks": [DIGEST.hex().upper()]}),
        ("alignments", {"alignments": [{"body": {}, "signatures": []}]}),
        ("alignments", {"alignments": [7]}),
        ("grants", {"grants": {}}),
        ("audit", {"entries": [], "head": None}),
        ("audit", {"entries": [{}], "head": HEAD.to_json()}),
        ("contract", b" " + CONTRACT.dumps()),
    ],
)
def test_wrong_fields_in_answers_are_refused(name: str, body: bytes | dict[str, Any]) -> None:
    """Each field has its type, and no text can write to a terminal."""
    server, _ = answering(body)
    with pytest.raises(MalformedError):
        GETS[name][0](server)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (bundle([NAMED, (DIGEST, b"another chunk")]), DigestError),
        (bundle([NAMED, (DIGEST, CHUNK + b"!")]), DigestError),
        (bundle([NAMED, (OTHER, CHUNK)]), MalformedError),
        (bundle([NAMED]), MalformedError),
        (bundle([NAMED, NAMED, NAMED]), MalformedError),
        (bundle([NAMED, NAMED])[:-1], MalformedError),
        (bundle([NAMED, NAMED]) + b"!", MalformedError),
        (CHUNK + CHUNK, MalformedError),
        (b"", MalformedError),
    ],
)
def test_wrong_chunks_are_refused(body: bytes, error: type[Exception]) -> None:
    """Bytes that are not what their digests say, or too few of them, or too many."""
    server, _ = answering(body)
    with pytest.raises(error):
        server.release_chunks(STUDY, [DIGEST, DIGEST])


def test_a_bundle_is_never_larger_than_a_bundle() -> None:
    """No matter what the server sends."""
    for size, words in ((BUNDLE_BYTES, "no chunks"), (BUNDLE_BYTES + 1, "more than")):
        server, _ = answering(bytes(size))
        with pytest.raises(MalformedError, match=words):
            server.release_chunks(STUDY, [DIGEST])
