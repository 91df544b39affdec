"""What is done to the records of a study: sampling, decoys and a channel, as frozen data.

Respondents are sampled by rank, as in the paper (the first m in a secret random order), or by coin
(each takes part with probability β = c/2⁶⁴, whoever else does).  Decoys are records that the
curators invent: for every cell a random number of them, with a public law.  The channel is the
server's.  All probabilities are integers over 2⁶⁴, so that every formula has an exact answer.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, TypeAlias

from veiltab.core.channel import DRAW_RANGE
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from veiltab.core.entropy import Entropy

LinkageMode = Literal["aligned", "matched"]
"""Whether all curators hold the same respondents, or the server matches those whom all hold."""

MAX_WEIGHTS = 1 << 16
"""The longest table of weights that a contract may carry."""

DRAW_BLOCK = 1 << 16
"""How many numbers of decoys are drawn together, which bounds the memory (spec 5.2)."""


@dataclass(frozen=True, slots=True)
class Geometric:
    """P(D = z) = (1 − q)qᶻ with q = threshold/2⁶⁴: the law for a promise without δ.

    It has no largest value; any law that has one would break such a promise.
    """

    threshold: int

    def __post_init__(self) -> None:
        """Refuse q outside 0 < q < 1."""
        if not 0 < self.threshold < DRAW_RANGE:
            raise ParameterError(
                f"the ratio of the decoys' law is {self.threshold}/2^64",
                hint="it lies between 0 and 1; let veiltab.plan choose it",
            )

    @property
    def ratio(self) -> Fraction:
        """The law's q."""
        return Fraction(self.threshold, DRAW_RANGE)

    @property
    def mean(self) -> Fraction:
        """The law's mean, q/(1 − q)."""
        return self.ratio / (1 - self.ratio)

    @property
    def variance(self) -> Fraction:
        """The law's variance, q/(1 − q)²."""
        return self.ratio / (1 - self.ratio) ** 2

    def probability(self, number: int) -> Fraction:
        """Return P(D = number)."""
        return (1 - self.ratio) * self.ratio**number if number >= 0 else Fraction(0)


@dataclass(frozen=True, slots=True)
class WeightTable:
    """P(D = z) = weights[z]/2⁶⁴: any law with a largest value, for a promise with δ."""

    weights: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse negative weights, and weights that do not sum to 2⁶⁴."""
        if not 1 <= len(self.weights) <= MAX_WEIGHTS:
            raise ParameterError(
                f"a law cannot have {len(self.weights):,} weights",
                hint=f"give from 1 to {MAX_WEIGHTS:,} weights",
            )
        if min(self.weights) < 0 or sum(self.weights) != DRAW_RANGE:
            raise ParameterError(
                f"the weights of the decoys' law sum to {sum(self.weights)}, or one is negative",
                hint="they sum to 2^64 exactly; let veiltab.plan choose them",
            )

    @property
    def mean(self) -> Fraction:
        """The law's mean."""
        return _moments(self.weights)[0]

    @property
    def variance(self) -> Fraction:
        """The law's variance."""
        return _moments(self.weights)[1]

    def probability(self, number: int) -> Fraction:
        """Return P(D = number)."""
        inside = 0 <= number < len(self.weights)
        return Fraction(self.weights[number], DRAW_RANGE) if inside else Fraction(0)


@lru_cache(maxsize=64)
def _moments(weights: tuple[int, ...]) -> tuple[Fraction, Fraction]:
    """Return the mean and the variance of a law by its weights, exactly."""
    mean = Fraction(sum(z * weight for z, weight in enumerate(weights)), DRAW_RANGE)
    squares = sum(z * z * weight for z, weight in enumerate(weights))
    return mean, Fraction(squares, DRAW_RANGE) - mean**2


Law: TypeAlias = Geometric | WeightTable
"""How many decoys a cell gets; independent for every cell."""


@dataclass(frozen=True, slots=True)
class Rank:
    """The first ``size`` respondents in the secret random order take part (the paper's way)."""

    size: int


@dataclass(frozen=True, slots=True)
class Coin:
    """Each respondent takes part with probability β = threshold/2⁶⁴, independently of the others.

    The respondent takes part if the first 64 bits of its token are below the threshold.
    """

    threshold: int

    def __post_init__(self) -> None:
        """Refuse β outside 0 < β ≤ 1."""
        if not 0 < self.threshold <= DRAW_RANGE:
            raise ParameterError(
                f"a respondent cannot take part with probability {self.threshold}/2^64",
                hint="it is above 0 and at most 1; let veiltab.plan choose it",
            )

    @property
    def probability(self) -> Fraction:
        """The probability β."""
        return Fraction(self.threshold, DRAW_RANGE)


@dataclass(frozen=True, slots=True)
class Mechanism:
    """All that is done to the records; ``keep_threshold`` is the channel's, None without one."""

    sampling: Rank | Coin
    decoys: Law | None
    keep_threshold: int | None

    def __post_init__(self) -> None:
        """Refuse parts that keep no promise together."""
        if isinstance(self.sampling, Rank) != (self.decoys is None):
            raise ParameterError(
                "decoys go with a coin for each respondent, and a cut by rank goes without decoys",
                hint="a fixed number of respondents would tell how many of the rows are decoys",
            )
        if self.decoys is None and self.keep_threshold is None:
            raise ParameterError(
                "without decoys and without noise the sample itself would be released",
                hint="give the channel's threshold; let veiltab.plan choose it",
            )

    @property
    def coin(self) -> Coin | None:
        """The coin, or None where the sample is cut by rank."""
        return self.sampling if isinstance(self.sampling, Coin) else None


def draw_numbers(law: Law, count: int, entropy: "Entropy") -> "NDArray[np.int64]":
    """Draw how many decoys each of ``count`` cells gets, exactly (spec 5.2).

    Cells are drawn in blocks of 65,536.  Each takes a 64-bit word.  By a table of weights, the
    number is how many of the sums w₀, w₀ + w₁, … are at most the word.  By the geometric law, the
    cells of the block whose words are below the threshold get one more and take another word, in
    the order of the cells, until none is left.
    """
    import numpy as np  # noqa: PLC0415 - planning needs none of it

    numbers = np.zeros(count, dtype=np.int64)
    for start in range(0, count, DRAW_BLOCK):
        block = numbers[start : start + DRAW_BLOCK]
        if isinstance(law, WeightTable):
            _draw_from_table(law, block, entropy)
        else:
            _draw_geometric(law, block, entropy)
    return numbers


def _draw_from_table(law: WeightTable, out: "NDArray[np.int64]", entropy: "Entropy") -> None:
    import numpy as np  # noqa: PLC0415 - as above

    from veiltab.core.entropy import random_words  # noqa: PLC0415 - needs NumPy

    sums, total = [], 0
    for weight in law.weights:
        total += weight
        if total == DRAW_RANGE:  # no word reaches it
            break
        sums.append(total)
    edges = np.array(sums, dtype=np.uint64)
    out[:] = np.searchsorted(edges, random_words(out.size, 64, entropy), side="right")


def _draw_geometric(law: Geometric, out: "NDArray[np.int64]", entropy: "Entropy") -> None:
    import numpy as np  # noqa: PLC0415 - as above

    from veiltab.core.entropy import random_words  # noqa: PLC0415 - needs NumPy

    threshold = np.uint64(law.threshold)
    cells = np.arange(out.size)
    while cells.size:
        cells = cells[random_words(cells.size, 64, entropy) < threshold]
        out[cells] += 1
