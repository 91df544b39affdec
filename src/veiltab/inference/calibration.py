"""Calibration: an estimate that is made to agree with margins that are known from elsewhere.

With M·T the sums that are known to be μ, with the covariance S of the errors of μ, the calibrated
shares are

    T̂_c = T̂ − G (M·T̂ − μ),      G = C Mᵀ (M C Mᵀ + S)⁻¹.

By regression (GREG) C is the covariance of T̂; then the calibrated shares have the least variance
of all linear ones.  By raking C is diag(T) − TTᵀ, and S is left out: to first order that is what
factors for the categories do that make the margins fit (Deville and Särndal 1992).

Whatever C is, a·T̂_c = (a − MᵀGᵀa)·T̂ + (Gᵀa)·μ is a linear statistic of the release.  So its
errors come from the covariance of the release, with other weights, and no N × N matrix is built.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np
import polars as pl

from veiltab.core.estimators import project
from veiltab.core.intervals import Quadratic
from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.shape import Shape
from veiltab.core.uncertainty import CovarianceForm, Population, ReleaseDesign
from veiltab.errors import CalibrationError, ParameterError
from veiltab.inference.combined import Combination, SetErrors
from veiltab.inference.conditions import Mask
from veiltab.inference.events import Events
from veiltab.inference.margins import ROUNDED, Errors, KnownMargins, Margin, Margins, read_margins

Method = Literal["greg", "rake"]

MULTINOMIAL = CovarianceForm(1.0, 0.0, 0.0)
SINGULAR = 1e-10
"""An eigenvalue below this part of the largest one belongs to what margins say twice."""

ROUNDS = 10_000
REACHED = 1e-10
"""How many rounds of raking there are at most, and how near margins have to come."""

STEPS, DAMPING = 200, 1e-6
"""Newton's steps at most, and what is added to the diagonal, as a part of its largest entry."""

NEGLIGIBLE = 1e-2
"""A step below this part of how near they have to come changes nothing any more."""

LEAST = 0.05
"""The least weight of independence in the reference, and of equal shares in its margins."""

FEW_PEOPLE = 25
"""With fewer people than this in a category, its shares follow the margin only roughly."""

FAR = 5.0
"""A margin that is so many standard errors from the release is not so by chance."""

MOST_TABLE_NUMBERS = 50_000_000
"""The largest number of cells times atoms for which a table of all cells is computed."""

NUMBERS_AT_ONCE = 1 << 20


@dataclass(frozen=True, eq=False)
class Calibration(Combination):
    """A release that is calibrated to known margins of its respondents or of their population."""

    release: ReleasedCounts
    margins: KnownMargins
    method: Method
    population: Population

    @property
    def released(self) -> ReleasedCounts:
        """The release."""
        return self.release

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Say if margins are far off, are taken as they are, or have categories of few people."""
        notes = []
        apart = margins_table(self)
        noticed = (pl.col("estimate") - pl.col("known")).abs() > ROUNDED
        far = apart.filter((pl.col("distance").abs() > FAR) & noticed)
        if far.height:
            row = far.row(int(far["distance"].abs().arg_max() or 0), named=True)
            notes.append(
                f"the known share of {row['category']} ({row['margin']}), {row['known']:.4g}, is"
                f" {abs(row['distance']):.0f} standard errors from that in the release,"
                f" {row['estimate']:.4g}: they are not about the same people, and answers hold only"
                " if both are alike within each category of the margins"
            )
        if self.method == "rake" and self.margins.covariance.any():
            notes.append(
                "raking takes margins as they are; their errors are in those of the answer"
            )
        sampling = self.release.design("super").sampling.truth
        people = self.margins.targets / float(sampling)
        few = int(np.count_nonzero((people < FEW_PEOPLE) & (self.margins.targets > 0)))
        if few:
            notes.append(
                f"in {few:,} categories of the margins fewer than {FEW_PEOPLE} people are expected"
                " to have taken part: intervals there are rough; merge categories"
            )
        return tuple(notes)

    @cached_property
    def design(self) -> ReleaseDesign:
        """How the release came about."""
        return self.release.design(self.population)

    @property
    def _weighting(self) -> CovarianceForm:
        """C, as a covariance form."""
        return self.design.total if self.method == "greg" else MULTINOMIAL

    @cached_property
    def reference(self) -> Shares:
        """The distribution at which C is computed: smooth, and with the known margins.

        With the estimate itself in its place, a cell that is small by chance would follow the
        margins less than its fair part.
        """
        smooth = smoothed(self.release, self.population)
        exact = self.margins.exactly_known()
        return smooth if exact is None else _with_margins(smooth, exact, ROUNDED)

    @cached_property
    def _inverse(self) -> Shares:
        """(M C Mᵀ + S)⁻¹, where margins that say the same twice count once."""
        atoms = self.margins.by_atom(self.reference)
        matrix = self._weighting.of_statistics(atoms, self.margins.indicators)
        if self.method == "greg":
            matrix = matrix + self.margins.covariance
        return _pseudo_inverse(matrix)

    def multipliers(self, gradients: Shares) -> Shares:
        """Return Gᵀa for each gradient a: how strongly it follows each known number."""
        covariance = self._weighting.times(self.reference, gradients)
        return self.margins.sums(covariance) @ self._inverse

    @cached_property
    def unbiased(self) -> Shares:
        """The calibrated shares T̂_c."""
        apart = self.margins.sums(self.release.unbiased) - self.margins.targets
        spread = self.margins.spread(self._inverse @ apart)
        moved = self._weighting.times(self.reference, spread)
        calibrated: Shares = self.release.unbiased - moved
        return calibrated

    @cached_property
    def plausible(self) -> Shares:
        """The raked table, or the proper distribution with the known margins nearest to T̂_c."""
        if self.method == "rake":
            return _with_margins(self.release.plausible, self.margins, REACHED)
        exact = self.margins.exactly_known()
        return project(self.unbiased) if exact is None else nearest(self.unbiased, exact)

    def statistics(self, gradients: Shares) -> Events:
        """Estimate linear statistics: those of the release with the weights a − MᵀGᵀa."""
        return self._statistics(gradients, self.release.plausible)

    def _statistics(self, gradients: Shares, likely: Shares) -> Events:
        """Estimate linear statistics, with the errors that a distribution gives.

        The errors of the margins count as sampling errors: of those who stated the margins.
        """
        multipliers = self.multipliers(gradients)
        weights = gradients - self.margins.spread(multipliers)
        borrowed = multipliers @ self.margins.covariance @ multipliers.T
        return Events(
            gradients @ self.unbiased,
            self.design.privacy.of_statistics(likely, weights),
            self.design.sampling.of_statistics(likely, weights) + borrowed,
            weights,
            likely,
            np.full(likely.size, 1 / likely.size),
            self.design,
        )

    def set_errors(self, mask: Mask) -> SetErrors:
        """Return the errors that the share of a set would have in the reference."""
        events = self._statistics(mask[np.newaxis].astype(np.float64), self.reference)
        return SetErrors(events.sampling[0], events.privacy[0], events.shape(np.ones(1)))

    def quadratic(self, fractions: float) -> Quadratic:
        """Return the variance of a set of cells in the release alone."""
        return self.design.total.quadratic(fractions)

    def cell_errors(self) -> SetErrors:
        """Compute the errors of all cells in chunks."""
        cells, atoms = self.release.plausible.size, self.margins.atoms
        if cells * atoms > MOST_TABLE_NUMBERS:
            raise ParameterError(
                f"the errors of {cells:,} cells, calibrated over {atoms:,}, take too long",
                hint="calibrate a marginal with fewer attributes, or ask single questions",
            )
        step = max(1, NUMBERS_AT_ONCE // atoms)
        starts = range(0, cells, step)
        parts = [self._chunk_errors(start, min(start + step, cells)) for start in starts]
        shapes = [part.shape for part in parts if part.shape is not None]
        shape = None
        if shapes:
            shape = Shape(
                np.concatenate([s.skewness for s in shapes]),
                np.concatenate([s.excess for s in shapes]),
            )
        return SetErrors(
            np.concatenate([part.sampling for part in parts]),
            np.concatenate([part.privacy for part in parts]),
            shape,
        )

    def _chunk_errors(self, start: int, stop: int) -> SetErrors:
        """Return the errors of some cells: each is a statistic of itself and of all atoms."""
        multipliers = self._cell_multipliers(start, stop)
        weights, shares, fractions = self._parts(multipliers, start, stop)
        borrowed = np.einsum("ij,jk,ik->i", multipliers, self.margins.covariance, multipliers)
        shape = None
        if not self.design.normal:
            shape = self.design.shape(weights, shares, fractions)
        return SetErrors(
            _variances(self.design.sampling, weights, shares, fractions) + borrowed,
            _variances(self.design.privacy, weights, shares, fractions),
            shape,
        )

    def _cell_multipliers(self, start: int, stop: int) -> Shares:
        """Return Gᵀe for the indicators e of some cells, without their full gradients."""
        form, likely = self._weighting.like(self.reference), self.reference
        even, share = 1 / likely.size, likely[start:stop, np.newaxis]
        counted = self.margins.indicators.T[self.margins.atom[start:stop]]
        true = self.margins.sums(likely)
        uniform = self.margins.indicators.mean(axis=1)
        covariance = (
            form.truth * share * (counted - true)
            + form.uniform * even * (counted - uniform)
            + form.shift * (share - even) * (true - uniform)
        )
        multipliers: Shares = covariance @ self._inverse
        return multipliers

    def _parts(self, multipliers: Shares, start: int, stop: int) -> tuple[Shares, Shares, Shares]:
        """Return weights, shares and fractions of a cell and the rest of each atom, per cell."""
        likely, rows = self.reference, np.arange(stop - start)
        atom, share = self.margins.atom[start:stop], likely[start:stop]
        spread = -multipliers @ self.margins.indicators
        weights = np.concatenate([spread[rows, atom, np.newaxis] + 1, spread], axis=1)
        sizes = (stop - start, self.margins.atoms)
        shares = np.broadcast_to(self.margins.by_atom(likely), sizes).copy()
        fractions = np.full(sizes, 1 / self.margins.atoms)
        shares[rows, atom] -= share
        fractions[rows, atom] -= 1 / likely.size
        cell = np.full((stop - start, 1), 1 / likely.size)
        return (
            weights,
            np.concatenate([share[:, np.newaxis], np.maximum(shares, 0)], axis=1),
            np.concatenate([cell, np.maximum(fractions, 0)], axis=1),
        )


def calibrate(
    released: ReleasedCounts,
    margins: Margins,
    method: Method,
    errors: Errors | None,
    population: Population,
) -> Calibration:
    """Calibrate a release to margins, or refuse margins that it cannot be calibrated to."""
    if method not in get_args(Method):
        raise ParameterError(
            f"there is no calibration by {method!r}", hint=f"choose {' or '.join(get_args(Method))}"
        )
    known = read_margins(margins, errors, released, population)
    exact = known.exactly_known()
    if exact is not None:
        _check_possible(exact)
    calibration = Calibration(released, known, method, population)
    if method == "rake":
        _check_factors(known)
        _ = calibration.plausible  # it can fail, and that is said here, not in the first answer
    return calibration


def smoothed(released: ReleasedCounts, population: Population) -> Shares:
    """Return the plausible shares, moved towards independence as far as they are noise.

    The weight of independence is the sum of the cells' variances, divided by the sum of their
    squared distances from it (James and Stein): one number, so that no cell decides for itself.
    """
    schema, cells = released.schema, released.unbiased.size
    table, independent = released.unbiased.reshape(schema.sizes), np.ones(schema.sizes)
    for axis, size in enumerate(schema.sizes):
        others = tuple(other for other in range(len(schema.sizes)) if other != axis)
        margin = (1 - LEAST) * project(table.sum(axis=others)) + LEAST / size
        independent = independent * np.expand_dims(margin, others)
    even = independent.reshape(-1)
    variances = released.design(population).total.of_sets(released.plausible, 1 / cells)
    apart = float(((released.unbiased - even) ** 2).sum())
    noise = float(np.sum(variances)) / apart if apart > 0 else 1.0
    weight = min(max(noise, LEAST), 1.0)
    shares: Shares = weight * even + (1 - weight) * released.plausible
    return shares


def _with_margins(shares: Shares, margins: KnownMargins, near: float) -> Shares:
    """Return the shares times factors of categories that make the margins fit (raking)."""
    atoms = margins.by_atom(shares)
    fitted = _raked_atoms(atoms, margins, near)
    factors = np.divide(fitted, atoms, where=atoms > 0, out=np.zeros_like(atoms))
    raked: Shares = shares * factors[margins.atom]
    return raked


def _raked_atoms(atoms: Shares, margins: KnownMargins, near: float) -> Shares:
    """Fit each margin in turn until all are near; rounded margins need only not move any more."""
    fitted, distance = atoms, np.inf
    for _ in range(ROUNDS):
        before, start = fitted, 0
        for margin in margins.margins:
            rows = margins.indicators[start : start + margin.shares.size]
            fitted, start = _fit(fitted, rows, margin), start + margin.shares.size
        distance = float(np.abs(margins.indicators @ fitted - margins.targets).max())
        still = float(np.abs(fitted - before).max()) < near * NEGLIGIBLE
        if distance < near or (still and distance < ROUNDED):
            return fitted
    raise CalibrationError(
        f"raking does not converge: after {ROUNDS:,} rounds a margin is {distance:.2g} off",
        hint="too many cells are empty in the estimate; calibrate by method='greg', or use fewer"
        " margins",
    )


def _fit(shares: Shares, rows: Shares, margin: Margin) -> Shares:
    """Multiply shares so that they have a margin."""
    sums, wanted = rows @ shares, margin.shares
    if (wanted[sums == 0] > 0).any():
        raise CalibrationError(
            f"the estimate has nobody in a category of {margin.text} in which the margin has"
            " somebody: no factor can make it fit",
            hint="calibrate by method='greg', or leave this margin out",
        )
    factors = np.divide(wanted, sums, where=sums > 0, out=np.zeros_like(sums))
    fitted: Shares = shares * (factors @ rows)
    return fitted


def nearest(values: Shares, margins: KnownMargins) -> Shares:
    """Return the proper distribution with these margins that is nearest in ℓ₂.

    It is max(v + Mᵀλ, 0), with the λ that minimises the convex ‖max(v + Mᵀλ, 0)‖²/2 − λ·μ: by
    Newton's method, with steps that are halved until they go down.
    """

    def at(multipliers: Shares) -> tuple[Shares, float]:
        shares: Shares = np.maximum(values + margins.spread(multipliers), 0)
        return shares, float(shares @ shares) / 2 - float(multipliers @ margins.targets)

    multipliers = np.zeros(margins.targets.size)
    current, loss = at(multipliers)
    for _ in range(STEPS):
        slope = margins.sums(current) - margins.targets
        if np.abs(slope).max() < REACHED:
            break
        active = margins.by_atom((current > 0).astype(np.float64))
        hessian = (margins.indicators * active) @ margins.indicators.T
        hessian[np.diag_indices_from(hessian)] += DAMPING * max(float(hessian.max()), 1.0)
        step = -np.linalg.solve(hessian, slope)
        moved, lower = at(multipliers + step)
        while lower > loss + float(slope @ step) * DAMPING and np.abs(step).max() > REACHED**2:
            step = step / 2
            moved, lower = at(multipliers + step)
        multipliers, current, loss = multipliers + step, moved, lower
    proper: Shares = current / current.sum()
    return proper


def margins_table(calibration: Calibration) -> pl.DataFrame:
    """Return a row per known number: what is known, what the release says, and how far apart."""
    release, known = calibration.release, calibration.margins
    estimates = known.sums(release.unbiased)
    own = calibration.design.total.of_statistics(known.by_atom(release.plausible), known.indicators)
    margin, labels = [], []
    for table in known.margins:
        schema = release.schema.subset(table.names)
        margin += [table.text] * table.shares.size
        labels += [" × ".join(schema.labels(cell)) for cell in range(table.shares.size)]
    error = np.sqrt(np.maximum(np.diag(own), 0))
    both = np.sqrt(np.maximum(np.diag(own) + np.diag(known.covariance), np.finfo(float).tiny))
    return pl.DataFrame(
        {
            "margin": margin,
            "category": labels,
            "known": known.targets,
            "known_error": np.sqrt(np.diag(known.covariance)),
            "estimate": estimates,
            "standard_error": error,
            "distance": (estimates - known.targets) / both,
        }
    )


def _check_possible(margins: KnownMargins) -> None:
    """Refuse margins that no table without negative shares has, though any two of them agree."""
    shared = [name for margin in margins.margins for name in margin.names]
    if len(margins.margins) < 3 or len(set(shared)) == len(shared):  # noqa: PLR2004 - two always fit
        return
    try:
        _raked_atoms(np.full(margins.atoms, 1 / margins.atoms), margins, ROUNDED)
    except CalibrationError as error:
        raise CalibrationError(
            "no table of shares has all of these margins, though any two of them agree",
            hint="leave one of them out, or give its errors",
        ) from error


def _check_factors(margins: KnownMargins) -> None:
    """Refuse a category with nobody in it: its factor is zero, and its unbiased share is not.

    Raking moves unbiased shares in proportion to raked ones, so that these would stay as they are.
    """
    for margin in margins.margins:
        if (margin.shares == 0).any():
            raise CalibrationError(
                f"the margin of {margin.text} has nobody in a category, and raking would leave the"
                " estimate there as it is",
                hint="calibrate by method='greg', which moves shares to zero too",
            )


def _variances(form: CovarianceForm, weights: Shares, shares: Shares, fractions: Shares) -> Shares:
    """Return the variance of one statistic per row, of sets that divide the table."""
    floats = form.like(shares)
    true, uniform = (weights * shares).sum(axis=1), (weights * fractions).sum(axis=1)
    variances: Shares = (
        floats.truth * ((weights**2 * shares).sum(axis=1) - true**2)
        + floats.uniform * ((weights**2 * fractions).sum(axis=1) - uniform**2)
        + floats.shift * (true - uniform) ** 2
    )
    return np.maximum(variances, 0)


def _pseudo_inverse(matrix: Shares) -> Shares:
    """Invert a covariance matrix, after scaling, on the directions in which it is not zero."""
    scale = np.sqrt(np.maximum(np.diag(matrix), np.finfo(np.float64).tiny))
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    kept = values > SINGULAR * values.max()
    inverse: Shares = (vectors[:, kept] / values[kept]) @ vectors[:, kept].T
    unscaled: Shares = inverse / np.outer(scale, scale)
    return unscaled
