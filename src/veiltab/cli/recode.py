"""``veiltab recode``: a first recode file, from a table."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from veiltab.cli.main import OrderedGroup
from veiltab.cli.options import PartyOptions, TableSource, party_options, table_options
from veiltab.cli.output import json_option, print_json, show_help, tell, warn
from veiltab.errors import ParameterError

if TYPE_CHECKING:
    from veiltab.core.schema import Schema

FILE = click.Path(dir_okay=False, path_type=Path)


@click.group("recode", cls=OrderedGroup, invoke_without_command=True)
@click.pass_context
def recode_group(context: click.Context) -> None:
    """Say how your own columns and values map to the attributes of a study.

    That stands in a recode file, which is never sent.

    \b
    Example:
      veiltab recode draft patients.csv --study smoking.toml --out recode.toml
    """  # noqa: D301 - \b tells click to leave the lines alone
    show_help(context)


@recode_group.command("draft")
@table_options("TABLE", "table")
@click.option(
    "--study", metavar="STUDY_OR_FILE", help="A study, or a study file, that the table is for."
)
@click.option(
    "--attribute",
    "attributes",
    metavar="COLUMN",
    multiple=True,
    help="Without a study: a column to propose as an attribute.  All that can be, by default.",
)
@click.option(
    "--column",
    "columns",
    metavar="ATTRIBUTE=COLUMN",
    multiple=True,
    help="With a study: the column of an attribute, if it is called otherwise; may be repeated.",
)
@click.option("--out", type=FILE, help="The new recode file.  stdout by default.")
@party_options
@json_option
def draft_command(
    table: TableSource,
    study: str | None,
    attributes: tuple[str, ...],
    columns: tuple[str, ...],
    out: Path | None,
    party: PartyOptions,
    as_json: bool,
) -> None:
    """Look at TABLE, and draft a recode file to complete; nothing is sent.

    With --study, the table's values are mapped to your categories in that study, where they are
    spelt alike; all others are listed under FILL IN, with the number of rows.  A file that still
    says FILL IN is refused when you push.

    Without, categories are proposed: numbers go into intervals with about as many rows each, values
    that differ by case, spaces or punctuation into one category, and free text is left out.

    \b
    Examples:
      veiltab recode draft patients.csv --study "Smoking and income" --out recode.toml
      veiltab recode draft export.csv --study 3fa9 --column diagnosis=Hauptdiagnose
      veiltab recode draft patients.csv --attribute smoker --attribute age
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.data.tables import BATCH_ROWS
    from veiltab.files.disk import check_new
    from veiltab.files.private import write_private
    from veiltab.party.draft import draft_recode
    from veiltab.party.recode_draft import draft_recode_for

    if study is not None and attributes:
        raise ParameterError(
            "give either --study or --attribute, and not both",
            hint="a study says which attributes are yours",
        )
    if study is None and columns:
        raise ParameterError(
            "--column goes with a study, whose attributes it names",
            hint="give --study, or name columns to propose with --attribute",
        )
    named = _columns_of(columns)
    if out is not None:
        check_new(out)
    opened = table.open()
    schema = None if study is None else _schema(study, party)
    batches = opened.batches(list(opened.columns), BATCH_ROWS)
    if schema is None:
        text, warnings = draft_recode(batches, attributes)
    else:
        text, warnings = draft_recode_for(batches, schema, named)
    if out is not None:
        write_private(out, text.encode())
    if as_json:
        files = {"recode_file": text, "warnings": list(warnings)}
        print_json({**files, "table": table.to_json()})
        return
    for words in table.read_as.values():
        tell(f"The table was read as: {words}")
    for warning in warnings:
        warn(warning)
    if out is None:
        click.echo(text, nl=False)
    else:
        tell(f"Look at {out}, complete it where it says FILL IN, and push with --recode {out}.")


def _columns_of(columns: tuple[str, ...]) -> dict[str, str]:
    named: dict[str, str] = {}
    for words in columns:
        attribute, equals, column = words.partition("=")
        if not equals:
            raise ParameterError(
                f"{words!r} does not name an attribute and its column",
                hint="write both, as in --column diagnosis=Hauptdiagnose",
            )
        if attribute in named:
            raise ParameterError(
                f"two columns are named for {attribute!r}", hint="give --column once for each"
            )
        named[attribute] = column
    return named


def _schema(study: str, party: PartyOptions) -> "Schema":
    """Return this party's attributes in a study file, or in a study at the server."""
    if study.lower().endswith(".toml"):
        from veiltab.party.study_file import read_study_file
        from veiltab.party.vaults.steps import known_vault

        home = party.home
        draft = read_study_file(Path(study), home.public, known_vault(home), anyway=True)
        me = home.public.party_id
        return next(terms.schema for terms in draft.curators if terms.party_id == me)
    from veiltab.party.roles import check_curator

    with party.session() as session:
        terms = session.study(study).terms
        check_curator(terms, session.identity, "push a table to it")
        return terms.schema_of(session.identity.party_id)
