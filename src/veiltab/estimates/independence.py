"""A test of independence that is valid under the noise."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import numpy as np

from veiltab.core.uncertainty import Population
from veiltab.errors import ParameterError
from veiltab.estimates.advice import sample_warnings
from veiltab.estimates.null import Null
from veiltab.estimates.released import Released
from veiltab.estimates.resample import check_size, resample

METHOD = "Pearson's statistic of the release, parametric bootstrap under independence"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndependenceTest:
    """How far the release is from what independence would give, and how unusual that is.

    The p-value is (1 + how many of the drawn statistics are at least as large)/(1 + all of them).
    """

    label: str
    statistic: float
    p_value: float
    replicates: int
    population: Population
    method: str = METHOD
    warnings: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON values."""
        return asdict(self) | {"warnings": list(self.warnings)}

    def __str__(self) -> str:
        """Say it in a line; warnings follow on lines of their own."""
        return "\n".join([f"{self.label}: {self._text()}", *(f"  {w}" for w in self.warnings)])

    def _repr_html_(self) -> str:
        """Return it as a paragraph and a list of warnings, for notebooks."""
        warnings = "".join(f"<li>{escape(warning)}</li>" for warning in self.warnings)
        listed = f"<ul>{warnings}</ul>" if warnings else ""
        return f"<p><b>{escape(self.label)}</b>: {escape(self._text())}</p>{listed}"

    def _text(self) -> str:
        return (
            f"p = {self.p_value:.3g} (statistic {self.statistic:.4g}, {self.replicates:,} drawn"
            " releases)"
        )


def pair_table(released: Released, x: str, y: str) -> Released:
    """Return the table of two attributes; refuse one twice, or one that cannot vary."""
    if x == y:
        raise ParameterError(f"{x!r} is named twice", hint="name two different attributes")
    pair = released.marginal([x, y])
    for attribute in pair.schema.attributes:
        if attribute.size == 1:
            raise ParameterError(
                f"{attribute.name!r} has only one category", hint="it goes together with nothing"
            )
    return pair


def independence_test(
    released: Released, x: str, y: str, given: Sequence[str], population: Population
) -> IndependenceTest:
    """Test whether two attributes are independent, or independent within groups of others."""
    if {x, y} & set(given):
        raise ParameterError(
            "an attribute is both tested and conditioned on", hint="name each attribute once"
        )
    pair = pair_table(released, x, y)
    table = released.marginal([x, y, *given]) if given else pair
    check_size(table.schema.domain_size)
    rows, columns = pair.schema.sizes
    groups = table.schema.domain_size // (rows * columns)
    null = Null(table.channel, rows, columns, groups)
    observed = float(null.statistic(table.counts))
    label = f"independence of {x} and {y}" + (f" given {', '.join(given)}" if given else "")
    design = table.design(population)
    drawn = resample(
        null.plausible(table.counts, design), design, null.statistic, table.generator(label)
    )
    # Equal statistics may come out a rounding error apart.
    larger = int(np.count_nonzero(drawn >= observed * (1 - 1e-12)))
    return IndependenceTest(
        label=label,
        statistic=observed,
        p_value=(1 + larger) / (1 + drawn.size),
        replicates=int(drawn.size),
        population=population,
        warnings=sample_warnings(released),
    )
