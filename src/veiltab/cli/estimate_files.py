"""The files that ``veiltab estimate`` writes: a report, tables, pictures, the estimate itself."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from veiltab.cli.output import check_new, track
from veiltab.errors import OutputError, ParameterError

if TYPE_CHECKING:
    import polars as pl

    from veiltab.estimates import Estimate
    from veiltab.report.view import Asked, Background

NOTE = "veiltab"
"""The key under which a Parquet file says where its numbers come from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFiles:
    """Where to write what; None is not written."""

    report: Path | None = None
    csv: Path | None = None
    parquet: Path | None = None
    figures: Path | None = None
    save: Path | None = None

    def check(self) -> None:
        """Refuse places that are taken, before any work is done."""
        wanted = [path for each in fields(self) if (path := getattr(self, each.name)) is not None]
        if len({path.absolute() for path in wanted}) < len(wanted):
            raise ParameterError("two files have the same name", hint="name each file once")
        for path in wanted:
            if path != self.figures:
                check_new(path)
        if self.figures is not None and self.figures.exists() and any(self.figures.iterdir()):
            raise OutputError(
                f"{self.figures} is not empty", hint="name a new folder; nothing is overwritten"
            )

    def write(
        self, estimate: "Estimate", asked: "Asked", background: "Background"
    ) -> dict[str, str]:
        """Write everything that was asked for, and return which file is what."""
        if self.csv is not None or self.parquet is not None:
            self._write_tables(estimate, asked)
        if self.save is not None:
            estimate.save(self.save)
        if self.report is not None or self.figures is not None:
            self._write_report(estimate, asked, background)
        return dict(self._written())

    def _written(self) -> Iterator[tuple[str, str]]:
        for each in fields(self):
            path = getattr(self, each.name)
            if path is not None:
                yield each.name, str(path)

    def _write_tables(self, estimate: "Estimate", asked: "Asked") -> None:
        from veiltab.files.plain import write_whole

        frame = estimate.table(**asked.options)
        if self.csv is not None:
            write_whole(self.csv, frame.write_csv().encode())
        if self.parquet is not None:
            write_whole(self.parquet, _parquet(frame, estimate))

    def _write_report(self, estimate: "Estimate", asked: "Asked", background: "Background") -> None:
        from veiltab.files.plain import write_whole
        from veiltab.report.view import view_estimate

        view = view_estimate(estimate, asked)
        if self.report is not None:
            from veiltab.report.page import estimate_page

            write_whole(self.report, estimate_page(view, background).encode())
        if self.figures is not None:
            from veiltab.report.figures import save_figures

            save_figures(view, self.figures, track)


def _parquet(frame: "pl.DataFrame", estimate: "Estimate") -> bytes:
    """Return the table as a Parquet file that says what was promised."""
    import json

    from veiltab.cli.estimate_output import origin_json

    file = BytesIO()
    note = json.dumps(origin_json(estimate), ensure_ascii=False, allow_nan=False)
    frame.write_parquet(file, metadata={NOTE: note})
    return file.getvalue()
