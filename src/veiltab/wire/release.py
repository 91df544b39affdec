"""The release: the perturbed, still encrypted table, with all its parameters (spec 10)."""

import re
from typing import ClassVar

from veiltab.core.channel import DRAW_RANGE, GammaDiagonal
from veiltab.core.parameters import MAX_DOMAIN_SIZE, check_sample_size
from veiltab.wire.agreement import DIGEST, MAX_CURATORS
from veiltab.wire.contract import (
    ACCOUNTING,
    DELTA,
    EPSILON,
    POPULATION,
    ROWS,
    Accounting,
)
from veiltab.wire.fields import (
    Codec,
    Part,
    describe,
    input_errors_at,
    integer,
    items,
    malformed,
    message,
    nested,
    optional,
    part,
    wired,
)
from veiltab.wire.identity import PARTY_ID
from veiltab.wire.signed import SignedMessage
from veiltab.wire.upload import (
    CHUNKS,
    COLUMNS,
    ColumnChunks,
    check_chunks,
    check_columns,
    check_different,
)

_DRAW = integer(1, DRAW_RANGE - 1)
_DECIMAL = re.compile("[1-9][0-9]{0,19}")


def _read_threshold(value: object, path: str) -> int:
    if not isinstance(value, str) or not _DECIMAL.fullmatch(value):
        raise malformed(path, f"must be a number of 1 to 20 digits as text, not {describe(value)}")
    return _DRAW.read(int(value), path)


_THRESHOLD = Codec(_read_threshold, lambda value, path: str(_DRAW.write(value, path)))
"""A 64-bit integer as decimal text: JSON numbers are exact only below 2⁵³."""


@part
class ReleasedUpload(Part):
    """Which upload of a curator the release comes from, and which of its rows (spec 10)."""

    curator: bytes = wired(PARTY_ID)
    digest: bytes = wired(DIGEST)
    positions: tuple[bytes, ...] | None = wired(optional(CHUNKS))


@message
class Release(SignedMessage):
    """All columns of the joint table, ``sample_size`` rows, and what the researcher must check."""

    kind: ClassVar[str] = "release"

    accounting: Accounting = wired(ACCOUNTING)
    cells: int = wired(integer(2, MAX_DOMAIN_SIZE))
    columns: tuple[ColumnChunks, ...] = wired(COLUMNS)
    delta: float = wired(DELTA)
    epsilon: float = wired(EPSILON)
    keep_threshold: int = wired(_THRESHOLD)
    population: int = wired(POPULATION)
    sample_size: int = wired(ROWS)
    study: bytes = wired(DIGEST)
    uploads: tuple[ReleasedUpload, ...] = wired(
        items(nested(ReleasedUpload), least=1, most=MAX_CURATORS)
    )

    def check(self) -> None:
        """Refuse lengths, curators or a threshold that cannot be; the promise is not checked."""
        with input_errors_at("sample_size"):
            check_sample_size(self.sample_size, self.population)
        with input_errors_at("keep_threshold"):
            GammaDiagonal.from_threshold(self.cells, self.keep_threshold)
        check_columns(self.columns, self.sample_size)
        self._check_uploads()

    def _check_uploads(self) -> None:
        if len({upload.curator for upload in self.uploads}) != len(self.uploads):
            raise malformed("uploads", "a curator comes twice")
        if len({upload.positions is None for upload in self.uploads}) != 1:
            raise malformed("uploads", "some have positions and some have not")
        for position, upload in enumerate(self.uploads):
            if upload.positions is not None:
                path = f"uploads[{position}].positions"
                check_chunks(upload.positions, self.sample_size, path)
                check_different(upload.positions, path)
