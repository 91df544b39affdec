"""``veiltab estimate``: the joint distribution behind a release, and how far off it may be."""

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.options import LONG_PATIENCE, PartyOptions, party_options
from veiltab.cli.output import console, json_option, print_json, track
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.estimates import Estimate
    from veiltab.report.view import ReportOptions

FILE = click.Path(dir_okay=False, path_type=Path)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFiles:
    """Where to write what; what is None is not written."""

    report: Path | None = None
    csv: Path | None = None
    parquet: Path | None = None
    figures: Path | None = None
    save: Path | None = None

    @property
    def paths(self) -> dict[str, Path]:
        """The files and the folder to write, by what they hold."""
        paths = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: path for name, path in paths.items() if path is not None}

    def check(self) -> None:
        """Refuse names that are taken, before any work is done."""
        from veiltab.files.disk import check_empty, check_new

        paths = self.paths
        if len({path.absolute() for path in paths.values()}) < len(paths):
            raise ParameterError("two files have the same name", hint="name each file once")
        for name, path in paths.items():
            if name == "figures":
                check_empty(path)
            else:
                check_new(path)

    def write(self, estimate: "Estimate", options: "ReportOptions") -> dict[str, str]:
        """Write everything that was asked for, and return which file is what."""
        if self.csv is not None:
            estimate.write_csv(self.csv, **options.table)
        if self.parquet is not None:
            estimate.write_parquet(self.parquet, **options.table)
        if self.save is not None:
            estimate.save(self.save)
        if self.report is not None:
            estimate.report(self.report, conditions=options.conditions, **options.table)
        if self.figures is not None:
            estimate.figures(self.figures, track=track, **options.table)
        return {name: str(path) for name, path in self.paths.items()}


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
    party: PartyOptions,
    as_json: bool,
    **shown: Any,
) -> None:
    """Estimate the joint distribution behind STUDY.

    This takes a grant from every curator whose attributes you ask for.  Every share has an
    interval, and a standard error in two parts: sampling, because not everybody was sampled, and
    privacy, because records were perturbed.

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
    from veiltab.report.view import ReportOptions, answer_conditions

    files = OutputFiles(report=report, csv=csv_file, parquet=parquet, figures=figures, save=save)
    files.check()
    shown["estimator"] = shown["estimator"].replace("-", "_")
    options = ReportOptions(**shown)
    critical_value(options.level)  # refuses what is no confidence level before anything is fetched
    if (study is None) == (load is None):
        raise ParameterError(
            "name either a study or a file to --load",
            hint="veiltab study list shows your studies; --save writes a file for --load",
        )
    if load is not None:
        estimate = _load(load, attributes, grants)
    else:
        estimate = _fetch(study or "", attributes, grants, party)
    answer_conditions(estimate, options)  # refuses a condition before any file is written
    written = files.write(estimate, options)
    if as_json:
        print_json(estimate_json(estimate, options, written))
    else:
        print_estimate(console(), estimate, options, written)


def _load(path: Path, attributes: tuple[str, ...], grants: tuple[Path, ...]) -> "Estimate":
    from veiltab.estimates import Estimate

    if grants:
        raise ParameterError(
            "--grant goes with a study, not with --load",
            hint="a saved estimate is decrypted already",
        )
    estimate = Estimate.load(path)
    return estimate.marginal(attributes) if attributes else estimate


def _fetch(
    study: str, attributes: tuple[str, ...], grants: tuple[Path, ...], party: PartyOptions
) -> "Estimate":
    from veiltab.party.researcher import as_grant

    given = [as_grant(path) for path in grants]  # before a passphrase is asked for
    with party.session(LONG_PATIENCE) as session:
        return session.study(study).estimate(list(attributes) or None, grants=given)
