"""The pictures of a report: each attribute by itself, and pairs of attributes."""

from collections.abc import Sequence
from dataclasses import replace

from veiltab.estimates import IndependenceTest
from veiltab.report import words
from veiltab.report.html import Html, Scale, bar_table, element, heat_map, own, point_list, table
from veiltab.report.view import Pair, Part, Row, View, adjusted
from veiltab.report.words import decimals, least, significance

SURE = 0.05
"""A p-value below it is called evidence."""


def marginal_section(view: View) -> Html:
    """Return every attribute by itself, with the errors of its shares below."""
    name = words.interval_name(view.asked)
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
        element("p", words.interval_words(view.asked)),
        element("div", *parts, class_="grid"),
        _error_table(rows, ["attribute", "category"]),
        aria_labelledby="marginals",
    )


def answer_section(view: View) -> Html:
    """Return the shares that were asked for by conditions."""
    if not view.answers:
        return Html("")
    answers = view.answers
    rows = tuple(
        Row((a.label,), a.value, a.standard_error, a.sampling_error, a.privacy_error, a.low, a.high)
        for a in answers
    )
    part = Part(("condition",), rows, len(rows))
    name = words.interval_name(view.asked, simultaneous=False)
    bars = bar_table(f"Respondents who meet a condition: share and {name}", part,
                     Scale.over(rows), "share")  # fmt: skip
    return element(
        "section",
        element("h2", "What was asked for", id="answers"),
        element("div", bars, class_="card"),
        _error_table(rows, ["condition"]),
        aria_labelledby="answers",
    )


def _error_table(rows: Sequence[Row], names: list[str]) -> Html:
    """Return the errors of shares, behind a line to open."""
    digits = decimals(row.standard_error for row in rows)
    found = table(
        "Standard errors of these shares, in percentage points",
        [*names, "share", "standard error", "sampling", "privacy"],
        [
            (*map(own, row.labels), *point_list((row.share, *errors_of(row)), digits))
            for row in rows
        ],
        numbers=4,
    )
    return element("details", element("summary", "Standard errors of these shares"), found)


def errors_of(row: Row) -> tuple[float | None, ...]:
    """Return the standard error of a share, and its two parts."""
    return row.standard_error, row.sampling_error, row.privacy_error


def _caption(part: Part, name: str) -> str:
    few = "" if part.whole else f"; the {len(part.rows)} largest of {part.total:,} categories"
    return f"{part.names[0]}: share and {name}{few}"


def pair_section(view: View) -> Html:
    """Return the tests of all pairs, and the pictures of those that fit a page."""
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
    """Return the tests in a table, and words about pairs that are left out."""
    found = []
    if view.tests:
        holm = adjusted(test.p_value for _, test in view.tests)
        rows = [
            (own(f"{a} × {b}"), _verdict(together),
             significance(test.p_value, test.replicates), _bounded(together, test))
            for ((a, b), test), together in zip(view.tests, holm, strict=True)
        ]  # fmt: skip
        found += [
            element(
                "p",
                "Could two attributes be independent, in the population that the respondents"
                " come from? The test draws releases as they would be if so, noise and all, and"
                " counts how many look as dependent as this one. “No” does not show independence;"
                " it is only not excluded.",
            ),
            table("Tests of independence; p of each, and “together” Holm's p for all at once",
                  ["pair", "evidence of dependence", "p", "together"], rows, numbers=2),
        ]  # fmt: skip
    untested = view.pairs_in_all - len(view.tests)
    if untested:
        why = (
            f"{untested:,} of {view.pairs_in_all:,} pairs are not tested here: they have too many"
            " cells, only one category, or there are too many pairs. Ask for fewer attributes."
        )
        found.append(element("p", why))
    undrawn = len(view.tests) - len(view.pairs)
    if undrawn:
        which = (
            f"Below are {len(view.pairs)} of the {len(view.tests)} tested pairs: those with few"
            " enough cells and the clearest dependence."
        )
        found.append(element("p", which))
    return found


def _bounded(together: float, test: IndependenceTest) -> str:
    """Return an adjusted p-value; a multiple of a bound is a bound."""
    bound = "≤ " if least(test.p_value, test.replicates) else ""
    return f"{bound}{together:.3f}"


def _verdict(p_value: float) -> str:
    return "yes" if p_value < SURE else "no"


def _pair(view: View, pair: Pair, number: int) -> Html:
    first, second = pair.joint.names
    name = f"pair-{number}"
    by_itself = words.interval_name(view.asked, simultaneous=False)
    heat = heat_map(
        f"{first} and {second} together: share and {words.interval_name(view.asked)}", pair.joint
    )
    forward, backward = (
        _within(part, by_itself) for part in (pair.within_first, pair.within_second)
    )
    other = element("details", element("summary", own(f"{first} within {second}")), backward)
    return element(
        "section",
        element("h3", own(f"{first} × {second}"), id=name),
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


def _within(part: Part, name: str) -> Html:
    given, of = part.names
    caption = f"{of} within each group of {given}: share of the group and {name}"
    return bar_table(caption, part, Scale.over(part.rows), "share")


def _association(pair: Pair) -> str:
    found = pair.association
    tested = f"Independence: p {_equal(significance(pair.test.p_value, pair.test.replicates))}."
    if found.value is None or found.low is None or found.high is None:
        return f"{tested} The strength of the dependence (Cramér's V) is not estimable."
    level = f"{100 * found.level:g} %"
    return (
        f"Cramér's V is {found.value:.2f} ({level} interval {found.low:.2f} to {found.high:.2f}),"
        f" where 0 is independence and 1 means that one tells the other. {tested}"
    )


def _equal(p_value: str) -> str:
    return p_value if p_value.startswith("<") else f"= {p_value}"
