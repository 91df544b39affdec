"""Attributes, schemas, and the one number that stands for a whole row: its joint cell.

Every party computes cells from the same signed schema, so the order of the categories and of the
attributes is part of the definition, and the numbering is fixed: mixed radix, first attribute most
significant.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from veiltab.core.cells import mix, unmix
from veiltab.core.parameters import MAX_DOMAIN_SIZE
from veiltab.errors import SchemaError

Codes: TypeAlias = NDArray[np.uint8 | np.uint16]

MAX_CATEGORIES = 65_535
"""A code fits in 16 bits."""

UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Controls, line ends, and what turns the direction of text: on a screen they could deceive."""


@dataclass(frozen=True, slots=True, init=False)
class Attribute:
    """A named variable with its categories in order; a code is a position in that order."""

    name: str
    categories: tuple[str, ...]

    def __init__(self, name: str, categories: Iterable[str]) -> None:
        """Check the definition here, so that no other code has to."""
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
        """Refuse what could not be numbered: no attributes, equal names, too many cells."""
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
        """Take these attributes, in this order: what a researcher with some of the keys sees."""
        known = dict(zip(self.names, self.attributes, strict=True))
        wanted = list(names)
        unknown = [name for name in wanted if name not in known]
        if unknown:
            raise SchemaError(
                f"the schema has no attribute {', '.join(map(repr, unknown))}",
                hint=f"its attributes are {', '.join(map(repr, known))}",
            )
        return Schema(known[name] for name in wanted)

    def cells(self, codes: Sequence[NDArray[np.integer[Any]]]) -> NDArray[np.int64]:
        """Join one array of codes per attribute into the cell of each row."""
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
        """Take cells apart again: the inverse of :meth:`cells`."""
        cells = np.asarray(cells)
        check_range(cells, self.domain_size, "cells")
        return unmix(self.sizes, cells)

    def labels(self, cell: int) -> tuple[str, ...]:
        """Name one cell by its categories, for people to read."""
        codes = self.codes(np.array([cell]))
        return tuple(
            attribute.categories[int(code[0])]
            for attribute, code in zip(self.attributes, codes, strict=True)
        )


def check_text(text: object, what: str) -> None:
    """Refuse text that could not be printed on one line, or written as UTF-8.

    Names and categories go into signed documents and error messages: invisible differences
    between them would be found late, by people.
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
    """Refuse anything but a one-dimensional array of whole numbers in ``0 <= value < limit``."""
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
    """Name the product and the attributes that make it so large."""
    digits = math.log10(schema.domain_size)
    product = f"{schema.domain_size:,}" if digits < 30 else f"about 10^{digits:.0f}"  # noqa: PLR2004
    largest = sorted(schema.attributes, key=lambda attribute: attribute.size, reverse=True)[:3]
    listed = ", ".join(f"{attribute.name!r} ({attribute.size:,})" for attribute in largest)
    return SchemaError(
        f"the schema has {product} joint cells, more than 2^48 = {MAX_DOMAIN_SIZE:,}",
        hint=f"drop attributes or merge categories; the largest are {listed}",
    )
