"""The report of an estimate: one file, without scripts, that needs no network."""

from collections.abc import Iterator, Sequence
from importlib.resources import files

from veiltab.estimates import Estimate, Quantity
from veiltab.report import estimate_words as words
from veiltab.report.bars import error_bar, own, point_list, share_cell
from veiltab.report.estimate_pictures import marginal_section, pair_section
from veiltab.report.estimate_view import Background, Row, View, error_shares
from veiltab.report.html import Html, element, table
from veiltab.report.numbers import between, percent, points, small

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
    style = (files("veiltab.report") / "estimate_page.css").read_text("utf-8")
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
        _answers(view),
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
    cards = [
        (words.promise_words(estimate), "promised to every respondent: differential privacy"),
        (f"{estimate.plan.sample_size:,}", f"of {estimate.plan.population_size:,} respondents were"
         " sampled, and their records perturbed"),
        (f"± {points(error)}", f"percentage points: a typical standard error, over the"
         f" {estimate.schema.domain_size:,} cells of the joint table"),
        _largest(view),
    ]  # fmt: skip
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
    return percent(share), f"the largest cell: {named} (interval {between(low, high)})"


def _warnings(view: View) -> Html:
    if not view.warnings:
        return Html("")
    listed = (element("li", _sentence(each)) for each in view.warnings)
    return element(
        "section", element("h2", "Read with care", id="care"), element("ul", *listed),
        class_="care", aria_labelledby="care",
    )  # fmt: skip


def _answers(view: View) -> Html:
    if not view.answers:
        return Html("")
    caption = f"Shares of those who meet a condition ({words.interval_name(view.asked, simultaneous=False)})"
    rows = [(each.label, *_answer(each)) for each in view.answers]
    found = table(caption, ["condition", "share", "interval", *ERRORS], rows, numbers=5)
    return _section("answers", "What was asked for", found)


def _answer(answer: Quantity) -> list[str]:
    if answer.value is None or answer.low is None or answer.high is None:
        return ["not estimable", *[""] * 4]
    errors = (answer.standard_error, answer.sampling_error, answer.privacy_error)
    return [percent(answer.value), between(answer.low, answer.high), *point_list(errors)]


def _joint(view: View) -> Html:
    part = view.joint
    rows = [(*map(own, row.labels), Html("".join(map(str, share_cell(row)))), *_row_errors(row))
            for row in part.rows]  # fmt: skip
    few = "" if part.whole else f" The {len(part.rows)} largest of {part.total:,} cells:"
    caption = f"Every cell with its {words.interval_name(view.asked)}, in per cent.{few}"
    names = [*part.names, "share and interval", *ERRORS]
    found = table(caption, names, rows, numbers=4)
    if len(part.rows) > LONG:
        label = element("summary", f"The table of {len(part.rows):,} cells")
        found = element("details", label, found)
    notes = [element("p", words.interval_words(view.asked))]
    if not part.whole:
        more = (
            f"The joint table has {part.total:,} cells, too many for a page. The commands"
            " options --csv and --parquet write all of them."
        ).replace("commands", "command's")
        notes.append(element("p", more))
    return _section("table", "The whole table", *notes, found)


def _row_errors(row: Row) -> list[str]:
    return point_list((row.standard_error, row.sampling_error, row.privacy_error))


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
    rows = [
        ("privacy noise", percent(privacy), points(error * privacy**0.5)),
        ("sampling", percent(1 - privacy), points(error * (1 - privacy) ** 0.5)),
        ("both", percent(1.0), points(error)),
    ]
    key = element(
        "ul",
        element("li", element("span", class_="swatch privacy"), "privacy noise"),
        element("li", element("span", class_="swatch sampling"), "sampling"),
        class_="key",
    )
    return _section(
        "errors",
        "How far off, and why",
        element("p", " ".join(words.SPLIT)),
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
        ("study", origin.title), ("id of the study", origin.study and element("code", origin.study)),
        ("estimated by", background.researcher), ("on", background.made),
        ("sample", words.sample_words(estimate)), ("sampled by", background.sampled_by),
        ("pads", background.pads), ("numbers describe", words.population_words(estimate, asked)),
        ("shares", words.estimator_words(asked)),
        ("intervals", "from the unbiased estimate: score intervals for shares, Fieller's within"
         " groups" + ("; bands by the quantile of the largest error" if asked.simultaneous else "")),
        ("software", words.software()),
    ]  # fmt: skip
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
