"""Vectors of messages, identities and keys: sections 1 to 4 of the specification."""

import json

from vectors.generator.files import Case, Document, bad, case, document, filler
from vectors.generator.hpke import ephemeral_key, seal
from vectors.generator.scripted import Scripted
from veiltab.crypto import derivation
from veiltab.crypto.identity import PrivateIdentity, dump_identity, fingerprint
from veiltab.crypto.sealing import SealingKey
from veiltab.crypto.signing import SigningKey
from veiltab.wire.codec import dump

MALFORMED = "malformed_message"
KEY_FILE, WRONG_PASSPHRASE = "bad_key_file", "wrong_passphrase"
PASSPHRASE = "correct horse Batterie Heftklammer"  # noqa: S105 - everybody may know it
_DEPTH = 5_000

CANONICAL = {
    "empty": "{}",
    "white space": '{ "a" : [ 1 , 2 ] }\n',
    "order of keys": '{"b":1,"a":2,"":3,"B":4,"aa":5}',
    "keys as UTF-16": '{"\\ufb33":1,"\\ud83d\\ude00":2,"\\u20ac":3,"\\r":4,"1":5,"\\u0080":6}',
    "escapes": '{"a":"\\u0001\\b\\t\\n\\f\\r\\u001f\\u0041\\/\\"\\\\\\u007f\\u2028"}',
    "any script": '{"Gr\\u00f6\\u00dfe":"\\u738b \\ud83d\\ude00"}',
    "whole numbers": '{"a":[0,-0,1,-1,9007199254740991,-9007199254740991]}',
    "fractions": '{"a":[0.5,1.0,-0.0,0.1,1e-6,1e-7,123456.789,0.30000000000000004]}',
    "exponents": '{"a":[1e21,1.5e300,5e-324,1.7976931348623157e308]}',
    "literals": '{"a":[true,false,null,[],{}]}',
}

NOT_CANONICAL = {
    "whitespace": '{"a": 1}',
    "whitespace_at_the_end": '{"a":1}\n',
    "duplicate_key": '{"a":1,"a":1}',
    "key_order": '{"b":1,"a":1}',
    "key_order_utf16": '{"\ufb33":1,"\U0001f600":2}',
    "number_fraction": '{"a":1.0}',
    "number_exponent": '{"a":1e0}',
    "number_minus_zero": '{"a":-0}',
    "number_leading_zero": '{"a":01}',
    "number_digits": '{"a":0.10000000000000000000000000001}',
    "huge_number": '{"a":9007199254740992}',
    "huge_number_of_digits": '{"a":' + "9" * 5_000 + "}",
    "not_a_number": '{"a":NaN}',
    "infinity": '{"a":-Infinity}',
    "escape_needless": '{"a":"\\u0061"}',
    "escape_uppercase": '{"a":"\\u001F"}',
    "escape_slash": '{"a":"\\/"}',
    "escape_missing": '{"a":"\u0001"}',
    "lone_surrogate": '{"a":"\\ud800"}',
    "byte_order_mark": '\ufeff{"a":1}',
    "quotes": "{'a':1}",
    "truncated": '{"a":1',
    "trailing": '{"a":1}{}',
    "empty": "",
    "list": "[]",
    "text": '"a"',
    "deep_json": '{"a":' + "[" * _DEPTH + "]" * _DEPTH + "}",
}


def canonical() -> Document:
    """Section 1.1: the canonical form, and what is not in it."""
    cases = [
        case(name, dump(json.loads(text)).decode(), text=text) for name, text in CANONICAL.items()
    ]
    cases += [bad(name, MALFORMED, message=text) for name, text in NOT_CANONICAL.items()]
    cases.append(bad("utf8", MALFORMED, message_hex=b'{"a":"\xff"}'.hex()))
    cases.append(bad("utf8_overlong", MALFORMED, message_hex=b'{"a":"\xc1\xa1"}'.hex()))
    cases.append(bad("utf8_surrogate", MALFORMED, message_hex=b'{"a":"\xed\xa0\x80"}'.hex()))
    return document(
        "Section 1.1. `text` is any JSON, and what is expected its canonical form. A bad"
        " `message` (its UTF-8, or `message_hex`) must be refused by every reader.",
        cases,
    )


def identity() -> Document:
    """Section 2: party ids and fingerprints, one of them with a zero in front."""
    labels = ["first", "second", _label_of_a_leading_zero()]
    names = ["a party", "another party", "a fingerprint that starts with 0"]
    return document(
        "Section 2. From two private keys to the public keys, the party id and the fingerprint.",
        [
            case(
                name,
                {
                    "signing_key": party.signing.public.hex(),
                    "sealing_key": party.sealing.public.hex(),
                    "party_id": party.party_id.hex(),
                    "fingerprint": fingerprint(party.party_id),
                },
                **private_keys(party),
            )
            for name, party in zip(names, map(_party, labels), strict=True)
        ],
    )


def private_keys(party: PrivateIdentity) -> dict[str, str]:
    """Return both private keys as the vectors write them."""
    return {
        "signing_seed": party.signing.secret_bytes().hex(),
        "sealing_secret": party.sealing.secret_bytes().hex(),
    }


def keyfile() -> Document:
    """Section 2.1: key files, in the clear and locked, with one pair of keys and with two."""
    party = _party("key file")
    newer = PrivateIdentity(party.name, *_keys("newer"), at=1_800_000_000, earlier=party.pairs)
    plain, locked = _saved(party, None), _saved(party, PASSPHRASE)
    expect = _in_key_file(party)
    seed = private_keys(party)["signing_seed"]
    rotated = _saved(newer, None)
    files = {
        "whitespace": plain + "\n",
        "uppercase_hex": plain.replace(seed, seed.upper()),
        "version": plain.replace('"version":1', '"version":2'),
        "kind": plain.replace('"identity"', '"key"'),
        "unknown_field": plain.replace('"kind"', '"kinds":2,"kind"'),
        "no_keys": '{"keys":[],"kind":"identity","name":"key file","version":1}',
        "time_of_the_first_keys": plain.replace('"at":0', '"at":1'),
        "order_of_keys": rotated.replace("1800000000", "0").replace('"at":0', '"at":5', 1),
        "time_of_a_key": rotated.replace("1800000000", "-1"),
        "missing_field": plain.replace('"name":"key file",', ""),
        "base64": locked.replace('"sealed":"', '"sealed":" '),
    }
    return document(
        "Section 2.1. `content` is the text of a key file, `passphrase` what unlocks it.",
        [
            case("plain", expect, content=plain, passphrase=None),
            case("locked", expect, content=locked, passphrase=PASSPHRASE),
            case("rotated", _in_key_file(newer), content=rotated, passphrase=None),
            case(
                "locked and rotated",
                _in_key_file(newer),
                content=_saved(newer, PASSPHRASE),
                passphrase=PASSPHRASE,
            ),
            bad("passphrase", WRONG_PASSPHRASE, content=locked, passphrase=PASSPHRASE[:-1]),
            bad("missing_passphrase", KEY_FILE, content=locked, passphrase=None),
            bad(
                "name",
                WRONG_PASSPHRASE,
                content=locked.replace("key file", "key_file"),
                passphrase=PASSPHRASE,
            ),
            *(
                bad(name, KEY_FILE, content=text, passphrase=PASSPHRASE)
                for name, text in files.items()
            ),
        ],
    )


def derived_keys() -> Document:
    """Sections 4, 5 and 6.1: everything that comes out of the key derivation."""
    secret, scope, upload_id = filler("secret"), filler("scope"), filler("upload id", 16)
    inputs = {"secret": secret.hex(), "scope": scope.hex()}
    cases = [
        case(
            "commitment",
            derivation.secret_commitment(secret).hex(),
            derive="secret_commitment",
            secret=secret.hex(),
        ),
        case("token key", derivation.token_key(secret, scope).hex(), derive="token_key", **inputs),
        case(
            "alignment key",
            derivation.alignment_key(secret, scope).hex(),
            derive="alignment_key",
            **inputs,
        ),
    ]
    cases += [
        case(
            f"pad key of attribute {index}",
            derivation.pad_key(secret, scope, upload_id, index).hex(),
            derive="pad_key",
            **inputs,
            upload_id=upload_id.hex(),
            attribute=index,
        )
        for index in (0, 1, 256, 65_536)
    ]
    for name in ("decoy_number_key", "decoy_token_key"):
        made = [getattr(derivation, name)(secret, scope, table).hex() for table in (0, 1)]
        cases += [
            case(
                f"{name.replace('_', ' ')} of table {table}",
                key,
                derive=name,
                **inputs,
                table=table,
            )
            for table, key in enumerate(made)
        ]
    digest_key = derivation.decoy_digest_key(secret, scope).hex()
    cases.append(case("decoy digest key", digest_key, derive="decoy_digest_key", **inputs))
    for count in (1, 2, 3):
        drawn = [filler(f"contribution {number}") for number in range(count)]
        cases.append(
            case(
                f"study secret from {count}",
                derivation.study_secret(drawn, scope).hex(),
                derive="study_secret",
                contributions=[contribution.hex() for contribution in drawn],
                scope=scope.hex(),
            )
        )
    return document(
        "Sections 4, 4.2, 5, 5.1, 5.2 and 6.1. What `derive` names, from a secret (of the study or,"
        " for pad keys, of the upload), or from all contributions, and a scope.",
        cases,
    )


def sealing() -> Document:
    """Section 3: sealed bytes; the ephemeral key is given, for those who want to seal too."""
    to, purpose, context = SealingKey(filler("sealing", 96)), "grant", filler("context", 112)

    def sealed(label: str, plaintext: bytes, purpose: str, context: bytes) -> Case:
        key = ephemeral_key(label)
        return {
            "private_key": to.secret_bytes().hex(),
            "purpose": purpose,
            "context": context.hex(),
            "ephemeral_key": key.hex(),
            "sealed": seal(plaintext, to.public, purpose, context, ephemeral=key).hex(),
        }

    pad_keys = filler("two pad keys", 64)
    good = sealed("two pad keys", pad_keys, purpose, context)
    changed = bytearray.fromhex(good["sealed"])
    changed[-1] ^= 1
    cases = [
        case("two pad keys", pad_keys.hex(), **good),
        case("nothing", "", **sealed("nothing", b"", purpose, context)),
        case("no context", "00", **sealed("no context", b"\x00", "secret", b"")),
    ]
    del good["ephemeral_key"]
    changes = {
        "tampered_seal": {"sealed": changed.hex()},
        "truncated_seal": {"sealed": good["sealed"][:-2]},
        "short_seal": {"sealed": "00" * 1128},
        "empty_seal": {"sealed": ""},
        "small_order": {
            "sealed": good["sealed"][: 2 * 1088] + "00" * 32 + good["sealed"][2 * 1120 :]
        },
        "lattice_part": {"sealed": "00" + good["sealed"][2:]},
        "purpose": {"purpose": "secret"},
        "context": {"context": filler("another context", 112).hex()},
        "receiver": {"private_key": filler("another sealing", 96).hex()},
    }
    cases += [bad(name, "cannot_unseal", **good | change) for name, change in changes.items()]
    return document(
        "Section 3. `private_key` opens `sealed` and finds what is expected. `ephemeral_key` is"
        " the randomness behind the first 1,120 bytes, the message of ML-KEM and the scalar of"
        " X25519: HPKE draws it, so only a test can use it.",
        cases,
    )


def _party(label: str) -> PrivateIdentity:
    return PrivateIdentity(label, *_keys(label))


def _keys(label: str) -> tuple[SigningKey, SealingKey]:
    keys = filler(f"keys of {label}", 128)
    return SigningKey(keys[:32]), SealingKey(keys[32:])


def _in_key_file(party: PrivateIdentity) -> dict[str, object]:
    """Return what a reader finds in a key file."""
    pairs = [
        {
            "at": pair.at,
            "sealing_secret": pair.sealing.secret_bytes().hex(),
            "signing_seed": pair.signing.secret_bytes().hex(),
        }
        for pair in party.pairs
    ]
    return {"keys": pairs, "name": party.name, "party_id": party.party_id.hex()}


def _label_of_a_leading_zero() -> str:
    number = 0
    while fingerprint(_party(f"zero {number}").party_id)[0] != "0":
        number += 1
    return f"zero {number}"


def _saved(party: PrivateIdentity, passphrase: str | None) -> str:
    """Return the text of a key file whose salt and nonce are fixed."""
    return dump_identity(party, passphrase, Scripted(filler("salt and nonce", 28))).decode()
