"""Channels by the paper's own parameter."""

from fractions import Fraction

from veiltab.core.channel import GammaDiagonal


def gamma_channel(domain_size: int, gamma: Fraction) -> GammaDiagonal:
    """Build the channel with the paper's parameter γ > 1."""
    return GammaDiagonal(domain_size, (gamma - 1) / (gamma + domain_size - 1))
