"""What ``veiltab estimate`` prints: for people a table and words, for scripts one object."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from veiltab.cli.output import print_facts, print_rows
from veiltab.estimates import Estimate, Quantity
from veiltab.report import view as views
from veiltab.report import words
from veiltab.report.view import Asked, Part, Row
from veiltab.report.words import between, decimals, percent, points, small

if TYPE_CHECKING:
    from rich.console import Console

MOST_CELLS = 60
"""Cells of a table that people read; of larger ones they see each attribute by itself."""

LARGEST_CELLS = 10
NUMBERS = 5


def estimate_json(estimate: Estimate, asked: Asked, files: Mapping[str, str]) -> dict[str, Any]:
    """Return everything as JSON values; cells have the columns of the table."""
    answers = views.answer_all(estimate, asked)
    return {
        **origin_json(estimate),
        "estimator": asked.estimator,
        "level": asked.level,
        "simultaneous": asked.simultaneous,
        "population": asked.population,
        "warnings": list(views.all_warnings(estimate, answers)),
        "answers": [
            {"condition": condition, **answer.as_dict()}
            for condition, answer in zip(asked.conditions, answers, strict=True)
        ],
        "files": dict(files),
        "cells": estimate.table(**asked.options).rows(named=True),
    }


def origin_json(estimate: Estimate) -> dict[str, Any]:
    """Return where the numbers come from, and what was promised."""
    plan, origin = estimate.plan, estimate.provenance
    return {
        "study": origin.study,
        "title": origin.title,
        "perturbed_by": origin.perturbed_by,
        "attributes": [
            {"name": each.name, "categories": list(each.categories)}
            for each in estimate.schema.attributes
        ],
        "population_size": plan.population_size,
        "sample_size": plan.sample_size,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "epsilon_if_order_known": plan.epsilon_if_order_known,
        "promises": [
            {"against": each.against, "epsilon": each.epsilon, "delta": each.delta}
            for each in estimate.promises
        ],
    }


def print_estimate(
    screen: "Console", estimate: Estimate, asked: Asked, files: Mapping[str, str]
) -> None:
    """Print the promise, the table or the attributes by themselves, and what to know."""
    plan, title = estimate.plan, estimate.provenance.title
    delta = f", δ = {small(plan.delta)}" if plan.delta else ""
    facts = {
        "study": title or "",
        "sample": words.sample_words(estimate),
        "promise": f"ε = {plan.epsilon:g}{delta}; if the order leaks,"
        f" ε = {plan.epsilon_if_order_known:.4g}",
        "describes": words.population_words(estimate, asked),
    }
    print_facts(screen, {name: text for name, text in facts.items() if text})
    screen.print()
    _print_table(screen, estimate, asked)
    answers = views.answer_all(estimate, asked)
    if answers:
        _print_answers(screen, asked, answers)
    _print_notes(screen, estimate, asked, answers)
    if files:
        screen.print()
        print_facts(screen, files)


def _print_table(screen: "Console", estimate: Estimate, asked: Asked) -> None:
    headings = _headings(asked.level, simultaneous=asked.simultaneous)
    joint = views.cells(estimate, asked, MOST_CELLS, LARGEST_CELLS)
    if not joint.whole:
        rows = [row for part in views.marginals(estimate, asked) for row in _named(part)]
        print_rows(screen, ("attribute", "category", *headings), rows, numbers=NUMBERS)
        screen.print(
            f"\nThe joint table has {joint.total:,} cells: --csv and --parquet write them all."
            f"  The {len(joint.rows)} largest:\n"
        )
    print_rows(screen, (*joint.names, *headings), _lines(joint), numbers=NUMBERS)


def _named(part: Part) -> Iterator[tuple[str, ...]]:
    """Yield each category behind its attribute, and a word about those that are left out."""
    for line in _lines(part):
        yield part.names[0], *line
    if not part.whole:
        yield part.names[0], f"… {part.total - len(part.rows):,} more", *[""] * NUMBERS


def _lines(part: Part) -> Iterator[tuple[str, ...]]:
    for row in part.rows:
        yield *row.labels, *_numbers(row, part.digits)


def _numbers(row: Row | Quantity, digits: int) -> tuple[str, ...]:
    share = row.value if isinstance(row, Quantity) else row.share
    errors = (row.standard_error, row.sampling_error, row.privacy_error)
    if share is None or row.low is None or row.high is None:
        return ("not estimable", *[""] * (NUMBERS - 1))
    shown = (points(error or 0.0, digits) for error in errors)
    return percent(share, digits), between(row.low, row.high, digits), *shown


def _headings(level: float, *, simultaneous: bool) -> tuple[str, ...]:
    name = f"{100 * level:g}% {'band' if simultaneous else 'interval'}"
    return "share", name, "± error", "sampling", "privacy"


def _print_answers(screen: "Console", asked: Asked, answers: tuple[Quantity, ...]) -> None:
    digits = decimals(answer.standard_error for answer in answers)
    rows = [
        (condition, *_numbers(answer, digits))
        for condition, answer in zip(asked.conditions, answers, strict=True)
    ]
    headings = _headings(asked.level, simultaneous=False)
    screen.print()
    print_rows(screen, ("condition", *headings), rows, numbers=NUMBERS)


def _print_notes(
    screen: "Console", estimate: Estimate, asked: Asked, answers: tuple[Quantity, ...]
) -> None:
    """Say what the numbers mean, and what to beware of; none of it is markup."""
    from rich.text import Text

    screen.print()
    screen.print(Text(words.interval_words(asked)))
    screen.print(Text("The ± error is the standard error: sampling and privacy together."))
    if asked.estimator == "unbiased" and (estimate.unbiased < 0).any():
        screen.print(Text("Shares below zero are noise around next to nobody, left as they are."))
    for warning in views.all_warnings(estimate, answers):
        screen.print(Text(f"Warning: {warning}."))
