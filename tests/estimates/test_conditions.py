"""The language of conditions: what it means, and where it points when it is misused."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from veiltab.core.schema import Attribute, Schema
from veiltab.errors import ConditionError, VeiltabError
from veiltab.inference.conditions import MAX_DEPTH, quote, quote_name, read_condition

SCHEMA = Schema(
    [
        Attribute("salary", ["<=50K", ">50K"]),
        Attribute("marital status", ["single", "married", "it's complicated"]),
        Attribute("not", ["a", "b"]),
    ]
)
ORDERED = Schema(
    [
        Attribute("age", ["0–17", "18–49", "50–64", "65+"]),
        Attribute("income", ["<10", "10 to <20.5", ">=20.5"]),
        Attribute("children", ["-1", "0", "2"]),
        Attribute("2020", ["a", "b"]),
    ]
)
Row = dict[str, str]


def rows() -> list[Row]:
    """Return every cell's categories, in the cells' order."""
    return [
        dict(zip(SCHEMA.names, SCHEMA.labels(cell), strict=True))
        for cell in range(SCHEMA.domain_size)
    ]


MEANINGS: list[tuple[str | dict[str, Any], Callable[[Row], bool]]] = [
    ("salary = '>50K'", lambda r: r["salary"] == ">50K"),
    ("salary == '>50K'", lambda r: r["salary"] == ">50K"),
    ("salary != '>50K'", lambda r: r["salary"] != ">50K"),
    ("salary<>'>50K'", lambda r: r["salary"] != ">50K"),
    ("\"marital status\" = 'it''s complicated'", lambda r: "'" in r["marital status"]),
    ("\"not\" = 'a'", lambda r: r["not"] == "a"),
    ("not \"not\" = 'a'", lambda r: r["not"] != "a"),
    (
        "\"marital status\" in ('single', 'married')",
        lambda r: r["marital status"] in {"single", "married"},
    ),
    ("\"marital status\" not in ('single')", lambda r: r["marital status"] != "single"),
    (
        "salary = '>50K' or \"not\" = 'a' and \"marital status\" = 'single'",
        lambda r: r["salary"] == ">50K" or (r["not"] == "a" and r["marital status"] == "single"),
    ),
    (
        "(salary = '>50K' or \"not\" = 'a') AND \"marital status\" = 'single'",
        lambda r: (r["salary"] == ">50K" or r["not"] == "a") and r["marital status"] == "single",
    ),
    (
        "not (salary = '>50K' or \"not\" = 'a')",
        lambda r: not (r["salary"] == ">50K" or r["not"] == "a"),
    ),
    ("not not salary = '>50K'", lambda r: r["salary"] == ">50K"),
    ({"salary": ">50K"}, lambda r: r["salary"] == ">50K"),
    (
        {"salary": ">50K", "marital status": ["single", "married"]},
        lambda r: r["salary"] == ">50K" and r["marital status"] in {"single", "married"},
    ),
]


@pytest.mark.parametrize(("condition", "meaning"), MEANINGS, ids=[str(c) for c, _ in MEANINGS])
def test_a_condition_holds_in_the_cells_that_it_means(
    condition: str | dict[str, Any], meaning: Callable[[Row], bool]
) -> None:
    """Cell by cell, against the same condition in Python; mappings read back as text too."""
    found = read_condition(condition, SCHEMA)
    assert found.mask.tolist() == [meaning(row) for row in rows()]
    again = read_condition(found.text, SCHEMA)
    assert (again.mask == found.mask).all()


ORDERS = [
    ("age >= 50", "age", ["50–64", "65+"]),
    ("age > 49", "age", ["50–64", "65+"]),
    ("age < 18", "age", ["0–17"]),
    ("age <= 17", "age", ["0–17"]),
    ("age >= 17.5", "age", ["18–49", "50–64", "65+"]),
    ("age ≥ 18 and not age ≥ 65", "age", ["18–49", "50–64"]),
    ("age >= '50–64'", "age", ["50–64", "65+"]),
    ("age > '50–64'", "age", ["65+"]),
    ("age <= '18–49'", "age", ["0–17", "18–49"]),
    ("age < '18–49'", "age", ["0–17"]),
    ("income >= 20.5", "income", [">=20.5"]),
    ("income < 1e1", "income", ["<10"]),
    ("children > -1", "children", ["0", "2"]),
    ("children <= −1", "children", ["-1"]),
    ("children<.5", "children", ["-1", "0"]),
    ("2020 > 'a'", "2020", ["b"]),
]


@pytest.mark.parametrize(("condition", "name", "categories"), ORDERS)
def test_categories_are_compared_by_their_bounds_or_their_order(
    condition: str, name: str, categories: list[str]
) -> None:
    """The same cells as if the categories had been listed."""
    found = read_condition(condition, ORDERED)
    assert (found.mask == read_condition({name: categories}, ORDERED).mask).all()


CUTS = [
    (
        "age >= 55",
        "55 cuts through the category '50–64' of 'age' (50 to 64)",
        ">= 0, >= 18, >= 50, >= 65",
    ),
    ("age <= 18", "18 cuts through the category '18–49'", "<= 17, <= 49, <= 64"),
    ("income > 10", "'10 to <20.5' of 'income' (10 to <20.5)", ">= 10, >= 20.5"),
    ("income <= 20.5", "'>=20.5' of 'income' (from 20.5)", "< 10, < 20.5"),
    ("income < 5", "the category '<10' of 'income' (below 10)", "< 10, < 20.5"),
]


@pytest.mark.parametrize(("condition", "message", "hint"), CUTS)
def test_a_number_that_cuts_a_category_is_refused(condition: str, message: str, hint: str) -> None:
    """The hint lists the numbers that do not."""
    with pytest.raises(ConditionError) as caught:
        read_condition(condition, ORDERED)
    assert message in caught.value.message
    assert "at character" in caught.value.message
    assert hint in caught.value.hint


MISTAKES: list[tuple[Any, str, str, int | None]] = [
    ("", "the condition ends where an attribute should be", "write it as", 0),
    ("salry = '>50K'", "there is no attribute 'salry', at character 1", "'salary'", 0),
    ("zzz = '>50K'", "there is no attribute 'zzz'", "'marital status'", 0),
    ("salary = '>60K'", "no category '>60K', at character 10", "'>50K'", 9),
    ("salary = 'poor'", "no category 'poor'", "its categories are", 9),
    ("salary = >50K", "'>' stands where a category in single quotes", "write it as", 9),
    ("salary > 50", "its category '<=50K' states none", "salary > '<=50K'", 9),
    ("salary >", "the condition ends where a number, or a category in single", "write it", 8),
    ("salary >= rich", "'rich' stands where a number, or a category", "write it as", 10),
    ("salary >= '60K'", "no category '60K', at character 11", "its categories are", 10),
    ("salary > '>50K'", "nobody can meet", "'or'", None),
    ("salary = rich", "'rich' stands where a category in single quotes", "write it as", 9),
    ('salary = ">50K"', "stands where a category in single quotes", "write it as", 9),
    ("salary '>50K'", "stands where =, !=, <, <=, >, >= or in should be", "write it as", 7),
    ("salary = '>50K", "the quote is never closed", "write it as", 9),
    ("salary = '>50K' salary", "'salary' stands where 'and', 'or' or the end", "write it", 16),
    ("(salary = '>50K'", "the condition ends where a closing parenthesis", "write it as", 16),
    ("salary in '>50K'", "stands where an opening parenthesis", "write it as", 10),
    ("salary in ('>50K'", "ends where a comma or a closing parenthesis", "write it as", 17),
    ("salary in ()", "')' stands where a category", "write it as", 11),
    ("and = 'a'", "'and' stands where an attribute should be", "write it as", 0),
    ("salary = '>50K' and", "the condition ends where an attribute", "write it as", 19),
    ("salary = '>50K' and salary = '<=50K'", "nobody can meet", "'or'", None),
    ("(" * 200, f"more than {MAX_DEPTH} parentheses", "simplify", 100),
    ("not " * 200, f"more than {MAX_DEPTH} parentheses", "simplify", 400),
    ("x" * 200_000, "200,000 characters", "at most", None),
    ({}, "the condition is empty", "at least one", None),
    ({"sallary": "a"}, "there is no attribute 'sallary'", "'salary'", None),
    ({"salary": "a"}, "no category 'a'", "its categories are", None),
    ({"salary": []}, "nobody can meet", "'or'", None),
    (
        {"salary": 5},
        "the categories of 'salary' must be a text or a list of texts, not 5",
        "'>50K'",
        None,
    ),
    (7, "text or a mapping, not int", "write it as", None),
    ("__import__('os').system('x')", "'.' has no meaning, at character 17", "write it as", 16),
]


@pytest.mark.parametrize(
    ("condition", "message", "hint", "position"), MISTAKES, ids=[str(m[0])[:30] for m in MISTAKES]
)
def test_a_mistake_is_named_and_placed(
    condition: str | dict[str, Any], message: str, hint: str, position: int | None
) -> None:
    """The message says what is wrong and where; the hint what was probably meant."""
    with pytest.raises(ConditionError) as caught:
        read_condition(condition, SCHEMA)
    assert message in caught.value.message
    assert hint in caught.value.hint
    assert caught.value.position == position


@given(st.text(alphabet="salary=!<>≤'\"()andornotin ,.-+e50Kab", max_size=60))
def test_no_text_ends_in_anything_but_a_condition_or_its_error(text: str) -> None:
    """Whatever is typed, there is no other exception."""
    try:
        found = read_condition(text, SCHEMA)
    except VeiltabError as error:
        assert isinstance(error, ConditionError)  # noqa: PT017 - both outcomes are fine
    else:
        assert found.mask.dtype == np.bool_


@given(name=st.text(min_size=1, max_size=12), category=st.text(min_size=1, max_size=12))
def test_every_name_and_category_can_be_written(name: str, category: str) -> None:
    """Quoting makes any attribute reachable, whatever its characters."""
    try:
        schema = Schema([Attribute(name, [category, category + "!"])])
    except VeiltabError:
        return  # not a name that a schema takes
    found = read_condition(f"{quote_name(name)} = {quote(category)}", schema)
    assert found.mask.tolist() == [True, False]
