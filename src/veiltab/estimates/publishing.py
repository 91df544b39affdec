"""Publishing an estimate: the noise of a copy is drawn once, and remembered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from veiltab.core.entropy import Entropy
from veiltab.core.publication import PublicationNoise
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import StateError

if TYPE_CHECKING:
    from veiltab.estimates.estimate import Estimate

Publisher = Callable[["Estimate"], "Estimate"]
"""Draws the published copy of an estimate, or returns the one that was drawn before.

That one may be of other attributes.
"""

LABEL = "publication"
"""Sets the noise of a simulation's published copy apart from its other randomness."""


@dataclass
class PublishedCopy:
    """The one published copy of a release, shared by an estimate and all its marginals."""

    estimate: "Estimate | None" = None


def draw_copy(estimate: "Estimate", entropy: Entropy | None = None) -> "Estimate":
    """Draw the noise of a published copy, from the operating system by default."""
    noise = PublicationNoise.for_epsilon(estimate.plan.epsilon_public, estimate.schema.domain_size)
    source = CipherEntropy.from_system() if entropy is None else entropy
    return estimate.with_publication(noise.add_noise(estimate.counts, source), noise)


def part_of_copy(copy: "Estimate", names: Sequence[str] | None) -> "Estimate":
    """Return these attributes of a published copy; refuse more than were published."""
    published = copy.schema.names
    if names is None or tuple(names) == published:
        return copy
    if set(names) <= set(published):
        return copy.marginal(names)
    raise StateError(
        f"a copy of this release has been published already, of {', '.join(published)}",
        hint="others may read that copy and its marginals, and no second one: what two copies tell"
        " would add up; in the next study, publish the largest table first",
    )


def seeded_publisher(seed: int | None) -> Publisher:
    """Return a publisher whose noise can be repeated and keeps nothing secret, for simulations."""
    if seed is None:
        return draw_copy
    return partial(draw_copy, entropy=CipherEntropy.from_seed(int(seed), LABEL))


def published_elsewhere(estimate: "Estimate") -> "Estimate":  # noqa: ARG001 - a publisher
    """Refuse to publish what was read from a file."""
    raise StateError(
        "an estimate that was read from a file cannot be published: nobody knows whether a copy of"
        " the same release exists",
        hint="publish where the release was estimated, with `veiltab publish` or"
        " study.estimate().publish(), and save the published copy",
    )
