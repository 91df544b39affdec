"""What a researcher must refuse: contracts, releases, chunks and grants that do not fit (11)."""

import hashlib
import json
from collections.abc import Iterator
from typing import Any

from vectors.generator.files import Case, bad, filler
from vectors.generator.show import EXPIRES
from vectors.generator.tampering import (
    Change,
    Written,
    drop,
    flipped,
    put,
    sealed_part,
    text,
    together,
    turn,
)
from veiltab.wire.packing import BLINDING_BYTES

MISMATCH, SIGNATURE, PROMISE = "mismatch", "bad_signature", "promise_broken"
MALFORMED, DIGEST, SEAL = "malformed_message", "wrong_digest", "cannot_unseal"


def research_cases() -> Iterator[Case]:
    """Yield what a researcher is given instead of the right messages."""
    sampled = Written("study-aligned-stream")
    one_time = Written("study-aligned-one-time")
    fresh = Written("study-matched-fresh")
    yield from _signatures(sampled)
    yield from _chunks(sampled, fresh)
    yield from _releases(sampled, one_time, fresh)
    yield from _decoy_releases(Written("study-aligned-decoys"), Written("study-matched-decoys"))
    yield from _grants(sampled, fresh)
    yield from _seals(sampled)
    yield from _one_time(one_time)


def _signatures(study: Written) -> Iterator[Case]:
    contract, release, grant = study.contract, study.release, study.grants[0]
    first, second = study.curators
    body = json.loads(contract)["body"]
    yield _case("missing_signature", SIGNATURE, study, contract=_signed(study, body, [first]))
    yield _case("no_signatures", SIGNATURE, study, contract=_signed(study, body, []))
    signers = [first, second, study.server]
    yield _case("foreign_signature", SIGNATURE, study, contract=_signed(study, body, signers))
    by_curator = study.again(release, put("version", to=1), first)
    yield _case("foreign_signature_of_release", SIGNATURE, study, release=by_curator)
    by_other = study.again(grant, put("version", to=1), second)
    yield _case("foreign_signature_of_grant", SIGNATURE, study, grants=[by_other])
    body = json.loads(release)["body"]
    relabelled = text(study.signed(body, [study.server], kind="upload"))
    yield _case("signature_of_another_kind", SIGNATURE, study, release=relabelled)
    broken = [_broken(message) for message in (contract, release, grant)]
    yield _case("signature_of_contract", SIGNATURE, study, contract=broken[0])
    yield _case("signature", SIGNATURE, study, release=broken[1])
    yield _case("signature_of_grant", SIGNATURE, study, grants=broken[2:])
    unsigned = study.outside(release, put("body", "rows", to=15))
    yield _case("signed_body", SIGNATURE, study, release=unsigned)


def _chunks(study: Written, fresh: Written) -> Iterator[Case]:
    chunks = study.chunks
    damaged = [flipped(chunks[0]), *chunks[1:]]
    blinding = 2 * BLINDING_BYTES  # in hexadecimal digits
    yield _case("digest", DIGEST, study, chunks=damaged)
    yield _case("chunk_missing", DIGEST, study, chunks=chunks[1:])
    age = chunks[1]
    for name, chunk in {
        "chunk_truncated": age[:-2],
        "chunk_trailing": age + "00",
        "chunk_empty": "",
        "chunk_shorter_than_its_blinding": age[: blinding - 2],
        "word_too_large": "ff" * (len(age) // 2),
    }.items():
        yield _with_chunk(name, study, 1, chunk)
    # Of 257 categories the low plane has base 2 and comes first; row 0 becomes 2·128 + 1.
    district = bytearray.fromhex(fresh.chunks[1][blinding:])
    district[0] |= 1
    low = (json.loads(fresh.release)["body"]["rows"] + 7) // 8
    word = int.from_bytes(district[low : low + 8], "little")
    district[low : low + 8] = (word - word % 129 + 128).to_bytes(8, "little")
    packed = fresh.chunks[1][:blinding] + district.hex()
    yield _with_chunk("value_too_large", fresh, 1, packed, case=1)
    body = json.loads(fresh.release)["body"]
    positions = fresh.chunks[_index(fresh, body["uploads"][0]["positions"][0])]
    first = positions[blinding : blinding + 12]
    for name, code, chunk in (
        ("positions_truncated", MALFORMED, positions[:-2]),
        ("position_twice", MISMATCH, positions[:-12] + first),
        ("position_copied", MISMATCH, positions[:blinding] + first * body["rows"]),
    ):
        release = fresh.again(fresh.release, put("uploads", 0, "positions", to=[_digest(chunk)]))
        yield _case(name, code, fresh, release=release, chunks=[*fresh.chunks, chunk])


def _releases(study: Written, one_time: Written, fresh: Written) -> Iterator[Case]:
    threshold = int(json.loads(study.release)["body"]["keep_threshold"])
    positions = json.loads(fresh.release)["body"]["uploads"][0]["positions"]
    give = [put("uploads", index, "positions", to=positions) for index in (0, 1)]
    changes: dict[str, tuple[str, Change]] = {
        "other_study": (MISMATCH, put("study", to=filler("another study").hex())),
        "swapped_columns": (MISMATCH, turn("columns")),
        "missing_column": (MISMATCH, drop("columns", -1)),
        "renamed_column": (MISMATCH, put("columns", 0, "attribute", to="Smoker")),
        "swapped_uploads": (MISMATCH, turn("uploads")),
        "missing_upload": (MISMATCH, drop("uploads", -1)),
        "other_curator": (MISMATCH, put("uploads", 0, "curator", to="00" * 32)),
        "other_cells": (MISMATCH, put("cells", to=study.cells // 2)),
        "positions": (MISMATCH, together(*give)),
        "promise": (PROMISE, put("keep_threshold", to=str(threshold + study.cells))),
        "promise_epsilon": (PROMISE, put("epsilon", to=3)),
        "promise_smaller_epsilon": (PROMISE, put("epsilon", to=1)),
        "promise_population": (PROMISE, put("population", to=61)),
        "promise_sample_size": (PROMISE, put("rows", to=17)),
    }
    for name, (code, change) in changes.items():
        yield _case(name, code, study, release=study.again(study.release, change))
    other = one_time.again(one_time.release, put("rows", to=49))
    yield _case("promise_agreed_sample_size", PROMISE, one_time, release=other)
    take = [put("uploads", index, "positions", to=None) for index in (0, 1)]
    none = fresh.again(fresh.release, together(*take))
    yield _case("missing_positions", MISMATCH, fresh, release=none)
    nonce = study.again(study.contract, put("nonce", to="00" * 16))
    yield _case("other_contract", MISMATCH, study, contract=nonce)


def _decoy_releases(study: Written, matched: Written) -> Iterator[Case]:
    """Change what a release with decoys states."""
    keep = int(json.loads(study.release)["body"]["keep_threshold"])
    changes: tuple[tuple[str, Written, Change], ...] = (
        ("rows_implausible", study, put("rows", to=5000)),
        ("rows_implausible_none", matched, _without_rows),
        ("decoys_epsilon", study, put("epsilon", to=0.8)),
        ("decoys_delta", matched, put("delta", to=0.001)),
        ("decoys_noise", study, put("keep_threshold", to=str(keep - study.cells))),
        ("decoys_no_noise", study, put("keep_threshold", to=None)),
        ("decoys_noise_not_agreed", matched, put("keep_threshold", to=str(2**64 - matched.cells))),
        ("decoys_population", study, put("population", to=61)),
        ("decoys_population_missing", study, put("population", to=None)),
        ("decoys_population_told", matched, put("population", to=40)),
        ("decoys_accounting", study, put("accounting", to="pure-1")),
    )
    for name, written, change in changes:
        yield _case(name, PROMISE, written, release=written.again(written.release, change))


def _without_rows(body: dict[str, Any]) -> None:
    """Take away all rows."""
    body["rows"] = 0
    for column in body["columns"]:
        column["chunks"] = []
    for upload in body["uploads"]:
        upload["positions"] = []


def _grants(study: Written, fresh: Written) -> Iterator[Case]:
    grant, other = study.grants
    changes: dict[str, Change] = {
        "other_study_of_grant": put("study", to=filler("another study").hex()),
        "other_upload": put("upload", to=filler("another upload").hex()),
        "no_curator": put("curator", to=study.server.party_id.hex()),
        "pad_mode": put("pads", to="one-time"),
        "grant_order": turn("attributes"),
        "grant_of_foreign_attribute": put("attributes", to=["smoker", "income"]),
        "grant_of_unknown_attribute": put("attributes", to=["smoker", "weight"]),
    }
    for name, change in changes.items():
        yield _case(name, MISMATCH, study, grants=[study.again(grant, change)])
    yield _case("granted_twice", MISMATCH, study, grants=[grant, other, grant])
    yield _case("expired_grant", "expired", study, now=EXPIRES)
    ended = study.again(grant, put("expires", to=0))
    yield _case("expired_grant_long_ago", "expired", study, grants=[ended])
    yield _case("unnamed_researcher", "not_granted", study, party=study.server.name)
    another = put("researcher", to=study.server.party_id.hex())
    unnamed = [study.again(grant, another)]
    yield _case("grant_to_an_unnamed_researcher", "not_granted", study, grants=unnamed)
    another = put("researcher", to=fresh.server.party_id.hex())
    elsewhere = [fresh.again(fresh.grants[0], another)]
    yield _case("grant_to_the_server", "not_granted", fresh, grants=elsewhere)
    yield _case("server_as_researcher", "not_granted", fresh, party=fresh.server.name)
    stranger = put("researcher", to="ab" * 32)
    foreign = [fresh.again(fresh.grants[0], stranger)]
    yield _case("other_researcher", MISMATCH, fresh, grants=foreign)
    yield _case(
        "not_granted", "not_granted", study, grants=[grant], attributes=["smoker", "income"]
    )
    yield _case("no_grants", "not_granted", study, grants=[])


def _seals(study: Written) -> Iterator[Case]:
    grant, other = study.grants
    sealed = sealed_part(grant)
    tampered = bytes.fromhex(flipped(sealed.hex()))
    changed = json.loads(study.with_seal(grant, tampered))["sealed"]
    stale = study.outside(grant, put("sealed", to=changed))
    yield _case("tampered_seal", DIGEST, study, grants=[stale])
    yield _case("tampered_seal_signed", SEAL, study, grants=[study.with_seal(grant, tampered)])
    moved = study.again(grant, put("grant", to="00" * 16))
    yield _case("moved_seal", SEAL, study, grants=[moved])
    yield _case("seal_of_another", SEAL, study, grants=[study.with_seal(grant, sealed_part(other))])
    yield _case("empty_seal", SEAL, study, grants=[study.with_seal(grant, b"")])
    header = study.outside(grant, put("sealed", to=None))
    yield _case("missing_seal", SEAL, study, grants=[header])
    for name, material in {
        "pad_keys_too_short": filler("one and a half keys", 63),
        "pad_keys_too_few": filler("one key"),
        "pad_keys_too_many": filler("three keys", 96),
        "pad_keys_missing": b"",
    }.items():
        yield _case(name, MALFORMED, study, grants=[study.resealed(grant, material, name)])


def _one_time(study: Written) -> Iterator[Case]:
    """Break the pads that a grant of one-time pads carries: 50 rows of smoker, a bit each."""
    smoker, income, clothes = study.grants
    rows = (50).to_bytes(8, "big")
    for name, grant, material, code in (
        ("huge_count", smoker, b"\xff" * 8, MALFORMED),
        ("huge_count_with_pads", smoker, b"\xff" * 8 + bytes(7), MALFORMED),
        ("pads_empty", smoker, b"", MALFORMED),
        ("pads_without_count", smoker, bytes(7), MALFORMED),
        ("pads_truncated", smoker, rows + bytes(6), MALFORMED),
        ("pads_trailing", smoker, rows + bytes(8), MALFORMED),
        ("pads_too_large", clothes, rows + b"\xff" * 10, MALFORMED),
        ("pads_too_few", smoker, (49).to_bytes(8, "big") + bytes(7), MISMATCH),
        ("pads_of_no_rows", smoker, bytes(8), MISMATCH),
    ):
        changed = study.resealed(grant, material, name)
        yield _case(name, code, study, grants=[changed])
    # An attribute of one category takes no bytes: nothing but the count says how many rows.
    endless = study.resealed(income, b"\xff" * 8, "endless", put("attributes", to=["country"]))
    yield _case("huge_count_without_bytes", MALFORMED, study, grants=[endless])


def _with_chunk(name: str, study: Written, index: int, chunk: str, case: int = 0) -> Case:
    """Let the server sign a release with another chunk in a column."""
    release = study.again(study.release, put("columns", index, "chunks", to=[_digest(chunk)]))
    chunks = [*study.chunks, chunk]
    return _case(name, MALFORMED, study, case=case, release=release, chunks=chunks)


def _case(name: str, code: str, study: Written, *, case: int = 0, **instead: Any) -> Case:
    base = study.document["cases"][case]["name"]
    return bad(name, code, step="research", study=study.name, case=base, instead=instead)


def _signed(study: Written, body: dict[str, Any], signers: list[Any]) -> str:
    return text(study.signed(body, signers))


def _broken(message: str) -> str:
    """Change a bit of the first signature."""
    signature = json.loads(message)["signatures"][0]["signature"]
    return message.replace(signature, flipped(signature))


def _digest(chunk: str) -> str:
    return hashlib.sha256(bytes.fromhex(chunk)).hexdigest()


def _index(study: Written, digest: str) -> int:
    return [_digest(chunk) for chunk in study.chunks].index(digest)
