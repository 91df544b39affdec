"""Intervals for the strength of an association: φ² and mutual information, never negative.

The estimate of such a measure θ is far from normal near independence: there it is a quadratic form
of the errors.  So its law is computed for each candidate θ (:mod:`veiltab.inference.second_order`),
at the table that has the estimated margins and the estimated departure from independence, scaled to
θ: T = rc + λ(T̂ − rc), with λ² = θ over its plain estimate.  The interval holds all θ under which
the estimate is not unusual (:mod:`veiltab.core.bounded`).

A measure divides by the margins.  Categories whose share is not clearly above zero are counted with
the most frequent one; that never makes an association stronger, and by how much it can make it
weaker is known, so that it is added to the upper end.  Releases run along the first axis.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from veiltab.core import estimators
from veiltab.core.bounded import bounded_interval
from veiltab.core.crossings import crossings
from veiltab.core.intervals import Interval
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import CovarianceForm, ReleaseDesign
from veiltab.inference.measures import Contingency, Information, Measure
from veiltab.inference.second_order import Cumulants, PluggedCovariance, cumulants

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]

CLEARLY = 4.0
"""A category is clearly there if its share is more than this many standard errors above zero."""

BEYOND = 2.0
"""How many standard errors above its estimate the share of unclear categories may lie."""

NODES = (0.0, 0.25, 0.5, 0.75, 1.0)
"""The λ at which the law is computed; between them cumulants are interpolated in λ²."""

NOTICED = 0.05
"""By what part of its deviate the end of an interval is moved before it is said."""

_TINY = 1e-30


@dataclass(frozen=True, slots=True, eq=False)
class Strength:
    """A measure of each release: interval, estimate, standard error, and the part of privacy.

    ``privacy`` is the share of the variance that noise and decoys cause.  ``cautious`` says where
    the interval was widened because its skewness is uncertain.
    """

    interval: Interval
    value: Array
    error: Array
    privacy: Array
    cautious: Flags


@dataclass(frozen=True, slots=True, eq=False)
class Clarity:
    """Which rows and columns are clearly there, the same in all releases."""

    rows: Flags
    columns: Flags

    @property
    def all(self) -> bool:
        """Whether nothing has to be counted together."""
        return bool(self.rows.all() and self.columns.all())

    @property
    def enough(self) -> bool:
        """Whether two rows and two columns are left."""
        return bool(np.count_nonzero(self.rows) > 1 and np.count_nonzero(self.columns) > 1)


def clear_categories(tables: Array, design: ReleaseDesign) -> tuple[Flags, Flags]:
    """Tell which rows and which columns of each release are clearly there."""
    margins = _Margins.of(tables, design.total.like(tables))
    return (
        margins.rows > CLEARLY * margins.row_errors,
        margins.columns > CLEARLY * margins.column_errors,
    )


def contingency_strength(
    tables: Array, design: ReleaseDesign, clarity: Clarity, critical: float
) -> Strength:
    """Estimate φ² of each table."""
    merged = _Merged.of(tables, design, clarity)
    found = _strength(merged, Contingency(), critical)
    return _widened(found, merged.contingency_allowance(), min(tables.shape[1:]) - 1.0)


def information_strength(
    tables: Array, design: ReleaseDesign, clarity: Clarity, critical: float
) -> Strength:
    """Estimate the mutual information of each table, in nats.

    It is distinguished from zero only where φ² is: both are zero for the same tables, and the law
    of φ² is known better there.
    """
    merged = _Merged.of(tables, design, clarity)
    plausible = _project(merged.tables)
    form = design.total.like(tables)
    cells, rows, columns = (
        np.sqrt(np.maximum(form_of.of_sets(shares, fractions), _TINY))
        for form_of, shares, fractions in (
            (_deeper(form), plausible, merged.fractions),
            (form, plausible.sum(axis=2), merged.fractions.sum(axis=1)),
            (form, plausible.sum(axis=1), merged.fractions.sum(axis=0)),
        )
    )
    measure = Information(cells, rows, columns, _empty_shape(design))
    found = _strength(merged, measure, critical)
    dependent = _strength(merged, Contingency(), critical).interval.low > 0
    low = np.where(dependent, found.interval.low, 0.0)
    found = replace(found, interval=replace(found.interval, low=low))
    limit = float(np.log(min(tables.shape[1:])))
    return _widened(found, merged.information_allowance(), limit)


def _empty_shape(design: ReleaseDesign) -> tuple[float, float]:
    """Return the skewness and the excess of the error of an empty cell."""
    fraction = 1 / design.cells
    shape = design.shape(
        np.array([1.0, 0.0]), np.array([0.0, 1.0]), np.array([fraction, 1 - fraction])
    )
    return float(np.mean(shape.skewness)), float(np.mean(shape.excess))


def _widened(found: Strength, allowance: Array, limit: float) -> Strength:
    """Add to the upper end what unclear categories could add to the association."""
    high = np.minimum(found.interval.high + allowance, limit)
    return replace(found, interval=replace(found.interval, high=high))


def _deeper(form: CovarianceForm) -> CovarianceForm:
    """Return coefficients for tables, whose releases have two axes more and not one."""
    return CovarianceForm(
        *(
            part[..., np.newaxis] if isinstance(part, np.ndarray) else part
            for part in (form.truth, form.uniform, form.shift)
        )
    )


def _project(tables: Array) -> Array:
    """Return the nearest proper distributions."""
    flat = tables.reshape(tables.shape[0], -1)
    proper: Array = estimators.project(flat).reshape(tables.shape)
    return proper


@dataclass(frozen=True, slots=True, eq=False)
class _Margins:
    """The margins of each table and their standard errors."""

    rows: Array
    columns: Array
    row_errors: Array
    column_errors: Array
    form: CovarianceForm

    @classmethod
    def of(cls, tables: Array, form: CovarianceForm) -> "_Margins":
        plausible = _project(tables)
        errors = [
            np.sqrt(np.maximum(form.of_sets(shares, 1 / shares.shape[1]), 0))
            for shares in (plausible.sum(axis=2), plausible.sum(axis=1))
        ]
        return cls(tables.sum(axis=2), tables.sum(axis=1), errors[0], errors[1], form)

    def most(self, shares: Array, unclear: Flags) -> Array:
        """Return how large the share of the unclear categories together may be."""
        if not unclear.any():
            return np.zeros(shares.shape[0])
        together = np.maximum(shares[:, unclear].sum(axis=1, keepdims=True), 0)
        variance = self.form.of_sets(together, float(unclear.mean()))
        most: Array = (together + BEYOND * np.sqrt(np.maximum(variance, 0)))[:, 0]
        return most


@dataclass(frozen=True, slots=True, eq=False)
class _Merged:
    """Tables in which every category is clearly there, and what was lost on the way."""

    tables: Array
    fractions: Array
    design: ReleaseDesign
    clarity: Clarity
    margins: _Margins

    @classmethod
    def of(cls, tables: Array, design: ReleaseDesign, clarity: Clarity) -> "_Merged":
        """Count the unclear categories with the most frequent one."""
        _, rows, columns = tables.shape
        margins = _Margins.of(tables, design.total.like(tables))
        by_row = _merging(margins.rows, clarity.rows)
        by_column = _merging(margins.columns, clarity.columns)
        even = np.full((rows, columns), 1 / (rows * columns))
        merged = np.einsum("ia,nij,jb->nab", by_row, tables, by_column)
        return cls(merged, by_row.T @ even @ by_column, design, clarity, margins)

    def contingency_allowance(self) -> Array:
        """Return by how much φ² of the full table may exceed that of the merged one.

        To split a row of share s off another one adds at most 1, and at most s(1/c + 1/r) with the
        smallest column c and the other row r.  An unclear column adds at most 1 to that.
        """
        rows, columns = ~self.clarity.rows, ~self.clarity.columns
        margins = self.margins
        by_column = margins.most(margins.columns, columns) * (
            1 / _smallest(margins.rows, margins.row_errors, ~rows) + 1 / margins.columns.max(axis=1)
        )
        by_row = margins.most(margins.rows, rows) * (
            1 / _smallest(margins.columns, margins.column_errors, ~columns)
            + 1 / margins.rows.max(axis=1)
        )
        beside = float(columns.sum()) if rows.any() else 0.0
        added: Array = np.minimum(by_column, columns.sum()) + np.minimum(
            by_row + beside, rows.sum()
        )
        return added

    def information_allowance(self) -> Array:
        """Return the same for mutual information: at most the entropy of what was merged.

        k categories with the share s have at most s(1 + ln(k/s)) nats.
        """
        margins = self.margins
        return sum(
            (
                _entropy(margins.most(shares, unclear), int(unclear.sum()))
                for shares, unclear in (
                    (margins.rows, ~self.clarity.rows),
                    (margins.columns, ~self.clarity.columns),
                )
            ),
            np.zeros(self.tables.shape[0]),
        )


def _merging(shares: Array, clear: Flags) -> Array:
    """Return which category goes where: the clear ones stay, the others join the largest."""
    kept = np.flatnonzero(clear)
    largest = int(np.argmax(shares.mean(axis=0)[kept]))
    matrix = np.zeros((clear.size, kept.size))
    matrix[kept, np.arange(kept.size)] = 1
    matrix[~clear, largest] = 1
    return matrix


def _smallest(shares: Array, errors: Array, clear: Flags) -> Array:
    """Return how small the smallest clear category may be."""
    least: Array = (shares - BEYOND * errors)[:, clear].min(axis=1)
    return least


def _entropy(share: Array, categories: int) -> Array:
    safe = np.maximum(share, _TINY)
    return np.where(share > 0, safe * (1 + np.log(max(categories, 1) / safe)), 0.0)


def _strength(merged: _Merged, measure: Measure, critical: float) -> Strength:
    law = _Law.of(merged, measure)
    least = np.zeros(law.observed.shape)
    most = np.full(least.shape, measure.limit(*merged.tables.shape[1:]))
    interval = bounded_interval(law.score, least, most, critical)
    value, _ = crossings(lambda theta: law.observed - theta - law.at(theta)[0], least, most)
    value = np.where(law.observed < law.at(least)[0], 0.0, value)
    cautious = law.cautious(interval.low) | law.cautious(interval.high)
    return Strength(interval, value, np.sqrt(law.at(value)[1]), law.privacy, cautious)


@dataclass(frozen=True, slots=True, eq=False)
class _Law:
    """The law of the estimate of a measure for each θ, from its cumulants at the nodes."""

    observed: Array
    strengths: Array
    nodes: Cumulants
    biased: bool
    privacy: Array

    @classmethod
    def of(cls, merged: _Merged, measure: Measure) -> "_Law":
        tables = merged.tables
        independent = tables.sum(axis=2)[:, :, np.newaxis] * tables.sum(axis=1)[:, np.newaxis, :]
        last = measure.farthest(tables)
        tables_at = [
            independent + distance.reshape(-1, 1, 1) * (tables - independent)
            for distance in (*(np.full(last.shape, node) for node in NODES), last)
        ]
        laws = [_cumulants_at(each, merged, measure) for each in tables_at]
        strengths = np.stack([measure.plain(each, _project(each)) for each in tables_at])
        expansion = measure.expand(tables)
        return cls(
            observed=expansion.value,
            strengths=np.maximum.accumulate(strengths, axis=0),
            nodes=Cumulants(
                np.stack([law.bias if measure.biased else law.bias * 0 for law in laws]),
                np.stack([law.linear for law in laws]),
                np.stack([law.square for law in laws]),
            ),
            biased=measure.biased,
            privacy=_privacy(expansion.gradient, _plugged(tables, merged), merged.design),
        )

    def at(self, theta: Array) -> tuple[Array, Array, Shape]:
        """Return the bias, the variance and the shape of the estimate if θ were the truth.

        Beyond the last node, what the gradient adds grows in proportion to θ, as it does for the
        squared length of a vector.
        """
        last = np.maximum(self.strengths[-1], _TINY)
        inside = np.minimum(theta, last)
        left = np.clip((self.strengths <= inside).sum(axis=0) - 1, 0, len(NODES) - 1)
        which = np.arange(theta.size)
        start, end = self.strengths[left, which], self.strengths[left + 1, which]
        steps = end - start  # none where the table is already as strong as its margins allow
        weight = np.divide(inside - start, steps, where=steps > 0, out=np.ones_like(steps))

        def between(values: Array) -> Array:
            lower, upper = values[left, ..., which], values[left + 1, ..., which]
            shaped = weight.reshape(-1, *(1,) * (lower.ndim - 1))
            return np.moveaxis(lower + shaped * (upper - lower), 0, -1)

        second, third, fourth = between(self.nodes.linear) * (
            np.maximum(theta / last, 1)
        ) + between(self.nodes.square)
        second = np.maximum(second, _TINY)
        skewness = third / second**1.5
        excess = np.maximum(fourth / second**2, 1.5 * skewness**2)
        return between(self.nodes.bias), second, Shape(skewness, excess)

    def score(self, theta: Array) -> Array:
        """Return the normal deviates that are as unlikely as the estimates, if θ were the truth.

        Where cells are nearly empty, the skewness of mutual information is itself uncertain, and
        too much of it makes its short side too short.  There the score counts only by half.
        """
        scores, halved = self._scores(theta)
        return scores if self.biased else halved

    def cautious(self, theta: Array) -> Flags:
        """Tell where a deviate counts for noticeably less than the whole skewness would make it."""
        scores, halved = self._scores(theta)
        noticed: Flags = np.abs(scores) > (1 + NOTICED) * np.abs(halved)
        return noticed if not self.biased else np.zeros_like(noticed)

    def _scores(self, theta: Array) -> tuple[Array, Array]:
        """Return normal deviates with the whole skewness, and with half of it on the short side."""
        bias, variance, shape = self.at(theta)
        deviation = (self.observed - theta - bias) / np.sqrt(variance)
        scores = shape.score(deviation)
        short = deviation * shape.skewness < 0
        return scores, np.where(short, (scores + deviation) / 2, scores)


def _plugged(tables: Array, merged: _Merged) -> PluggedCovariance:
    """Return the covariance at the proper distribution that is nearest to each table."""
    releases = tables.shape[0]
    return PluggedCovariance(
        _project(tables).reshape(releases, -1),
        merged.fractions.reshape(1, -1),
        merged.design.total.like(tables),
    )


def _cumulants_at(tables: Array, merged: _Merged, measure: Measure) -> Cumulants:
    covariance = _plugged(tables, merged)
    shapes = _cell_shapes(merged.design, covariance)
    return cumulants(measure.expand(tables), covariance, shapes)


def _cell_shapes(design: ReleaseDesign, covariance: PluggedCovariance) -> Shape | None:
    """Return the shape of the error of each cell, None for the normal law."""
    if design.normal:
        return None
    shares, fractions = np.broadcast_arrays(covariance.shares, covariance.fractions)
    return design.shape(
        np.array([1.0, 0.0]),
        np.stack([shares, 1 - shares], axis=-1),
        np.stack([fractions, 1 - fractions], axis=-1),
    )


def _privacy(gradient: Array, covariance: PluggedCovariance, design: ReleaseDesign) -> Array:
    """Return which part of the variance of the linear approximation noise and decoys cause."""
    noise = PluggedCovariance(
        covariance.shares, covariance.fractions, design.privacy.like(gradient)
    )
    part = (gradient * noise.times(gradient)).sum(axis=-1)
    whole = (gradient * covariance.times(gradient)).sum(axis=-1)
    shares: Array = np.divide(part, whole, where=whole > 0, out=np.ones_like(whole))
    return np.clip(shares, 0, 1)
