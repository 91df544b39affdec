"""Several releases of the same attributes: changes between two, tests of change, pooled shares.

The releases are taken as independent.  The noise of different releases always is.  For the larger
population ("super") the respondents have to be independent too: if the same people are in both
releases, changes are estimated better than is said, never worse.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.core.estimators import project
from veiltab.core.intervals import Quadratic, share_interval
from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.resampling import MOST_CELLS, check_size, seeded_generator
from veiltab.core.schema import Schema
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import Population, ReleaseDesign, critical_value
from veiltab.errors import ParameterError
from veiltab.inference.combined import Combination, SetErrors
from veiltab.inference.conditions import Mask
from veiltab.inference.diagnostics import sample_warnings
from veiltab.inference.distributions import (
    RESERVED,
    WARNING,
    category_columns,
    interval_column,
    warning_column,
)
from veiltab.inference.events import Events
from veiltab.inference.hypotheses import HypothesisTest
from veiltab.inference.quantities import CLEARLY, DOUBT, KNOWN, Quantity
from veiltab.inference.significance import significance

SQUARES = "squares of both intervals added (MOVER)"
TEST = "weighted distance from the pooled shares, releases drawn from them"
NUMBERS_AT_ONCE = 1 << 20
UNUSUAL = 0.05
"""A p-value below which a pooled estimate says that its releases differ."""


def aligned(releases: Sequence[ReleasedCounts]) -> list[ReleasedCounts]:
    """Return marginals of the attributes that all releases have, in the order of the first.

    Categories are put in the first one's order too.  Attributes of the same name with other
    categories are refused.
    """
    first = releases[0].schema
    names = [n for n in first.names if all(n in release.schema.names for release in releases)]
    if not names:
        raise ParameterError(
            "the releases have no attribute in common",
            hint="compare releases of the same questions",
        )
    common = first.subset(names)
    return [_in_order(release, common) for release in releases]


def _in_order(release: ReleasedCounts, schema: Schema) -> ReleasedCounts:
    part = release.marginal(schema.names)
    orders = []
    for wanted, has in zip(schema.attributes, part.schema.attributes, strict=True):
        if set(wanted.categories) != set(has.categories):
            odd = sorted(set(wanted.categories) ^ set(has.categories))
            raise ParameterError(
                f"the categories of {wanted.name!r} differ between the releases: not all have"
                f" {odd[0]!r}",
                hint="compare marginals without this attribute, or recode it alike before a study",
            )
        orders.append([has.categories.index(category) for category in wanted.categories])
    counts = part.counts.reshape(part.schema.sizes)[np.ix_(*orders)].reshape(-1)
    return ReleasedCounts(schema, counts, release.plan, release.publication)


Ends = tuple[Any, Any, Any]
"""A value and the two ends of its interval: numbers, or arrays with one for each release."""


def change(first: Quantity, second: Quantity, label: str) -> Quantity:
    """Estimate second − first of two independent quantities, from both intervals."""
    if not (_complete(first) and _complete(second)):
        return _refused(label, first, second)
    numbers = changed(_numbers(first), _numbers(second))
    return _answer(label, (first, second), numbers, np.array([1.0, 1.0]))


def changed(first: Ends, second: Ends) -> Ends:
    """Return second − first with its interval.

    The distances from the estimates to the ends of the intervals are added as squares (Zou and
    Donner 2008); so skew and bounded intervals give such ones.
    """
    (x, x_low, x_high), (y, y_low, y_high) = first, second
    value = y - x
    return value, value - np.hypot(y - y_low, x_high - x), value + np.hypot(y_high - y, x - x_low)


def ratio(first: Quantity, second: Quantity, label: str) -> Quantity:
    """Estimate second / first of two independent shares.

    Where the first cannot be told from zero there is no upper limit.
    """
    if not (_complete(first) and _complete(second)):
        return _refused(label, first, second)
    (b, b_low, b_high), (a, a_low, a_high) = _numbers(first), _numbers(second)
    vague = f"{first.label} cannot be distinguished from zero in the first release"
    value, low, high = divided((b, b_low, b_high), (a, a_low, a_high))
    if np.isinf(high) and not low > 0:
        return _not_estimable(label, vague, first)
    words = DOUBT if np.isfinite(high) else f"there is no upper limit, because {vague}"
    doubts = () if b > CLEARLY * (b - b_low) else (words,)
    slopes = np.array([a / b**2, 1 / b]) if b > 0 else np.full(2, np.nan)
    return _answer(label, (first, second), (value, low, high), slopes, *doubts)


def divided(first: Ends, second: Ends) -> Ends:
    """Return second / first with its interval: the ρ for which second − ρ first may be 0.

    That difference has the interval that :func:`changed` gives it.  Where the first share may be
    zero, no ρ is too large, and where it is estimated as zero, there is no value (NaN).
    """
    (b, b_low, b_high), (a, a_low, a_high) = first, second
    product, small, large = a * b, a_low * (2 * a - a_low), a_high * (2 * a - a_high)
    root = np.sqrt(np.maximum(product**2 - b_high * (2 * b - b_high) * small, 0.0))
    some = (small > 0) & (b_high > 0)
    least = np.where(some, small / np.where(some, product + root, 1.0), 0.0)
    lead = b_low * (2 * b - b_low)
    far = product + np.sqrt(np.maximum(product**2 - lead * large, 0.0))
    most = np.where(lead > 0, far / np.where(lead > 0, lead, 1.0), np.inf)
    return np.where(b > 0, a / np.where(b > 0, b, 1.0), np.nan), least, most


def _complete(quantity: Quantity) -> bool:
    return None not in (quantity.value, quantity.low, quantity.high, quantity.standard_error)


def _numbers(quantity: Quantity) -> tuple[float, float, float]:
    """Return the value and both ends of a quantity that has them."""
    return float(quantity.value or 0.0), float(quantity.low or 0.0), float(quantity.high or 0.0)


def _refused(label: str, first: Quantity, second: Quantity) -> Quantity:
    """Say which of the two shares has no complete answer, and why."""
    which, quantity = ("second", second) if _complete(first) else ("first", first)
    reason = (quantity.warnings or ("it has no limits",))[0].removeprefix("not estimable: ")
    return _not_estimable(label, f"in the {which} release, {reason}", quantity)


def _not_estimable(label: str, why: str, like: Quantity) -> Quantity:
    return Quantity.not_estimable(
        label, why, level=like.level, method=SQUARES, population=like.population
    )


def _answer(
    label: str,
    pair: tuple[Quantity, Quantity],
    numbers: tuple[Any, Any, Any],
    slopes: Shares,
    *doubts: str,
) -> Quantity:
    """Return a value with its ends, made of two quantities whose errors have these slopes.

    An end that is infinite is no limit; without a value there are no errors.
    """

    def error(name: str) -> float | None:
        errors = np.array([getattr(quantity, name) or 0.0 for quantity in pair])
        return _finite(np.sqrt(((slopes * errors) ** 2).sum()))

    warnings = [
        f"{which} release: {warning}"
        for which, quantity in zip(("first", "second"), pair, strict=True)
        for warning in quantity.warnings
    ]
    value, low, high = map(_finite, numbers)
    return Quantity(
        label=label,
        value=value,
        standard_error=error("standard_error"),
        sampling_error=error("sampling_error"),
        privacy_error=error("privacy_error"),
        low=low,
        high=high,
        level=pair[0].level,
        method=KNOWN if all(quantity.method == KNOWN for quantity in pair) else SQUARES,
        population=pair[0].population,
        warnings=(*warnings, *doubts),
    )


def _finite(number: Any) -> float | None:  # noqa: ANN401 - a number of NumPy's
    return float(number) if np.isfinite(number) else None


def change_table(
    first: ReleasedCounts, second: ReleasedCounts, level: float, population: Population
) -> pl.DataFrame:
    """Return a row per cell: both shares, their difference, its errors and its interval.

    ``warning`` says which share is shown as zero or one because of the noise, as the answer to a
    single question does.
    """
    critical, sides = critical_value(level), []
    for release in (first, second):
        uncertainty = release.uncertainty(population)
        interval = share_interval(release.unbiased, 1, uncertainty.design, critical)
        sides.append((np.clip(release.unbiased, 0, 1), interval, uncertainty.cells()))
    (x, x_ends, x_errors), (y, y_ends, y_errors) = sides
    value = y - x
    columns = {
        "first": x,
        "second": y,
        "difference": value,
        "standard_error": _root(x_errors.total + y_errors.total),
        "sampling_error": _root(x_errors.sampling + y_errors.sampling),
        "privacy_error": _root(x_errors.privacy + y_errors.privacy),
        "low": value - np.hypot(y - y_ends.low, x_ends.high - x),
        "high": value + np.hypot(y_ends.high - y, x - x_ends.low),
    }
    return pl.DataFrame(
        [
            *category_columns(first.schema, RESERVED.union(columns)),
            *(pl.Series(name, column) for name, column in columns.items()),
            _moved(first, second),
            interval_column(value.size, level, simultaneous=False),
        ]
    )


def _moved(first: ReleasedCounts, second: ReleasedCounts) -> pl.Series:
    """Say in which release the share of a cell was moved into 0..1."""
    words = pl.DataFrame(
        {
            which: f"{which} release: " + warning_column(release.unbiased, 1.0, shown=True)
            for which, release in (("first", first), ("second", second))
        }
    )
    both = pl.concat_str("first", "second", separator="; ", ignore_nulls=True)
    return words.select(pl.when(both != "").then(both).alias(WARNING)).to_series()


def _root(variances: Any) -> Shares:  # noqa: ANN401 - an array of numbers
    roots: Shares = np.sqrt(np.maximum(np.asarray(variances, dtype=np.float64), 0))
    return roots


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """One of several releases: its weight, and what its errors depend on."""

    release: ReleasedCounts
    weight: float
    design: ReleaseDesign
    likely: Shares


@dataclass(frozen=True, slots=True, eq=False)
class PooledEvents(Events):
    """Linear statistics of pooled shares; ``parts`` are their gradients."""

    pooled: "Pooled"

    def shape(self, gradient: Shares) -> Shape | None:
        """Add up the cumulants of the releases."""
        weights, cells = gradient @ self.parts, self.parts.shape[1]
        return _joint_shape(
            [
                (
                    part.weight**2 * part.design.total.between(part.likely, weights, weights),
                    part.design.shape(weights, part.likely, np.full(cells, 1 / cells)),
                )
                for part in self.pooled.parts
            ],
            normal=all(part.design.normal for part in self.pooled.parts),
        )


def _joint_shape(parts: Sequence[tuple[Any, Shape]], *, normal: bool) -> Shape | None:
    """Return the shape of a sum of independent errors, from their variances and shapes."""
    if normal:
        return None
    total = np.maximum(sum(variance for variance, _ in parts), np.finfo(np.float64).tiny)
    skewness = sum(variance**1.5 * shape.skewness for variance, shape in parts)
    excess = sum(variance**2 * shape.excess for variance, shape in parts)
    return Shape(np.asarray(skewness / total**1.5), np.asarray(excess / total**2))


@dataclass(frozen=True, eq=False)
class Pooled(Combination):
    """The mean of several releases of the same attributes, weighted by their designs."""

    releases: tuple[ReleasedCounts, ...]
    population: Population

    @property
    def released(self) -> ReleasedCounts:
        """The first release."""
        return self.releases[0]

    @cached_property
    def weights(self) -> Shares:
        """In proportion to 1/(x + y), the inverse of the variance of uniform shares.

        They do not depend on the counts: weights that do would favour small estimates.
        """
        totals = [release.design(self.population).total for release in self.releases]
        precision = np.array([1 / float(total.truth + total.uniform) for total in totals])
        weights: Shares = precision / precision.sum()
        return weights

    @cached_property
    def unbiased(self) -> Shares:
        """The weighted mean of the unbiased shares."""
        mean: Shares = self.weights @ np.array([release.unbiased for release in self.releases])
        return mean

    @cached_property
    def plausible(self) -> Shares:
        """The nearest proper distribution."""
        return project(self.unbiased)

    @cached_property
    def parts(self) -> tuple[_Part, ...]:
        """The releases with their weights; of one population all have the same shares."""
        return tuple(
            _Part(
                release,
                float(weight),
                release.design(self.population),
                self.plausible if self.population == "super" else release.plausible,
            )
            for release, weight in zip(self.releases, self.weights, strict=True)
        )

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Warnings about the other releases, and that releases differ if the test says so."""
        others = [warning for release in self.releases[1:] for warning in sample_warnings(release)]
        if self.unbiased.size > MOST_CELLS or self.heterogeneity.p_value >= UNUSUAL:
            return tuple(dict.fromkeys(others))
        note = (
            f"the releases differ by more than chance (p = {self.heterogeneity.p_value:.2g}): this"
            " is their weighted mean, and its error says nothing about how much they differ"
        )
        return (*dict.fromkeys(others), note)

    @cached_property
    def heterogeneity(self) -> HypothesisTest:
        """The test that all releases have the same shares."""
        return change_test(self)

    def statistics(self, gradients: Shares) -> Events:
        """Add up the covariances of the releases."""
        privacy, sampling = (
            sum(
                part.weight**2 * getattr(part.design, cause).of_statistics(part.likely, gradients)
                for part in self.parts
            )
            for cause in ("privacy", "sampling")
        )
        cells = gradients.shape[1]
        even = np.full(cells, 1 / cells)
        return PooledEvents(
            gradients @ self.unbiased,
            np.asarray(privacy),
            np.asarray(sampling),
            gradients,
            self.plausible,
            even,
            self.parts[0].design,
            self,
        )

    def quadratic(self, fractions: float) -> Quadratic:
        """Add up those of the releases."""
        terms = [
            [part.weight**2 * float(x) for x in part.design.total.quadratic(fractions)]
            for part in self.parts
        ]
        a, b, c = np.sum(terms, axis=0)
        return float(a), float(b), float(c)

    def set_errors(self, mask: Mask) -> SetErrors:
        """Return the errors of the share of a set of cells."""
        events = self.statistics(mask[np.newaxis].astype(np.float64))
        return SetErrors(events.sampling[0], events.privacy[0], events.shape(np.ones(1)))

    def cell_errors(self) -> SetErrors:
        """Add up those of the releases."""
        even = 1 / self.unbiased.size
        sampling, privacy = (
            sum(
                part.weight**2 * getattr(part.design, cause).of_sets(part.likely, even)
                for part in self.parts
            )
            for cause in ("sampling", "privacy")
        )
        normal = all(part.design.normal for part in self.parts)
        shapes = [] if normal else [self._cell_shape(part, even) for part in self.parts]
        return SetErrors(
            np.maximum(sampling, 0), np.maximum(privacy, 0), _joint_shape(shapes, normal=normal)
        )

    def _cell_shape(self, part: _Part, even: float) -> tuple[Any, Shape]:
        """Return the variance of each cell in a release, and the shape of its error."""
        pair = np.stack([part.likely, 1 - part.likely], axis=-1)
        shape = part.design.shape(np.array([1.0, 0.0]), pair, np.array([even, 1 - even]))
        return part.weight**2 * part.design.total.of_sets(part.likely, even), shape


def change_test(pooled: Pooled) -> HypothesisTest:
    """Test whether several releases have the same shares, by drawing from the pooled ones.

    The statistic is Σ (T̂ − P)²/(a + bP⁺) over cells and releases, with the pooled shares P, their
    projection P⁺ and the variance a + bT of a cell.
    """
    check_size(pooled.unbiased.size)
    parts, cells = pooled.parts, pooled.unbiased.size
    observed = _distance(pooled, [part.release.unbiased for part in parts])
    generator = seeded_generator(pooled.released, f"change {len(parts)}")
    found = significance(
        float(observed), cells * len(parts), lambda runs: _drawn(pooled, runs, generator)
    )
    return HypothesisTest(
        label="the same shares in all releases" if len(parts) > 2 else "no change",  # noqa: PLR2004 - a pair
        statistic=float(observed),
        p_value=found.p_value,
        method=TEST,
        population=pooled.population,
        replicates=found.replicates,
        found_by=found.found_by,
        degrees_of_freedom=(len(parts) - 1) * (cells - 1),
        warnings=tuple(dict.fromkeys(w for part in parts for w in sample_warnings(part.release))),
    )


def _drawn(pooled: Pooled, runs: int, generator: np.random.Generator) -> Shares:
    """Return the distances of so many releases of each part, in batches."""
    step, distances = max(1, NUMBERS_AT_ONCE // pooled.unbiased.size), []
    for start in range(0, runs, step):
        drawn = [
            part.design.estimate(
                part.design.redraw(pooled.plausible, min(step, runs - start), generator)
            )
            for part in pooled.parts
        ]
        distances.append(_distance(pooled, drawn))
    return np.concatenate(distances)


def _distance(pooled: Pooled, estimates: Sequence[NDArray[np.float64]]) -> Shares:
    """Return how far releases are from their pooled shares; they run along the first axis."""
    pairs = zip(pooled.weights, estimates, strict=True)
    mean = np.asarray(sum(weight * shares for weight, shares in pairs))
    likely, total = project(mean), np.zeros(estimates[0].shape[:-1])
    for part, shares in zip(pooled.parts, estimates, strict=True):
        constant, slope = (float(x) for x in part.design.cell_variance)
        total = total + ((shares - mean) ** 2 / (constant + slope * likely)).sum(axis=-1)
    return total


def pool(releases: Sequence[ReleasedCounts], population: Population) -> Pooled:
    """Pool releases of the same attributes."""
    for release in releases:
        if not isinstance(release, ReleasedCounts):
            raise ParameterError(
                f"a {type(release).__name__} is no estimate",
                hint="give estimates of two or more releases, in a list to pool()",
            )
    if len(releases) < 2:  # noqa: PLR2004 - a pair at least
        raise ParameterError(
            "it takes at least two releases to compare or pool them",
            hint="give two or more estimates",
        )
    for one, other in pairwise(sorted(releases, key=id)):
        if one is other:
            raise ParameterError(
                "the same estimate is given twice", hint="give estimates of different releases"
            )
    return Pooled(tuple(aligned(releases)), population)
