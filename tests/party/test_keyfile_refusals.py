"""Key files that were changed: everything but the exact bytes of section 2.1 is refused."""

import base64
import json
from pathlib import Path

import pytest
import rfc8785

from tests.support.keyfiles import PASSPHRASE, refusal, save, write
from veiltab.crypto import identity

PAIR = {"at": 0, "sealing_key": "b2" * 96, "signing_key": "a1" * 32}


@pytest.fixture(autouse=True)
def _cheap_scrypt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower scrypt's cost: these tests unlock hundreds of files."""
    monkeypatch.setattr(identity, "SCRYPT_COST", 1 << 4)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a key file may be created."""
    return tmp_path / "party.key"


@pytest.mark.slow
def test_every_changed_byte_of_a_locked_file_is_refused(path: Path) -> None:
    """Name, salt, nonce, keys, form: whatever is changed or cut off is noticed."""
    save(path, PASSPHRASE)
    content = path.read_bytes()
    for place in range(len(content)):
        for flip in (0x01, 0x20):
            changed = bytearray(content)
            changed[place] ^= flip
            write(path, bytes(changed))
            refusal(path, PASSPHRASE)
        write(path, content[:place])
        refusal(path, PASSPHRASE)


def test_other_versions_are_named_as_such(path: Path) -> None:
    """A file of the future is no broken file; true is not 1."""
    save(path)
    fields = json.loads(path.read_bytes())
    for version in (2, 0, "1", True, None, 1.5):
        write(path, rfc8785.dumps(fields | {"version": version}))
        assert "version" in refusal(path).message


@pytest.mark.parametrize(
    "change",
    [
        {"more": 1},
        {"name": None},
        {"name": 5},
        {"name": ""},
        {"name": "two\nlines"},
        {"name": "x" * 1001},
        {"kind": "release"},
        {"kind": ["identity"]},
        {"kind": "locked-identity"},
        {"keys": {}},
        {"keys": []},
        {"keys": ["a1"]},
        {"keys": [PAIR | {"more": 1}]},
        {"keys": [PAIR | {"at": 1}]},
        {"keys": [PAIR | {"at": "0"}]},
        {"keys": [PAIR | {"at": False}]},
        {"keys": [PAIR, PAIR | {"at": -1}]},
        {"keys": [PAIR, PAIR | {"at": 2}, PAIR | {"at": 1}]},
        {"keys": [PAIR] * 66},
        {"keys": [PAIR | {"signing_key": "A1" * 32}]},
        {"keys": [PAIR | {"signing_key": "a1" * 31}]},
        {"keys": [PAIR | {"signing_key": "a1" * 32 + "\n"}]},
        {"keys": [PAIR | {"sealing_key": "b2" * 97}]},
        {"keys": [PAIR | {"sealing_key": 7}]},
    ],
    ids=lambda change: str(change)[:60],
)
def test_fields_are_exact(path: Path, change: dict[str, object]) -> None:
    """Unknown fields, other types, spellings and lengths are refused, without showing them."""
    save(path)
    write(path, rfc8785.dumps(json.loads(path.read_bytes()) | change))
    assert "canonical" not in refusal(path).message


def test_a_file_of_any_size_is_refused_quickly(path: Path) -> None:
    """A wrong path may lead to a file of gigabytes; only its beginning is read."""
    save(path)
    content = path.read_bytes().replace(b"Klinik", b"K" * 10**6)
    write(path, content)
    assert "canonical" in refusal(path).message


@pytest.mark.parametrize(
    "field", ["keys", "kind", "name", "version", "at", "sealing_key", "signing_key"]
)
def test_no_field_may_be_missing(path: Path, field: str) -> None:
    """Each one counts."""
    save(path)
    fields = json.loads(path.read_bytes())
    del (fields if field in fields else fields["keys"][0])[field]
    write(path, rfc8785.dumps(fields))
    refusal(path)


def test_only_canonical_bytes_are_read(path: Path) -> None:
    """The same content in another spelling is refused (section 1.1), and so is what is no JSON."""
    save(path)
    content = path.read_bytes()
    for spelling in (
        content + b"\n",
        b" " + content,
        b"\xef\xbb\xbf" + content,
        content.replace(b'"version":1', b'"version":1.0'),
        content.replace(b'"version":1', b'"version": 1'),
        content.replace(b'"version":1', b'"version":1,"version":1'),
        content.replace(b"\xc3\xbc", b"\\u00fc"),
        content.replace(b"\xc3\xbc", b"\xfc"),
        content.replace(b"\xc3\xbc", b"\\ud800"),
        content.replace(b'"version":1', b'"version":NaN'),
        content.replace(b'"version":1', b'"version":' + b"9" * 5_000),
        content.replace(b'"version":1', b'"version":' + b"[" * 5_000),
        content[:-1],
        b"[" + content + b"]",
        b"",
        b"null",
    ):
        write(path, spelling)
        assert "canonical" in refusal(path).message


def test_base64_has_one_spelling(path: Path) -> None:
    """Stray bits in the last character, other alphabets and line breaks are refused."""
    save(path, PASSPHRASE)
    fields = json.loads(path.read_bytes())
    sealed = fields["sealed"]
    assert len(sealed) == 204
    assert sealed.endswith("=")
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    stray = sealed[:-2] + alphabet[alphabet.index(sealed[-2]) + 1] + "="
    assert base64.b64decode(stray) == base64.b64decode(sealed)
    for spelling in (stray, sealed.rstrip("="), sealed + "\n", sealed[:4] + "\n" + sealed[4:], "é"):
        write(path, rfc8785.dumps(fields | {"sealed": spelling}))
        assert "base64" in refusal(path, PASSPHRASE).message
