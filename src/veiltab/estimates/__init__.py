"""What a researcher works with: an :class:`Estimate`, and the quantities and tests it returns."""

from veiltab.estimates.estimate import Estimate
from veiltab.inference.independence import IndependenceTest
from veiltab.inference.provenance import Promise, Provenance
from veiltab.inference.quantities import Quantity

__all__ = ["Estimate", "IndependenceTest", "Promise", "Provenance", "Quantity"]
