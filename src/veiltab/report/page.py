"""The report of an estimate: one HTML file that needs no network.

Its only script is its own, and works on the joint table; without it the page says as much.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from importlib.resources import files

from veiltab.inference.provenance import Promise, status_words
from veiltab.report import words
from veiltab.report.dots import Scale, dot_table, key
from veiltab.report.explorer import controls, policy, scripts
from veiltab.report.formatting import (
    between,
    decimals,
    interval_text,
    percent,
    points,
    small,
)
from veiltab.report.glossary import meanings, plain_text
from veiltab.report.html import (
    Html,
    element,
    error_bar,
    label,
    point_list,
    scroll,
    sentence,
    share_cell,
    table,
)
from veiltab.report.sections import answer_section, errors_of, marginal_section, pair_section
from veiltab.report.view import ShownTable, View, error_shares

SECTIONS = {
    "answers": "Answers",
    "marginals": "Attributes",
    "pairs": "Pairs",
    "table": "Table",
    "promise": "Promise",
    "errors": "Errors",
    "asked": "Method",
    "cite": "Citation",
}
LONG = 16
"""A table with more rows than this is scrolled on a screen; on paper it has two columns."""

SHORT_NAME = 30
"""Rows with longer names have no room in two columns on paper."""

ERRORS = ("standard error", "sampling", "privacy")


def estimate_page(view: View, made: str | None = None) -> str:
    """Return the whole page; ``made`` is the date of the report, today by default."""
    date = made or _today()
    style = (files("veiltab.report") / "page.css").read_text("utf-8")
    title = view.provenance.title or "An estimated table"
    head = element(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html(f'<meta http-equiv="Content-Security-Policy" content="{policy()}">'),
        element("title", f"{title}: estimates with veiltab"),
        element("style", Html(style)),
    )
    parts = (
        _opening(view, title),
        _status(view),
        _warnings(view),
        answer_section(view),
        marginal_section(view),
        pair_section(view),
        _joint(view),
        _promise(view),
        _errors(view),
        _asked(view, date),
        _cite(view, date),
    )
    main = element("main", *parts, _words(parts))
    footer = element(
        "footer", f"Made with {words.software()}. This page is a single file and loads nothing."
    )
    script = scripts(view.joint, status_words(view.released))
    page = element("html", head, element("body", main, footer, script), lang="en-GB")
    return f"<!doctype html>\n{page}\n"


def _section(name: str, title: str, *content: object) -> Html:
    return element("section", element("h2", title, id=name), *content, aria_labelledby=name)


def _opening(view: View, title: str) -> Html:
    released, names = view.released, view.released.schema.names
    *others, last = map(label, names)
    listed = Html(f"{', '.join(others)} and {last}" if others else last)
    error, _ = error_shares(released, view.options.population)
    cells = released.schema.domain_size
    cards = [
        (words.promise_words(released), "differential privacy, promised to every respondent"),
        _people(view),
        (
            f"± {points(error, decimals([error]))}",
            f"percentage points: the root mean square standard error of the {cells:,} cells",
        ),
        _largest(view),
    ]
    decoys = words.has_decoys(released)
    kind = "Estimates from records among decoys" if decoys else "Estimates from perturbed records"
    how = (
        ", estimated from rows of which only the curators know which ones are invented."
        if decoys
        else ", estimated without anybody seeing a true record."
    )
    return element(
        "header",
        element("p", kind, class_="kind"),
        element("h1", element("bdi", title)),
        element(
            "p",
            "The joint distribution of " if len(names) > 1 else "The distribution of ",
            listed,
            how,
            class_="lead",
        ),
        element(
            "ul",
            *(element("li", element("strong", number), text) for number, text in cards),
            class_="cards",
        ),
        _contents(view),
    )


def _people(view: View) -> tuple[str, str]:
    """Return how many people the numbers are about, and how many of them took part."""
    released = view.released
    plan, coin = released.plan, released.plan.coin_probability
    if coin is None:
        sampled = f"of {plan.population_size:,} respondents sampled, their records perturbed"
        return f"{plan.sample_size:,}", sampled
    part = "all took part" if coin == 1 else f"each took part with probability {100 * coin:.3g}%"
    decoys = f"{part}, among about {plan.expected_decoys:,.0f} decoys"
    number = view.population
    if number.standard_error == 0:
        return f"{number.value or 0:,.0f}", f"respondents; {decoys}"
    ends = interval_text(number.low, number.high, "{:,.0f}".format)
    return f"≈ {number.value or 0:,.0f}", f"people in common (interval {ends}); {decoys}"


def _status(view: View) -> Html:
    """Say in a box at the top whether the page may be passed on."""
    published = view.released.publication is not None
    title = "A published copy" if published else "Not for passing on"
    return element(
        "section",
        element("h2", title, id="status"),
        element("p", words.publication_words(view.released)),
        class_="status shared" if published else "status own",
        aria_labelledby="status",
    )


def _contents(view: View) -> Html:
    """Return links to the sections of this page."""
    places = {
        "answers": bool(view.answers),
        "marginals": True,
        "pairs": view.pairs_in_all > 0,
        **dict.fromkeys(("table", "promise", "errors", "asked", "cite"), True),
    }
    links = [element("li", element("a", SECTIONS[name], href=f"#{name}"))
             for name, there in places.items() if there]  # fmt: skip
    return element("nav", element("ul", *links), aria_label="On this page")


def _largest(view: View) -> tuple[str, str]:
    row = max(view.joint.rows, key=lambda candidate: candidate.share or 0.0)
    digits = decimals([row.standard_error])
    ends = between(row.low, row.high, digits)
    names = Html(", ").join(map(label, row.labels))
    return percent(row.share or 0.0, digits), Html(
        f"in the largest cell: {names} (interval {ends})"
    )


def _warnings(view: View) -> Html:
    if not view.warnings:
        return Html("")
    listed = (element("li", sentence(warning)) for warning in view.warnings)
    return element(
        "section", element("h2", "Read with care", id="care"), element("ul", *listed),
        class_="care", aria_labelledby="care",
    )  # fmt: skip


def _joint(view: View) -> Html:
    part = view.joint
    few = "" if part.whole else f"; the {len(part.rows)} largest of {part.total:,} cells"
    caption = f"Every cell: share and {words.interval_name(view.options)}{few}"
    halved = _halved(part)
    dots = dot_table(caption, halved, Scale.over(part.rows))
    kind = ""
    if len(part.rows) > LONG:
        longest = max(len(row.labels[-1]) for row in halved.rows)
        kind = " many" if longest <= SHORT_NAME else " many wide"
    shown = element("div", scroll(dots, caption), class_=f"card joint{kind}", id="joint")
    notes = [element("p", words.interval_words(view.options))]
    if not part.whole:
        more = (
            f"The joint table has {part.total:,} cells, too many for a page. The options --csv and"
            " --parquet of veiltab estimate export all of them."
        )
        notes.append(element("p", more))
    explored = (controls(), key(part.rows), shown, _columns(part, caption))
    return _section("table", "The whole table", *notes, *explored)


def _halved(part: ShownTable) -> ShownTable:
    """Move the first categories of each cell into a heading, if the cells are in their order."""
    split = len(part.names) // 2 if part.whole else 0

    def halves(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(" · ".join(half) for half in (texts[:split], texts[split:]) if half)

    rows = tuple(replace(row, labels=halves(row.labels)) for row in part.rows)
    return ShownTable(halves(part.names), rows, part.total)


def _columns(part: ShownTable, caption: str) -> Html:
    """Return the same cells with a column for each attribute, and their standard errors."""
    digits = part.digits
    rows = [
        (*map(label, row.labels), share_cell(row, digits), *point_list(errors_of(row), digits))
        for row in part.rows
    ]
    names = [*part.names, "share and interval", *ERRORS]
    columns = table(f"{caption}; standard errors in percentage points", names, rows, numbers=4)
    return element("details", element("summary", "In columns, with standard errors"), columns)


def _promise(view: View) -> Html:
    released = view.released
    rows = [
        (_capital(promise.against), *_promised(promise))
        for promise in view.provenance.promises_under(released.plan)
    ]
    sentences = (
        words.guarantee_words(released),
        words.noise_words(released, view.provenance),
        words.accounting_words(released),
    )
    return _section(
        "promise",
        "What was promised",
        *(element("p", sentence) for sentence in sentences),
        table("The promise, by what an observer knows", ["against", "ε", "δ"], rows, numbers=2),
        table(
            "What others can learn",
            ["who", "what holds"],
            words.DECOY_LIMITS if words.has_decoys(released) else words.LIMITS,
        ),
    )


def _promised(promise: Promise) -> tuple[str, str]:
    """Return ε and δ of a promise; no limit where there is none."""
    if promise.epsilon is None:
        return "no limit", ""
    return f"{promise.epsilon:.4g}", small(promise.delta)


def _errors(view: View) -> Html:
    error, privacy = error_shares(view.released, view.options.population)
    digits = decimals([error])
    parts = (("privacy noise", privacy), ("sampling", 1 - privacy), ("both", 1.0))
    rows = [(name, f"{100 * x:.1f}%", points(error * x**0.5, digits)) for name, x in parts]
    key = element(
        "ul",
        element("li", element("span", class_="swatch privacy"), "privacy noise"),
        element("li", element("span", class_="swatch sampling"), "sampling"),
        class_="key",
    )
    return _section(
        "errors",
        "How large the errors are, and why",
        element("p", words.error_words(view.released)),
        element("figure", key, error_bar(privacy), element(
            "figcaption", "Sources of the variance of the joint table")),
        table("Sources of error: variances add up, standard errors do not (root mean square over"
              " the cells, in percentage points)",
              ["source", "share of the variance", "standard error"], rows, numbers=2),
    )  # fmt: skip


def _asked(view: View, made: str) -> Html:
    released, origin, options = view.released, view.provenance, view.options
    copy = released.digest
    attributes = [
        (label(a.name), f"{a.size} categories" + _held(origin.holders.get(a.name)))
        for a in released.schema.attributes
    ]
    request = [
        ("study", origin.title),
        ("study id", origin.study and element("code", origin.study)),
        ("estimated by", origin.researcher),
        ("date", made),
        ("respondents", words.sample_words(released)),
        ("people in common", not released.size_known and _people(view)[0]),
        ("linkage", origin.linkage and words.LINKAGES[origin.linkage]),
        ("encrypted with", origin.pads and words.PADS[origin.pads]),
        ("numbers describe", words.population_words(released, options)),
        ("shares", words.estimator_words(released, options)),
        ("intervals", words.method_words(options)),
        ("published copy", copy and element("code", copy)),
        ("software", words.software()),
    ]
    sums = (
        "Every table is estimated from its own counts. Shares of a larger table therefore need not"
        " add up exactly to those of a smaller one, but the differences are smaller than the"
        " errors. Unbiased estimates add up exactly."
    )
    return _section(
        "asked",
        "What was asked, and how it was computed",
        table("The request", ["", ""], [(name, value) for name, value in request if value]),
        table("The attributes", ["attribute", "what it is"], attributes),
        element("p", sums),
    )


def _held(curator: str | None) -> str:
    return f", held by {curator}" if curator else ""


def _cite(view: View, made: str) -> Html:
    citation = words.citation(view.released, view.provenance, made)
    return _section(
        "cite",
        "How to cite",
        element("p", element("bdi", citation), class_="said"),
        element("p", f"The method: {words.METHOD}"),
        element("p", words.DECOYS_METHOD) if words.has_decoys(view.released) else Html(""),
    )


def _words(parts: Iterable[Html]) -> Html:
    """Say what the words of a page mean that people outside of this field do not know."""
    rows = list(meanings(plain_text("".join(parts))).items())
    if not rows:
        return Html("")
    return _section("words", "What the words mean", table("Words of this page", ["", ""], rows))


def _today() -> str:
    now = datetime.now(UTC)
    return f"{now.day} {now:%B %Y}"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
