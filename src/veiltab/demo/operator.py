"""What the operator of the demonstration's server has: its folder, and a copy of all uploads."""

import contextlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import chdtrc

from veiltab.core.schema import Codes, CountTable, Schema
from veiltab.demo.curious_server import CHUNKS, COPIES, MESSAGES
from veiltab.demo.results import Column
from veiltab.errors import VeiltabError
from veiltab.protocol.stores import unpack_all
from veiltab.wire.bundles import unbundle
from veiltab.wire.messages import Upload

DATA = "data"
"""The folder in which the server works."""

PERSON = re.compile(rb"person-[0-9]{5}")
DELETION_SECONDS = 20.0
"""How long after the release the server may take to delete what it received."""


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """The sizes of a study's chunks on the server, and how many ids of respondents it has."""

    received: tuple[int, ...]
    released: tuple[int, ...]
    ids_found: int


@dataclass(frozen=True, slots=True)
class Uploads:
    """What all curators have uploaded for a study, unperturbed and encrypted."""

    messages: tuple[Upload, ...]
    chunks: Mapping[bytes, bytes]

    @property
    def rows(self) -> int:
        """How many rows each of the uploads has."""
        [rows] = {message.rows for message in self.messages}
        return rows

    def column(self, schema: Schema, name: str) -> Codes:
        """Return the encrypted values of an attribute."""
        attribute = schema.attributes[schema.names.index(name)]
        [digests] = [
            column.chunks
            for message in self.messages
            for column in message.columns
            if column.attribute == name
        ]
        return unpack_all([self.chunks[digest] for digest in digests], attribute, self.rows)


def read_copy(server: Path, study: str) -> Uploads:
    """Read the copy that the operator has kept of a study's uploads."""
    copy = server / COPIES / study
    messages = [Upload.loads(path.read_bytes()).body for path in _files(copy / MESSAGES)]
    return Uploads(tuple(messages), dict(_chunks(copy / CHUNKS)))


def server_files(server: Path, study: str) -> ServerFiles:
    """Read a study's chunks, and search all files of the server and its operator for ids."""
    place = server / DATA / "studies" / study
    return ServerFiles(
        tuple(len(chunk) for _, chunk in _chunks(place / "received")),
        tuple(len(chunk) for _, chunk in _chunks(place / "released")),
        sum(len(PERSON.findall(content)) for content in _contents(server)),
    )


def wait_until_deleted(server: Path, study: str) -> None:
    """Wait until the server has deleted what it received, as it does right after the release."""
    end = time.monotonic() + DELETION_SECONDS
    while (server / DATA / "studies" / study / "received").exists():
        if time.monotonic() > end:
            raise VeiltabError(
                "the server still has the unperturbed ciphertext of a released study",
                hint="this should not happen; please report it with the server's log",
            )
        time.sleep(0.02)


def received_column(uploads: Uploads, name: str, table: CountTable) -> Column:
    """Count one column as the server received it, and test whether it looks uniform."""
    marginal = table.marginal([name])
    [attribute] = marginal.schema.attributes
    codes = uploads.column(table.schema, name)
    counts = np.bincount(codes, minlength=attribute.size).tolist()
    return Column(
        name,
        attribute.categories,
        tuple(marginal.counts.tolist()),
        tuple(counts),
        uniform_p_value(counts),
    )


def uniform_p_value(counts: Sequence[int]) -> float:
    """Return Pearson's p-value of the hypothesis that all categories are equally likely."""
    expected = sum(counts) / len(counts)
    statistic = sum((count - expected) ** 2 for count in counts) / expected
    return float(chdtrc(len(counts) - 1, statistic))


def _chunks(folder: Path) -> Iterator[tuple[bytes, bytes]]:
    """Yield all chunks in a folder and below it, with their digests; a file holds many."""
    for path in _files(folder):
        yield from ((digest, bytes(chunk)) for digest, chunk in unbundle(path.read_bytes()))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _contents(folder: Path) -> Iterator[bytes]:
    for path in _files(folder):
        with contextlib.suppress(FileNotFoundError):  # the server may delete it meanwhile
            yield path.read_bytes()
