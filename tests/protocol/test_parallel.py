"""Several threads give what one gives, in the same order, and take no more than they need."""

import threading
from collections.abc import Iterator
from typing import NoReturn

import pytest

from tests.support.simulator import holding
from veiltab.core.mechanism import LinkageMode
from veiltab.crypto.entropy import CipherEntropy
from veiltab.protocol import parallel
from veiltab.protocol.in_process import Rehearsal, Terms
from veiltab.protocol.parallel import MOST_THREADS, available_threads, ordered_map


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(threads: int) -> None:
    """Also if the first items take longest."""
    gate = threading.Event()

    def work(item: int) -> int:
        if item == 0 and threads > 1:
            assert gate.wait(10)
        if item == 1:
            gate.set()
        return item * item

    assert list(ordered_map(work, range(50), threads)) == [item * item for item in range(50)]


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_few_items_are_taken_ahead(threads: int) -> None:
    """Memory holds only those, however many there are."""
    taken = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for item in range(1000):
            taken += 1
            yield item

    results = ordered_map(lambda item: item, items(), threads)
    for number in range(20):
        assert next(results) == number
        assert taken <= number + threads + 2
    results.close()  # type: ignore[attr-defined]
    assert taken <= 20 + threads + 2


@pytest.mark.parametrize("threads", [1, 3])
def test_an_error_comes_out_in_its_place(threads: int) -> None:
    """What came before it is not lost, and nothing comes after it."""

    def work(item: int) -> int:
        if item == 7:
            raise ValueError(item)
        return item

    found: list[int] = []
    with pytest.raises(ValueError, match="7"):
        found.extend(ordered_map(work, range(20), threads))
    results = ordered_map(work, range(20), threads)
    assert [next(results) for _ in range(7)] == list(range(7))
    with pytest.raises(ValueError, match="7"):
        next(results)


def test_work_is_done_at_the_same_time() -> None:
    """Two items that wait for each other can only both end if both have begun."""
    meeting = threading.Barrier(2, timeout=10)
    assert len(list(ordered_map(lambda _: meeting.wait(), range(2), 2))) == 2


def test_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody may set it; nonsense is as good as nothing."""
    monkeypatch.setenv("VEILTAB_THREADS", "3")
    assert available_threads() == 3
    for nonsense in ("", "0", "-1", "many"):
        monkeypatch.setenv("VEILTAB_THREADS", nonsense)
        assert 1 <= available_threads() <= MOST_THREADS


@pytest.mark.parametrize("linkage", ["aligned", "matched"])
def test_small_tables_start_no_threads(
    linkage: LinkageMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A simulation goes through such a study a thousand times; threads would slow it down."""

    def refuse(*_: object, **__: object) -> NoReturn:
        raise AssertionError("threads were started")

    monkeypatch.setenv("VEILTAB_THREADS", "2")
    monkeypatch.setattr(parallel, "ThreadPoolExecutor", refuse)
    holdings = [holding({name: 3}, range(50)) for name in ("smoker", "income")]
    rehearsal = Rehearsal(holdings, CipherEntropy.from_seed(1, "small"))
    outcome = rehearsal.run(Terms(epsilon=1.0, sample_size=20, linkage=linkage))
    assert outcome.study.release().body.rows == 20
