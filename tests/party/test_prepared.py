"""Prepared uploads on disk: the same pads come back, or nothing does."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from tests.support.messages import filler, signed
from veiltab.core.schema import Attribute, Schema
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import HomeError, MismatchError, VeiltabError, VersionError
from veiltab.files.private import parse_file, write_private
from veiltab.party.study_folder import dump_prepared, parse_prepared
from veiltab.protocol.curator.upload import OneTimePads, Pads, Prepared, StreamPads
from veiltab.protocol.stores import MemoryChunks
from veiltab.wire.messages import ColumnChunks, Upload
from veiltab.wire.packing import chunk_slices

SCOPE = filler("scope")


def schema_of(sizes: list[int]) -> Schema:
    """Return a schema with attributes of these sizes."""
    return Schema(
        Attribute(f"a{position}", map(str, range(size))) for position, size in enumerate(sizes)
    )


def prepared_with(pads: Pads, rows: int, schema: Schema) -> Prepared[Upload]:
    """Return an upload of these pads, signed by nobody in particular."""
    count = sum(1 for _ in chunk_slices(rows))
    upload = Upload(
        columns=tuple(
            ColumnChunks(name, tuple(filler(f"{name} {i}") for i in range(count)))
            for name in schema.names
        ),
        curator=filler("curator"),
        population=rows,
        rows=rows,
        scope=SCOPE,
        tokens=None,
        upload_id=pads.upload_id,
    )
    return Prepared(signed(upload), pads)


def stream(schema: Schema, rows: int = 5) -> Prepared[Upload]:
    """Return an upload with stream pads."""
    pads = StreamPads.fresh(schema.attributes, SCOPE, CipherEntropy(bytes(32)))
    return prepared_with(pads, rows, schema)


def one_time(schema: Schema, rows: int, store: MemoryChunks) -> Prepared[Upload]:
    """Return an upload with one-time pads in a store."""
    pads = OneTimePads.fresh(schema.attributes, rows, CipherEntropy(bytes(32)), store)
    return prepared_with(pads, rows, schema)


SIZES = st.lists(st.integers(2, 300), min_size=1, max_size=4)


@given(SIZES, st.integers(1, 200_000))
def test_stream_pads_come_back(sizes: list[int], rows: int) -> None:
    """Message, upload id, keys and attributes, equal in every part."""
    schema = schema_of(sizes)
    before = stream(schema, rows)
    after = parse_prepared(dump_prepared(before), schema, MemoryChunks())
    assert after.message == before.message
    assert after.pads == before.pads
    assert dump_prepared(after) == dump_prepared(before)


@given(SIZES, st.integers(1, 50))
def test_one_time_pads_come_back(sizes: list[int], rows: int) -> None:
    """Their digests do; the pads themselves stay in the private store."""
    schema, store = schema_of(sizes), MemoryChunks()
    before = one_time(schema, rows, store)
    after = parse_prepared(dump_prepared(before), schema, store)
    assert after.message == before.message
    assert after.pads == before.pads
    every = range(len(sizes))
    assert after.pads.material(every) == before.pads.material(every)


def test_one_time_pads_of_several_chunks_come_back() -> None:
    """More rows than one chunk holds."""
    schema, store = schema_of([2, 3]), MemoryChunks()
    before = one_time(schema, 70_000, store)
    assert parse_prepared(dump_prepared(before), schema, store).pads == before.pads


SCHEMA = schema_of([2, 3])

Change = Callable[[dict[str, Any]], object]


@pytest.mark.parametrize(
    "change",
    [
        lambda found: found.update(keys=None),
        lambda found: found.update(digests=[[], []]),
        lambda found: found.update(keys=None, digests=[["00" * 32]]),
        lambda found: found.update(keys=None, digests=[["00" * 32], []]),
        lambda found: found["keys"].pop(),
        lambda found: found["keys"].append("00" * 32),
        lambda found: found["keys"].__setitem__(0, "00" * 31),
        lambda found: found["keys"].__setitem__(0, "ZZ" * 32),
        lambda found: found.update(more=1),
        lambda found: found.pop("upload"),
        lambda found: found["upload"].pop("signatures"),
        lambda found: found.update(kind="upload"),
        lambda found: found["upload"]["body"]["columns"].reverse(),
    ],
)
def test_changed_files_are_refused(change: Change, tmp_path: Path) -> None:
    """Without quoting a key, in the error or in any error behind it."""
    secrets = stream(SCHEMA)
    found = json.loads(dump_prepared(secrets))
    change(found)
    data = rfc8785.dumps(found)
    with pytest.raises(VeiltabError):
        parse_prepared(data, SCHEMA, MemoryChunks())
    write_private(tmp_path / "prepared.json", data)
    with pytest.raises(HomeError, match=r"prepared\.json is damaged") as caught:
        parse_file(tmp_path / "prepared.json", lambda d: parse_prepared(d, SCHEMA, MemoryChunks()))
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_another_version_is_named_as_such() -> None:
    """A file of the future is no broken file."""
    found = json.loads(dump_prepared(stream(SCHEMA)))
    with pytest.raises(VersionError):
        parse_prepared(rfc8785.dumps(found | {"version": 2}), SCHEMA, MemoryChunks())


def test_another_schema_is_refused() -> None:
    """The pads of a column must not be taken for another's."""
    with pytest.raises(MismatchError):
        parse_prepared(dump_prepared(stream(SCHEMA)), schema_of([2]), MemoryChunks())


def test_foreign_pads_are_not_saved() -> None:
    """Neither of another upload nor of another number of rows."""
    own, store = stream(SCHEMA), MemoryChunks()
    assert isinstance(own.pads, StreamPads)
    with pytest.raises(MismatchError):
        dump_prepared(Prepared(own.message, replace(own.pads, upload_id=filler("other", 16))))
    pads = OneTimePads(own.pads.upload_id, SCHEMA.attributes, 6, ((), ()), store)
    with pytest.raises(MismatchError):
        dump_prepared(Prepared(own.message, pads))


def test_nothing_shows_a_key() -> None:
    """Neither the repr of pads nor that of the file's contents."""
    prepared = stream(SCHEMA)
    assert isinstance(prepared.pads, StreamPads)
    key = prepared.pads.keys[0]
    shown = repr(prepared) + repr(replace(prepared.pads))
    assert repr(key)[2:-1] not in shown
    assert key.hex() not in shown
