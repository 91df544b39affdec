"""A look into the server's folder, with the operator's eyes: what is there, and what it shows."""

import contextlib
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from veiltab.errors import VeiltabError
from veiltab.report.demo_results import Column

if TYPE_CHECKING:
    from veiltab.core.schema import CountTable

PERSON = re.compile(rb"person-[0-9]{5}")
LONGEST_DELETION = 20.0
"""Seconds within which the server deletes what it received, after the release."""


@dataclass(frozen=True, slots=True)
class Look:
    """The chunks of a study at one time, by their sizes, and the ids of respondents anywhere."""

    received: tuple[int, ...]
    released: tuple[int, ...]
    ids_found: int


def look(data: Path, study: str) -> Look:
    """Look at a study's chunks, and search everything that the server has for ids."""
    place = data / "studies" / study
    return Look(
        tuple(len(chunk) for chunk in _chunks(place / "received")),
        tuple(len(chunk) for chunk in _chunks(place / "released")),
        sum(len(PERSON.findall(content)) for content in _contents(data)),
    )


def wait_until_deleted(data: Path, study: str) -> None:
    """Wait until the server has deleted what it received; it does so right after the release."""
    end = time.monotonic() + LONGEST_DELETION
    while (data / "studies" / study / "received").exists():
        if time.monotonic() > end:
            raise VeiltabError(
                "the server still has the unperturbed ciphertext of a released study",
                hint="this should not happen; please report it with the server's log",
            )
        time.sleep(0.02)


def received_column(
    data: Path, study: str, name: str, table: "CountTable", sample_size: int
) -> Column:
    """Read one column as the server received it, and test whether it looks uniform."""
    import numpy as np

    from veiltab.wire.packing import packed_length, unpack

    marginal = table.marginal([name])
    [attribute] = marginal.schema.attributes
    length = packed_length(attribute.size, sample_size)  # a chunk's name is a digest, and no help
    received = _chunks(data / "studies" / study / "received")
    [packed] = [chunk for chunk in received if len(chunk) == length]
    codes = unpack(packed, attribute.size, sample_size)
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
    from scipy.special import chdtrc

    expected = sum(counts) / len(counts)
    statistic = sum((count - expected) ** 2 for count in counts) / expected
    return float(chdtrc(len(counts) - 1, statistic))


def _chunks(folder: Path) -> Iterator[bytes]:
    """Yield the chunks in a folder and those below it, which are many to a file."""
    from veiltab.wire.bundles import unbundle

    for path in _files(folder):
        yield from (bytes(chunk) for _, chunk in unbundle(path.read_bytes()))


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _contents(folder: Path) -> Iterator[bytes]:
    for path in _files(folder):
        with contextlib.suppress(FileNotFoundError):  # the server works on, and deletes
            yield path.read_bytes()
