"""Margins that are known from elsewhere: how they are written, and whether they fit together.

A margin is a table of shares or counts of some attributes: from a register, where it is exact, or
from a survey, where it has errors of its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from veiltab.core.released import ReleasedCounts, Shares
from veiltab.core.schema import Schema
from veiltab.core.uncertainty import Population
from veiltab.errors import CalibrationError

Table = Mapping[Any, Any] | pl.DataFrame
Margins = Mapping[Any, Table]
"""Tables by the attribute, or the tuple of attributes, that they are about."""

Errors = Mapping[Any, "Mapping[Any, Any] | ArrayLike"]
"""Standard errors in the form of the margin, or a covariance matrix of its numbers, by names."""

STANDARD_ERROR = "standard_error"
ROUNDED = 1e-4
"""Shares may miss a sum of one, and each other, by as much: published numbers are rounded."""

MOST_NUMBERS = 2_000
MOST_PRODUCTS = 20_000_000
"""The largest number of known shares, and of them times the cells of their attributes together."""

_EXAMPLE = "as in {'gender': {'female': 0.51, 'male': 0.49}}; pairs go by ('gender', 'salary')"


@dataclass(frozen=True, slots=True, eq=False)
class Margin:
    """The shares of some attributes' categories, and the covariance of their errors."""

    names: tuple[str, ...]
    shares: Shares
    covariance: Shares
    total: float | None
    """What the counts sum to; None if shares were given."""

    @property
    def exact(self) -> bool:
        """Whether it has no error."""
        return not self.covariance.any()

    @property
    def text(self) -> str:
        """The names, for messages."""
        return " × ".join(self.names)


@dataclass(frozen=True, eq=False)
class KnownMargins:
    """All margins of a calibration, as numbers μ that sums of shares should equal.

    Their attributes together divide the table into atoms: ``atom`` says to which one a cell
    belongs, and ``indicators`` have a row per known number, one where an atom counts for it.
    """

    margins: tuple[Margin, ...]
    atom: NDArray[np.int64]
    indicators: Shares

    @classmethod
    def of(cls, margins: Sequence[Margin], schema: Schema) -> "KnownMargins":
        """Find the atoms of these margins."""
        used = [name for name in schema.names if any(name in m.names for m in margins)]
        atoms = schema.subset(used)
        numbers = sum(margin.shares.size for margin in margins)
        if numbers > MOST_NUMBERS or numbers * atoms.domain_size > MOST_PRODUCTS:
            raise CalibrationError(
                f"{numbers:,} known shares over {atoms.domain_size:,} cells are too many",
                hint=f"at most {MOST_NUMBERS:,}, and {MOST_PRODUCTS:,} times the cells of their"
                " attributes; leave out margins, or merge categories",
            )
        rows = []
        for margin in margins:
            of_atom = _cells_of(atoms, margin.names)
            rows.append(of_atom == np.arange(margin.shares.size)[:, np.newaxis])
        return cls(tuple(margins), _cells_of(schema, used), np.concatenate(rows).astype(float))

    @cached_property
    def targets(self) -> Shares:
        """μ, the known numbers."""
        return np.concatenate([margin.shares for margin in self.margins])

    @cached_property
    def covariance(self) -> Shares:
        """S, the covariance of their errors; different margins come from different sources."""
        matrix, start = np.zeros((self.targets.size,) * 2), 0
        for margin in self.margins:
            stop = start + margin.shares.size
            matrix[start:stop, start:stop] = margin.covariance
            start = stop
        return matrix

    @property
    def exact(self) -> NDArray[np.bool_]:
        """Which of the numbers are known without error."""
        return np.repeat(
            [margin.exact for margin in self.margins],
            [margin.shares.size for margin in self.margins],
        )

    @property
    def atoms(self) -> int:
        """How many atoms there are."""
        return int(self.indicators.shape[1])

    def by_atom(self, values: Shares) -> Shares:
        """Sum values of cells over each atom; cells run along the last axis."""
        rows = values.reshape(-1, values.shape[-1])
        summed = [np.bincount(self.atom, row, self.atoms) for row in rows]
        by_atom: Shares = np.array(summed, dtype=np.float64)
        return by_atom.reshape(*values.shape[:-1], self.atoms)

    def sums(self, values: Shares) -> Shares:
        """Return M·v: what values of cells sum to in each known number."""
        return self.by_atom(values) @ self.indicators.T

    def spread(self, multipliers: Shares) -> Shares:
        """Return Mᵀ·w: in each cell, the sum of the multipliers of the numbers it counts for."""
        spread: Shares = (multipliers @ self.indicators)[..., self.atom]
        return spread

    def exactly_known(self) -> "KnownMargins | None":
        """Return only the margins without error; None if there are none."""
        margins = tuple(margin for margin in self.margins if margin.exact)
        if not margins:
            return None
        return replace(self, margins=margins, indicators=self.indicators[self.exact])


def read_margins(
    margins: Margins, errors: Errors | None, released: ReleasedCounts, population: Population
) -> KnownMargins:
    """Read margins as a user writes them, and refuse those that no table can have together."""
    for given in (margins, {} if errors is None else errors):
        if not isinstance(given, Mapping):
            raise CalibrationError(
                f"margins go by the names of their attributes, not in a {type(given).__name__}",
                hint=_EXAMPLE,
            )
    if not margins:
        raise CalibrationError("there are no margins to calibrate to", hint=_EXAMPLE)
    by_names = {_names(names): table for names, table in (errors or {}).items()}
    read = []
    for names, table in margins.items():
        read.append(_read_margin(_names(names), table, by_names.pop(_names(names), None), released))
    if by_names:
        raise CalibrationError(
            f"errors are given for {' × '.join(next(iter(by_names)))}, which is no margin",
            hint="give errors under the names of the margin that they belong to",
        )
    _check_totals(read, released, population)
    for first, second in combinations(read, 2):
        _check_agreement(first, second, released.schema)
    return KnownMargins.of(read, released.schema)


def _names(names: object) -> tuple[str, ...]:
    listed = (names,) if isinstance(names, str) else names
    if isinstance(listed, tuple) and listed and all(isinstance(name, str) for name in listed):
        return listed
    raise CalibrationError(f"{names!r} does not name attributes", hint=_EXAMPLE)


def _read_margin(
    names: tuple[str, ...], table: Table, errors: object, released: ReleasedCounts
) -> Margin:
    schema = released.schema.subset(names)
    text = " × ".join(names)
    if isinstance(table, pl.DataFrame):
        if errors is None and STANDARD_ERROR in table.columns:
            errors = _from_frame(table, schema, STANDARD_ERROR)
        table = _from_frame(table, schema, None)
    numbers = _numbers(table, schema, f"the margin of {text}")
    total = _total(numbers, text)
    unit = float(numbers.sum())
    covariance = _covariance(errors, schema, text) / (1.0 if total is None else unit) ** 2
    return Margin(names, numbers / unit, covariance, total)


def _from_frame(frame: pl.DataFrame, schema: Schema, column: str | None) -> Mapping[Any, Any]:
    """Return the rows of a frame as a mapping from categories to a number."""
    others = [name for name in frame.columns if name not in (*schema.names, STANDARD_ERROR)]
    missing = [name for name in schema.names if name not in frame.columns]
    if missing or (column is None and len(others) != 1):
        raise CalibrationError(
            f"a frame with the columns {', '.join(frame.columns)} is no margin of"
            f" {' × '.join(schema.names)}",
            hint="give a column for each attribute, one of shares or counts, and if you like"
            f" one named {STANDARD_ERROR}",
        )
    keys = zip(*(frame[name].cast(pl.String).to_list() for name in schema.names), strict=True)
    listed, values = list(keys), frame[column or others[0]].to_list()
    if len(set(listed)) != len(listed):
        raise CalibrationError(
            f"the frame lists a category of {' × '.join(schema.names)} twice",
            hint="give one row for each combination of categories",
        )
    return dict(zip(listed, values, strict=True))


def _numbers(table: Table, schema: Schema, what: str) -> Shares:
    """Return one number per category, in the schema's order."""
    if not isinstance(table, Mapping):
        raise CalibrationError(f"{what} is a {type(table).__name__}, no table", hint=_EXAMPLE)
    flat = dict(_flattened(table, len(schema.names)))
    wanted = [schema.labels(cell) for cell in range(schema.domain_size)]
    missing, unknown = [k for k in wanted if k not in flat], [k for k in flat if k not in wanted]
    if missing or unknown:
        odd, problem = (unknown[0], "has") if unknown else (missing[0], "lacks")
        raise CalibrationError(
            f"{what} {problem} the category {' × '.join(map(str, odd))}",
            hint="give a number for every category of the attribute, and for no other",
        )
    try:
        numbers = np.array([float(flat[key]) for key in wanted])
    except (TypeError, ValueError):
        numbers = np.array([np.nan])
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        raise CalibrationError(
            f"{what} has an entry that is no number, or a negative one",
            hint="give shares or counts that are zero or more",
        )
    return numbers


def _flattened(table: Mapping[Any, Any], depth: int) -> list[tuple[tuple[Any, ...], Any]]:
    """Return the entries of a nested mapping, or of one with tuples as keys."""
    entries: list[tuple[tuple[Any, ...], Any]] = []
    for key, value in table.items():
        start = key if isinstance(key, tuple) else (key,)
        if isinstance(value, Mapping) and len(start) < depth:
            deeper = _flattened(value, depth - len(start))
            entries += [((*start, *rest), number) for rest, number in deeper]
        else:
            entries.append((start, value))
    return entries


def _total(numbers: Shares, text: str) -> float | None:
    """Return what counts sum to, and None for shares; refuse what is neither."""
    total = float(numbers.sum())
    if abs(total - 1) <= ROUNDED:
        return None
    if total > 1 and (numbers == np.rint(numbers)).all():
        return total
    raise CalibrationError(
        f"the margin of {text} sums to {total:.6g}: these are neither shares nor counts",
        hint="shares sum to one; counts are whole numbers",
    )


def _covariance(errors: object, schema: Schema, text: str) -> Shares:
    """Return the covariance matrix of a margin's numbers: given, of standard errors, or zero."""
    cells = schema.domain_size
    if errors is None:
        return np.zeros((cells, cells))
    if isinstance(errors, Mapping):
        return np.diag(_numbers(errors, schema, f"the standard errors of {text}") ** 2)
    matrix = np.asarray(errors, dtype=np.float64)
    if matrix.shape != (cells, cells) or not np.isfinite(matrix).all():
        raise CalibrationError(
            f"the errors of the margin of {text} have the shape {matrix.shape}",
            hint=f"give a standard error per category, or a covariance matrix of {cells} × {cells}",
        )
    scale = max(float(np.abs(matrix).max()), 1e-300)
    skew = float(np.abs(matrix - matrix.T).max())
    if skew > 1e-9 * scale or np.linalg.eigvalsh(matrix).min() < -1e-9 * scale:
        raise CalibrationError(
            f"the errors of the margin of {text} are no covariance matrix",
            hint="it is symmetric, and no variance is negative",
        )
    return (matrix + matrix.T) / 2


def _check_totals(
    margins: Sequence[Margin], released: ReleasedCounts, population: Population
) -> None:
    """Refuse counts that are about different numbers of people."""
    counted = [margin for margin in margins if margin.total is not None]
    for margin in counted[1:]:
        if margin.total != counted[0].total:
            raise CalibrationError(
                f"the margin of {margin.text} counts {margin.total:,.0f} people, that of"
                f" {counted[0].text} {counted[0].total:,.0f}",
                hint="margins are about the same people; give shares if one covers only a part",
            )
    people = released.plan.population_size if released.size_known else None
    if counted and population == "finite" and people not in (None, counted[0].total):
        raise CalibrationError(
            f"the margin of {counted[0].text} counts {counted[0].total:,.0f} people, but the"
            f" release is about {people:,}",
            hint="margins of a larger population go with population='super'",
        )


def _check_agreement(first: Margin, second: Margin, schema: Schema) -> None:
    """Refuse two exact margins that disagree about the attributes that they share."""
    shared = [name for name in first.names if name in second.names]
    if not shared or not (first.exact and second.exact):
        return
    sides = []
    for margin in (first, second):
        own = schema.subset(margin.names)
        cells = schema.subset(shared).domain_size
        sides.append(np.bincount(_cells_of(own, shared), margin.shares, cells))
    apart = np.abs(sides[0] - sides[1])
    if apart.max() > ROUNDED:
        worst = int(apart.argmax())
        label = " × ".join(schema.subset(shared).labels(worst))
        raise CalibrationError(
            f"the margins of {first.text} and {second.text} disagree: the share of {label} is"
            f" {sides[0][worst]:.6g} in one and {sides[1][worst]:.6g} in the other",
            hint="leave one of them out, or give its errors",
        )


def _cells_of(schema: Schema, names: Sequence[str]) -> NDArray[np.int64]:
    """Return, for each cell of a schema, its cell in the table of some of the attributes."""
    codes = dict(zip(schema.names, schema.codes(np.arange(schema.domain_size)), strict=True))
    return schema.subset(names).cells([codes[name] for name in names])
