"""How an estimate is shown: large tables attribute by attribute, and odd names without harm."""

import io

import numpy as np
import pytest
from rich.console import Console

from tests.support.messages import contract
from veiltab.cli.estimate import _cells, _marginals, _print_estimate
from veiltab.core.plan import plan
from veiltab.core.schema import Attribute, Schema
from veiltab.roles.researcher.estimate import Estimate

SIZES = {"share": 10, "standard_error": 4, "age [bold]": 2}


@pytest.fixture
def estimate() -> Estimate:
    """Make an estimate of 80 cells with odd names, most of them empty."""
    attributes = [Attribute(name, map(str, range(size))) for name, size in SIZES.items()]
    counts = np.zeros(80, dtype=np.int64)
    counts[3], counts[70] = 30, 70
    chosen = plan(population_size=1000, domain_size=80, epsilon=2.0, sample_size=100)
    return Estimate(Schema(attributes), counts, chosen)


def test_marginals_are_sums_of_cells(estimate: Estimate) -> None:
    """With standard errors that count how cells vary together."""
    shares = estimate.distribution.reshape(tuple(SIZES.values()))
    rows = list(_marginals(estimate))
    assert len(rows) == sum(SIZES.values())
    assert rows[0][:3] == ("share", "0", f"{100 * shares[0].sum():.2f} %")
    assert rows[11][:3] == ("standard_error", "1", f"{100 * shares[:, 1].sum():.2f} %")
    last = np.zeros(80)
    last[1::2] = 1
    error = float(estimate.covariance.between(last, last)) ** 0.5
    assert rows[-1] == (
        "age [bold]",
        "1",
        f"{100 * shares[..., 1].sum():.2f} %",
        f"{100 * error:.2f} %",
    )


def test_names_like_those_of_numbers(estimate: Estimate) -> None:
    """An attribute called share does not hide the share."""
    cells = list(_cells(estimate))
    assert len(cells) == 80
    assert list(cells[70]) == [
        *("share (attribute)", "standard_error (attribute)", "age [bold]"),
        *("share", "standard_error"),
    ]
    assert cells[70]["share (attribute)"] == "8"
    assert sum(cell["share"] for cell in cells) == pytest.approx(1)
    assert all(cell["standard_error"] > 0 for cell in cells)


def test_a_large_table_for_people(estimate: Estimate) -> None:
    """Each attribute by itself, a word about the rest, and one about negative shares."""
    out = io.StringIO()
    _print_estimate(Console(file=out, width=100, highlight=False), contract(), estimate)
    text = out.getvalue()
    assert "The joint table has 80 cells: --csv writes them all." in text
    assert "Shares below zero are noise" in text
    assert "age [bold]" in text
    assert "100 of 1,000 respondents" in text
