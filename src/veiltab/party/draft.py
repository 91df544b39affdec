"""A first study or vault file, drafted from a table: to be read and completed by a person.

The file is for sharing, so it has no counts, and nothing of columns that it leaves out but
the names of those that look like ids.  Everything else goes into a recode file, which stays with
the curator.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Literal

import polars as pl

from veiltab.core.schema import Attribute
from veiltab.data.folding import RULES
from veiltab.data.profile import (
    ColumnProfile,
    ProposedAttribute,
    Use,
    id_columns,
    printable_texts,
    profile_table,
)
from veiltab.data.recode_file import attribute_lines
from veiltab.errors import SchemaError
from veiltab.files.toml import (
    closest,
    comment,
    toml_key,
    toml_number,
    toml_string,
    toml_strings,
)
from veiltab.party.spelling import propose
from veiltab.wire.contract import PublicIdentity

LARGEST_DOMAIN = 1 << 20
"""Joint cells of the drafted attributes; with more, a release would be all noise."""

_WIDTH = 96
PARTNER_FILE = "FILL-IN.json"
"""Stands where the partner's identity file is to be named."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The text of a study or vault file to complete and share, and a recode file to keep.

    ``warnings`` are about ids that may not match those of others.
    """

    kind: Literal["study", "vault"]
    text: str
    recode: str
    warnings: tuple[str, ...] = ()


DraftFrom = Callable[[Iterable[pl.DataFrame], PublicIdentity], Draft]
"""How a draft is made of a table in batches, for its curator."""


def draft_study(
    table: pl.DataFrame | Iterable[pl.DataFrame],
    me: PublicIdentity,
    *,
    title: str = "FILL IN: a title",
    epsilon: float = 1.0,
) -> Draft:
    """Propose the columns of a table as attributes; a large one may come in batches."""
    look = _look_at(table)
    parties = _parties_text(look, 'mode = "aligned"\n')
    return look.draft("study", _study_text(me, title, epsilon) + parties)


def draft_vault(
    table: pl.DataFrame | Iterable[pl.DataFrame],
    me: PublicIdentity,
    *,
    title: str = "FILL IN: a title",
) -> Draft:
    """Propose the columns of a table as attributes of a vault."""
    look = _look_at(table)
    about = comment(_ABOUT_DRAFT.format(what="vault", name=toml_string(me.name)))
    text = f"{about}\ntitle = {toml_string(title)}\n\n"
    return look.draft("vault", text + _parties_text(look, ""))


def draft_recode(
    table: pl.DataFrame | Iterable[pl.DataFrame], attributes: Sequence[str] = ()
) -> tuple[str, tuple[str, ...]]:
    """Propose a recode file alone, and return it with warnings about the ids.

    ``attributes`` are the columns to propose; all that can be by default.
    """
    look = _look_at(table, attributes)
    return look.recode(with_attributes=True), look.warnings


@dataclass(frozen=True, slots=True)
class _Look:
    """What was found in a table: ids, proposals, and what is left out."""

    profiles: Sequence[ColumnProfile]
    proposals: Sequence[ProposedAttribute]
    too_many: Sequence[ProposedAttribute]
    asked: Sequence[str]

    @property
    def ids(self) -> list[ColumnProfile]:
        used = {proposal.column for proposal in self.proposals}
        return [one for one in id_columns(self.profiles) if one.name not in used]

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(text for profile in self.ids for text in profile.id_warnings().values())

    def draft(self, kind: Literal["study", "vault"], text: str) -> Draft:
        return Draft(kind, text, self.recode(), self.warnings)

    def recode(self, *, with_attributes: bool = False) -> str:
        """Write a recode file; one by itself says what to write into a study file."""
        sections = []
        for proposal in self.proposals:
            name, rule = proposal.attribute.name, proposal.rule
            column = None if name == proposal.column else proposal.column
            inline = f"In the study file: {_inline(proposal.attribute)}"
            about = comment(inline) if with_attributes else ""
            if rule is not None or column is not None or with_attributes:
                lines = attribute_lines(name, column, rule)
                sections.append(f"\n{about}" + "".join(f"{line}\n" for line in lines))
        ids = "".join(map(id_comments, self.ids))
        return comment(ABOUT_RECODE) + ids + "".join(sections) + self._left_out()

    def _left_out(self) -> str:
        """Say, in comments, why each other column was left out."""
        used = {proposal.column for proposal in (*self.proposals, *self.too_many)}
        parts = [
            comment(f"Left out: {toml_string(profile.name)} {_why(profile)}.{_instead(profile)}")
            for profile in self.profiles
            if profile.name not in used and profile.name in self.asked
        ]
        parts += [
            comment(
                f"Left out: {toml_string(proposal.column)} would make too many joint cells."
                f"  To use it instead of others:\n  {_inline(proposal.attribute)},"
                + "".join(
                    f"\n{line}"
                    for line in attribute_lines(
                        proposal.attribute.name, proposal.column, proposal.rule
                    )
                )
            )
            for proposal in self.too_many
        ]
        return "".join(f"\n{part}" for part in parts)


def _look_at(table: pl.DataFrame | Iterable[pl.DataFrame], attributes: Sequence[str] = ()) -> _Look:
    profiles = profile_table(table)
    columns = [profile.name for profile in profiles]
    names = printable_texts(columns)
    check_columns(attributes, columns)
    proposals, too_many, cells = [], [], 1
    for profile, name in zip(profiles, names, strict=True):
        if attributes and profile.name not in attributes:
            continue
        if profile.use not in (Use.ATTRIBUTE, Use.BINS) and not (attributes and _measured(profile)):
            continue
        proposal = propose(profile, name)
        if proposal.attribute.size == 1:
            continue
        if cells * proposal.attribute.size > LARGEST_DOMAIN:
            too_many.append(proposal)
        else:
            cells *= proposal.attribute.size
            proposals.append(proposal)
    return _Look(profiles, proposals, too_many, attributes or columns)


def _measured(profile: ColumnProfile) -> bool:
    """Tell whether a column that looks like an id could hold measurements, such as incomes."""
    return profile.use is Use.ID and profile.bins() is not None


def check_columns(wanted: Iterable[str], columns: Collection[str]) -> None:
    """Refuse names that no column has."""
    for name in wanted:
        if name not in columns:
            raise SchemaError(f"the table has no column {name!r}", hint=closest(name, columns))


def id_comments(profile: ColumnProfile) -> str:
    """Say what is to be known about a column of ids; this is for the curator alone."""
    form = profile.date_form()
    if form is not None:
        name = toml_string(profile.name)
        return "\n" + comment(
            f'{name} has dates.  As a part of an id:\n[ids]\ncolumns = ["FILL IN", {name}]'
            f"\ndates = {{{toml_key(profile.name)} = {toml_string(form)}}}"
        )
    lines = [f"{toml_string(profile.name)} looks like an id."]
    lines += [f"WARNING: {warning}." for warning in profile.id_warnings().values()]
    repeated = profile.repeated()
    if repeated:
        lines.append(
            f"WARNING: {repeated:,} of the first rows repeat an id of an earlier row.  Say which"
            ' counts, with duplicates = "first", "last" or "identical" at the top of this file, or'
            " fix the table."
        )
    return "\n" + comment("\n".join(fill(line, _WIDTH) for line in lines))


def _why(profile: ColumnProfile) -> str:
    if profile.use in (Use.ATTRIBUTE, Use.BINS):
        return "has one value in every row, but for its spelling"
    return str(profile.use.value)


def _instead(profile: ColumnProfile) -> str:
    """Show how numbers that look like ids are used as an attribute after all."""
    if not _measured(profile):
        return ""
    (name,) = printable_texts([profile.name])
    proposal = propose(profile, name)
    column = None if name == profile.name else profile.name
    lines = attribute_lines(name, column, proposal.rule)
    return f"  If it holds measurements:\n  {_inline(proposal.attribute)},\n" + "\n".join(lines)


def _study_text(me: PublicIdentity, title: str, epsilon: float) -> str:
    return (
        comment(_ABOUT_DRAFT.format(what="study", name=toml_string(me.name)))
        + f"\ntitle = {toml_string(title)}\nepsilon = {toml_number(epsilon)}\n\n"
        + comment(_ABOUT_POPULATION)
        + "# expected_population = 10000\n\n"
    )


def _parties_text(look: _Look, mode: str) -> str:
    attributes = "".join(f"    {_inline(proposal.attribute)},\n" for proposal in look.proposals)
    nothing = "    # FILL IN: no column of the table could be proposed; see the recode file.\n"
    named = ", ".join(toml_string(profile.name) for profile in look.ids)
    about = f"Columns that look like ids: {named}" if named else "No column looks like an id."
    warned = {rule for profile in look.ids for rule in profile.id_warnings()}
    rules = tuple(rule for rule in RULES if rule in warned)
    return (
        "[linkage]\n"
        + comment(about)
        + f'by = "ids"\ncolumns = 1\n{mode}normalisation = {toml_strings(rules)}\n\n'
        + f'[[curators]]\nidentity = "me"\nattributes = [\n{attributes or nothing}]\n\n'
        + comment("FILL IN: the file with the partner's public identity, and its attributes.")
        + f"[[curators]]\nidentity = {toml_string(PARTNER_FILE)}\nattributes = [\n"
        + '    # {name = "income", categories = ["low", "high"]},\n]\n'
    )


_ABOUT_DRAFT = """\
A {what} file, drafted from a table of {name}.  Read it, correct it, and complete it
where it says FILL IN, before you show it to anybody.

The categories are the values that occur in the table; how often they do is not written here.
But a category that few people have can reveal something by standing here at all: merge such
categories, and remove attributes that nobody needs."""

_ABOUT_POPULATION = """\
FILL IN: about how many respondents the curators have in common.  If all hold the same respondents
and may know how many there are, write population instead."""

ABOUT_RECODE = """\
How your own table maps to the attributes of the study.  Keep this file: it is never sent, and
it says more about the table than the study file does."""


def _inline(attribute: Attribute) -> str:
    return (
        f"{{name = {toml_string(attribute.name)},"
        f" categories = {toml_strings(attribute.categories)}}}"
    )
