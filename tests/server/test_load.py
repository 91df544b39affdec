"""Many studies at once on one server, each with the right outcome."""

from pathlib import Path

import numpy as np
import pytest

from tests.support.load import Load, run_all
from tests.support.memory import MIB
from tests.support.servers import NO_LIMITS, serving

MOST_MEMORY = 300 * MIB
MOST_CHANGES = 1e-9
"""How many records the noise changes in all studies together, as a bound on their expectation."""


def run(folder: Path, studies: int) -> Load:
    """Run so many studies on a server of their own, and check every one of them."""
    with serving(folder, *NO_LIMITS) as server:
        load = run_all(server, folder, studies)
        problems = server.problems()
    print(load)  # noqa: T201 - pytest -rA shows it
    check(load)
    assert problems == []
    return load


def check(load: Load) -> None:
    """Every study is released and estimated as its tables are, and its log is whole."""
    assert sum(float(each.expected_changes) for each in load.runs) < MOST_CHANGES
    for each in load.runs:
        assert each.estimate is not None
        counts = each.planned.counts
        np.testing.assert_array_equal(each.estimate.counts, counts)
        shares = counts / each.planned.common
        np.testing.assert_allclose(each.estimate.unbiased, shares, atol=1e-12)
        assert each.events.count("uploaded") == each.events.count("granted") == 3
        assert each.events.count("released") == 1
    assert load.peak < MOST_MEMORY


@pytest.mark.slow
def test_studies_at_once(tmp_path: Path) -> None:
    """Four studies with 16 parties, who all work at the same time."""
    assert len(run(tmp_path, 4).runs) == 4


@pytest.mark.soak
def test_fifty_studies_at_once(tmp_path: Path) -> None:
    """Fifty studies with 200 parties."""
    assert len(run(tmp_path, 50).runs) == 50
