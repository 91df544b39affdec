"""``veiltab estimate``: the joint distribution behind a release, and how far off it may be."""

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from veiltab.cli.output import console, json_option, print_facts, print_json, print_rows
from veiltab.cli.party import LONG_PATIENCE, Party, party_options
from veiltab.errors import InputError, MessageError

if TYPE_CHECKING:
    from rich.console import Console

    from veiltab.roles.researcher.estimate import Estimate
    from veiltab.wire.contract import Contract
    from veiltab.wire.grant import SignedGrant

MOST_CELLS = 60
"""Cells of a table that people read; of larger ones they see each attribute by itself."""

VALUES = ("share", "standard_error")
HEADINGS = ("share", "± std. error")


@click.command("estimate")
@click.argument("study")
@click.option(
    "--attribute",
    "attributes",
    multiple=True,
    help="An attribute to estimate; may be repeated.  All that are granted by default.",
)
@click.option(
    "--grant",
    "grants",
    type=click.Path(dir_okay=False, path_type=Path),
    multiple=True,
    help="A grant file that a curator has handed over; may be repeated.",
)
@click.option(
    "--csv",
    "csv_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write every cell to this file.",
)
@party_options
@json_option
def estimate_command(
    study: str,
    attributes: tuple[str, ...],
    grants: tuple[Path, ...],
    csv_file: Path | None,
    party: Party,
    as_json: bool,
) -> None:
    """Estimate the joint distribution behind STUDY.

    It takes a grant of every curator whose attributes you ask for.  The estimates are unbiased.
    Cells that hold next to nobody can come out negative: that is noise, and setting them to zero
    would bias everything that is computed from them.

    \b
    Examples:
      veiltab estimate "Smoking and income"
      veiltab estimate 3fa9 --attribute smoker --attribute income --csv table.csv
      veiltab estimate 3fa9 --grant hospital.grant --grant tax-office.grant --json
    """  # noqa: D301 - \b tells click to leave the lines alone
    from veiltab.client.researcher import estimate_study

    files = [_read_grant(path) for path in grants]
    with party.session(LONG_PATIENCE) as session:
        found = session.find_study(study)
        estimate = estimate_study(session, found, list(attributes) or None, files)
        contract = session.contract(found).body
    if csv_file is not None:
        from veiltab.report.files import csv_bytes, write_whole

        write_whole(csv_file, csv_bytes(list(_cells(estimate))))
    if as_json:
        print_json(_estimate_json(contract, estimate))
    else:
        _print_estimate(console(), contract, estimate)


def _read_grant(path: Path) -> "SignedGrant":
    from veiltab.wire.canonical import MAX_MESSAGE_BYTES
    from veiltab.wire.grant import SignedGrant

    try:
        with path.open("rb") as file:
            return SignedGrant.loads(file.read(MAX_MESSAGE_BYTES + 1))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}", hint="check the path") from error
    except MessageError as error:
        raise InputError(
            f"{path} is not a grant", hint="ask the curator for the file that `veiltab grant` wrote"
        ) from error


def _estimate_json(contract: "Contract", estimate: "Estimate") -> dict[str, Any]:
    plan = estimate.plan
    return {
        "study": contract.study_id.hex(),
        "attributes": [
            {"name": each.name, "categories": list(each.categories)}
            for each in estimate.schema.attributes
        ],
        "population_size": plan.population_size,
        "sample_size": plan.sample_size,
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "epsilon_if_order_known": plan.epsilon_if_order_known,
        "cells": list(_cells(estimate)),
    }


def _cells(estimate: "Estimate") -> Iterator[dict[str, Any]]:
    """Yield each cell: its category of every attribute, its share, and the standard error."""
    keys = [*_keys(estimate.schema.names), *VALUES]
    for categories, share, error in _rows(estimate):
        yield dict(zip(keys, (*categories, share, error), strict=True))


def _rows(estimate: "Estimate") -> Iterator[tuple[tuple[str, ...], float, float]]:
    import numpy as np

    shares = estimate.distribution.tolist()
    errors = np.sqrt(np.maximum(estimate.covariance.variances(), 0)).tolist()
    every = product(*(each.categories for each in estimate.schema.attributes))
    yield from zip(every, shares, errors, strict=True)


def _keys(names: Sequence[str]) -> list[str]:
    """Return a key for each attribute that no other key takes, nor the numbers beside them."""
    taken = {*names, *VALUES}
    keys = []
    for name in names:
        key = name
        while key in VALUES or (key != name and key in taken):
            key += " (attribute)"
        taken.add(key)
        keys.append(key)
    return keys


def _print_estimate(screen: "Console", contract: "Contract", estimate: "Estimate") -> None:
    plan, schema = estimate.plan, estimate.schema
    delta = f", δ = {plan.delta:g}" if plan.delta else ""
    print_facts(
        screen,
        {
            "study": contract.title,
            "sample": f"{plan.sample_size:,} of {plan.population_size:,} respondents",
            "promise": f"ε = {plan.epsilon:g}{delta}; if the order leaks,"
            f" ε = {plan.epsilon_if_order_known:.4g}",
        },
    )
    screen.print()
    if schema.domain_size <= MOST_CELLS:
        rows = [(*found, *_numbers(share, error)) for found, share, error in _rows(estimate)]
        print_rows(screen, (*schema.names, *HEADINGS), rows, numbers=2)
    else:
        print_rows(screen, ("attribute", "category", *HEADINGS), _marginals(estimate), numbers=2)
        screen.print(f"\nThe joint table has {schema.domain_size:,} cells: --csv writes them all.")
    if (estimate.distribution < 0).any():
        screen.print("\nShares below zero are noise around next to nobody, and left as they are.")


def _numbers(share: float, error: float) -> tuple[str, str]:
    return f"{100 * share:.2f} %", f"{100 * error:.2f} %"


def _marginals(estimate: "Estimate") -> Iterator[tuple[str, ...]]:
    """Yield each attribute's categories by themselves, with errors from the whole covariance."""
    import numpy as np

    sizes = [each.size for each in estimate.schema.attributes]
    covariance, shares = estimate.covariance, estimate.distribution
    for position, attribute in enumerate(estimate.schema.attributes):
        shape = [1] * len(sizes)
        shape[position] = attribute.size
        codes = np.broadcast_to(np.arange(attribute.size).reshape(shape), sizes).ravel()
        for code, category in enumerate(attribute.categories):
            there = (codes == code).astype(np.float64)
            variance = max(float(covariance.between(there, there)), 0.0)
            yield attribute.name, category, *_numbers(float(there @ shares), variance**0.5)
