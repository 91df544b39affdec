"""Publishing an estimate: the noise of a copy is drawn once, and remembered."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veiltab.core.entropy import Entropy
from veiltab.core.publication import PublicationNoise
from veiltab.core.released import ReleasedCounts
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import StateError

if TYPE_CHECKING:
    from veiltab.estimates.estimate import Estimate

Copy = tuple[NDArray[np.int64], PublicationNoise]
"""The counts of a published copy, and the noise that was added to them."""

Publisher = Callable[[ReleasedCounts], Copy]
"""Draws the counts of a published copy, or returns those that were drawn before."""

LABEL = "publication"
"""Sets the noise of a simulation's published copy apart from its other randomness."""


@dataclass
class PublishedCopy:
    """The one published copy of a release, shared by an estimate and all its marginals."""

    estimate: "Estimate | None" = None


def draw_copy(released: ReleasedCounts, entropy: Entropy | None = None) -> Copy:
    """Draw the noise of a published copy, from the operating system by default."""
    noise = PublicationNoise.for_epsilon(released.plan.epsilon_public, released.schema.domain_size)
    source = CipherEntropy.from_system() if entropy is None else entropy
    return noise.add_noise(released.counts, source), noise


def seeded_publisher(seed: int | None) -> Publisher:
    """Return a publisher whose noise can be repeated and keeps nothing secret, for simulations."""
    if seed is None:
        return draw_copy
    return partial(draw_copy, entropy=CipherEntropy.from_seed(seed, LABEL))


def published_elsewhere(released: ReleasedCounts) -> Copy:  # noqa: ARG001 - a publisher
    """Refuse to publish what was read from a file."""
    raise StateError(
        "an estimate that was read from a file cannot be published: nobody knows whether a copy of"
        " the same release exists",
        hint="publish where the release was estimated, with `veiltab publish` or"
        " study.estimate().publish(), and save the published copy",
    )
