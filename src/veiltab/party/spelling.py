"""Values of a table that people take for the same, and columns as attributes without such twins."""

import re
from collections.abc import Iterable, Sequence

import polars as pl

from veiltab.core.schema import Attribute
from veiltab.data.folding import RULES
from veiltab.data.patterns import escaped, fold_values
from veiltab.data.profile import (
    ColumnProfile,
    ProposedAttribute,
    Use,
    printable_texts,
)
from veiltab.data.recode import Bins, ValueMap
from veiltab.party.known.names import look

MISSING = "(missing)"
_BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])[\s_\-./,']+(?=[^\W\d_])")
_AT_THE_END = re.compile(r"(?<=\w)[.,;:]+\s*$")


def spelling(text: str) -> str:
    """Return a form that texts share which differ by case, spaces or punctuation between letters.

    Signs that mean something stay: ``A+`` is not ``A-``, and ``1.5`` is not ``15``.
    """
    return look(_AT_THE_END.sub("", _BETWEEN_LETTERS.sub(" ", text)))


def propose(profile: ColumnProfile, name: str) -> ProposedAttribute:
    """Return a column as an attribute: intervals of numbers, or its values grouped by spelling.

    Words for a missing value, and missing values, have a category of their own.
    """
    bins = profile.bins() if profile.use in (Use.BINS, Use.ID) else None
    words = profile.missing_words
    missing = MISSING if words or profile.missing else None
    if bins is not None:
        fold = ("trim",) if _padded(profile.counts) else ()
        bins = Bins(
            bins.edges, missing=missing, missing_values=words, fold=fold, decimal=bins.decimal
        )
        return ProposedAttribute(profile.name, bins.attribute(name), bins)
    groups: dict[str, list[str]] = {}
    for text in profile.values:
        if text not in words:
            groups.setdefault(spelling(text), []).append(text)
    categories = printable_texts([_best(group).strip() for group in groups.values()])
    if missing is not None:
        (missing,) = printable_texts([missing], categories)
    pairs = list(zip(categories, groups.values(), strict=True))
    every = categories if missing is None else [*categories, missing]
    rule = value_map(pairs, missing, words)
    return ProposedAttribute(profile.name, Attribute(name, every), rule)


def value_map(
    groups: Iterable[tuple[str, Sequence[str]]], missing: str | None, words: Sequence[str]
) -> ValueMap | None:
    """Return the shortest rule that maps the texts of each group to its category, if one is needed.

    Texts are folded where that saves lines.
    """
    pairs = [(category, text) for category, group in groups for text in group]
    fold = RULES if any(t != n and _fold(t) == _fold(n) for n, t in pairs) else ()
    entries: dict[str | None, str] = {} if missing is None else {None: missing}
    listed: set[str] = set()
    for category, text in pairs:
        form = _fold(text) if fold else text
        if form != (_fold(category) if fold else category) and form not in listed:
            listed.add(form)
            entries[escaped(text)] = category
    if not entries and not fold:
        return None
    return ValueMap(entries, fold=fold, missing_values=words)


def _fold(text: str) -> str:
    return str(fold_values(pl.Series([text], dtype=pl.String), RULES)[0])


def _padded(texts: Iterable[str]) -> bool:
    return any(text != text.strip() for text in texts)


def _best(group: Sequence[str]) -> str:
    """Choose the spelling that names a category, whatever the counts are."""
    return min(
        group, key=lambda text: (text != text.strip(), len(text) > 1 and text.isupper(), text)
    )
