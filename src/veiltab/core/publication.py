"""A published copy: released counts with noise of their own, for everybody but the researcher.

A curator knows the decoys and could subtract them from an exact table.  So what leaves the
researcher's hands gets two-sided geometric noise on every count: P(z) ∝ r^|z| with r = e^(−ε/2).
Replacing one respondent moves two counts by one, so whoever only reads the published copy learns
at most ε, whatever else they know.  The noise is drawn once and kept: a second copy of the same
release, with other noise, would cost the same ε again.
"""

import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from veiltab.core.channel import DRAW_RANGE
from veiltab.core.hashing import labelled_hash
from veiltab.core.mechanism import Geometric, draw_numbers
from veiltab.core.parameters import check_epsilon
from veiltab.core.privacy import publication_threshold
from veiltab.core.utility import publication_variance
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.core.entropy import Entropy
    from veiltab.core.schema import Schema

LABEL = "publication"


@dataclass(frozen=True, slots=True)
class PublicationNoise:
    """The noise of a published copy: its promise ε, its ratio r, and on how many counts it lies.

    ``threshold`` is r·2⁶⁴.  A marginal of a published table has the sums of its noise.
    """

    epsilon: float
    threshold: int
    cells: int

    def __post_init__(self) -> None:
        """Refuse noise that does not keep its promise."""
        check_epsilon(self.epsilon)
        if self.cells < 1:
            raise ParameterError(
                f"a table of {self.cells} cells cannot be published", hint="publish at least one"
            )
        least = publication_threshold(self.epsilon)
        if not least <= self.threshold < DRAW_RANGE:
            raise ParameterError(
                f"noise with the ratio {self.threshold}/2^64 does not keep epsilon"
                f" {self.epsilon:g} for readers of a published copy",
                hint=f"its threshold is at least {least}",
            )

    @classmethod
    def for_epsilon(cls, epsilon: float, cells: int) -> "PublicationNoise":
        """Return the least noise that keeps ε on a table of this many cells."""
        return cls(epsilon, publication_threshold(epsilon), cells)

    @property
    def law(self) -> Geometric:
        """The law of each of the two numbers whose difference is the noise of a count."""
        return Geometric(self.threshold)

    @property
    def variance(self) -> Fraction:
        """The variance of the noise of one count, 2r/(1 − r)²."""
        return publication_variance(self.threshold)

    def add_noise(self, counts: NDArray[np.int64], entropy: "Entropy") -> NDArray[np.int64]:
        """Return the counts with noise, drawn exactly: what is published, once and for all."""
        if counts.shape != (self.cells,):
            raise ParameterError(
                f"counts of shape {counts.shape} are no table of {self.cells:,} cells",
                hint="publish the table whose cells the publication names",
            )
        more, fewer = (draw_numbers(self.law, self.cells, entropy) for _ in range(2))
        return counts + more - fewer


def noise_variance(publication: PublicationNoise | None) -> Fraction:
    """Return the variance of a published copy's noise in all cells together; 0 without a copy."""
    return Fraction(0) if publication is None else publication.cells * publication.variance


def publication_digest(schema: "Schema", counts: NDArray[np.int64], epsilon: float) -> bytes:
    """Return the digest by which an audit log names a published copy.

    It is H("veiltab/v1/publication" ‖ 0x00 ‖ data).  The data are the number of attributes; for
    each of them its name, the number of its categories, and the categories; then ε as a double
    (IEEE 754 binary64) and the counts as signed 64-bit integers, in the schema's order.  A text is
    its length in bytes and its UTF-8 bytes.  Lengths and numbers of things are unsigned 32-bit
    integers; everything is little-endian.
    """
    parts = [struct.pack("<I", len(schema.attributes))]
    for attribute in schema.attributes:
        parts += [_text(attribute.name), struct.pack("<I", attribute.size)]
        parts += [_text(category) for category in attribute.categories]
    parts += [struct.pack("<d", epsilon), counts.astype("<i8").tobytes()]
    return labelled_hash(LABEL, b"".join(parts))


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("<I", len(encoded)) + encoded
