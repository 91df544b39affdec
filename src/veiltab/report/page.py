"""The report of an estimate: one file, without scripts, that needs no network."""

from dataclasses import replace
from importlib.resources import files

from veiltab.estimates import Estimate
from veiltab.report import words
from veiltab.report.html import (
    Html,
    Scale,
    bar_table,
    element,
    error_bar,
    own,
    point_list,
    share_cell,
    table,
)
from veiltab.report.sections import answer_section, errors_of, marginal_section, pair_section
from veiltab.report.view import Background, Part, View, error_shares
from veiltab.report.words import between, decimals, percent, points, small

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
LONG = 30
"""Rows of a table that stays closed until somebody wants to see it."""

ERRORS = ("standard error", "sampling", "privacy")


def estimate_page(view: View, background: Background) -> str:
    """Return the whole page."""
    style = (files("veiltab.report") / "page.css").read_text("utf-8")
    title = view.estimate.provenance.title or "An estimated table"
    head = element(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'),
        Html(" style-src 'unsafe-inline'\">"),
        element("title", f"{title}: estimates with veiltab"),
        element("style", Html(style)),
    )
    main = element(
        "main",
        _opening(view, title),
        _warnings(view),
        answer_section(view),
        marginal_section(view),
        pair_section(view),
        _joint(view),
        _promise(view.estimate),
        _errors(view),
        _asked(view, background),
        _cite(view.estimate, background),
    )
    footer = element("footer", f"Made with {words.software()}. This page is one file; it loads"
                     " nothing.")  # fmt: skip
    page = element("html", head, element("body", main, footer), lang="en-GB")
    return f"<!doctype html>\n{page}\n"


def _section(name: str, title: str, *content: object) -> Html:
    return element(
        "section", element("h2", title, id=name), *content, aria_labelledby=name
    )  # fmt: skip


def _opening(view: View, title: str) -> Html:
    estimate = view.estimate
    names = estimate.schema.names
    what = ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]
    error, _ = error_shares(estimate, view.asked.population)
    cells = estimate.schema.domain_size
    cards = [
        (words.promise_words(estimate), "promised to every respondent: differential privacy"),
        (
            f"{estimate.plan.sample_size:,}",
            f"of {estimate.plan.population_size:,} respondents sampled, their records perturbed",
        ),
        (
            f"± {points(error, decimals([error]))}",
            f"percentage points: the typical standard error of one of the {cells:,} cells",
        ),
        _largest(view),
    ]
    return element(
        "header",
        element("p", "Estimates from perturbed records", class_="kind"),
        element("h1", element("bdi", title)),
        element("p", "How ", element("bdi", what), " are distributed",
                " together" if len(names) > 1 else "", ", estimated without anybody having seen a"
                " true record.", class_="lead"),
        element("ul", *(element("li", element("strong", a), b) for a, b in cards), class_="cards"),
        _contents(view),
    )  # fmt: skip


def _contents(view: View) -> Html:
    """Return links to the sections that there are."""
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
    row = max(view.joint.rows, key=lambda each: each.share or 0.0)
    share, low, high = row.share or 0.0, row.low or 0.0, row.high or 0.0
    named = ", ".join(row.labels)
    digits = decimals([row.standard_error])
    ends = between(low, high, digits)
    return percent(share, digits), f"the largest cell: {named} (interval {ends})"


def _warnings(view: View) -> Html:
    if not view.warnings:
        return Html("")
    listed = (element("li", _sentence(each)) for each in view.warnings)
    return element(
        "section", element("h2", "Read with care", id="care"), element("ul", *listed),
        class_="care", aria_labelledby="care",
    )  # fmt: skip


def _joint(view: View) -> Html:
    part = view.joint
    few = "" if part.whole else f"; the {len(part.rows)} largest of {part.total:,} cells"
    caption = f"Every cell: share and {words.interval_name(view.asked)}{few}"
    bars = bar_table(caption, _halved(part), Scale.over(part.rows), "share")
    if len(part.rows) > LONG:
        shown = element("details", element("summary", f"The {len(part.rows):,} cells"), bars)
    else:
        shown = element("div", bars, class_="card")
    notes = [element("p", words.interval_words(view.asked))]
    if not part.whole:
        more = (
            f"The joint table has {part.total:,} cells, too many for a page. The options --csv and"
            " --parquet of the command write all of them."
        )
        notes.append(element("p", more))
    return _section("table", "The whole table", *notes, shown, _columns(part, caption))


def _halved(part: Part) -> Part:
    """Put each cell's first categories into a heading; the largest cells have no such order."""
    split = len(part.names) // 2 if part.whole else 0

    def halves(texts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(" · ".join(half) for half in (texts[:split], texts[split:]) if half)

    rows = tuple(replace(row, labels=halves(row.labels)) for row in part.rows)
    return Part(halves(part.names), rows, part.total)


def _columns(part: Part, caption: str) -> Html:
    """Return the same cells with a column for each attribute, and their errors."""
    digits = part.digits
    rows = [
        (*map(own, row.labels), share_cell(row, digits), *point_list(errors_of(row), digits))
        for row in part.rows
    ]
    names = [*part.names, "share and interval", *ERRORS]
    found = table(f"{caption}; standard errors in percentage points", names, rows, numbers=4)
    return element("details", element("summary", "In columns, with standard errors"), found)


def _promise(estimate: Estimate) -> Html:
    plan = estimate.plan
    rows = [(_capital(p.against), f"{p.epsilon:.4g}", small(p.delta) if p.delta else "0")
            for p in estimate.promises]  # fmt: skip
    return _section(
        "promise",
        "What was promised",
        element(
            "p",
            "To every single respondent: whatever was released would have come out almost as"
            " likely had their record been another one. “Almost” is a factor of e to the ε",
            ", and δ bounds how much may fall outside it. " if plan.delta else ". ",
            words.noise_words(estimate),
            " ",
            words.accounting_words(estimate),
        ),
        table("The promise, by who looks at the release", ["against", "ε", "δ"], rows, numbers=2),
        table("Where the promise ends", ["who", "what holds"], words.LIMITS),
    )


def _errors(view: View) -> Html:
    error, privacy = error_shares(view.estimate, view.asked.population)
    digits = decimals([error])
    parts = (("privacy noise", privacy), ("sampling", 1 - privacy), ("both", 1.0))
    rows = [(name, f"{100 * x:.1f} %", points(error * x**0.5, digits)) for name, x in parts]
    key = element(
        "ul",
        element("li", element("span", class_="swatch privacy"), "privacy noise"),
        element("li", element("span", class_="swatch sampling"), "sampling"),
        class_="key",
    )
    return _section(
        "errors",
        "How far off, and why",
        element("p", words.SPLIT),
        element("figure", key, error_bar(privacy), element(
            "figcaption", "Which part of the variance of the joint table comes from what")),
        table("Parts of the error: variances add up, standard errors do not (root mean square over"
              " the cells, in percentage points)",
              ["source", "part of the variance", "standard error"], rows, numbers=2),
    )  # fmt: skip


def _asked(view: View, background: Background) -> Html:
    estimate, asked = view.estimate, view.asked
    origin = estimate.provenance
    holders = background.holders
    facts: list[tuple[str, object]] = [
        (own(each.name), f"{each.size} categories" + _held(holders.get(each.name)))
        for each in estimate.schema.attributes
    ]
    about = [
        ("study", origin.title),
        ("id of the study", origin.study and element("code", origin.study)),
        ("estimated by", background.researcher),
        ("on", background.made),
        ("sample", words.sample_words(estimate)),
        ("sampled by", background.sampled_by),
        ("pads", background.pads),
        ("numbers describe", words.population_words(estimate, asked)),
        ("shares", words.estimator_words(asked)),
        ("intervals", words.method_words(asked)),
        ("software", words.software()),
    ]
    sums = (
        "Every table is estimated from its own counts. So sums over a larger table can differ a"
        " little from a smaller one, by less than their errors; unbiased estimates add up exactly."
    )
    return _section(
        "asked",
        "What was asked, and how it was computed",
        table("The request", ["", ""], [(a, b) for a, b in about if b]),
        table("The attributes", ["attribute", "what it is"], facts),
        element("p", sums),
    )


def _held(holder: str | None) -> str:
    return f", held by {holder}" if holder else ""


def _cite(estimate: Estimate, background: Background) -> Html:
    return _section(
        "cite",
        "How to cite",
        element("p", element("bdi", words.citation(estimate, background)), class_="said"),
        element("p", f"The method: {words.METHOD}"),
    )


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:].rstrip('.')}."
