"""The contract of a study: what every curator signs before anything is uploaded (spec 4)."""

from collections.abc import Iterator
from typing import ClassVar, Literal

from veiltab.core.parameters import check_delta, check_epsilon, check_sample_size
from veiltab.wire.agreement import DIGEST, Agreement, CuratorTerms, Linkage
from veiltab.wire.canonical import MAX_INTEGER
from veiltab.wire.fields import (
    Codec,
    Part,
    choice,
    input_errors_at,
    integer,
    items,
    malformed,
    message,
    nested,
    number,
    optional,
    part,
    wired,
)
from veiltab.wire.identity import PublicIdentity

__all__ = [
    "ACCOUNTING",
    "DELTA",
    "EPSILON",
    "MAX_ROWS",
    "PADS",
    "POPULATION",
    "ROWS",
    "Accounting",
    "Contract",
    "CuratorTerms",
    "Linkage",
    "Pads",
    "Sampler",
    "Sampling",
    "Stored",
]

Sampler = Literal["curators", "server"]
Pads = Literal["stream", "one-time"]
Accounting = Literal["pure-1", "shuffle-1"]

MAX_ROWS = 2**48
"""Rows of an upload (spec 8)."""

PADS: Codec[Pads] = choice("stream", "one-time")
ROWS = integer(1, MAX_ROWS)
POPULATION = integer(1, MAX_INTEGER)
EPSILON = number(check_epsilon)
DELTA = number(check_delta)
ACCOUNTING: Codec[Accounting] = choice("pure-1", "shuffle-1")
"""How a promise is computed, with its version: Theorem 1, or also the privacy blanket."""
_SAMPLER: Codec[Sampler] = choice("curators", "server")


@part
class Sampling(Part):
    """Who samples, and how many; no size stands for the best one (spec 4)."""

    by: Sampler = wired(_SAMPLER)
    size: int | None = wired(optional(ROWS))


@part
class Stored(Part):
    """The vault and the uploads, in the order of the curators, that a study reads (spec 12)."""

    vault: bytes = wired(DIGEST)
    uploads: tuple[bytes, ...] = wired(items(DIGEST))


@message
class Contract(Agreement):
    """The terms of one study."""

    kind: ClassVar[str] = "contract"
    label: ClassVar[str] = "study"

    researchers: tuple[PublicIdentity, ...] | None = wired(optional(items(nested(PublicIdentity))))
    epsilon: float = wired(EPSILON)
    delta: float = wired(DELTA)
    accounting: Accounting = wired(ACCOUNTING)
    sampling: Sampling = wired(nested(Sampling))
    population: int | None = wired(optional(POPULATION))
    pads: Pads = wired(PADS)
    stored: Stored | None = wired(optional(nested(Stored)))

    @property
    def study_id(self) -> bytes:
        """The id to which everything in the study is bound (spec 4)."""
        return self.scope

    def parties(self) -> Iterator[tuple[str, PublicIdentity]]:
        """Yield everybody whom the contract names, with the place where it does."""
        yield from Agreement.parties(self)
        for position, researcher in enumerate(self.researchers or ()):
            yield f"researchers[{position}]", researcher

    def check(self) -> None:
        """Refuse terms that contradict each other (spec 4)."""
        Agreement.check(self)
        expected = "pure-1" if self.delta == 0 else "shuffle-1"
        if self.accounting != expected:
            raise malformed("accounting", f"must be {expected!r} for a delta of {self.delta:g}")
        if self.sampling.size is not None and self.population is not None:
            with input_errors_at("sampling.size"):
                check_sample_size(self.sampling.size, self.population)
        if self.stored is None:
            return
        if self.sampling.by != "server":
            raise malformed("sampling.by", "must be 'server' for a study on stored tables")
        if len(self.stored.uploads) != len(self.curators):
            raise malformed(
                "stored.uploads", f"must have one item per curator, {len(self.curators)}"
            )
