"""Rules on real tables: patterns, folding, else, missing values; equal to a plain reference."""

import unicodedata
from collections.abc import Sequence

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.cases import for_each
from veiltab.core.schema import Attribute, Schema
from veiltab.data.encoding import encode_column, encode_table
from veiltab.data.folding import RULES, folded
from veiltab.data.patterns import MOST_PATTERNS, Pattern, PatternTable, escaped, parse_pattern
from veiltab.data.recode import Bins, Rule, ValueMap
from veiltab.errors import SchemaError, ValueNotInSchemaError

ABC = Attribute("x", ["lung", "breast", "other", "unknown"])


def codes(values: Sequence[object], rule: Rule, attribute: Attribute = ABC) -> list[str]:
    """Return the categories of some values."""
    column = pl.Series("x", values, strict=False)
    return [attribute.categories[code] for code in encode_column(column, attribute, rule)]


CANCER = ValueMap(
    {"C34*": "lung", "c33": "lung", "C50*": "breast", "C34.9": "unknown", None: "unknown"},
    fold=["nfc", "trim", "lowercase"],
    missing_values=["n/a", ""],
    otherwise="other",
)


def test_codes_of_a_hospital() -> None:
    """Prefixes, exact codes before them, any case, spaces, gaps, and everything else."""
    values = ["C34.1", " c34 ", "C33", "c33.1", "C50", "c34.9", "N/A", "  ", None, "Z99", "Breast"]
    assert codes(values, CANCER) == [
        *("lung", "lung", "lung", "other", "breast", "unknown"),
        *("unknown", "unknown", "unknown", "other", "breast"),
    ]


@for_each(
    "case",
    [
        ("C34*", "C34", True),
        ("C34*", "C3", False),
        ("*itis", "otitis media", False),
        ("*itis", "otitis", True),
        ("a*b*c", "abc", True),
        ("a*b*c", "a-b-b-c", True),
        ("a*b*c", "acb", False),
        ("a*a", "a", False),
        ("**a**", "xax", True),
        (r"\*", "*", True),
        (r"\*", "a", False),
        (r"a\\*", "a\\b", True),
        (r"a\b", "a\\b", True),
        ("?", "?", True),
        ("?", "x", False),
        ("a.b*", "axb", False),
        ("[ab]*", "a", False),
        ("n\n*", "n\nx\ny", True),
        ("عرب*", "عربي", True),
        ("😀*", "😀🙂", True),
    ],
)
def test_a_star_is_any_text_and_all_else_is_itself(case: tuple[str, str, bool]) -> None:
    """A question mark is what people write for a missing value, and no wildcard."""
    pattern, text, expected = case
    assert parse_pattern(pattern).matches(text) is expected
    rule = ValueMap({pattern: "lung"}, otherwise="other")
    assert codes([text], rule) == ["lung" if expected else "other"]


PIECES = st.text("ab*\\", max_size=6)


@given(PIECES)
def test_patterns_survive_being_written(text: str) -> None:
    """Stars, backslashes, and both together."""
    assert parse_pattern(escaped(text)) == Pattern((text,))
    assert parse_pattern(str(parse_pattern(text))) == parse_pattern(text)


@given(PIECES, PIECES, st.text("ab*\\", max_size=8))
def test_a_pattern_covers_what_it_says(first: str, second: str, text: str) -> None:
    """If one pattern covers another, it matches whatever the other does."""
    one, other = parse_pattern(first), parse_pattern(second)
    if one.covers(other) and other.matches(text):
        assert one.matches(text)


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=8), st.permutations(RULES))
def test_folding_twice_changes_nothing(text: str, rules: list[str]) -> None:
    """What is alike stays alike, in any order; but lowercase may need NFC once more."""
    once = folded(pl.Series([text]), rules)
    twice = folded(once, rules)
    assert twice.to_list() == folded(twice, rules).to_list()
    if text.isascii():
        assert once.to_list() == twice.to_list()


def plain(text: str | None, attribute: Attribute, rule: ValueMap) -> str | None:
    """Map one value, as the page says: listed, category, most specific pattern, otherwise."""
    if text is None or text in rule.missing_values:
        return rule.entries.get(None)
    entries = {parse_pattern(raw): name for raw, name in rule.entries.items() if raw is not None}
    for pattern, name in entries.items():
        if pattern.plain and pattern.matches(text):
            return name
    if text in attribute.categories:
        return text
    matching = [pattern for pattern in entries if not pattern.plain and pattern.matches(text)]
    minimal = [p for p in matching if not any(q != p and p.covers(q) for q in matching)]
    names = {entries[pattern] for pattern in minimal}
    if len(names) > 1:
        raise SchemaError("ambiguous", hint="-")
    return names.pop() if names else rule.otherwise


TEXTS = st.text("ab ", max_size=4)
KEYS = st.text("ab *", max_size=4).filter(lambda text: text.strip("*"))


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.dictionaries(KEYS, st.sampled_from(["ab", "b", "c"]), min_size=1, max_size=6),
    st.lists(st.none() | TEXTS, max_size=12),
    st.none() | st.just("c"),
    st.booleans(),
)
def test_many_values_are_mapped_as_one_by_one(
    entries: dict[str, str], values: list[str | None], otherwise: str | None, missing: object
) -> None:
    """The vectorised mapping is the plain one, ambiguity and unknown values included."""
    attribute = Attribute("x", ["ab", "b", "c"])
    if len({parse_pattern(key) for key in entries}) < len(entries):  # "a**" and "a*"
        return
    whole: dict[str | None, str] = dict(entries.items())
    if missing:
        whole[None] = "b"
    rule = ValueMap(whole, otherwise=otherwise)
    try:
        expected = [plain(value, attribute, rule) for value in values]
    except SchemaError:
        with pytest.raises(SchemaError, match="neither is the more specific"):
            encode_column(pl.Series("x", values, pl.String), attribute, rule)
        return
    column = pl.Series("x", values, pl.String)
    if None in expected:
        with pytest.raises(ValueNotInSchemaError) as caught:
            encode_column(column, attribute, rule)
        wrong = {value for value, name in zip(values, expected, strict=True) if name is None}
        assert {offender.value for offender in caught.value.offenders} <= wrong
    else:
        made = encode_column(column, attribute, rule)
        assert [attribute.categories[code] for code in made] == expected


def test_the_most_specific_pattern_counts_whatever_the_order() -> None:
    """A line below another never changes what the other means."""
    entries = {"C3*": "other", "C34*": "lung", "C34*9": "unknown", "C*": "breast"}
    values = ["C30", "C341", "C349", "C1"]
    expected = ["other", "lung", "unknown", "breast"]
    assert codes(values, ValueMap(entries)) == expected
    assert codes(values, ValueMap(dict(reversed(entries.items())))) == expected


def test_patterns_are_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever hands over a recode file cannot make it cubic: each value meets other patterns."""
    calls, covers = [], Pattern.covers

    def counted(pattern: Pattern, other: Pattern) -> bool:
        calls.append(pattern)
        return covers(pattern, other)

    monkeypatch.setattr(Pattern, "covers", counted)
    patterns = [Pattern(("", "a" * length, "")) for length in range(1, 61)]
    table = PatternTable((pattern, number) for number, pattern in enumerate(patterns))
    texts = pl.Series(["a" * length for length in range(1, 61)])
    assert table.targets(texts).tolist() == list(range(60))
    assert len(calls) <= 60**2
    prefixes = [Pattern((f"C{number}", "")) for number in range(60)]
    mixed = PatternTable((pattern, number) for number, pattern in enumerate([*patterns, *prefixes]))
    calls.clear()
    found = mixed.targets(pl.Series([f"C{number}" for number in range(60)]))
    assert found.tolist() == list(range(60, 120))
    assert len(calls) <= 60
    many = [(Pattern(("", f"{number}.", "")), 0) for number in range(MOST_PATTERNS + 1)]
    with pytest.raises(SchemaError, match="2,001 patterns with a star elsewhere than at their end"):
        PatternTable(many)


def test_patterns_that_contradict_each_other_are_refused_where_they_meet() -> None:
    """Both are named, and the value; two patterns of one category are no contradiction."""
    rule = ValueMap({"lung*": "lung", "*cancer": "other"})
    assert codes(["lung x", "x cancer"], rule) == ["lung", "other"]
    with pytest.raises(SchemaError, match=r"'lung cancer' of column 'x' matches") as caught:
        codes(["lung cancer"], rule)
    assert "'lung*' and '*cancer'" in caught.value.message
    assert "list the value itself" in caught.value.hint
    assert codes(["lung cancer"], ValueMap({**rule.entries, "lung cancer": "lung"})) == ["lung"]
    assert codes(["lung cancer"], ValueMap({"lung*": "lung", "*cancer": "lung"})) == ["lung"]


def test_texts_that_folding_makes_alike_are_refused_for_two_categories() -> None:
    """Otherwise one of the two lines would count in silence; categories too."""
    with pytest.raises(SchemaError, match="'A' and 'a' are the same text by lowercase"):
        codes([], ValueMap({"A": "lung", "a": "breast"}, fold=["lowercase"]))
    twins = Attribute("x", ["Yes", "yes"])
    with pytest.raises(SchemaError, match="'Yes' and 'yes' are the same"):
        codes([], ValueMap({}, fold=["lowercase"]), twins)
    assert codes(["YES"], ValueMap({"Yes": "yes"}, fold=["lowercase"]), twins) == ["yes"]


@for_each(
    "case",
    [
        ("Stra\u00dfe", "STRA\u00dfE*"),
        (unicodedata.normalize("NFD", "Größe"), "größe*"),
        ("ΟΔΟΣΑ", "οδοσ*"),
        ("ΟΔΟΣ", "ΟΔΟΣ*"),
        ("\u00a0x\u2003", "X*"),
        ("C34 .1", " C34 *"),
    ],
)
def test_patterns_are_folded_like_values(case: tuple[str, str]) -> None:
    """Unicode forms, case, the end of a Greek word, every kind of space; within, spaces count."""
    value, listed = case
    assert codes([value], ValueMap({listed: "lung"}, fold=RULES)) == ["lung"]


ODD = ["a.b", 'say "hi"', "😀", "עברית", "it's", "#", " ", "*", "\\", "C34*"]


def test_categories_with_odd_names_are_themselves() -> None:
    """A star in the name of a category is a star."""
    attribute = Attribute("x", ODD)
    assert codes(ODD, ValueMap({"zzz": "😀"}, otherwise="😀"), attribute) == ODD
    assert codes(["C349"], ValueMap({"zzz": "😀"}, otherwise="#"), attribute) == ["#"]


@for_each(
    "case",
    [
        (["39", None, "n/a", " N/A ", "60", " 40 "], [0, 3, 3, 3, 2, 1]),
        ([39, None, 60], [0, 3, 2]),
        ([39.0, None, float("nan"), 999.0], [0, 3, 3, 3]),
        ([999, 40], [3, 1]),
        ([], []),
    ],
)
def test_missing_values_stand_beside_bins(case: tuple[list[object], list[int]]) -> None:
    """Gaps, words and numbers that mean nothing have a category of their own."""
    values, expected = case
    bins = Bins(
        [40, 60],
        missing="unknown",
        missing_values=["n/a", "999"],
        fold=["trim", "lowercase"],
    )
    attribute = bins.attribute("age")
    assert attribute.categories == ("<40", "40 to <60", ">=60", "unknown")
    assert encode_column(pl.Series("age", values), attribute, bins).tolist() == expected
    first = Attribute("age", ["unknown", "young", "middle", "old"])
    moved = encode_column(pl.Series("age", values), first, bins).tolist()
    assert moved == [(code + 1) % 4 for code in expected]


def test_missing_values_may_share_an_interval() -> None:
    """Then there is no category more than intervals; a number too many is refused."""
    bins = Bins([40], missing="<40")
    assert bins.attribute("age").categories == ("<40", ">=40")
    assert encode_column(pl.Series([None, 50]), bins.attribute("age"), bins).tolist() == [0, 1]
    with pytest.raises(SchemaError, match="has 4 categories, but its 1 bin edges make 2"):
        encode_column(pl.Series([1]), ABC, Bins([40], missing="unknown"))
    with pytest.raises(SchemaError, match="maps to 'nobody', which is not a category"):
        encode_column(pl.Series([1]), Attribute("a", ["x", "y"]), Bins([40], missing="nobody"))


def test_a_decimal_comma_is_asked_for() -> None:
    """Without it 1,5 is no number, and the hint says how to say so; with it 1.5 is none."""
    texts, attribute = pl.Series("x", ["1,5", "2", "-0,5"]), Bins([1, 2]).attribute("x")
    with pytest.raises(ValueNotInSchemaError, match="'1,5' in 1 row: 1") as caught:
        encode_column(texts, attribute, Bins([1, 2]))
    assert 'decimal = ","' in caught.value.hint
    comma = Bins([1, 2], decimal=",")
    assert encode_column(texts, attribute, comma).tolist() == [1, 2, 0]
    for odd in ("1.5", "1.234,5", "1,2,3", "nan", "x"):
        with pytest.raises(ValueNotInSchemaError):
            encode_column(pl.Series("x", ["1", odd]), attribute, comma)
    assert encode_column(pl.Series([1.5]), attribute, comma).tolist() == [1]


@for_each(
    "case",
    [
        ([True, False, None], ["yes", "no", "gap"]),
        ([1.0, 0.0, None], ["yes", "no", "gap"]),
        ([1, 0, None], ["yes", "no", "gap"]),
        (["1", "", None], ["yes", "else", "gap"]),
    ],
)
def test_types_are_texts_for_patterns_too(case: tuple[list[object], list[str]]) -> None:
    """An integer that a file has as a float, a truth value, null and the empty text."""
    values, expected = case
    attribute = Attribute("x", ["yes", "no", "gap", "else"])
    rule = ValueMap({"1": "yes", "t*": "yes", "0": "no", "f*": "no", None: "gap"}, otherwise="else")
    assert codes(values, rule, attribute) == expected


def test_rules_that_say_nothing_or_too_much_are_refused() -> None:
    """Each with what to write instead."""
    for make, message in (
        (lambda: ValueMap({"*": "a"}), "matches everything"),
        (lambda: ValueMap({"a": "b"}, missing_values=["x"]), "have no category"),
        (lambda: Bins([1], missing_values=["x"]), "have no category"),
        (lambda: ValueMap({None: "a"}, missing_values="x"), "is one text"),
        (lambda: ValueMap({"a": "b"}, fold="trim"), "is one text"),
        (lambda: ValueMap({"a": "b"}, fold=["upper"]), "has no rule 'upper'"),
        (lambda: Bins([1], decimal=";"), "decimal mark is ';'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(SchemaError, match=message) as caught:
            make()
        assert caught.value.hint


@pytest.mark.slow
def test_a_million_different_values() -> None:
    """Hundreds of prefixes, other patterns, and values that hardly repeat."""
    values = pl.int_range(0, 1_000_000, eager=True).cast(pl.String).str.zfill(7)
    entries = {f"{number:03}*": f"c{number % 10}" for number in range(50)}
    rule = ValueMap({**entries, "09*7777": "c0"}, fold=["trim"], otherwise="c9")
    attribute = Attribute("x", [f"c{number}" for number in range(10)])
    (made,) = encode_table(values.to_frame("x"), Schema([attribute]), {"x": rule})
    assert (made[123_456], made[499_999], made[987_777], made[987_778]) == (2, 9, 0, 9)
