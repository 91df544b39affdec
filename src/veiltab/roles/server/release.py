"""Perturbing the joined ciphertext, once, and signing what comes out (spec 9, 10)."""

from collections.abc import Callable, Sequence

from veiltab.core import group
from veiltab.core.entropy import Entropy
from veiltab.core.perturbation import draw_noise
from veiltab.core.plan import Plan
from veiltab.core.schema import Codes
from veiltab.crypto.signing import SigningKey
from veiltab.roles.agreements import accounting_id
from veiltab.roles.chunks import ChunkStore
from veiltab.roles.signatures import sign
from veiltab.wire.contract import Contract
from veiltab.wire.packing import chunk_slices, pack
from veiltab.wire.release import Release, ReleasedUpload
from veiltab.wire.signed import Signed
from veiltab.wire.upload import ColumnChunks

JoinedChunk = Callable[[int, slice], Sequence[Codes]]
"""Given a chunk's number and rows, returns the joined ciphertext, a column per attribute."""


def perturb_and_sign(
    contract: Contract,
    plan: Plan,
    joined: JoinedChunk,
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
    for number, where in enumerate(chunk_slices(plan.sample_size)):
        drawn = draw_noise(plan.channel, where.stop - where.start, entropy)
        noise = contract.schema.codes(drawn)
        columns = zip(attributes, joined(number, where), noise, digests, strict=True)
        for attribute, encrypted, error, chunks in columns:
            perturbed = group.add(encrypted, error, attribute.size)
            chunks.append(released.put(pack(perturbed, attribute.size)))
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
