"""Formulas in the usual notation, such as ``salary ~ gender * education + scores(age)``.

The right side is read by formulaic's parser, which knows ``+``, ``-``, ``:``, ``*``, ``/``, ``**``
and parentheses.  A factor is an attribute's name (in backticks if it is not a plain word),
``C(name)`` with a coding, or ``scores(name)``; anything else is refused.  Nothing of a formula is
ever evaluated as Python: formulaic gets columns that were looked up here.
"""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from veiltab.core.released import Shares
from veiltab.core.schema import Attribute, Schema
from veiltab.errors import FormulaError
from veiltab.inference.conditions import shorten, suggest
from veiltab.inference.scores import NamedScores, ordered_scores

if TYPE_CHECKING:
    from formulaic.parser.types import ASTNode, Factor, Term

Attributes = Sequence[Attribute]

MAX_LENGTH = 10_000
MOST_TERMS = 5_000
"""How many products a formula may have before equal ones are merged."""

INTERCEPT = "Intercept"
_HINT = "write it as in: salary ~ gender * education + scores(age)"
_FACTORS = (
    "use attributes' names (in backticks if they are not plain words), C(name),"
    " C(name, Treatment('category')), C(name, Sum), C(name, Poly) and scores(name)"
)
_NAME = r"(?:`(?P<quoted>[^`]+)`|(?P<plain>[^\W\d][\w.]*))"
_CODING = (
    r"(?:\s*,\s*(?P<coding>Treatment|Sum|Poly)\s*"
    r"(?:\(\s*(?:'(?P<single>[^'\\]*)'|\"(?P<double>[^\"\\]*)\")?\s*\))?)?"
)
_CALL = re.compile(rf"\s*(?P<call>C|scores?)\s*\(\s*{_NAME}{_CODING}\s*\)\s*")


class Variable(NamedTuple):
    """An attribute as a formula uses it: by scores, or by categories in some coding."""

    name: str
    coding: str = "Treatment"
    base: str | None = None

    @property
    def label(self) -> str:
        """How columns name it."""
        if self.coding == "scores":
            return f"scores({self.name})"
        return self.name


@dataclass(frozen=True, slots=True)
class Formula:
    """A formula that was read: the outcome's text, and the terms as sets of variables."""

    text: str
    outcome: str | None
    terms: tuple[tuple[Variable, ...], ...]

    @property
    def names(self) -> list[str]:
        """The attributes on the right side, in the order in which they appear."""
        return list(dict.fromkeys(variable.name for term in self.terms for variable in term))

    @property
    def has_intercept(self) -> bool:
        """Whether the intercept is there."""
        return () in self.terms


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The columns of a formula for every pattern of its attributes.

    ``terms`` has for each term of the formula, by its name, the numbers of its columns.
    """

    names: tuple[str, ...]
    design: Shares
    terms: dict[str, list[int]]


def read_formula(text: str, schema: Schema) -> Formula:
    """Read a formula; its right side may use the attributes of the schema, and nothing else."""
    if not isinstance(text, str):
        raise FormulaError(f"a formula is text, not {type(text).__name__}", hint=_HINT)
    if len(text) > MAX_LENGTH:
        raise FormulaError(
            f"the formula has {len(text):,} characters", hint=f"use at most {MAX_LENGTH:,}"
        )
    outcome, right = _sides(text)
    terms = [
        tuple(_variable(factor, schema) for factor in term.factors if factor.expr != "1")
        for term in _expand(right)
    ]
    if not terms:
        raise FormulaError(
            "the right side of the formula has no term left",
            hint="leave the intercept in with 1, or name an attribute",
        )
    return Formula(text, outcome, tuple(dict.fromkeys(terms)))


def _sides(text: str) -> tuple[str | None, str]:
    """Split at the tilde that stands outside of quotes."""
    pieces, quote, start = [], "", 0
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"`":
            quote = character
        elif character == "~":
            pieces.append(text[start:place])
            start = place + 1
    pieces.append(text[start:])
    if len(pieces) > 2:  # noqa: PLR2004 - two sides
        raise FormulaError("the formula has more than one '~'", hint=_HINT)
    left = pieces[0].strip() if len(pieces) > 1 else ""
    return left or None, pieces[-1].strip()


def _expand(right: str) -> "Iterable[Term]":
    """Let formulaic read the right side, and bring it to a sum of products."""
    from formulaic.errors import FormulaicError  # noqa: PLC0415 - formulaic loads pandas
    from formulaic.parser import DefaultFormulaParser  # noqa: PLC0415 - as above
    from formulaic.parser.types import ASTNode  # noqa: PLC0415 - as above

    if not right:
        raise FormulaError("the right side of the formula is empty", hint=_HINT)
    parser = DefaultFormulaParser(feature_flags=set())
    try:
        tree = parser.get_ast(right, context={})
        if isinstance(tree, ASTNode):
            _check_growth(tree)
        return list(parser.get_terms(right))
    except (FormulaicError, SyntaxError, ValueError, RecursionError, AttributeError) as error:
        reason = re.sub(r"\x1b\[[0-9;]*m|[⧛⧚]", "", str(error)).partition("\n")[0]
        raise FormulaError(
            f"the formula {shorten(right)!r} cannot be read: {shorten(reason)}", hint=_HINT
        ) from error


def _check_growth(tree: "ASTNode") -> None:
    """Refuse products and powers that would have too many terms, before they are multiplied."""
    if _size(tree) > MOST_TERMS:
        raise FormulaError(
            f"the formula multiplies out to more than {MOST_TERMS:,} terms",
            hint="write fewer products and powers",
        )


def _size(node: Any) -> int:  # noqa: ANN401 - a node, a token or a number
    """Return a bound for how many terms a part of a formula has."""
    parts = [_size(part) for part in getattr(node, "args", ())]
    if not parts:
        return 1
    symbol = node.operator.symbol
    if symbol in {"**", "^"}:
        power = str(getattr(node.args[1], "token", ""))
        times = min(int(power), 20) if power.isdecimal() else 1
        return min(int(parts[0] ** times), MOST_TERMS + 1)
    if symbol in {"+", "-", "~"}:
        return sum(parts)
    product = 1
    for part in parts:
        product *= part + 1
    return min(product, MOST_TERMS + 1)


def _variable(factor: "Factor", schema: Schema) -> Variable:
    """Return what a factor stands for; refuse all but names and the few calls."""
    text, kind = factor.expr, factor.eval_method.value
    if kind == "lookup":
        return Variable(_attribute(text, schema).name)
    match = _CALL.fullmatch(text) if kind == "python" else None
    if match is None:
        raise FormulaError(f"{shorten(text)!r} cannot be used in a formula", hint=_FACTORS)
    attribute = _attribute(match["quoted"] or match["plain"], schema)
    base = match["single"] if match["single"] is not None else match["double"]
    if match["call"] != "C":
        if match["coding"]:
            raise FormulaError(f"{shorten(text)!r} has a coding and scores", hint=_FACTORS)
        return Variable(attribute.name, "scores")
    return Variable(attribute.name, match["coding"] or "Treatment", _base(attribute, match, base))


def _attribute(name: str, schema: Schema) -> Attribute:
    for attribute in schema.attributes:
        if attribute.name == name:
            return attribute
    raise FormulaError(
        f"there is no attribute {shorten(name)!r}",
        hint=suggest(name, schema.names, "the attributes are"),
    )


def _base(attribute: Attribute, match: "re.Match[str]", base: str | None) -> str | None:
    """Return the reference category, which only treatment coding has."""
    if base is None:
        return None
    if match["coding"] != "Treatment":
        raise FormulaError(f"{match['coding']} has no reference category", hint=_FACTORS)
    if base not in attribute.categories:
        raise FormulaError(
            f"{attribute.name!r} has no category {base!r}",
            hint=suggest(base, attribute.categories, "its categories are"),
        )
    return base


def columns(formula: Formula, attributes: Attributes, scores: NamedScores) -> Columns:
    """Return the columns for each pattern of these attributes, as the cells of a table run.

    Categories are coded as full as the other terms leave room for, by formulaic.
    """
    import pandas as pd  # noqa: PLC0415 - as formulaic, which needs it
    from formulaic import Formula as Terms  # noqa: PLC0415 - as above
    from formulaic.parser.types import Factor, Term  # noqa: PLC0415 - as above

    variables = list(dict.fromkeys(v for term in formula.terms for v in term))
    keys = {variable: f"f{place}" for place, variable in enumerate(variables)}
    codes = pattern_codes(attributes)
    by_name = {attribute.name: place for place, attribute in enumerate(attributes)}
    context = {
        key: _column(
            variable, attributes[by_name[variable.name]], codes[:, by_name[variable.name]], scores
        )
        for variable, key in keys.items()
    }
    lookups = [
        Term([Factor(keys[variable], eval_method="lookup") for variable in term])
        if term
        else Term([Factor("1", eval_method="literal")])
        for term in formula.terms
    ]
    rows = pd.DataFrame(index=pd.RangeIndex(len(codes)))
    matrix = Terms(lookups).get_model_matrix(
        rows, context=context, output="pandas", na_action="ignore"
    )
    factors = [(variable, attributes[by_name[variable.name]]) for variable in variables]
    names = tuple(_written(name, factors) for name in matrix.columns)
    indices = {
        _term_name(term): list(matrix.model_spec.term_indices[lookup])
        for term, lookup in zip(formula.terms, lookups, strict=True)
    }
    values = np.ascontiguousarray(matrix.to_numpy(), dtype=np.float64)
    return _checked(Columns(names, values, indices))


def pattern_codes(attributes: Attributes) -> NDArray[np.int64]:
    """Return the codes of every pattern: a row per pattern, a column per attribute."""
    sizes = [attribute.size for attribute in attributes]
    return np.indices(sizes).reshape(len(sizes), math.prod(sizes)).T


def _column(
    variable: Variable, attribute: Attribute, codes: NDArray[np.int64], scores: NamedScores
) -> Any:  # noqa: ANN401 - formulaic's
    """Return a variable's values, as formulaic codes them."""
    import pandas as pd  # noqa: PLC0415 - as above
    from formulaic.transforms import contrasts  # noqa: PLC0415 - as above

    if variable.coding == "scores":
        return pd.Series(ordered_scores(attribute, scores)[codes])
    labels = [f"c{code}" for code in range(attribute.size)]
    coding: Any = {
        "Sum": contrasts.SumContrasts,
        "Poly": contrasts.PolyContrasts,
        "Treatment": contrasts.TreatmentContrasts,
    }[variable.coding]
    options = {}
    if variable.base is not None:
        options["base"] = labels[attribute.categories.index(variable.base)]
    values = pd.Series(pd.Categorical.from_codes(codes, labels))
    return contrasts.C(values, coding(**options))


def _written(name: str, factors: Sequence[tuple[Variable, Attribute]]) -> str:
    """Turn formulaic's name of a column, such as ``f0[T.c1]:f2``, into one for people."""
    if name == INTERCEPT:
        return name
    return ":".join(_written_factor(part, factors) for part in name.split(":"))


def _written_factor(part: str, factors: Sequence[tuple[Variable, Attribute]]) -> str:
    key, _, inside = part.rstrip("]").partition("[")
    variable, attribute = factors[int(key[1:])]
    if not inside:
        return variable.label
    mark, dot, code = inside.rpartition(".")
    if not code.startswith("c"):  # a polynomial: .L, .Q, …
        return f"{variable.label}[{inside}]"
    return f"{variable.label}[{mark}{dot}{attribute.categories[int(code[1:])]}]"


def _term_name(term: tuple[Variable, ...]) -> str:
    return ":".join(variable.label for variable in term) or INTERCEPT


def _checked(made: Columns) -> Columns:
    """Refuse columns of which one says nothing that the others do not say."""
    rank = int(np.linalg.matrix_rank(made.design))
    if rank == len(made.names):
        return made
    for last in range(1, len(made.names) + 1):
        if np.linalg.matrix_rank(made.design[:, :last]) < last:
            raise FormulaError(
                f"{made.names[last - 1]!r} says nothing that the terms before it do not say",
                hint="leave out the term, or one of those before it",
            )
    return made
