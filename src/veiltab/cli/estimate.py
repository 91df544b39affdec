"""``veiltab estimate``: the joint distribution behind a release, and how far off it may be."""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.options import LONG_PATIENCE, Party, party_options
from veiltab.cli.output import check_new, console, json_option, print_json, track
from veiltab.errors import InputError, MessageError, OutputError, ParameterError

if TYPE_CHECKING:
    import polars as pl

    from veiltab.estimates import Estimate
    from veiltab.report.view import Asked, Background
    from veiltab.wire.messages import SignedGrant


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
        from veiltab.files.disk import write_output

        frame = estimate.table(**asked.options)
        if self.csv is not None:
            write_output(self.csv, frame.write_csv().encode())
        if self.parquet is not None:
            write_output(self.parquet, _parquet(frame, estimate))

    def _write_report(self, estimate: "Estimate", asked: "Asked", background: "Background") -> None:
        from veiltab.files.disk import write_output
        from veiltab.report.view import view_estimate

        view = view_estimate(estimate, asked)
        if self.report is not None:
            from veiltab.report.page import estimate_page

            write_output(self.report, estimate_page(view, background).encode())
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


FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("estimate")
@click.argument("study", required=False)
@click.option("--load", type=FILE, help="Instead of STUDY: a file that --save wrote; no server.")
@click.option(
    "--attribute",
    "attributes",
    multiple=True,
    help="An attribute to estimate; may be repeated.  All that are granted by default.",
)
@click.option(
    "--grant",
    "grants",
    type=FILE,
    multiple=True,
    help="A grant file that a curator has handed over; may be repeated.",
)
@click.option(
    "--where",
    "conditions",
    multiple=True,
    help="Estimate the share of whoever meets this condition; may be repeated.",
)
@click.option(
    "--level", type=float, default=0.95, show_default=True, help="The confidence of intervals."
)
@click.option(
    "--simultaneous", is_flag=True, help="Intervals that hold for the whole table together."
)
@click.option(
    "--population",
    type=click.Choice(["finite", "super"]),
    default="finite",
    show_default=True,
    help="Whom the numbers describe: the respondents, or those they were drawn from.",
)
@click.option(
    "--estimator",
    type=click.Choice(["best", "unbiased", "projected", "most-likely"]),
    default="best",
    show_default=True,
    help="How shares are estimated; intervals do not depend on it.",
)
@click.option("--report", type=FILE, help="Write a report to this HTML file.")
@click.option("--csv", "csv_file", type=FILE, help="Write every cell to this file.")
@click.option("--parquet", type=FILE, help="Write every cell to this file.")
@click.option(
    "--figures",
    type=click.Path(file_okay=False, path_type=Path),
    help="Draw PNG and SVG pictures into this folder, which must be new or empty.",
)
@click.option("--save", type=FILE, help="Write all that it takes for --load to this file.")
@party_options
@json_option
def estimate_command(
    study: str | None,
    load: Path | None,
    attributes: tuple[str, ...],
    grants: tuple[Path, ...],
    report: Path | None,
    csv_file: Path | None,
    parquet: Path | None,
    figures: Path | None,
    save: Path | None,
    party: Party,
    as_json: bool,
    **shown: Any,
) -> None:
    """Estimate the joint distribution behind STUDY.

    It takes a grant of every curator whose attributes you ask for.  Every share has an interval,
    and a standard error in two parts: sampling, because not everybody was sampled, and privacy,
    because records were perturbed.

    \b
    Examples:
      veiltab estimate "Smoking and income"
      veiltab estimate 3fa9 --where "smoker = 'yes' and income = 'low'"
      veiltab estimate 3fa9 --attribute smoker --attribute income --csv table.csv
      veiltab estimate 3fa9 --report report.html --save smoking.estimate
      veiltab estimate --load smoking.estimate --level 0.99 --simultaneous
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.cli.estimate_output import estimate_json, print_estimate
    from veiltab.core.uncertainty import critical_value
    from veiltab.report.view import Asked, answer_all

    files = OutputFiles(report=report, csv=csv_file, parquet=parquet, figures=figures, save=save)
    files.check()
    shown["estimator"] = shown["estimator"].replace("-", "_")
    asked = Asked(**shown)
    critical_value(asked.level)  # refuses what is no confidence, before anything is fetched
    if (study is None) == (load is None):
        raise ParameterError(
            "name either a study or a file to --load",
            hint="veiltab study list shows your studies; --save writes a file for --load",
        )
    if load is not None:
        estimate, background = _load(load, attributes, grants)
    else:
        estimate, background = _fetch(study or "", attributes, grants, party)
    answer_all(estimate, asked)  # a condition that cannot be read is refused before files are made
    written = files.write(estimate, asked, background)
    if as_json:
        print_json(estimate_json(estimate, asked, written))
    else:
        print_estimate(console(), estimate, asked, written)


def _load(
    path: Path, attributes: tuple[str, ...], grants: tuple[Path, ...]
) -> "tuple[Estimate, Background]":
    from veiltab.estimates import Estimate
    from veiltab.report.view import Background

    if grants:
        raise ParameterError(
            "--grant goes with a study, not with --load", hint="a saved estimate is decrypted"
        )
    estimate = Estimate.load(path)
    if attributes:
        estimate = estimate.marginal(attributes)
    return estimate, Background(made=_today())


def _fetch(
    study: str, attributes: tuple[str, ...], grants: tuple[Path, ...], party: Party
) -> "tuple[Estimate, Background]":
    from veiltab.party.researcher import estimate_study
    from veiltab.report.view import Background

    given = [_read_grant(path) for path in grants]
    with party.session(LONG_PATIENCE) as session:
        found = session.find_study(study)
        estimate = estimate_study(session, found, list(attributes) or None, given)
        terms = session.contract(found).body
        name = session.home.public.name
    return estimate, Background(
        made=_today(),
        researcher=name,
        holders={a.name: each.identity.name for each in terms.curators for a in each.attributes},
        sampled_by="the curators" if terms.sampling.by == "curators" else "the server",
        pads="one-time pads" if terms.pads == "one-time" else "a stream cipher",
    )


def _today() -> str:
    from datetime import UTC, datetime

    now = datetime.now(UTC)
    return f"{now.day} {now:%B %Y}"


def _read_grant(path: Path) -> "SignedGrant":
    from veiltab.wire.codec import MAX_MESSAGE_BYTES
    from veiltab.wire.messages import SignedGrant

    try:
        with path.open("rb") as file:
            return SignedGrant.loads(file.read(MAX_MESSAGE_BYTES + 1))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint="check the path") from error
    except MessageError as error:
        raise InputError(
            f"{path} is not a grant", hint="ask the curator for the file that `veiltab grant` wrote"
        ) from error
