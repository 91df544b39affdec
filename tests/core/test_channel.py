"""The γ-diagonal channel against its matrix, written out."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.channels import gamma_channel
from tests.support.laws import channel_matrix, fractions
from veiltab.core.channel import MAX_ESTIMATED_CELLS, GammaDiagonal
from veiltab.errors import ParameterError

CASES = [(1, Fraction(3)), (2, Fraction(3)), (3, Fraction(5, 2)), (6, Fraction(31, 7))]


@pytest.mark.parametrize(("cells", "gamma"), CASES)
def test_probabilities_are_the_papers_matrix(cells: int, gamma: Fraction) -> None:
    """A[released, cell] is γ/q on the diagonal and 1/q off it, and columns sum to one."""
    channel = gamma_channel(cells, gamma)
    matrix = channel_matrix(cells, gamma)
    for released, cell in product(range(cells), repeat=2):
        assert channel.probability(released=released, cell=cell) == matrix[released][cell]
    assert channel.gamma == gamma
    assert channel.normalizer == gamma + cells - 1
    assert all(sum(row) == 1 for row in matrix)


@pytest.mark.parametrize(("cells", "gamma"), CASES)
def test_transform_and_inverse_are_the_matrix_and_its_inverse(cells: int, gamma: Fraction) -> None:
    """A⁻¹A = I exactly, with A⁻¹ = (qI − J)/(γ − 1), and the closed forms agree with both."""
    channel = gamma_channel(cells, gamma)
    matrix = np.array(channel_matrix(cells, gamma), dtype=object)
    identity = np.array([[Fraction(int(i == j)) for j in range(cells)] for i in range(cells)])
    inverse = (identity * channel.normalizer - 1) / (gamma - 1)
    assert (inverse @ matrix == identity).all()
    distribution = fractions(range(1, cells + 1)) / (cells * (cells + 1) // 2)
    assert (channel.transform(distribution) == matrix @ distribution).all()
    assert (channel.invert(distribution) == inverse @ distribution).all()
    assert (channel.invert(channel.transform(distribution)) == distribution).all()


@pytest.mark.parametrize(("cells", "gamma"), CASES[1:])
def test_condition_number(cells: int, gamma: Fraction) -> None:
    """The ratio of the extreme singular values is 1 + N/(γ − 1) (Theorem 2)."""
    channel = gamma_channel(cells, gamma)
    assert channel.condition_number == 1 + cells / (gamma - 1)
    numeric = np.linalg.cond(np.array(channel_matrix(cells, gamma), dtype=float))
    assert float(channel.condition_number) == pytest.approx(numeric, rel=1e-12)


@pytest.mark.parametrize(("kept", "dropped"), [(2, 3), (3, 2), (1, 4), (4, 1)])
def test_the_marginal_of_the_channel_is_the_channel_of_the_marginal(
    kept: int, dropped: int
) -> None:
    """Summing A over the attributes that are left out gives a γ-diagonal matrix with the same p."""
    joint = gamma_channel(kept * dropped, Fraction(17, 3))
    marginal = joint.marginal(kept)
    for released, cell, other in product(range(kept), range(kept), range(dropped)):
        summed = sum(
            joint.probability(released=released * dropped + rest, cell=cell * dropped + other)
            for rest in range(dropped)
        )
        assert summed == marginal.probability(released=released, cell=cell)
    assert marginal.keep_probability == joint.keep_probability


def test_the_marginal_estimate_is_the_sum_of_the_joint_estimate() -> None:
    """A researcher with one curator's keys gets exactly what the joint estimate sums to."""
    joint = gamma_channel(6, Fraction(4))
    shares = fractions(["0.1", "0.2", "0.05", "0.25", "0.3", "0.1"])
    summed = joint.invert(shares).reshape(2, 3).sum(axis=1)
    assert (joint.marginal(2).invert(shares.reshape(2, 3).sum(axis=1)) == summed).all()


@pytest.mark.parametrize(("cells", "gamma"), CASES)
def test_two_channels_in_a_row_are_one(cells: int, gamma: Fraction) -> None:
    """The product of two γ-diagonal matrices is one with p = p₁p₂."""
    first, second = (gamma_channel(cells, g) for g in (gamma, gamma + 2))
    both = np.array(channel_matrix(cells, gamma + 2), dtype=object) @ np.array(
        channel_matrix(cells, gamma), dtype=object
    )
    composed = first.compose(second)
    assert composed.keep_probability == first.keep_probability * second.keep_probability
    for released, cell in product(range(cells), repeat=2):
        assert composed.probability(released=released, cell=cell) == both[released][cell]


@given(
    counts=st.lists(st.integers(0, 10**6), min_size=2, max_size=60).filter(any),
    gamma=st.fractions(Fraction(101, 100), 1000),
)
def test_the_estimate_sums_to_one_and_undoes_the_channel(
    counts: list[int], gamma: Fraction
) -> None:
    """Estimating from the expected release gives the distribution back."""
    channel = gamma_channel(len(counts), gamma)
    table = np.array(counts, dtype=np.int64)
    estimate = channel.estimate(table)
    assert estimate.sum() == pytest.approx(1, abs=1e-9)
    np.testing.assert_allclose(channel.transform(estimate), table / table.sum(), atol=1e-12)


def test_many_releases_are_estimated_at_once() -> None:
    """Cells run along the last axis; each row is a release of its own."""
    channel = gamma_channel(3, Fraction(4))
    table = np.array([[1, 2, 3], [10, 0, 0]])
    both = channel.estimate(table)
    for row in range(2):
        np.testing.assert_array_equal(both[row], channel.estimate(table[row]))


def test_a_threshold_gives_exact_probabilities() -> None:
    """Exactly p = t/2⁶⁴ and γ = 1 + t/M, with M draws for each replacement cell."""
    width = 3 * 10**17
    channel = GammaDiagonal.from_threshold(24, 2**64 - 24 * width)
    assert channel.noise_width == width
    assert channel.keep_probability == Fraction(2**64 - 24 * width, 2**64)
    assert channel.gamma == 1 + Fraction(2**64 - 24 * width, width)
    assert channel.marginal(6).noise_width == 4 * width


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: GammaDiagonal(0, Fraction(1, 2)), "no gamma-diagonal channel"),
        (lambda: GammaDiagonal(2, Fraction(0)), "no gamma-diagonal channel"),
        (lambda: GammaDiagonal(2, Fraction(1)), "no gamma-diagonal channel"),
        (lambda: gamma_channel(2, Fraction(1)), "no gamma-diagonal channel"),
        (lambda: GammaDiagonal.from_threshold(3, 2**63), "same number of draws"),
        (lambda: GammaDiagonal.from_threshold(3, 2**64), "no gamma-diagonal channel"),
        (lambda: gamma_channel(6, Fraction(2)).marginal(4), "no marginal"),
        (lambda: gamma_channel(6, Fraction(2)).marginal(0), "no marginal"),
        (
            lambda: gamma_channel(6, Fraction(2)).compose(gamma_channel(5, Fraction(2))),
            "do not compose",
        ),
        (lambda: GammaDiagonal(2, Fraction(1, 3)).keep_threshold, "not a multiple"),
        (lambda: GammaDiagonal(2, Fraction(1, 3)).estimate(np.array([1, 2, 3])), "3 counts"),
        (lambda: GammaDiagonal(2, Fraction(1, 3)).estimate(np.array([0, 0])), "empty release"),
        (
            lambda: GammaDiagonal(MAX_ESTIMATED_CELLS + 1, Fraction(1, 3)).estimate(
                np.ones(MAX_ESTIMATED_CELLS + 1, dtype=np.int64)
            ),
            "cannot estimate",
        ),
    ],
)
def test_what_is_no_channel_is_refused(build: object, message: str) -> None:
    """Each misuse has a typed error with a hint."""
    assert callable(build)
    with pytest.raises(ParameterError, match=message) as caught:
        build()
    assert caught.value.hint
