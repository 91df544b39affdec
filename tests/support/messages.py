"""A valid message of each kind, the same in every run; signatures are bytes that verify nowhere."""

import hashlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from veiltab.core.mechanism import Geometric, WeightTable
from veiltab.core.schema import Attribute
from veiltab.wire.contract import (
    Contract,
    CuratorTerms,
    Linkage,
    PublicIdentity,
    Stored,
    Vault,
)
from veiltab.wire.mechanism import DecoyTerms, PaperTerms
from veiltab.wire.messages import (
    Alignment,
    ColumnChunks,
    Grant,
    GrantRevocation,
    Publication,
    Release,
    ReleasedUpload,
    Repad,
    RepadRequest,
    Secret,
    SignedGrant,
    Upload,
)
from veiltab.wire.packing import chunk_count
from veiltab.wire.signed import Message, Signature, Signed, SignedMessage

ROWS = 70_000
"""Rows of the example tables: two chunks each."""

POPULATION = 100_000


def filler(label: str, size: int = 32) -> bytes:
    """Return bytes that look random and depend on the label alone."""
    return hashlib.shake_256(label.encode()).digest(size)


def party(name: str) -> PublicIdentity:
    """Build the public identity of somebody with no private keys."""
    return PublicIdentity(name, filler(f"{name} signs"), filler(f"{name} opens", 1216))


HOSPITAL = CuratorTerms(
    party("Krankenhaus Süd"),
    (Attribute("smoker", ("no", "yes")), Attribute("age", ("<40", "40 to <60", ">=60"))),
)
TAX_OFFICE = CuratorTerms(party("Tax office"), (Attribute("income", ("low", "high")),))
SERVER = party("Cloud")
RESEARCHER = party("Dr. 王")


def chunks(label: str, rows: int = ROWS) -> tuple[bytes, ...]:
    """Return as many digests as a column of that many rows has chunks."""
    return tuple(filler(f"{label} {position}") for position in range(chunk_count(rows)))


def columns(*attributes: Attribute, rows: int = ROWS) -> tuple[ColumnChunks, ...]:
    """Return the chunk digests of these attributes' columns."""
    return tuple(ColumnChunks(each.name, chunks(each.name, rows)) for each in attributes)


def contract(**changes: Any) -> Contract:
    """Build a contract with every field filled, a study on stored tables."""
    fields: dict[str, Any] = {
        "title": "Smoking and income",
        "nonce": filler("nonce", 16),
        "curators": (HOSPITAL, TAX_OFFICE),
        "researchers": (RESEARCHER,),
        "server": SERVER,
        "epsilon": 0.5,
        "delta": 0.0,
        "accounting": "pure-1",
        "mechanism": PaperTerms(ROWS),
        "population": POPULATION,
        "pads": "stream",
        "linkage": Linkage.by_ids(2, ("nfc", "trim", "lowercase"), "matched"),
        "secret_commitment": filler("commitment"),
        "stored": Stored(filler("vault"), (filler("upload 0"), filler("upload 1"))),
    }
    return Contract(**fields | changes)


def plain_contract(**changes: Any) -> Contract:
    """Build a contract with as little as possible: aligned, by rows, no limits."""
    fields: dict[str, Any] = {
        "researchers": None,
        "epsilon": 1,
        "mechanism": PaperTerms(None),
        "population": None,
        "pads": "one-time",
        "linkage": Linkage.by_rows(),
        "stored": None,
    }
    return contract(**fields | changes)


DECOYS = DecoyTerms(2**64 // 3, Geometric(2**63), 0.5, 2**64 - 12 * 10**18)
"""A coin of a third and decoys with ratio a half, which promise ln 2; and a channel."""


def decoy_contract(**changes: Any) -> Contract:
    """Build a contract with decoys, which is matched and has a channel."""
    fields: dict[str, Any] = {
        "epsilon": 0.7,
        "accounting": "decoys-1",
        "mechanism": DECOYS,
        "population": None,
        "stored": None,
    }
    return contract(**fields | changes)


def table_contract(**changes: Any) -> Contract:
    """Build a contract whose decoys have a table of weights, without a channel."""
    weights = (2**56, 2**60, 2**64 - 2**57 - 2**61, 2**60, 2**56)
    fields: dict[str, Any] = {
        "epsilon": 5.5,
        "delta": 0.01,
        "mechanism": DecoyTerms(2**64, WeightTable(weights), 0.25, None),
        "linkage": Linkage.by_rows(),
    }
    return decoy_contract(**fields | changes)


def vault(**changes: Any) -> Vault:
    """Build a vault of the same parties."""
    fields: dict[str, Any] = {
        "title": "Stored tables",
        "nonce": filler("nonce", 16),
        "curators": (HOSPITAL, TAX_OFFICE),
        "server": SERVER,
        "linkage": Linkage.by_ids(mode="matched"),
        "secret_commitment": filler("commitment"),
    }
    return Vault(**fields | changes)


def secret(**changes: Any) -> Secret:
    """Build the message that passes the secret on."""
    fields: dict[str, Any] = {
        "sender": HOSPITAL.party_id,
        "receiver": TAX_OFFICE.party_id,
        "scope": filler("study"),
        "sealed": filler("sealed secret", 80),
    }
    return Secret(**fields | changes)


def alignment(**changes: Any) -> Alignment:
    """Build a curator's keyed digest."""
    fields: dict[str, Any] = {
        "attempt": 1,
        "curator": HOSPITAL.party_id,
        "decoys": None,
        "digest": filler("tokens"),
        "population": POPULATION,
        "study": filler("study"),
    }
    return Alignment(**fields | changes)


def decoy_alignment(**changes: Any) -> Alignment:
    """Build the keyed digest of a curator's respondents and decoys."""
    return alignment(**{"decoys": filler("decoys")} | changes)


def matched_alignment(**changes: Any) -> Alignment:
    """Build the keyed digest of decoys alone."""
    fields: dict[str, Any] = {"digest": None, "population": None}
    return decoy_alignment(**fields | changes)


def upload(**changes: Any) -> Upload:
    """Build an upload for a study in which the respondents are aligned."""
    fields: dict[str, Any] = {
        "columns": columns(*HOSPITAL.attributes),
        "curator": HOSPITAL.party_id,
        "population": POPULATION,
        "rows": ROWS,
        "scope": filler("study"),
        "tokens": None,
        "upload_id": filler("upload id", 16),
    }
    return Upload(**fields | changes)


def token_upload(**changes: Any) -> Upload:
    """Build an upload for a study in which the server matches."""
    return upload(**{"population": None, "tokens": chunks("tokens")} | changes)


def release(**changes: Any) -> Release:
    """Build a release with positions."""
    fields: dict[str, Any] = {
        "cells": 12,
        "columns": columns(*HOSPITAL.attributes, *TAX_OFFICE.attributes),
        "delta": 0.0,
        "accounting": "pure-1",
        "epsilon": 0.5,
        "keep_threshold": 2**64 - 12 * 10**18,
        "nonce": filler("release nonce", 16),
        "population": POPULATION,
        "rows": ROWS,
        "study": filler("study"),
        "uploads": (
            ReleasedUpload(HOSPITAL.party_id, filler("upload 0"), chunks("positions 0")),
            ReleasedUpload(TAX_OFFICE.party_id, filler("upload 1"), chunks("positions 1")),
        ),
    }
    return Release(**fields | changes)


def decoy_release(**changes: Any) -> Release:
    """Build a release of matched rows with decoys, as they are."""
    fields: dict[str, Any] = {
        "accounting": "decoys-1",
        "keep_threshold": None,
        "population": None,
    }
    return release(**fields | changes)


def publication(**changes: Any) -> Publication:
    """Build the message that names a published copy."""
    fields: dict[str, Any] = {
        "attributes": ("income", "age"),
        "counts": filler("counts"),
        "epsilon": 0.5,
        "release": filler("release"),
        "researcher": RESEARCHER.party_id,
        "study": filler("study"),
    }
    return Publication(**fields | changes)


def grant(**changes: Any) -> Grant:
    """Build the body of a grant."""
    fields: dict[str, Any] = {
        "attributes": ("smoker", "age"),
        "curator": HOSPITAL.party_id,
        "expires": 1_900_000_000,
        "grant_id": filler("grant id", 16),
        "pads": "stream",
        "researcher": RESEARCHER.party_id,
        "sealed_digest": hashlib.sha256(filler("sealed pads", 112)).digest(),
        "study": filler("study"),
        "upload_digest": filler("upload 0"),
    }
    return Grant(**fields | changes)


def grant_revocation(**changes: Any) -> GrantRevocation:
    """Build the revocation of a grant."""
    return replace(GrantRevocation.of(grant()), **changes)


def repad_request(**changes: Any) -> RepadRequest:
    """Build the server's request for new pads."""
    fields: dict[str, Any] = {
        "curator": HOSPITAL.party_id,
        "population": POPULATION,
        "positions": chunks("positions 0"),
        "sample_size": ROWS,
        "study": filler("study"),
        "upload_digest": filler("upload 0"),
    }
    return RepadRequest(**fields | changes)


def repad(**changes: Any) -> Repad:
    """Build a curator's answer."""
    fields: dict[str, Any] = {
        "columns": columns(*HOSPITAL.attributes),
        "curator": HOSPITAL.party_id,
        "request_digest": filler("request"),
        "rows": ROWS,
        "study": filler("study"),
        "upload_id": filler("new upload id", 16),
    }
    return Repad(**fields | changes)


def signed(body: Message, *signers: str) -> Any:  # noqa: ANN401 - a Signed, or a SignedGrant
    """Put made-up signatures on a message, and a made-up sealed part into a grant."""
    keys = sorted(filler(f"{signer} signs") for signer in signers or ("Cloud",))
    signatures = tuple(Signature(key, filler(key.hex(), 64)) for key in keys)
    if isinstance(body, Grant):
        return SignedGrant(Signed(body, signatures), filler("sealed pads", 112))
    return Signed(body, signatures)


EXAMPLES: dict[str, Callable[..., Message]] = {
    "contract": contract,
    "plain contract": plain_contract,
    "decoy contract": decoy_contract,
    "table contract": table_contract,
    "vault": vault,
    "secret": secret,
    "alignment": alignment,
    "decoy alignment": decoy_alignment,
    "matched alignment": matched_alignment,
    "upload": upload,
    "upload with tokens": token_upload,
    "release": release,
    "decoy release": decoy_release,
    "publication": publication,
    "grant": grant,
    "grant revocation": grant_revocation,
    "repad request": repad_request,
    "repad": repad,
}
"""Builders of a valid message of each kind and form."""


def load_signed(kind: type[Message], data: bytes) -> Any:  # noqa: ANN401 - as in ``signed``
    """Parse the signed form of a message of this kind."""
    if issubclass(kind, SignedMessage):
        return kind.loads(data)
    assert issubclass(kind, Grant)
    return SignedGrant.loads(data)
