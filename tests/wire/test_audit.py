"""Entries and heads of the audit log: their exact form, and what their hashes cover."""

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.message_strategies import IDS
from tests.support.messages import filler, signed
from veiltab.errors import MalformedError, MessageError
from veiltab.wire.audit import AuditEntry, AuditHead, entry_hash
from veiltab.wire.codec import MAX_INTEGER, load
from veiltab.wire.states import AuditEvent, State

NUMBERS = st.integers(0, 2**32 - 1)
TIMES = st.integers(0, MAX_INTEGER)
ENTRIES = st.builds(
    AuditEntry,
    actor=IDS,
    at=TIMES,
    event=st.sampled_from(AuditEvent),
    message=st.none() | IDS,
    previous=IDS,
    sequence=NUMBERS,
    state=st.sampled_from(State),
    study=IDS,
)
HEADS = st.builds(
    AuditHead, at=TIMES, hash=IDS, length=NUMBERS.map(lambda number: number + 1), study=IDS
)


def entry(**changes: Any) -> AuditEntry:
    """Build an entry in the middle of a log."""
    fields: dict[str, Any] = {
        "actor": filler("actor"),
        "at": 1_700_000_000,
        "event": "uploaded",
        "message": filler("message"),
        "previous": filler("previous"),
        "sequence": 7,
        "state": "open",
        "study": filler("study"),
    }
    return AuditEntry(**fields | changes)


def head(**changes: Any) -> AuditHead:
    """Build the head of a log."""
    fields: dict[str, Any] = {
        "at": 1_700_000_000,
        "hash": filler("last"),
        "length": 8,
        "study": filler("study"),
    }
    return AuditHead(**fields | changes)


def test_an_entry_is_written_out() -> None:
    """Its keys, and no kind or version among them; its hash has a label of its own."""
    assert entry().canonical().decode() == (
        f'{{"actor":"{filler("actor").hex()}","at":1700000000,"event":"uploaded",'
        f'"message":"{filler("message").hex()}","previous":"{filler("previous").hex()}",'
        f'"sequence":7,"state":"open","study":"{filler("study").hex()}"}}'
    )
    expected = hashlib.sha256(b"veiltab/v1/audit\x00" + entry().canonical()).digest()
    assert entry_hash(entry()) == expected


def test_a_head_is_written_out() -> None:
    """It is a signed message of its own kind."""
    assert json.loads(head().canonical()) == {
        "at": 1_700_000_000,
        "hash": filler("last").hex(),
        "kind": "audit-head",
        "length": 8,
        "study": filler("study").hex(),
        "version": 1,
    }


@given(drawn=ENTRIES)
def test_entries_are_read_back(drawn: AuditEntry) -> None:
    """What is written is what was read, and the bytes have one form."""
    assert AuditEntry.from_json(load(drawn.canonical())) == drawn


@given(drawn=HEADS)
def test_heads_are_read_back(drawn: AuditHead) -> None:
    """With their signature, which is somebody else's to verify."""
    message = signed(drawn)
    assert AuditHead.loads(message.dumps()) == message


@given(first=ENTRIES, second=ENTRIES)
def test_different_entries_have_different_hashes(first: AuditEntry, second: AuditEntry) -> None:
    """The hash covers every field."""
    assert (entry_hash(first) == entry_hash(second)) == (first == second)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("actor", filler("another")),
        ("at", 1_700_000_001),
        ("event", "granted"),
        ("message", None),
        ("previous", filler("another")),
        ("sequence", 8),
        ("state", "uploaded"),
        ("study", filler("another")),
    ],
)
def test_every_field_is_in_the_hash(field: str, value: object) -> None:
    """Changing any one of them gives another hash."""
    assert entry_hash(entry(**{field: value})) != entry_hash(entry())


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("actor", b""),
        ("at", -1),
        ("at", 1.5),
        ("event", "deleted"),
        ("event", ""),
        ("message", b"short"),
        ("previous", None),
        ("sequence", -1),
        ("sequence", 2**32),
        ("state", "unknown"),
        ("study", filler("study").hex()),
    ],
)
def test_impossible_entries_are_not_made(field: str, value: object) -> None:
    """A field out of its range is refused where it stands."""
    with pytest.raises(MalformedError, match=field):
        entry(**{field: value})


@pytest.mark.parametrize(("field", "value"), [("length", 0), ("hash", b""), ("at", None)])
def test_impossible_heads_are_not_made(field: str, value: object) -> None:
    """A log begins with the proposal, so no head is of an empty one."""
    with pytest.raises(MalformedError, match=field):
        head(**{field: value})


@pytest.mark.parametrize("change", [{"note": "x"}, {"kind": "audit"}, {"version": 1}])
def test_entries_have_no_other_fields(change: dict[str, Any]) -> None:
    """Nothing can stand in an entry that its hash does not cover."""
    with pytest.raises(MalformedError, match="unknown field"):
        AuditEntry.from_json(entry().to_json() | change)


@pytest.mark.parametrize("field", sorted(entry().to_json()))
def test_entries_have_all_fields(field: str) -> None:
    """A missing field is refused, also one that may be null."""
    value = entry().to_json()
    del value[field]
    with pytest.raises(MalformedError, match=field):
        AuditEntry.from_json(value)


@given(data=st.binary())
def test_garbage_is_no_head(data: bytes) -> None:
    """Whatever the bytes are, the error is a message's."""
    with pytest.raises(MessageError):
        AuditHead.loads(data)
