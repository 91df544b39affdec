"""The sections of a report that show shares: answers, single attributes, and pairs."""

from collections.abc import Sequence
from dataclasses import replace

from veiltab.inference.independence import IndependenceTest
from veiltab.report import words
from veiltab.report.formatting import decimals, is_smallest, significance
from veiltab.report.html import Html, Scale, bar_table, element, heat_map, label, point_list, table
from veiltab.report.view import Pair, Row, ShownTable, View, holm

SIGNIFICANT = 0.05
"""An adjusted p-value below it counts as evidence of dependence."""

TEST_WORDS = (
    "Are two attributes independent in the population that the respondents come from? The test"
    " draws releases as they would be under independence, noise included, and counts how many look"
    " at least as dependent as this one. “No” does not show independence: it only means that"
    " independence is not excluded."
)


def marginal_section(view: View) -> Html:
    """Return a bar chart for each attribute by itself, and the standard errors below."""
    name = words.interval_name(view.options)
    parts = [
        element("div", bar_table(_caption(part, name), part, Scale.over(part.rows), "share"),
                class_="card")
        for part in view.marginals
    ]  # fmt: skip
    rows = [replace(row, labels=(part.names[0], *row.labels))
            for part in view.marginals for row in part.rows]  # fmt: skip
    return element(
        "section",
        element("h2", "Each attribute by itself", id="marginals"),
        element("p", words.interval_words(view.options)),
        element("div", *parts, class_="grid"),
        _error_table(rows, ["attribute", "category"]),
        aria_labelledby="marginals",
    )


def answer_section(view: View) -> Html:
    """Return the shares of the conditions that were asked for."""
    if not view.answers:
        return Html("")
    answers = view.answers
    rows = tuple(
        Row((a.label,), a.value, a.standard_error, a.sampling_error, a.privacy_error, a.low, a.high)
        for a in answers
    )
    part = ShownTable(("condition",), rows, len(rows))
    name = words.interval_name(view.options, simultaneous=False)
    bars = bar_table(f"Shares of the conditions, with {name}", part,
                     Scale.over(rows), "share")  # fmt: skip
    return element(
        "section",
        element("h2", "Answers to the conditions", id="answers"),
        element("div", bars, class_="card"),
        _error_table(rows, ["condition"]),
        _people_table(view),
        aria_labelledby="answers",
    )


def _people_table(view: View) -> Html:
    """Return how many respondents meet the conditions, in a table that is closed at first."""
    numbers = [(q.label, q.value or 0, q.standard_error or 0, q.low or 0, q.high or 0)
               for q in view.people]  # fmt: skip
    rows = [
        (label(text), f"{value:,.0f}", f"{low:,.0f}–{high:,.0f}", f"{error:,.3g}")
        for text, value, error, low, high in numbers
    ]
    names = ["who", "number", words.interval_name(view.options, simultaneous=False), "error"]
    counted = table("How many respondents they are, with standard errors", names, rows, numbers=3)
    return element("details", element("summary", "Numbers of people"), counted)


def _error_table(rows: Sequence[Row], names: list[str]) -> Html:
    """Return the standard errors of shares, in a table that is closed at first."""
    digits = decimals(row.standard_error for row in rows)
    errors = table(
        "Standard errors of these shares, in percentage points",
        [*names, "share", "standard error", "sampling", "privacy"],
        [
            (*map(label, row.labels), *point_list((row.share, *errors_of(row)), digits))
            for row in rows
        ],
        numbers=4,
    )
    return element("details", element("summary", "Standard errors of these shares"), errors)


def errors_of(row: Row) -> tuple[float | None, ...]:
    """Return the standard error of a share and its two parts."""
    return row.standard_error, row.sampling_error, row.privacy_error


def _caption(part: ShownTable, name: str) -> str:
    few = "" if part.whole else f"; the {len(part.rows)} largest of {part.total:,} categories"
    return f"{part.names[0]}: share and {name}{few}"


def pair_section(view: View) -> Html:
    """Return the tests of independence, and pictures of the pairs that fit on a page."""
    if view.pairs_in_all == 0:
        return Html("")
    shown = [_pair(view, pair, number) for number, pair in enumerate(view.pairs, start=1)]
    return element(
        "section",
        element("h2", "Pairs of attributes", id="pairs"),
        *_tests(view),
        *shown,
        aria_labelledby="pairs",
    )


def _tests(view: View) -> list[Html]:
    """Return a table of the tests, and a note on the pairs that are left out."""
    content = []
    if view.tests:
        adjusted_values = holm(test.p_value for _, test in view.tests)
        rows = [
            (
                label(f"{a} × {b}"),
                "yes" if adjusted < SIGNIFICANT else "no",
                significance(test.p_value, test.replicates),
                _bounded(adjusted, test),
            )
            for ((a, b), test), adjusted in zip(view.tests, adjusted_values, strict=True)
        ]
        caption = "Tests of independence: p-values, and p-values adjusted for all pairs (Holm)"
        names = ["pair", "evidence of dependence", "p", "adjusted p"]
        content += [element("p", TEST_WORDS), table(caption, names, rows, numbers=2)]
    untested = view.pairs_in_all - len(view.tests)
    if untested:
        why = (
            f"{untested:,} of {view.pairs_in_all:,} pairs are not tested here: an attribute has"
            " only one category, the pair has too many cells, or there are too many pairs."
            " Estimate fewer attributes at a time to have them tested."
        )
        content.append(element("p", why))
    if len(view.pairs) < len(view.tests):
        which = (
            f"Below are {len(view.pairs)} of the {len(view.tests)} tested pairs: those with few"
            " enough cells to draw and the clearest dependence."
        )
        content.append(element("p", which))
    return content


def _bounded(adjusted: float, test: IndependenceTest) -> str:
    """Return an adjusted p-value; a multiple of a bound is a bound."""
    bound = "≤ " if is_smallest(test.p_value, test.replicates) else ""
    return f"{bound}{adjusted:.3f}"


def _pair(view: View, pair: Pair, number: int) -> Html:
    first, second = pair.joint.names
    name = f"pair-{number}"
    pointwise = words.interval_name(view.options, simultaneous=False)
    heat = heat_map(
        f"{first} and {second} together: share and {words.interval_name(view.options)}", pair.joint
    )
    forward, backward = (
        _within(part, pointwise) for part in (pair.within_first, pair.within_second)
    )
    other = element("details", element("summary", label(f"{first} within {second}")), backward)
    return element(
        "section",
        element("h3", label(f"{first} × {second}"), id=name),
        element("p", _association(pair)),
        element(
            "div",
            element("div", heat, other, class_="card"),
            element("div", forward, class_="card"),
            class_="grid",
        ),
        class_="pair",
        aria_labelledby=name,
    )  # fmt: skip


def _within(part: ShownTable, name: str) -> Html:
    given, of = part.names
    caption = f"{of} within each group of {given}: share of the group and {name}"
    return bar_table(caption, part, Scale.over(part.rows), "share")


def _association(pair: Pair) -> str:
    strength = pair.association
    p_value = significance(pair.test.p_value, pair.test.replicates)
    tested = f"Test of independence: p {p_value if p_value.startswith('<') else f'= {p_value}'}."
    if strength.value is None or strength.low is None or strength.high is None:
        return f"{tested} The strength of the association (Cramér's V) is not estimable."
    return (
        f"Cramér's V is {strength.value:.2f} ({100 * strength.level:g} % interval"
        f" {strength.low:.2f} to {strength.high:.2f}), where 0 means independence and 1 that one"
        f" attribute determines the other. {tested}"
    )
