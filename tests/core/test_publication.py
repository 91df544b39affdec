"""Published copies: exact noise that keeps its promise, and a digest that names the copy."""

import hashlib
import math
import struct
from collections import Counter
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tests.support.laws import assert_fits
from veiltab.core.channel import DRAW_RANGE
from veiltab.core.mechanism import draw_numbers
from veiltab.core.privacy import publication_threshold
from veiltab.core.publication import PublicationNoise, noise_variance, publication_digest
from veiltab.core.schema import Attribute, Schema
from veiltab.crypto.entropy import CipherEntropy
from veiltab.errors import ParameterError

COUNTS = np.array([5, 0, 1000])


def test_noise_is_the_difference_of_two_draws() -> None:
    """From the entropy that is passed in: all numbers to add, then all numbers to take off."""
    noise = PublicationNoise.for_epsilon(0.7, 3)
    published = noise.add_noise(COUNTS, CipherEntropy.from_seed(5, "noise"))
    entropy = CipherEntropy.from_seed(5, "noise")
    more, fewer = draw_numbers(noise.law, 3, entropy), draw_numbers(noise.law, 3, entropy)
    assert (published == COUNTS + more - fewer).all()
    assert (published == noise.add_noise(COUNTS, CipherEntropy.from_seed(5, "noise"))).all()


def test_noise_has_its_law() -> None:
    """P(z) ∝ r^|z|, on 40,000 draws; false alarm 1e-9."""
    noise = PublicationNoise.for_epsilon(1.0, 40_000)
    drawn = noise.add_noise(np.zeros(40_000, dtype=np.int64), CipherEntropy.from_seed(1, "law"))
    ratio = math.exp(-0.5)
    tail = ratio**12 / (1 + ratio)
    chances = [(1 - ratio) / (1 + ratio) * ratio ** abs(z) for z in range(-11, 12)]
    counted = Counter(np.clip(drawn, -12, 12).tolist())
    observed = np.array([counted[z] for z in range(-12, 13)])
    assert_fits(observed, np.array([tail, *chances, tail]))
    assert float(noise.variance) == pytest.approx(2 * ratio / (1 - ratio) ** 2, rel=1e-9)
    assert noise_variance(noise) == 40_000 * noise.variance
    assert noise_variance(None) == 0


@pytest.mark.parametrize("epsilon", [0.1, 0.5, 1.0, 3.0])
def test_the_promise_holds_with_equality_at_best(epsilon: float) -> None:
    """Replacing a respondent moves two counts by one: no output is likelier by more than e^ε."""
    noise = PublicationNoise.for_epsilon(epsilon, 2)
    ratio = noise.law.ratio
    worst = max(
        ratio ** (abs(y - a) + abs(z - b) - abs(y - a - 1) - abs(z - b + 1))
        for a, b in [(3, 2)]
        for y, z in product(range(-3, 9), repeat=2)
    )
    assert worst == 1 / ratio**2
    with localcontext(prec=60):
        exact = (Decimal(worst.numerator) / Decimal(worst.denominator)).ln()
        assert exact <= Decimal(str(epsilon))
    assert math.log(worst) == pytest.approx(epsilon, rel=1e-12)


def test_less_noise_than_promised_is_refused() -> None:
    """By one unit in the last place; and so is none, or a table of another size."""
    least = publication_threshold(0.5)
    assert PublicationNoise(0.5, least, 3).threshold == least
    assert PublicationNoise(0.5, least + 1, 3).variance > PublicationNoise(0.5, least, 3).variance
    for threshold in (least - 1, 0, DRAW_RANGE):
        with pytest.raises(ParameterError, match="does not keep epsilon") as caught:
            PublicationNoise(0.5, threshold, 3)
        assert str(least) in caught.value.hint
    with pytest.raises(ParameterError, match="no table of 4 cells"):
        PublicationNoise.for_epsilon(0.5, 4).add_noise(COUNTS, CipherEntropy.from_seed(1, "x"))


def test_the_digest_is_as_described() -> None:
    """Written out byte by byte from its description."""
    schema = Schema([Attribute("größe", ["a", "bc"]), Attribute("x", ["1"])])
    counts = np.array([-3, 2**40])
    data = struct.pack("<I", 2)
    for name, categories in (("größe", ["a", "bc"]), ("x", ["1"])):
        data += struct.pack("<I", len(name.encode())) + name.encode()
        data += struct.pack("<I", len(categories))
        for category in categories:
            data += struct.pack("<I", len(category)) + category.encode()
    data += struct.pack("<d", 0.5) + struct.pack("<qq", -3, 2**40)
    expected = hashlib.sha256(b"veiltab/v1/publication\x00" + data).digest()
    assert publication_digest(schema, counts, 0.5) == expected


def test_any_change_changes_the_digest() -> None:
    """A count, the promise, a category, or where a name ends."""
    schema = Schema([Attribute("ab", ["x", "y"])])
    counts = np.array([1, 2])
    digests = {
        publication_digest(schema, counts, 0.5),
        publication_digest(schema, counts[::-1], 0.5),
        publication_digest(schema, counts, 0.25),
        publication_digest(Schema([Attribute("ab", ["x", "z"])]), counts, 0.5),
        publication_digest(Schema([Attribute("a", ["bx", "y"])]), counts, 0.5),
    }
    assert len(digests) == 5


def test_the_ratio_is_exact() -> None:
    """The ratio r is a multiple of 2⁻⁶⁴, not below e^(−ε/2)."""
    noise = PublicationNoise.for_epsilon(2.0, 1)
    assert noise.law.ratio == Fraction(noise.threshold, DRAW_RANGE)
    assert float(noise.law.ratio) == pytest.approx(math.exp(-1), rel=1e-15)
