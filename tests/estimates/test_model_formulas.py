"""Formulas: what may stand in them, what they mean, and that nothing of them is ever run."""

import builtins
from typing import Any

import numpy as np
import pytest
from patsy import dmatrix

import veiltab as vt
from tests.support.models import exact, scaled
from veiltab.core.schema import Attribute, Schema
from veiltab.errors import FormulaError, ParameterError
from veiltab.inference.models.formula import Columns, columns, pattern_codes, read_formula

SCHEMA = Schema(
    [
        Attribute("age", ["young", "middle", "old"]),
        Attribute("sex", ["f", "m"]),
        Attribute("marital status", ["single", "a:b]", "c0"]),
        Attribute("a.b", ["x", "y"]),
    ]
)
FRAME = {
    name: [SCHEMA.attributes[place].categories[code] for code in codes]
    for place, (name, codes) in enumerate(
        zip(("age", "sex", "marital", "ab"), pattern_codes(SCHEMA.attributes).T, strict=True)
    )
}
LEVELS = "C({}, levels={!r})"


def made(text: str, scores: dict[str, list[float]] | None = None) -> Columns:
    """Return the columns of a formula over all attributes."""
    return columns(read_formula(text, SCHEMA), SCHEMA.attributes, scores or {})


def by_patsy(text: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the columns that patsy makes of its own spelling of a formula."""
    levels = {
        name: LEVELS.format(name, list(attribute.categories))
        for name, attribute in zip(FRAME, SCHEMA.attributes, strict=True)
    }
    return np.asarray(dmatrix(text.format(**levels), FRAME))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("age + sex", "{age} + {sex}"),
        ("age * sex", "{age} * {sex}"),
        ("age : sex", "{age} : {sex}"),
        ("age * sex - age", "{age} * {sex} - {age}"),
        ("age + sex - 1", "{age} + {sex} - 1"),
        ("(age + sex + `a.b`)**2", "({age} + {sex} + {ab})**2"),
        ("age / `marital status`", "{age} / {marital}"),
    ],
)
def test_columns_span_what_patsy_makes_of_the_same_formula(ours: str, theirs: str) -> None:
    """The same number of columns, and the same space."""
    mine, others = made(ours).design, by_patsy(theirs)
    assert mine.shape == others.shape
    both = np.linalg.matrix_rank(np.hstack([mine, others]))
    assert both == np.linalg.matrix_rank(mine) == mine.shape[1]


def test_columns_and_their_names() -> None:
    """Treatment coding against the first category, in the order of the categories."""
    matrix = made("age + scores(`marital status`):sex", {"marital status": [1, 2, 4]})
    assert matrix.names == (
        "Intercept",
        "age[T.middle]",
        "age[T.old]",
        "scores(marital status):sex[f]",
        "scores(marital status):sex[m]",
    )
    assert matrix.terms == {"Intercept": [0], "age": [1, 2], "scores(marital status):sex": [3, 4]}
    codes = pattern_codes(SCHEMA.attributes)
    assert (matrix.design[:, 1] == (codes[:, 0] == 1)).all()
    scores = np.array([1, 2, 4])[codes[:, 2]]
    assert (matrix.design[:, 4] == scores * (codes[:, 1] == 1)).all()


def test_other_codings() -> None:
    """A reference category, sums and polynomials span the same space."""
    names = {
        "C(age)": ("age[T.middle]", "age[T.old]"),
        "C(age, Treatment('old'))": ("age[T.young]", "age[T.middle]"),
        'C( `age` , Treatment("old") )': ("age[T.young]", "age[T.middle]"),
        "C(age, Sum)": ("age[S.young]", "age[S.middle]"),
        "C(age, Sum())": ("age[S.young]", "age[S.middle]"),
        "C(age, Poly)": ("age[.L]", "age[.Q]"),
    }
    plain = made("age").design
    for text, wanted in names.items():
        matrix = made(text)
        assert matrix.names[1:] == wanted
        assert np.linalg.matrix_rank(np.hstack([plain, matrix.design])) == 3


def test_odd_categories_keep_their_names() -> None:
    """Colons, brackets and names that look like codes are left as they are."""
    assert made("`marital status`").names[1:] == ("marital status[T.a:b]]", "marital status[T.c0]")


HOSTILE = [
    "__import__('os').system('x')",
    "eval('1')",
    "C(age, __import__('os'))",
    "C(age, Treatment(__import__('os').system('x')))",
    "C(age, Treatment('x' + 'y'))",
    "C(eval('age'))",
    "scores(age, sex)",
    "scores(age + 1)",
    "C(age, levels=['young'])",
    "(lambda: 1)()",
    "lambda x: x",
    "{age := 1}",
    "{open('/etc/passwd').read()}",
    "age.upper()",
    "age.__class__",
    "age[0]",
    "np.log(age)",
    "I(age)",
    "poly(age, 2)",
    "f'{age}'",
    "[x for x in age]",
    "C(age).__class__",
    "age if sex else sex",
    "'text'",
    "2 * age",
    "age + 3",
    ".",
    "age | sex",
    "age sex",
    "age +",
    "`age",
    "C(age",
    "%x%",
    "",
    "age ~ sex ~ 1",
    "(age + sex + `a.b` + `marital status`)**99999999999",
    "(((age+sex)**9)**9)**9",
    "(" * 5000 + "age" + ")" * 4999,
    "+age" * 2400,
    "x" * 20_000,
    "agee",
    "C(age, Treatment('olld'))",
    "C(age, Sum('old'))",
    "scores(age, Sum)",
    "age + scores(age)",
]


def test_nothing_but_names_and_a_few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything else is a FormulaError, and no text of a formula reaches eval or exec."""
    read_formula("age", SCHEMA)  # loads formulaic, which runs code of its own then

    def forbidden(*_: object, **__: object) -> None:
        raise AssertionError("code was run")

    monkeypatch.setattr(builtins, "eval", forbidden)
    monkeypatch.setattr(builtins, "exec", forbidden)
    for text in HOSTILE:
        with pytest.raises(FormulaError) as caught:
            made(f"~ {text}")
        assert caught.value.hint
        assert len(caught.value.message) < 200, text
    made("age * sex + scores(`marital status`) + C(`a.b`, Sum)")


def test_what_was_probably_meant() -> None:
    """A misspelt attribute or category gets a suggestion."""
    with pytest.raises(FormulaError) as caught:
        made("maritl_status")
    assert "marital status" in caught.value.hint
    with pytest.raises(FormulaError) as caught:
        made("C(age, Treatment('olld'))")
    assert "'old'" in caught.value.hint


def test_scores_are_checked() -> None:
    """As many different finite numbers as categories."""
    for wrong in ([1.0, 2.0], [1.0, 1.0, 1.0], [1.0, np.inf, 2.0]):
        with pytest.raises(ParameterError, match="scores of 'age'"):
            made("scores(age)", {"age": wrong})


ESTIMATE = exact(scaled(vt.adult_table(24), 4_000))


def test_outcomes_of_a_logistic_regression() -> None:
    """An attribute, a category as the event, or a condition: the same model."""
    plain = ESTIMATE.logistic("salary ~ gender")
    assert plain.outcome == "salary = '>50K'"
    texts = ["salary == '>50K' ~ gender", "`salary` ~ gender", "not salary = '<=50K' ~ gender"]
    for text in texts:
        same = ESTIMATE.logistic(text)
        assert same.coefficients.equals(plain.coefficients)
    other = ESTIMATE.logistic("salary ~ gender", event="<=50K")
    assert other.outcome == "salary = '<=50K'"
    assert np.allclose(other.coefficients["estimate"], -plain.coefficients["estimate"], atol=1e-9)


def test_an_event_of_several_attributes() -> None:
    """A condition on two attributes is one event."""
    fit = ESTIMATE.logistic("salary = '>50K' or education = 'no college' ~ gender")
    women = ESTIMATE.probability(
        "salary = '>50K' or education = 'no college'", given="gender = 'female'"
    )
    predicted = fit.predict({"gender": "female"})["prediction"][0]
    assert predicted == pytest.approx(women.value, abs=1e-9)


@pytest.mark.parametrize(
    ("method", "formula", "words"),
    [
        ("logistic", "education ~ gender", "3 categories"),
        ("logistic", "~ gender", "no outcome"),
        ("logistic", "gender", "no outcome"),
        ("logistic", "salry ~ gender", "no attribute"),
        ("logistic", "salary ~ salary", "both sides"),
        ("logistic", "salary = '>50K' and gender = 'male' ~ gender", "both sides"),
        ("logistic", "salary = '>50K' or salary = '<=50K' ~ gender", "everybody"),
        ("multinomial", "salary = '>50K' ~ gender", "not one attribute"),
        ("ordinal", "education ~ gender - 1", "intercept"),
        ("loglinear", "salary ~ gender", "no outcome"),
        ("loglinear", "~ gender - 1", "intercept"),
        ("loglinear", "~ 1", "no attribute"),
    ],
)
def test_what_does_not_fit_a_model(method: str, formula: str, words: str) -> None:
    """Each says what is wrong."""
    with pytest.raises(FormulaError, match=words):
        getattr(ESTIMATE, method)(formula)


def test_an_event_is_named_only_once() -> None:
    """A condition on the left and an event besides are too much."""
    with pytest.raises(FormulaError, match="event already"):
        ESTIMATE.logistic("salary = '>50K' ~ gender", event=">50K")


def test_too_large_a_model_is_refused() -> None:
    """More cells than can be handled, or a design that would not fit into memory."""
    schema = Schema([Attribute(f"a{i}", map(str, range(70))) for i in range(3)])
    estimate = vt.simulate(
        vt.CountTable(schema, np.ones(343_000, dtype=np.int64)), epsilon=1.0, seed=1
    )
    with pytest.raises(vt.VeiltabError, match="343,000 cells"):
        estimate.loglinear("~ a0 + a1 + a2")
    with pytest.raises(FormulaError, match="numbers"):
        estimate.multinomial("a0 ~ a1")
