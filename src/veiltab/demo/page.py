"""The page that a demonstration leaves: one file, without scripts, that needs no network."""

from collections.abc import Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any

from veiltab.demo.charts import INTERVAL, Charts, error_key, figure, study_key
from veiltab.demo.results import (
    MECHANISMS,
    Cell,
    DemoResults,
    Reading,
    StudyResult,
    exponent,
)
from veiltab.report.html import Html, element, html, table

TITLE = "A joint table that nobody could read"
NUMBERS = {2: "two", 3: "three"}
SMALL = 0.001
"""Errors below it are shown with one digit more."""

EVERYBODY = 99.99
"""A chance in per cent that leaves nobody out."""

RARE = 6
"""How many of the rarest cells are shown of what server and researcher could read."""

WHO = {
    "researcher": "a researcher alone",
    "researcher and server": "a researcher with the server",
    "researcher and curator": "a researcher with a curator",
    "server and curator": "the server with a curator",
    "readers of published copies": "whoever only reads published copies",
}


def demo_page(results: DemoResults, charts: Charts) -> str:
    """Return the whole page."""
    style = (files("veiltab.demo") / "page.css").read_text("utf-8")
    head = element(
        "head",
        Html('<meta charset="utf-8">'),
        Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
        Html('<meta http-equiv="Content-Security-Policy" content="default-src \'none\';'),
        Html(" style-src 'unsafe-inline'\">"),
        element("title", f"{TITLE}: veiltab demo"),
        element("style", Html(style)),
    )
    main = element(
        "main",
        *_opening(results),
        *_errors(results, charts),
        *_promise(results),
        *_together(results),
        *_estimates(results, charts),
        *_published(results),
        *_server(results, charts),
        *_second(results),
        *_stored(results),
        *_checks(results),
        *_limits(),
    )
    page = element("html", head, element("body", main, _footer(results)), lang="en-GB")
    return f"<!doctype html>\n{page}\n"


def _opening(results: DemoResults) -> Iterator[Html]:
    papers = results.studies[0]
    people = f"{papers.plan['population_size']:,}"
    holders = "; ".join(
        f"the {name} knows {' and '.join(attributes)}"
        for name, attributes in results.holders.items()
    )
    yield element("h1", TITLE)
    yield element(
        "p",
        f"{people} people of the 1994 census, and two offices: {holders}. Neither may see what the"
        " other knows. A server that can read none of it has joined the two tables, and a"
        " researcher has estimated the joint table of all four attributes.",
        class_="lead",
    )
    yield element(
        "p",
        f"They have done so {NUMBERS[len(results.studies)]} times, with the same promise"
        f" ε = {papers.epsilon:g}: as the paper proposes, and with decoys, records that the offices"
        " invent and that nobody else can tell from real ones.",
    )
    cards = [
        element(
            "li",
            element("strong", f"{each.l2_error:.{digits}f}"),
            f"error of the whole table, and {each.predicted_rmse:.{digits}f} predicted: ",
            element("span", each.label, class_="whole"),
        )
        for each in results.studies
        for digits in [4 if each.predicted_rmse > SMALL else 5]
    ]
    cards.append(
        element(
            "li",
            element("strong", f"{results.server.ids_found} of {people}"),
            "ids of people found in all that the server had on its disk",
        )
    )
    yield element("ul", *cards, class_="cards")


def _errors(results: DemoResults, charts: Charts) -> Iterator[Html]:
    papers, decoys, *others = results.studies
    ratio = papers.predicted_rmse / decoys.predicted_rmse
    yield element("h2", "How far off")
    text = (
        f"With the same ε and the same δ = 0, decoys leave {ratio:.1f} times less error than the"
        " paper's way."
    )
    if others:
        trusted = others[0].predicted_rmse / float(papers.plan["trusted_party_rmse"])
        text += (
            f" With a δ of {others[0].delta_text} they come close to a party that is trusted with"
            f" all records and adds Laplace noise: {trusted:.2f} times its error."
        )
    yield element("p", text)
    yield figure(
        charts.errors,
        "Distance of the estimated table from the truth, on a logarithmic scale",
        error_key(),
    )


def _estimates(results: DemoResults, charts: Charts) -> Iterator[Html]:
    studies = results.studies
    yield element("h2", "What was estimated")
    yield element(
        "p",
        "Each estimate is unbiased, and says itself how far off it may be. Cells that hold next to"
        " nobody can come out below zero: that is noise, left as it is.",
    )
    caption = (
        f"Estimated shares of the {len(studies[0].cells)} cells; bars reach {INTERVAL} standard"
        " errors to each side. The numbers are in the table below."
    )
    yield figure(charts.estimates, caption, study_key(studies))
    names = ["cell", "truth", *map(_heading, studies)]
    yield table(
        "The same in numbers: share ± standard error, in per cent",
        names,
        _joint_rows(studies),
        numbers=len(names) - 1,
    )


def _promise(results: DemoResults) -> Iterator[Html]:
    studies = results.studies
    yield element("h2", "What was promised")
    yield element(
        "p",
        "To every single person: whatever is released would have been almost as likely had their"
        " record been a different one. “Almost” means up to a factor of e to the ε, and δ bounds"
        " how much may fall outside it.",
    )
    yield table(
        "What each coalition may learn about a person, as ε",
        ["", *map(_heading, studies)],
        [
            (name, *(_epsilon(each.promise_to(who)) for each in studies))
            for who, name in WHO.items()
        ],
        numbers=len(studies),
    )
    yield element(
        "p",
        "The curators read this table before they sign. “No bound” stands where the paper's way"
        " ends: server and researcher together would read the sampled records without noise. With"
        " decoys they learn no more than the researcher alone, as long as no curator helps them. A"
        " curator who helps the researcher knows the decoys; then only the server's noise is left.",
    )
    yield table(
        "What is done to the records",
        ["", *map(_heading, studies)],
        [(name, *values) for name, values in _facts(studies)],
        numbers=len(studies),
    )


def _facts(studies: Sequence[StudyResult]) -> Iterator[tuple[str, list[str]]]:
    plans = [each.plan for each in studies]
    yield "who takes part", [_part(plan) for plan in plans]
    yield (
        "decoys, expected",
        [f"{plan['decoys']['expected']:,.0f}" if plan["decoys"] else "none" for plan in plans],
    )
    yield (
        "rows that the server leaves as they are",
        [f"{100 * plan['keep_probability']:.1f}%" for plan in plans],
    )
    yield "γ of the server's noise", [f"{plan['gamma']:,.0f}" for plan in plans]
    yield "error predicted", [f"{each.predicted_rmse:.5f}" for each in studies]
    yield "error found", [f"{each.l2_error:.5f}" for each in studies]
    yield (
        f"cells within {INTERVAL} standard errors",
        [f"{each.within(INTERVAL)} of {len(each.cells)}" for each in studies],
    )


def _part(plan: Mapping[str, Any]) -> str:
    if plan["sample_size"] is not None:
        return f"{plan['sample_size']:,} people"
    chance = 100 * plan["coin_probability"]
    return "everybody" if chance > EVERYBODY else f"{chance:.1f}%, by coin"


def _epsilon(epsilon: float | None) -> str:
    if epsilon is None:
        return "no bound"
    return f"{epsilon:.3g}" if epsilon else "nothing"


def _together(results: DemoResults) -> Iterator[Html]:
    readings = results.readings
    first = readings[0]
    yield element("h2", "What server and researcher could read together")
    yield element(
        "p",
        "A promise is worth what it holds against those who break the rules. The operator of this"
        " server has kept a copy of everything that was uploaded, which nobody could notice, and"
        " the researcher has lent the keys. Together they have opened every row, before any noise:",
    )
    rows = [
        (
            ", ".join(first.categories[cell]),
            f"{first.people[cell]:,}",
            *(f"{reading.rows[cell]:,}" for reading in readings),
        )
        for cell in first.rarest[:RARE]
    ]
    totals = [f"{sum(reading.rows):,}" for reading in readings]
    rows.append(("all cells", f"{sum(first.people):,}", *totals))
    yield table(
        "Rows that were opened in the rarest cells, and in all",
        ["cell", "people in it", *map(_heading, results.studies)],
        rows,
        numbers=1 + len(readings),
    )
    for study, reading in zip(results.studies, readings, strict=True):
        yield element("p", element("strong", study.label), ": ", _verdict(study, reading))


def _verdict(study: StudyResult, reading: Reading) -> str:
    if reading.epsilon is None:
        return (
            "every row is the record of a person, exactly as it is in the offices' tables. Of"
            " somebody who is alone in a cell, a single row tells everything. No ε holds any more."
        )
    mean, deviation = reading.decoys
    invented = f"in every cell about {mean:.1f} ± {deviation:.1f} rows are invented"
    if study.delta:
        return f"{invented}. ε = {reading.epsilon:g} and δ = {study.delta_text} still hold."
    return (
        f"{invented}. Nobody but the curators knows how many, and which: a row may be nobody's,"
        f" also in a cell of which somebody is known to be the only one. ε = {reading.epsilon:g}"
        " still holds."
    )


def _heading(study: StudyResult) -> Html:
    """Return a study's mechanism and δ as a column's heading, on two lines."""
    delta = element("span", f"δ = {study.delta_text}", class_="whole")
    return Html(f"{html(MECHANISMS[study.mechanism])},<br>{delta}")


def _published(results: DemoResults) -> Iterator[Html]:
    copy, own = results.published, results.closest
    yield element("h2", "What everybody else may read")
    yield element(
        "p",
        "A curator knows the decoys, and could subtract them from the researcher's table. So tables"
        " and reports for others are made from a published copy: the same counts with noise of"
        f" their own, drawn once, for ε = {copy.epsilon:g} against all who only read it. The log"
        " names the copy by its digest: ",
        element("code", copy.digest),
    )
    yield table(
        f"“{copy.title}”: distance from the truth",
        ["", "predicted", "found"],
        [
            (name, f"{each.predicted_rmse:.5f}", f"{each.l2_error:.5f}")
            for name, each in (("the researcher's own estimate", own), ("the published copy", copy))
        ],
        numbers=2,
    )


def _server(results: DemoResults, charts: Charts) -> Iterator[Html]:
    server, column = results.server, results.server.column
    yield element("h2", "What the server saw")
    yield element(
        "p",
        f"For “{results.closest.title}” the curators have uploaded {len(server.received)} chunks"
        f" of {sum(server.received):,} bytes. Below is the column"
        f" “{column.attribute}” as it stands in the curator's table, and as the server has it. The"
        f" encrypted values are spread evenly (χ² test: p = {column.p_value:.2f}), whatever the"
        " table says.",
    )
    caption = f"“{column.attribute}” in the curator's table and on the server, by category"
    yield figure(charts.column, caption)
    yield table(
        "The same in numbers of rows",
        [column.attribute, "in the table", "on the server"],
        [
            (name, f"{in_table:,}", f"{on_server:,}")
            for name, in_table, on_server in zip(
                column.categories, column.table, column.received, strict=True
            )
        ],
        numbers=2,
    )
    yield element(
        "p",
        f"After the release {len(server.received_later)} chunks of unperturbed ciphertext were"
        f" left, and {len(server.released)} perturbed columns of {sum(server.released):,} bytes."
        " They are still encrypted; only a researcher with the curators' grants can decrypt them,"
        " and then finds the noise.",
    )


def _second(results: DemoResults) -> Iterator[Html]:
    second = results.second
    yield element("h2", "What a second researcher saw")
    granted = " and ".join(second.granted)
    yield element("p", f"{second.name} was granted {granted} by one curator, and nothing else.")
    yield table(
        f"{second.name}'s estimates: share ± standard error, in per cent",
        [granted, "truth", "estimate"],
        [
            (", ".join(cell.categories), f"{100 * cell.truth:.2f}", _estimate(cell))
            for cell in second.cells
        ],
        numbers=2,
    )
    yield element("p", f"Asked for {', '.join(second.asked)}, the command answered:")
    yield element("p", f"error: {second.error}\nhint: {second.hint}", class_="said")


def _stored(results: DemoResults) -> Iterator[Html]:
    stored = results.stored
    yield element("h2", "The same tables, stored once")
    yield element(
        "p",
        f"The curators also stored their tables of {stored.rows_stored:,} rows in a vault,"
        f" encrypted, and signed one more study, “{stored.title}”, which draws from it. Nobody"
        " pushed a table again: each curator's agent answered with new pads for the drawn rows, and"
        " granted the release, within a policy and with a log of every answer.",
    )
    yield table(
        "What the agents did",
        ["agent of", "rows stored", "rows answered", "its log"],
        [
            (agent.curator, f"{stored.rows_stored:,}", f"{agent.rows:,}", ", ".join(agent.events))
            for agent in stored.agents
        ],
        numbers=2,
    )
    yield element(
        "p",
        f"The estimate's ℓ₂ error is {stored.l2_error:.5f}; {stored.predicted_rmse:.5f} was"
        " predicted. Stored tables have no decoys: a server that sees rows in many studies could"
        " tell which are decoys.",
    )


def _checks(results: DemoResults) -> Iterator[Html]:
    server = results.server
    yield element("h2", "Who checked")
    names = ", ".join(server.verified_by)
    yield element(
        "p",
        "Every step is an entry of a log in which each entry has the hash of the one before."
        f" {names} have verified it, each for themselves, up to the same last hash: ",
        element("code", server.head),
    )
    yield table(
        f"The log of “{results.closest.title}”",
        ["no.", "who", "what", "the study is then"],
        [(e["sequence"], e.get("name") or "", e["event"], e["state"]) for e in server.entries],
    )
    yield table(
        "The curators' privacy budgets",
        ["curator", "ε limit", "left before", "left after", "δ spent"],
        [
            (
                each.curator,
                f"{each.after['epsilon_limit']:g}",
                f"{each.before['epsilon_left']:g}",
                f"{each.after['epsilon_left']:g}",
                exponent(each.after["delta_spent"]),
            )
            for each in results.ledgers
        ],
        numbers=4,
    )


def _limits() -> Iterator[Html]:
    yield element("h2", "Where the promise ends")
    yield element(
        "p",
        "The promise with decoys is kept by the curators: one who tells the study's secret, or who"
        " leaves decoys out on purpose, takes it from everybody. It is computational: coins, decoys"
        " and order come from a key.",
    )
    yield element(
        "p",
        "In this demonstration all parties ran on one computer and under one user, who could read"
        " everything. It shows what passes between them, and not how well five real organisations"
        " guard their own machines. The truth is known here because the census data are public.",
    )


def _footer(results: DemoResults) -> Html:
    return element(
        "footer",
        f"Made by veiltab demo: {results.commands} commands as processes of their own, in"
        f" {results.seconds:.1f} seconds. This page is one file; it loads nothing.",
    )


def _joint_rows(studies: Sequence[StudyResult]) -> Iterator[tuple[str, ...]]:
    split = len(studies[0].names) // 2
    group: tuple[str, ...] = ()
    for cells in zip(*(each.cells for each in studies), strict=True):
        categories = cells[0].categories
        if categories[:split] != group:
            group = categories[:split]
            yield (", ".join(group),)
        name = ", ".join(categories[split:])
        yield (name, f"{100 * cells[0].truth:.2f}", *(_estimate(cell) for cell in cells))


def _estimate(cell: Cell) -> str:
    return f"{100 * cell.share:.2f} ± {100 * cell.standard_error:.2f}".replace("-", "−")
