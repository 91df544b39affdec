"""A first study or vault file, drafted from a table: to be read and completed by a person.

The file is for sharing, so it has no counts, and nothing of columns that it leaves out but
the names of those that look like ids.  Everything else goes into a recode file, which stays with
the curator.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from veiltab.core.schema import Attribute
from veiltab.data.profile import (
    ColumnProfile,
    ProposedAttribute,
    Use,
    printable_texts,
    profile_table,
    propose_attribute,
)
from veiltab.data.recode import Recode, recode_text
from veiltab.files.toml import comment, toml_key, toml_number, toml_string, toml_strings
from veiltab.wire.contract import PublicIdentity

LARGEST_DOMAIN = 1 << 20
"""Joint cells of the drafted attributes; with more, a release would be all noise."""

PARTNER_FILE = "FILL-IN.json"
"""Stands where the partner's identity file is to be named."""


@dataclass(frozen=True, slots=True)
class Draft:
    """The text of a study or vault file to complete and share, and a recode file to keep."""

    kind: Literal["study", "vault"]
    text: str
    recode: str


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
    ids, proposals, recode = _propose(table)
    parties = _parties_text(ids, proposals, 'mode = "aligned"\n')
    return Draft("study", _study_text(me, title, epsilon) + parties, recode)


def draft_vault(
    table: pl.DataFrame | Iterable[pl.DataFrame],
    me: PublicIdentity,
    *,
    title: str = "FILL IN: a title",
) -> Draft:
    """Propose the columns of a table as attributes of a vault."""
    ids, proposals, recode = _propose(table)
    about = comment(_ABOUT_DRAFT.format(what="vault", name=toml_string(me.name)))
    text = f"{about}\ntitle = {toml_string(title)}\n\n"
    return Draft("vault", text + _parties_text(ids, proposals, ""), recode)


def _propose(
    table: pl.DataFrame | Iterable[pl.DataFrame],
) -> tuple[list[str], list[ProposedAttribute], str]:
    """Return the columns that look like ids, the proposed attributes, and a recode file."""
    profiles = profile_table(table)
    names = printable_texts([profile.name for profile in profiles])
    proposals, too_many, cells = [], [], 1
    for profile, name in zip(profiles, names, strict=True):
        if profile.use is not Use.ATTRIBUTE:
            continue
        proposal = propose_attribute(profile, name)
        if cells * proposal.attribute.size > LARGEST_DOMAIN:
            too_many.append(proposal)
        else:
            cells *= proposal.attribute.size
            proposals.append(proposal)
    ids = [profile.name for profile in profiles if profile.use is Use.ID]
    return ids, proposals, _recode_text(proposals) + _unused(profiles, names, too_many)


def _study_text(me: PublicIdentity, title: str, epsilon: float) -> str:
    return (
        comment(_ABOUT_DRAFT.format(what="study", name=toml_string(me.name)))
        + f"\ntitle = {toml_string(title)}\nepsilon = {toml_number(epsilon)}\n\n"
        + comment(_ABOUT_POPULATION)
        + "# expected_population = 10000\n\n"
    )


def _parties_text(ids: Sequence[str], proposals: Sequence[ProposedAttribute], mode: str) -> str:
    attributes = "".join(f"    {_inline(proposal.attribute)},\n" for proposal in proposals)
    nothing = "    # FILL IN: no column of the table could be proposed; see the recode file.\n"
    named = ", ".join(map(toml_string, ids))
    id_comment = f"Columns that look like ids: {named}" if ids else "No column looks like an id."
    return (
        "[linkage]\n"
        + comment(id_comment)
        + f'by = "ids"\ncolumns = 1\n{mode}normalisation = []\n\n'
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

_ABOUT_RECODE = """\
How your own table maps to the attributes of the study.  Keep this file: it is never sent, and
it says more about the table than the study file does."""


def _recode_text(proposals: Sequence[ProposedAttribute]) -> str:
    rules = {
        proposal.attribute.name: proposal.rule
        for proposal in proposals
        if proposal.rule is not None
    }
    columns = {
        proposal.attribute.name: proposal.column
        for proposal in proposals
        if proposal.attribute.name != proposal.column
    }
    return comment(_ABOUT_RECODE) + "\n" + recode_text(Recode(rules, columns))


def _unused(
    profiles: Sequence[ColumnProfile], names: Sequence[str], too_many: Sequence[ProposedAttribute]
) -> str:
    """Say, in comments, why each other column was left out, and what can be done about it."""
    parts = []
    for profile, name in zip(profiles, names, strict=True):
        use = profile.use
        if use is Use.BINS:
            parts.append(_bins_text(profile, name))
        elif use is not Use.ATTRIBUTE:
            parts.append(comment(f"Left out: {toml_string(profile.name)} {use.value}."))
    parts += [
        comment(
            f"Left out: {toml_string(proposal.column)} would make too many joint cells."
            f"  To use it instead of others:\n  {_inline(proposal.attribute)},"
        )
        for proposal in too_many
    ]
    return "".join(f"\n{part}" for part in parts)


def _bins_text(profile: ColumnProfile, name: str) -> str:
    bins = profile.bins()
    if bins is None:
        return ""
    edges = ", ".join(map(toml_number, bins.edges))
    missing = "\nFill its missing values first: bins take numbers only." if profile.missing else ""
    column = f"\nIn [columns]: {toml_key(name)} = {toml_string(profile.name)}"
    return comment(
        f"Left out: {toml_string(profile.name)} {Use.BINS.value}.  To use it in intervals, copy"
        " this to your attributes in the\nstudy file, and take away the # of the lines below it:"
        f"\n  {_inline(bins.attribute(name))},{missing}{column if name != profile.name else ''}"
        f"\n[bins.{toml_key(name)}]\nedges = [{edges}]"
    )


def _inline(attribute: Attribute) -> str:
    return (
        f"{{name = {toml_string(attribute.name)},"
        f" categories = {toml_strings(attribute.categories)}}}"
    )
