"""What a researcher gets: estimates, how far off they may be, and tests that the noise allows."""

from veiltab.estimates.estimate import Estimate
from veiltab.estimates.independence import IndependenceTest
from veiltab.estimates.quantities import Quantity
from veiltab.estimates.released import Promise, Provenance

__all__ = ["Estimate", "IndependenceTest", "Promise", "Provenance", "Quantity"]
