"""Perturbing the joined ciphertext, once, and signing what comes out (spec 9, 10)."""

from collections.abc import Callable, Sequence

import numpy as np

from veiltab.core import group
from veiltab.core.entropy import Entropy
from veiltab.core.noise import NoiseSource
from veiltab.core.plan import Plan
from veiltab.core.schema import Codes, unmix
from veiltab.crypto.signing import SigningKey
from veiltab.roles.agreements import accounting_id
from veiltab.roles.chunks import ChunkStore
from veiltab.roles.columns import write_rows
from veiltab.roles.signatures import sign
from veiltab.wire.contract import Contract
from veiltab.wire.messages import ColumnChunks, Release, ReleasedUpload
from veiltab.wire.packing import span_slices
from veiltab.wire.signed import Signed

JoinedRows = Callable[[slice], Sequence[Codes]]
"""Given some rows, returns their joined ciphertext, a column per attribute."""


def perturb_and_sign(
    contract: Contract,
    plan: Plan,
    joined: JoinedRows,
    uploads: Sequence[ReleasedUpload],
    key: SigningKey,
    *,
    entropy: Entropy,
    released: ChunkStore,
) -> Signed[Release]:
    """Return the signed release (the paper's M); its chunks go to ``released``.

    Noise is a joint cell, added in the group of the cells, so it passes through every pad
    (Lemma 1).
    """
    attributes = contract.schema.attributes
    digests: list[list[bytes]] = [[] for _ in attributes]
    source = NoiseSource(plan.channel, plan.sample_size, entropy)
    for where in span_slices(plan.sample_size):
        noise = np.empty(where.stop - where.start, dtype=source.dtype)
        source.draw(noise)
        parts = unmix(contract.schema.sizes, noise)
        columns = zip(attributes, joined(where), parts, digests, strict=True)
        for attribute, encrypted, part, chunks in columns:
            group.add(encrypted, part, attribute.size, out=encrypted)
            chunks.extend(write_rows(encrypted, attribute, released))
    release = Release(
        accounting=accounting_id(plan),
        cells=plan.domain_size,
        columns=tuple(
            ColumnChunks(attribute=attribute.name, chunks=tuple(chunks))
            for attribute, chunks in zip(attributes, digests, strict=True)
        ),
        delta=plan.delta,
        epsilon=plan.epsilon,
        keep_threshold=plan.keep_threshold,
        population=plan.population_size,
        sample_size=plan.sample_size,
        study=contract.study_id,
        uploads=tuple(uploads),
    )
    return sign(release, key)
