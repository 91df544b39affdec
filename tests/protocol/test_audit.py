"""The audit log as a client sees it: whatever a server rewrites, somebody notices."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations, pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.messages import filler
from veiltab.crypto.signing import SigningKey
from veiltab.errors import AuditError
from veiltab.protocol.audit_log import Seen, next_entry, verify_log
from veiltab.protocol.verify import sign
from veiltab.wire.audit import AuditEntry, AuditHead, entry_hash
from veiltab.wire.signed import Signed
from veiltab.wire.states import AuditEvent, State

STUDY = filler("study")
SERVER = SigningKey(filler("server"))
LENGTH = 6

Log = list[AuditEntry]


def extend(previous: Seen | None, study: bytes, count: int, label: str = "") -> Log:
    """Write entries that follow what is there."""
    entries: Log = []
    for number in range(count):
        entries.append(
            next_entry(
                previous,
                study,
                at=1_700_000_000 + number,
                actor=filler(f"actor {number % 2}"),
                event=list(AuditEvent)[number % len(AuditEvent)],
                message=filler(f"{label} message {number}") if number % 3 else None,
                state=list(State)[min(number, len(State) - 1)],
            )
        )
        previous = entries[-1].sequence + 1, entry_hash(entries[-1])
    return entries


def end(entries: Sequence[AuditEntry]) -> Seen:
    """Return how far a log goes, without any check."""
    return len(entries), entry_hash(entries[-1])


def head_of(
    entries: Sequence[AuditEntry], key: SigningKey = SERVER, **changes: Any
) -> Signed[AuditHead]:
    """Sign for a log, right or wrong."""
    length, last = end(entries)
    body = AuditHead(at=1_700_001_000, hash=last, length=length, study=STUDY)
    return sign(replace(body, **changes), key)


LOG = extend(None, STUDY, LENGTH)
HEAD = head_of(LOG)


def test_a_right_log_is_accepted() -> None:
    """Whole, from nothing or from any point at which it was seen before."""
    assert verify_log(STUDY, LOG, HEAD, SERVER.public) == end(LOG)
    for length in range(1, LENGTH + 1):
        seen = end(LOG[:length])
        assert verify_log(STUDY, LOG, HEAD, SERVER.public, seen) == end(LOG)
    assert verify_log(STUDY, LOG, HEAD, SERVER.public, (0, STUDY)) == end(LOG)


def test_the_chain_is_linked() -> None:
    """The first entry refers to the study, each other one to the one before."""
    assert LOG[0].previous == STUDY
    assert [entry.sequence for entry in LOG] == list(range(LENGTH))
    for before, after in pairwise(LOG):
        assert after.previous == entry_hash(before)


def refused(entries: Log, head: Signed[AuditHead], seen: Seen | None = None) -> str:
    """Return why a log is refused."""
    with pytest.raises(AuditError) as caught:
        verify_log(STUDY, entries, head, SERVER.public, seen)
    assert caught.value.hint
    return caught.value.message


@pytest.mark.parametrize("number", range(LENGTH))
def test_a_deleted_entry_is_found(number: int) -> None:
    """The next one stands where it should be; if the server signs for it or not."""
    entries = LOG[:number] + LOG[number + 1 :]
    for head in (HEAD, head_of(entries)) if number < LENGTH - 1 else (HEAD,):
        assert f"entry {number} " in refused(entries, head)


@pytest.mark.parametrize("number", range(LENGTH + 1))
def test_an_inserted_entry_is_found(number: int) -> None:
    """Even one that continues what stands before it."""
    (extra,) = extend(end(LOG[:number]) if number else None, STUDY, 1, "inserted")
    entries = [*LOG[:number], extra, *LOG[number:]]
    expected = number + 1 if number < LENGTH else LENGTH
    assert f"entry {expected} " in refused(entries, HEAD)
    if number < LENGTH:
        assert f"entry {number + 1} " in refused(entries, head_of(entries))


@pytest.mark.parametrize(("first", "second"), list(combinations(range(LENGTH), 2)))
def test_swapped_entries_are_found(first: int, second: int) -> None:
    """At the first place that is wrong."""
    entries = list(LOG)
    entries[first], entries[second] = entries[second], entries[first]
    assert f"entry {first} " in refused(entries, HEAD)


CHANGES: dict[str, Any] = {
    "actor": filler("somebody else"),
    "at": 1,
    "event": "aborted",
    "message": filler("another message"),
    "previous": filler("another entry"),
    "sequence": 77,
    "state": "aborted",
    "study": filler("another study"),
}


@pytest.mark.parametrize("number", range(LENGTH))
@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_entry_is_found(number: int, field: str) -> None:
    """Any field of any entry: there, or where the next one or the head refers to it."""
    entries = list(LOG)
    entries[number] = replace(LOG[number], **{field: CHANGES[field]})
    at_once = field in {"previous", "sequence", "study"} or number == LENGTH - 1
    assert f"entry {number if at_once else number + 1} " in refused(entries, HEAD)


@pytest.mark.parametrize("length", range(LENGTH))
def test_a_log_that_was_cut_off_is_found(length: int) -> None:
    """By the head; and if the server signs for the shorter one, by who saw the longer one."""
    assert f"entry {length} is missing" in refused(LOG[:length], HEAD)
    if length:
        shorter = LOG[:length], head_of(LOG[:length])
        assert verify_log(STUDY, *shorter, SERVER.public) == end(LOG[:length])
        assert f"entry {length} is missing" in refused(*shorter, end(LOG))


@pytest.mark.parametrize("length", range(1, LENGTH))
def test_a_replaced_tail_is_found_by_who_saw_the_old_one(length: int) -> None:
    """A server can sign for another story, but not to those who know the first one."""
    kept = LOG[:length]
    other = kept + extend(end(kept), STUDY, LENGTH + 2 - length, "other")
    head = head_of(other)
    assert verify_log(STUDY, other, head, SERVER.public) == end(other)
    assert verify_log(STUDY, other, head, SERVER.public, end(kept)) == end(other)
    for seen in range(length + 1, LENGTH + 1):
        assert f"entry {seen - 1} or one before" in refused(other, head, end(LOG[:seen]))


def test_another_log_of_the_same_length_is_found() -> None:
    """Also where what was seen is all that there is."""
    other = extend(None, STUDY, LENGTH, "other")
    assert "seen before" in refused(other, head_of(other), end(LOG))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"length": LENGTH - 1}, f"entry {LENGTH - 1} stands after"),
        ({"length": LENGTH + 1}, f"entry {LENGTH} is missing"),
        ({"hash": filler("another")}, f"entry {LENGTH - 1} is not the one"),
        ({"study": filler("another")}, "another study"),
    ],
)
def test_a_head_of_another_log_is_refused(change: dict[str, Any], reason: str) -> None:
    """Even if the server has signed it."""
    assert reason in refused(LOG, head_of(LOG, **change))


def test_a_head_by_somebody_else_is_refused() -> None:
    """Only the study's server can vouch for the log."""
    assert "not signed" in refused(LOG, head_of(LOG, SigningKey(filler("another server"))))


@pytest.mark.parametrize("field", ["at", "hash", "length", "study"])
def test_a_changed_head_is_refused(field: str) -> None:
    """Its signature covers every field."""
    value: Any = {"at": 5, "length": 5}.get(field, filler("another"))
    changed = Signed(replace(HEAD.body, **{field: value}), HEAD.signatures)
    assert "not signed" in refused(LOG, changed)


def test_an_empty_log_is_refused() -> None:
    """Every study has at least its proposal in it."""
    assert "entry 0 is missing" in refused([], HEAD)


def test_a_log_of_another_study_is_refused() -> None:
    """A server cannot show one study's log for another's."""
    other = extend(None, filler("another study"), LENGTH)
    assert "entry 0 is about another study" in refused(other, HEAD)


EDITS: list[Callable[[Log, int, int], None]] = [
    lambda log, i, _: log.__delitem__(i),
    lambda log, i, j: log.insert(i, log[j]),
    lambda log, i, j: log.__setitem__(i, replace(log[j], at=log[j].at + 1)),
    lambda log, i, _: log.__delitem__(slice(i, None)),
]


@given(
    edits=st.lists(
        st.tuples(st.sampled_from(EDITS), st.integers(0, 50), st.integers(0, 50)), min_size=1
    )
)
def test_any_edits_are_found(edits: list[tuple[Callable[[Log, int, int], None], int, int]]) -> None:
    """Under the same head no other list of entries is accepted, whatever was done to it."""
    entries = list(LOG)
    for edit, first, second in edits:
        if entries:
            edit(entries, first % len(entries), second % len(entries))
    if entries == LOG:
        assert verify_log(STUDY, entries, HEAD, SERVER.public) == end(LOG)
    else:
        refused(entries, HEAD)
