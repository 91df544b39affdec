"""Vectors of signatures and digests: section 1.2 of the specification."""

import hashlib

from vectors.generator.files import Document, bad, case, document, filler
from veiltab.crypto.signing import SigningKey
from veiltab.wire.signed import signing_input

BODIES = {
    "release": '{"kind":"release","version":1}',
    "repad-request": '{"kind":"repad-request","title":"Größe","version":1}',
    "contract": '{"kind":"contract","version":1}',
}
_ORDER = 2**252 + 27742317777372353535851937790883648493
"""The order of Ed25519's group: a signature's second half is below it."""


def signatures() -> Document:
    """Section 1.2: what is signed, and signatures that are none."""
    key = SigningKey(filler("signing"))
    cases = []
    for kind, body in BODIES.items():
        data = body.encode()
        expect = {
            "key": key.public.hex(),
            "signature": key.sign(signing_input(kind, data)).hex(),
            "digest": hashlib.sha256(data).hexdigest(),
        }
        seed = key.secret_bytes().hex()
        cases.append(case(f"a {kind}", expect, seed=seed, kind=kind, body=body))
    kind, body = "release", BODIES["release"]
    signature = key.sign(signing_input(kind, body.encode()))
    half = int.from_bytes(signature[32:], "little") + _ORDER
    good = {"key": key.public.hex(), "kind": kind, "body": body, "signature": signature.hex()}
    changes = {
        "signature": {"signature": (signature[:-1] + bytes([signature[-1] ^ 1])).hex()},
        "malleable_signature": {"signature": (signature[:32] + half.to_bytes(32, "little")).hex()},
        "short_signature": {"signature": signature[:-1].hex()},
        "no_signature": {"signature": ""},
        "zero_signature": {"signature": bytes(64).hex()},
        "signed_body": {"body": BODIES["contract"]},
        "signed_kind": {"kind": "grant"},
        "without_label": {"signature": key.sign(body.encode()).hex()},
        "foreign_signature": {"key": SigningKey(filler("another signing")).public.hex()},
        "short_key": {"key": key.public[:-1].hex()},
    }
    cases += [bad(name, "bad_signature", **good | change) for name, change in changes.items()]
    return document(
        "Section 1.2. `seed` signs `body`, a canonical text, as a message of this `kind`; the"
        " digest is what other messages refer to it by. A bad `signature` must not verify.",
        cases,
    )
