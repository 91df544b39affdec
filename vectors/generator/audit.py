"""Vectors of the audit log: section 7 of the specification of the service."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from vectors.generator.files import Case, Document, bad, case, document, filler
from vectors.generator.requests import ELSEWHERE, OTHER, SENDER, SERVER
from vectors.generator.tampering import Change, drop, put, text
from veiltab.crypto.signing import SigningKey
from veiltab.protocol.audit_log import Seen, next_entry
from veiltab.protocol.verify import sign
from veiltab.wire.audit import AuditEntry, AuditHead, entry_hash
from veiltab.wire.signed import Signed

STUDY = filler("audit: study")
START = 1_790_000_000
BROKEN, MALFORMED = "audit_broken", "malformed_message"

A, B, S = SENDER.party_id, OTHER.party_id, SERVER.party_id
R = ELSEWHERE.party_id
LIFE = [
    (A, "proposed", "contract", "proposed"),
    (A, "signed", "contract", "proposed"),
    (A, "secret", "secret", "proposed"),
    (B, "signed", "contract", "open"),
    (S, "opened", "contract", "open"),
    (A, "aligned", "alignment of A", "open"),
    (B, "aligned", "alignment of B", "open"),
    (B, "uploaded", "upload of B", "open"),
    (A, "uploaded", "upload of A", "uploaded"),
    (S, "complete", None, "uploaded"),
    (S, "released", "release", "released"),
    (A, "granted", "grant", "released"),
    (R, "published", "publication", "released"),
]
"""Who did what, with which message, and where the study stood then."""

STORED = [
    *((A, "proposed", "contract", "proposed"), (A, "signed", "contract", "open")),
    (S, "opened", "contract", "open"),
    (S, "sampled", "request to A", "sampled"),
    (A, "repadded", "repad of A", "joined"),
    (S, "complete", None, "joined"),
    (S, "released", "release", "released"),
]
"""The same of a study on stored tables."""

VAULT = [
    *((A, "proposed", "vault", "proposed"), (A, "signed", "vault", "open")),
    (S, "opened", "vault", "open"),
    (A, "uploaded", "stored upload of A", "stored"),
    (S, "complete", None, "stored"),
    (A, "closed", None, "closed"),
]
"""The same of a vault."""

Log = list[AuditEntry]


def written(
    events: Sequence[tuple[bytes, str, str | None, str]],
    previous: Seen | None = None,
    study: bytes = STUDY,
    start: int = START,
) -> Log:
    """Write a log, or what follows one."""
    log: Log = []
    for number, (actor, event, message, state) in enumerate(events):
        digest = None if message is None else filler(f"audit: {message}")
        at = start + 60 * number
        entry = next_entry(
            previous, study, at=at, actor=actor, event=event, message=digest, state=state
        )
        log.append(entry)
        previous = entry.sequence + 1, entry_hash(entry)
    return log


WHOLE = written(LIFE)
SHORT = WHOLE[:3]
ABORTED = [*WHOLE[:6], *written([(B, "aborted", None, "aborted")], (6, entry_hash(WHOLE[5])))]


def audit() -> Document:
    """Section 7: hashes, heads, and logs that somebody has rewritten."""
    cases = [
        *_good(),
        *_rewritten(),
        *_heads(),
        *_against_memory(),
        *_contradictions(),
        *_malformed(),
    ]
    return document(
        "Service, section 7. `entries` and the signed `head` of a `study` by the server with the"
        " public key `server_key`, for a client that has `seen` the log before (or null), give the"
        " hash of each entry, what to remember, and the digests in the log that bind everybody.",
        cases,
    )


def _good() -> Iterator[Case]:
    logs = {
        "one entry": WHOLE[:1],
        "a whole life": WHOLE,
        "an aborted study": ABORTED,
        "a study on stored tables": written(STORED),
        "a vault": written(VAULT),
        "a revoked grant": written([*LIFE, (A, "revoked", "revocation", "released")]),
    }
    for name, log in logs.items():
        yield _right(name, log, None)
    yield _right("seen before, nothing new", SHORT, seen(SHORT))
    yield _right("seen before, and more", SHORT, seen(SHORT[:2]))
    yield _right("seen before it began", SHORT, {"length": 0, "hash": STUDY.hex()})


def _rewritten() -> Iterator[Case]:
    """Spoil the chain, and let the server sign for the end of what is left."""
    first, second, third = SHORT
    study = filler("audit: another study")
    logs = {
        "deleted_first": [second, third],
        "deleted": [first, third],
        "swapped_first": [second, first, third],
        "swapped_last": [first, third, second],
        "repeated": [first, second, second, third],
        "altered_actor": [first, replace(second, actor=B), third],
        "altered_time": [first, replace(second, at=START), third],
        "altered_event": [first, replace(second, event="aligned"), third],
        "altered_message": [first, replace(second, message=None), third],
        "altered_state": [first, replace(second, state="open"), third],
        "altered_first": [replace(first, at=START - 1), second, third],
        "sequence": [first, second, replace(third, sequence=3)],
        "first_previous": written(LIFE[:3], (0, filler("audit: another start"))),
        "entry_of_another_study": [first, second, replace(third, study=study)],
        "another_study": written(LIFE[:3], study=study),
    }
    for name, log in logs.items():
        yield _wrong(name, log, head(log))


def _heads() -> Iterator[Case]:
    """Take right entries, and a head that is not for them."""
    heads = {
        "truncated": (SHORT[:2], head(SHORT)),
        "extended": (SHORT, head(SHORT[:2])),
        "empty": ([], head(SHORT)),
        "altered_last": ([*SHORT[:2], replace(SHORT[2], at=START)], head(SHORT)),
        "head_length": (SHORT, head(SHORT, length=4)),
        "head_hash": (SHORT, head(SHORT, hash=entry_hash(SHORT[1]))),
        "head_of_another_study": (SHORT, head(SHORT, study=filler("audit: another study"))),
        "head_by_another": (SHORT, head(SHORT, OTHER.signing)),
    }
    for name, (log, signed) in heads.items():
        yield _wrong(name, log, signed)
    right = head(SHORT)
    yield _wrong("head_altered", SHORT, replace(right, body=replace(right.body, at=START)))
    empty = replace(right.signatures[0], signature=bytes(64))
    yield _wrong("head_not_signed", SHORT, replace(right, signatures=(empty,)))


def _against_memory() -> Iterator[Case]:
    """Take whole logs with right heads, which a client has seen otherwise."""
    fork = [SHORT[0], *written(LIFE[2:4], (1, entry_hash(SHORT[0])), start=START + 7)]
    longer = [*fork, *written(LIFE[4:5], (3, entry_hash(fork[2])), start=START + 900)]
    anew = written(LIFE[:3], start=START + 1)
    yield _wrong("rollback", SHORT[:2], head(SHORT[:2]), seen(SHORT))
    yield _wrong("fork", fork, head(fork), seen(SHORT))
    yield _wrong("fork_that_is_longer", longer, head(longer), seen(SHORT))
    yield _wrong("fork_that_is_shorter", fork[:2], head(fork[:2]), seen(SHORT))
    yield _wrong("begun_anew", anew, head(anew), seen(SHORT[:1]))


def _contradictions() -> Iterator[Case]:
    """Take whole logs with right heads that say two things of one study."""
    after = len(WHOLE), entry_hash(WHOLE[-1])
    entries: dict[str, tuple[bytes, str, str | None, str]] = {
        "second_release": (S, "released", "another release", "released"),
        "same_release_again": (S, "released", "release", "released"),
        "second_upload": (A, "uploaded", "another upload of A", "released"),
        "upload_without_a_digest": (A, "uploaded", None, "released"),
        "another_contract": (B, "signed", "another contract", "released"),
    }
    for name, entry in entries.items():
        log = [*WHOLE, *written([entry], after)]
        yield _wrong(name, log, head(log))


def _malformed() -> Iterator[Case]:
    changes: dict[str, Change] = {
        "unknown_field": put("comment", to=""),
        "missing_field": drop("message"),
        "unknown_event": put("event", to="erased"),
        "unknown_state": put("state", to="lost"),
        "uppercase_hex": put("actor", to=A.hex().upper()),
        "negative_sequence": put("sequence", to=-1),
        "time_text": put("at", to=str(START)),
        "kind": put("kind", to="audit-entry"),
    }
    for name, change in changes.items():
        found = SHORT[0].to_json()
        change(found)
        yield bad(f"entry_{name}", MALFORMED, **_inputs([text(found)], head(SHORT[:1]).dumps()))
    heads: dict[str, Change] = {
        "unknown_field": put("body", "comment", to=""),
        "length_zero": put("body", "length", to=0),
        "kind": put("body", "kind", to="release"),
        "two_signatures": put("signatures", to=head(SHORT).to_json()["signatures"] * 2),
    }
    for name, change in heads.items():
        spoiled = head(SHORT[:1]).to_json()
        change(spoiled)
        inputs = _inputs(_texts(SHORT[:1]), text(spoiled).encode())
        yield bad(f"head_{name}", MALFORMED, **inputs)


def head(log: Log, key: SigningKey = SERVER.signing, **changes: Any) -> Signed[AuditHead]:
    """Sign for a log, right or wrong."""
    body = AuditHead(at=START + 3600, hash=entry_hash(log[-1]), length=len(log), study=STUDY)
    return sign(replace(body, **changes), key)


def seen(log: Log) -> dict[str, Any]:
    """Return what a client remembers of a log."""
    return {"length": len(log), "hash": entry_hash(log[-1]).hex()}


def logged(log: Log) -> dict[str, Any]:
    """Return the digests that bind everybody, as section 7.3 says."""
    by_event: dict[str, list[AuditEntry]] = {}
    for entry in log:
        by_event.setdefault(entry.event, []).append(entry)
    contract, release = by_event["proposed"][0].message, by_event.get("released", [])
    return {
        "contract": contract and contract.hex(),
        "signers": sorted(entry.actor.hex() for entry in by_event.get("signed", [])),
        "uploads": {
            entry.actor.hex(): entry.message.hex()
            for entry in (*by_event.get("uploaded", []), *by_event.get("repadded", []))
            if entry.message
        },
        "release": release[0].message.hex() if release and release[0].message else None,
    }


def _altered(**changes: Any) -> Log:
    """Change the second of four entries, and nothing else."""
    return [SHORT[0], replace(SHORT[1], **changes), *SHORT[2:]]


def _right(name: str, log: Log, known: dict[str, Any] | None) -> Case:
    hashes = [entry_hash(entry).hex() for entry in log]
    expect = {"hashes": hashes, "seen": seen(log), "logged": logged(log)}
    return case(name, expect, **_inputs(_texts(log), head(log).dumps(), known))


def _wrong(
    name: str, log: Log, signed: Signed[AuditHead], known: dict[str, Any] | None = None
) -> Case:
    return bad(name, BROKEN, **_inputs(_texts(log), signed.dumps(), known))


def _texts(log: Log) -> list[str]:
    return [entry.canonical().decode() for entry in log]


def _inputs(
    entries: list[str], signed: bytes, known: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "study": STUDY.hex(),
        "server_key": SERVER.signing.public.hex(),
        "seen": known,
        "entries": entries,
        "head": signed.decode(),
    }
