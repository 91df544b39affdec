"""Key files: the bytes of section 2.1, safe on disk, and silent about what is in them."""

import base64
import hashlib
import json
import os
import re
import stat
from pathlib import Path

import pytest
import rfc8785
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tests.support.keyfiles import (
    IDENTITY,
    NAME,
    PASSPHRASE,
    assert_same,
    assert_silent,
    refusal,
    save,
)
from veiltab.crypto import identity
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import KeyFileError
from veiltab.party.keyfile import load_identity, replace_identity, save_identity
from veiltab.protocol.rotating import rotate


@pytest.fixture(autouse=True)
def _cheap_scrypt(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower scrypt's cost, except where a test is about the real one."""
    if "real_cost" not in request.fixturenames:
        monkeypatch.setattr(identity, "SCRYPT_COST", 1 << 4)


@pytest.fixture
def real_cost() -> None:
    """Ask for the cost of the specification."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where a key file may be created."""
    return tmp_path / "party.key"


def test_an_open_file_is_that_of_the_specification(path: Path) -> None:
    """Canonical JSON, byte for byte, and the keys come back."""
    save(path)
    assert path.read_bytes() == (
        b'{"keys":[{"at":0,"sealing_key":"' + b"b2" * 96 + b'","signing_key":"' + b"a1" * 32
        + b'"}],"kind":"identity","name":"Klinik S\xc3\xbcd","version":1}'
    )  # fmt: skip
    assert_same(load_identity(path, None))
    assert_same(load_identity(path, "a passphrase that is not needed"))


@pytest.mark.slow
@pytest.mark.usefixtures("real_cost")
def test_a_locked_file_is_that_of_the_specification(path: Path) -> None:
    """Unlocked here with the standard library's scrypt at N = 2^17, from the text of the spec."""
    save(path, PASSPHRASE)
    content = path.read_bytes()
    fields = json.loads(content)
    assert rfc8785.dumps(fields) == content
    assert sorted(fields) == ["kind", "name", "nonce", "salt", "sealed", "version"]
    assert (fields["kind"], fields["name"], fields["version"]) == ("locked-identity", NAME, 1)
    assert re.fullmatch("[0-9a-f]{24}", fields["nonce"])
    assert re.fullmatch("[0-9a-f]{32}", fields["salt"])
    salt, nonce = bytes.fromhex(fields["salt"]), bytes.fromhex(fields["nonce"])
    key = hashlib.scrypt(PASSPHRASE.encode(), salt=salt, n=2**17, r=8, p=1, maxmem=2**28, dklen=32)
    associated = b"veiltab/v1/keyfile\x00" + NAME.encode()
    opened = AESGCM(key).decrypt(nonce, base64.b64decode(fields["sealed"]), associated)
    assert opened == bytes(8) + b"\xa1" * 32 + b"\xb2" * 96
    assert_same(load_identity(path, PASSPHRASE))


def test_salt_and_nonce_are_fresh(tmp_path: Path) -> None:
    """Saved twice, nothing but the name and the kind is the same; entropy decides all."""
    contents = []
    for number, seed in enumerate([1, 2, 1]):
        path = tmp_path / str(number)
        save_identity(IDENTITY, path, PASSPHRASE, CipherEntropy.from_seed(seed, "keyfile"))
        contents.append(json.loads(path.read_bytes()))
    assert contents[0] == contents[2]
    assert not [f for f in ("nonce", "salt", "sealed") if contents[0][f] == contents[1][f]]


def test_the_file_is_never_open_to_others(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even with an umask of 0 it has mode 0600 when it appears, before a byte is in it."""
    seen: list[tuple[int, int]] = []
    change = os.fchmod

    def watch(descriptor: int, mode: int) -> None:
        status = os.fstat(descriptor)
        seen.append((stat.S_IMODE(status.st_mode), status.st_size))
        change(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", watch)
    before = os.umask(0)
    try:
        save(path)
    finally:
        os.umask(before)
    assert seen == [(0o600, 0)]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_strict_umask_leaves_the_owner_in(path: Path) -> None:
    """An umask that takes the owner's rights away does not lock the owner out."""
    before = os.umask(0o777)
    try:
        save(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nothing_is_ever_overwritten(path: Path, tmp_path: Path) -> None:
    """Neither a file nor a link, even one that leads nowhere."""
    path.write_bytes(b"the old key")
    with pytest.raises(KeyFileError) as caught:
        save(path)
    assert_silent(caught.value)
    assert path.read_bytes() == b"the old key"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(KeyFileError):
        save(link)
    assert not (tmp_path / "elsewhere").exists()


def test_the_bytes_and_the_name_reach_the_disk(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is synchronised when it is whole, and then its folder."""
    synced: list[tuple[bool, int]] = []
    sync = os.fsync

    def watch(descriptor: int) -> None:
        status = os.fstat(descriptor)
        folder = stat.S_ISDIR(status.st_mode)
        synced.append((folder, 0 if folder else status.st_size))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    save(path)
    assert synced == [(False, path.stat().st_size), (True, 0)]


def test_a_failed_write_leaves_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a full disk there is an error and no half file that would block the next attempt."""

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(KeyFileError, match="No space left") as caught:
        save(path)
    assert_silent(caught.value)
    assert not path.exists()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """Neither saving nor loading shows a traceback of the operating system."""
    with pytest.raises(KeyFileError):
        save(tmp_path / "missing" / "party.key")
    assert "No such file" in refusal(tmp_path / "missing.key").message
    assert "directory" in _refusal_of_folder(tmp_path).message


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o644, 0o610, 0o601, 0o620])
def test_files_that_others_can_open_are_refused(path: Path, mode: int) -> None:
    """With any right for group or others; the hint says what to run."""
    save(path)
    path.chmod(mode)
    assert f"chmod 600 {path}" in refusal(path).hint
    path.chmod(0o600)
    assert_same(load_identity(path, None))


def test_a_locked_file_needs_its_passphrase(path: Path) -> None:
    """None, another, or an empty one do not open it, and the hints tell them apart."""
    save(path, PASSPHRASE)
    assert "passphrase" in refusal(path, None).hint
    for wrong in (PASSPHRASE + " ", PASSPHRASE.upper(), "x"):
        assert "check the passphrase" in refusal(path, wrong).hint
    for unusable in ("", "half a pair \ud800"):
        assert "UTF-8" in refusal(path, unusable).hint
    assert_same(load_identity(path, PASSPHRASE))


@pytest.mark.parametrize("passphrase", ["", "x", "seven77", "a" * 40, "ü" * 8])
def test_a_passphrase_that_is_guessed_at_once_is_refused(path: Path, passphrase: str) -> None:
    """It is refused when saving, and no file appears."""
    with pytest.raises(KeyFileError, match="8 characters"):
        save(path, passphrase)
    assert not path.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns it can read it, whatever its mode is; root can anyway."""
    save(path)
    os.chown(path, 12345, -1)
    assert "belongs to another user" in refusal(path).message
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    assert_same(load_identity(path, None))
    os.chown(path, 0, -1)
    assert_same(load_identity(path, None))


@pytest.mark.parametrize("passphrase", [None, PASSPHRASE])
def test_newer_keys_are_kept_with_the_old_ones(path: Path, passphrase: str | None) -> None:
    """All pairs come back in order, with what proves the newest; other keys replace nothing."""
    save(path, passphrase)
    entropy = CipherEntropy.from_seed(5, "rotation")
    newer = rotate(rotate(IDENTITY, entropy, 100), entropy, 200)
    replace_identity(newer, path, passphrase, entropy)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    loaded = load_identity(path, passphrase)
    assert loaded.party_id == IDENTITY.party_id
    assert loaded.signing.proof == newer.signing.proof
    assert [pair.at for pair in loaded.pairs] == [0, 100, 200]
    for pair, expected in zip(loaded.pairs, newer.pairs, strict=True):
        assert pair.signing.secret_bytes() == expected.signing.secret_bytes()
        assert pair.sealing.secret_bytes() == expected.sealing.secret_bytes()
    for wrong in (IDENTITY, rotate(IDENTITY, entropy, 100)):
        with pytest.raises(KeyFileError, match="other keys"):
            replace_identity(wrong, path, passphrase, entropy)
    assert load_identity(path, passphrase).signing.public == newer.signing.public


def _refusal_of_folder(folder: Path) -> KeyFileError:
    folder.chmod(0o700)
    return refusal(folder)
