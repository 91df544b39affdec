"""The sections of a report that show shares: answers, single attributes, and pairs."""

from collections.abc import Sequence
from dataclasses import replace

from veiltab.inference.diagnostics import table_warnings
from veiltab.report import words
from veiltab.report.dots import Scale, card, dot_table, key, picture
from veiltab.report.formatting import decimals, interval_text, significance
from veiltab.report.heat import heat_card, heat_map
from veiltab.report.html import NOT_ESTIMABLE, Html, element, label, point_list, scroll, table
from veiltab.report.view import Comparison, Pair, Row, ShownTable, View, holm, quantity_row

SIGNIFICANT = 0.05
"""An adjusted p-value below it counts as evidence of dependence."""

TEST_WORDS = (
    "Are two attributes independent in the population that the respondents come from? The test"
    " draws releases as they would be under independence, noise included, and counts how many look"
    " at least as dependent as this one. “No” does not show independence: it only means that"
    " independence is not excluded."
)
STRENGTH_WORDS = (
    "Cramér's V measures the strength of the association: 0 means independence, and 1 that one"
    " attribute determines the other."
)
CHANCE_WORDS = (
    "Heat maps show in which cells the dependence lies: a colour says that a share is higher or"
    " lower than it would be under independence, by two standard errors or more. Chance alone"
    " colours about one cell in twenty."
)
OPEN = 2
"""How many pairs are open when a page is opened: those with the clearest dependence."""

NARROW = 0.05
"""Intervals of Cramér's V that are narrower have three decimals."""

GROUP_WORDS = (
    "Panels set groups side by side: each shows one category of an attribute, and its share within"
    " each group of the other attribute"
)
SMALL_ROWS, SMALL_COLUMNS = 4, 3
"""A heat map with no more rows and columns has the groups beside it."""


def marginal_section(view: View) -> Html:
    """Return the shares of each attribute by itself, and the standard errors below."""
    name = words.interval_name(view.options)
    parts = [
        card(dot_table(_caption(part, name), part, Scale.over(part.rows)), part.rows)
        for part in view.marginals
    ]
    rows = [replace(row, labels=(part.names[0], *row.labels))
            for part in view.marginals for row in part.rows]  # fmt: skip
    return element(
        "section",
        element("h2", "Each attribute by itself", id="marginals"),
        element("p", words.interval_words(view.options)),
        key(rows),
        element("div", *parts, class_="grid flow"),
        _error_table(rows, ["attribute", "category"]),
        aria_labelledby="marginals",
    )


def answer_section(view: View) -> Html:
    """Return the shares of the conditions that were asked for."""
    if not view.answers:
        return Html("")
    known = table_warnings(view.released)
    rows = tuple(quantity_row(answer, known) for answer in view.answers)
    part = ShownTable(("condition",), rows, len(rows))
    name = words.interval_name(view.options, simultaneous=False)
    dots = dot_table(f"Shares of the conditions, with {name}", part, Scale.over(rows))
    return element(
        "section",
        element("h2", "Answers to the conditions", id="answers"),
        key(rows),
        card(dots, rows),
        _error_table(rows, ["condition"]),
        _people_table(view),
        aria_labelledby="answers",
    )


def _people_table(view: View) -> Html:
    """Return how many respondents meet the conditions, in a table that is closed at first."""
    rows = [
        (
            label(quantity.label),
            _whole(quantity.value),
            interval_text(quantity.low, quantity.high, _whole),
            "" if quantity.standard_error is None else f"{quantity.standard_error:,.3g}",
        )
        for quantity in view.people
    ]
    names = ["who", "number", words.interval_name(view.options, simultaneous=False), "error"]
    counted = table("How many respondents they are, with standard errors", names, rows, numbers=3)
    return element("details", element("summary", "Numbers of people"), counted)


def _whole(number: float | None) -> str:
    return NOT_ESTIMABLE if number is None else f"{number:,.0f}"


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
    clearest = sorted(view.pairs, key=lambda pair: (pair.test.p_value, -pair.test.statistic))[:OPEN]
    shown = [
        _pair(view, pair, number, is_open=pair in clearest)
        for number, pair in enumerate(view.pairs, start=1)
    ]
    return element(
        "section",
        element("h2", "Pairs of attributes", id="pairs"),
        *_tests(view),
        *(_explained(view) if shown else []),
        *shown,
        aria_labelledby="pairs",
    )


def _explained(view: View) -> list[Html]:
    """Say how to read the pictures of pairs."""
    interval = words.interval_name(view.options, simultaneous=False)
    rows = [row for pair in view.pairs for row in pair.comparison.within.rows]
    return [
        element("p", CHANCE_WORDS),
        element("p", f"{GROUP_WORDS}, with {interval}."),
        key(rows, overall=True),
    ]


def _tests(view: View) -> list[Html]:
    """Return a table of the tests, and a note on the pairs that are left out."""
    content = []
    if view.tests:
        content += [element("p", TEST_WORDS, " ", STRENGTH_WORDS), _test_table(view)]
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


def _test_table(view: View) -> Html:
    """Return a row for each pair: Cramér's V with its interval, and the test of independence."""
    level = f"{100 * view.options.level:g}%"
    rows = [None if strength is None else quantity_row(strength) for strength in view.associations]
    scale = Scale.over(row for row in rows if row is not None)
    adjusted_values = holm(test.p_value for _, test in view.tests)
    caption = (
        f"Strength of association (Cramér's V with its {level} interval) and tests of independence"
        " (p-values, and p-values adjusted for all pairs by Holm's method)"
    )
    names = ("pair", scale.axis(unit=1, sign=""), "Cramér's V", "p", "adjusted p", "dependent?")
    kinds = ("", "picture", "number", "number", "number", "")
    head = [element("th", name, scope="col", class_=kind) if kind
            else element("th", name, scope="col")
            for name, kind in zip(names, kinds, strict=True)]  # fmt: skip
    body = [
        element(
            "tr",
            element("th", label(f"{a} × {b}"), scope="row"),
            *_strength_cells(row, scale),
            element("td", significance(test.p_value), class_="number", data_column=names[3]),
            element("td", significance(adjusted), class_="number", data_column=names[4]),
            element("td", "yes" if adjusted < SIGNIFICANT else "no", data_column=names[5]),
        )
        for ((a, b), test), row, adjusted in zip(view.tests, rows, adjusted_values, strict=True)
    ]
    shown = element(
        "table",
        element("caption", element("span", caption)),
        element("thead", element("tr", *head)),
        element("tbody", *body),
        class_="dots strengths",
    )
    return scroll(shown, caption)


def _strength_cells(row: Row | None, scale: Scale) -> list[Html]:
    """Return the picture of Cramér's V, and its numbers."""
    if row is None or not row.estimable:
        why = "too many cells" if row is None else NOT_ESTIMABLE
        return [element("td", why, colspan="2", class_="none")]
    numbers = (row.share, row.low, row.high)
    drawn = picture(_strength_words(numbers), numbers, scale, end=row.at_end)
    digits = _digits(row.low, row.high)
    value = "" if row.share is None else element("b", f"{row.share:.{digits}f}")
    ends = interval_text(row.low, row.high, lambda number: f"{number:.{digits}f}")
    return [
        element("td", drawn, class_="picture"),
        element("td", value, " ", element("span", ends, class_="between"), class_="number"),
    ]


def _strength_words(numbers: tuple[float | None, float | None, float | None]) -> str:
    """Return Cramér's V and its interval in words; one end may be missing."""
    value, low, high = numbers
    digits = _digits(low, high)
    ends = interval_text(low, high, lambda number: f"{number:.{digits}f}").replace("–", " to ")
    limit = ", no upper limit" if high is None else ""
    estimate = "" if value is None else f"{value:.{digits}f}, "
    return f"{estimate}interval {ends}{limit}"


def _digits(low: float | None, high: float | None) -> int:
    """Return the decimals of Cramér's V: three if its interval is so narrow that two hide it."""
    return 3 if low is not None and high is not None and high - low < NARROW else 2


def _pair(view: View, pair: Pair, number: int, *, is_open: bool) -> Html:
    first, second = pair.names
    rows, columns = pair.joint.names
    name = f"pair-{number}"
    interval = words.interval_name(view.options)
    caption = f"{rows} and {columns} together: share and {interval}, in\u00a0%"
    heat = heat_card(heat_map(caption, pair.joint, pair.residuals), pair.joint)
    compared = element("div", *_groups(pair.comparison))
    other = element(
        "details",
        element("summary", label(f"{rows} within {columns}")),
        *_groups(pair.reverse)[1:],
    )
    drawn = (
        element("summary", element("h3", label(f"{first} × {second}"), id=name)),
        element("p", _association(pair)),
        element("div", heat, compared, class_="beside") if _small(pair) else Html(heat + compared),
        other,
    )
    shown = element("details", *drawn, **({"open": "open"} if is_open else {}))
    return element("section", shown, class_="pair", aria_labelledby=name)


def _small(pair: Pair) -> bool:
    """Tell whether the heat map leaves room for the groups beside it."""
    cells = [row.labels for row in pair.joint.rows]
    rows, columns = (len({labels[place] for labels in cells}) for place in (0, 1))
    return rows <= SMALL_ROWS and columns <= SMALL_COLUMNS


def _groups(comparison: Comparison) -> list[Html]:
    """Set the groups of one attribute side by side, in a panel for each category of another."""
    part = comparison.within
    given, of = part.names
    shares = [row.share or 0.0 for row in comparison.overall.rows]
    scale = Scale.over(part.rows, *shares)
    panels = []
    for overall in comparison.overall.rows:
        [category] = overall.labels
        rows = tuple(
            replace(row, labels=row.labels[:1]) for row in part.rows if row.labels[1] == category
        )
        panel = ShownTable((given,), rows, len(rows))
        title = label(f"{of}: {category}")
        panels.append(card(dot_table(title, panel, scale, overall.share), rows))
    return [
        element("h4", label(f"{of} within {given}")),
        element("div", *panels, class_="grid panels"),
    ]


def _association(pair: Pair) -> str:
    strength = pair.association
    p_value = significance(pair.test.p_value)
    tested = f"Test of independence: p {p_value if p_value.startswith('<') else f'= {p_value}'}."
    numbers = (strength.value, strength.low, strength.high)
    if all(number is None for number in numbers):
        return f"{tested} The strength of the association (Cramér's V) is not estimable."
    level = f"{100 * strength.level:g}% "
    said = _strength_words(numbers).replace("interval", f"{level}interval")
    return f"Cramér's V: {said}. {tested}"
