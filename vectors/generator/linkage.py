"""Vectors of tokens and alignment: section 5 of the specification."""

import hmac
from collections.abc import Sequence
from typing import Any

from cryptography.hazmat.primitives.ciphers.algorithms import AES256
from cryptography.hazmat.primitives.cmac import CMAC

from vectors.generator.files import Case, Document, bad, case, document, filler
from veiltab.crypto.derivation import alignment_key

LENGTHS = (1, 15, 16, 17, 31, 32, 33, 40)

TEXTS: dict[str, tuple[list[str], list[str], bytes]] = {
    "as it is": ([" Ä1 "], [], " Ä1 ".encode()),
    "two columns": (["Smith", "1970-01-01"], [], b"Smith\x1f1970-01-01"),
    "a composed letter": (["A\u0308rger"], ["nfc"], "\u00c4rger".encode()),
    "white space": (["\u00a0\u2003 x y \u3000"], ["trim"], b"x y"),
    "no white space": (["\u200bx\ufeff"], ["trim"], "\u200bx\ufeff".encode()),
    "lowercase": (
        ["\u00c4STRA\u00dfE \u0130"],
        ["lowercase"],
        "\u00e4stra\u00dfe i\u0307".encode(),
    ),
    "final sigma": (["\u039f\u0394\u039f\u03a3"], ["lowercase"], "οδος".encode()),
    "order of rules": (["I\u0307"], ["nfc", "lowercase"], "i\u0307".encode()),
    "all rules": ([" A\u0308 ", " X "], ["trim", "nfc", "lowercase"], "\u00e4\x1fx".encode()),
}


def tokens() -> Document:
    """Section 5: from a respondent's texts to the message, and to its token."""
    key = filler("token key")

    def token(message: bytes) -> dict[str, Any]:
        return {"key": key.hex(), "message": message.hex(), "expect": _cmac(key, message).hex()}

    cases: list[Case] = [
        {"name": f"{size} bytes", **token(filler(f"message of {size}", size))} for size in LENGTHS
    ]
    cases += [{"name": f"row {row}", **token(str(row).encode())} for row in (0, 10, 65_536)]
    cases += [
        case(name, message.hex(), texts=texts, normalisation=rules)
        for name, (texts, rules, message) in TEXTS.items()
    ]
    unusable = {"empty_id": [""], "blank_id": ["x", " "], "control_character": ["a\x1fb"]}
    cases += [
        bad(name, "bad_ids", texts=texts, normalisation=["trim"])
        for name, texts in unusable.items()
    ]
    return document(
        "Section 5. The token of `message` under the token key `key`; or the message of a"
        " respondent with these `texts`, one per id column, under these rules.",
        cases,
    )


def alignment() -> Document:
    """Section 5.1: the keyed digest of all tokens, in whatever order they come."""
    secret, study = filler("study secret"), filler("study")

    def digest(found: Sequence[bytes]) -> str:
        data = len(found).to_bytes(8, "big") + b"".join(sorted(found))
        return hmac.digest(alignment_key(secret, study), data, "sha256").hex()

    # Two tokens with the same first half, so that the second decides.
    close = [filler("half", 8) + filler(label, 8) for label in ("a", "b")]
    groups = {
        "one token": [filler("token 0", 16)],
        "four tokens": [filler(f"token {i}", 16) for i in range(4)],
        "the same four in another order": [filler(f"token {i}", 16) for i in (2, 0, 3, 1)],
        "equal first halves": [max(close), min(close), bytes(16), b"\xff" * 16],
    }
    return document(
        "Section 5.1. The alignment digest of these tokens.",
        [
            case(
                name,
                digest(found),
                secret=secret.hex(),
                study=study.hex(),
                tokens=[token.hex() for token in found],
            )
            for name, found in groups.items()
        ],
    )


def _cmac(key: bytes, message: bytes) -> bytes:
    """Compute AES-256-CMAC with the library's own implementation, not with the package's."""
    mac = CMAC(AES256(key))
    mac.update(message)
    return mac.finalize()
