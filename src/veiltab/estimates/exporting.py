"""An estimate for other programs: cells, estimates, and the factors of their covariance.

A table of N cells has a covariance matrix of N² numbers, which nobody can store.  It is a sum of
three simple matrices, so that a few coefficients and one distribution say the same
(:mod:`veiltab.core.uncertainty`).  The file has both, and needs no part of this program to be used.
"""

import json
from io import BytesIO
from pathlib import Path
from typing import Any, get_args

import numpy as np
import polars as pl

from veiltab.core.released import ReleasedCounts
from veiltab.core.uncertainty import CovarianceForm, Population
from veiltab.errors import ParameterError
from veiltab.files.disk import check_new, write_output
from veiltab.inference.distributions import category_columns

FORMAT, VERSION = "veiltab export", 1
NUMBERS = ("unbiased", "plausible", "standard_error", "standard_error_super")
"""The columns of numbers; an attribute with such a name gets another column name."""

KEY = "veiltab"
"""The metadata key under which a Parquet file holds everything but the cells, as JSON."""

JSON_CELLS = 200_000
"""The largest table that is written as JSON, of about a hundred bytes a cell."""

FORMULA = "x (diag(T) - T T') + y (I/N - 1 1'/N^2) + z (T - U)(T - U)', U = 1/N, T = plausible"


def export(released: ReleasedCounts, summary: dict[str, Any], path: Path) -> None:
    """Write cells and covariance to a new file, whose name ends in .json or .parquet."""
    check_new(path)
    cells, about = cell_table(released), description(released, summary)
    if path.suffix == ".parquet":
        file = BytesIO()
        cells.write_parquet(file, metadata={KEY: _text(about)})
        write_output(path, file.getvalue())
    elif path.suffix == ".json":
        _check_size(cells.height)
        columns = {name: cells[name].to_list() for name in cells.columns}
        write_output(path, (_text({**about, "cells": columns}) + "\n").encode())
    else:
        raise ParameterError(
            f"an estimate cannot be exported to {path.name}",
            hint="the name ends in .json or .parquet",
        )


def cell_table(released: ReleasedCounts) -> pl.DataFrame:
    """Return a row for each cell: its categories, both estimates, and its standard errors."""
    errors = (
        np.sqrt(np.maximum(released.uncertainty(population).cells().total, 0))
        for population in get_args(Population)
    )
    values = (released.unbiased, released.plausible, *errors)
    return pl.DataFrame(
        [
            *category_columns(released.schema, frozenset(NUMBERS)),
            *(pl.Series(name, column) for name, column in zip(NUMBERS, values, strict=True)),
        ]
    )


def description(released: ReleasedCounts, summary: dict[str, Any]) -> dict[str, Any]:
    """Return everything but the cells: the covariance by its factors, and the provenance."""
    forms = {population: released.design(population) for population in get_args(Population)}
    return {
        "format": FORMAT,
        "version": VERSION,
        "summary": summary,
        "cell_count": released.schema.domain_size,
        "covariance": {
            "formula": FORMULA,
            **{
                population: {
                    "sampling": _coefficients(design.sampling),
                    "privacy": _coefficients(design.privacy),
                    "total": _coefficients(design.total),
                }
                for population, design in forms.items()
            },
        },
    }


def _coefficients(form: CovarianceForm) -> dict[str, float]:
    return {"x": float(form.truth), "y": float(form.uniform), "z": float(form.shift)}


def _check_size(cells: int) -> None:
    if cells > JSON_CELLS:
        raise ParameterError(
            f"a table of {cells:,} cells is too large for JSON",
            hint=f"export to a .parquet file, or attributes with at most {JSON_CELLS:,} cells",
        )


def _text(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
