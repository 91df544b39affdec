"""Conditions on attributes, such as ``salary = '>50K' and not gender in ('female', 'other')``.

A small language, read by hand: names (in double quotes if they are not plain words), ``=``,
``!=``, ``in (…)``, ``and``, ``or``, ``not`` and parentheses; categories stand in single quotes,
where ``''`` is a quote.  ``<``, ``<=``, ``>`` and ``>=`` compare with a number, by the bounds that
the categories' names state, or with a category, by the schema's order.  Nothing is ever evaluated
as Python.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np
from numpy.typing import NDArray

from veiltab.core.schema import Attribute, Schema
from veiltab.errors import ConditionError
from veiltab.inference.scores import Span, spans_of

Mask = NDArray[np.bool_]
Categories = str | Sequence[str]

MAX_LENGTH = 100_000
MAX_DEPTH = 100
"""How deeply parentheses and negations may be nested."""

WORDS = frozenset(("and", "or", "not", "in"))
_TOKEN = re.compile(
    r"""\s*(?:(?P<text>'(?:[^']|'')*')|(?P<quoted>"(?:[^"]|"")*")|(?P<sign>!=|<>|==|=|<=|>=|<|>"""
    r"""|\u2264|\u2265|\(|\)|,)|(?P<number>[-+\u2212]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"""
    r"""(?:[eE][-+]?[0-9]+)?(?![\w.]))|(?P<word>\w+)|(?P<end>$)|(?P<other>.))""",
    re.DOTALL,
)
ORDERED = {"<": "<", "<=": "<=", ">": ">", ">=": ">=", "\u2264": "<=", "\u2265": ">="}
"""Signs that compare, and how they are written in ASCII."""

_SHOWN = 40
_BOUNDS = 10
_HINT = "write it as in: salary = '>50K' and \"marital status\" in ('single', 'widowed')"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition that somebody can meet: its text, and which cells of the schema meet it."""

    text: str
    mask: Mask


def read_condition(condition: str | Mapping[str, Categories], schema: Schema) -> Condition:
    """Read a condition, as text or as ``{attribute: category or categories}``.

    A condition that no cell meets is refused: its share would be zero whatever the data.
    """
    if isinstance(condition, str):
        text, mask = condition, _Reader(condition, schema).read()
    elif isinstance(condition, Mapping):
        text, mask = _from_mapping(condition, schema)
    else:
        raise ConditionError(
            f"a condition is text or a mapping, not {type(condition).__name__}",
            hint="write it as in \"salary = '>50K'\" or {'salary': '>50K'}",
        )
    return combine(text, np.broadcast_to(mask, schema.sizes).reshape(-1))


def everybody_or(condition: str | Mapping[str, Categories] | None, schema: Schema) -> Condition:
    """Read a condition, by default that which everybody meets."""
    if condition is None:
        return Condition("everybody", np.ones(schema.domain_size, dtype=np.bool_))
    return read_condition(condition, schema)


def combine(text: str, mask: Mask) -> Condition:
    """Return a condition that some cells meet; refuse one that none can."""
    if not mask.any():
        raise ConditionError(
            f"nobody can meet the condition {text}",
            hint="an attribute has one category at a time; use 'or' between two of them",
        )
    return Condition(text, mask)


def negate(condition: Condition) -> Condition:
    """Return the condition that everybody else meets."""
    return combine(f"not ({condition.text})", ~condition.mask)


def other_group(group: Condition, versus: Condition | None) -> Condition:
    """Return the group to compare with, by default everybody else; refuse the same group."""
    if versus is None:
        return negate(group)
    if np.array_equal(group.mask, versus.mask):
        raise ConditionError(
            f"a group is compared with itself: {group.text}, and {versus.text}",
            hint="name another group, or leave it out to compare with everybody else",
        )
    return versus


def describe(names: Iterable[str], categories: Iterable[str]) -> str:
    """Write the condition that attributes have these categories, one each."""
    pairs = zip(names, categories, strict=True)
    return " and ".join(f"{quote_name(name)} = {quote(category)}" for name, category in pairs)


def _from_mapping(condition: Mapping[str, Categories], schema: Schema) -> tuple[str, Mask]:
    if not condition:
        raise ConditionError("the condition is empty", hint="name at least one attribute")
    mask, parts = np.ones((1,) * len(schema.sizes), dtype=np.bool_), []
    for name, wanted in condition.items():
        attribute = _attribute(name, schema, None)
        categories = _listed(wanted, attribute)
        mask = mask & _chosen(attribute, [(category, None) for category in categories], schema)
        listed = ", ".join(map(quote, categories))
        several = f"{quote_name(name)} in ({listed})"
        parts.append(describe([name], categories) if len(categories) == 1 else several)
    return " and ".join(parts), mask


def _listed(wanted: object, attribute: Attribute) -> list[str]:
    """Return the categories that a mapping asks for, as a list."""
    listed = [wanted] if isinstance(wanted, str) else wanted
    if isinstance(listed, list | tuple | set | frozenset) and all(
        isinstance(category, str) for category in listed
    ):
        return list(listed)
    raise ConditionError(
        f"the categories of {attribute.name!r} must be a text or a list of texts, not {wanted!r}",
        hint=f"write it as in {{{attribute.name!r}: {attribute.categories[-1]!r}}}",
    )


def _attribute(name: object, schema: Schema, position: int | None) -> Attribute:
    for attribute in schema.attributes:
        if attribute.name == name:
            return attribute
    hint = suggest(str(name), schema.names, "the attributes are")
    raise ConditionError(
        f"there is no attribute {name!r}{_at(position)}", hint=hint, position=position
    )


def _chosen(
    attribute: Attribute, wanted: Iterable[tuple[object, int | None]], schema: Schema
) -> Mask:
    """Return which categories are wanted, along the attribute's axis of the table."""
    codes = {category: code for code, category in enumerate(attribute.categories)}
    chosen = np.zeros(attribute.size, dtype=np.bool_)
    for category, position in wanted:
        if category not in codes:
            raise ConditionError(
                f"{attribute.name!r} has no category {category!r}{_at(position)}",
                hint=suggest(str(category), attribute.categories, "its categories are"),
                position=position,
            )
        chosen[codes[category]] = True
    axis = schema.names.index(attribute.name)
    return chosen.reshape([-1 if i == axis else 1 for i in range(len(schema.names))])


def _compared(attribute: Attribute, sign: str, token: "_Token", schema: Schema) -> Mask:
    """Return the categories that lie entirely on the wanted side of a number."""
    number = float(token.text.replace("\u2212", "-"))
    chosen = np.zeros(attribute.size, dtype=np.bool_)
    spans = spans_of(attribute)
    for code, (category, span) in enumerate(zip(attribute.categories, spans, strict=True)):
        if span is None:
            raise ConditionError(
                f"{attribute.name!r} cannot be compared with a number{_at(token.position)}: its"
                f" category {category!r} states none",
                hint=f"compare it with a category, as in {quote_name(attribute.name)} {sign}"
                f" {quote(category)}, or list categories with in (…)",
                position=token.position,
            )
        side = span.compared(sign, number)
        if side is None:
            raise ConditionError(
                f"{shorten(token.text)} cuts through the category {category!r} of"
                f" {attribute.name!r} ({span}){_at(token.position)}",
                hint=_uncut(spans, sign),
                position=token.position,
            )
        chosen[code] = side
    axis = schema.names.index(attribute.name)
    return chosen.reshape([-1 if i == axis else 1 for i in range(len(schema.names))])


def _uncut(spans: Sequence[Span | None], sign: str) -> str:
    """List the numbers at which a comparison cuts no category, or the sign that has such."""
    named = [span for span in spans if span is not None]
    ends = sorted({end for span in named for end in (span.low, span.high) if np.isfinite(end)})
    for other in (sign, {">": ">=", "<=": "<"}.get(sign, sign)):
        good = [
            f"{other} {end:g}"
            for end in ends
            if all(span.compared(other, end) is not None for span in named)
        ]
        if good:
            more = " and others" if len(good) > _BOUNDS else ""
            return f"these cut no category: {', '.join(good[:_BOUNDS])}{more}"
    return "list categories with in (…)"


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    position: int


class _Reader:
    """A recursive-descent parser: or, and, not, comparison, from loosest to tightest."""

    def __init__(self, text: str, schema: Schema) -> None:
        if len(text) > MAX_LENGTH:
            raise ConditionError(
                f"the condition has {len(text):,} characters", hint=f"use at most {MAX_LENGTH:,}"
            )
        self._schema = schema
        self._tokens = list(_tokens(text))
        self._next = 0
        self._depth = 0

    def read(self) -> Mask:
        mask = self._either()
        if self._here.kind != "end":
            raise self._unexpected("'and', 'or' or the end")
        return mask

    @property
    def _here(self) -> _Token:
        return self._tokens[self._next]

    def _take(self, *texts: str) -> _Token | None:
        """Step over the next token if it is one of these words or signs."""
        token = self._here
        plain = token.kind in {"sign", "word"}
        if not plain or token.text.lower() not in texts:
            return None
        self._next += 1
        return token

    def _either(self) -> Mask:
        mask = self._both()
        while self._take("or"):
            mask = mask | self._both()
        return mask

    def _both(self) -> Mask:
        mask = self._one()
        while self._take("and"):
            mask = mask & self._one()
        return mask

    def _one(self) -> Mask:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise self._error(f"more than {MAX_DEPTH} parentheses are open", "simplify it")
        if self._take("not"):
            mask = ~self._one()
        elif self._take("("):
            mask = self._either()
            if not self._take(")"):
                raise self._unexpected("a closing parenthesis")
        else:
            mask = self._comparison()
        self._depth -= 1
        return mask

    def _comparison(self) -> Mask:
        attribute = self._name()
        if self._take("=", "=="):
            return _chosen(attribute, [self._category(attribute)], self._schema)
        if self._take("!=", "<>"):
            return ~_chosen(attribute, [self._category(attribute)], self._schema)
        sign = self._take(*ORDERED)
        if sign is not None:
            return self._ordered(attribute, ORDERED[sign.text])
        negated = self._take("not") is not None
        if not self._take("in"):
            raise self._unexpected("=, !=, <, <=, >, >= or in")
        chosen = _chosen(attribute, self._list(attribute), self._schema)
        return ~chosen if negated else chosen

    def _ordered(self, attribute: Attribute, sign: str) -> Mask:
        token = self._here
        if token.kind == "number":
            self._next += 1
            return _compared(attribute, sign, token, self._schema)
        if token.kind != "text":
            example = quote(attribute.categories[0])
            raise self._unexpected(f"a number, or a category in single quotes, such as {example},")
        place = _chosen(attribute, [self._category(attribute)], self._schema)
        upwards = np.logical_or.accumulate(place.reshape(-1)).reshape(place.shape)
        at_least: Mask = upwards if sign in {">=", "<"} else upwards & ~place
        return at_least if sign in {">=", ">"} else ~at_least

    def _name(self) -> Attribute:
        token = self._here
        if token.kind == "quoted":
            name = token.text[1:-1].replace('""', '"')
        elif re.fullmatch(r"\w+", token.text) and token.text.lower() not in WORDS:
            name = token.text
        else:
            raise self._unexpected("an attribute")
        self._next += 1
        return _attribute(name, self._schema, token.position)

    def _category(self, attribute: Attribute) -> tuple[str, int]:
        token = self._here
        if token.kind != "text":
            example = quote(attribute.categories[0])
            raise self._unexpected(f"a category in single quotes, such as {example},")
        self._next += 1
        return token.text[1:-1].replace("''", "'"), token.position

    def _list(self, attribute: Attribute) -> list[tuple[str, int]]:
        if not self._take("("):
            raise self._unexpected("an opening parenthesis")
        categories = [self._category(attribute)]
        while self._take(","):
            categories.append(self._category(attribute))
        if not self._take(")"):
            raise self._unexpected("a comma or a closing parenthesis")
        return categories

    def _unexpected(self, wanted: str) -> ConditionError:
        token = self._here
        here = "the condition ends" if token.kind == "end" else f"{shorten(token.text)!r} stands"
        return self._error(f"{here} where {wanted} should be", _HINT)

    def _error(self, message: str, hint: str) -> ConditionError:
        position = self._here.position
        return ConditionError(f"{message}{_at(position)}", hint=hint, position=position)


def _tokens(text: str) -> Iterable[_Token]:
    position = 0
    while True:
        match = _TOKEN.match(text, position)
        assert match is not None  # noqa: S101 - the last alternative matches any character
        kind = match.lastgroup or "end"
        start = match.start(kind)
        if kind == "other":
            raise ConditionError(
                f"{text[start]!r} has no meaning{_at(start)}"
                + (": the quote is never closed" if text[start] in "'\"" else ""),
                hint=_HINT,
                position=start,
            )
        yield _Token(kind, match[kind], start)
        if kind == "end":
            return
        position = match.end()


def _at(position: int | None) -> str:
    return "" if position is None else f", at character {position + 1}"


def suggest(wrong: str, known: Sequence[str], listing: str) -> str:
    """Suggest what was probably meant, or list what there is."""
    folded = {name.casefold(): name for name in known}
    close = get_close_matches(wrong.casefold(), folded, n=1)
    if close:
        return f"did you mean {folded[close[0]]!r}?"
    shown = ", ".join(map(repr, known[:10]))
    return f"{listing} {shown}{' and others' if len(known) > 10 else ''}"  # noqa: PLR2004


def quote(category: str) -> str:
    """Write a category as the language reads it."""
    return "'" + category.replace("'", "''") + "'"


def quote_name(name: str) -> str:
    """Write an attribute's name as the language reads it."""
    if re.fullmatch(r"\w+", name) and name.lower() not in WORDS:
        return name
    return '"' + name.replace('"', '""') + '"'


def shorten(text: str) -> str:
    """Return the beginning of a long text, for messages."""
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
