"""``veiltab study check``: a table against a study, before anything is signed, charged or sent."""

from dataclasses import asdict
from itertools import count as numbers
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.options import (
    LONG_PATIENCE,
    PartyOptions,
    TableSource,
    meaning_options,
    party_options,
    table_options,
)
from veiltab.cli.output import (
    console,
    count,
    json_option,
    print_facts,
    print_json,
    print_warnings,
    show_progress,
)
from veiltab.cli.terms import print_coalitions

if TYPE_CHECKING:
    from veiltab.party.checking import Preview
    from veiltab.party.progress import OnProgress, Progress
    from veiltab.protocol.curator.table import Duplicates

STUDY_FILE = ".toml"
_STEM = 50
"""Characters of a table's name in that of the file with its offenders: systems limit names."""


@click.command("check")
@click.argument("study", metavar="STUDY_OR_FILE")
@table_options("--table", "table")
@meaning_options
@click.option("--dataset", help="Show what it costs this data set alone.")
@click.option(
    "--offenders",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The new file for all rows that do not fit.  By default it is called like the table, and"
    " written only if there are any.",
)
@party_options
@json_option
def check_command(
    study: str,
    table: TableSource,
    ids: tuple[str, ...],
    recode: Path | None,
    duplicates: "Duplicates | None",
    dataset: str | None,
    offenders: Path | None,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Check your table against a study, before you propose it, sign it or push to it.

    STUDY_OR_FILE is a study, or a study file (.toml) that is not proposed yet, which needs no
    server.
    The whole table is read, as a push reads it, and you are told everything that does not fit, what
    would leave, what it costs, and what everybody could learn.  Nothing is sent, signed or charged.

    All rows that do not fit are written to a new file, with their values: it is for you alone.

    \b
    Examples:
      veiltab study check smoking.toml --table patients.csv --id patient_no
      veiltab study check "Smoking and income" --table taxes.csv --id nr --recode recode.toml
    """  # noqa: D301 - \b tells click to leave the lines alone
    options = {"recode": recode, "duplicates": duplicates, "dataset": dataset}
    file = free_name(table) if offenders is None else offenders
    check_study(party, study, table, ids, options | {"offenders": file}, as_json=as_json)


def check_study(
    party: PartyOptions,
    study: str,
    table: TableSource,
    ids: tuple[str, ...],
    options: dict[str, Any],
    *,
    as_json: bool,
) -> None:
    """Check a table, print what was found, and end with an error if a push would."""
    identifier = None
    if study.lower().endswith(STUDY_FILE):
        with show_progress() as show:
            preview = party.home.check(study, table.open, ids, **options, progress=DropCount(show))
    else:
        with party.session(LONG_PATIENCE) as session, show_progress() as show:
            chosen = session.study(study)
            identifier = chosen.id
            preview = chosen.check(table.open, ids, **options, progress=DropCount(show))
    if as_json:
        print_json({"study": identifier, **_as_json(preview)})
    else:
        _print(preview)
    preview.raise_problems()


def free_name(table: TableSource) -> Path:
    """Return the name of a new file beside you that says which table it is about."""
    stem = f"{(table.stem or 'table')[:_STEM]}-offenders"
    names = (Path(f"{stem}{'' if n == 1 else f'-{n}'}.csv") for n in numbers(1))
    return next(name for name in names if not (name.exists() or name.is_symlink()))


class DropCount:
    """Passes reports of progress on, and remembers how many rows were left out."""

    def __init__(self, show: "OnProgress") -> None:
        """Start with none."""
        self._show, self.dropped = show, 0

    def __call__(self, report: "Progress") -> None:
        """Take one report."""
        if report.step == "dropping repeated rows":
            self.dropped = report.done
        else:
            self._show(report)


def dropped_fact(dropped: int) -> dict[str, str]:
    """Say how many rows were left out, if any were."""
    return {"left out": f"{count(dropped, 'row')} with an id that repeats"} if dropped else {}


def _as_json(preview: "Preview") -> dict[str, Any]:
    from veiltab.party.terms import cost_json

    file = preview.offenders_file
    return {
        "title": preview.title,
        "fits": preview.fits,
        "table": preview.format.to_json(),
        "respondents": preview.respondents,
        "rows_dropped": preview.dropped,
        "problems": [
            {"code": problem.code, "message": problem.message, "hint": problem.hint}
            for problem in preview.problems
        ],
        "offenders": [{"problem": what, "rows": n} for what, n in preview.offenders.items()],
        "offenders_file": None if file is None else str(file),
        "id_warnings": list(preview.id_warnings),
        "warnings": list(preview.warnings),
        "expected_rows": preview.rows,
        "expected_chunks": preview.chunks,
        "expected_bytes": preview.bytes,
        "plan": None if preview.plan is None else preview.plan.as_dict(),
        "coalitions": [asdict(coalition) for coalition in preview.coalitions],
        "budgets": [cost_json(cost) for cost in preview.costs],
    }


def _print(preview: "Preview") -> None:
    from veiltab.party.terms import cost_lines

    facts = {"study": preview.title, "read as": str(preview.format)}
    if preview.fits:
        facts["table"] = f"{count(preview.respondents, 'respondent')}, and every row fits"
    else:
        facts["table"] = f"{count(preview.respondents, 'row')}; it does not fit, see below"
    facts |= dropped_fact(preview.dropped)
    if preview.offenders:
        found = [f"{what}: {n:,}" for what, n in preview.offenders.items()]
        facts["rows that do not fit"] = "; ".join(found)
        facts["all of them"] = f"in {preview.offenders_file}, for you alone"
    facts |= {"would be sent": _sending(preview), **cost_lines(preview.costs), "sent": "nothing"}
    screen = console()
    print_facts(screen, facts)
    print_warnings(screen, [*preview.id_warnings, *preview.warnings])
    screen.print()
    print_coalitions(screen, preview.coalitions)


def _sending(preview: "Preview") -> str:
    from veiltab.core.overlap import OverlapPlan

    if preview.rows is None or preview.chunks is None or preview.bytes is None:
        return "nothing: a push refuses this table"
    plan = preview.plan
    counted = isinstance(plan, OverlapPlan)
    exact = plan is None or (not isinstance(plan, OverlapPlan) and plan.sample_size is not None)
    about = "" if exact else "about "
    rows = count(preview.rows, "token" if counted else "encrypted row")
    chunks, size = count(preview.chunks, "chunk"), count(preview.bytes, "byte")
    values = "; no values are sent" if counted else ""
    return f"{about}{rows} in {chunks}, {about}{size}{values}"
