"""Digests of a release tell a curator nothing, whatever it knows but the blinding.

In a small study where the server matches rows, a curator has few guesses to try of which of its own
rows were drawn: those people are held by the others too.
"""

import hashlib
from dataclasses import replace
from itertools import permutations

import numpy as np

from tests.support.chunks import read_positions, read_released
from tests.support.simulator import Simulator, holdings_of
from veiltab.crypto.entropy import CipherEntropy
from veiltab.crypto.signing import SigningKey
from veiltab.protocol.in_process import Outcome, Terms
from veiltab.protocol.verify import sign
from veiltab.wire.messages import Release
from veiltab.wire.packing import BLINDING_BYTES, blind, pack, pack_positions

ROWS, SAMPLE = 5, 3
SHARES = ({"first": 2}, {"second": 3})


def released(seed: int = 1) -> tuple[Simulator, Outcome, Release]:
    """Release a tiny study of which a curator can try every sample in every order."""
    rehearsal = Simulator(
        holdings=holdings_of(SHARES, ROWS),
        entropy=CipherEntropy.from_seed(1, "curators"),
        server_entropy=CipherEntropy.from_seed(seed, "server"),
    )
    outcome = rehearsal.run(Terms(epsilon=1.0, sample_size=SAMPLE, linkage="matched"))
    return rehearsal, outcome, outcome.release().body


def test_a_curator_cannot_confirm_a_guess_of_its_positions() -> None:
    """It tries every order of its rows: none has the digest of any chunk of the release.

    With the blinding, exactly one of them has it: nothing but those 16 bytes is missing.
    """
    _, outcome, release = released()
    guesses = [pack_positions(np.array(rows)) for rows in permutations(range(ROWS), SAMPLE)]
    for upload in release.uploads:
        (digest,) = upload.positions or ()
        assert digest not in {hashlib.sha256(guess).digest() for guess in guesses}
        blinding = outcome.released.get(digest)[:BLINDING_BYTES]
        blinded = [hashlib.sha256(blind(guess, blinding)).digest() for guess in guesses]
        assert blinded.count(digest) == 1


def test_a_curator_cannot_confirm_a_guess_of_its_released_column() -> None:
    """Not even if it knows its rows, its pads, the sample and the server's noise."""
    rehearsal, outcome, release = released()
    for holding, column in zip(rehearsal.holdings, release.columns, strict=True):
        (digest,) = column.chunks
        (attribute,) = holding.attributes
        codes = read_released(column.chunks, attribute, SAMPLE, outcome.released)
        known = pack(codes, attribute.size)
        assert digest != hashlib.sha256(known).digest()
        blinding = outcome.released.get(digest)[:BLINDING_BYTES]
        assert digest == hashlib.sha256(blind(known, blinding)).digest()


def test_every_chunk_has_a_blinding_of_its_own() -> None:
    """Drawn with the release: the same rows in another release have another one."""
    seen = set()
    for seed in (1, 2, 3):
        _, outcome, release = released(seed)
        digests = [digest for column in release.columns for digest in column.chunks]
        digests += [digest for upload in release.uploads for digest in upload.positions or ()]
        seen |= {outcome.released.get(digest)[:BLINDING_BYTES] for digest in digests}
        assert read_positions(release.uploads[0].positions or (), SAMPLE, outcome.released).size
    assert len(seen) == 3 * 4


def test_the_logged_digest_of_a_release_tells_nothing_of_it() -> None:
    """Whoever knows all of a release but its nonce cannot tell it from another one."""
    _, outcome, release = released()
    key = SigningKey(bytes(32))
    assert release.nonce != released(2)[2].nonce
    guess = replace(release, nonce=bytes(16))
    assert sign(guess, key).digest != outcome.release().digest
