"""Categories as numbers: what their names state, and scores in their place."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import veiltab as vt
from veiltab.core.schema import Attribute
from veiltab.inference.scores import Span, read_span, scores_of, spans_of

INF = math.inf
NAMES: dict[str, Span | None] = {
    "7": Span(7, 7),
    "-3.5": Span(-3.5, -3.5),
    ".5": Span(0.5, 0.5),
    "2e3": Span(2000, 2000),
    "40 to <60": Span(40, 60, has_high=False),
    "<40": Span(-INF, 40, has_high=False),
    ">=60": Span(60, INF),
    "≤ 40": Span(-INF, 40),
    "> 60": Span(60, INF, has_low=False),
    "18–64": Span(18, 64),
    "18-64": Span(18, 64),
    "-5--1": Span(-5, -1),
    "0 to 17": Span(0, 17),
    "10,000 – 19,999": Span(10_000, 19_999),
    "65+": Span(65, INF),
    "65 and over": Span(65, INF),
    "5 or more": Span(5, INF),
    "Under 18": Span(-INF, 18, has_high=False),
    "up to 17": Span(-INF, 17),
    "over 64": Span(64, INF, has_low=False),
    "[40, 60)": Span(40, 60, has_high=False),
    "(-inf, 40]": Span(-INF, 40, has_low=False),
    "(40, inf)": Span(40, INF, has_low=False, has_high=False),
    "unknown": None,
    ">50K": None,
    "<=50K": None,
    "1e999": None,
    "60 to 40": None,
    "[3, 3)": None,
    "nan": None,
    "inf": None,
    "to": None,
    "-": None,
}


@pytest.mark.parametrize(("name", "span"), NAMES.items())
def test_a_name_states_its_span(name: str, span: Span | None) -> None:
    """As ``Bins`` writes them, as people do, and as other libraries do."""
    assert read_span(name) == span


@given(st.lists(st.integers(-1000, 1000), min_size=1, max_size=6, unique=True))
def test_bins_are_read_as_they_are_named(edges: list[int]) -> None:
    """Every interval of ``Bins``, side by side and open at both ends."""
    edges = sorted(edges)
    spans = spans_of(vt.Bins(edges).attribute("x"))
    assert [span and span.low for span in spans] == [-INF, *edges]
    assert [span and span.high for span in spans] == [*edges, INF]


@given(st.text(max_size=12))
def test_any_name_is_read_or_not(name: str) -> None:
    """Never anything but a span that holds something."""
    span = read_span(name)
    assert span is None or span.low <= span.high


def test_a_bound_that_two_categories_share_belongs_to_the_upper_one() -> None:
    """As in ``Bins``."""
    first, second, _ = spans_of(Attribute("x", ["0-10", "10-20", "20+"]))
    assert first == Span(0, 10, has_high=False)
    assert second == Span(10, 20, has_high=False)


@pytest.mark.parametrize("sign", [">=", ">", "<=", "<"])
def test_a_span_is_compared_as_all_its_values_are(sign: str) -> None:
    """Against values in small steps; None only where some are on either side."""
    for has_low in (True, False):
        for has_high in (True, False):
            span = Span(1, 2, has_low, has_high)
            inside = [1.001, 1.5, 1.999, *([1.0] if has_low else []), *([2.0] if has_high else [])]
            for number in (0.5, 1.0, 1.5, 2.0, 2.5):
                met = {eval(f"{value} {sign} {number}") for value in inside}  # noqa: S307 - ours
                assert span.compared(sign, number) == (met.pop() if len(met) == 1 else None)


AGE = Attribute("age", ["0–17", "18–64", "65+"])


def test_scores_are_middles_unless_they_are_given() -> None:
    """By name for some of the categories, in order for all, or by bounds for open ones."""
    assert scores_of(AGE, {"65+": 75})[:].tolist() == [8.5, 41, 75]
    assert scores_of(AGE, [1, 2, 3]).tolist() == [1, 2, 3]
    assert scores_of(AGE, None, (0, 95)).tolist() == [8.5, 41, 80]
    assert np.isnan(scores_of(AGE, None)).tolist() == [False, False, True]


@pytest.mark.parametrize(
    "scores", [[1, 2], [1, 2, math.nan], ["a", "b", "c"], {"65+": math.inf}, {"66+": 3}]
)
def test_scores_that_do_not_fit_are_refused(scores: object) -> None:
    """With the categories that there are."""
    with pytest.raises(vt.errors.ParameterError) as caught:
        scores_of(AGE, scores)  # type: ignore[arg-type]
    assert "'18–64'" in caught.value.hint


@pytest.mark.parametrize("bounds", [(None, 65), (None, 60), (None, math.nan)])
def test_bounds_must_leave_something(bounds: tuple[None, float]) -> None:
    """Of each category that is open."""
    with pytest.raises(vt.errors.ParameterError, match=r"lie between|a smallest and"):
        spans_of(AGE, bounds)
