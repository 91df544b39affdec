"""What a researcher works with: an :class:`Estimate`, and the quantities and tests it returns."""

from veiltab.estimates.comparing import Comparison, compare, pool
from veiltab.estimates.derived import CalibratedEstimate, PooledEstimate
from veiltab.estimates.estimate import Estimate
from veiltab.inference.hypotheses import HypothesisTest
from veiltab.inference.models.results import ModelFit
from veiltab.inference.provenance import Promise, Provenance
from veiltab.inference.quantiles import CategoryQuantile
from veiltab.inference.quantities import Quantity
from veiltab.inference.weighting import WeightedQuantity

__all__ = [
    "CalibratedEstimate",
    "CategoryQuantile",
    "Comparison",
    "Estimate",
    "HypothesisTest",
    "ModelFit",
    "PooledEstimate",
    "Promise",
    "Provenance",
    "Quantity",
    "WeightedQuantity",
    "compare",
    "pool",
]
