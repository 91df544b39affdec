"""The answer of every test of a hypothesis: a statistic, a p-value, and how it was found."""

from dataclasses import dataclass

import numpy as np

from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.resampling import Statistic, resample, seeded_generator
from veiltab.core.uncertainty import Population, ReleaseDesign
from veiltab.inference.answer import Answer
from veiltab.inference.diagnostics import sample_warnings
from veiltab.inference.significance import LAW, SMALLEST, TAIL, FoundBy, significance


@dataclass(frozen=True, slots=True, kw_only=True)
class HypothesisTest(Answer):
    """How far a release is from a hypothesis, and how unusual that would be if it were true.

    ``found_by`` says whether the p-value was counted among releases that were drawn under the
    hypothesis ("draws"), comes from their largest ones ("tail"), or from a law in closed form
    ("law").  ``replicates`` is how many were drawn, None without draws.  ``degrees_of_freedom`` is
    the mean of the statistic under the hypothesis in large samples, None where it has no such
    meaning.
    """

    label: str
    statistic: float
    p_value: float
    method: str
    population: Population
    replicates: int | None = None
    found_by: FoundBy = LAW
    degrees_of_freedom: int | None = None
    warnings: tuple[str, ...] = ()

    def _text(self) -> str:
        p_value = f"p = {self.p_value:.3g}"
        if self.p_value <= SMALLEST:
            p_value = f"p ≤ {SMALLEST:.3g}"
        freedom = self.degrees_of_freedom
        plural = "" if freedom == 1 else "s"
        degrees = "" if freedom is None else f", {freedom} degree{plural} of freedom"
        basis = "" if self.replicates is None else f"; {self._draws()}"
        return f"{p_value} (statistic {self.statistic:.4g}{degrees}{basis})"

    def _draws(self) -> str:
        drawn = f"{self.replicates:,} drawn releases"
        return f"the tail of {drawn}" if self.found_by == TAIL else drawn


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DrawnTest:
    """A test whose null distribution is drawn: releases of ``truth``, each measured alike.

    ``measure`` is large where a release is far from the hypothesis.  The seed follows from the
    counts and the label, so that the same question has the same answer.
    """

    table: ReleasedCounts
    label: str
    method: str
    design: ReleaseDesign
    truth: Shares
    measure: Statistic

    def result(
        self, *, statistic: float | None = None, degrees_of_freedom: int | None = None
    ) -> HypothesisTest:
        """Return the p-value; ``statistic`` is shown in place of what was measured."""
        observed = float(self.measure(self.table.counts[np.newaxis])[0])
        generator = seeded_generator(self.table, self.label)

        def draw(runs: int) -> Shares:
            return resample(self.truth, self.design, self.measure, generator, most=runs)

        found = significance(observed, self.truth.size, draw)
        return HypothesisTest(
            label=self.label,
            statistic=observed if statistic is None else statistic,
            p_value=found.p_value,
            method=self.method,
            population=self.design.population,
            replicates=found.replicates,
            found_by=found.found_by,
            degrees_of_freedom=degrees_of_freedom,
            warnings=sample_warnings(self.table),
        )
