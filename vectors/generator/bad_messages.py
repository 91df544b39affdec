"""Messages that every reader must refuse before anything of them is used: section 1."""

import json
from collections.abc import Iterator
from typing import Any

from vectors.generator.files import Case, Document, bad, document
from vectors.generator.tampering import (
    Change,
    Written,
    drop,
    put,
    repeat,
    revocation,
    text,
    together,
    turn,
)
from veiltab.core.decoys import largest_coin
from veiltab.core.mechanism import Geometric

MALFORMED = "malformed_message"
DEPTH = 3_000


def bad_messages() -> Document:
    """Put wrong messages of every kind together."""
    sampled = Written("study-aligned-stream")
    fresh, stored = Written("study-matched-fresh"), Written("study-matched-stored")
    decoys, table = Written("study-aligned-decoys"), Written("study-matched-decoys")
    cases = [
        *_contracts(sampled, stored),
        *_decoys(decoys, table, stored),
        *_publications(decoys),
        *_texts(sampled),
        *_releases(sampled, fresh),
        *_uploads(sampled, fresh),
        *_grants(sampled),
        *_revocations(sampled),
        *_others(sampled, stored),
    ]
    return document(
        "Section 1 and the tables of fields. Each `message` must be refused when it is read as"
        " one of this `kind`, before any signature is looked at; signatures are right.",
        cases,
    )


def _contracts(study: Written, stored: Written) -> Iterator[Case]:
    message = study.contract
    party = json.loads(message)["body"]["curators"][0]
    identity = {key: party[key] for key in ("name", "sealing_key", "signing_key")}
    changes: dict[str, Change] = {
        "unknown_field": put("comment", to=""),
        "unknown_field_inside": put("curators", 0, "comment", to=None),
        "missing_field": drop("nonce"),
        "missing_field_inside": drop("curators", 0, "attributes", 0, "categories"),
        "null_field": put("title", to=None),
        "version_text": put("version", to="1"),
        "version_true": put("version", to=True),
        "version_missing": drop("version"),
        "kind": put("kind", to="vault"),
        "kind_unknown": put("kind", to="treaty"),
        "uppercase_hex": put("nonce", to="AB" * 16),
        "short_hex": put("nonce", to="ab" * 15),
        "not_hex": put("nonce", to="g" * 32),
        "empty_text": put("title", to=""),
        "long_text": put("title", to="x" * 1001),
        "control_character": put("title", to="a\nb"),
        "delete_character": put("title", to="a\x7fb"),
        "epsilon_zero": put("epsilon", to=0),
        "epsilon_large": put("epsilon", to=50.5),
        "epsilon_text": put("epsilon", to="1"),
        "delta": put("delta", to=1e-6),
        "count_zero": put("population", to=0),
        "count_fraction": put("mechanism", "sample_size", to=2.5),
        "count_true": put("mechanism", "sample_size", to=True),
        "sample_size": put("mechanism", "sample_size", to=61),
        "linkage_mode": put("linkage", "mode", to="researchers"),
        "pads": put("pads", to="none"),
        "linkage": put("linkage", to={"by": "names"}),
        "linkage_by_rows": put("linkage", "by", to="rows"),
        "linkage_columns": put("linkage", "columns", to=0),
        "normalisation": put("linkage", "normalisation", to=["nfd"]),
        "equal_parties": put("server", to=identity),
        "equal_signing_keys": put("server", to=identity | {"sealing_key": "00" * 1216}),
        "equal_researcher": put("researchers", to=[identity]),
        "equal_attributes": put("curators", 1, "attributes", 0, "name", to="age"),
        "equal_categories": put("curators", 0, "attributes", 0, "categories", to=["a", "a"]),
        "no_categories": put("curators", 0, "attributes", 0, "categories", to=[]),
        "no_attributes": put("curators", 0, "attributes", to=[]),
        "too_many_attributes": put(
            "curators", 0, "attributes", to=[_attribute(f"{i}", 1) for i in range(1001)]
        ),
        "no_curators": put("curators", to=[]),
        "one_cell": put("curators", to=[party | {"attributes": [_attribute("a", 1)]}]),
        "too_many_cells": put(
            "curators", 0, "attributes", to=[_attribute(f"a{i}", 2) for i in range(49)]
        ),
    }
    for name, change in changes.items():
        yield _case(name, "contract", study.again(message, change))
    yield _case(
        "version", "contract", study.again(message, put("version", to=2)), "unsupported_version"
    )
    for name, change in {
        "stored_aligned": put("linkage", "mode", to="aligned"),
        "stored_uploads": drop("stored", "uploads", 0),
    }.items():
        yield _case(name, "contract", stored.again(stored.contract, change))


def _decoys(geometric: Written, table: Written, stored: Written) -> Iterator[Case]:
    """Break contracts, alignments and releases with decoys."""
    body = json.loads(geometric.contract)["body"]
    terms = body["mechanism"]
    coin = largest_coin(Geometric(int(terms["decoys"]["threshold"])), body["epsilon"])
    keep = int(terms["keep_threshold"])
    changes: dict[str, Change] = {
        "promise": put("mechanism", "coin_threshold", to=str(coin + 1)),
        "promise_ratio": put("mechanism", "decoys", "threshold", to=str(2**62)),
        "promise_epsilon": put("epsilon", to=0.69),
        "coin_zero": put("mechanism", "coin_threshold", to="0"),
        "coin_number": put("mechanism", "coin_threshold", to=1),
        "coin_leading_zero": put("mechanism", "coin_threshold", to=f"0{coin}"),
        "law": put("mechanism", "decoys", "law", to="poisson"),
        "law_fields": put("mechanism", "decoys", to={"law": "geometric", "weights": ["1"]}),
        "law_missing": drop("mechanism", "decoys", "law"),
        "epsilon_public": put("mechanism", "epsilon_public", to=0),
        "epsilon_public_missing": drop("mechanism", "epsilon_public"),
        "epsilon_public_tiny": put("mechanism", "epsilon_public", to=1e-20),
        "noise_uneven": put("mechanism", "keep_threshold", to=str(keep + 1)),
        "mechanism_unknown": put("mechanism", "name", to="magic"),
        "mechanism_mixed": put("mechanism", "sample_size", to=5),
        "mechanism_accounting": put("accounting", to="pure-1"),
        "accounting_without_decoys": put("mechanism", to={"name": "paper", "sample_size": None}),
        "too_many_decoys": put("mechanism", "decoys", "threshold", to=str(2**64 - 1)),
        "too_many_patterns": put(
            "curators", 0, "attributes", to=[_attribute(f"a{i}", 10) for i in range(7)]
        ),
    }
    for name, change in changes.items():
        yield _case(name, "contract", geometric.again(geometric.contract, change))
    weights = json.loads(table.contract)["body"]["mechanism"]["decoys"]["weights"]
    short = [str(int(weights[0]) - 1), *weights[1:]]
    for name, change in {
        "weights_sum": put("mechanism", "decoys", "weights", to=short),
        "weights_none": put("mechanism", "decoys", "weights", to=[]),
        "weights_negative": put("mechanism", "decoys", "weights", to=["-1", *weights[1:], "1"]),
        "bounded_law": put("delta", to=0),
        "promise_delta": put("delta", to=0.001),
    }.items():
        yield _case(name, "contract", table.again(table.contract, change))
    decoyed = together(put("mechanism", to=terms), put("accounting", to="decoys-1"))
    changed = stored.again(stored.contract, together(decoyed, put("epsilon", to=1)))
    yield _case("decoys_with_stored", "contract", changed)
    for name, change in {
        "alignment_of_nothing": together(put("decoys", to=None), put("digest", to=None)),
        "alignment_without_number": put("population", to=None),
        "alignment_without_digest": put("digest", to=None),
    }.items():
        yield _case(name, "alignment", _first(geometric, "alignments", change))
    by_rank = together(put("accounting", to="pure-1"), put("population", to=10**6))
    yield _case("release_without_noise", "release", table.again(table.release, by_rank))


def _publications(study: Written) -> Iterator[Case]:
    message = study.document["publication"]
    for name, change in {
        "publication_of_nothing": put("attributes", to=[]),
        "publication_twice": repeat("attributes"),
        "publication_epsilon": put("epsilon", to=0),
        "publication_counts": put("counts", to="00" * 31),
        "publication_release": drop("release"),
    }.items():
        yield _case(name, "publication", study.again(message, change))


def _texts(study: Written) -> Iterator[Case]:
    """Break what is around the body, and the way it is written."""
    message = study.contract
    changes: dict[str, Change] = {
        "missing_signatures": drop("signatures"),
        "missing_body": drop("body"),
        "unknown_field_outside": put("comment", to=""),
        "signature_order": turn("signatures"),
        "signature_twice": repeat("signatures"),
        "signature_uppercase": put("signatures", 0, "signature", to="AB" * 64),
        "signature_short": put("signatures", 0, "signature", to="ab" * 63),
        "signature_without_key": drop("signatures", 0, "key"),
    }
    for name, change in changes.items():
        yield _case(name, "contract", study.outside(message, change))
    deep = "[" * DEPTH + "]" * DEPTH
    written = {
        "whitespace": message.replace(":", ": ", 1),
        "whitespace_at_the_end": message + "\n",
        "duplicate_key": message.replace('"title":', '"title":"","title":', 1),
        "number_spelling": message.replace('"epsilon":2', '"epsilon":2.0', 1),
        "huge_count": message.replace('"population":60', '"population":9007199254740992', 1),
        "lone_surrogate": message.replace('"title":"', '"title":"\\ud800', 1),
        "deep_json": message.replace('"title":"', f'"title":{deep},"title ":"', 1),
        "truncated": message[:-1],
        "trailing": message + "{}",
        "body_alone": text(json.loads(message)["body"]),
        "list": f"[{message}]",
    }
    for name, changed in written.items():
        yield _case(name, "contract", changed)


def _releases(study: Written, fresh: Written) -> Iterator[Case]:
    threshold = int(json.loads(study.release)["body"]["keep_threshold"])
    changes: dict[str, Change] = {
        "threshold_number": put("keep_threshold", to=1),
        "threshold_zero": put("keep_threshold", to="0"),
        "threshold_leading_zero": put("keep_threshold", to=f"0{threshold}"),
        "threshold_sign": put("keep_threshold", to=f"+{threshold}"),
        "threshold_large": put("keep_threshold", to=str(2**64)),
        "threshold_uneven": put("keep_threshold", to=str(threshold + 1)),
        "huge_count_of_rows": together(put("population", to=2**48), put("rows", to=2**48)),
        "huge_count_of_cells": put("cells", to=2**48 + 1),
        "release_sample_size": put("population", to=1),
        "column_twice": put("columns", 1, "attribute", to="smoker"),
        "chunk_missing": put("columns", 0, "chunks", to=[]),
        "chunk_too_many": repeat("columns", 0, "chunks"),
        "no_columns": put("columns", to=[]),
        "no_uploads": put("uploads", to=[]),
        "curator_twice": repeat("uploads"),
        "accounting": put("accounting", to="shuffle"),
        "release_digest": put("uploads", 0, "digest", to=None),
        "release_nonce": put("nonce", to="00" * 15),
        "release_without_nonce": drop("nonce"),
    }
    for name, change in changes.items():
        yield _case(name, "release", study.again(study.release, change))
    some = fresh.again(fresh.release, put("uploads", 0, "positions", to=None))
    yield _case("positions_of_some", "release", some)
    none = study.outside(study.release, put("signatures", to=[]))
    yield _case("missing_signature", "release", none)
    body = json.loads(study.release)["body"]
    two = study.signed(body, [study.server, study.curators[0]])
    yield _case("second_signature", "release", text(two))


def _uploads(study: Written, fresh: Written) -> Iterator[Case]:
    message = study.document["uploads"][0]["message"]
    tokens = json.loads(fresh.document["uploads"][0]["message"])["body"]["tokens"]
    changes: dict[str, Change] = {
        "upload_rows": put("rows", to=65_537),
        "upload_no_rows": put("rows", to=0),
        "upload_huge_count": put("rows", to=2**48 + 1),
        "upload_two_forms": put("tokens", to=tokens),
        "upload_no_form": put("population", to=None),
        "upload_id": put("upload", to="00" * 32),
    }
    for name, change in changes.items():
        yield _case(name, "upload", study.again(message, change))
    more = fresh.again(fresh.document["uploads"][0]["message"], repeat("tokens"))
    yield _case("upload_tokens", "upload", more)


def _revocations(study: Written) -> Iterator[Case]:
    message = revocation(study)
    changes: dict[str, Change] = {
        "revocation_short_id": put("grant", to="00" * 15),
        "revocation_without_researcher": drop("researcher"),
        "revocation_with_attributes": put("attributes", to=["smoker"]),
    }
    for name, change in changes.items():
        yield _case(name, "grant-revocation", study.again(message, change))
    two = study.again(message, put("version", to=1), *study.curators[:2])
    yield _case("revocation_two_signatures", "grant-revocation", two)


def _grants(study: Written) -> Iterator[Case]:
    message = study.grants[0]
    changes: dict[str, Change] = {
        "grant_nothing": put("attributes", to=[]),
        "grant_attribute_twice": repeat("attributes"),
        "grant_negative_time": put("expires", to=-1),
        "grant_fraction_of_time": put("expires", to=1.5),
        "grant_pads": put("pads", to="two-time"),
    }
    for name, change in changes.items():
        yield _case(name, "grant", study.again(message, change))
    sealed: str = json.loads(message)["sealed"]
    seals: dict[str, Any] = {
        "base64": sealed.replace(sealed[0], "_", 1),
        "base64_white_space": f"{sealed[:4]} {sealed[4:]}",
        "base64_unpadded": "AA",
        "base64_unused_bits": "AB==",
        "sealed_number": 0,
    }
    for name, changed in seals.items():
        yield _case(name, "grant", study.outside(message, put("sealed", to=changed)))
    yield _case("grant_without_seal", "grant", study.outside(message, drop("sealed")))


def _others(study: Written, stored: Written) -> Iterator[Case]:
    """Give one wrong message at least of each kind that is left."""
    request = stored.document["requests"][0]["message"]
    repad = stored.document["repads"][0]["message"]
    yield _case("alignment", "alignment", _first(study, "alignments", put("population", to=0)))
    yield _case("secret", "secret", _first(study, "secrets", put("sealed", to="AA")))
    yield _case("secret_to_nobody", "secret", _first(study, "secrets", drop("to")))
    vault = put("curators", 0, "attributes", to=[])
    yield _case("vault", "vault", stored.again(stored.document["vault"], vault))
    yield _case("vault_as_contract", "contract", stored.document["vault"])
    yield _case("contract_as_vault", "vault", stored.contract)
    few = together(put("sample_size", to=2), put("population", to=1))
    yield _case("request", "repad-request", stored.again(request, few))
    yield _case("request_positions", "repad-request", stored.again(request, repeat("positions")))
    yield _case("repad", "repad", stored.again(repad, put("rows", to=65_537)))
    yield _case("repad_as_upload", "upload", repad)


def _first(study: Written, name: str, change: Change) -> str:
    return study.again(study.document[name][0], change)


def _case(name: str, kind: str, message: str, code: str = MALFORMED) -> Case:
    return bad(name, code, kind=kind, message=message)


def _attribute(name: str, size: int) -> dict[str, Any]:
    return {"name": name, "categories": [str(code) for code in range(size)]}
