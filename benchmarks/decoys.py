"""Preparing an upload with decoys, against preparing as many rows without.

As many rows means: as many as respondents and decoys together are read and sorted, and as many as
they are uploaded.  Everything that a push does is measured, except for reading files and for the
network: tokens, sorting, decoys, digests, pads, packing.  Both run on one thread, and the seconds
are those of the processor, which a busy machine changes less.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from benchmarks.timing import Ratio, median_of
from veiltab.core.mechanism import LinkageMode
from veiltab.core.plan import Plan, plan
from veiltab.core.schema import Attribute, Codes
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.linkage import IdMessages
from veiltab.protocol.curator.agreement import new_secret
from veiltab.protocol.curator.table import Intake
from veiltab.protocol.curator.upload import (
    CuratorContext,
    align,
    needs_alignment,
    prepare_sample,
    prepare_table,
)
from veiltab.protocol.in_process import Holding, Rehearsal, Terms
from veiltab.protocol.sorting import MemorySpool
from veiltab.protocol.stores import MemoryChunks
from veiltab.wire.contract import Contract
from veiltab.wire.mechanism import DecoyTerms
from veiltab.wire.signed import Signed

ID_BYTES = 16
MOST_TIMES = 1.1
REPEATS = 7


@dataclass(frozen=True)
class Setting:
    """A study of two curators with one attribute each, and its promise."""

    population: int
    sizes: tuple[int, int]
    delta: float
    linkage: LinkageMode

    @property
    def name(self) -> str:
        """Return what is measured."""
        cells = self.sizes[0] * self.sizes[1]
        law = "delta" if self.delta else "pure"
        return f"prepare with decoys, {self.linkage}, {law}, N = {cells:,}, n = {self.population:,}"


SETTINGS = (
    Setting(1_000_000, (6, 4), 0.0, "aligned"),
    Setting(1_000_000, (32, 24), 1e-6, "aligned"),
    Setting(1_000_000, (1000, 1000), 0.0, "aligned"),
    Setting(1_000_000, (32, 24), 1e-6, "matched"),
)
"""Few decoys, many of each of some cells, and few of each of very many cells.

Where rows are matched everybody takes part in both: by the paper's mechanism everybody is uploaded.
"""


def decoy_ratios(settings: tuple[Setting, ...] = SETTINGS) -> list[Ratio]:
    """Compare both for every setting."""
    return [_compare(setting) for setting in settings]


class Forgetting(MemoryChunks):
    """Names every chunk by its digest, and forgets it."""

    def put(self, chunk: bytes) -> bytes:
        """Return the chunk's digest."""
        digest = super().put(chunk)
        self.clear()
        return digest


class Preparation:
    """A study that is signed, and one curator's table, taken in and prepared again and again."""

    def __init__(self, setting: Setting, rows: int, terms: Terms) -> None:
        """Sign the contract, and make a table of so many rows."""
        source = np.random.default_rng(1)
        ids = source.integers(0, 256, ID_BYTES * rows, dtype=np.uint8)
        self._ids = IdMessages(ids, np.arange(0, ID_BYTES * (rows + 1), ID_BYTES))
        attributes = [
            Attribute(name, map(str, range(k))) for name, k in zip("ab", setting.sizes, strict=True)
        ]
        self._codes: list[Codes] = [
            source.integers(attributes[0].size, size=rows).astype(attributes[0].dtype)
        ]
        nothing = IdMessages(ids[:0], np.zeros(1, dtype=np.int64))
        holdings = [Holding((attribute,), (), nothing) for attribute in attributes]
        self._parties = Rehearsal(holdings, CipherEntropy.from_seed(1, "decoys"))
        contribution, commitment, nonce = new_secret(self._parties.entropy)
        contract = self._parties._contract(terms, commitment, nonce)  # noqa: SLF001
        self._signed: Signed[Contract] = self._parties._open(contract).contract  # noqa: SLF001
        self._secret = self._parties._exchange(contract, contribution)[0]  # noqa: SLF001

    def __call__(self) -> int:
        """Prepare the first curator's upload, and return how many rows it has."""
        contract, first = self._signed.body, self._parties.curators[0]
        schema, spool = contract.curators[0].schema, MemorySpool()
        intake = Intake(contract, self._secret, schema, spool, curator=first.party_id)
        intake.add(self._ids, self._codes)
        intake.close()
        context = CuratorContext(first, self._parties.entropy, Forgetting(), Forgetting())
        aligned = []
        if needs_alignment(contract):
            # Both hold the same, so that the other one's alignment would be the same.
            aligned = [align(contract, who, intake) for who in self._parties.curators]
        if contract.matched:
            made = prepare_table(context, self._signed, intake, MemorySpool(), aligned)
        else:
            made = prepare_sample(context, self._signed, intake, aligned)
        return made.message.body.rows


def _expected_decoys(chosen: Plan) -> float:
    """Return how many decoys the first of two curators is expected to hold."""
    if chosen.linkage == "aligned" or chosen.curator_cells is None:
        return chosen.expected_decoys
    _, others = chosen.curator_cells
    return chosen.expected_decoys * (others + 1) / others


def _compare(setting: Setting) -> Ratio:
    cells = setting.sizes[0] * setting.sizes[1]
    chosen = plan(
        anyway=True,
        population_size=setting.population,
        domain_size=cells,
        epsilon=0.5,
        delta=setting.delta,
        mechanism="decoys",
        linkage=setting.linkage,
        curator_cells=setting.sizes,
    )
    terms = Terms(
        epsilon=0.5,
        delta=setting.delta,
        linkage=setting.linkage,
        mechanism=DecoyTerms.from_plan(chosen),
    )
    decoyed = Preparation(setting, setting.population, terms)
    uploaded = decoyed()
    decoys = round(_expected_decoys(chosen))
    rows = setting.population + decoys
    paper = Terms(epsilon=0.5, linkage=setting.linkage, sample_size=uploaded)
    plain = Preparation(setting, rows, paper)
    works: dict[str, Callable[[], object]] = {"with": decoyed, "without": plain}
    seconds = median_of(works, REPEATS, clock=time.process_time)
    least = 1 / MOST_TIMES
    return Ratio(
        name=f"{setting.name}, about {decoys:,} decoys",
        seconds=seconds["with"],
        reference=f"{rows:,} rows without",
        reference_seconds=seconds["without"],
        goal=f"at most {MOST_TIMES:g} times as long",
        met=seconds["without"] / seconds["with"] >= least,
        records=rows,
    )
