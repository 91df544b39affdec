"""The pictures of a report: each attribute by itself, and pairs of attributes."""

from veiltab.estimates import IndependenceTest
from veiltab.report import estimate_words as words
from veiltab.report.bars import Scale, bar_table, heat_map, point_list
from veiltab.report.estimate_view import Pair, Part, View, adjusted
from veiltab.report.html import Html, element, table
from veiltab.report.numbers import significance

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
    rows = [
        (element("bdi", part.names[0]), element("bdi", row.labels[0]),
         *point_list((row.share, row.standard_error, row.sampling_error, row.privacy_error)))
        for part in view.marginals
        for row in part.rows
    ]  # fmt: skip
    names = ["attribute", "category", "share", "standard error", "sampling", "privacy"]
    errors = table("Standard errors of these shares, in percentage points", names, rows, numbers=4)
    return element(
        "section",
        element("h2", "Each attribute by itself", id="marginals"),
        element("p", words.interval_words(view.asked)),
        element("div", *parts, class_="grid"),
        element("details", element("summary", "Standard errors of these shares"), errors),
        aria_labelledby="marginals",
    )


def _caption(part: Part, name: str) -> str:
    few = "" if part.whole else f"; the {len(part.rows)} largest of {part.total:,} categories"
    return f"{part.names[0]}: share, and {name}{few}"


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
        words_of = [(pair, test) for pair, test in view.tests]
        holm = adjusted(test.p_value for _, test in words_of)
        rows = [
            (element("bdi", f"{a} × {b}"), significance(test.p_value, test.replicates),
             _bounded(together, test), _verdict(together))
            for ((a, b), test), together in zip(words_of, holm, strict=True)
        ]  # fmt: skip
        found += [
            element(
                "p",
                "Could two attributes be independent, in the population that the respondents"
                " come from? The test draws releases as they would be if so, noise and all, and"
                " counts how many look as dependent as this one.",
            ),
            table("Tests of independence; “together” is Holm's p-value, for all tests at once",
                  ["pair", "p-value", "together", "evidence of dependence"], rows),
        ]  # fmt: skip
    untested = view.pairs_in_all - len(view.tests)
    if untested:
        found.append(element("p", f"{untested:,} of {view.pairs_in_all:,} pairs are not tested here:"
                             " they have too many cells, only one category, or there are too many"
                             " pairs. Ask for fewer attributes."))  # fmt: skip
    undrawn = len(view.tests) - len(view.pairs)
    if undrawn:
        found.append(element("p", f"Below are {len(view.pairs)} of the {len(view.tests)} tested"
                             " pairs: those with few enough cells and the clearest"
                             " dependence."))  # fmt: skip
    return found


def _bounded(together: float, test: IndependenceTest) -> str:
    """Return an adjusted p-value; a multiple of a bound is a bound."""
    least = test.p_value * (1 + test.replicates) < 1.5  # noqa: PLR2004 - as in significance
    return f"{'≤ ' if least else ''}{together:.3f}"


def _verdict(p_value: float) -> str:
    return "yes" if p_value < SURE else "no: independence is not excluded"


def _pair(view: View, pair: Pair, number: int) -> Html:
    first, second = pair.joint.names
    name = f"pair-{number}"
    by_itself = words.interval_name(view.asked, simultaneous=False)
    heat = heat_map(
        f"Share of each combination of {first} and {second}, and"
        f" {words.interval_name(view.asked)}, in per cent",
        pair.joint,
    )
    forward, backward = (_within(part, by_itself) for part in (pair.within_first, pair.within_second))
    other = element("details", element("summary", element("bdi", f"{first} within {second}")), backward)
    return element(
        "section",
        element("h3", element("bdi", f"{first} × {second}"), id=name),
        element("p", _association(pair)),
        element(
            "div",
            element("div", heat, class_="card"),
            element("div", forward, other, class_="card"),
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
