"""Messages that are well-formed, but must be refused where they are used: sections 4 to 12."""

import base64
import hashlib
import json
from collections.abc import Iterator
from typing import Any

from vectors.generator.bad_research import research_cases
from vectors.generator.files import Case, Document, bad, document, filler
from vectors.generator.hpke import ephemeral_key, seal
from vectors.generator.tampering import (
    Change,
    Written,
    flipped,
    put,
    revocation,
    together,
    turn,
)
from veiltab.wire.packing import BLINDING_BYTES

MISMATCH, SIGNATURE, MALFORMED = "mismatch", "bad_signature", "malformed_message"
DIGEST, SEAL, ALIGNMENT = "wrong_digest", "cannot_unseal", "not_aligned"
PROMISE, NOT_GRANTED = "promise_broken", "not_granted"


def bad_studies() -> Document:
    """Put what each party must refuse together."""
    sampled = Written("study-aligned-stream")
    fresh, stored = Written("study-matched-fresh"), Written("study-matched-stored")
    decoys, matched = Written("study-aligned-decoys"), Written("study-matched-decoys")
    return document(
        "Sections 4 to 12. In a `study` of these files, what `instead` has takes the place of the"
        " right messages, and the party that does the `step` must refuse it: README.md says how.",
        [
            *research_cases(),
            *_secrets(sampled),
            *_alignments(sampled),
            *_decoy_alignments(sampled, decoys, matched),
            *_uploads(sampled, fresh),
            *_decoy_uploads(decoys, matched),
            *_publications(decoys),
            *_revocations(decoys),
            *_requests(stored),
            *_repads(stored),
        ],
    )


def _secrets(study: Written) -> Iterator[Case]:
    """Let the second curator receive a wrong secret."""
    first, second = study.curators
    message = study.document["secrets"][0]
    body = json.loads(message)["body"]
    context = bytes.fromhex(body["scope"] + body["from"] + body["to"])
    wrong = seal(
        filler("another secret"),
        second.sealing.public,
        "secret",
        context,
        ephemeral=ephemeral_key("another secret"),
    )
    tampered = bytes.fromhex(flipped(base64.b64decode(body["sealed"]).hex()))
    changes: dict[str, tuple[str, Change]] = {
        "secret_of_another_study": (MISMATCH, put("scope", to=filler("another study").hex())),
        "secret_to_another": (MISMATCH, put("to", to=first.party_id.hex())),
        "secret_from_a_stranger": (MISMATCH, put("from", to=study.server.party_id.hex())),
        "secret_commitment": (MISMATCH, put("sealed", to=base64.b64encode(wrong).decode())),
        "secret_tampered_seal": (SEAL, put("sealed", to=base64.b64encode(tampered).decode())),
    }
    for name, (code, change) in changes.items():
        yield _case(name, code, "secret", study, message=study.again(message, change))
    foreign = study.again(message, put("version", to=1), second)
    yield _case("secret_foreign_signature", SIGNATURE, "secret", study, message=foreign)


def _alignments(study: Written) -> Iterator[Case]:
    """Let the curators compare alignments that are not the same."""
    first, second = study.document["alignments"]
    other = study.again(second, put("digest", to=filler("another digest").hex()))
    moved = study.again(second, put("study", to=filler("another study").hex()))
    foreign = study.again(second, put("version", to=1), study.curators[0])
    count = study.again(second, put("population", to=61))
    again = study.again(second, put("attempt", to=2))
    stranger = study.again(second, put("curator", to=study.server.party_id.hex()), study.server)
    for name, code, messages in (
        ("alignment_missing", ALIGNMENT, [first]),
        ("alignment_digest", ALIGNMENT, [first, other]),
        ("alignment_population", ALIGNMENT, [first, count]),
        ("alignment_attempt", ALIGNMENT, [first, again]),
        ("alignment_of_a_stranger", MISMATCH, [first, second, stranger]),
        ("alignment_of_another_study", MISMATCH, [first, moved]),
        ("alignment_foreign_signature", SIGNATURE, [first, foreign]),
    ):
        yield _case(name, code, "alignment", study, messages=messages)


def _decoy_alignments(sampled: Written, study: Written, matched: Written) -> Iterator[Case]:
    """Let the curators compare decoys that are not the same, or say more than was asked for."""
    other = put("decoys", to=filler("other decoys").hex())
    told = together(put("digest", to=filler("a digest").hex()), put("population", to=50))
    changes: tuple[tuple[str, str, Written, Change], ...] = (
        ("decoy_digest", ALIGNMENT, study, other),
        ("decoy_digest_matched", ALIGNMENT, matched, other),
        ("decoy_digest_missing", MISMATCH, study, put("decoys", to=None)),
        ("decoy_digest_of_none", MISMATCH, sampled, other),
        ("alignment_tells_a_number", MISMATCH, matched, told),
    )
    for name, code, written, change in changes:
        first, *others = written.document["alignments"]
        messages = [written.again(first, change), *others]
        yield _case(name, code, "alignment", written, messages=messages)


def _decoy_uploads(study: Written, matched: Written) -> Iterator[Case]:
    """Let the server receive uploads that coins and decoys do not give."""
    upload = study.document["uploads"][0]
    many = together(put("rows", to=60_000), put("population", to=60))
    yield _case(
        "upload_rows_implausible",
        MISMATCH,
        "upload",
        study,
        message=study.again(upload["message"], many),
        chunks=upload["chunks"],
    )
    upload = matched.document["uploads"][0]
    message, chunks = upload["message"], upload["chunks"]
    whole = "ff" * 16 + chunks[-1][32:]
    changed = matched.again(message, put("tokens", to=[_digest(whole)]))
    yield _case(
        "upload_of_who_takes_no_part",
        MISMATCH,
        "upload",
        matched,
        message=changed,
        chunks=[*chunks, whole],
    )


def _publications(study: Written) -> Iterator[Case]:
    """Let the server receive publications that are not of the release."""
    message = study.document["publication"]
    changes: dict[str, tuple[str, Change]] = {
        "publication_of_another_study": (MISMATCH, put("study", to=filler("a study").hex())),
        "publication_of_another_release": (MISMATCH, put("release", to=filler("other").hex())),
        "publication_of_no_attribute": (MISMATCH, put("attributes", to=["height"])),
        "publication_epsilon": (PROMISE, put("epsilon", to=0.7)),
    }
    for name, (code, change) in changes.items():
        yield _case(name, code, "publication", study, message=study.again(message, change))
    curator = study.curators[0]
    by_curator = study.again(message, put("researcher", to=curator.party_id.hex()), curator)
    yield _case("publication_by_a_curator", NOT_GRANTED, "publication", study, message=by_curator)
    foreign = study.again(message, put("version", to=1), study.server)
    yield _case("publication_foreign_signature", SIGNATURE, "publication", study, message=foreign)


def _revocations(study: Written) -> Iterator[Case]:
    """Let the server receive revocations of grants that are not the sender's to revoke."""
    message = revocation(study)
    first, second = study.curators[:2]
    changes: dict[str, tuple[str, Change]] = {
        "revocation_of_another_study": (MISMATCH, put("study", to=filler("a study").hex())),
        "revocation_for_another_researcher": (MISMATCH, put("researcher", to="00" * 32)),
    }
    for name, (code, change) in changes.items():
        yield _case(name, code, "revocation", study, message=study.again(message, change))
    other = study.again(message, put("curator", to=second.party_id.hex()), second)
    yield _case("revocation_of_anothers_grant", MISMATCH, "revocation", study, message=other)
    for who in (second, study.server, study.researcher):
        forged = study.again(message, put("curator", to=first.party_id.hex()), who)
        name = f"revocation_signed_by_{who.name.lower().replace(' ', '_').replace('.', '')}"
        yield _case(name, SIGNATURE, "revocation", study, message=forged)


def _uploads(study: Written, fresh: Written) -> Iterator[Case]:
    """Let the server receive wrong uploads of the first curator."""
    upload = study.document["uploads"][0]
    message, chunks = upload["message"], upload["chunks"]
    changes: dict[str, tuple[str, Change]] = {
        "upload_swapped_columns": (MISMATCH, turn("columns")),
        "upload_of_another_study": (MISMATCH, put("scope", to=filler("another study").hex())),
        "upload_of_a_stranger": (MISMATCH, put("curator", to=study.server.party_id.hex())),
        "upload_rows": (MISMATCH, put("rows", to=15)),
        "upload_population": (MISMATCH, put("population", to=61)),
    }
    for name, (code, change) in changes.items():
        changed = study.again(message, change)
        yield _case(name, code, "upload", study, message=changed, chunks=chunks)
    foreign = study.again(message, put("version", to=1), study.curators[1])
    yield _case(
        "upload_foreign_signature", SIGNATURE, "upload", study, message=foreign, chunks=chunks
    )
    yield _case("upload_digest", DIGEST, "upload", study, message=message, chunks=chunks[1:])
    for name, chunk in {"truncated": chunks[1][:-2], "too_large": "ff" * 4}.items():
        changed = study.again(message, put("columns", 1, "chunks", to=[_digest(chunk)]))
        yield _case(
            f"upload_chunk_{name}",
            MALFORMED,
            "upload",
            study,
            message=changed,
            chunks=[*chunks, chunk],
        )
    yield from _token_uploads(fresh)


def _token_uploads(fresh: Written) -> Iterator[Case]:
    upload = fresh.document["uploads"][0]
    message, chunks = upload["message"], upload["chunks"]
    tokens = chunks[-1][:-2]
    changed = fresh.again(message, put("tokens", to=[_digest(tokens)]))
    yield _case(
        "upload_tokens_truncated",
        MALFORMED,
        "upload",
        fresh,
        message=changed,
        chunks=[*chunks, tokens],
    )

    def sampled(body: dict[str, Any]) -> None:
        body["tokens"], body["population"] = None, body["rows"]

    changed = fresh.again(message, sampled)
    yield _case("upload_form", MISMATCH, "upload", fresh, message=changed, chunks=chunks)


def _requests(study: Written) -> Iterator[Case]:
    """Let the first curator receive wrong requests for new pads."""
    request = study.document["requests"][0]
    message, (positions,) = request["message"], request["chunks"]
    changes: dict[str, tuple[str, Change]] = {
        "request_of_another_study": (MISMATCH, put("study", to=filler("another study").hex())),
        "request_of_another_table": (MISMATCH, put("upload", to=filler("another upload").hex())),
        "request_to_another": (MISMATCH, put("curator", to=study.curators[1].party_id.hex())),
        "request_sample_size": (MISMATCH, put("sample_size", to=29)),
        "request_population": (PROMISE, put("population", to=10**9)),
    }
    for name, (code, change) in changes.items():
        changed = study.again(message, change)
        yield _case(name, code, "request", study, message=changed, chunks=[positions])
    foreign = study.again(message, put("version", to=1), study.curators[1])
    yield _case(
        "request_foreign_signature",
        SIGNATURE,
        "request",
        study,
        message=foreign,
        chunks=[positions],
    )
    yield _case("request_digest", DIGEST, "request", study, message=message, chunks=[])
    beyond = (48).to_bytes(6, "little").hex()
    start = 2 * BLINDING_BYTES  # in hexadecimal digits
    for name, code, chunk in (
        ("request_truncated", MALFORMED, positions[:-2]),
        ("request_row_twice", MISMATCH, positions[:-12] + positions[start : start + 12]),
        ("request_row_beyond_the_table", MISMATCH, positions[:-12] + beyond),
    ):
        changed = study.again(message, put("positions", to=[_digest(chunk)]))
        yield _case(name, code, "request", study, message=changed, chunks=[chunk])


def _repads(study: Written) -> Iterator[Case]:
    """Let the server receive wrong new pads of the first curator."""
    repad = study.document["repads"][0]
    message, chunks = repad["message"], repad["chunks"]
    changes: dict[str, tuple[str, Change]] = {
        "repad_swapped_columns": (MISMATCH, turn("columns")),
        "repad_of_another_study": (MISMATCH, put("study", to=filler("another study").hex())),
        "repad_of_another_request": (MISMATCH, put("request", to=filler("a request").hex())),
        "repad_rows": (MISMATCH, put("rows", to=29)),
    }
    for name, (code, change) in changes.items():
        changed = study.again(message, change)
        yield _case(name, code, "repad", study, message=changed, chunks=chunks)
    foreign = study.again(message, put("version", to=1), study.curators[1])
    yield _case(
        "repad_foreign_signature", SIGNATURE, "repad", study, message=foreign, chunks=chunks
    )
    yield _case("repad_digest", DIGEST, "repad", study, message=message, chunks=chunks[1:])


def _case(name: str, code: str, step: str, study: Written, **instead: Any) -> Case:
    return bad(name, code, step=step, study=study.name, instead=instead)


def _digest(chunk: str) -> str:
    return hashlib.sha256(bytes.fromhex(chunk)).hexdigest()
