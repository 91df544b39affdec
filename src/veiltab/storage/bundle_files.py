"""One bundle in a file: what its index says, and chunks read with as few calls as possible."""

import hashlib
import os
from collections.abc import Container, Iterator, Sequence
from operator import attrgetter
from pathlib import Path

from veiltab.storage.disk import disk_errors
from veiltab.wire.bundles import COUNT_BYTES, Place, index_bytes, read_index


def read_places(path: Path, wanted: Container[bytes] | None = None) -> list[Place]:
    """Read where in a file the chunks are, or those of them with the wanted digests.

    Of a damaged file, nothing, or what lies within it and will be found to be damaged.
    """
    with disk_errors("reading chunks"):
        try:
            with path.open("rb", buffering=0) as file:
                size = os.fstat(file.fileno()).st_size
                beginning = file.read(COUNT_BYTES)
                length = index_bytes(beginning)
                if length > size:
                    return []
                found = read_index(beginning + file.read(length - COUNT_BYTES), wanted)
        except FileNotFoundError:
            return []
    return [place for place in found if place.start + place.length <= size]


def read_chunks(path: Path, places: Sequence[Place]) -> dict[Place, memoryview]:
    """Read chunks as they are: one open, and one read for chunks that follow each other.

    Each call lets another thread of the server go first.  Of a file that has become shorter, or
    is gone, chunks are shorter or empty.
    """
    found: dict[Place, memoryview] = {}
    with disk_errors("reading a chunk"):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return dict.fromkeys(places, memoryview(b""))
        try:
            for run in _runs(places):
                start, end = run[0].start, run[-1].start + run[-1].length
                view = memoryview(os.pread(descriptor, end - start, start))
                for place in run:
                    begin = place.start - start
                    found[place] = view[begin : begin + place.length]
        finally:
            os.close(descriptor)
    return found


def is_whole(path: Path) -> bool:
    """Say whether a bundle is what its name says, and its chunks what its index says."""
    with disk_errors("reading chunks"), path.open("rb") as file:
        if hashlib.file_digest(file, "sha256").hexdigest() != path.stem:
            return False
    chunks = read_chunks(path, read_places(path))
    return all(hashlib.sha256(chunk).digest() == place.digest for place, chunk in chunks.items())


def _runs(places: Sequence[Place]) -> Iterator[list[Place]]:
    """Put places together that follow each other without a gap."""
    run: list[Place] = []
    for place in sorted(places, key=attrgetter("start")):
        if run and place.start != run[-1].start + run[-1].length:
            yield run
            run = []
        run.append(place)
    if run:
        yield run
