"""The exact JSON of each kind, typed out once more from the document (spec 2 to 12)."""

import base64
from typing import Any

import pytest

from tests.support import messages
from tests.support.messages import HOSPITAL, SERVER, TAX_OFFICE, chunks, filler
from veiltab.wire.contract import PublicIdentity
from veiltab.wire.signed import Message


def identity_json(identity: PublicIdentity) -> dict[str, Any]:
    """Write a public identity as section 2 does."""
    return {
        "name": identity.name,
        "sealing_key": identity.sealing_key.hex(),
        "signing_key": identity.signing_key.hex(),
    }


def hexes(*values: bytes) -> list[str]:
    """Write digests in hexadecimal."""
    return [value.hex() for value in values]


CURATORS_JSON = [
    identity_json(HOSPITAL.identity)
    | {
        "attributes": [
            {"name": "smoker", "categories": ["no", "yes"]},
            {"name": "age", "categories": ["<40", "40 to <60", ">=60"]},
        ]
    },
    identity_json(TAX_OFFICE.identity)
    | {"attributes": [{"name": "income", "categories": ["low", "high"]}]},
]
COLUMNS_JSON = [
    {"attribute": "smoker", "chunks": hexes(filler("smoker 0"), filler("smoker 1"))},
    {"attribute": "age", "chunks": hexes(filler("age 0"), filler("age 1"))},
]
CURATOR, STUDY = HOSPITAL.party_id.hex(), filler("study").hex()

WRITTEN_OUT: list[tuple[Message, dict[str, Any]]] = [
    (
        messages.contract(),
        {
            "kind": "contract",
            "version": 1,
            "title": "Smoking and income",
            "nonce": filler("nonce", 16).hex(),
            "curators": CURATORS_JSON,
            "researchers": [identity_json(messages.RESEARCHER)],
            "server": identity_json(SERVER),
            "epsilon": 0.5,
            "delta": 0,
            "accounting": "pure-1",
            "mechanism": {"name": "paper", "sample_size": 70_000},
            "population": 100_000,
            "pads": "stream",
            "linkage": {
                "by": "ids",
                "columns": 2,
                "mode": "matched",
                "normalisation": ["nfc", "trim", "lowercase"],
            },
            "secret_commitment": filler("commitment").hex(),
            "stored": {
                "vault": filler("vault").hex(),
                "uploads": hexes(filler("upload 0"), filler("upload 1")),
            },
        },
    ),
    (
        messages.decoy_contract(),
        {
            "kind": "contract",
            "version": 1,
            "title": "Smoking and income",
            "nonce": filler("nonce", 16).hex(),
            "curators": CURATORS_JSON,
            "researchers": [identity_json(messages.RESEARCHER)],
            "server": identity_json(SERVER),
            "epsilon": 0.7,
            "delta": 0,
            "accounting": "decoys-1",
            "mechanism": {
                "name": "decoys",
                "coin_threshold": "6148914691236517205",
                "decoys": {"law": "geometric", "threshold": "9223372036854775808"},
                "epsilon_public": 0.5,
                "keep_threshold": "6446744073709551616",
            },
            "population": None,
            "pads": "stream",
            "linkage": {
                "by": "ids",
                "columns": 2,
                "mode": "matched",
                "normalisation": ["nfc", "trim", "lowercase"],
            },
            "secret_commitment": filler("commitment").hex(),
            "stored": None,
        },
    ),
    (
        messages.vault(),
        {
            "curators": CURATORS_JSON,
            "kind": "vault",
            "linkage": {"by": "ids", "columns": 1, "mode": "matched", "normalisation": []},
            "nonce": filler("nonce", 16).hex(),
            "secret_commitment": filler("commitment").hex(),
            "server": identity_json(SERVER),
            "title": "Stored tables",
            "version": 1,
        },
    ),
    (
        messages.secret(),
        {
            "from": CURATOR,
            "kind": "secret",
            "scope": STUDY,
            "sealed": base64.b64encode(filler("sealed secret", 80)).decode(),
            "to": TAX_OFFICE.party_id.hex(),
            "version": 1,
        },
    ),
    (
        messages.alignment(),
        {
            "attempt": 1,
            "curator": CURATOR,
            "decoys": None,
            "digest": filler("tokens").hex(),
            "kind": "alignment",
            "population": 100_000,
            "study": STUDY,
            "version": 1,
        },
    ),
    (
        messages.matched_alignment(),
        {
            "attempt": 1,
            "curator": CURATOR,
            "decoys": filler("decoys").hex(),
            "digest": None,
            "kind": "alignment",
            "population": None,
            "study": STUDY,
            "version": 1,
        },
    ),
    (
        messages.publication(),
        {
            "attributes": ["income", "age"],
            "counts": filler("counts").hex(),
            "epsilon": 0.5,
            "kind": "publication",
            "release": filler("release").hex(),
            "researcher": messages.RESEARCHER.party_id.hex(),
            "study": STUDY,
            "version": 1,
        },
    ),
    (
        messages.token_upload(),
        {
            "columns": COLUMNS_JSON,
            "curator": CURATOR,
            "kind": "upload",
            "population": None,
            "rows": 70_000,
            "scope": STUDY,
            "tokens": hexes(filler("tokens 0"), filler("tokens 1")),
            "upload": filler("upload id", 16).hex(),
            "version": 1,
        },
    ),
    (
        messages.release(columns=messages.columns(*HOSPITAL.attributes)),
        {
            "cells": 12,
            "columns": COLUMNS_JSON,
            "delta": 0,
            "accounting": "pure-1",
            "epsilon": 0.5,
            "keep_threshold": "6446744073709551616",
            "kind": "release",
            "nonce": filler("release nonce", 16).hex(),
            "population": 100_000,
            "rows": 70_000,
            "study": STUDY,
            "uploads": [
                {
                    "curator": terms.party_id.hex(),
                    "digest": filler(f"upload {number}").hex(),
                    "positions": hexes(*chunks(f"positions {number}")),
                }
                for number, terms in enumerate((HOSPITAL, TAX_OFFICE))
            ],
            "version": 1,
        },
    ),
    (
        messages.grant(),
        {
            "attributes": ["smoker", "age"],
            "curator": CURATOR,
            "expires": 1_900_000_000,
            "grant": filler("grant id", 16).hex(),
            "kind": "grant",
            "pads": "stream",
            "researcher": messages.RESEARCHER.party_id.hex(),
            "sealed_digest": messages.grant().sealed_digest.hex(),
            "study": STUDY,
            "upload": filler("upload 0").hex(),
            "version": 1,
        },
    ),
    (
        messages.repad_request(),
        {
            "curator": CURATOR,
            "kind": "repad-request",
            "population": 100_000,
            "positions": hexes(*chunks("positions 0")),
            "sample_size": 70_000,
            "study": STUDY,
            "upload": filler("upload 0").hex(),
            "version": 1,
        },
    ),
    (
        messages.repad(),
        {
            "columns": COLUMNS_JSON,
            "curator": CURATOR,
            "kind": "repad",
            "request": filler("request").hex(),
            "rows": 70_000,
            "study": STUDY,
            "upload": filler("new upload id", 16).hex(),
            "version": 1,
        },
    ),
]


@pytest.mark.parametrize(("body", "expected"), WRITTEN_OUT, ids=lambda value: str(type(value)))
def test_the_json_is_the_one_that_the_specification_writes(
    body: Message, expected: dict[str, Any]
) -> None:
    """Field by field, in both directions."""
    assert body.to_json() == expected
    assert type(body).from_json(expected) == body
