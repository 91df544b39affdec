"""Attributes, schemas and joint cells: what a table is made of.

A row has one code for each attribute.  The codes are the digits of one number, with the attributes'
sizes as bases: the row's joint cell.  A table of counts has one count for each cell.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veiltab.core.parameters import MAX_DOMAIN_SIZE
from veiltab.errors import CountsError, SchemaError

Codes: TypeAlias = NDArray[np.uint8 | np.uint16]
Cells: TypeAlias = NDArray[np.unsignedinteger[Any]]
Numbers: TypeAlias = NDArray[np.unsignedinteger[Any]]

MAX_CATEGORIES = 65_535
"""A code fits in 16 bits."""

UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters, line ends and direction marks: on a screen they could deceive."""

BLOCK_RECORDS = 1 << 16
"""How many records are counted at a time: few enough for the processor's cache."""

_PAIRED_CELLS = 256
_FOURFOLD_CELLS = 8


@dataclass(frozen=True, slots=True, init=False)
class Attribute:
    """A named variable with its categories in order; a code is a position in that order."""

    name: str
    categories: tuple[str, ...]

    def __init__(self, name: str, categories: Iterable[str]) -> None:
        """Check the definition here, once for all other code."""
        check_text(name, "an attribute name")
        if isinstance(categories, str):
            raise SchemaError(
                f"the categories of {name!r} are one text, {categories!r}, not a list of texts",
                hint="write them as a list, even if there is only one",
            )
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "categories", tuple(categories))
        for category in self.categories:
            check_text(category, f"a category of {name!r}")
        if not 1 <= self.size <= MAX_CATEGORIES:
            raise SchemaError(
                f"attribute {name!r} has {self.size:,} categories",
                hint=f"give it 1 to {MAX_CATEGORIES:,}; merge rare values or bin numbers",
            )
        _check_unique(self.categories, f"attribute {name!r} lists the category")

    @property
    def size(self) -> int:
        """The number of categories."""
        return len(self.categories)

    @property
    def dtype(self) -> type[np.uint8 | np.uint16]:
        """The narrowest type that holds every code: it decides how many bytes a row costs."""
        return np.uint8 if self.size <= 1 << 8 else np.uint16


@dataclass(frozen=True, slots=True, init=False)
class Schema:
    """Attributes in order; together they divide the respondents into ``domain_size`` cells."""

    attributes: tuple[Attribute, ...]

    def __init__(self, attributes: Iterable[Attribute]) -> None:
        """Refuse a schema without attributes, with equal names, or with too many cells."""
        object.__setattr__(self, "attributes", tuple(attributes))
        if not self.attributes:
            raise SchemaError("the schema has no attributes", hint="name at least one attribute")
        _check_unique(self.names, "the schema lists the attribute")
        if self.domain_size > MAX_DOMAIN_SIZE:
            raise _too_many_cells(self)

    @property
    def names(self) -> tuple[str, ...]:
        """The attributes' names, in order."""
        return tuple(attribute.name for attribute in self.attributes)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The attributes' sizes, in order."""
        return tuple(attribute.size for attribute in self.attributes)

    @property
    def domain_size(self) -> int:
        """The number of joint cells, N."""
        return math.prod(self.sizes)

    def subset(self, names: Iterable[str]) -> "Schema":
        """Return the schema of these attributes, in this order."""
        attributes = dict(zip(self.names, self.attributes, strict=True))
        wanted = list(names)
        unknown = [name for name in wanted if name not in self.names]
        if unknown:
            raise SchemaError(
                f"the schema has no attribute {', '.join(map(repr, unknown))}",
                hint=f"its attributes are {', '.join(map(repr, attributes))}",
            )
        return Schema(attributes[name] for name in wanted)

    def cells(self, codes: Sequence[NDArray[np.integer[Any]]]) -> NDArray[np.int64]:
        """Return the joint cell of each row, from one array of codes per attribute."""
        columns = [np.asarray(column) for column in codes]
        if len(columns) != len(self.attributes):
            raise SchemaError(
                f"{len(columns)} columns of codes for {len(self.attributes)} attributes",
                hint=f"give one column each for {', '.join(map(repr, self.names))}, in this order",
            )
        for attribute, column in zip(self.attributes, columns, strict=True):
            check_range(column, attribute.size, f"codes of {attribute.name!r}")
        lengths = [column.size for column in columns]
        if len(set(lengths)) > 1:
            raise SchemaError(
                f"the columns of codes have different lengths: {', '.join(map(str, lengths))}",
                hint="give every column one code per row",
            )
        return mix(self.sizes, columns).astype(np.int64)

    def codes(self, cells: NDArray[np.integer[Any]]) -> list[Codes]:
        """Return the codes of each attribute: the inverse of :meth:`cells`."""
        cells = np.asarray(cells)
        check_range(cells, self.domain_size, "cells")
        return unmix(self.sizes, cells)

    def labels(self, cell: int) -> tuple[str, ...]:
        """Return the categories of one cell, for people to read."""
        codes = self.codes(np.array([cell]))
        return tuple(
            attribute.categories[int(code[0])]
            for attribute, code in zip(self.attributes, codes, strict=True)
        )


def table_schema(attributes: Sequence[Attribute]) -> Schema:
    """Return the schema of a table; of ids without any attribute, it has one cell for all."""
    if attributes:
        return Schema(attributes)
    schema = object.__new__(Schema)
    object.__setattr__(schema, "attributes", ())
    return schema


@dataclass(frozen=True, slots=True, eq=False)
class CountTable:
    """How many respondents fall in each joint cell of a schema."""

    schema: Schema
    counts: NDArray[np.int64]

    def __post_init__(self) -> None:
        """Take whole numbers in any list or array, one for each cell."""
        given = np.asarray(self.counts)
        whole = given.dtype.kind in "iu" or (
            given.dtype.kind == "f" and bool((given == np.floor(given)).all())
        )
        if given.size != self.schema.domain_size or not whole:
            raise CountsError(
                f"the counts are not {self.schema.domain_size:,} whole numbers, but"
                f" {given.size:,} of type {given.dtype}",
                hint="give one count for each joint cell, in the order of the schema",
            )
        object.__setattr__(self, "counts", given.reshape(-1).astype(np.int64, copy=False))

    @property
    def population_size(self) -> int:
        """The number of respondents."""
        return int(self.counts.sum())

    @property
    def distribution(self) -> NDArray[np.float64]:
        """The share of the respondents in each cell: the paper's type T."""
        shares: NDArray[np.float64] = self.counts / self.counts.sum()
        return shares

    @property
    def sum_of_squares(self) -> float:
        """‖T‖², through which alone the data enter the exact error."""
        return float((self.distribution**2).sum())

    def marginal(self, names: Sequence[str]) -> "CountTable":
        """Return the table of these attributes, in this order, summed over all others."""
        subset = self.schema.subset(names)
        kept = [self.schema.names.index(name) for name in names]
        dropped = tuple(set(range(len(self.schema.names))) - set(kept))
        summed = self.counts.reshape(self.schema.sizes).sum(axis=dropped)
        ranks = np.argsort(np.argsort(kept))  # the sums are in the schema's order
        return CountTable(subset, np.transpose(summed, ranks).reshape(-1))


def check_text(text: object, what: str) -> None:
    """Refuse text that cannot be printed on one line or encoded as UTF-8.

    Names and categories go into signed documents and error messages, where nobody would see an
    invisible difference between two of them.
    """
    if not isinstance(text, str):
        raise SchemaError(
            f"{what} is {text!r}, not text", hint="write it in quotes; numbers too, as in '40'"
        )
    if not text:
        raise SchemaError(f"{what} is empty", hint="give it a text, such as 'unknown'")
    if UNPRINTABLE.search(text):
        raise SchemaError(
            f"{what} has a control character or a lone surrogate: {text!r}",
            hint="use printable text; spaces and any script are fine",
        )


def check_range(values: NDArray[Any], limit: int, what: str) -> None:
    """Refuse all but a one-dimensional array of whole numbers from 0 to ``limit`` − 1."""
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise SchemaError(
            f"{what} are a {values.ndim}-dimensional array of {values.dtype}",
            hint="give a one-dimensional array of whole numbers",
        )
    if not values.size:
        return
    low, high = int(values.min()), int(values.max())
    if low < 0 or high >= limit:
        raise SchemaError(
            f"{what} are out of range: {low if low < 0 else high:,}",
            hint=f"they run from 0 to {limit - 1:,}; check that the schema is the right one",
        )


def _check_unique(texts: Sequence[str], what: str) -> None:
    text, count = Counter(texts).most_common(1)[0]
    if count > 1:
        raise SchemaError(f"{what} {text!r} {count} times", hint="list each one once")


def _too_many_cells(schema: Schema) -> SchemaError:
    """Return an error that names the product and the attributes that make it so large."""
    digits = math.log10(schema.domain_size)
    product = f"{schema.domain_size:,}" if digits < 30 else f"about 10^{digits:.0f}"  # noqa: PLR2004
    largest = sorted(schema.attributes, key=lambda attribute: attribute.size, reverse=True)[:3]
    listed = ", ".join(f"{attribute.name!r} ({attribute.size:,})" for attribute in largest)
    return SchemaError(
        f"the schema has {product} joint cells, more than 2^48 = {MAX_DOMAIN_SIZE:,}",
        hint=f"drop attributes or merge categories; the largest are {listed}",
    )


def mix(sizes: Sequence[int], columns: Sequence[NDArray[np.integer[Any]]]) -> Cells:
    """Return the cell of each record in the narrowest type; the first attribute counts most."""
    narrow = np.min_scalar_type(math.prod(sizes) - 1)
    cells = columns[0].astype(narrow)
    for size, column in zip(sizes[1:], columns[1:], strict=True):
        factor = size & int(np.iinfo(narrow).max)  # 2^8 is 0 in a byte; so are the cells then
        np.multiply(cells, narrow.type(factor), out=cells)
        np.add(cells, column, out=cells, dtype=narrow, casting="unsafe")
    return cells


def unmix(sizes: Sequence[int], cells: NDArray[np.integer[Any]]) -> list[Codes]:
    """Return the codes of each attribute, in the narrowest types: the inverse of :func:`mix`.

    The number N, which noise has for cell 0, becomes codes of 0, except that the first may be the
    attribute's size k; in Z_k that is 0 too.
    """
    cells_left = math.prod(sizes)
    rest: Cells = cells.astype(np.min_scalar_type(cells_left - 1))
    codes = []
    for size in reversed(sizes):
        cells_left //= size
        code, rest = _last_code(rest, size) if cells_left > 1 else (rest, np.zeros_like(rest))
        codes.append(code.astype(np.min_scalar_type(size - 1), copy=False))
    return codes[::-1]


def _last_code(cells: Cells, size: int) -> tuple[Cells, Cells]:
    """Return the code of the least significant attribute, and the cells of the others."""
    narrow = cells.dtype.type
    quotients: Cells = cells // narrow(size)
    cells -= quotients * narrow(size)
    return cells, quotients


def count_cells(cells: Cells, domain_size: int) -> NDArray[np.int64]:
    """Count how often each cell from 0 to ``domain_size`` − 1 occurs.

    With up to 256 cells, two neighbouring records are counted as one number, and with up to 8 cells
    four of them: a table of all their combinations still fits into the cache, and summing it takes
    next to no time.
    """
    if domain_size > _PAIRED_CELLS:
        return np.bincount(cells, minlength=domain_size)
    fold = 1 if domain_size > _FOURFOLD_CELLS else 2
    body = cells.size - cells.size % (1 << fold)
    counts = np.bincount(cells[body:], minlength=domain_size)
    bins = np.zeros(domain_size ** (1 << fold), dtype=np.int64)
    for start in range(0, body, BLOCK_RECORDS):
        joined = cells[start : min(start + BLOCK_RECORDS, body)]
        for step in range(fold):
            joined = join_neighbours(joined, domain_size ** (1 << step))
        bins += np.bincount(joined, minlength=bins.size)
    table = bins.reshape((domain_size,) * (1 << fold))
    for axis in range(table.ndim):
        counts += table.sum(axis=tuple(set(range(table.ndim)) - {axis}))
    return counts


def join_neighbours(values: Numbers, factor: int) -> Numbers:
    """Return low + factor·high for each pair of neighbours, in numbers of twice the width.

    Two bytes side by side are one number, low + 256·high.  Subtracting (256 − factor)·high leaves
    low + factor·high.  Each step goes over a whole array in a few vector instructions.
    """
    bits = 8 * values.dtype.itemsize
    pairs = values.view(f"<u{2 * values.dtype.itemsize}")
    wide: Any = pairs.dtype.type
    high: Numbers = pairs >> wide(bits)
    high *= wide((1 << bits) - factor)
    np.subtract(pairs, high, out=high)
    return high


def split_neighbours(values: Numbers, factor: int) -> Numbers:
    """Undo :func:`join_neighbours` in place; the caller views the result in half the width."""
    bits = 4 * values.dtype.itemsize
    wide: Any = values.dtype.type
    high = values // wide(factor)
    high *= wide((1 << bits) - factor)
    values += high
    return values
