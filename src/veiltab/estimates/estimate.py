"""The estimate of a study: the object that a researcher works with."""

import importlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from veiltab.core.publication import PublicationNoise
from veiltab.core.released import Estimator, ReleasedCounts
from veiltab.core.uncertainty import Population
from veiltab.errors import InputError, ParameterError, TooFewPeopleError
from veiltab.estimates import exporting, storing
from veiltab.estimates.associations import AssociationQuestions
from veiltab.estimates.linear import LinearQuestions
from veiltab.estimates.margins import MarginQuestions
from veiltab.estimates.means import MeanQuestions
from veiltab.estimates.models import ModelQuestions
from veiltab.estimates.notebook import notebook_html
from veiltab.estimates.publishing import (
    PublishedCopy,
    Publisher,
    draw_copy,
    part_of_copy,
    published_elsewhere,
)
from veiltab.estimates.questions import Names, names_of
from veiltab.estimates.shares import ShareQuestions
from veiltab.estimates.stratified import StratifiedQuestions
from veiltab.files.disk import check_empty, check_new, write_output
from veiltab.files.spreadsheets import csv_bytes
from veiltab.inference import distributions
from veiltab.inference.diagnostics import table_warnings
from veiltab.inference.provenance import Promise, Provenance, mechanism_words, status_words
from veiltab.inference.wording import described
from veiltab.report.page import estimate_page
from veiltab.report.view import ReportOptions, View, view_release, with_answers

PARQUET_KEY = "veiltab"
"""The metadata key under which a Parquet file holds :meth:`Estimate.summary`."""


@dataclass(frozen=True, eq=False, repr=False)
class Estimate(
    ShareQuestions,
    AssociationQuestions,
    LinearQuestions,
    MeanQuestions,
    ModelQuestions,
    MarginQuestions,
    StratifiedQuestions,
):
    """Released counts, and the shares, intervals, ratios and tests that follow from them.

    The share of a condition is its unbiased estimate, moved into 0..1: one question has one
    answer, whichever table it is asked of.  Other estimators can be chosen for tables; intervals
    and standard errors always come from the unbiased one.  Resampling is seeded by the counts, so
    results are reproducible.

    ``population`` says whom the numbers describe: "finite", the respondents themselves, or
    "super", the larger population that they were drawn from.  Shares, differences and numbers of
    people are about the respondents by default; whatever generalises, as ratios, associations and
    tests do, is about the larger population.

    An estimate is the researcher's own view, and is marked so: readers who know the decoys would
    learn too much from it.  :meth:`publish` makes the copy that may be passed on.

    Methods that write files refuse a name that is taken: nothing is overwritten.
    """

    provenance: Provenance = field(default=Provenance(), kw_only=True)
    publisher: Publisher = field(default=draw_copy, kw_only=True, repr=False)
    _copy: PublishedCopy = field(default_factory=PublishedCopy, kw_only=True, repr=False)

    @classmethod
    def from_counts(
        cls,
        released: ReleasedCounts,
        *,
        provenance: Provenance | None = None,
        publisher: Publisher = draw_copy,
    ) -> "Estimate":
        """Make an estimate of what a researcher has decrypted and counted.

        ``publisher`` draws the published copy, or returns the one that was drawn before.
        """
        return cls(
            released.schema,
            released.counts,
            released.plan,
            released.publication,
            provenance=provenance or Provenance(),
            publisher=publisher,
        )

    def publish(self) -> "Estimate":
        """Return the copy that may be passed on: the same release with noise on every count.

        Its noise is drawn once.  Every later call, and every marginal, gets the same copy; a copy
        of more attributes than the first one is refused, because two copies would promise less.
        """
        if self.publication is not None:
            return self
        if self._copy.estimate is None:
            self._copy.estimate = self.publisher(self)
        return part_of_copy(self._copy.estimate, self.schema.names)

    def with_publication(self, counts: NDArray[np.int64], noise: PublicationNoise) -> "Estimate":
        """Return the published copy of this estimate whose noise was drawn already."""
        if noise.cells != self.schema.domain_size:
            raise ParameterError(
                f"the noise lies on {noise.cells:,} counts, but the table has"
                f" {self.schema.domain_size:,} cells",
                hint="publish the table for which the noise was drawn",
            )
        return replace(self, counts=counts, publication=noise)

    @property
    def status(self) -> str:
        """Whether it may be passed on, in words."""
        return status_words(self)

    @property
    def promises(self) -> tuple[Promise, ...]:
        """What the respondents were promised, and against whom."""
        return self.provenance.promises_under(self.plan)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Where the approximations are poor, for a reader of the whole table."""
        return table_warnings(self)

    def summary(self) -> dict[str, Any]:
        """Return where the numbers come from and what was promised, as JSON values."""
        plan, origin, noise = self.plan, self.provenance, self.publication
        published = None
        if noise is not None:
            published = {"epsilon": noise.epsilon, "cells": noise.cells, "digest": self.digest}
        return {
            "study": origin.study,
            "title": origin.title,
            "status": self.status,
            "published": published,
            "perturbed_by": origin.perturbed_by,
            "attributes": [
                {"name": attribute.name, "categories": list(attribute.categories)}
                for attribute in self.schema.attributes
            ],
            "mechanism": plan.mechanism_name,
            "linkage": plan.linkage,
            "population_size": plan.population_size if self.size_known else None,
            "sample_size": plan.sample_size,
            "epsilon": plan.epsilon,
            "delta": plan.delta,
            "epsilon_with_curator": plan.epsilon_with_curator,
            "epsilon_public": plan.epsilon_public,
            "promises": [
                {"against": promise.against, "epsilon": promise.epsilon, "delta": promise.delta}
                for promise in self.promises
            ],
        }

    def table(
        self,
        estimator: Estimator = "clipped",
        *,
        level: float = 0.95,
        simultaneous: bool = False,
        population: Population = "finite",
    ) -> pl.DataFrame:
        """Return the joint table: a row per cell, with its share, errors and interval.

        Each interval covers its share with the confidence ``level``; ``simultaneous`` ones cover
        all shares at once with it.  The last column says which.  ``warning`` has the unbiased
        estimate where noise has taken it below zero and it is shown as zero.  So shares need not
        sum to one; those of the estimator "projected" do.
        """
        return distributions.joint_table(
            self,
            estimator=estimator,
            level=level,
            population=population,
            simultaneous=simultaneous,
        )

    def to_numpy(self, estimator: Estimator = "clipped") -> NDArray[np.float64]:
        """Return the shares as an array with an axis per attribute."""
        return self.shares(estimator).reshape(self.schema.sizes)

    def to_pandas(self, estimator: Estimator = "clipped", **options: Any) -> Any:  # noqa: ANN401 - pandas is optional
        """Return :meth:`table` as a pandas frame, if pandas is installed."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as error:
            raise InputError(
                "to_pandas needs the package pandas, which is not installed",
                hint="install it with `pip install pandas`, or use table(), a polars frame",
            ) from error
        frame = self.table(estimator, **options)
        columns = zip(frame.columns, frame, strict=True)
        return pandas.DataFrame({name: _pandas_column(pandas, column) for name, column in columns})

    def conditional(
        self,
        of: Names,
        given: Names,
        *,
        estimator: Estimator = "clipped",
        level: float = 0.95,
        population: Population = "finite",
    ) -> pl.DataFrame:
        """Return the shares of ``of`` within each group of ``given``, with Fieller's intervals.

        Every row is what :meth:`probability` answers for it: the same numbers, and in ``warning``
        the same words.  Where nothing can be said, because the share of a group cannot be
        distinguished from zero, ``estimable`` is false, ``reason`` says so, and the numbers are
        null.  A share alone is null where its group's estimate is not above zero.
        """
        return distributions.conditional_table(
            self,
            names_of(of),
            names_of(given),
            estimator=estimator,
            level=level,
            population=population,
        )

    def report(
        self,
        path: str | Path,
        *,
        conditions: Names = (),
        level: float = 0.95,
        simultaneous: bool = False,
        population: Population = "finite",
        estimator: Estimator = "clipped",
    ) -> None:
        """Write an HTML report to a new file: one page that needs no network.

        ``conditions`` are shares to estimate besides, such as ``"salary = '>50K'"``.
        """
        check_new(Path(path))
        options = ReportOptions(
            level=level,
            simultaneous=simultaneous,
            population=population,
            estimator=estimator,
            conditions=tuple(names_of(conditions)),
        )
        write_output(Path(path), estimate_page(self._view(options)).encode())

    def figures(
        self,
        folder: str | Path,
        *,
        level: float = 0.95,
        simultaneous: bool = False,
        population: Population = "finite",
        estimator: Estimator = "clipped",
        track: Callable[[Sequence[Any], str], Iterable[Any]] | None = None,
    ) -> list[Path]:
        """Draw the pictures of the report as SVG and PNG into a new or empty folder.

        ``track`` wraps the list of pictures to show progress; the second argument says what is
        being done.
        """
        from veiltab.report.figures import save_figures  # noqa: PLC0415 - altair is slow to load

        check_empty(Path(folder))
        options = ReportOptions(
            level=level, simultaneous=simultaneous, population=population, estimator=estimator
        )
        return save_figures(self._view(options), Path(folder), track)

    def write_csv(self, path: str | Path, estimator: Estimator = "clipped", **options: Any) -> None:
        """Write :meth:`table`, with its options, to a new CSV file.

        A last column says in every row whether the table may be passed on.  Names that a
        spreadsheet would compute have an apostrophe before them.
        """
        check_new(Path(path))
        table = self.table(estimator, **options)
        marked = table.with_columns(pl.lit(self.status).alias(_free_name("status", table.columns)))
        write_output(Path(path), csv_bytes(marked))

    def write_parquet(
        self, path: str | Path, estimator: Estimator = "clipped", **options: Any
    ) -> None:
        """Write :meth:`table`, with its options, to a new Parquet file.

        Its metadata hold :meth:`summary` under the key ``veiltab``, as JSON.
        """
        check_new(Path(path))
        file = BytesIO()
        note = json.dumps(self.summary(), ensure_ascii=False, allow_nan=False)
        self.table(estimator, **options).write_parquet(file, metadata={PARQUET_KEY: note})
        write_output(Path(path), file.getvalue())

    def export(self, path: str | Path) -> None:
        """Write cells, estimates and covariance for other programs: a new .json or .parquet file.

        The covariance is there by its factors, for both populations; what they mean, and how to
        read the file in R, is in the documentation.
        """
        exporting.export(self, self.summary(), Path(path))

    def save(self, path: str | Path) -> None:
        """Write everything to a new file that :meth:`load` reads: canonical JSON, counts packed."""
        storing.save(self, self.provenance, Path(path))

    @classmethod
    def load(cls, path: str | Path) -> "Estimate":
        """Read a file that :meth:`save` wrote; anything else is refused."""
        released, provenance = storing.load(Path(path))
        return cls.from_counts(released, provenance=provenance, publisher=published_elsewhere)

    def __repr__(self) -> str:
        """Return what it is about, without counts: those are in :meth:`table`."""
        plan = self.plan
        return f"<Estimate: {described(self)}, {plan.mechanism_name}, ε = {plan.epsilon:g}>"

    def __str__(self) -> str:
        """Return what it is about, its status, the promises and the warnings, a line for each."""
        title = f"{self.provenance.title}: " if self.provenance.title else ""
        promises = [f"promised: {promise}" for promise in self.promises]
        try:
            warnings = self.warnings
        except TooFewPeopleError as error:
            warnings = (error.message,)
        facts = [mechanism_words(self), self.status, *promises, *warnings]
        return "\n  ".join([f"{title}{described(self)}", *facts])

    def _repr_html_(self) -> str:
        """Return the table for notebooks: no scripts, no styles from elsewhere."""
        return notebook_html(self, self.provenance)

    @cached_property
    def _views(self) -> dict[ReportOptions, View]:
        """What reports show, by their options; it is slow to compute."""
        return {}

    def _view(self, options: ReportOptions) -> View:
        """Return what a report shows, computed once for reports and figures together."""
        unconditional = replace(options, conditions=())
        if unconditional not in self._views:
            self._views[unconditional] = view_release(self, self.provenance, unconditional)
        return with_answers(self._views[unconditional], options)


def _free_name(name: str, taken: Sequence[str]) -> str:
    while name in taken:
        name += " (veiltab)"
    return name


def _pandas_column(pandas: Any, column: pl.Series) -> Any:  # noqa: ANN401 - pandas is optional
    if isinstance(column.dtype, pl.Enum):
        codes, categories = column.to_physical().to_numpy(), column.dtype.categories.to_list()
        return pandas.Categorical.from_codes(codes, categories)
    return column.to_numpy()
