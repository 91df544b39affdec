"""What observed releases prove about a mechanism: lower bounds of its ε and δ.

An audit plays many independent games.  In each, one respondent's record is of one kind or of the
other, and the auditor looks whether an event happened.  The event is fixed in advance.
"""

import math
from dataclasses import dataclass

from scipy.stats import beta

ERROR = 1e-6
"""The chance that a bound proves too much: half for each of its two probabilities."""


@dataclass(frozen=True)
class Audit:
    """How often the event happened with either record, and in how many games."""

    likely: int
    likely_games: int
    unlikely: int
    unlikely_games: int

    def epsilon(self, delta: float = 0.0) -> float:
        """Return the largest ε that is proved at this δ: every smaller promise is broken."""
        least, most = self._bounds()
        return math.log((least - delta) / most) if least > delta else -math.inf

    def delta(self, epsilon: float) -> float:
        """Return the largest δ that is proved at this ε."""
        least, most = self._bounds()
        return least - math.exp(epsilon) * most

    def _bounds(self) -> tuple[float, float]:
        """Return the bounds of Clopper and Pearson: P from below, Q from above."""
        seen, games = self.likely, self.likely_games
        least = float(beta.ppf(ERROR / 2, seen, games - seen + 1)) if seen else 0.0
        seen, games = self.unlikely, self.unlikely_games
        most = float(beta.ppf(1 - ERROR / 2, seen + 1, games - seen)) if seen < games else 1.0
        return least, most
