"""What is kept of one study: it comes back as it was, or an error names the damaged file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.messages import (
    HOSPITAL,
    alignment,
    filler,
    grant,
    plain_contract,
    signed,
    upload,
)
from veiltab.errors import AuditError, HomeError, MismatchError, StateError
from veiltab.files.private import write_private
from veiltab.party.study_folder import StudyFolder, _ContributionFile, _SecretFile
from veiltab.protocol.curator.upload import Prepared, StreamPads
from veiltab.protocol.logged import Logged
from veiltab.protocol.stores import MemoryChunks
from veiltab.wire.messages import Upload

CONTRACT = plain_contract()
STUDY = CONTRACT.study_id
SECRET = bytes([0xA1]) * 32
CONTRIBUTION = bytes([0xC3]) * 32
SCHEMA = HOSPITAL.schema


def prepared(study: bytes = STUDY) -> Prepared[Upload]:
    """Return an upload for a study, with made-up keys."""
    message = signed(upload(scope=study))
    keys = tuple(filler(name) for name in SCHEMA.names)
    pads = StreamPads(message.body.upload_id, SCHEMA.attributes, keys)
    return Prepared(message, pads)


LOGGED = Logged(
    seen=(3, filler("head")),
    contract=filler("contract"),
    signers=frozenset({filler("a curator"), filler("another")}),
    uploads={filler("a curator"): filler("upload")},
    requests=frozenset({filler("request")}),
    release=filler("release"),
)


@pytest.fixture
def home(tmp_path: Path) -> StudyFolder:
    """Return the home of a study of which nothing is known."""
    return StudyFolder(tmp_path / "studies" / STUDY.hex(), STUDY)


def fill(home: StudyFolder) -> None:
    """Keep one thing of each kind."""
    home.save_contract(signed(CONTRACT, "Krankenhaus Süd"))
    home.save_contribution(CONTRIBUTION)
    home.save_secret(SECRET)
    home.pin_table(filler("table"))
    home.save_alignment(signed(alignment(study=STUDY)))
    home.save_prepared(prepared())
    home.log.save(LOGGED)
    home.save_grant(signed(grant(study=STUDY)))


READERS: dict[str, Callable[[StudyFolder], object]] = {
    "contract.json": StudyFolder.contract,
    "contribution.json": StudyFolder.contribution,
    "secret.json": StudyFolder.secret,
    "table.json": StudyFolder.pinned_table,
    "alignment.json": StudyFolder.alignment,
    "prepared.json": lambda home: home.prepared(SCHEMA, MemoryChunks()),
    "audit.json": lambda home: home.log.read(),
    f"grants/{grant().grant_id.hex()}.json": StudyFolder.grants,
}


def test_nothing_is_there_at_first(home: StudyFolder) -> None:
    """And looking makes nothing."""
    assert [read(home) for read in READERS.values()] == [None] * 7 + [[]]
    assert home.title() is None
    assert not home.path.exists()


def test_everything_comes_back(home: StudyFolder) -> None:
    """In a new object too."""
    fill(home)
    again = StudyFolder(home.path, STUDY)
    assert again.contract() == signed(CONTRACT, "Krankenhaus Süd")
    assert again.title() == CONTRACT.title
    assert again.secret() == SECRET
    assert again.contribution() == CONTRIBUTION
    assert again.pinned_table() == filler("table")
    found = again.prepared(SCHEMA, MemoryChunks())
    assert found is not None
    assert found.message == prepared().message
    assert found.pads == prepared().pads
    assert again.log.read() == LOGGED
    assert again.grants() == [signed(grant(study=STUDY))]


def test_everything_is_private(home: StudyFolder) -> None:
    """Files and folders, those for chunks included."""
    fill(home)
    assert home.outgoing.is_dir()
    assert home.private.is_dir()
    for path in (home.path, *home.path.rglob("*")):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
    assert {path.name for path in home.path.iterdir()} == {
        *(name.split("/")[0] for name in READERS),
        "outgoing",
        "private",
    }


@pytest.mark.parametrize("name", READERS)
def test_damage_is_named_and_nothing_is_quoted(home: StudyFolder, name: str) -> None:
    """Cut off anywhere; no secret in the error, nor in an error behind it."""
    fill(home)
    path = home.path / name
    content = path.read_bytes()
    cuts = [content[:end] for end in range(0, len(content), max(1, len(content) // 50))]
    for data in (*(cuts if name != "recode.toml" else ()), b"\xff", content + b"x", b"[1]\n2"):
        write_private(path, data)
        with pytest.raises(HomeError, match=r"is damaged") as caught:
            READERS[name](home)
        assert str(path) in caught.value.message
        for secret in (SECRET, CONTRIBUTION):
            assert secret.hex()[:8] not in caught.value.message + caught.value.hint
        assert caught.value.__context__ is None


def test_what_belongs_to_another_study_is_refused(home: StudyFolder) -> None:
    """When it is saved, and when a file was moved here."""
    other = StudyFolder(home.path.parent / ("00" * 32), bytes(32))
    saves: list[Callable[[], None]] = [
        lambda: other.save_contract(signed(CONTRACT, "Cloud")),
        lambda: other.save_prepared(prepared()),
        lambda: other.save_grant(signed(grant(study=STUDY))),
    ]
    for save in saves:
        with pytest.raises(MismatchError, match="belongs to study"):
            save()
    fill(home)
    home.path.rename(other.path)
    for name in (name for name in READERS if name != "audit.json"):
        with pytest.raises(HomeError, match="is damaged"):
            READERS[name](other)


def test_a_study_has_one_secret(home: StudyFolder) -> None:
    """Saving it again is fine; another one would change every token."""
    home.save_secret(SECRET)
    home.save_secret(SECRET)
    with pytest.raises(HomeError, match="another secret") as caught:
        home.save_secret(bytes(32))
    assert "a1a1" not in caught.value.message
    assert home.secret() == SECRET
    assert "a1a1" not in repr(_SecretFile(secret=SECRET, study=STUDY))


def test_a_curator_contributes_once(home: StudyFolder) -> None:
    """The others have what was sent, and would not have another one."""
    home.save_contribution(CONTRIBUTION)
    home.save_contribution(CONTRIBUTION)
    with pytest.raises(HomeError, match="another secret") as caught:
        home.save_contribution(bytes(32))
    assert "c3c3" not in caught.value.message
    assert home.contribution() == CONTRIBUTION
    assert "c3c3" not in repr(_ContributionFile(secret=CONTRIBUTION, study=STUDY))


def test_another_table_than_the_pinned_one_is_refused(home: StudyFolder) -> None:
    """While nothing has left another one can be pinned; after that it needs a new study."""
    with pytest.raises(StateError, match="not the table that was pushed"):
        home.check_table(filler("table"))
    home.pin_table(filler("a wrong table"))
    home.pin_table(filler("table"))
    home.check_table(filler("table"))
    with pytest.raises(StateError, match="not the table that was pushed") as caught:
        home.check_table(filler("changed table"))
    assert "new study" in caught.value.hint
    assert home.pinned_table() == filler("table")


def test_the_audit_log_never_gets_shorter(home: StudyFolder) -> None:
    """Neither shorter nor different at the same length; longer is fine."""
    home.log.save(Logged((3, filler("three"))))
    home.log.save(Logged((3, filler("three"))))
    for length, head_hash in ((2, filler("two")), (3, filler("other")), (0, STUDY)):
        with pytest.raises(AuditError, match="were seen before"):
            home.log.save(Logged((length, head_hash)))
    home.log.save(Logged((5, filler("five"))))
    assert home.log.read() == Logged((5, filler("five")))
