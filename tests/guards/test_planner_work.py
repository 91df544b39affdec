"""An answer of the console's planner takes a bounded amount of work; seconds are no test."""

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from scipy.special import betainc, betaincc

from veiltab.console.forms import Form
from veiltab.console.pages import planner
from veiltab.core import accounting
from veiltab.core.accounting import Numbers
from veiltab.core.decoy_search import DecoySearch

MOST_LAWS = 10_000
"""Laws of decoys that one question looks at: about 10 µs each."""

MOST_BOUNDS = 100
"""Bounds for shuffling that one question computes: about a millisecond each."""

MOST_TAILS = 600_000
"""Tails of binomials that are computed for all of these bounds: about 0.1 µs each."""

QUESTIONS = (
    {"population": 20_000, "sizes": "2, 3, 4", "epsilon": 0.01, "delta": 1e-6},
    {"population": 20_000, "sizes": "2, 3, 4", "epsilon": 1, "delta": 1e-3},
    {"population": 1_000_000_000, "sizes": "2, 3, 4", "epsilon": 1, "delta": 1e-12},
    {"population": 1_000_000, "sizes": "8, 8, 12", "epsilon": 0.1, "delta": 1e-6},
    {"population": 1_000, "sizes": "2, 3", "epsilon": 2, "delta": 1e-12},
    {"population": 300, "sizes": "2, 3", "epsilon": 2, "delta": 1e-5},
    {"population": 20_000, "sizes": "2,3", "epsilon": 8, "delta": 1e-9, "linkage": "matched"},
)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count laws, bounds and tails, from an empty memory."""
    counted: Counter[str] = Counter()
    law, bound = DecoySearch._candidate, accounting.sampled_delta

    def count_law(*arguments: object) -> object:
        counted["laws"] += 1
        return law(*arguments)  # type: ignore[arg-type]

    def count_bound(*arguments: object) -> object:
        counted["bounds"] += 1
        return bound(*arguments)

    def counting(tail: Callable[..., Numbers]) -> Callable[..., Numbers]:
        def count_tails(first: Numbers, rest: Numbers, chance: float) -> Numbers:
            counted["tails"] += first.size
            return tail(first, rest, chance)

        return count_tails

    monkeypatch.setattr(DecoySearch, "_candidate", count_law)
    monkeypatch.setattr(accounting, "betainc", counting(betainc))
    monkeypatch.setattr(accounting, "betaincc", counting(betaincc))
    monkeypatch.setattr(accounting, "sampled_delta", count_bound)
    caches = (planner._ways, planner._decoys, bound)
    for cache in caches:
        cache.cache_clear()
    yield counted
    for cache in caches:
        cache.cache_clear()


def ask(question: dict[str, object]) -> planner.Asked:
    """Return a question as the page's fields put it."""
    return planner.Asked.of(Form((name, str(value)) for name, value in question.items()))


@pytest.mark.parametrize("question", QUESTIONS, ids=str)
def test_an_answer_is_bounded(question: dict[str, object], work: Counter[str]) -> None:
    """However many respondents there are and however small ε is; asked again, it is free."""
    ways = planner._ways(ask(question))
    assert [way.refusal for way in ways] == ["", "", "", ""]
    assert 0 < work["laws"] <= MOST_LAWS
    assert 0 < work["bounds"] <= MOST_BOUNDS
    assert 0 < work["tails"] <= MOST_TAILS
    work.clear()
    assert planner._ways(ask(question)) is ways
    planner._decoys(ask(question))
    assert not work
