"""What ``veiltab estimate`` prints: a table with notes for people, one object for scripts."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from veiltab.cli.output import print_facts, print_rows
from veiltab.estimates import Estimate, Quantity
from veiltab.inference.conditions import describe
from veiltab.report import words
from veiltab.report.formatting import between, decimals, percent, points
from veiltab.report.view import (
    ReportOptions,
    Row,
    ShownTable,
    all_warnings,
    answer_conditions,
    joint_part,
    marginal_parts,
)

if TYPE_CHECKING:
    from rich.console import Console

MOST_CELLS = 60
"""A table with more cells is not printed whole: each attribute is shown by itself instead."""

LARGEST_CELLS = 10
NUMBERS = 5
MOST_NOTES = 10
"""Of how many cells it is printed what to know about them."""


def estimate_json(
    estimate: Estimate, options: ReportOptions, files: Mapping[str, str]
) -> dict[str, Any]:
    """Return everything as JSON values; cells have the columns of the table."""
    answers = answer_conditions(estimate, options)
    return {
        **estimate.summary(),
        "people_in_common": _people_json(estimate, options),
        "estimator": options.estimator,
        "level": options.level,
        "simultaneous": options.simultaneous,
        "population": options.population,
        "warnings": list(all_warnings(estimate, answers)),
        "answers": [
            {"condition": condition, **answer.as_dict()}
            for condition, answer in zip(options.conditions, answers, strict=True)
        ],
        "files": dict(files),
        "cells": estimate.table(**options.table).rows(named=True),
    }


def print_estimate(
    screen: "Console", estimate: Estimate, options: ReportOptions, files: Mapping[str, str]
) -> None:
    """Print the promise, the table or its attributes by themselves, and what to know about it."""
    facts = {
        "study": estimate.provenance.title or "",
        "status": estimate.status,
        "sample": words.sample_words(estimate),
        "promise": _promise(estimate),
        "describes": words.population_words(estimate, options),
        "in common": _people(estimate, options),
    }
    print_facts(screen, {name: text for name, text in facts.items() if text})
    screen.print()
    _print_table(screen, estimate, options)
    answers = answer_conditions(estimate, options)
    if answers:
        _print_answers(screen, options, answers)
    _print_notes(screen, estimate, options, answers)
    if files:
        screen.print()
        print_facts(screen, files)


def _people_json(estimate: Estimate, options: ReportOptions) -> dict[str, float | None]:
    people = estimate.population(level=options.level)
    return {name: getattr(people, name) for name in ("value", "standard_error", "low", "high")}


def _people(estimate: Estimate, options: ReportOptions) -> str:
    """Say how many people all curators hold, if nobody has counted them."""
    if estimate.size_known:
        return ""
    people = estimate.population(level=options.level)
    return (
        f"about {people.value or 0:,.0f} people"
        f" ({100 * options.level:g}% interval {people.low or 0:,.0f}–{people.high or 0:,.0f})"
    )


def _promise(estimate: Estimate) -> str:
    plan = estimate.plan
    helped = plan.epsilon_with_curator
    bound = "no bound" if helped is None else f"ε = {helped:.4g}"
    return (
        f"{words.promise_words(estimate)}; if a curator helps the researcher, {bound};"
        f" for readers of published copies, ε = {plan.epsilon_public:g}"
    )


def _print_table(screen: "Console", estimate: Estimate, options: ReportOptions) -> None:
    headings = _headings(options.level, simultaneous=options.simultaneous)
    joint = joint_part(estimate, options, MOST_CELLS, LARGEST_CELLS)
    if not joint.whole:
        rows = [row for part in marginal_parts(estimate, options) for row in _named(part)]
        print_rows(screen, ("attribute", "category", *headings), rows, numbers=NUMBERS)
        screen.print(
            f"\nThe joint table has {joint.total:,} cells: --csv and --parquet write them all."
            f"  The {len(joint.rows)} largest:\n"
        )
    print_rows(screen, (*joint.names, *headings), _lines(joint), numbers=NUMBERS)


def _named(part: ShownTable) -> Iterator[tuple[str, ...]]:
    """Yield each category after its attribute, and how many categories are left out."""
    for line in _lines(part):
        yield part.names[0], *line
    if not part.whole:
        yield part.names[0], f"… {part.total - len(part.rows):,} more", *[""] * NUMBERS


def _lines(part: ShownTable) -> Iterator[tuple[str, ...]]:
    for row in part.rows:
        yield *row.labels, *_numbers(row, part.digits)


def _numbers(row: Row | Quantity, digits: int) -> tuple[str, ...]:
    share = row.value if isinstance(row, Quantity) else row.share
    errors = (row.standard_error, row.sampling_error, row.privacy_error)
    if row.low is None or row.high is None:
        return ("not estimable", *[""] * (NUMBERS - 1))
    if share is None:
        return ("", between(row.low, row.high, digits), *[""] * (NUMBERS - 2))
    texts = (points(error or 0.0, digits) for error in errors)
    return percent(share, digits), between(row.low, row.high, digits), *texts


def _headings(level: float, *, simultaneous: bool) -> tuple[str, ...]:
    name = f"{100 * level:g}% {'band' if simultaneous else 'interval'}"
    return "share", name, "± error", "sampling", "privacy"


def _print_answers(
    screen: "Console", options: ReportOptions, answers: tuple[Quantity, ...]
) -> None:
    digits = decimals(answer.standard_error for answer in answers)
    rows = [
        (condition, *_numbers(answer, digits))
        for condition, answer in zip(options.conditions, answers, strict=True)
    ]
    headings = _headings(options.level, simultaneous=False)
    screen.print()
    print_rows(screen, ("condition", *headings), rows, numbers=NUMBERS)


def _print_notes(
    screen: "Console", estimate: Estimate, options: ReportOptions, answers: tuple[Quantity, ...]
) -> None:
    """Say what the numbers mean and what to beware of, as plain text without markup."""
    from rich.text import Text

    screen.print()
    screen.print(Text(words.interval_words(options)))
    screen.print(Text("The ± error is the standard error: sampling and privacy together."))
    if options.estimator == "unbiased" and (estimate.unbiased < 0).any():
        screen.print(Text("Shares below zero are noise: these cells hold next to nobody."))
    for warning in all_warnings(estimate, answers):
        screen.print(Text(f"Warning: {warning}."))
    part = joint_part(estimate, options, MOST_CELLS, LARGEST_CELLS)
    notes = [f"P({describe(part.names, row.labels)}): {row.note}" for row in part.rows if row.note]
    for note in notes[:MOST_NOTES]:
        screen.print(Text(f"{note}."))
    if len(notes) > MOST_NOTES:
        more = len(notes) - MOST_NOTES
        screen.print(
            Text(f"The same holds for {more:,} more cells: --csv and --parquet name them.")
        )
