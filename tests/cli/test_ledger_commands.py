"""Budgets: set, shown, and never loosened by leaving an option out."""

from pathlib import Path

import pytest

from tests.support.commands import Office, assert_refused, open_office


@pytest.fixture
def office(tmp_path: Path) -> Office:
    """Somebody with an identity, and no server: budgets are nobody else's business."""
    return open_office(tmp_path, "Finanzamt")


def test_a_budget_is_set_and_shown(office: Office) -> None:
    """With and without the word show."""
    assert "No data set has a budget yet" in office.succeed("ledger")
    made = office.json("ledger", "set", "Bürger 2025", "--epsilon", 3, "--delta", 1e-5)
    assert (made["dataset"], made["epsilon_limit"], made["epsilon_left"]) == ("Bürger 2025", 3, 3)
    assert (made["delta_limit"], made["delta_spent"], made["entries"]) == (1e-5, 0, [])
    assert office.json("ledger") == office.json("ledger", "show") == {"ledgers": [made]}
    text = office.succeed("ledger")
    assert "Bürger 2025" in text
    assert "3: 0 spent, 3 left" in text


def test_what_is_not_given_stays(office: Office) -> None:
    """A policy is not forgotten when the limit is raised."""
    policy = ("--largest-epsilon", 0.5, "--smallest-population", 1000, "--delta", 1e-6)
    office.succeed("ledger", "set", "x", "--epsilon", 1, *policy)
    found = office.json("ledger", "set", "x", "--epsilon", 2)
    assert (found["epsilon_limit"], found["delta_limit"]) == (2, 1e-6)
    assert (found["largest_epsilon"], found["smallest_population"]) == (0.5, 1000)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("x", "--epsilon", "0"), "a budget cannot have the limits"),
        (("x", "--epsilon", "nan"), "a budget cannot have the limits"),
        (("x", "--epsilon", "1", "--delta", "1"), "a budget cannot have the limits"),
        (("x", "--epsilon", "1", "--largest-epsilon", "0"), "cannot be 0"),
        (("a\nb", "--epsilon", "1"), "data set"),
        (("x",), "Missing option '--epsilon'"),
    ],
)
def test_limits_that_limit_nothing(office: Office, arguments: tuple[str, ...], words: str) -> None:
    """They are refused, and nothing is kept."""
    assert words in assert_refused(office.run("ledger", "set", *arguments))
    assert office.json("ledger") == {"ledgers": []}
