"""The page that a demonstration leaves: one file, without scripts, that needs no network."""

from collections.abc import Iterator, Sequence
from importlib.resources import files

from veiltab.demo.charts import INTERVAL, Charts, figure, study_key
from veiltab.demo.results import Cell, DemoResults, StudyResult, exponent
from veiltab.report.html import Html, element, table

TITLE = "A joint table that nobody could read"
LIMITS = (
    ("The server alone", "learns nothing about the values; it sees random-looking bytes"),
    ("A researcher alone", "gets the promise above, ε and δ"),
    ("A curator alone", "learns nothing about the other curator's values"),
    (
        "A researcher with a curator",
        "knows the secret order: the promise becomes the larger ε “if the order is known”",
    ),
    (
        "A researcher with the server",
        "together read the sampled records without noise, but without names: keep them independent",
    ),
)


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
        *_estimates(results, charts),
        *_promise(results),
        *_server(results, charts),
        *_second(results),
        *_checks(results),
        *_limits(),
    )
    page = element("html", head, element("body", main, _footer(results)), lang="en-GB")
    return f"<!doctype html>\n{page}\n"


def _opening(results: DemoResults) -> Iterator[Html]:
    papers, close = results.studies[0], results.closest
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
    cards = [
        element(
            "li",
            element("strong", f"{each.l2_error:.4f}"),
            f"error of the whole table, and {each.predicted_rmse:.4f} predicted, at ",
            element("span", each.promise, class_="whole"),
        )
        for each in results.studies
    ]
    cards.append(
        element(
            "li",
            element("strong", f"{results.server.ids_found} of {people}"),
            "ids of people found in all that the server had on its disk",
        )
    )
    cards.append(
        element(
            "li",
            element("strong", f"{len(results.server.verified_by)} of 4"),
            f"parties verified the log of “{close.title}”, and saw the same",
        )
    )
    yield element("ul", *cards, class_="cards")


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
    names = ["cell", "truth", *(f"δ = {each.delta_text}" for each in studies)]
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
    facts = [
        ("ε", [f"{each.epsilon:g}" for each in studies]),
        ("δ", [each.delta_text for each in studies]),
        ("ε if the order is known", [f"{_leak(each):.3g}" for each in studies]),
        ("people sampled", [f"{each.plan['sample_size']:,}" for each in studies]),
        (
            "records kept as they are",
            [f"{100 * each.plan['keep_probability']:.1f} %" for each in studies],
        ),
        ("γ of the noise", [f"{each.plan['gamma']:.4g}" for each in studies]),
        ("predicted error", [f"{each.predicted_rmse:.5f}" for each in studies]),
        ("error found", [f"{each.l2_error:.5f}" for each in studies]),
        (
            f"cells within {INTERVAL} standard errors",
            [f"{each.within(INTERVAL)} of {len(each.cells)}" for each in studies],
        ),
    ]
    yield table(
        "The studies and their promises; errors are ℓ₂ distances, predicted as root mean squares",
        ["", *(each.title for each in studies)],
        [(name, *values) for name, values in facts],
        numbers=len(studies),
    )
    if len(studies) > 1:
        ratio = studies[0].predicted_rmse / studies[-1].predicted_rmse
        yield element(
            "p",
            "The paper's promise rests on the sample and on the noise. The other one counts the"
            " secret order of the records as well, which nobody but the curators knows; a tiny δ"
            f" then buys an error that is {ratio:.0f} times smaller. It depends more on that order:"
            " see the third row.",
        )


def _server(results: DemoResults, charts: Charts) -> Iterator[Html]:
    server, column = results.server, results.server.column
    yield element("h2", "What the server saw")
    yield element(
        "p",
        "After one curator had pushed, its part of the study was on the server's disk:"
        f" {len(server.received)} chunks of {sum(server.received):,} bytes. Below is the column"
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
    yield table("Who learns what, from a study like these", ["who", "what holds"], LIMITS)
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


def _leak(study: StudyResult) -> float:
    return float(study.plan["epsilon_if_order_known"])
