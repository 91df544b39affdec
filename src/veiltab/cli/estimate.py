"""``veiltab estimate`` and ``veiltab publish``: the joint distribution behind a release.

The first is for the researcher alone, the second for everybody else.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.grant import warn_of_ends
from veiltab.cli.options import LONG_PATIENCE, PartyOptions, party_options
from veiltab.cli.output import console, json_option, print_json, track, warn
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.estimates import Estimate
    from veiltab.party.grants import GrantStatus
    from veiltab.report.view import ReportOptions
    from veiltab.wire.messages import SignedGrant

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


@dataclass(frozen=True, slots=True)
class Request:
    """Which attributes are asked for, and the grant files that curators have handed over."""

    attributes: tuple[str, ...]
    grants: tuple[Path, ...]

    @property
    def names(self) -> list[str] | None:
        """The attributes, or None for all that are granted."""
        return list(self.attributes) or None

    def given(self) -> "list[SignedGrant]":
        """Read the grant files."""
        from veiltab.party.researcher import as_grant

        return [as_grant(path) for path in self.grants]


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add which attributes, from which grants, how they are shown, and which files are written.

    The command gets ``request`` (attributes and grants), ``options`` and ``files``, all checked.
    """

    @wraps(command)
    def with_output(
        *arguments: Any,
        attributes: tuple[str, ...],
        grants: tuple[Path, ...],
        csv_file: Path | None,
        estimator: str,
        **others: Any,
    ) -> Any:  # noqa: ANN401 - whatever the command returns
        from veiltab.core.uncertainty import critical_value
        from veiltab.report.view import ReportOptions

        named = {name: others.pop(name) for name in ("report", "parquet", "figures", "save")}
        files = OutputFiles(csv=csv_file, **named)
        files.check()
        shown: dict[str, Any] = {name: others.pop(name) for name in SHOWN}
        options = ReportOptions(**shown | {"estimator": estimator.replace("-", "_")})
        critical_value(options.level)  # refuses what is no confidence level before all else
        request = Request(attributes, grants)
        return command(*arguments, request=request, options=options, files=files, **others)

    for option in reversed(_OPTIONS):
        option(with_output)
    return with_output


SHOWN = ("conditions", "level", "simultaneous", "population")

_OPTIONS = (
    click.option(
        "--attribute",
        "attributes",
        multiple=True,
        help="An attribute to estimate; may be repeated.  All that are granted by default.",
    ),
    click.option(
        "--grant",
        "grants",
        type=FILE,
        multiple=True,
        help="A grant file that a curator has handed over; may be repeated.",
    ),
    click.option(
        "--where",
        "conditions",
        multiple=True,
        help="Estimate the share of whoever meets this condition; may be repeated.",
    ),
    click.option(
        "--level", type=float, default=0.95, show_default=True, help="The confidence of intervals."
    ),
    click.option(
        "--simultaneous", is_flag=True, help="Intervals that hold for the whole table together."
    ),
    click.option(
        "--population",
        type=click.Choice(["finite", "super"]),
        default="finite",
        show_default=True,
        help="Whom the numbers describe: the respondents, or those they were drawn from.",
    ),
    click.option(
        "--estimator",
        type=click.Choice(["clipped", "unbiased", "projected", "most-likely"]),
        default="clipped",
        show_default=True,
        help="How shares are estimated; intervals do not depend on it.",
    ),
    click.option("--report", type=FILE, help="Write a report to this HTML file."),
    click.option("--csv", "csv_file", type=FILE, help="Write every cell to this CSV file."),
    click.option("--parquet", type=FILE, help="Write every cell to this Parquet file."),
    click.option(
        "--figures",
        type=click.Path(file_okay=False, path_type=Path),
        help="Draw PNG and SVG pictures into this folder, which must be new or empty.",
    ),
    click.option(
        "--save",
        type=FILE,
        help="Save the estimate to this new file; `veiltab estimate --load` reads it.",
    ),
)


def show_estimate(
    estimate: "Estimate", options: "ReportOptions", files: OutputFiles, *, as_json: bool
) -> None:
    """Write the files, and print the estimate; say so if the files are not for others."""
    from veiltab.cli.estimate_output import estimate_json, print_estimate
    from veiltab.report.view import answer_conditions

    answer_conditions(estimate, options)  # refuses a condition before any file is written
    written = files.write(estimate, options)
    if as_json:
        print_json(estimate_json(estimate, options, written))
    else:
        print_estimate(console(), estimate, options, written)
    if written and estimate.publication is None:
        warn(estimate.status)


@click.command("estimate")
@click.argument("study", required=False)
@click.option("--load", type=FILE, help="Instead of STUDY: a file that --save wrote; no server.")
@click.option(
    "--partial",
    is_flag=True,
    help="Leave out attributes whose grants have expired or were revoked.",
)
@output_options
@party_options
@json_option
def estimate_command(
    study: str | None,
    load: Path | None,
    partial: bool,
    request: Request,
    options: "ReportOptions",
    files: OutputFiles,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Estimate the joint distribution behind STUDY, for yourself.

    This takes a grant from every curator whose attributes you ask for.  If one that you had has
    expired or was revoked, that is an error, which says whom to ask; --partial goes on without what
    is missing.  Every share has an
    interval, and a standard error in two parts: sampling, because not everybody was sampled, and
    privacy, because records were perturbed or hidden among invented ones.

    The numbers are your own view, and not for passing on: 'veiltab publish' makes the copy that
    others may read.

    \b
    Examples:
      veiltab estimate "Smoking and income"
      veiltab estimate 3fa9 --where "smoker = 'yes' and income = 'low'"
      veiltab estimate 3fa9 --attribute smoker --attribute income
      veiltab estimate 3fa9 --save mine.estimate
      veiltab estimate --load mine.estimate --level 0.99 --simultaneous
    """  # noqa: D301 - \b tells click to leave the lines alone
    if (study is None) == (load is None):
        raise ParameterError(
            "name either a study or a file to --load",
            hint="veiltab study list shows your studies; --save writes a file for --load",
        )
    if load is not None and partial:
        raise ParameterError(
            "--partial goes with a study, not with --load",
            hint="nothing can be missing from a saved one",
        )
    if load is not None:
        estimate = _load(load, request)
    else:
        estimate = _fetch(study or "", request, party, partial=partial)
    show_estimate(estimate, options, files, as_json=as_json)


@click.command("publish")
@click.argument("study")
@output_options
@party_options
@json_option
def publish_command(
    study: str,
    request: Request,
    options: "ReportOptions",
    files: OutputFiles,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Publish what you have estimated of STUDY: the copy that others may read.

    Its counts have noise of their own, because whoever knows the decoys could subtract them from
    your own view.  The noise is drawn once, by the first call, for the table of the attributes that
    it names; the audit log names that copy.  Later calls return the same copy, or a part of it, and
    never a larger one: begin with the largest table that others are to read.

    \b
    Examples:
      veiltab publish "Smoking and income" --report report.html --csv table.csv
      veiltab publish 3fa9 --attribute smoker --figures pictures
      veiltab publish 3fa9 --save for-others.estimate --json
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.inference.conditions import read_condition

    given = request.given()  # before a passphrase is asked for
    with party.session(LONG_PATIENCE) as session:
        chosen = session.study(study)
        schema = chosen.terms.schema
        for condition in options.conditions:  # a mistake is found before anything is published
            read_condition(condition, schema.subset(request.names or schema.names))
        estimate = chosen.publish(request.names, grants=given)
    show_estimate(estimate, options, files, as_json=as_json)


def _load(path: Path, request: Request) -> "Estimate":
    from veiltab.estimates import Estimate

    if request.grants:
        raise ParameterError(
            "--grant goes with a study, not with --load",
            hint="a saved estimate is decrypted already",
        )
    estimate = Estimate.load(path)
    return estimate if request.names is None else estimate.marginal(request.names)


def _fetch(study: str, request: Request, party: PartyOptions, *, partial: bool) -> "Estimate":
    given = request.given()  # before a passphrase is asked for
    with party.session(LONG_PATIENCE) as session:
        chosen = session.study(study)
        estimate = chosen.estimate(request.names, grants=given, partial=partial)
        _say_what_ends(chosen.grants(), session.identity.party_id)
    return estimate


def _say_what_ends(grants: "list[GrantStatus]", me: bytes) -> None:
    """Say on stderr what is missing, and what will be within a week."""
    from veiltab.party.grants import ended_attributes

    for one, names in ended_attributes(grants).items():
        missing = ", ".join(map(repr, names))
        warn(f"without {missing} of {one.curator!r}, whose grant is no longer good ({one.ended})")
    warn_of_ends(grants, me)
