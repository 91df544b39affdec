"""What is kept of a vault's answers: it comes back as it was, or an error names the file."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.messages import HOSPITAL, filler, signed
from veiltab.errors import HomeError
from veiltab.files.chunks import FolderChunks
from veiltab.files.private import write_private
from veiltab.party.vaults.answers import FETCHED_AT_ONCE, FetchedPositions
from veiltab.party.vaults.folder import AnswerFolder, VaultFolder
from veiltab.protocol.curator.upload import Prepared, StreamPads
from veiltab.wire.messages import ColumnChunks, Repad, RepadRequest
from veiltab.wire.packing import CHUNK_ROWS

SCHEMA, STUDY, VAULT = HOSPITAL.schema, filler("study"), filler("vault")


def answer(study: bytes = STUDY) -> Prepared[Repad]:
    """Return an answer to a study, with made-up keys."""
    repad = Repad(
        columns=tuple(ColumnChunks(name, (filler(name),)) for name in SCHEMA.names),
        curator=filler("curator"),
        request_digest=filler("request"),
        rows=5,
        study=study,
        upload_id=filler("upload")[:16],
    )
    keys = tuple(filler(f"key {name}") for name in SCHEMA.names)
    return Prepared(signed(repad), StreamPads(repad.upload_id, SCHEMA.attributes, keys))


@pytest.fixture
def folder(tmp_path: Path) -> AnswerFolder:
    """Return the folder of an answer that was not given yet."""
    return VaultFolder(tmp_path / "vaults" / VAULT.hex(), VAULT).answer_folder(STUDY, SCHEMA)


def test_an_answer_comes_back_and_is_never_replaced(folder: AnswerFolder) -> None:
    """Not even by the same one: whoever makes a second answer has not looked for the first."""
    assert folder.answer(STUDY) is None
    assert not folder.path.exists()
    folder.save_answer(answer())
    kept = folder.answer(STUDY)
    assert kept is not None
    assert (kept.message, kept.pads) == (answer().message, answer().pads)
    with pytest.raises(HomeError, match="already"):
        folder.save_answer(answer())
    assert (folder.path / "answer.json").stat().st_mode & 0o777 == 0o600


def test_an_answer_to_another_study_is_neither_kept_nor_read(folder: AnswerFolder) -> None:
    """It would be granted in the wrong one."""
    with pytest.raises(HomeError, match="for another one"):
        folder.save_answer(answer(filler("other")))
    other = AnswerFolder(folder.path.parent / "other", filler("other"), SCHEMA)
    other.save_answer(answer(filler("other")))
    folder.save_answer(answer())
    write_private(folder.path / "answer.json", (other.path / "answer.json").read_bytes())
    with pytest.raises(HomeError, match="damaged"):
        folder.answer(STUDY)


def test_a_damaged_answer_is_an_error_that_tells_no_key(folder: AnswerFolder) -> None:
    """And never an answer that was not given."""
    folder.save_answer(answer())
    path = folder.path / "answer.json"
    write_private(path, path.read_bytes()[:-9])
    with pytest.raises(HomeError, match="damaged") as caught:
        folder.answer(STUDY)
    assert filler(f"key {SCHEMA.names[0]}").hex() not in repr(caught.value)


def test_positions_are_fetched_a_few_at_a_time_and_once(tmp_path: Path) -> None:
    """They are read twice; a sample of any size is never in memory as a whole."""
    made = FolderChunks(tmp_path / "made")
    chunks = {made.put(bytes([number]) * 6): bytes([number]) * 6 for number in range(20)}
    request = RepadRequest(
        curator=filler("curator"),
        population=21 * CHUNK_ROWS,
        positions=tuple(chunks),
        sample_size=20 * CHUNK_ROWS,
        study=STUDY,
        upload_digest=filler("upload"),
    )
    asked: list[list[bytes]] = []

    def fetch(_: bytes, digests: Sequence[bytes]) -> list[bytes]:
        asked.append(list(digests))
        return [chunks[digest] for digest in digests]

    positions = FetchedPositions(fetch, request, FolderChunks(tmp_path / "incoming"))
    for _ in range(2):
        assert [positions.get(digest) for digest in chunks] == list(chunks.values())
    assert list(map(len, asked)) == [FETCHED_AT_ONCE, FETCHED_AT_ONCE, 4]
    assert [digest for some in asked for digest in some] == list(chunks)
    positions.clear()
    assert not (tmp_path / "incoming").exists()
